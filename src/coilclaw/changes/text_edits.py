"""Literal replacements in the bytes of a file.

What is not replaced stays byte for byte: a byte order mark, line endings (also where a file mixes
them), a missing final newline. A ``find`` that does not occur as it is written is looked for with
CRLF and LF taken as the same; inserted line breaks become those that stand around them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.changes.failure_report import nearest_lines
from coilclaw.changes.operations import AnswerLimits, Work
from coilclaw.kernel import PlanRefused, combine, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.changes.operations import AnswerOptions, Replacement
    from coilclaw.kernel import NearLine

MAX_COUNTED: Final = 1000
"""Matches counted before counting stops: a refusal need not know more."""

_FOLD_COST: Final = 80
"""What it costs to fold a line break where not all are CRLF, in bytes of a pass over the text."""
_SWAP_COST: Final = 10
"""What it costs to replace one of many matches, in such bytes,"""
_MATCH_COST: Final = 1000
"""and to do so where a line ending must be chosen for it."""
_BOM: Final = "\ufeff"
_LIMITS: Final = AnswerLimits()


def apply_replacements(
    content: bytes,
    replacements: Sequence[Replacement],
    *,
    path: str,
    options: AnswerOptions,
    limits: AnswerLimits = _LIMITS,
    work: Work | None = None,
) -> tuple[bytes, tuple[str, ...]]:
    """Return the content with all replacements made in order, and what was skipped (lenient).

    ``work`` is shared by all edits of a plan; each replacement goes through the whole text.
    """
    work = work or Work()
    text = _decode(content, path)
    mark = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(mark)
    warnings: list[str] = []
    failed: list[PlanRefused] = []
    for number, replacement in enumerate(replacements, start=1):
        work.spend(len(text), path=path)
        edit = _Edit(text, replacement, has_mark=bool(mark))
        work.spend(edit.labour, path=path)
        wrong = "missing" if edit.count == 0 else None
        if edit.count > 1 and replacement.limit != "all":
            wrong = "ambiguous"
        if wrong and not options.lenient:
            failed.append(_refusal(wrong, number, path, edit.count, text, replacement))
            work.spend(len(text), path=path)
            continue
        if wrong == "missing":
            warnings.append(
                f"replacement {number} of {quote_text(path)} matches nothing and is skipped"
            )
            continue
        if edit.size > limits.file_bytes:
            bound = f"larger than {limits.file_bytes:,} bytes"
            message = f"replacement {number} would make {quote_text(path)} {bound}"
            raise PlanRefused(message, rule="plan.bounds", path=path)
        text = edit.replace_matches()
    if failed:
        raise combine(failed)
    return (mark + text).encode("utf-8"), tuple(warnings)


class _Edit:
    """One replacement in one text."""

    def __init__(self, text: str, replacement: Replacement, *, has_mark: bool) -> None:
        self._text = text
        self._all = replacement.limit == "all"
        find, put = replacement.find, replacement.replace
        if has_mark and find.startswith(_BOM) and find not in text:
            # The mark stands before the text and stays there, whether it was looked for or not.
            find, put = find[1:], put.removeprefix(_BOM)
        self._find = find
        # A text without any line break has no ending that an inserted one could take.
        self._put = put.replace("\r\n", "\n") if "\n" in text else put
        self._plain = text
        """The text that is searched."""
        self._breaks: list[int] = []
        """Where it has a LF that is a CRLF in the text, if not all of them are."""
        self._is_uniform = False
        """All of them are."""
        if ("\n" in find or "\r" in find) and ("\r\n" in find or "\r\n" in text):
            self._fold_unless_literal()
        self.count = 0
        if self._find and self._all:
            self.count = self._plain.count(self._find)
        elif self._find:
            self.count = sum(1 for _ in islice(_places(self._plain, self._find, 1), MAX_COUNTED))
        self._near = -1
        """The first line break after the last match, once it was looked for."""
        self._last = text.rfind("\n")

    @property
    def labour(self) -> int:
        """What the replacement costs beyond one pass over the text, in bytes of such a pass."""
        folds = _FOLD_COST * len(self._breaks)
        if self._is_uniform:
            folds = len(self._text)  # three quick passes more
        if not self._all:
            return folds
        at_once = self._is_plain or self._is_uniform
        return folds + self.count * (_SWAP_COST if at_once else _MATCH_COST)

    @property
    def _is_plain(self) -> bool:
        """Say whether no line ending has to be chosen for any match."""
        is_folded = self._is_uniform or self._breaks
        return "\r\n" not in self._text or ("\n" not in self._put and not is_folded)

    @property
    def size(self) -> int:
        """How long the text becomes, at most."""
        growth = len(self._put) + self._put.count("\n") - len(self._find)
        return len(self._text) + growth * (self.count if self._all else 1)

    def replace_matches(self) -> str:
        """Return the text with its matches replaced: all of them, or the first."""
        most = -1 if self._all else 1
        if self._is_plain:
            return self._text.replace(self._find, self._put, most)
        if self._is_uniform:
            return self._plain.replace(self._find, self._put, most).replace("\n", "\r\n")
        head, tail = self._measure_kept()
        inner = self._put[head : len(self._put) - tail]
        out: list[str] = []
        settled = 0
        for place in _places(self._plain, self._find, len(self._find)):
            begin, finish = self._offset(place), self._offset(place + len(self._find))
            start, end = self._offset(place + head), self._offset(place + len(self._find) - tail)
            ending = self._ending(begin, finish) if "\n" in inner else ""
            out += (self._text[settled:start], inner.replace("\n", ending))
            settled = end
            if not self._all:
                break
        return "".join((*out, self._text[settled:]))

    def _fold_unless_literal(self) -> None:
        """Search with every CRLF taken as a LF, if the text to find is not there as it stands."""
        if not self._all:
            # A match that takes one half of a CRLF and leaves the other is none.
            found = list(islice(_places(self._text, self._find, 1), MAX_COUNTED))
            if found and not any(self._splits(place) for place in found):
                return
        self._find = self._find.replace("\r\n", "\n")
        if self._text.count("\r\n") == self._text.count("\n"):
            self._plain = self._text.replace("\r\n", "\n")
            self._is_uniform = True
            return
        pieces = self._text.split("\r\n")
        place = -1
        for piece in pieces[:-1]:
            place += len(piece) + 1
            self._breaks.append(place)
        self._plain = "\n".join(pieces)

    def _splits(self, place: int) -> bool:
        end = place + len(self._find)
        return "\r\n" in {self._text[max(place - 1, 0) : place + 1], self._text[end - 1 : end + 1]}

    def _measure_kept(self) -> tuple[int, int]:
        """Return how much of a match stays as it is in the file, at its beginning and its end."""
        if "\r" in self._find:
            return 0, 0
        head = _count_shared(self._find, self._put)
        return head, _count_shared(self._find[head:][::-1], self._put[head:][::-1])

    def _offset(self, place: int) -> int:
        """Return the offset in the text of one in the searched text."""
        return place + bisect_left(self._breaks, place)

    def _ending(self, start: int, end: int) -> str:
        """Return the line ending that a line break put in place of this span gets."""
        text = self._text
        breaks = text.count("\n", start, end)
        if breaks:
            return "\r\n" if 2 * text.count("\r\n", start, end) > breaks else "\n"
        if self._near < end:
            found = text.find("\n", end)
            self._near = len(text) if found < 0 else found
        # Where nothing follows, the last break of all is the one before.
        near = min(self._near, self._last)
        return "\r\n" if near > 0 and text[near - 1] == "\r" else "\n"


def _decode(content: bytes, path: str) -> str:
    what = "holds a NUL"
    try:
        if "\0" not in (text := content.decode("utf-8")):
            return text
    except UnicodeDecodeError:
        what = "is not UTF-8 text"
    message = f"{quote_text(path)} {what} and cannot be patched by literal replacements"
    raise PlanRefused(message, rule="patch.binary", path=path)


def _places(text: str, find: str, stride: int) -> Iterator[int]:
    place = text.find(find)
    while place >= 0:
        yield place
        place = text.find(find, place + stride)


def _count_shared(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _refusal(
    wrong: str, number: int, path: str, count: int, text: str, replacement: Replacement
) -> PlanRefused:
    """Return the refusal of a replacement, with the nearest lines if nothing matches."""
    what = f"{count} matches" if count < MAX_COUNTED else f"{MAX_COUNTED} or more matches"
    nearest: tuple[NearLine, ...] = ()
    if wrong == "ambiguous":
        what += ", where exactly one is needed"
        hint = "the text to find must stand in the file exactly once, or its limit must be 'all'"
    else:
        hint = "the text to find must stand in the file as it is written"
        nearest = nearest_lines(text.encode("utf-8"), replacement.find.encode("utf-8").split(b"\n"))
        if replacement.replace and replacement.replace in text:
            hint = "the text to put in its place stands there: is the change already applied?"
    return PlanRefused(
        f"replacement {number} of {quote_text(path)} has {what}",
        rule=f"patch.{wrong}",
        path=path,
        hint=hint,
        index=number,
        nearest=nearest,
    )
