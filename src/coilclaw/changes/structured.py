"""Aptix structured patch: a JSON object whose ``patches`` are literal replacements per file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes import jsonblock
from coilclaw.changes.fault import collect, inexpressible, malformed
from coilclaw.changes.operations import EditText, Format, Operation, Replacement, Source
from coilclaw.changes.strictjson import JsonArray, JsonObject, JsonValue, kind
from coilclaw.domain.treepath import shown
from coilclaw.errors import combine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.errors import AnswerError, CoilClawError

KEY: Final = "patches"

_ENTRY: Final = frozenset({"path", "replacements"})
_REPLACEMENT: Final = frozenset({"find", "replace", "limit"})


def parse(
    document: JsonObject, *, failures: list[CoilClawError] | None = None
) -> tuple[Operation, ...]:
    """Read every entry of ``patches``; what is wrong is raised, or added to ``failures``."""
    failed: list[CoilClawError] = [] if failures is None else failures
    root = jsonblock.root(document)
    operations: list[Operation] = []
    for index, entry in enumerate(jsonblock.entries(document, KEY)):
        with collect(failed):
            path = jsonblock.path(entry, KEY, index, root)
            jsonblock.closed(entry, _ENTRY, str(path))
            found = replacements(entry, str(path))
            source = Source(Format.PATCH, entry.line, index)
            operations.append(EditText(path.under(root), found, source=source))
    if failed and failures is None:
        raise combine(failed)
    return tuple(operations)


def replacements(entry: JsonObject, path: str) -> tuple[Replacement, ...]:
    """Read the ``replacements`` of an entry, of which there is at least one."""
    value = entry.members.get("replacements")
    if not isinstance(value, JsonArray) or not value.items:
        raise malformed(
            entry.line,
            "patch.replacements",
            f"the entry for {shown(path)} has no list of replacements",
            path=path,
        )
    return tuple(
        _replacement(item, number, value.line, path)
        for number, item in enumerate(value.items, start=1)
    )


def render(operations: Iterable[Operation]) -> str:
    """Write literal edits as one JSON block; raise ``UsageError`` for anything else."""
    entries: list[object] = []
    for operation in operations:
        if not isinstance(operation, EditText):
            raise inexpressible(
                f"'{operation.path}': a structured patch holds literal replacements only"
            )
        entries.append(
            {"path": str(operation.path), "replacements": rendered(operation.replacements)}
        )
    return jsonblock.render({"root": ".", KEY: entries})


def rendered(found: tuple[Replacement, ...]) -> list[dict[str, str]]:
    """Return replacements as the JSON values that ``replacements`` reads."""
    values = []
    for replacement in found:
        if replacement.find == "":
            raise inexpressible("a structured patch cannot look for nothing")
        value = {"find": replacement.find, "replace": replacement.replace}
        if replacement.limit != "once":
            value["limit"] = replacement.limit
        values.append(value)
    if not values:
        raise inexpressible("a structured patch cannot hold an edit without replacements")
    return values


def _replacement(item: JsonValue, number: int, line: int, path: str) -> Replacement:
    if not isinstance(item, JsonObject):
        raise _wrong(path, number, f"is {kind(item)}, not an object", line)
    jsonblock.closed(item, _REPLACEMENT, path)
    find = item.members.get("find")
    replace = item.members.get("replace")
    limit = item.members.get("limit", "once")
    if not isinstance(find, str) or find == "":
        raise _wrong(path, number, "has no text to find", item.line)
    if not isinstance(replace, str):
        raise _wrong(path, number, "has no text to put in its place", item.line)
    if limit == "once":
        return Replacement(find, replace)
    if limit == "all":
        return Replacement(find, replace, "all")
    raise _wrong(path, number, "has a limit that is neither 'once' nor 'all'", item.line)


def _wrong(path: str, number: int, what: str, line: int) -> AnswerError:
    return malformed(
        line, "patch.replacement", f"replacement {number} of {shown(path)} {what}", path=path
    )
