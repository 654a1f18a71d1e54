"""Aptix file bundle: a JSON object whose ``files`` are whole files, deletions or patches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes import gitpatch, jsonblock, structured
from coilclaw.changes.fault import collect, inexpressible, malformed, path_at
from coilclaw.changes.operations import (
    DeleteFile,
    EditText,
    Format,
    Operation,
    Options,
    PatchBinary,
    PatchFile,
    Source,
    WriteFile,
    WriteLink,
)
from coilclaw.changes.strictjson import JsonObject, kind
from coilclaw.domain.treepath import TreePath, shown
from coilclaw.errors import AnswerError, combine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.errors import CoilClawError, UsageError

KEY: Final = "files"

_KNOWN: Final = frozenset({"path", "content", "operation", "replacements"})


def parse(
    document: JsonObject, *, options: Options, failures: list[CoilClawError] | None = None
) -> tuple[Operation, ...]:
    """Read every entry of ``files``; what is wrong is raised, or added to ``failures``."""
    failed: list[CoilClawError] = [] if failures is None else failures
    root = jsonblock.root(document)
    operations = []
    for index, entry in enumerate(jsonblock.entries(document, KEY)):
        with collect(failed):
            path = jsonblock.path(entry, KEY, index, root)
            jsonblock.closed(entry, _KNOWN, str(path))
            source = Source(Format.BUNDLE, entry.line, index)
            operations.append(_operation(entry, path, root, source, options))
    if failed and failures is None:
        raise combine(failed)
    return tuple(operations)


def render(operations: Iterable[Operation]) -> str:
    """Write operations as one bundle; raise ``UsageError`` for what it cannot say."""
    entries: list[object] = [_rendered(operation) for operation in operations]
    return jsonblock.render({"root": ".", KEY: entries})


def _operation(
    entry: JsonObject, path: TreePath, root: tuple[str, ...], source: Source, options: Options
) -> Operation:
    operation = entry.members.get("operation", "replace")
    if operation != "patch" and entry.members.get("replacements") is not None:
        raise _wrong(entry, path, "has replacements, but its operation is not 'patch'")
    target = path.under(root)
    match operation:
        case "create" | "replace":
            content = _content(entry, path).encode("utf-8")
            return WriteFile(target, content, new=operation == "create", source=source)
        case "delete":
            if entry.members.get("content") is not None and entry.members["content"] != "":
                raise _wrong(entry, path, "is to be deleted, but it has content")
            return DeleteFile(target, source=source)
        case "patch":
            if entry.members.get("content") is not None:
                raise _wrong(entry, path, "is to be patched, but it has content")
            found = structured.replacements(entry, str(path))
            return EditText(target, found, source=source)
        case "gitPatch":
            return _git_patch(entry, path, root, source, options)
        case str():
            raise _wrong(entry, path, f"has the unknown operation {shown(operation)}")
        case _:
            raise _wrong(entry, path, f"has an operation that is {kind(operation)}, not a string")


def _content(entry: JsonObject, path: TreePath) -> str:
    content = entry.members.get("content")
    if content is None:
        raise _wrong(entry, path, "has no content")
    if not isinstance(content, str):
        raise _wrong(entry, path, f"has content that is {kind(content)}, not a string")
    return content


def _git_patch(
    entry: JsonObject, path: TreePath, root: tuple[str, ...], source: Source, options: Options
) -> Operation:
    content = _content(entry, path)
    try:
        with path_at(entry.line):
            found = gitpatch.parse(content, first_line=1, options=options)
    except AnswerError as problem:
        # The lines of the diff are not lines of the answer: the string stands on one.
        raise malformed(
            entry.line,
            problem.rule,
            f"the diff of {shown(str(path))} cannot be read, {problem.message}",
            path=str(path),
            hint=problem.hint,
        ) from problem
    if len(found) != 1 or _paths(found[0]) != {path}:
        raise malformed(
            entry.line,
            "bundle.gitpatch_path",
            f"the diff of {shown(str(path))} does not change exactly that file",
            path=str(path),
        )
    operation = found[0]
    if isinstance(operation, PatchFile):
        hunks = tuple(replace(hunk, source=source) for hunk in operation.hunks)
        return replace(operation, path=path.under(root), hunks=hunks, source=source)
    return replace(operation, path=path.under(root), source=source)


def _paths(operation: Operation) -> set[TreePath]:
    if isinstance(operation, PatchFile | PatchBinary) and operation.target is not None:
        return {operation.path, operation.target}
    return {operation.path}


def _rendered(operation: Operation) -> dict[str, object]:
    entry: dict[str, object] = {"path": str(operation.path)}
    match operation:
        case WriteFile(executable=None):
            try:
                content = operation.content.decode("utf-8")
            except UnicodeDecodeError as problem:
                raise _inexpressible(operation, "holds UTF-8 text only") from problem
            new = {"operation": "create"} if operation.new else {}
            return entry | new | {"content": content}
        case DeleteFile(expected=None):
            return entry | {"operation": "delete"}
        case EditText():
            found = structured.rendered(operation.replacements)
            return entry | {"operation": "patch", "replacements": found}
        case PatchFile() | PatchBinary() if len(_paths(operation)) > 1:
            raise _inexpressible(operation, "cannot move or copy a file")
        case WriteFile() | WriteLink() | DeleteFile() | PatchFile() | PatchBinary():
            return entry | {"operation": "gitPatch", "content": gitpatch.render((operation,))}


def _wrong(entry: JsonObject, path: TreePath, what: str) -> AnswerError:
    return malformed(
        entry.line, "bundle.entry", f"the entry for {shown(str(path))} {what}", path=str(path)
    )


def _inexpressible(operation: Operation, why: str) -> UsageError:
    return inexpressible(f"'{operation.path}': a file bundle {why}")
