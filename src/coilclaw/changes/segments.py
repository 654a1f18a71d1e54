"""How an answer is cut into the blocks that ask for changes; everything else is prose.

One pass over the lines, which looks only at lines that could begin a block. What a block holds is
never searched for another. ``^^^`` fences, envelopes and search-and-replace blocks carry their own
ends and are found inside code blocks too; JSON and git patches end where their code block ends.
A code block that holds none of these is prose, whether it is closed or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes import codefence, fence
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

_END_PATCH: Final = re.compile(r"^\*\*\* End Patch[ \t\r]*$", re.MULTILINE)
_REPLACE: Final = re.compile(r"^>{5,9}[ \t]*REPLACE[ \t\r]*$", re.MULTILINE)
_MARK: Final = re.compile(
    r"^(?:(?P<caret>\^\^\^)"
    r"|(?P<begin>\*\*\* Begin Patch[ \t\r]*$)|(?P<end>\*\*\* End Patch[ \t\r]*$)"
    r"|(?P<search><{5,9}[ \t]*SEARCH[ \t\r]*$)|(?P<replace>>{5,9}[ \t]*REPLACE[ \t\r]*$)"
    r"|(?P<fence>[ \t]*(?:```|~~~))"
    # A brace that no key, comment or closing brace follows begins no JSON, not even a broken one.
    r"|(?P<brace>[ \t]*\{(?=[ \t\r\n]*[\"'}/])))",
    re.MULTILINE,
)
# Blocks that carry their own ends and may stand in a code block of any language.
_OWN_END: Final = re.compile(r"\^\^\^|\*\*\* Begin Patch|(?:[^\n]*\n)?<{5,9}[ \t]*SEARCH")
_BARE_DIFF: Final = re.compile(r"diff --git |--- [^\n]*\n\+\+\+ |From [0-9a-f]{40} ")

_LIMITS: Final = Limits()
_JSON_LABELS: Final = frozenset({"", "json", "jsonc"})
_GIT_LABELS: Final = frozenset({"patch", "diff"})
_KEYS: Final = {Format.BUNDLE: "files", Format.PATCH: "patches"}


@dataclass(frozen=True, slots=True)
class Segment:
    """One block of an answer."""

    kind: Format
    text: str
    """The block itself, without the code fence around it."""
    first_line: int
    """The line of the answer that the text starts on, from 1."""
    start: int
    end: int
    """Where the text stands in the answer."""
    document: JsonObject | None = None
    """What the text says, if it is JSON."""


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
    indent: int = 0
    document: JsonObject | None = None


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

    def run(self) -> tuple[Segment, ...]:
        if not self._bare_diff():
            place = 0
            while match := _MARK.search(self._text, place):
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
            case "brace" if self._json and not self._prose:
                return self._deliver(self._json.on_line(start))
            case _:
                return self._places.after(start)

    # Blocks that carry their own ends.

    def _bare_diff(self) -> bool:
        """Take the whole answer if it starts as a patch does."""
        first = self._places.first
        if (
            Format.GIT not in self._wanted
            or first != self._places.line_start(first)
            or not _BARE_DIFF.match(self._text, first)
        ):
            return False
        self._add(Format.GIT, first, self._places.end)
        return True

    def _caret(self, start: int) -> int:
        # Whatever marker comes next ends the block; whether it may is for the format to say.
        marker = self._text.find("\n" + fence.MARKER, start)
        end = self._places.end if marker < 0 else self._places.after(marker + 1)
        return self._add(Format.FENCE, start, end)

    def _envelope(self, mark: str, start: int) -> int:
        closing = _END_PATCH.search(self._text, start) if mark == "begin" else None
        if closing is None:
            what = "an envelope has no" if mark == "begin" else "there is no envelope before"
            raise malformed(self._places.line(start), "envelope.end", f"{what} '*** End Patch'")
        return self._add(Format.ENVELOPE, start, self._places.after(closing.start()))

    def _search(self, mark: str, start: int) -> int:
        if mark == "replace":
            raise malformed(
                self._places.line(start),
                "blocks.marker",
                "'>>>>>>> REPLACE' stands outside a block",
                hint="a block starts with '<<<<<<< SEARCH'",
            )
        closing = _REPLACE.search(self._text, start)
        end = self._places.after(closing.start()) if closing else self._places.end
        begin = self._path_line(start)
        last = self._spans[-1] if self._spans else None
        if last and last.kind is Format.BLOCKS and last.end == begin:
            # Nothing but blanks and code fences lie between: the block goes with the one before.
            last.end = end
            return end
        return self._add(Format.BLOCKS, begin, end)

    def _path_line(self, start: int) -> int:
        """Return where the line with the path of a block begins, or the end of the block before."""
        floor = self._spans[-1].end if self._spans else 0
        place = start
        while place > floor:
            place = self._places.line_start(place - 1, floor)
            line = self._text[place : self._places.after(place)]
            if line.strip() and codefence.at(line, 0) is None:
                break
        return place

    # Code blocks.

    def _code(self, start: int) -> int:
        opener = codefence.at(self._text, start)
        body = self._places.after(start)
        if opener is None:
            return body
        if self._prose and self._prose[-1].closed_by(opener):
            self._prose.pop()
            return body
        first = self._places.skip_space(body)
        is_own = _OWN_END.match(self._text, first) is not None
        if Format.GIT in self._wanted and self._is_patch(opener, first) and not is_own:
            return self._git(opener, start, body)
        if self._json and opener.label in _JSON_LABELS:
            return self._deliver(self._json.in_code_block(opener, body, is_other=is_own), opener)
        self._ignore(opener)
        return body

    def _is_patch(self, opener: CodeFence, first: int) -> bool:
        if opener.label == "":
            return self._text.startswith("diff --git ", first)
        return opener.label in _GIT_LABELS

    def _git(self, opener: CodeFence, start: int, body: int) -> int:
        end = codefence.closing_line(opener, self._text, body)
        if end is None:
            raise malformed(
                self._places.line(start),
                "answer.unclosed",
                "the code block that holds a patch is not closed",
            )
        if self._text[body:end].strip():
            self._add(Format.GIT, body, end, indent=opener.indent)
        return self._places.after(end)

    def _deliver(self, found: Found, opener: CodeFence | None = None) -> int:
        if found.document is not None:
            is_bundle = _KEYS[Format.BUNDLE] in found.document.members
            kind = Format.BUNDLE if is_bundle else Format.PATCH
            self._add(kind, found.start, found.end, document=found.document)
        elif found.is_prose and opener is not None:
            self._ignore(opener)
        return found.resume

    def _ignore(self, opener: CodeFence) -> None:
        if len(self._prose) == MAX_NESTING:
            del self._prose[0]
        self._prose.append(opener)

    # What was found.

    def _add(
        self,
        kind: Format,
        start: int,
        end: int,
        *,
        indent: int = 0,
        document: JsonObject | None = None,
    ) -> int:
        line = self._places.line(start)
        if len(self._spans) >= self._most:
            raise malformed(
                line,
                "answer.bounds",
                f"the answer holds more than the bound of {self._most:,} blocks",
            )
        self._spans.append(_Span(kind, start, end, line, indent, document))
        return end

    def _segment(self, span: _Span) -> Segment:
        text = _outdented(self._text[span.start : span.end], span.indent)
        return Segment(span.kind, text, span.first_line, span.start, span.end, span.document)


def _outdented(text: str, indent: int) -> str:
    """Take away the indentation of a code block in a list, if all its lines have it."""
    if indent == 0:
        return text
    lines = text.split("\n")
    if any(line.strip() and line[:indent].strip() for line in lines):
        return text
    return "\n".join(line[indent:] for line in lines)
