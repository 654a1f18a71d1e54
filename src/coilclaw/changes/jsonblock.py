"""What the two JSON deliveries share: which objects are one, their root, entries and rendering."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes.fault import inexpressible, malformed, path_at
from coilclaw.changes.strictjson import JsonArray, JsonObject, JsonValue, kind
from coilclaw.domain.treepath import TreePath, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS: Final = ("files", "patches")


def is_delivery(value: JsonValue) -> bool:
    """Tell a delivery from any other JSON, such as a package file that has ``files`` too."""
    if not isinstance(value, JsonObject):
        return False
    lists = [value.members[key] for key in KEYS if key in value.members]
    if any(_names_paths(found) for found in lists):
        return True
    if not isinstance(value.members.get("root"), str):
        return False
    return any(
        not isinstance(found, JsonArray)
        or not found.items
        or any(isinstance(item, JsonObject) for item in found.items)
        for found in lists
    )


def root(document: JsonObject) -> tuple[str, ...]:
    """Return the directory all paths of the document are relative to."""
    value = document.members.get("root", ".")
    if not isinstance(value, str):
        raise malformed(document.line, "json.root", f"the root is {kind(value)}, not a string")
    with path_at(document.line):
        return TreePath.parse_directory(value)


def entries(document: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """Return the entries of a list, all of which must be objects with a path."""
    value = document.members[key]
    if not isinstance(value, JsonArray):
        raise malformed(document.line, "json.entries", f"'{key}' is {kind(value)}, not a list")
    found = []
    line = value.line
    for index, item in enumerate(value.items):
        if not isinstance(item, JsonObject):
            raise malformed(
                line, "json.entries", f"entry {index + 1} of '{key}' is {kind(item)}, not an object"
            )
        line = item.line
        found.append(item)
    return tuple(found)


def path(entry: JsonObject, key: str, index: int, root: tuple[str, ...]) -> TreePath:
    """Return the path of an entry, relative to the root, below which it must be a path too."""
    value = entry.members.get("path")
    if not isinstance(value, str):
        raise malformed(entry.line, "json.entries", f"entry {index + 1} of '{key}' has no path")
    with path_at(entry.line):
        found = TreePath.parse(value)
        found.under(root)
    return found


def closed(entry: JsonObject, known: frozenset[str], where: str) -> None:
    """Refuse a key we do not know: it may say that the content means something else."""
    for key in entry.members:
        if key not in known:
            raise malformed(
                entry.line,
                "json.key",
                f"the entry for {shown(where)} has an unknown key {shown(key)}",
                path=where,
            )


def render(document: Mapping[str, object]) -> str:
    """Write a document as the fenced block a model would send."""
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise inexpressible("JSON cannot hold text that is not valid Unicode") from problem
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}\n"


def _names_paths(value: JsonValue) -> bool:
    return isinstance(value, JsonArray) and any(
        isinstance(item, JsonObject) and "path" in item.members for item in value.items
    )
