"""``Definition``: a tool as its server describes it, in the exact text that a person approves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain import freeform
from coilclaw.domain.canonical import digest
from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError
from coilclaw.mcp import foreigntext
from coilclaw.mcp.json_depth import levels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.domain.messages import Json

MAX_TOOLS: Final = 256
MAX_BYTES: Final = 64 * 2**10
"""Of one definition."""
MAX_TOOL_NAME: Final = 256
MAX_LEVELS: Final = 64
"""Of one definition: a schema within a schema is two."""

_TOLD: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True, slots=True)
class Definition:
    """What one tool is said to be; ``text`` is the RFC 8785 form of it, and what is hashed."""

    name: str
    description: str
    schema: Mapping[str, Json]
    text: str

    @property
    def sha256(self) -> str:
        return digest(self.text.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, by name, and those that cannot be used, with the reason."""

    tools: Mapping[str, Definition]
    refused: tuple[tuple[str, str], ...] = ()


def parse(text: str) -> Definition:
    """Read the text of a definition."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise _malformed("is no JSON") from problem
    if not isinstance(value, dict):
        raise _malformed("is no object")
    name, description = value.get("name"), value.get("description", "")
    schema = value.get("inputSchema")
    if not isinstance(name, str) or not isinstance(description, str):
        raise _malformed("has no name, or a description that is no text")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _malformed("has no schema of an object")
    return Definition(name, description, schema, text)


def collect(tools: Iterable[Json]) -> Listing:
    """Read what a server lists; what cannot be used is named, and the rest is kept."""
    found: dict[str, Definition] = {}
    refused: dict[str, str] = {}
    for number, tool in enumerate(tools, start=1):
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            refused[f"tool {number}"] = "the definition of a tool has no name"
            continue
        name = str(tool["name"])
        try:
            definition = checked(tool)
        except UsageError as problem:
            refused[shown(name)] = problem.message
            continue
        if name in found or shown(name) in refused:
            found.pop(name, None)
            refused[shown(name)] = "it is listed twice"
            continue
        found[name] = definition
    return Listing(found, tuple(refused.items()))


def checked(tool: Mapping[str, Json]) -> Definition:
    """Read one definition as the server sent it, and see that it can be used."""
    from coilclaw.tools import schema

    if levels(dict(tool)) > MAX_LEVELS:
        raise _malformed(f"is nested more than {MAX_LEVELS} levels deep")
    text = freeform.text({key: tool[key] for key in _TOLD if tool.get(key) is not None})
    if len(text.encode("utf-8")) > MAX_BYTES:
        raise _malformed(f"is larger than {MAX_BYTES} bytes")
    definition = parse(text)
    if not definition.name or len(definition.name) > MAX_TOOL_NAME:
        raise _malformed(f"has a name that is empty or longer than {MAX_TOOL_NAME} characters")
    if foreigntext.hidden(definition.name) or any(c in definition.name for c in "\n\r\t"):
        raise _malformed("has characters in its name that do not show")
    schema.check(definition.schema, {})
    return definition


def _malformed(what: str) -> UsageError:
    return UsageError(f"the definition of a tool {what}", rule="mcp.definition")
