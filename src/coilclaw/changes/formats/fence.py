"""``^^^`` fences: whole files between ``^^^path`` and ``^^^end``; ``^^^delete`` removes one.

A line that begins with ``^^^`` is always a marker. Content is the lines between the markers, each
with its newline, so a file that is not empty ends in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats.answer_text import malformed_error
from coilclaw.changes.operations import AnswerSource, DeleteFile, Format, Operation, WriteFile
from coilclaw.kernel import TreePath, quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import BlockScan

MARKER: Final = "^^^"
END: Final = "end"
DELETE: Final = "delete"
# Carets under a line of code are no path, and an end alone asks for nothing.
MARKS: Final = r"\^\^\^|[ \t]+\^\^\^(?=[^\s^])(?!(?:end|delete)(?![\w./-]))"

_BLANKS: Final = " \t\r"


def take(scan: BlockScan, start: int) -> int:
    """Keep the block up to the next marker; whether that may end it is for ``parse`` to say."""
    indent = scan.indent_at(start)
    marker = scan.text.find(f"\n{indent}{MARKER}", start)
    if marker < 0 and indent:
        after = scan.after(start)
        if " " in scan.text[start:after].strip():
            return after  # a sentence about the marker
        message = "an indented ^^^ block has no ^^^end with the same indentation"
        raise malformed_error(scan.line(start), "fence.unclosed", message)
    end = scan.end if marker < 0 else scan.after(marker + 1)
    return scan.add_indented(Format.FENCE, start, start, end, indent)


def parse(text: str, first_line: int) -> tuple[Operation, ...]:
    """Read one block: its opening marker, its content, and the next line that is a marker."""
    opener, _, rest = text.partition("\n")
    name = opener.removeprefix(MARKER).rstrip(_BLANKS)
    if name in {END, DELETE}:
        raise malformed_error(first_line, "fence.stray", f"^^^{name} stands outside a block")
    if name == "" or name[0].isspace() or name[0] == "^":
        message = f"{quote_text(opener)} begins with ^^^, but no path follows at once"
        raise malformed_error(first_line, "fence.opener", message)
    path = TreePath.parse(name)
    block = f"the ^^^ block of {quote_text(name)}"
    content, found, closer = f"\n{rest}".partition(f"\n{MARKER}")
    if not found:
        raise malformed_error(first_line, "fence.unclosed", f"{block} has no ^^^end", path=name)
    content = content[1:] + "\n" if content else ""
    word = closer.partition("\n")[0].rstrip(_BLANKS)
    line = first_line + 1 + content.count("\n")
    source = AnswerSource(Format.FENCE, first_line)
    if word == END:
        return (WriteFile(path, content.encode("utf-8"), source=source),)
    if word != DELETE:
        marker = MARKER + closer.partition("\n")[0]
        raise malformed_error(
            line,
            "fence.nested",
            f"{block} holds the marker {quote_text(marker)} before its ^^^end",
            path=name,
            hint="close each block with ^^^end; no line of a file may begin with ^^^ here",
        )
    if content:
        message = f"{block} has content before its ^^^delete"
        raise malformed_error(line, "fence.delete", message, path=name)
    return (DeleteFile(path, source=source),)
