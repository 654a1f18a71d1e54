"""Read the words of a program against its option table, as the program itself would.

Abbreviated long options, clustered short ones, attached values and ``--`` are resolved. Reading
goes on after a problem, so that the operands are known even of a line that is not permitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.security.shellscript import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.optiontable import Option, OptionTable

_GLOB: Final = frozenset("*?[{~")


@dataclass(frozen=True, slots=True)
class Given:
    """An option that stands on a line, with its value."""

    option: Option
    value: Word | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A word that is no option; ``literal`` once ``--`` has made sure of that."""

    word: Word
    literal: bool = False


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The words of one program, told apart."""

    given: tuple[Given, ...]
    operands: tuple[Operand, ...]
    problems: tuple[str, ...] = ()
    """Sentences about what the table does not permit, in the order of the words."""

    def has(self, *names: str) -> bool:
        return any(each.option.name in names for each in self.given)

    def values(self, *names: str) -> tuple[Word, ...]:
        return tuple(
            each.value
            for each in self.given
            if each.option.name in names and each.value is not None
        )


def read_line(words: Sequence[Word], table: OptionTable, *, stop: bool = False) -> CommandLine:
    """Read the words after a program's name; with ``stop`` the first operand ends the options."""
    return _Reader(words, table, stop=stop).read()


def piece(word: Word, text: str) -> Word:
    """Return a part of a word as a word of its own."""
    return Word(raw=text, text=text, globs=word.globs and not _GLOB.isdisjoint(text))


class _Reader:
    def __init__(self, words: Sequence[Word], table: OptionTable, *, stop: bool) -> None:
        self._words = words
        self._table = table
        self._stop = stop
        self._next = 0
        self._given: list[Given] = []
        self._operands: list[Operand] = []
        self._problems: list[str] = []

    def read(self) -> CommandLine:
        while self._next < len(self._words):
            word = self._words[self._next]
            self._next += 1
            if word.text == "--":
                self._rest(literal=True)
            elif word.text is None or word.text == "-" or not word.text.startswith("-"):
                self._operands.append(Operand(word))
                if self._stop:
                    self._rest(literal=False)
            elif self._table.style == "single":
                self._single(word, word.text)
            elif word.text.startswith("--"):
                self._long(word, word.text)
            else:
                self._cluster(word, word.text)
        return CommandLine(tuple(self._given), tuple(self._operands), tuple(self._problems))

    def _rest(self, *, literal: bool) -> None:
        self._operands += [Operand(word, literal=literal) for word in self._words[self._next :]]
        self._next = len(self._words)

    def _long(self, word: Word, text: str) -> None:
        name, equals, value = text.partition("=")
        options = self._table.long(name)
        if not options:
            self._problems.append(f"option {name} is not in the table")
        elif len(options) > 1:
            meanings = ", ".join(option.name for option in options[:4])
            self._problems.append(f"option {name} can mean {meanings}")
        elif word.globs and not _GLOB.isdisjoint(name):
            self._problems.append(f"option {name} holds a pattern")
        else:
            self._take(options[0], piece(word, value) if equals else None)

    def _single(self, word: Word, text: str) -> None:
        """Options of the form ``-name``, ``-name=value`` and ``-Xvalue``; nothing is clustered."""
        name, equals, value = text.partition("=")
        shorter = "-" + name.lstrip("-")
        for options in (self._table.long(name), self._table.long(shorter)):
            if options:
                self._take(options[0], piece(word, value) if equals else None)
                return
        option = self._table.short(text[1])
        if option is not None and option.role is not None and len(text) > 2:
            self._take(option, piece(word, text[2:]))
            return
        self._problems.append(f"option {name} is not in the table")

    def _cluster(self, word: Word, text: str) -> None:
        if self._table.numbers and text[1:].isdecimal():
            return
        for index in range(1, len(text)):
            letter, rest = text[index], text[index + 1 :]
            option = self._table.short(letter)
            if word.globs and letter in _GLOB:
                self._problems.append(f"option {text} holds a pattern")
                return
            if option is None:
                if letter.isdecimal() and self._table.numbers:
                    continue
                self._problems.append(f"option -{letter} is not in the table")
                return
            if option.role is not None:
                self._take(option, piece(word, rest) if rest else None)
                return
            self._take(option, None)

    def _take(self, option: Option, value: Word | None) -> None:
        if option.role is None and value is not None:
            self._problems.append(f"option {option.name} takes no value")
        if option.role is not None and value is None and not option.optional:
            if self._next >= len(self._words):
                self._problems.append(f"option {option.name} lacks its value")
            else:
                value = self._words[self._next]
                self._next += 1
                if value.globs:
                    self._problems.append(
                        f"the value of {option.name} is an unquoted pattern, which may become "
                        "other options"
                    )
        if option.refused:
            self._problems.append(f"option {option.name} is not permitted")
        elif option.choices and value is not None and value.text not in option.choices:
            self._problems.append(
                f"option {option.name} is permitted with {' or '.join(option.choices)} only"
            )
        self._given.append(Given(option, value))
