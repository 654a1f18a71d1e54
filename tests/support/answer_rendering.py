"""Operations → the answer that a model would have written, in each format.

The program only reads answers; tests write them, so that what is read can be compared with what was
meant. Every renderer of a text format reads its text back and refuses what the format cannot say.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import blocks, envelope, git_binary, git_header, git_patch
from coilclaw.changes.formats.fence import DELETE, END, MARKER
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    AnswerOptions,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    Replacement,
    WriteFile,
    WriteLink,
    named_paths,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

GIT_NOUN: Final = "a git patch"
BLOCKS_NOUN: Final = "a search-and-replace block"
ENVELOPE_NOUN: Final = "an envelope"
EMPTY_ID: Final = "e69de29"
NO_NEWLINE: Final = "\\ No newline at end of file"
SPELLED: Final = {
    value: b"\\%c" % letter
    for letter, value in zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True)
}


def render(change_set: ChangeSet, format: Format) -> str:  # noqa: A002 - the word of the command line
    """Return an answer that reads as the change set; raise ``UsageError`` if there is none."""
    if not change_set.operations:
        raise inexpressible("an answer cannot hold a change set without operations")
    text = _written(change_set.operations, format)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise inexpressible("an answer cannot hold content that is not UTF-8") from problem
    if "\0" in text:
        raise inexpressible("an answer cannot hold content with a NUL")
    return text


def _written(operations: tuple[Operation, ...], form: Format) -> str:
    match form:
        case Format.FENCE:
            return render_fence(operations)
        case Format.BUNDLE:
            return render_bundle(operations)
        case Format.PATCH:
            return render_structured(operations)
        case Format.GIT:
            return _in_code_block("patch", render_git(operations))
        case Format.ENVELOPE:
            return render_envelope(operations)
        case Format.BLOCKS:
            return render_blocks(operations)


def _in_code_block(label: str, text: str) -> str:
    longest = max(map(len, re.findall(r"^[ \t]*(`+)", text, re.MULTILINE)), default=0)
    fence_line = "`" * max(3, longest + 1)
    return f"{fence_line}{label}\n{text}{fence_line}\n"


# ``^^^`` fences.


def render_fence(operations: Iterable[Operation]) -> str:
    """Write operations as fences; raise ``UsageError`` for what a fence cannot say."""
    return "\n".join(_fence_of(operation) for operation in operations)


def _fence_of(operation: Operation) -> str:
    path = str(operation.path)
    if path in {END, DELETE} or path[0] == "^" or path[0].isspace():
        path = "./" + path
    match operation:
        case DeleteFile(expected=None):
            return f"{MARKER}{path}\n{MARKER}{DELETE}\n"
        case WriteFile(new=False, executable=None):
            return f"{MARKER}{path}\n{_fence_text(operation)}{MARKER}{END}\n"
        case WriteFile(new=True):
            raise _no_fence(operation, "cannot say that a file must be new")
        case WriteFile():
            raise _no_fence(operation, "cannot set a file's mode")
        case DeleteFile():
            raise _no_fence(operation, "cannot say what a deleted file must hold")
        case _:
            raise _no_fence(operation, "holds whole files only")


def _fence_text(operation: WriteFile) -> str:
    try:
        text = operation.content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _no_fence(operation, "holds UTF-8 text only") from problem
    if text and not text.endswith("\n"):
        raise _no_fence(operation, "cannot leave out the final newline of a file")
    if text.startswith(MARKER) or "\n" + MARKER in text:
        raise _no_fence(operation, "cannot hold a line that begins with ^^^")
    if "\0" in text:
        raise _no_fence(operation, "cannot hold a NUL")
    return text


def _no_fence(operation: Operation, why: str) -> UsageError:
    return inexpressible(f"'{operation.path}': a ^^^ fence {why}")


# JSON.


def render_bundle(operations: Iterable[Operation]) -> str:
    """Write operations as one bundle; raise ``UsageError`` for what it cannot say."""
    entries: list[object] = [_entry_of(operation) for operation in operations]
    return _json_block({"root": ".", "files": entries})


def _entry_of(operation: Operation) -> dict[str, object]:
    entry: dict[str, object] = {"path": str(operation.path)}
    match operation:
        case WriteFile(executable=None):
            try:
                content = operation.content.decode("utf-8")
            except UnicodeDecodeError as problem:
                raise _no_bundle(operation, "holds UTF-8 text only") from problem
            new = {"operation": "create"} if operation.new else {}
            return entry | new | {"content": content}
        case DeleteFile(expected=None):
            return entry | {"operation": "delete"}
        case EditText():
            found = _replacements_of(operation.replacements)
            return entry | {"operation": "patch", "replacements": found}
        case PatchFile() | PatchBinary() if len(named_paths(operation)) > 1:
            raise _no_bundle(operation, "cannot move or copy a file")
        case WriteFile() | WriteLink() | DeleteFile() | PatchFile() | PatchBinary():
            return entry | {"operation": "gitPatch", "content": render_git((operation,))}


def _no_bundle(operation: Operation, why: str) -> UsageError:
    return inexpressible(f"'{operation.path}': a file bundle {why}")


def render_structured(operations: Iterable[Operation]) -> str:
    """Write literal edits as one JSON block; raise ``UsageError`` for anything else."""
    entries: list[object] = []
    for operation in operations:
        if not isinstance(operation, EditText):
            raise inexpressible(
                f"'{operation.path}': a structured patch holds literal replacements only"
            )
        entries.append(
            {"path": str(operation.path), "replacements": _replacements_of(operation.replacements)}
        )
    return _json_block({"root": ".", "patches": entries})


def _replacements_of(found: tuple[Replacement, ...]) -> list[dict[str, str]]:
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


def _json_block(document: Mapping[str, object]) -> str:
    """Write a document as the fenced block a model would send."""
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise inexpressible("JSON cannot hold text that is not valid Unicode") from problem
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}json\n{text}\n{fence}\n"


# Search-and-replace blocks and envelopes.


def render_blocks(operations: Iterable[Operation]) -> str:
    """Return the blocks that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    lines: list[str] = []
    for operation in wanted:
        lines += _block_lines(operation)
    text = "".join(f"{line}\n" for line in lines)
    return checked(BLOCKS_NOUN, text, wanted, lambda text: blocks.parse(text, first_line=1))


def _block_lines(operation: Operation) -> list[str]:
    name = str(operation.path)
    if (
        blocks.undress_path(name)[0] != name
        or name in (blocks.SEARCH, blocks.DIVIDER, blocks.REPLACE)
        or any(map(str.isspace, name))
    ):
        name = f"`{name}`"
    match operation:
        case WriteFile(content=content) if not content or content.endswith(b"\n"):
            new = [to_text(text) for text in content.split(b"\n")[:-1]]
            return [name, blocks.SEARCH, blocks.DIVIDER, *new, blocks.REPLACE]
        case PatchFile(hunks=hunks):
            lines = [name]
            for hunk in hunks:
                old = [to_text(line.text) for line in hunk.old]
                new = [to_text(line.text) for line in hunk.new]
                lines += [blocks.SEARCH, *old, blocks.DIVIDER, *new, blocks.REPLACE]
            return lines
        case _:
            raise unsaid(BLOCKS_NOUN, operation)


def render_envelope(operations: Iterable[Operation]) -> str:
    """Return the envelope that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    lines = [envelope.BEGIN]
    for operation in wanted:
        lines += _envelope_lines(operation)
    text = "".join(f"{line}\n" for line in (*lines, envelope.END))
    return checked(ENVELOPE_NOUN, text, wanted, lambda text: envelope.parse(text, first_line=1))


def _envelope_lines(operation: Operation) -> list[str]:
    match operation:
        case WriteFile(content=content) if not content or content.endswith(b"\n"):
            texts = content.split(b"\n")[:-1]
            return [f"{envelope.ADD}{operation.path}", *(ADDED + to_text(text) for text in texts)]
        case DeleteFile():
            return [f"{envelope.DELETE}{operation.path}"]
        case PatchFile():
            lines = [f"{envelope.UPDATE}{operation.path}"]
            if operation.target is not None:
                lines.append(f"{envelope.MOVE}{operation.target}")
            for hunk in operation.hunks:
                lines += _chunk_lines(hunk)
            return lines
        case _:
            raise unsaid(ENVELOPE_NOUN, operation)


def _chunk_lines(hunk: Hunk) -> list[str]:
    headings = to_text(hunk.heading).split("\n") if hunk.heading else [""]
    lines = [f"@@ {heading}" if heading else "@@" for heading in headings]
    lines += [line.mark + to_text(line.text) for line in hunk.lines]
    return [*lines, envelope.END_OF_FILE] if hunk.at_end else lines


# git patches.


def render_git(operations: Iterable[Operation]) -> str:
    """Return the patch that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    permissive = AnswerOptions(binary=True, links=True)
    return checked(
        GIT_NOUN,
        _git_text(wanted),
        wanted,
        lambda text: git_patch.parse(text, first_line=1, options=permissive),
    )


def _git_text(operations: Iterable[Operation]) -> str:
    """Write the sections of a patch, one after the other, in the order of the operations."""
    lines: list[str] = []
    for operation in operations:
        match operation:
            case WriteFile(new=True):
                lines += _created(operation)
            case WriteLink():
                lines += _appearing(str(operation.path), operation.target, git_header.LINK)
            case DeleteFile(expected=bytes()):
                lines += _deleted(operation)
            case PatchFile():
                lines += _patched(operation)
            case PatchBinary():
                lines += _binary(operation)
            case WriteFile() | DeleteFile() | EditText():
                raise unsaid(GIT_NOUN, operation)
    return "".join(f"{line}\n" for line in lines)


def _created(operation: WriteFile) -> list[str]:
    mode = None if operation.executable is None else _mode(executable=operation.executable)
    return _appearing(str(operation.path), operation.content, mode)


def _appearing(path: str, content: bytes, mode: str | None) -> list[str]:
    lines = [_first(path, path)]
    if mode is not None:
        lines.append(f"new file mode {mode}")
    if not content:
        return [*lines, f"index 0000000..{EMPTY_ID}"]
    return [*lines, *_sides(None, path), *_hunk(_whole(content, ADDED))]


def _deleted(operation: DeleteFile) -> list[str]:
    path, content = str(operation.path), operation.expected
    lines = [_first(path, path), f"deleted file mode {git_header.PLAIN}"]
    if not content:
        return [*lines, f"index {EMPTY_ID}..0000000"]
    return [*lines, *_sides(path, None), *_hunk(_whole(content, REMOVED))]


def _patched(operation: PatchFile) -> list[str]:
    lines = _modified(operation)
    if not operation.hunks:
        return lines
    lines += _sides(str(operation.path), str(operation.target or operation.path))
    for hunk in operation.hunks:
        lines += _hunk(hunk)
    return lines


def _binary(operation: PatchBinary) -> list[str]:
    path = str(operation.path)
    mode = _mode(executable=bool(operation.executable))
    if operation.new:
        lines = [_first(path, path), f"new file mode {mode}"]
    elif operation.delete:
        lines = [_first(path, path), f"deleted file mode {mode}"]
    else:
        lines = _modified(operation)
    lines.append(f"index {operation.old_id}..{operation.new_id}")
    return [*lines, *render_binary(operation.method, operation.data)]


def _modified(operation: PatchFile | PatchBinary) -> list[str]:
    """Write the header of a file that is there before and after."""
    path, target = str(operation.path), str(operation.target or operation.path)
    lines = [_first(path, target)]
    if operation.executable is not None:
        old = (
            operation.old_executable
            if isinstance(operation, PatchFile)
            else not operation.executable
        )
        if old is not None:
            lines.append(f"old mode {_mode(executable=old)}")
        lines.append(f"new mode {_mode(executable=operation.executable)}")
    if operation.target is not None:
        verb = "copy" if operation.keep else "rename"
        lines.append(f"{verb} from {quote_name(path)}")
        lines.append(f"{verb} to {quote_name(target)}")
    return lines


def _hunk(hunk: Hunk) -> list[str]:
    old = _range(hunk.old_start, len(hunk.old))
    new = _range(hunk.new_start, len(hunk.new))
    lines = [f"@@ -{old} +{new} @@" + (f" {to_text(hunk.heading)}" if hunk.heading else "")]
    for line in hunk.lines:
        lines.append(line.mark + to_text(line.text))
        if not line.newline:
            lines.append(NO_NEWLINE)
    return lines


def _whole(content: bytes, mark: Literal["+", "-"]) -> Hunk:
    texts = content.split(b"\n")
    last = texts.pop()
    lines = [HunkLine(mark, text) for text in texts]
    if last:
        lines.append(HunkLine(mark, last, newline=False))
    starts = (0, 1) if mark == ADDED else (1, 0)
    return Hunk(tuple(lines), old_start=starts[0], new_start=starts[1])


def _range(start: int | None, count: int) -> str:
    if start is None:
        raise inexpressible(f"{GIT_NOUN} cannot hold a hunk without line numbers")
    return str(start) if count == 1 else f"{start},{count}"


def _first(old: str, new: str) -> str:
    return f"{git_header.GIT_START}{quote_name(f'a/{old}')} {quote_name(f'b/{new}')}"


def _sides(old: str | None, new: str | None) -> list[str]:
    return [f"--- {_side('a', old)}", f"+++ {_side('b', new)}"]


def _side(prefix: str, name: str | None) -> str:
    if name is None:
        return git_header.DEV_NULL
    quoted = quote_name(f"{prefix}/{name}")
    # git ends a name that holds a space with a tab, so that no date can be read into it.
    return f"{quoted}\t" if " " in name and not quoted.startswith('"') else quoted


def _mode(*, executable: bool) -> str:
    return git_header.EXECUTABLE if executable else git_header.PLAIN


def render_binary(method: str, data: bytes) -> list[str]:
    """Return the lines of a binary patch that has the forward half only."""
    packed = zlib.compress(data, 9)
    lines = [git_binary.START, f"{method} {len(data)}"]
    for start in range(0, len(packed), 52):
        chunk = packed[start : start + 52]
        packed_line = base64.b85encode(chunk, pad=True).decode("ascii")
        lines.append(git_binary.LENGTHS[len(chunk) - 1] + packed_line)
    return [*lines, ""]


def quote_name(name: str) -> str:
    """Return a name as it stands in a patch; only names that need it are quoted."""
    if not any(ord(char) < 0x20 or char in '"\\\x7f' for char in name):
        return name
    out = bytearray()
    for byte in name.encode("utf-8"):
        if byte in SPELLED:
            out += SPELLED[byte]
        elif byte < 0x20 or byte == 0x7F:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return '"' + out.decode("utf-8") + '"'


# The check behind every renderer of a text format.


def checked(
    noun: str,
    text: str,
    wanted: tuple[Operation, ...],
    parse: Callable[[str], tuple[Operation, ...]],
) -> str:
    """Return the text if it reads back as the operations, else say which one has no spelling."""
    if not wanted:
        raise inexpressible(f"{noun} cannot be empty")
    try:
        found = parse(text)
    except (AnswerError, PathRefused) as problem:
        raise inexpressible(f"{noun} cannot say this, {problem.message}") from problem
    if found != wanted:
        pairs = zip(wanted, found, strict=False)
        other = next((have for have, read in pairs if have != read), wanted[-1])
        raise unsaid(noun, other)
    return text


def unsaid(noun: str, operation: Operation) -> UsageError:
    """Return the error for an operation that a format has no words for."""
    return inexpressible(f"'{operation.path}': {noun} cannot say this change")


def inexpressible(message: str) -> UsageError:
    """Return the error for an operation that a format has no words for."""
    return UsageError(message, rule="render.inexpressible")


def to_text(data: bytes) -> str:
    """Decode bytes so that reading the answer gives them back."""
    return data.decode("utf-8", "surrogateescape")
