"""Operations → the text of a git patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes import gitbinary, githeader, gitquote
from coilclaw.changes.cursor import to_text
from coilclaw.changes.fault import inexpressible
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    DeleteFile,
    EditText,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.changes.roundtrip import unsaid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

NOUN: Final = "a git patch"
_EMPTY_ID: Final = "e69de29"
_NO_NEWLINE: Final = "\\ No newline at end of file"


def compose(operations: Iterable[Operation]) -> str:
    """Write the sections of a patch, one after the other, in the order of the operations."""
    lines: list[str] = []
    for operation in operations:
        match operation:
            case WriteFile(new=True):
                lines += _created(operation)
            case WriteLink():
                lines += _appearing(str(operation.path), operation.target, githeader.LINK)
            case DeleteFile(expected=bytes()):
                lines += _deleted(operation)
            case PatchFile():
                lines += _patched(operation)
            case PatchBinary():
                lines += _binary(operation)
            case WriteFile() | DeleteFile() | EditText():
                raise unsaid(NOUN, operation)
    return "".join(f"{line}\n" for line in lines)


def _created(operation: WriteFile) -> list[str]:
    mode = None if operation.executable is None else _mode(executable=operation.executable)
    return _appearing(str(operation.path), operation.content, mode)


def _appearing(path: str, content: bytes, mode: str | None) -> list[str]:
    lines = [_first(path, path)]
    if mode is not None:
        lines.append(f"new file mode {mode}")
    if not content:
        return [*lines, f"index 0000000..{_EMPTY_ID}"]
    return [*lines, *_sides(None, path), *_hunk(_whole(content, ADDED))]


def _deleted(operation: DeleteFile) -> list[str]:
    path, content = str(operation.path), operation.expected
    lines = [_first(path, path), f"deleted file mode {githeader.PLAIN}"]
    if not content:
        return [*lines, f"index {_EMPTY_ID}..0000000"]
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
    return [*lines, *gitbinary.render(gitbinary.Half(operation.method, operation.data))]


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
        lines.append(f"{verb} from {gitquote.quote(path)}")
        lines.append(f"{verb} to {gitquote.quote(target)}")
    return lines


def _hunk(hunk: Hunk) -> list[str]:
    old = _range(hunk.old_start, len(hunk.old))
    new = _range(hunk.new_start, len(hunk.new))
    lines = [f"@@ -{old} +{new} @@" + (f" {to_text(hunk.heading)}" if hunk.heading else "")]
    for line in hunk.lines:
        lines.append(line.mark + to_text(line.text))
        if not line.newline:
            lines.append(_NO_NEWLINE)
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
        raise inexpressible(f"{NOUN} cannot hold a hunk without line numbers")
    return str(start) if count == 1 else f"{start},{count}"


def _first(old: str, new: str) -> str:
    return f"{githeader.GIT_START}{gitquote.quote(f'a/{old}')} {gitquote.quote(f'b/{new}')}"


def _sides(old: str | None, new: str | None) -> list[str]:
    return [f"--- {_side('a', old)}", f"+++ {_side('b', new)}"]


def _side(prefix: str, name: str | None) -> str:
    if name is None:
        return githeader.DEV_NULL
    quoted = gitquote.quote(f"{prefix}/{name}")
    # git ends a name that holds a space with a tab, so that no date can be read into it.
    return f"{quoted}\t" if " " in name and not quoted.startswith('"') else quoted


def _mode(*, executable: bool) -> str:
    return githeader.EXECUTABLE if executable else githeader.PLAIN
