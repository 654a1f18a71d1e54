"""Aptix file bundle: a JSON object whose ``files`` are whole files, deletions or patches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import git_patch, structured
from coilclaw.changes.formats.answer_text import malformed, path_at
from coilclaw.changes.formats.json_values import name_kind
from coilclaw.changes.operations import (
    AnswerOptions,
    AnswerSource,
    DeleteFile,
    EditText,
    Format,
    Operation,
    PatchFile,
    WriteFile,
    named_paths,
)
from coilclaw.kernel import AnswerError, TreePath, quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.json_values import JsonObject
    from coilclaw.kernel import CoilClawError

KEY: Final = "files"

_KNOWN: Final = frozenset({"path", "content", "operation", "replacements"})


def parse(
    document: JsonObject, options: AnswerOptions, failures: list[CoilClawError]
) -> tuple[Operation, ...]:
    """Read every entry of ``files``; what is wrong is added to ``failures``."""

    read = partial(_operation, options)
    return structured.parse_entries(document, Format.BUNDLE, KEY, _KNOWN, read, failures)


def _operation(
    options: AnswerOptions,
    entry: JsonObject,
    path: TreePath,
    root: tuple[str, ...],
    source: AnswerSource,
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
            if entry.members.get("content") not in (None, ""):
                raise _wrong(entry, path, "is to be deleted, but it has content")
            return DeleteFile(target, source=source)
        case "patch":
            if entry.members.get("content") is not None:
                raise _wrong(entry, path, "is to be patched, but it has content")
            found = structured.read_replacements(entry, str(path))
            return EditText(target, found, source=source)
        case "gitPatch":
            return _git_patch(entry, path, root, source, options)
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
    root: tuple[str, ...],
    source: AnswerSource,
    options: AnswerOptions,
) -> Operation:
    content = _content(entry, path)
    try:
        with path_at(entry.line):
            found = git_patch.parse(content, first_line=1, options=options)
    except AnswerError as problem:
        # The lines of the diff are not lines of the answer: the string stands on one.
        raise malformed(
            entry.line,
            problem.rule,
            f"the diff of {quote_text(str(path))} cannot be read, {problem.message}",
            path=str(path),
            hint=problem.hint,
        ) from problem
    if len(found) != 1 or named_paths(found[0]) != (path,):
        message = f"the diff of {quote_text(str(path))} does not change exactly that file"
        raise malformed(entry.line, "bundle.gitpatch_path", message, path=str(path))
    operation = replace(found[0], path=path.under(root), source=source)
    if isinstance(operation, PatchFile):
        hunks = tuple(replace(hunk, source=source) for hunk in operation.hunks)
        return replace(operation, hunks=hunks)
    return operation


def _wrong(entry: JsonObject, path: TreePath, what: str) -> AnswerError:
    message = f"the entry for {quote_text(str(path))} {what}"
    return malformed(entry.line, "bundle.entry", message, path=str(path))
