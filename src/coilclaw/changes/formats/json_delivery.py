"""Aptix JSON: a file bundle (``files``), a structured patch (``patches``), or both in one object.

An entry of ``files`` is a whole file, a deletion or a patch; an entry of ``patches`` is a list of
literal replacements in one file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import git_patch
from coilclaw.changes.formats.answer_text import collect_failures, malformed_error
from coilclaw.changes.formats.json_values import JsonArray, JsonObject, JsonValue, name_kind
from coilclaw.changes.operations import (
    AnswerOptions,
    AnswerSource,
    DeleteFile,
    EditText,
    Format,
    Operation,
    PatchFile,
    Replacement,
    WriteFile,
    named_paths,
)
from coilclaw.kernel import AnswerError, PathRefused, TreePath, quote_text

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from coilclaw.changes.formats.answer_text import AnswerSegment
    from coilclaw.kernel import CoilClawError

KEYS: Final = {Format.BUNDLE: "files", Format.PATCH: "patches"}

_KNOWN: Final = {
    Format.BUNDLE: frozenset({"path", "content", "operation", "replacements"}),
    Format.PATCH: frozenset({"path", "replacements"}),
}
_REPLACEMENT: Final = frozenset({"find", "replace", "limit"})


def find_delivery(value: JsonValue, wanted: AbstractSet[str]) -> JsonObject | None:
    """Return an object that is a delivery and has one of the wanted keys.

    Other JSON, such as a package file, may have ``files`` too.
    """
    if not isinstance(value, JsonObject) or wanted.isdisjoint(value.members):
        return None
    lists = [value.members[key] for key in KEYS.values() if key in value.members]
    for found in lists:
        items = found.items if isinstance(found, JsonArray) else ()
        if any(isinstance(item, JsonObject) and "path" in item.members for item in items):
            return value
    rooted = isinstance(value.members.get("root"), str) and any(
        not isinstance(found, JsonArray)
        or not found.items
        or any(isinstance(item, JsonObject) for item in found.items)
        for found in lists
    )
    return value if rooted else None


def parse(
    segment: AnswerSegment, options: AnswerOptions, failures: list[CoilClawError]
) -> tuple[Operation, ...]:
    """Read every entry of both lists; what is wrong with one is added to ``failures``."""
    document = segment.document
    assert document is not None
    root_name = document.members.get("root", ".")
    if not isinstance(root_name, str):
        message = f"the root is {name_kind(root_name)}, not a string"
        raise malformed_error(document.line, "json.root", message)
    root = TreePath.parse_directory(root_name)
    operations: list[Operation] = []
    for form, key in KEYS.items():
        for index, entry in enumerate(_entries(document, key)):
            with collect_failures(failures, entry.line):
                name = entry.members.get("path")
                if not isinstance(name, str):
                    message = f"entry {index + 1} of '{key}' has no path"
                    raise malformed_error(entry.line, "json.entries", message)
                path = TreePath.parse(name)
                target = path.under(root) if root else path
                _refuse_unknown(entry, _KNOWN[form], str(path))
                source = AnswerSource(form, entry.line, index)
                operations.append(_operation(entry, path, target, source, options))
    return tuple(operations)


def _entries(document: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """Return the entries of a list, all of which must be objects; none if the list is missing."""
    if key not in document.members:
        return ()
    value = document.members[key]
    if not isinstance(value, JsonArray):
        raise malformed_error(
            document.line, "json.entries", f"'{key}' is {name_kind(value)}, not a list"
        )
    found: list[JsonObject] = []
    for index, item in enumerate(value.items, 1):
        if not isinstance(item, JsonObject):
            line = found[-1].line if found else value.line
            message = f"entry {index} of '{key}' is {name_kind(item)}, not an object"
            raise malformed_error(line, "json.entries", message)
        found.append(item)
    return tuple(found)


def _operation(
    entry: JsonObject,
    path: TreePath,
    target: TreePath,
    source: AnswerSource,
    options: AnswerOptions,
) -> Operation:
    """Read one entry; ``path`` is as the entry names it, ``target`` the same below the root."""
    if source.format is Format.PATCH:
        return EditText(target, _replacements(entry, str(path)), source=source)
    operation = entry.members.get("operation", "replace")
    if operation != "patch" and entry.members.get("replacements") is not None:
        raise _wrong(entry, path, "has replacements, but its operation is not 'patch'")
    match operation:
        case "create" | "replace":
            content = _content(entry, path).encode("utf-8")
            return WriteFile(target, content, new=operation == "create", source=source)
        case "delete":
            if entry.members.get("content") not in (None, ""):
                raise _wrong(entry, path, "is to be deleted, but it has content")
            return DeleteFile(target, source=source)
        case "patch":
            if entry.members.get("content") is not None:
                raise _wrong(entry, path, "is to be patched, but it has content")
            return EditText(target, _replacements(entry, str(path)), source=source)
        case "gitPatch":
            return _git_patch(entry, path, target, source, options)
        case str():
            raise _wrong(entry, path, f"has the unknown operation {quote_text(operation)}")
        case _:
            kind = name_kind(operation)
            raise _wrong(entry, path, f"has an operation that is {kind}, not a string")


def _content(entry: JsonObject, path: TreePath) -> str:
    content = entry.members.get("content")
    if content is None:
        raise _wrong(entry, path, "has no content")
    if not isinstance(content, str):
        raise _wrong(entry, path, f"has content that is {name_kind(content)}, not a string")
    return content


def _git_patch(
    entry: JsonObject,
    path: TreePath,
    target: TreePath,
    source: AnswerSource,
    options: AnswerOptions,
) -> Operation:
    content = _content(entry, path)
    try:
        found = git_patch.parse(content, first_line=1, options=options)
    except PathRefused as problem:
        # The lines of the diff are not lines of the answer: the string stands on one.
        problem.line = entry.line
        raise
    except AnswerError as problem:
        raise malformed_error(
            entry.line,
            problem.rule,
            f"the diff of {quote_text(str(path))} cannot be read, {problem.message}",
            path=str(path),
            hint=problem.hint,
        ) from problem
    if len(found) != 1 or named_paths(found[0]) != (path,):
        message = f"the diff of {quote_text(str(path))} does not change exactly that file"
        raise malformed_error(entry.line, "bundle.gitpatch_path", message, path=str(path))
    operation = replace(found[0], path=target, source=source)
    if isinstance(operation, PatchFile):
        hunks = tuple(replace(hunk, source=source) for hunk in operation.hunks)
        return replace(operation, hunks=hunks)
    return operation


def _wrong(entry: JsonObject, path: TreePath, what: str) -> AnswerError:
    message = f"the entry for {quote_text(str(path))} {what}"
    return malformed_error(entry.line, "bundle.entry", message, path=str(path))


def _replacements(entry: JsonObject, path: str) -> tuple[Replacement, ...]:
    """Read the ``replacements`` of an entry, of which there is at least one."""
    value = entry.members.get("replacements")
    if not isinstance(value, JsonArray) or not value.items:
        message = f"the entry for {quote_text(path)} has no list of replacements"
        raise malformed_error(entry.line, "patch.replacements", message, path=path)
    return tuple(
        _replacement(item, number, value.line, path)
        for number, item in enumerate(value.items, start=1)
    )


def _refuse_unknown(entry: JsonObject, known: frozenset[str], path: str) -> None:
    """Refuse an unknown key: it may say that the content means something else."""
    if unknown := next((key for key in entry.members if key not in known), None):
        message = f"the entry for {quote_text(path)} has an unknown key {quote_text(unknown)}"
        raise malformed_error(entry.line, "json.key", message, path=path)


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
    raise malformed_error(line, "patch.replacement", message, path=path)
