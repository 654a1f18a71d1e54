"""The lines on which the keys of a TOML text stand; the parser of the library does not tell."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.kernel.document import DocumentPlace

_BLANK: Final = re.compile(r"[ \t]*")
_EMPTY: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS: Final = (
    ('"""', re.compile(r'"""(?:\\.|[^\\])*?"""(?!")', re.DOTALL)),
    ("'''", re.compile(r"'''.*?'''(?!')", re.DOTALL)),
    ('"', re.compile(r'"(?:\\.|[^"\\\n])*"')),
    ("'", re.compile(r"'[^'\n]*'")),
)
_SCALAR: Final = re.compile(r"[^,=\[\]{}#\n\"']+")


def lines_of(text: str) -> dict[DocumentPlace, int]:
    """Return the line of each key, table and item of a list, counted from 1.

    The text should be valid. Where it is not what it should be, the search ends: a line that is not
    certain is not told.
    """
    scan = _Scan(text)
    with suppress(_Lost, RecursionError):
        scan.document()
    return scan.found


class _Lost(Exception):
    """The text is not what TOML would be here."""


class _Scan:
    """One walk through a text, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[DocumentPlace, int] = {}
        self._counted = 0
        self._line = 1
        self._lengths: dict[DocumentPlace, int] = {}
        """How many tables each array of tables has so far."""

    def document(self) -> None:
        table: DocumentPlace = ()
        while True:
            self._match(_EMPTY)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._match(_BLANK)
            if self.text[self.at : self.at + 1] not in {"", "\n", "\r", "#"}:
                raise _Lost

    def _header(self) -> DocumentPlace:
        line = self._here()
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        names = self._names()
        self._expect("]]" if array else "]")
        place: DocumentPlace = ()
        for name in names[:-1]:
            place = self._last((*place, name), line)
        place = (*place, names[-1])
        if not array:
            return self._last(place, line)
        self.found.setdefault(place, line)
        index = self._lengths.get(place, 0)
        self._lengths[place] = index + 1
        self.found[*place, index] = line
        return (*place, index)

    def _last(self, place: DocumentPlace, line: int) -> DocumentPlace:
        """Note a table; of an array of tables, it is the last one that is meant."""
        self.found.setdefault(place, line)
        length = self._lengths.get(place)
        return place if length is None else (*place, length - 1)

    def _pair(self, table: DocumentPlace) -> None:
        line = self._here()
        place = table
        for name in self._names():
            place = (*place, name)
            self.found.setdefault(place, line)
        self._expect("=")
        self._value(place)

    def _value(self, place: DocumentPlace) -> None:
        self._match(_BLANK)
        opening = self.text[self.at : self.at + 1]
        if opening in {"[", "{"}:
            self._items(place, "]" if opening == "[" else "}")
        elif not self._string():
            self._match(_SCALAR)

    def _items(self, place: DocumentPlace, closing: str) -> None:
        """Walk the items of an array or the pairs of an inline table."""
        self.at += 1
        index = 0
        while True:
            self._match(_EMPTY)
            if self.text.startswith(closing, self.at):
                self.at += 1
                return
            if closing == "}":
                self._pair(place)
            else:
                self.found[*place, index] = self._here()
                self._value((*place, index))
                index += 1
            self._match(_EMPTY)
            if not self.text.startswith(closing, self.at):
                self._expect(",")

    def _names(self) -> list[str]:
        names = []
        while True:
            self._match(_BLANK)
            bare = _BARE.match(self.text, self.at)
            if bare:
                self.at = bare.end()
                names.append(bare[0])
            else:
                names.append(self._quoted_name())
            self._match(_BLANK)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _quoted_name(self) -> str:
        import tomllib

        begin = self.at
        if self.text.startswith(('"""', "'''"), begin) or not self._string():
            raise _Lost
        try:
            name = tomllib.loads(f"name = {self.text[begin : self.at]}")["name"]
        except ValueError as problem:
            raise _Lost from problem
        return str(name)

    def _string(self) -> bool:
        for quote, pattern in _STRINGS:
            if self.text.startswith(quote, self.at):
                self._match(pattern)
                return True
        return False

    def _here(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def _match(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if not found:
            raise _Lost
        self.at = found.end()

    def _expect(self, token: str) -> None:
        self._match(_BLANK)
        if not self.text.startswith(token, self.at):
            raise _Lost
        self.at += len(token)
