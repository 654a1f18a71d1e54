"""How an answer is cut into the blocks that ask for changes; everything else is prose.

One pass over the lines, which looks only at lines that could begin a block. What a block holds is
never searched for another. ``^^^`` fences, envelopes and search-and-replace blocks carry their own
ends and are found inside code blocks too, indented as a whole or not; JSON and git patches end
where their code block ends, and a git patch in prose where its grammar says so. A code block that
holds none of these is prose, whether it is closed or not. One around the whole answer does not
count, and code blocks inside a longer one of text are an example: see ``wrapping``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.changes import blocks, codefence, fence, gitextent, indentation, jsonsearch, wrapping
from coilclaw.changes.cursor import MAX_LINES
from coilclaw.changes.fault import malformed
from coilclaw.changes.jsonsearch import JsonSearch
from coilclaw.changes.operations import Format, Limits
from coilclaw.changes.places import Places

if TYPE_CHECKING:
    from coilclaw.changes.codefence import CodeFence
    from coilclaw.changes.jsonsearch import Found
    from coilclaw.changes.strictjson import JsonObject

EVERY: Final = frozenset(Format)
MAX_NESTING: Final = 64
"""Code blocks within code blocks that are kept in mind."""
MAX_MARKS: Final = 250_000
"""Lines of an answer, outside of its blocks, that could begin one."""
MAX_UNCLOSED: Final = 8
"""Kinds of code blocks of text that an answer may leave open."""
MAX_GAP: Final = 1000
"""Blank lines and code fences between a search-and-replace block and its path."""

_END_PATCH: Final = r"\*\*\* End Patch[ \t\r]*$"
_REPLACE: Final = r">{5,9}[ \t]*REPLACE[ \t\r]*$"
_CODE_MARKS: Final = (
    # Carets under a line of code are no path, and an end alone asks for nothing.
    r"(?P<caret>\^\^\^|[ \t]+\^\^\^(?=[^\s^])(?!(?:end|delete)(?![\w./-])))"
    rf"|(?P<begin>[ \t]*\*\*\* Begin Patch[ \t\r]*$)|(?P<end>{_END_PATCH})"
    rf"|(?P<search>[ \t]*<{{5,9}}[ \t]*SEARCH[ \t\r]*$)|(?P<replace>{_REPLACE})"
    r"|(?P<fence>[ \t]*(?:```|~~~))"
)
_PROSE_MARKS: Final = (
    # A brace that no key, comment or closing brace follows begins no JSON, not even a broken one.
    r"(?P<brace>[ \t]*\{(?=[ \t\r\n]*[\"'}/]))"
    rf"|(?P<diff>{gitextent.START})"
    r"|(?P<hunk>@@ -[0-9]+(?:,[0-9]+)? \+[0-9]+(?:,[0-9]+)? @@)"
)
# Most lines are none of these, which their first letter tells.
_IN_CODE: Final = re.compile(rf"^(?=[ \t]*[\^*<>`~])(?:{_CODE_MARKS})", re.MULTILINE)
_IN_PROSE: Final = re.compile(
    rf"^(?=[ \t]*[\^*<>`~{{d@-])(?:{_CODE_MARKS}|{_PROSE_MARKS})", re.MULTILINE
)
# Blocks that carry their own ends and may stand in a code block of any language.
_OWN_END: Final = re.compile(r"\^\^\^|\*\*\* Begin Patch|(?:[^\n]*\n)?[ \t]*<{5,9}[ \t]*SEARCH")
_MAIL: Final = re.compile(r"From [0-9a-f]{40} ")
_PATCH: Final = re.compile(r"diff --git |--- [^\n]*\n[ \t]*\+\+\+ |From [0-9a-f]{40} ")
_INDENT: Final = re.compile(r"[ \t]*")

_LIMITS: Final = Limits()
_JSON_LABELS: Final = jsonsearch.LABELS | jsonsearch.CODE_LABELS
_GIT_LABELS: Final = frozenset({"patch", "diff"})
_PERHAPS_GIT_LABELS: Final = frozenset({"", "git", "udiff", "unified", "unidiff"})
_KEYS: Final = {Format.BUNDLE: "files", Format.PATCH: "patches"}


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of an answer."""

    kind: Format
    text: str
    """The block itself, without the code fence around it and its indentation."""
    first_line: int
    """The line of the answer that the text starts on, from 1."""
    start: int
    end: int
    """Where the text stands in the answer."""
    document: JsonObject | None = None
    """What the text says, if it is JSON."""
    more_line: int | None = None
    """The line right after the code block of a patch, if it looks like more of the patch."""
    closed: bool = False
    """The text is all that stands in a code block which is closed."""


def split(
    text: str, wanted: frozenset[Format] = EVERY, *, most: int = _LIMITS.operations
) -> tuple[Segment, ...]:
    """Return the blocks of the wanted formats, in order; what else there is counts as prose."""
    return _Splitter(text, wanted, most).run()


@dataclass(slots=True)
class _Span:
    """A block whose end may still move."""

    kind: Format
    start: int
    end: int
    first_line: int
    document: JsonObject | None = None
    width: int = 0
    """The indentation of the code block around a patch."""
    more_line: int | None = None
    closed: bool = False
    indented: list[tuple[int, int, str]] = field(default_factory=list)
    """Parts that are indented, and how."""


class _Splitter:
    def __init__(self, text: str, wanted: frozenset[Format], most: int) -> None:
        self._text = text
        self._wanted = wanted
        self._most = most
        self._places = Places(text)
        keys = frozenset(key for form, key in _KEYS.items() if form in wanted)
        self._json = JsonSearch(self._places, keys) if keys else None
        self._spans: list[_Span] = []
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
        self._bare_lines = 0
        """Lines of git patches that stand in prose."""

    def run(self) -> tuple[Segment, ...]:
        place = self._mail()
        marks = 0
        while match := (_IN_CODE if self._prose else _IN_PROSE).search(self._text, place):
            marks += 1
            if marks > MAX_MARKS:
                raise malformed(
                    self._places.line(match.start()),
                    "answer.bounds",
                    f"more than {MAX_MARKS:,} lines of the answer look like the begin of a block",
                )
            place = self._block(str(match.lastgroup), match.start())
        return tuple(self._segment(span) for span in self._spans)

    def _block(self, mark: str, start: int) -> int:
        """Take the block that a line may begin, and return the line start to go on from."""
        match mark:
            case "caret" if Format.FENCE in self._wanted:
                return self._caret(start)
            case "begin" | "end" if Format.ENVELOPE in self._wanted:
                return self._envelope(mark, start)
            case "search" | "replace" if Format.BLOCKS in self._wanted:
                return self._search(mark, start)
            case "fence":
                return self._code(start)
            case "brace" if self._json:
                return self._deliver(self._json.on_line(start))
            case "diff" | "hunk" if Format.GIT in self._wanted:
                return self._bare_diff(mark, start)
            case _:
                return self._places.after(start)

    # Blocks that carry their own ends.

    def _mail(self) -> int:
        """Take the whole answer if it is a mail that git has made."""
        first = self._places.first
        if (
            Format.GIT not in self._wanted
            or first != self._places.line_start(first)
            or not _MAIL.match(self._text, first)
        ):
            return 0
        return self._add(_Span(Format.GIT, first, self._places.end, self._places.line(first)))

    def _bare_diff(self, mark: str, start: int) -> int:
        line = self._places.line(start)
        if mark == "hunk":
            raise malformed(line, "git.header", "a hunk stands without the header of its file")
        indent = self._indent(start)
        end = gitextent.end(self._text, start, indent, line)
        self._bare_lines += self._text.count("\n", start, end)
        if self._bare_lines > MAX_LINES:
            raise malformed(
                line,
                "answer.bounds",
                f"the patches of the answer have more than {MAX_LINES:,} lines",
            )
        return self._add_indented(Format.GIT, start, start, end, indent)

    def _caret(self, start: int) -> int:
        # Whatever marker comes next ends the block; whether it may is for the format to say.
        indent = self._indent(start)
        marker = self._text.find(f"\n{indent}{fence.MARKER}", start)
        if marker < 0 and indent:
            after = self._places.after(start)
            if " " in self._text[start:after].strip():
                return after  # a sentence about the marker
            raise malformed(
                self._places.line(start),
                "fence.unclosed",
                "an indented ^^^ block has no ^^^end with the same indentation",
            )
        end = self._places.end if marker < 0 else self._places.after(marker + 1)
        return self._add_indented(Format.FENCE, start, start, end, indent)

    def _envelope(self, mark: str, start: int) -> int:
        indent = self._indent(start)
        closing = self._closing(_END_PATCH, start, indent) if mark == "begin" else None
        if closing is None:
            what = "an envelope has no" if mark == "begin" else "there is no envelope before"
            raise malformed(self._places.line(start), "envelope.end", f"{what} '*** End Patch'")
        end = self._places.after(closing)
        return self._add_indented(Format.ENVELOPE, start, start, end, indent)

    def _search(self, mark: str, start: int) -> int:
        if mark == "replace":
            raise malformed(
                self._places.line(start),
                "blocks.marker",
                "'>>>>>>> REPLACE' stands outside a block",
                hint="a block starts with '<<<<<<< SEARCH'",
            )
        indent = self._indent(start)
        closing = self._closing(_REPLACE, start, indent)
        if closing is None and indent:
            raise malformed(
                self._places.line(start),
                "blocks.unclosed",
                "an indented block has no '>>>>>>> REPLACE' with the same indentation",
            )
        end = self._places.end if closing is None else self._places.after(closing)
        begin = self._path_line(start)
        last = self._spans[-1] if self._spans else None
        if last and last.kind is Format.BLOCKS and last.end == begin:
            # Nothing but blanks and code fences lie between: the block goes with the one before.
            last.end = end
            if indent:
                last.indented.append((start, end, indent))
            return end
        return self._add_indented(Format.BLOCKS, begin, start, end, indent)

    def _closing(self, pattern: str, start: int, indent: str) -> int | None:
        closer = re.compile(f"^{re.escape(indent)}{pattern}", re.MULTILINE)
        match = closer.search(self._text, start)
        return match.start() if match else None

    def _indent(self, start: int) -> str:
        match = _INDENT.match(self._text, start)
        assert match is not None
        return match[0]

    def _path_line(self, start: int) -> int:
        """Return where the line with the path of a block begins, or the end of the block before."""
        floor = self._spans[-1].end if self._spans else 0
        place = start
        for _ in range(MAX_GAP):
            if place <= floor:
                break
            place = self._places.line_start(place - 1, floor)
            line = self._text[place : self._places.after(place)]
            if line.strip() and blocks.names_file(line):
                break
        return place

    # Code blocks.

    def _code(self, start: int) -> int:
        opener = codefence.at(self._text, start)
        body = self._places.after(start)
        if opener is None or start == self._wrapper_end:
            return body
        if self._prose and self._prose[-1].closed_by(opener):
            self._prose.pop()
            return body
        if self._example and start < self._example_end and wrapping.outranks(self._example, opener):
            end = codefence.closing_line(opener, self._text, body, self._example_end)
            return self._example_end if end is None else self._places.after(end)
        first = self._places.skip_space(body)
        is_own = _OWN_END.match(self._text, first) is not None
        if Format.GIT in self._wanted and self._is_patch(opener, first) and not is_own:
            return self._git(opener, start, body)
        if wrapping.holds_prose(opener, self._text, body):
            return self._text_block(opener, start, body)
        self._is_first = False
        if self._json and opener.label in _JSON_LABELS:
            return self._deliver(self._json.in_code_block(opener, body, is_other=is_own), opener)
        self._ignore(opener)
        return body

    def _text_block(self, opener: CodeFence, start: int, body: int) -> int:
        """Go into a code block of text: it is the answer, an example, or neither."""
        if self._is_first and not self._spans:
            self._is_first = False
            self._wrapper_end = wrapping.end_of_answer(opener, self._text, start, body)
            if self._wrapper_end is not None:
                return body
        if start >= self._example_end:
            end = self._closing_line(opener, start, body)
            self._example, self._example_end = opener, body if end is None else end
        self._ignore(opener)
        return body

    def _closing_line(self, opener: CodeFence, start: int, body: int) -> int | None:
        """Find what closes a code block, without looking twice for what is not there."""
        if any(opener.needs_more_than(fence) for fence in self._unclosed):
            return None
        end = codefence.closing_line(opener, self._text, body)
        if end is None:
            self._unclosed.append(opener)
            if len(self._unclosed) > MAX_UNCLOSED:
                raise malformed(
                    self._places.line(start),
                    "answer.bounds",
                    f"more than {MAX_UNCLOSED} code blocks of text are not closed",
                )
        return end

    def _is_patch(self, opener: CodeFence, first: int) -> bool:
        if opener.label in _PERHAPS_GIT_LABELS:
            return _PATCH.match(self._text, first) is not None
        return opener.label in _GIT_LABELS

    def _git(self, opener: CodeFence, start: int, body: int) -> int:
        self._is_first = False
        end = codefence.closing_line(opener, self._text, body)
        if end is None:
            raise malformed(
                self._places.line(start),
                "answer.unclosed",
                "the code block that holds a patch is not closed",
            )
        after = self._places.after(end)
        if self._text[body:end].strip():
            line = self._places.line(body)
            more = gitextent.goes_on(self._text, after, opener.indent)
            more_line = None if more is None else line + self._text.count("\n", body, more)
            self._add(
                _Span(
                    Format.GIT,
                    body,
                    end,
                    line,
                    width=opener.indent,
                    more_line=more_line,
                    closed=True,
                )
            )
        return after

    def _deliver(self, found: Found, opener: CodeFence | None = None) -> int:
        if found.document is not None:
            is_bundle = _KEYS[Format.BUNDLE] in found.document.members
            kind = Format.BUNDLE if is_bundle else Format.PATCH
            line = self._places.line(found.start)
            self._add(_Span(kind, found.start, found.end, line, found.document))
        elif found.is_prose and opener is not None:
            self._ignore(opener)
        return found.resume

    def _ignore(self, opener: CodeFence) -> None:
        if len(self._prose) == MAX_NESTING:
            del self._prose[0]
        self._prose.append(opener)

    # What was found.

    def _add_indented(self, kind: Format, start: int, marker: int, end: int, indent: str) -> int:
        line = self._places.line(start)
        parts = [(marker, end, indent)] if indent else []
        return self._add(_Span(kind, start, end, line, indented=parts))

    def _add(self, span: _Span) -> int:
        if len(self._spans) >= self._most:
            raise malformed(
                span.first_line,
                "answer.bounds",
                f"the answer holds more than the bound of {self._most:,} blocks",
            )
        self._spans.append(span)
        return span.end

    def _segment(self, span: _Span) -> Segment:
        pieces: list[str] = []
        place, line = span.start, span.first_line
        for start, end, indent in span.indented:
            line += self._text.count("\n", place, start)
            part = indentation.stripped(self._text[start:end], indent, line)
            pieces += (self._text[place:start], part)
            line += part.count("\n")
            place = end
        pieces.append(self._text[place : span.end])
        text = indentation.stripped_if_shared("".join(pieces), span.width)
        return Segment(
            span.kind,
            text,
            span.first_line,
            span.start,
            span.end,
            span.document,
            span.more_line,
            span.closed,
        )
