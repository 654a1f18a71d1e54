"""``manifest.toml``: the name of a plugin, its tools and their effects.

One pass reports every problem, and an unknown key is a problem. An effect such as ``$path`` means
the argument of that name; any other text is literal.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agent.plugins.files import MANIFEST
from coilclaw.agent.tools import contract
from coilclaw.kernel import (
    Document,
    Fetches,
    PathRefused,
    Reads,
    Runs,
    TreePath,
    UsageError,
    Writes,
    measure_depth,
    quote_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent.plugins.files import PluginFile
    from coilclaw.agent.tools.contract import Arguments
    from coilclaw.kernel import Effect, Json, Problem, Table

FIELD: Final = "$"
MAX_VALUES: Final = 100
"""Values of an argument that an effect refers to."""
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
MAX_JSON_DEPTH: Final = 32

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_TOOL: Final = re.compile(r"[a-z][a-z0-9_]*")
_VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.+-]*")
_NAME_RULE: Final = "made of small letters, digits and single '-' or '_', beginning with a letter"


@dataclass(frozen=True, slots=True)
class Declared:
    """The ``effects`` that a tool declares."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The arguments that the effects refer to."""
        entries = (*self.reads, *self.writes, *self.fetches, *self.runs)
        return tuple(entry[1:] for entry in entries if entry.startswith(FIELD))

    @property
    def workspace(self) -> bool:
        """Whether the tool uses the workspace."""
        return bool(self.reads or self.writes or self.runs)

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Return the effects of a call with these arguments."""
        found: list[Effect] = []
        found += [Reads(path) for entry in self.reads for path in _texts(entry, args)]
        found += [Writes(path) for entry in self.writes for path in _texts(entry, args)]
        for entry in self.fetches:
            # A host alone means its usual address.
            urls = (url if "://" in url else f"https://{url}/" for url in _texts(entry, args))
            found += map(Fetches, urls)
        for entry in self.runs:
            # A text is a command line, a list is an argv.
            words = _texts(entry, args)
            if isinstance(_value(entry, args), list):
                found += [Runs(argv=tuple(words))] if words else []
            else:
                found += [Runs(command=text) for text in words]
        return tuple(found)

    def __str__(self) -> str:
        verbs = ("reads", "writes", "fetches", "runs")
        said = [f"{verb} {', '.join(getattr(self, verb))}" for verb in verbs if getattr(self, verb)]
        return "; ".join(said) or "touches nothing but its own files"


def _value(entry: str, args: Arguments) -> Json:
    return args.get(entry[1:]) if entry.startswith(FIELD) else entry


def _texts(entry: str, args: Arguments) -> list[str]:
    value = _value(entry, args)
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items) or len(texts) > MAX_VALUES:
        raise UsageError(
            f"the argument '{entry[1:]}' of an effect is a text, or a list of at most "
            f"{MAX_VALUES} texts",
            rule="plugin.arguments",
        )
    return texts


@dataclass(frozen=True, slots=True)
class Example:
    """A call that demonstrates a tool."""

    arguments: Mapping[str, Json]
    success: bool = True
    output: str | None = None
    """The exact output of the tool, if it is known."""


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
    """The description of a plugin and its tools."""

    name: str
    version: str
    tools: tuple[PluginTool, ...]
    description: str = ""


def parse(text: str) -> Manifest:
    """Return a manifest; raise a ``UsageError`` that lists all of its problems."""
    found, document = inspect(text)
    if document.problems:
        raise invalid(document.problems)
    return found


def invalid(problems: tuple[Problem, ...]) -> UsageError:
    """Return the error that lists all problems."""
    count = "a problem: " if len(problems) == 1 else f"{len(problems)} problems:\n"
    said = "\n".join(map(str, problems))
    return UsageError(f"{MANIFEST} has {count}{said}", rule="plugin.manifest")


def inspect(text: str, *, approved: bool = False) -> tuple[Manifest, Document]:
    """Return the readable part of a manifest, and the document with its problems.

    With ``approved``, schemas are not compiled again, so that an agent starts quickly.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        document = Document()
        document.note((), f"is larger than {MAX_BYTES:,} bytes")
        return Manifest("", "", ()), document
    document = Document(text)
    top = document.read_toml()
    name = top.text("name", required=True, most=MAX_NAME, form=_NAME, rule=_NAME_RULE)
    try:
        # The name becomes a directory, and a part of rules and settings.
        TreePath.parse(name or "absent")
    except PathRefused as refused:
        top.note("name", refused.message)
    version = top.text(
        "version", required=True, most=MAX_NAME, form=_VERSION, rule="a version such as 0.1.0"
    )
    description = top.text("description", most=MAX_DESCRIPTION)
    if top.take("capabilities", required=True) not in (["tool"], None):
        top.note("capabilities", 'is not ["tool"], the only supported value')
    entries = top.tables("tools", most=MAX_TOOLS, required=True)
    tools = tuple(_read_tool(entry, approved=approved) for entry in entries)
    top.refuse_unknown()
    for index, tool in enumerate(tools):
        if tool.name and tool.name in {other.name for other in tools[:index]}:
            entries[index].note("name", f"'{tool.name}' is used twice")
    return Manifest(name, version, tools, description), document


def check_files(document: Document, manifest: Manifest, files: Mapping[str, PluginFile]) -> None:
    """Note the programs that are missing or not executable."""
    for index, tool in enumerate(manifest.tools):
        place, program = ("tools", index, "command"), tool.command[0]
        if not program:
            continue  # an invalid command was noted before
        if program not in files:
            document.note(place, f"the plugin has no file {quote_text(program)}")
        elif not files[program].executable:
            document.note(place, f"{quote_text(program)} is not executable; run chmod +x")


def _read_tool(entry: Table, *, approved: bool) -> PluginTool:
    rule = "made of small letters, digits and '_'"
    name = entry.text("name", required=True, most=MAX_NAME, form=_TOOL, rule=rule)
    description = entry.text("description", required=True, most=MAX_DESCRIPTION)
    command = _read_command(entry)
    schema = _read_schema(entry, approved=approved)
    declared = _read_effects(entry, schema)
    network = entry.flag("network")
    if declared.fetches and not network:
        entry.table("effects").note("fetches", "names servers, but 'network' is not true")
    timeout_s = entry.number("timeout_s", None, least=0, most=MAX_TIMEOUT_S, above=True)
    size = entry.number(
        "output_bytes", DEFAULT_OUTPUT_BYTES, least=0, most=MAX_OUTPUT_BYTES, above=True
    )
    examples = _read_examples(entry, None if approved else schema)
    entry.refuse_unknown()
    return PluginTool(
        name,
        description,
        command or ("",),
        schema or {},
        declared,
        network,
        timeout_s,
        max(int(size), 1),
        examples,
    )


def _read_command(entry: Table) -> tuple[str, ...]:
    value = entry.take("command", required=True)
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or not 0 < len(words) <= MAX_WORDS
        or not all(isinstance(word, str) and len(word) <= MAX_TEXT for word in words)
        or any("\0" in word for word in words)
    ):
        entry.note("command", "is neither a program nor a list of a program and its arguments")
        return ()
    try:
        program = TreePath.parse(words[0])
    except PathRefused as refused:
        entry.note("command", f"{refused.message}; the program is a file of the plugin")
        return ()
    return (str(program), *words[1:])


def _read_json(table: Table, key: str, *, required: bool) -> dict[str, Json] | None:
    """Return a table whose values JSON can express; note a problem otherwise."""
    value = table.take(key, required=required)
    try:
        json.dumps(value, allow_nan=False)
        if value is None or (isinstance(value, dict) and measure_depth(value) < MAX_JSON_DEPTH):
            return value
    except (TypeError, ValueError, RecursionError):
        pass  # a date, NaN, or unbounded nesting
    table.note(key, "is not a table that JSON can express")
    return None


def _read_schema(entry: Table, *, approved: bool) -> dict[str, Json] | None:
    schema = _read_json(entry, "schema", required=True)
    if schema is None:
        return None
    if schema.get("type") != "object":
        entry.note("schema", 'does not have type = "object"')
        return None
    try:
        if not approved:
            contract.check(schema, {})
    except UsageError as problem:
        entry.note("schema", problem.message)
        return None
    return schema


def _read_effects(entry: Table, schema: dict[str, Json] | None) -> Declared:
    effects = entry.table("effects")
    found = {}
    for name in ("reads", "writes", "fetches", "runs"):
        found[name] = effects.texts(name, most=MAX_EFFECTS)
        if any(len(text) > MAX_TEXT for text in found[name]):
            effects.note(name, f"has a text of more than {MAX_TEXT} characters")
    effects.refuse_unknown()
    declared = Declared(**found)
    properties = None if schema is None else schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    for name in declared.fields if schema is not None else ():
        if name not in known:
            # An unknown name would declare no effect at all.
            entry.note(
                "effects", f"{quote_text(FIELD + name)} is not a property of the tool's schema"
            )
    return declared


def _read_examples(entry: Table, schema: dict[str, Json] | None) -> tuple[Example, ...]:
    found = []
    for table in entry.tables("examples", most=MAX_EXAMPLES):
        arguments = _read_json(table, "arguments", required=True)
        output = table.text("output", None, blank=True)
        found.append(Example(arguments or {}, table.flag("success", default=True), output))
        table.refuse_unknown()
        if arguments is not None and schema is not None:
            for problem in contract.check(schema, arguments):
                table.note("arguments", problem)
    return tuple(found)
