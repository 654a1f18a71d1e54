"""Blocks that stand indented in an answer, as in a list, and their text without it."""

from __future__ import annotations

import re

from coilclaw.changes.fault import malformed


def stripped(text: str, indent: str, first_line: int) -> str:
    """Take an indentation away, which every line that is not blank must have."""
    if not indent:
        return text
    prefix = re.escape(indent)
    lacking = re.search(rf"^(?!{prefix}|[ \t\r]*$)", text, re.MULTILINE)
    if lacking and lacking.start() < len(text):
        line = first_line + text.count("\n", 0, lacking.start())
        raise malformed(
            line,
            "answer.indent",
            f"the line lacks the indentation of the block it is in, which began in line "
            f"{first_line}",
            hint="give all lines of a block the same indentation, or better none",
        )
    return re.sub(rf"^(?:{prefix}|[ \t]+(?=\r?$))", "", text, flags=re.MULTILINE)


def stripped_if_shared(text: str, width: int) -> str:
    """Take away the indentation of a code block in a list, if all its lines have it."""
    if width == 0:
        return text
    lines = text.split("\n")
    if any(line.strip() and line[:width].strip() for line in lines):
        return text
    return "\n".join(line[width:] for line in lines)
