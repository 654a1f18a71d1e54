"""``manifest.toml``: what a plugin is, which tools it has and what they touch.

Everything that is wrong is found in one pass, and every key that is not known is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import TreePath, shown
from coilclaw.errors import PathRefused, UsageError
from coilclaw.plugins.declared import FIELD, Declared
from coilclaw.plugins.fields import Fields, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.plugins.files import PluginFile

MAX_BYTES: Final = 64 * 2**10
MAX_TOOLS: Final = 32
MAX_EXAMPLES: Final = 20
MAX_WORDS: Final = 32
MAX_EFFECTS: Final = 16
MAX_TIMEOUT_S: Final = 3600
MAX_OUTPUT_BYTES: Final = 2**20
DEFAULT_OUTPUT_BYTES: Final = 256 * 2**10
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 2000
MAX_TEXT: Final = 4000

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_TOOL: Final = re.compile(r"[a-z][a-z0-9_]*")
_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.+-]*")


@dataclass(frozen=True, slots=True)
class Example:
    """A call that shows that a tool works."""

    arguments: Mapping[str, Json]
    success: bool = True
    output: str | None = None
    """What the tool answers, to the letter, where that is known."""


@dataclass(frozen=True, slots=True)
class PluginTool:
    """One tool of a plugin, as its manifest describes it."""

    name: str
    description: str
    command: tuple[str, ...]
    """The program, relative to the plugin's directory, and its fixed arguments."""
    schema: Mapping[str, Json]
    declared: Declared = field(default_factory=Declared)
    network: bool = False
    timeout_s: float | None = None
    output_bytes: int = DEFAULT_OUTPUT_BYTES
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a plugin says about itself."""

    name: str
    version: str
    tools: tuple[PluginTool, ...]
    description: str = ""


def parse(text: str) -> Manifest:
    """Read a manifest; ``UsageError`` says everything that is wrong with it."""
    found = examine(text)
    if isinstance(found, Manifest):
        return found
    raise invalid(found)


def invalid(problems: tuple[Problem, ...]) -> UsageError:
    """Make the error that says all problems."""
    count = "a problem: " if len(problems) == 1 else f"{len(problems)} problems:\n"
    said = "\n".join(map(str, problems))
    return UsageError(f"manifest.toml has {count}{said}", rule="plugin.manifest")


def examine(text: str, *, approved: bool = False) -> Manifest | tuple[Problem, ...]:
    """Return a manifest, or everything that is wrong with it.

    Of one that was ``approved`` the schemas are not compiled again: an agent starts with this.
    """
    found, problems = inspect(text, approved=approved)
    return problems or found


def inspect(text: str, *, approved: bool = False) -> tuple[Manifest, tuple[Problem, ...]]:
    """Return what can be read of a manifest, and everything that is wrong with it."""
    import tomllib

    nothing = Manifest("", "", ())
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return nothing, (Problem("", f"it is larger than {MAX_BYTES:,} bytes"),)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        return nothing, (Problem("", f"it is not TOML: {problem}"),)
    problems: list[Problem] = []
    top = Fields(table, "", problems)
    name = plugin_name(top)
    version = top.text("version", most=MAX_NAME, form=_VERSION, rule="a version such as 0.1.0")
    description = top.text("description", most=MAX_DESCRIPTION, needed=False)
    if top.take("capabilities", needed=True) not in (["tool"], None):
        top.problem("capabilities", 'is not ["tool"], which is all there is')
    entries = top.tables("tools", most=MAX_TOOLS, needed=True)
    tools = tuple(_tool(entry, approved=approved) for entry in entries)
    top.close()
    for index, tool in enumerate(tools):
        if tool.name and tool.name in {other.name for other in tools[:index]}:
            problems.append(Problem(f"tools[{index}].name", f"'{tool.name}' is there twice"))
    return Manifest(name, version, tools, description), tuple(problems)


def plugin_name(top: Fields) -> str:
    """Read the name, which is a directory of ours and part of rules and settings."""
    rule = "made of small letters, digits and single '-' or '_', beginning with a letter"
    name = top.text("name", most=MAX_NAME, form=_NAME, rule=rule)
    try:
        if name:
            TreePath.parse(name)
    except PathRefused as refused:
        top.problem("name", refused.message)
    return name


def missing_files(manifest: Manifest, files: Mapping[str, PluginFile]) -> tuple[Problem, ...]:
    """Say which programs are not there, or cannot be run."""
    problems = []
    for index, tool in enumerate(manifest.tools):
        key, program = f"tools[{index}].command", tool.command[0]
        if not program:
            continue  # what stands there is wrong already
        if program not in files:
            problems.append(Problem(key, f"there is no file {shown(program)} in the plugin"))
        elif not files[program].executable:
            problems.append(Problem(key, f"{shown(program)} is not executable; chmod +x it first"))
    return tuple(problems)


def _tool(entry: Fields, *, approved: bool) -> PluginTool:
    name = entry.text(
        "name", most=MAX_NAME, form=_TOOL, rule="made of small letters, digits and '_'"
    )
    description = entry.text("description", most=MAX_DESCRIPTION)
    command = _command(entry)
    schema = _schema(entry, approved=approved)
    declared = _declared(entry, schema)
    network = entry.flag("network", default=False)
    if declared.fetches and not network:
        entry.problem("effects.fetches", "names servers, and 'network' is not true")
    timeout_s = entry.number("timeout_s", MAX_TIMEOUT_S)
    output_bytes = entry.number("output_bytes", MAX_OUTPUT_BYTES)
    examples = _examples(entry, None if approved else schema)
    entry.close()
    size = DEFAULT_OUTPUT_BYTES if output_bytes is None else max(int(output_bytes), 1)
    return PluginTool(
        name,
        description,
        command or ("",),
        schema or {},
        declared,
        network,
        timeout_s,
        size,
        examples,
    )


def _command(entry: Fields) -> tuple[str, ...]:
    value = entry.take("command", needed=True)
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or not 0 < len(words) <= MAX_WORDS
        or not all(isinstance(word, str) and len(word) <= MAX_TEXT for word in words)
        or any("\0" in word for word in words)
    ):
        entry.problem("command", "is neither a program nor a list of it and its arguments")
        return ()
    try:
        program = TreePath.parse(words[0])
    except PathRefused as refused:
        entry.problem("command", f"{refused.message}; it is a file of the plugin")
        return ()
    return (str(program), *words[1:])


def _schema(entry: Fields, *, approved: bool) -> dict[str, Json] | None:
    schema = entry.object("schema", needed=True)
    if schema is None:
        return None
    if schema.get("type") != "object":
        entry.problem("schema", 'has no type = "object", which all arguments have')
        return None
    if approved:
        return schema
    from coilclaw.tools import schema as checking

    try:
        checking.check(schema, {})
    except UsageError as problem:
        entry.problem("schema", problem.message)
        return None
    return schema


def _declared(entry: Fields, schema: dict[str, Json] | None) -> Declared:
    effects = entry.table("effects")
    names = ("reads", "writes", "fetches", "runs")
    found = {name: effects.texts(name, most=MAX_EFFECTS, longest=MAX_TEXT) for name in names}
    effects.close()
    declared = Declared(**found)
    properties = None if schema is None else schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    for name in declared.fields if schema is not None else ():
        if name not in known:
            # A name that nothing bears would declare nothing at all.
            entry.problem(
                "effects", f"{shown(FIELD + name)} names no property of the tool's schema"
            )
    return declared


def _examples(entry: Fields, schema: dict[str, Json] | None) -> tuple[Example, ...]:
    found = []
    for table in entry.tables("examples", most=MAX_EXAMPLES, needed=False):
        arguments = table.object("arguments", needed=True)
        output = table.take("output")
        if not isinstance(output, str | None):
            table.problem("output", "is no text")
            output = None
        found.append(Example(arguments or {}, table.flag("success", default=True), output))
        table.close()
        if arguments is not None and schema is not None:
            from coilclaw.tools import schema as checking

            for problem in checking.check(schema, arguments):
                table.problem("arguments", problem)
    return tuple(found)
