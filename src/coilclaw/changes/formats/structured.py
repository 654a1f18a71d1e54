"""Aptix structured patch: a JSON object whose ``patches`` are literal replacements per file.

It shares with the file bundle what tells a delivery from other JSON, the root and the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats.answer_text import collect_failures, malformed, path_at
from coilclaw.changes.formats.json_values import JsonArray, JsonObject, JsonValue, name_kind
from coilclaw.changes.operations import AnswerSource, EditText, Format, Operation, Replacement
from coilclaw.kernel import TreePath, quote_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.kernel import CoilClawError

KEY: Final = "patches"
KEYS: Final = ("files", KEY)

_ENTRY: Final = frozenset({"path", "replacements"})
_REPLACEMENT: Final = frozenset({"find", "replace", "limit"})


def is_delivery(value: JsonValue) -> bool:
    """Tell a delivery from any other JSON, such as a package file that has ``files`` too."""
    if not isinstance(value, JsonObject):
        return False
    lists = [value.members[key] for key in KEYS if key in value.members]
    for found in lists:
        items = found.items if isinstance(found, JsonArray) else ()
        if any(isinstance(item, JsonObject) and "path" in item.members for item in items):
            return True
    return isinstance(value.members.get("root"), str) and any(
        not isinstance(found, JsonArray)
        or not found.items
        or any(isinstance(item, JsonObject) for item in found.items)
        for found in lists
    )


def parse(document: JsonObject, failures: list[CoilClawError]) -> tuple[Operation, ...]:
    """Read every entry of ``patches``; what is wrong is added to ``failures``."""

    def read(
        entry: JsonObject, path: TreePath, root: tuple[str, ...], source: AnswerSource
    ) -> Operation:
        found = read_replacements(entry, str(path))
        return EditText(path.under(root), found, source=source)

    return parse_entries(document, Format.PATCH, KEY, _ENTRY, read, failures)


def parse_entries(
    document: JsonObject,
    form: Format,
    key: str,
    known: frozenset[str],
    read: Callable[[JsonObject, TreePath, tuple[str, ...], AnswerSource], Operation],
    failures: list[CoilClawError],
) -> tuple[Operation, ...]:
    """Read every entry of a list; what is wrong with one is added to the failures."""
    root_name = document.members.get("root", ".")
    if not isinstance(root_name, str):
        message = f"the root is {name_kind(root_name)}, not a string"
        raise malformed(document.line, "json.root", message)
    with path_at(document.line):
        root = TreePath.parse_directory(root_name)
    operations = []
    for index, entry in enumerate(_entries(document, key)):
        with collect_failures(failures):
            path = _path(entry, key, index, root)
            _refuse_unknown(entry, known, str(path))
            operations.append(read(entry, path, root, AnswerSource(form, entry.line, index)))
    return tuple(operations)


def read_replacements(entry: JsonObject, path: str) -> tuple[Replacement, ...]:
    """Read the ``replacements`` of an entry, of which there is at least one."""
    value = entry.members.get("replacements")
    if not isinstance(value, JsonArray) or not value.items:
        message = f"the entry for {quote_text(path)} has no list of replacements"
        raise malformed(entry.line, "patch.replacements", message, path=path)
    return tuple(
        _replacement(item, number, value.line, path)
        for number, item in enumerate(value.items, start=1)
    )


def _entries(document: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """Return the entries of a list, all of which must be objects."""
    value = document.members[key]
    if not isinstance(value, JsonArray):
        raise malformed(document.line, "json.entries", f"'{key}' is {name_kind(value)}, not a list")
    found: list[JsonObject] = []
    for index, item in enumerate(value.items, 1):
        if not isinstance(item, JsonObject):
            line = found[-1].line if found else value.line
            message = f"entry {index} of '{key}' is {name_kind(item)}, not an object"
            raise malformed(line, "json.entries", message)
        found.append(item)
    return tuple(found)


def _path(entry: JsonObject, key: str, index: int, root: tuple[str, ...]) -> TreePath:
    """Return the path of an entry, relative to the root, below which it must be a path too."""
    value = entry.members.get("path")
    if not isinstance(value, str):
        raise malformed(entry.line, "json.entries", f"entry {index + 1} of '{key}' has no path")
    with path_at(entry.line):
        found = TreePath.parse(value)
        found.under(root)
    return found


def _refuse_unknown(entry: JsonObject, known: frozenset[str], path: str) -> None:
    """Refuse a key we do not know: it may say that the content means something else."""
    if unknown := next((key for key in entry.members if key not in known), None):
        message = f"the entry for {quote_text(path)} has an unknown key {quote_text(unknown)}"
        raise malformed(entry.line, "json.key", message, path=path)


def _replacement(item: JsonValue, number: int, line: int, path: str) -> Replacement:
    if not isinstance(item, JsonObject):
        wrong = f"is {name_kind(item)}, not an object"
    else:
        line = item.line
        _refuse_unknown(item, _REPLACEMENT, path)
        find, replace = item.members.get("find"), item.members.get("replace")
        limit = item.members.get("limit", "once")
        if not isinstance(find, str) or find == "":
            wrong = "has no text to find"
        elif not isinstance(replace, str):
            wrong = "has no text to put in its place"
        elif limit in ("once", "all"):
            return Replacement(find, replace, "all" if limit == "all" else "once")
        else:
            wrong = "has a limit that is neither 'once' nor 'all'"
    message = f"replacement {number} of {quote_text(path)} {wrong}"
    raise malformed(line, "patch.replacement", message, path=path)
