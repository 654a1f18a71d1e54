"""``Definition``: the description of a tool by its server, in the exact text that is approved."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import contract
from coilclaw.kernel import (
    JsonFault,
    UsageError,
    canonical_json,
    digest_bytes,
    measure_depth,
    quote_text,
    read_json_object,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.kernel import Json

MAX_DESCRIPTION: Final = 1024
MAX_REMARK: Final = 300
"""Characters of a description inside a schema."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Characters of other categories that are invisible or change the one before them.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0000-\U000e0fff]"
)
_REMARKS: Final = ("description", "title")
_DATA: Final = frozenset({"enum", "const", "default", "examples"})
MAX_DEPTH: Final = 64


def plain_text(text: str, limit: int = MAX_DESCRIPTION) -> str:
    """Return a text on one line without invisible characters, at most ``limit`` characters."""
    words = "".join(" " if hides(char) else char for char in text[: 8 * limit]).split()
    joined = " ".join(words)
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"


def hides(char: str) -> bool:
    """Return whether a character is invisible or changes how others are shown."""
    if char.isascii():
        return not " " <= char <= "~"
    return unicodedata.category(char) in _HIDDEN or _BLANK.match(char) is not None


def count_hidden(text: str) -> int:
    """Return the number of invisible characters, without line ends and tabs."""
    return sum(hides(char) for char in text if char not in "\n\r\t")


def plain_schema(schema: Mapping[str, Json], depth: int = MAX_DEPTH) -> dict[str, Json]:
    """Return an equivalent schema with plain descriptions and titles."""

    def clean(value: Json, depth: int) -> Json:
        if isinstance(value, list) and depth:
            return [clean(item, depth - 1) for item in value]
        return plain_schema(value, depth) if isinstance(value, dict) and depth else value

    told: dict[str, Json] = {}
    for key, item in schema.items():
        if key in _DATA:
            told[key] = item
        elif key in _REMARKS and isinstance(item, str):
            told[key] = plain_text(item, MAX_REMARK)
        elif key != "$comment" or not isinstance(item, str):
            told[key] = clean(item, depth - 1)
    return told


MAX_TOOLS: Final = 256
MAX_BYTES: Final = 64 * 2**10
"""Bytes of one definition."""
MAX_TOOL_NAME: Final = 256
MAX_LEVELS: Final = 64
"""Nesting depth of one definition: a schema within a schema is two levels."""

_TOLD: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of one tool; ``text`` is its RFC 8785 form, which is hashed."""

    name: str
    description: str
    schema: Mapping[str, Json]
    text: str

    @property
    def sha256(self) -> str:
        return digest_bytes(self.text.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class ToolListing:
    """The tools of a server by name, and the unusable ones with the reason."""

    tools: Mapping[str, Definition]
    refused: tuple[tuple[str, str], ...] = ()


def parse_definition(text: str) -> Definition:
    """Return the definition in a text; raise ``UsageError`` if it is malformed."""
    try:
        value = read_json_object(text, max_depth=MAX_LEVELS)
    except JsonFault as problem:
        raise _malformed_error(str(problem)) from problem
    name, description = value.get("name"), value.get("description", "")
    schema = value.get("inputSchema")
    if not isinstance(name, str) or not isinstance(description, str):
        raise _malformed_error("has no name, or a description that is not a text")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _malformed_error("does not have the schema of an object")
    return Definition(name, description, schema, text)


def collect_definitions(tools: Iterable[Json]) -> ToolListing:
    """Return the tools that a server lists, with the unusable ones named as refused."""
    found: dict[str, Definition] = {}
    refused: dict[str, str] = {}
    for number, tool in enumerate(tools, start=1):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            refused[f"tool {number}"] = "the definition of a tool has no name"
            continue
        name = str(tool["name"])
        try:
            definition = check_definition(tool)
        except UsageError as problem:
            refused[quote_text(name)] = problem.message
            continue
        if name in found or quote_text(name) in refused:
            found.pop(name, None)
            refused[quote_text(name)] = "it is listed twice"
            continue
        found[name] = definition
    return ToolListing(found, tuple(refused.items()))


def check_definition(tool: Mapping[str, Json]) -> Definition:
    """Return the definition that a server sent; raise ``UsageError`` if it is unusable."""
    if measure_depth(tool) >= MAX_LEVELS:
        raise _malformed_error(f"is nested more than {MAX_LEVELS} levels deep")
    text = canonical_json.render_json(
        {key: tool[key] for key in _TOLD if tool.get(key) is not None}
    )
    if len(text.encode("utf-8")) > MAX_BYTES:
        raise _malformed_error(f"is larger than {MAX_BYTES} bytes")
    definition = parse_definition(text)
    if not definition.name or len(definition.name) > MAX_TOOL_NAME:
        raise _malformed_error(
            f"has a name that is empty or longer than {MAX_TOOL_NAME} characters"
        )
    if count_hidden(definition.name) or any(c in definition.name for c in "\n\r\t"):
        raise _malformed_error("has invisible characters in its name")
    contract.check(definition.schema, {})
    return definition


def _malformed_error(what: str) -> UsageError:
    return UsageError(f"the definition of a tool {what}", rule="mcp.definition")


LONGEST: Final = 64
SEPARATOR: Final = "__"

_DIGITS: Final = 10
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_MARKED: Final = re.compile(rf"-[0-9a-f]{{{_DIGITS}}}\Z")
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def tool_name(server: str, tool: str) -> str:
    """Return ``SERVER__TOOL``; change an invalid name and mark it with a digest.

    The name depends on nothing else, so other tools do not affect it. The name of a server has no
    ``__``, and a name that looks marked is marked again, so no two tools get the same name.
    """
    name = f"{server}{SEPARATOR}{tool}"
    if _PLAIN.fullmatch(name) and len(name) <= LONGEST and not _MARKED.search(name):
        return name
    mark = digest_bytes(f"{server}\0{tool}".encode("utf-8", "surrogatepass"))[:_DIGITS]
    return f"{_OTHER.sub('_', name)[: LONGEST - _DIGITS - 1]}-{mark}"
