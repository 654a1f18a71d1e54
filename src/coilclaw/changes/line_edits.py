"""The line engine: hunks are put into a file where they match exactly, all of them or none.

Lines are compared byte for byte, without fuzz. Where a hunk goes:

- A hunk with a line number (git) goes to that line of the old file. If it does not match there, it
  goes to the only other place where it does, which must come after the previous hunk; none or
  several refuse. Line numbers must rise. As for ``git apply``, a hunk of line 0 or 1 matches at the
  start of the file only, and one without context lines at its end matches at the end of the file
  only. A hunk without old lines fits an empty file only. A hunk that fits nowhere, but whose new
  lines stand where they would, is already applied.
- A hunk without one (envelope) goes to the only place after the previous hunk where it matches.
  Each line of its heading must first be found, exactly once, after the one before it, and the hunk
  comes after the last of them. ``at_end`` leaves only the end of the file. A hunk without old lines
  needs one or the other: it goes under its heading, or to the end.
- A hunk that has neither number, heading, ``at_end`` nor context lines (every search-and-replace
  block, and an envelope chunk of that shape) says nothing about where it belongs, not even its
  order: it must match exactly once in the whole text as the hunks before it left it.

What survives: a byte order mark, with which the first line matches both with and without it; CRLF,
if all lines of the file end in it and no line of the hunks does; the missing newline of a last
line. Only git patches can say that a newline is missing, so there it must be said and may change.
The other formats cannot say it, so they never change it: the last line matches either way, and
the file ends as it ended, also when lines are added at its end.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes.failure_report import MAX_CHARS, nearest_lines
from coilclaw.changes.operations import ADDED, CONTEXT, Hunk, Work
from coilclaw.kernel import PlanRefused, combine, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.changes.operations import HunkLine
    from coilclaw.kernel import NearLine

MAX_COUNTED: Final = 20
"""Places counted before counting stops: a refusal need not know more."""

_BOM: Final = b"\xef\xbb\xbf"
_STRIDE: Final = 4096
_HIT_COST: Final = 1000
"""What it costs to look at one line for a heading, as bytes of a search."""


def apply_hunks(
    content: bytes, hunks: Sequence[Hunk], *, path: str, work: Work | None = None
) -> bytes:
    """Return the content with all hunks put in.

    ``work`` is shared by all edits of a plan, and counts what they search through.
    """
    work = work or Work()
    breaks = content.count(b"\n")
    if (
        breaks
        and breaks == content.count(b"\r\n")
        and not any(line.text.endswith(b"\r") for hunk in hunks for line in hunk.lines)
    ):
        # Lossless: every newline of this file is a CRLF, and every one will be again.
        plain = _apply(content.replace(b"\r\n", b"\n"), hunks, path, work)
        return plain.replace(b"\n", b"\r\n")
    return _apply(content, hunks, path, work)


def join_lines(lines: Iterable[HunkLine]) -> bytes:
    """Return lines of a hunk as they stand in a file."""
    return b"".join(line.text + b"\n" if line.newline else line.text for line in lines)


def _apply(content: bytes, hunks: Sequence[Hunk], path: str, work: Work) -> bytes:
    numbered = all(hunk.old_start is not None for hunk in hunks)
    unended = not numbered and content != b"" and not content.endswith(b"\n")
    edit = _Edit(content + b"\n" if unended else content, path, work)
    edit.check(hunks)
    failed: list[PlanRefused] = []
    for index, hunk in enumerate(hunks, 1):
        try:
            edit.put(index, hunk)
        except PlanRefused as problem:
            if problem.rule == "plan.bounds":
                raise
            failed.append(problem)
    if failed:
        raise combine(failed)
    result = edit.finish()
    # An empty last line has nothing but its newline to show that it is there.
    if unended and result != b"\n" and result[-1:] == b"\n" != result[-2:-1]:
        return result[:-1]
    return result


class _Edit:
    """A text while hunks are put into it, one after the other."""

    def __init__(self, text: bytes, path: str, work: Work) -> None:
        self._text = text
        self._path = path
        self._work = work
        self._index = 0
        self._hunk = Hunk(())
        """The hunk that is put in, and its number."""
        self._out: list[bytes] = []
        self._at = 0
        """Where the rest of the text starts: everything before it is settled."""
        self._line = 0
        """How many lines of the text are before that; only kept for numbered hunks."""
        self._gaps: list[tuple[int, int]] = []
        """What lies between the settled hunks, which no later hunk may take for its place."""

    def check(self, hunks: Sequence[Hunk]) -> None:
        """Refuse numbers that fall or overlap, and lines after one that is said to be the last."""
        floor = 0
        numbered = {hunk.old_start is not None for hunk in hunks}
        for self._index, self._hunk in enumerate(hunks, 1):
            hunk = self._hunk
            if any(not line.newline for side in (hunk.old, hunk.new) for line in side[:-1]):
                raise self._refusal("newline", "has a line after the last of the file")
            if len(numbered) > 1:
                raise self._refusal("order", "is numbered and another is not")
            if hunk.old_start is None:
                continue
            if hunk.old_start < floor:
                stated = f"starts at line {hunk.old_start}"
                raise self._refusal(
                    "order", f"{stated}, but the hunk before it ends at {floor - 1}"
                )
            floor = hunk.old_start + len(hunk.old)

    def put(self, index: int, hunk: Hunk) -> None:
        self._index, self._hunk = index, hunk
        old, new = join_lines(hunk.old), join_lines(hunk.new)
        if self._is_bare():
            self._spend(len(self._text))
            self._text = self.finish()
            self._out.clear()
            self._at = 0
        start = self._place(old)
        end = start + len(old)
        if not new.endswith(b"\n") and new and end < len(self._text):
            raise self._refusal("newline", "ends without a newline, but the file goes on")
        if start == len(_BOM) and self._has_bom and new.startswith(_BOM):
            new = new[len(_BOM) :]
        if hunk.old_start is not None:
            self._line += self._text.count(b"\n", self._at, end)
            self._gaps.append((self._at, start))
        self._out += (self._text[self._at : start], new)
        self._at = end

    def finish(self) -> bytes:
        return b"".join((*self._out, self._text[self._at :]))

    def _spend(self, amount: int) -> None:
        self._work.spend(amount, path=self._path)

    @property
    def _has_bom(self) -> bool:
        return self._text.startswith(_BOM)

    def _place(self, old: bytes) -> int:
        """Return where the old lines of the hunk start."""
        hunk = self._hunk
        if hunk.old_start is not None:
            return self._find_numbered(old)
        floor = self._at
        for heading in filter(None, map(bytes.strip, hunk.heading.split(b"\n"))):
            floor = self._find_below(heading, floor)
        if hunk.at_end:
            return self._ending(old, floor)
        if old:
            return self._require_one(self._places(old, floor))
        if floor == self._at:
            hint = "add context lines, a heading after '@@', or '*** End of File'"
            raise self._refusal("no_context", "has no lines to find", hint=hint)
        return floor

    def _find_numbered(self, old: bytes) -> int:
        hunk = self._hunk
        if not old:
            if self._text:
                self._refuse_applied()
                raise self._refusal(
                    "no_context",
                    "has no old lines, which only an empty file matches",
                    hint="add context lines around the added ones",
                )
            return 0
        stated = self._offset((hunk.old_start or 0) - 1)
        difference = None
        if stated is not None:
            for start in (stated, len(_BOM)) if stated == 0 and self._has_bom else (stated,):
                if self._fits(old, start) and self._is_anchored(hunk, start, len(old)):
                    return start
            difference = _difference(self._text, stated, hunk)
        places = self._places(old, self._at)
        anchored = [start for start in places if self._is_anchored(hunk, start, len(old))]
        earlier = self._earlier(old) if len(anchored) == 1 else []
        if len(anchored) == 1 and not earlier:
            return anchored[0]
        self._refuse_applied()
        if places and not anchored:
            message = "has no context lines at its end, but does not match at the end of the file"
            if (hunk.old_start or 0) <= 1:
                message = (
                    f"has line number {hunk.old_start}, but does not match at the start of the file"
                )
            raise self._refusal(
                "anchor",
                message,
                hint="correct its line number, or add the context lines that follow the change",
                nearest=self._nearest(),
            )
        return self._require_one([*earlier, *anchored], difference)

    def _earlier(self, old: bytes) -> list[int]:
        """Return a place between settled hunks where the old lines match, too, if there is one.

        git might take it, for it takes the place that is nearest to the stated line.
        """
        start = 0 if self._text.startswith(old) else self._text.find(b"\n" + old, 0, self._at) + 1
        self._spend(self._at)
        while start or self._text.startswith(old):
            gap = bisect_right(self._gaps, (start, len(self._text))) - 1
            if gap >= 0 and start + len(old) <= self._gaps[gap][1]:
                return [start] if self._is_anchored(self._hunk, start, len(old)) else []
            self._spend(_HIT_COST)
            start = self._text.find(b"\n" + old, start, self._at) + 1
            if not start:
                break
        return []

    def _is_anchored(self, hunk: Hunk, start: int, length: int) -> bool:
        """Say whether a place is at the start or end of the file if the hunk must be."""
        if (hunk.old_start or 0) <= 1 and start not in ({0, len(_BOM)} if self._has_bom else {0}):
            return False
        return hunk.lines[-1].mark == CONTEXT or start + length == len(self._text)

    def _refuse_applied(self) -> None:
        """Refuse the hunk as applied if the file has its new lines where they would stand."""
        hunk = self._hunk
        new = join_lines(hunk.new)
        if hunk.new_start is None or not (new or self._text == b""):
            return
        turned = replace(hunk, old_start=hunk.new_start)
        stated, passed = _after_lines(self._text, 0, max(hunk.new_start - 1, 0))
        self._spend(passed)
        places = self._places(new, 0)
        fitting = [start for start in places if self._is_anchored(turned, start, len(new))]
        if len(fitting) == 1 or stated in fitting:
            raise self._refusal(
                "applied",
                "is already applied: the file holds its new lines, and not its old ones",
                hint="leave it out; nothing has to be done for it",
            )

    def _fits(self, old: bytes, start: int) -> bool:
        """Say whether the old lines stand at a line start; without a newline, only at the end."""
        if not self._text.startswith(old, start):
            return False
        return old.endswith(b"\n") or start + len(old) == len(self._text)

    def _places(self, old: bytes, floor: int) -> list[int]:
        """Return where the old lines match at or after an offset that starts a line."""
        text = self._text
        candidates = {floor, len(_BOM)} if floor == 0 and self._has_bom else {floor}
        places = [start for start in sorted(candidates) if self._fits(old, start)]
        if not old.endswith(b"\n"):
            start = len(text) - len(old)
            if start > floor and text.endswith(b"\n" + old) and start not in places:
                places.append(start)
            return places
        needle = b"\n" + old
        found = text.find(needle, floor)
        while found >= 0 and len(places) <= MAX_COUNTED:
            places.append(found + 1)
            found = text.find(needle, found + 1)
        self._spend((len(text) if found < 0 else found) - floor)
        return places

    def _require_one(self, places: list[int], difference: str | None = None) -> int:
        if len(places) == 1:
            return places[0]
        where = " after the hunk before it" if self._index > 1 and not self._is_bare() else ""
        if not places:
            raise self._refusal(
                "missing",
                f"matches no place{where}",
                hint=difference or "the old lines must be in the file exactly as they stand there",
                nearest=self._nearest(),
            )
        hint = "add lines around it until it fits one place only"
        raise self._refusal("ambiguous", f"matches {_count(places)} places{where}", hint=hint)

    def _ending(self, old: bytes, floor: int) -> int:
        start = len(self._text) - len(old)
        is_first = start in ({0, len(_BOM)} if self._has_bom else {0})
        starts_line = is_first or self._text[start - 1 : start] == b"\n"
        if start >= floor and starts_line and self._text.endswith(old):
            return start
        message = "is said to be the end of the file, but is not"
        raise self._refusal("missing", message, nearest=self._nearest())

    def _find_below(self, heading: bytes, floor: int) -> int:
        """Return where the line after a heading starts; the heading must stand exactly once."""
        text = self._text
        ends: list[int] = []
        at = floor
        while len(ends) <= MAX_COUNTED:
            hit = text.find(heading, at)
            self._spend((len(text) if hit < 0 else hit) - at + _HIT_COST)
            if hit < 0:
                break
            start = max(text.rfind(b"\n", floor, hit) + 1, floor)
            end = text.find(b"\n", hit)
            at = len(text) if end < 0 else end + 1
            if text[start:at].removeprefix(_BOM).strip() == heading:
                ends.append(at)
            if end < 0:
                break
        if len(ends) == 1:
            return ends[0]
        raise self._refusal(
            "ambiguous" if ends else "missing",
            f"has the heading {_quote(heading)}, which stands "
            f"{_count(ends)} times after the hunk before it instead of once",
            nearest=() if ends else nearest_lines(text, [heading]),
        )

    def _offset(self, line: int) -> int | None:
        """Return where a line of the old file starts, if it is not settled already."""
        missing = line - self._line
        if missing < 0:
            return None
        found, passed = _after_lines(self._text, self._at, missing)
        self._spend(passed)
        return found

    def _nearest(self) -> tuple[NearLine, ...]:
        self._spend(len(self._text))
        old = [line.text for line in self._hunk.old]
        return nearest_lines(self._text, old, self._hunk.old_start)

    def _is_bare(self) -> bool:
        """Say whether the hunk says nothing about where it belongs."""
        hunk = self._hunk
        return (
            hunk.old_start is None
            and not hunk.at_end
            and not hunk.heading.strip()
            and any(line.mark != ADDED for line in hunk.lines)
            and all(line.mark != CONTEXT for line in hunk.lines)
        )

    def _refusal(
        self, rule: str, what: str, *, hint: str | None = None, nearest: tuple[NearLine, ...] = ()
    ) -> PlanRefused:
        line = self._hunk.source.line if self._hunk.source else None
        where = f" (line {line} of the answer)" if line is not None else ""
        return PlanRefused(
            f"hunk {self._index} of {quote_text(self._path)}{where} {what}",
            rule=f"lines.{rule}",
            path=self._path,
            line=line,
            hint=hint,
            index=self._index,
            nearest=nearest,
        )


def _after_lines(text: bytes, start: int, count: int) -> tuple[int | None, int]:
    """Return where the line starts that is so many lines below another, and the bytes passed."""
    at = start
    # Whole strides are counted, so that only the last few lines are looked at one by one.
    while count and (inside := text.count(b"\n", at, at + _STRIDE)) < count:
        count -= inside
        at += _STRIDE
        if at >= len(text):
            return None, at - start
    passed = at - start
    for _ in range(count):
        at = text.index(b"\n", at) + 1
    return at, passed


def _difference(text: bytes, start: int, hunk: Hunk) -> str | None:
    """Say which line stands where the hunk says another one does."""
    at = start
    for number, line in enumerate(hunk.old, hunk.old_start or 0):
        end = text.find(b"\n", at)
        found = text[at:] if end < 0 else text[at:end]
        if at >= len(text):
            return f"the file ends before line {number}"
        if found != line.text and len(found) > MAX_CHARS:
            # Half a key in what is quoted could not be told from any other text.
            return f"line {number} of the file is another one than the hunk has"
        if found != line.text:
            has = _quote(line.text)
            return f"line {number} of the file is {_quote(found)}, but the hunk has {has}"
        if (end >= 0) != line.newline:
            return f"line {number} of the file {'has a' if end >= 0 else 'has no'} newline"
        at = len(text) if end < 0 else end + 1
    return None


def _quote(text: bytes) -> str:
    return quote_text(text[:400].decode("utf-8", "replace"))


def _count(places: list[int]) -> str:
    return str(len(places)) if len(places) <= MAX_COUNTED else f"more than {MAX_COUNTED}"
