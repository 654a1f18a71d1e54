"""How an answer is cut into the blocks that ask for changes; everything else is prose.

One pass over the lines, which looks only at lines that could begin a block. What a block holds is
never searched for another. ``^^^`` fences, envelopes and search-and-replace blocks carry their own
ends and are found inside code blocks too, indented as a whole or not; JSON and git patches end
where their code block ends, and a git patch in prose where its grammar says so. A code block that
holds none of these is prose, whether it is closed or not. One around the whole answer does not
count, and code blocks inside a longer one of text are an example: see ``markdown``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import git_extent, json_delivery, json_search
from coilclaw.changes.formats.answer_text import AnswerSegment, BlockScan, fence_at, malformed_error
from coilclaw.changes.formats.json_search import JsonSearch
from coilclaw.changes.formats.table import FORMATS
from coilclaw.changes.operations import AnswerLimits, Format

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import CodeFence
    from coilclaw.changes.formats.json_search import FoundJson

EVERY: Final = frozenset(Format)
MAX_NESTING: Final = 64
"""Code blocks within code blocks that are kept in mind."""
MAX_MARKS: Final = 250_000
"""Lines of an answer, outside of its blocks, that could begin one."""
MAX_UNCLOSED: Final = 8
"""Kinds of code blocks of text that an answer may leave open."""

_CODE_MARKS: Final = "|".join(
    [
        *(
            f"(?P<{form}>{known.marks})"
            for form, known in FORMATS.items()
            if known.marks and known.in_code
        ),
        r"(?P<code>[ \t]*(?:```|~~~))",
    ]
)
_PROSE_MARKS: Final = "|".join(
    [
        # A brace that no key, comment or closing brace follows begins no JSON.
        r"(?P<brace>[ \t]*\{(?=[ \t\r\n]*[\"'}/]))",
        *(
            f"(?P<{form}>{known.marks})"
            for form, known in FORMATS.items()
            if known.marks and not known.in_code
        ),
    ]
)
# Most lines are none of these, which their first letter tells.
_IN_CODE: Final = re.compile(rf"^(?=[ \t]*[\^*<>`~])(?:{_CODE_MARKS})", re.MULTILINE)
_IN_PROSE: Final = re.compile(
    rf"^(?=[ \t]*[\^*<>`~{{d@-])(?:{_CODE_MARKS}|{_PROSE_MARKS})", re.MULTILINE
)
# Blocks that carry their own ends and may stand in a code block of any language.
_OWN_END: Final = re.compile(r"\^\^\^|\*\*\* Begin Patch|(?:[^\n]*\n)?[ \t]*<{5,9}[ \t]*SEARCH")
_MAIL: Final = re.compile(r"^From [0-9a-f]{40} ", re.MULTILINE)
_PATCH: Final = re.compile(r"diff --git |--- [^\n]*\n[ \t]*\+\+\+ |From [0-9a-f]{40} ")

_LIMITS: Final = AnswerLimits()
_JSON_LABELS: Final = json_search.LABELS | json_search.CODE_LABELS
_GIT_LABELS: Final = frozenset({"patch", "diff"})
_PERHAPS_GIT_LABELS: Final = frozenset({"", "git", "udiff", "unified", "unidiff"})


class AnswerSplitter:
    """Finds the blocks of the wanted formats; everything else counts as prose."""

    def __init__(
        self, text: str, wanted: frozenset[Format] = EVERY, *, most: int = _LIMITS.operations
    ) -> None:
        self._text = text
        self._wanted = wanted
        self._scan = BlockScan(text, most)
        keys = frozenset(key for form, key in json_delivery.KEYS.items() if form in wanted)
        self._json = JsonSearch(self._scan, keys) if keys else None
        self._prose: list[CodeFence] = []
        """Code blocks that are open and hold no delivery of their own, the innermost last."""
        self._is_first = True
        """No code block was seen yet."""
        self._wrapper_end: int | None = None
        """The closing line of the code block that the whole answer is in."""
        self._example: CodeFence | None = None
        self._example_end = 0
        """The code block of text that we are in, and its closing line."""
        self._unclosed: list[CodeFence] = []
        """Code blocks of text that nothing closes, each of another kind."""

    def split(self) -> tuple[AnswerSegment, ...]:
        """Return the blocks in order; raise ``AnswerError`` for one that does not end."""
        place = marks = 0
        first = self._scan.first
        if Format.GIT in self._wanted and _MAIL.match(self._text, first):
            # A mail that git has made is a patch from its first line to its last.
            place, line = self._scan.end, self._scan.line(first)
            self._scan.add(AnswerSegment(Format.GIT, first, place, line))
        while match := (_IN_CODE if self._prose else _IN_PROSE).search(self._text, place):
            mark, start = str(match.lastgroup), match.start()
            marks += 1
            if marks > MAX_MARKS:
                message = f"more than {MAX_MARKS:,} lines of the answer could begin a block"
                raise malformed_error(self._scan.line(start), "answer.bounds", message)
            if mark == "code":
                place = self._take_code(start)
            elif mark == "brace" and self._json:
                place = self._deliver(self._json.on_line(start))
            elif mark == "brace" or Format(mark) not in self._wanted:
                place = self._scan.after(start)
            else:
                place = FORMATS[Format(mark)].take(self._scan, start)
        return self._scan.finish()

    def _take_code(self, start: int) -> int:
        opener = fence_at(self._text, start)
        body = self._scan.after(start)
        if opener is None or start == self._wrapper_end:
            return body
        if self._prose and self._prose[-1].closed_by(opener):
            self._prose.pop()
            return body
        if self._example and start < self._example_end and self._example.can_hold(opener):
            end = opener.closing_line(self._text, body, self._example_end)
            return self._example_end if end is None else self._scan.after(end)
        first = self._scan.skip_space(body)
        is_own = _OWN_END.match(self._text, first) is not None
        if Format.GIT in self._wanted and not is_own:
            unsaid = opener.label in _PERHAPS_GIT_LABELS
            if opener.label in _GIT_LABELS or (unsaid and _PATCH.match(self._text, first)):
                return self._take_patch(opener, start, body)
        if opener.holds_prose(self._text, body):
            return self._take_text(opener, start, body)
        self._is_first = False
        if self._json and opener.label in _JSON_LABELS:
            return self._deliver(self._json.in_code_block(opener, body, is_other=is_own), opener)
        self._ignore(opener)
        return body

    def _take_text(self, opener: CodeFence, start: int, body: int) -> int:
        """Go into a code block of text: it is the answer, an example, or neither."""
        if self._is_first and not self._scan.segments:
            self._is_first = False
            self._wrapper_end = opener.end_of_answer(self._text, start, body)
            if self._wrapper_end is not None:
                return body
        if start >= self._example_end:
            end = self._closing_line(opener, start, body)
            self._example, self._example_end = opener, body if end is None else end
        self._ignore(opener)
        return body

    def _closing_line(self, opener: CodeFence, start: int, body: int) -> int | None:
        """Find what closes a code block, without looking twice for what is not there."""
        shortest = replace(opener, info="")
        if any(fence.closed_by(shortest) for fence in self._unclosed):
            return None
        end = opener.closing_line(self._text, body)
        if end is None:
            self._unclosed.append(opener)
            if len(self._unclosed) > MAX_UNCLOSED:
                message = f"more than {MAX_UNCLOSED} code blocks of text are not closed"
                raise malformed_error(self._scan.line(start), "answer.bounds", message)
        return end

    def _take_patch(self, opener: CodeFence, start: int, body: int) -> int:
        self._is_first = False
        end = opener.closing_line(self._text, body)
        if end is None:
            message = "the code block that holds a patch is not closed"
            raise malformed_error(self._scan.line(start), "answer.unclosed", message)
        after = self._scan.after(end)
        if self._text[body:end].strip():
            line = self._scan.line(body)
            more = git_extent.find_more(self._text, after, opener.indent)
            segment = AnswerSegment(Format.GIT, body, end, line, width=opener.indent, closed=True)
            if more is not None:
                segment.more_line = line + self._text.count("\n", body, more)
            self._scan.add(segment)
        return after

    def _deliver(self, found: FoundJson, opener: CodeFence | None = None) -> int:
        if found.document is not None:
            is_bundle = json_delivery.KEYS[Format.BUNDLE] in found.document.members
            kind = Format.BUNDLE if is_bundle else Format.PATCH
            line = self._scan.line(found.start)
            self._scan.add(AnswerSegment(kind, found.start, found.end, line, found.document))
        elif found.is_prose and opener is not None:
            self._ignore(opener)
        return found.resume

    def _ignore(self, opener: CodeFence) -> None:
        if len(self._prose) == MAX_NESTING:
            del self._prose[0]
        self._prose.append(opener)
