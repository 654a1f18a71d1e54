"""Show text unambiguously, for a decision about its exact bytes.

``visible`` shows every character that could hide, move, join or look like another one as
``<U+202E>``, some by name (``<TAB>``), and invisible spaces as ``<U+0020>`` or ``<U+0020 x40>``. A
``<`` in the text that would read like that is shown as ``<U+003C>``, so that two different texts
never look the same. Printable ASCII is unchanged, and so are letters and signs that have cells of
their own, run from left to right and cannot be confused with others.

``SafeText`` is for reading, not for decisions: it only removes control over the terminal.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


LONGEST_RUN: Final = 32
"""Consecutive spaces that are shown as spaces."""

_NAMES: Final = {
    "\0": "NUL",
    "\a": "BEL",
    "\b": "BS",
    "\t": "TAB",
    "\n": "LF",
    "\r": "CR",
    "\x1b": "ESC",
    "\x7f": "DEL",
    "\xa0": "NBSP",
}
_ESCAPE_LIKE: Final = rf"<(?=U\+|(?:{'|'.join(_NAMES.values())})>)"
_TOKEN: Final = re.compile(rf"(?P<word>\w+)|(?P<spaces> +)|(?P<like>{_ESCAPE_LIKE})|.", re.DOTALL)
_LATIN: Final = (
    (0x00C0, 0x017F),
    (0x01A0, 0x01A1),
    (0x01AF, 0x01B0),
    (0x0218, 0x021B),
    (0x1E00, 0x1EFF),
)
_RANGES: Final = (
    *_LATIN,
    (0x00A1, 0x00BF),
    (0x0370, 0x04FF),  # Greek, Cyrillic
    (0x10D0, 0x10FF),  # Georgian
    (0x2013, 0x2014),  # dashes; quotation marks look like those of a shell
    (0x2020, 0x2022),
    (0x2026, 0x2026),
    (0x20A0, 0x20BF),  # currencies
    (0x2190, 0x22FF),  # arrows, mathematics
    (0x2500, 0x25FF),  # box drawing, shapes
    (0x2713, 0x2718),  # check marks
    (0x3001, 0x3011),
    (0x3041, 0x3096),
    (0x30A1, 0x30FC),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F5FF),
    (0x1F600, 0x1F64F),
    (0x1F680, 0x1F6C5),
    (0x1F900, 0x1F9FF),
)
_CATEGORIES: Final = frozenset(
    {"Lu", "Ll", "Lo", "Lm", "Nd", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "So"}
)
_DIRECTIONS: Final = frozenset({"L", "EN", "ES", "ET", "CS", "ON"})
# Signs within the ranges that look like an ASCII character.
_ASCII_LIKE: Final = frozenset(
    "\u00a6\u00b7\u00b8\u2212\u2215\u2216\u2217\u2218\u2219\u2223\u2227\u2228\u2236\u223c\u22c1\u22c5\u2571"
    "\u2572"
)
# Greek and Cyrillic letters that look like Latin ones; a word of only these is suspicious.
_LATIN_LIKE: Final = frozenset(
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧΪΫανικορτυχϲϳϹϺϜϝϒАВЕЅІЇЈКМНОРСТУХЬаесіїјорѕухѵһҺүҮԁԌԛԜԝԚӀӏҽ"
)


def visible(text: str, *, longest_run: int = LONGEST_RUN, ascii_only: bool = False) -> str:
    """Return a unique form of the text in visible characters."""
    if text.isascii() and text.isprintable() and "<" not in text:
        long = " " * (longest_run + 1) in text
        if not long and not text.endswith(" "):
            return text
    return "".join(atoms(text, longest_run=longest_run, ascii_only=ascii_only))


def atoms(text: str, *, longest_run: int = LONGEST_RUN, ascii_only: bool = False) -> Iterator[str]:
    """Yield the parts of ``visible``: single characters, and escapes that must not be split."""
    for token in _TOKEN.finditer(text):
        part = token.group()
        if token.lastgroup == "word":
            yield from part if part.isascii() else _word(part, ascii_only=ascii_only)
        elif token.lastgroup == "spaces":
            if token.end() == len(text) or len(part) > longest_run:
                yield "<U+0020>" if len(part) == 1 else f"<U+0020 x{len(part)}>"
            else:
                yield from part
        elif token.lastgroup == "like" or not _shows(part, ascii_only=ascii_only):
            yield escape(part)
        else:
            yield part


def escape(char: str) -> str:
    """Return the escape of a character that is not shown as itself."""
    name = _NAMES.get(char)
    return f"<{name}>" if name else f"<U+{ord(char):04X}>"


def _word(word: str, *, ascii_only: bool) -> Iterator[str]:
    """Yield a word with non-ASCII letters; escape those that look like Latin letters."""
    foreign = {char for char in word if not char.isascii() and not _is_within(char, _LATIN)}
    narrow = {char for char in foreign if unicodedata.east_asian_width(char) not in {"W", "F"}}
    mixed = any(char.isalpha() for char in word if char not in foreign)
    hidden = narrow if mixed or narrow <= _LATIN_LIKE else frozenset()
    for char in word:
        shows = char not in hidden and _shows(char, ascii_only=ascii_only)
        yield char if shows else escape(char)


def _shows(char: str, *, ascii_only: bool) -> bool:
    """Return whether a character is visible and cannot be confused with another."""
    if char.isascii():
        return " " <= char <= "~"
    return (
        not ascii_only
        and _is_within(char, _RANGES)
        and char not in _ASCII_LIKE
        and unicodedata.category(char) in _CATEGORIES
        and unicodedata.bidirectional(char) in _DIRECTIONS
        and (char == "…" or unicodedata.normalize("NFKC", char) == char)
    )


def _is_within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)


_JOINERS: Final = "\u200c\u200d"
_POWERLESS: Final = re.compile(r"[ -~\n\t]*")


class SafeText:
    """Removes control over the terminal from a text that arrives in pieces."""

    __slots__ = ("_return",)

    def __init__(self) -> None:
        self._return = False

    def feed(self, piece: str) -> str:
        """Return a printable piece; a final carriage return is held back for the next piece."""
        if self._return:
            piece = "\r" + piece
        self._return = piece.endswith("\r")
        return harmless(piece[:-1] if self._return else piece)

    def finish(self) -> str:
        """Return the text that was held back."""
        held, self._return = self._return, False
        return escape("\r") if held else ""


def harmless(text: str) -> str:
    """Return a text that cannot move the cursor, hide text or reverse its direction."""
    if _POWERLESS.fullmatch(text):
        return text
    return "".join(escape(char) if _powerful(char) else char for char in text.replace("\r\n", "\n"))


def _powerful(char: str) -> bool:
    if char in "\n\t" or char in _JOINERS:
        return False
    hidden = unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return hidden or 0xE0000 <= ord(char) <= 0xE0FFF


LEAST_WIDTH: Final = 24
FIRST_ROW_PREFIX: Final = "| "
"""The prefix of the first row of every untrusted line."""
NEXT_ROW_PREFIX: Final = "|>"
"""The prefix of every row that continues the line above."""


def break_rows(
    text: str, width: int, *, first: str = FIRST_ROW_PREFIX, ascii_only: bool = False
) -> Iterator[str]:
    """Yield the visible form of a line in rows of less than ``width`` cells.

    A row that is continued does not end in a space, which would be invisible.
    """
    width = max(width, LEAST_WIDTH) - 1
    run = min(LONGEST_RUN, (width - max(len(first), len(NEXT_ROW_PREFIX))) // 2)
    row: list[str] = []
    prefix, used = first, len(first)
    for atom in atoms(text, longest_run=run, ascii_only=ascii_only):
        if (row or prefix is first) and used + _cells(atom) > width:
            kept = _without_spaces(row)
            yield prefix + "".join(row[:kept])
            row = row[kept:]
            prefix, used = NEXT_ROW_PREFIX, len(NEXT_ROW_PREFIX) + len(row)
        row.append(atom)
        used += _cells(atom)
    yield prefix + "".join(row)


def _without_spaces(row: list[str]) -> int:
    """Return the number of atoms in a row without the spaces at its end, at least one."""
    kept = len(row)
    while kept > 1 and row[kept - 1] == " ":
        kept -= 1
    return kept


def _cells(atom: str) -> int:
    """Return the largest number of cells of an atom; terminals disagree about non-ASCII."""
    return len(atom) if atom.isascii() else 2
