"""Where a git patch that stands bare in prose begins and ends.

Nothing but its own grammar says where it ends: after the lines that its last hunk announces. Lines
right after it that look like more of a hunk are taken with it, so that wrong counts show.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import git_binary, git_header, git_patch
from coilclaw.changes.formats.answer_text import MAX_LINES, malformed_error
from coilclaw.changes.operations import Format

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import BlockScan

# Two file names with git's prefixes, or a line of a header or of a hunk below: no sentence has it.
_FILE: Final = (
    r'[ \t]*diff --git (?:"?a/[^\n]* "?b/|[^\n]*\n[ \t]*(?:--- |index |(?:old|new) mode |'
    r"(?:new|deleted) file mode |(?:rename|copy) from |(?:dis)?similarity index ))"
    r"|(?P<sides>[ \t]*)--- [^\n]*\n(?P=sides)\+\+\+ [^\n]*\n(?P=sides)@@"
)

MARKS: Final = rf"{_FILE}|@@ -[0-9]+(?:,[0-9]+)? \+[0-9]+(?:,[0-9]+)? @@"

_START: Final = re.compile(_FILE)
_COUNTS: Final = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@")
_HALF: Final = re.compile(r"(?:literal|delta) [0-9]")
_SIGNATURE: Final = re.compile(r"--[ ]?\n(?:[ \t\r]*$|[0-9]+\.[0-9])", re.MULTILINE)
# After a blank line a dash and a blank begin a list, and dashes alone are a rule.
_GOES_ON: Final = re.compile(r"\+|@@|-[^\s-]| ")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r]*\n)+")


def take(scan: BlockScan, start: int) -> int:
    """Keep the patch that begins on a line of prose; return where it ends."""
    line = scan.line(start)
    if scan.text.startswith("@@", start):
        raise malformed_error(line, "git.header", "a hunk stands without the header of its file")
    indent = scan.indent_at(start)
    end = _Reader(scan.text, start, indent, line).find_end()
    scan.bare_lines += scan.text.count("\n", start, end)
    if scan.bare_lines > MAX_LINES:
        message = f"the patches of the answer have more than {MAX_LINES:,} lines"
        raise malformed_error(line, "answer.bounds", message)
    return scan.add_indented(Format.GIT, start, start, end, indent)


def find_more(text: str, place: int, width: int) -> int | None:
    """Return where a line begins that looks like more of a patch which ended before an offset.

    ``width`` is the indentation of the patch. Blank lines may come first.
    """
    blank = _BLANK_LINES.match(text, place)
    start = blank.end() if blank else place
    line = text[start : start + width + 2].partition("\n")[0]
    line = line[width:] if not line[:width].strip() else line
    goes_on = _GOES_ON.match(line) if start > place else line.strip() and line[0] in "+- @"
    return start if goes_on else None


class _Reader:
    """The lines of a text, without their indentation, from one on."""

    def __init__(self, text: str, start: int, indent: str, first_line: int) -> None:
        self._text = text
        self._indent = indent
        self._first_line = first_line
        self._at = self._after = start
        self._count = 0
        self._line: str | None = ""
        """The line to look at; ``None`` where the text or the indentation ends."""
        finish = self._line_end(start)
        self._returns = text[max(finish - 1, 0) : finish] == "\r"
        self._load()

    def find_end(self) -> int:
        settled = self._at
        while self._starts():
            self._section()
            settled = self._at
            while self._line == "":
                self._take()
        if self._line is not None and _GOES_ON.match(self._line):
            while self._line and self._line[0] in "+- @\\":
                self._take()
            settled = self._at
        return settled

    def _section(self) -> None:
        if self._begins(git_header.GIT_START):
            self._take()
            while self._begins(*git_header.FIELDS):
                self._take()
        if self._begins("--- ") and self._text.startswith(self._indent + "+++ ", self._after):
            self._take()
            self._take()
        if self._begins("Binary files "):
            self._take()
        if self._line == git_binary.START:
            self._take()
            while _HALF.match(self._line or ""):
                while self._line:
                    self._take()
                if self._line == "":
                    self._take()
        while self._begins("@@"):
            self._hunk()

    def _hunk(self) -> None:
        counts = _COUNTS.match(self._line or "")
        old, new = (int(counts[1] or 1), int(counts[2] or 1)) if counts else (0, 0)
        self._take()
        while self._line is not None:
            mark = self._line[:1]
            if self._begins(git_patch.NO_NEWLINE):
                self._take()
                continue
            if mark not in {"", " ", "-", "+"}:
                return
            if old <= 0 and new <= 0 and (mark == "" or self._starts() or self._is_signature()):
                return
            old -= mark != "+"
            new -= mark != "-"
            self._take()

    def _starts(self) -> bool:
        if self._line is None or not self._line.startswith(("diff --git ", "--- ")):
            return False
        return _START.match(self._text, self._at) is not None

    def _is_signature(self) -> bool:
        """Say whether the signature that git puts under a mail begins here."""
        return _SIGNATURE.match(self._text, self._at + len(self._indent)) is not None

    def _begins(self, *prefixes: str) -> bool:
        return self._line is not None and self._line.startswith(prefixes)

    def _take(self) -> None:
        self._count += 1
        if self._count > MAX_LINES:
            message = f"the patch has more than {MAX_LINES:,} lines"
            raise malformed_error(self._first_line, "git.long", message)
        self._at = self._after
        self._load()

    def _load(self) -> None:
        if self._at >= len(self._text):
            self._line = None
            return
        finish = self._line_end(self._at)
        self._after = min(finish + 1, len(self._text))
        line = self._text[self._at : finish]
        if self._returns:
            line = line.removesuffix("\r")
        if line.startswith(self._indent):
            self._line = line[len(self._indent) :]
        else:
            self._line = None if line.strip() else ""

    def _line_end(self, place: int) -> int:
        finish = self._text.find("\n", place)
        return len(self._text) if finish < 0 else finish
