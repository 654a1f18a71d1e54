"""``^^^`` fences: whole files between ``^^^path`` and ``^^^end``; ``^^^delete`` removes one.

A line that begins with ``^^^`` is always a marker. Content is the lines between the markers, each
with its newline, so a file that is not empty ends in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes.fault import inexpressible, malformed, path_at
from coilclaw.changes.operations import DeleteFile, Format, Operation, Source, WriteFile
from coilclaw.domain.treepath import TreePath, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.errors import UsageError

MARKER: Final = "^^^"
END: Final = "end"
DELETE: Final = "delete"

_BLANKS: Final = " \t\r"


def parse(text: str, *, first_line: int) -> tuple[Operation, ...]:
    """Read one block: its opening marker, its content, and the next line that is a marker."""
    opener, _, rest = text.partition("\n")
    name = _name(opener, first_line)
    source = Source(Format.FENCE, first_line)
    with path_at(first_line):
        path = TreePath.parse(name)
    # The next marker begins the rest, or follows one of its newlines.
    at = 0 if rest.startswith(MARKER) else rest.find("\n" + MARKER) + 1
    if at == 0 and not rest.startswith(MARKER):
        raise malformed(
            first_line,
            "fence.unclosed",
            f"the ^^^ block of {shown(name)} has no ^^^end",
            path=name,
        )
    content = rest[:at]
    closer = rest[at:].partition("\n")[0]
    line = first_line + 1 + content.count("\n")
    word = closer.removeprefix(MARKER).rstrip(_BLANKS)
    if word == END:
        return (WriteFile(path, content.encode("utf-8"), source=source),)
    if word != DELETE:
        raise malformed(
            line,
            "fence.nested",
            f"the ^^^ block of {shown(name)} holds the marker {shown(closer)} before its ^^^end",
            path=name,
            hint="close each block with ^^^end; no line of a file may begin with ^^^ here",
        )
    if content:
        raise malformed(
            line,
            "fence.delete",
            f"the ^^^ block of {shown(name)} has content before its ^^^delete",
            path=name,
        )
    return (DeleteFile(path, source=source),)


def render(operations: Iterable[Operation]) -> str:
    """Write operations as fences; raise ``UsageError`` for what a fence cannot say."""
    return "\n".join(_rendered(operation) for operation in operations)


def _name(opener: str, line: int) -> str:
    name = opener.removeprefix(MARKER).rstrip(_BLANKS)
    if name in {END, DELETE}:
        raise malformed(line, "fence.stray", f"^^^{name} stands outside a block")
    if name == "" or name[0].isspace() or name[0] == "^":
        raise malformed(
            line, "fence.opener", f"{shown(opener)} begins with ^^^, but no path follows at once"
        )
    return name


def _rendered(operation: Operation) -> str:
    path = str(operation.path)
    if path in {END, DELETE} or path[0] == "^" or path[0].isspace():
        path = "./" + path
    match operation:
        case DeleteFile(expected=None):
            return f"{MARKER}{path}\n{MARKER}{DELETE}\n"
        case WriteFile(new=False, executable=None):
            return f"{MARKER}{path}\n{_text(operation)}{MARKER}{END}\n"
        case WriteFile(new=True):
            raise _inexpressible(operation, "cannot say that a file must be new")
        case WriteFile():
            raise _inexpressible(operation, "cannot set a file's mode")
        case DeleteFile():
            raise _inexpressible(operation, "cannot say what a deleted file must hold")
        case _:
            raise _inexpressible(operation, "holds whole files only")


def _text(operation: WriteFile) -> str:
    try:
        text = operation.content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _inexpressible(operation, "holds UTF-8 text only") from problem
    if text and not text.endswith("\n"):
        raise _inexpressible(operation, "cannot leave out the final newline of a file")
    if text.startswith(MARKER) or "\n" + MARKER in text:
        raise _inexpressible(operation, "cannot hold a line that begins with ^^^")
    if "\0" in text:
        raise _inexpressible(operation, "cannot hold a NUL")
    return text


def _inexpressible(operation: Operation, why: str) -> UsageError:
    return inexpressible(f"'{operation.path}': a ^^^ fence {why}")
