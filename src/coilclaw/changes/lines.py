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

from coilclaw.changes.nearest_lines import MAX_CHARS, nearest_lines
from coilclaw.changes.operations import ADDED, CONTEXT
from coilclaw.changes.work import Work
from coilclaw.domain.treepath import shown
from coilclaw.errors import PlanRefused, combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.changes.operations import Hunk, HunkLine, Options
    from coilclaw.errors import NearLine

MAX_COUNTED: Final = 20
"""Places counted before counting stops: a refusal need not know more."""

_BOM: Final = b"\xef\xbb\xbf"
_STRIDE: Final = 4096
_HIT_COST: Final = 1000
"""What it costs to look at one line for a heading, as bytes of a search."""


def apply(
    content: bytes,
    hunks: Sequence[Hunk],
    *,
    path: str,
    options: Options,
    work: Work | None = None,
) -> bytes:
    """Return the content with all hunks put in; ``options`` make nothing looser here.

    ``work`` is shared by all edits of a plan, and counts what they search through.
    """
    del options
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


def joined(lines: Iterable[HunkLine]) -> bytes:
    """Return lines of a hunk as they stand in a file."""
    return b"".join(line.text + b"\n" if line.newline else line.text for line in lines)


def _apply(content: bytes, hunks: Sequence[Hunk], path: str, work: Work) -> bytes:
    _check(hunks, path)
    numbered = all(hunk.old_start is not None for hunk in hunks)
    unended = not numbered and content != b"" and not content.endswith(b"\n")
    edit = _Edit(content + b"\n" if unended else content, path, work)
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


def _check(hunks: Sequence[Hunk], path: str) -> None:
    """Refuse line numbers that fall or overlap, and lines after one that is said to be the last."""
    floor = 0
    numbered = {hunk.old_start is not None for hunk in hunks}
    for index, hunk in enumerate(hunks, 1):
        if any(not line.newline for side in (hunk.old, hunk.new) for line in side[:-1]):
            raise _refused("newline", index, hunk, path, "has a line after the last of the file")
        if len(numbered) > 1:
            raise _refused("order", index, hunk, path, "is numbered and another is not")
        if hunk.old_start is None:
            continue
        if hunk.old_start < floor:
            raise _refused(
                "order",
                index,
                hunk,
                path,
                f"starts at line {hunk.old_start}, but the hunk before it ends at {floor - 1}",
            )
        floor = hunk.old_start + len(hunk.old)


class _Edit:
    """A text while hunks are put into it."""

    def __init__(self, text: bytes, path: str, work: Work) -> None:
        self._text = text
        self._path = path
        self._work = work
        self._out: list[bytes] = []
        self._at = 0
        """Where the rest of the text starts: everything before it is settled."""
        self._line = 0
        """How many lines of the text are before that; only kept for numbered hunks."""
        self._gaps: list[tuple[int, int]] = []
        """What lies between the settled hunks, which no later hunk may take for its place."""

    def put(self, index: int, hunk: Hunk) -> None:
        old, new = joined(hunk.old), joined(hunk.new)
        if _is_bare(hunk):
            self._flush()
        start = self._place(index, hunk, old)
        end = start + len(old)
        if not new.endswith(b"\n") and new and end < len(self._text):
            raise _refused(
                "newline", index, hunk, self._path, "ends without a newline, but the file goes on"
            )
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

    def _flush(self) -> None:
        self._spend(len(self._text))
        self._text = self.finish()
        self._out.clear()
        self._at = 0

    @property
    def _has_bom(self) -> bool:
        return self._text.startswith(_BOM)

    def _place(self, index: int, hunk: Hunk, old: bytes) -> int:
        """Return where the old lines of a hunk start."""
        if hunk.old_start is not None:
            return self._numbered(index, hunk, old)
        floor = self._at
        for heading in filter(None, map(bytes.strip, hunk.heading.split(b"\n"))):
            floor = self._below(index, hunk, heading, floor)
        if not old and not hunk.at_end:
            if floor == self._at:
                raise _refused(
                    "no_context",
                    index,
                    hunk,
                    self._path,
                    "has no lines to find",
                    hint="add context lines, a heading after '@@', or '*** End of File'",
                )
            return floor
        if hunk.at_end:
            return self._ending(index, hunk, old, floor)
        return self._only(index, hunk, self._places(old, floor))

    def _numbered(self, index: int, hunk: Hunk, old: bytes) -> int:
        if not old:
            if self._text:
                self._refuse_applied(index, hunk)
                raise _refused(
                    "no_context",
                    index,
                    hunk,
                    self._path,
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
        earlier = self._earlier(hunk, old) if len(anchored) == 1 else []
        if anchored and not earlier and len(anchored) == 1:
            return anchored[0]
        self._refuse_applied(index, hunk)
        if places and not anchored:
            raise _refused(
                "anchor",
                index,
                hunk,
                self._path,
                _say_anchor(hunk),
                hint="correct its line number, or add the context lines that follow the change",
                nearest=self._nearest(hunk),
            )
        return self._only(index, hunk, [*earlier, *anchored], difference)

    def _earlier(self, hunk: Hunk, old: bytes) -> list[int]:
        """Return a place between settled hunks where the old lines match, too, if there is one.

        git might take it, for it takes the place that is nearest to the stated line.
        """
        start = 0 if self._text.startswith(old) else self._text.find(b"\n" + old, 0, self._at) + 1
        self._spend(self._at)
        while start or self._text.startswith(old):
            gap = bisect_right(self._gaps, (start, len(self._text))) - 1
            if gap >= 0 and start + len(old) <= self._gaps[gap][1]:
                return [start] if self._is_anchored(hunk, start, len(old)) else []
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

    def _refuse_applied(self, index: int, hunk: Hunk) -> None:
        """Refuse a hunk as applied if the file has its new lines where they would stand."""
        new = joined(hunk.new)
        if hunk.new_start is None or not (new or self._text == b""):
            return
        turned = replace(hunk, old_start=hunk.new_start)
        stated, passed = _after_lines(self._text, 0, max(hunk.new_start - 1, 0))
        self._spend(passed)
        places = self._places(new, 0)
        fitting = [start for start in places if self._is_anchored(turned, start, len(new))]
        if len(fitting) == 1 or stated in fitting:
            raise _refused(
                "applied",
                index,
                hunk,
                self._path,
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

    def _only(self, index: int, hunk: Hunk, places: list[int], hint: str | None = None) -> int:
        if len(places) == 1:
            return places[0]
        where = "" if _is_bare(hunk) else " after the hunk before it" if index > 1 else ""
        if not places:
            raise _refused(
                "missing",
                index,
                hunk,
                self._path,
                f"matches no place{where}",
                hint=hint or "the old lines must be in the file exactly as they stand there",
                nearest=self._nearest(hunk),
            )
        count = str(len(places)) if len(places) <= MAX_COUNTED else f"more than {MAX_COUNTED}"
        raise _refused(
            "ambiguous",
            index,
            hunk,
            self._path,
            f"matches {count} places{where}",
            hint="add lines around it until it fits one place only",
        )

    def _ending(self, index: int, hunk: Hunk, old: bytes, floor: int) -> int:
        start = len(self._text) - len(old)
        if start >= floor and self._starts_line(start) and self._text.endswith(old):
            return start
        raise _refused(
            "missing",
            index,
            hunk,
            self._path,
            "is said to be the end of the file, but is not",
            nearest=self._nearest(hunk),
        )

    def _starts_line(self, offset: int) -> bool:
        if offset == len(_BOM) and self._has_bom:
            return True
        return offset == 0 or self._text[offset - 1 : offset] == b"\n"

    def _below(self, index: int, hunk: Hunk, heading: bytes, floor: int) -> int:
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
        count = str(len(ends)) if len(ends) <= MAX_COUNTED else f"more than {MAX_COUNTED}"
        raise _refused(
            "ambiguous" if ends else "missing",
            index,
            hunk,
            self._path,
            f"has the heading {_seen(heading)}, which stands "
            f"{count} times after the hunk before it instead of once",
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

    def _nearest(self, hunk: Hunk) -> tuple[NearLine, ...]:
        self._spend(len(self._text))
        return nearest_lines(self._text, [line.text for line in hunk.old], hunk.old_start)


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


def _say_anchor(hunk: Hunk) -> str:
    """Say where a hunk must match, which it does not."""
    if (hunk.old_start or 0) <= 1:
        return f"has line number {hunk.old_start}, but does not match at the start of the file"
    return "has no context lines at its end, but does not match at the end of the file"


def _is_bare(hunk: Hunk) -> bool:
    return (
        hunk.old_start is None
        and not hunk.at_end
        and not hunk.heading.strip()
        and any(line.mark != ADDED for line in hunk.lines)
        and all(line.mark != CONTEXT for line in hunk.lines)
    )


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
            return (
                f"line {number} of the file is {_seen(found)}, but the hunk has {_seen(line.text)}"
            )
        if (end >= 0) != line.newline:
            return f"line {number} of the file {'has a' if end >= 0 else 'has no'} newline"
        at = len(text) if end < 0 else end + 1
    return None


def _seen(text: bytes) -> str:
    return shown(text[:400].decode("utf-8", "replace"))


def _refused(
    rule: str,
    index: int,
    hunk: Hunk,
    path: str,
    what: str,
    *,
    hint: str | None = None,
    nearest: tuple[NearLine, ...] = (),
) -> PlanRefused:
    line = hunk.source.line if hunk.source else None
    where = f" (line {line} of the answer)" if line is not None else ""
    return PlanRefused(
        f"hunk {index} of {shown(path)}{where} {what}",
        rule=f"lines.{rule}",
        path=path,
        line=line,
        hint=hint,
        index=index,
        nearest=nearest,
    )
