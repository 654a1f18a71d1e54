"""Read the words of a program against its option table, as the program itself would.

Abbreviated long options, clustered short ones, attached values and ``--`` are resolved. Reading
goes on after a problem, so that the operands are known even of a line that is not permitted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import UsageError
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


Role: TypeAlias = Literal[
    "text", "number", "format", "pretty", "name", "argument", "revision", "path", "write"
]
Style: TypeAlias = Literal["gnu", "single"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
_ROLES: Final[Mapping[str, Role]] = {role: role for role in ROLES}
NUMBER: Final = "-<number>"
_ITEM: Final = re.compile(
    r"(?P<name>--?[A-Za-z0-9?#@%+._-]+?)"
    r"(?:(?P<open>\[)?=(?:<(?P<role>[a-z]+)>|(?P<choices>[A-Za-z0-9._+|-]+))(?P<close>\])?)?"
)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as a table knows it."""

    name: str
    """With its dashes."""
    role: Role | None = None
    """What its value is; ``None`` when it takes none."""
    optional: bool = False
    """Whether the value may be missing; then it is always attached."""
    choices: tuple[str, ...] = ()
    refused: bool = False
    """Known, so that it is told apart from its neighbours, and not permitted."""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of one program, by name."""

    options: Mapping[str, Option]
    style: Style = "gnu"

    def long(self, name: str) -> tuple[Option, ...]:
        """Return what a long name, whole or abbreviated, can mean."""
        exact = self.options.get(name)
        if exact is not None:
            return (exact,)
        if self.style == "single":
            return ()
        return tuple(
            option
            for key, option in self.options.items()
            if key.startswith(name) and key.startswith("--")
        )

    def short(self, letter: str) -> Option | None:
        return self.options.get(f"-{letter}")

    @property
    def numbers(self) -> bool:
        """Whether ``-5`` is an option."""
        return NUMBER in self.options


@lru_cache(maxsize=256)
def option_table(permitted: str, refused: str = "", style: Style = "gnu") -> OptionTable:
    """Read the notation; ``UsageError`` names the item that is not of it."""
    options = {option.name: option for option in map(_option, permitted.split())}
    for option in map(_option, refused.split()):
        if option.name in options:
            raise UsageError(
                f"option {option.name} is both permitted and refused", rule="policy.option"
            )
        options[option.name] = replace(option, refused=True)
    return OptionTable(options, style)


def _option(item: str) -> Option:
    if item == NUMBER:
        return Option(NUMBER)
    found = _ITEM.fullmatch(item)
    if found is None or bool(found["open"]) != bool(found["close"]):
        raise UsageError(
            f"{item!r} is not an option of the notation",
            rule="policy.option",
            hint="write -a, --all, -n=<number>, --color[=<text>], --sort=name|size or -<number>",
        )
    role = found["role"]
    if role is not None and role not in _ROLES:
        raise UsageError(
            f"{item!r} has a value of an unknown kind",
            rule="policy.option",
            hint=f"the kinds are {', '.join(ROLES)}",
        )
    choices = tuple(found["choices"].split("|")) if found["choices"] else ()
    kind = _ROLES[role] if role else ("text" if choices else None)
    return Option(found["name"], kind, optional=bool(found["open"]), choices=choices)


_GLOB: Final = frozenset("*?[{~")


@dataclass(frozen=True, slots=True)
class Given:
    """An option that stands on a line, with its value."""

    option: Option
    value: Word | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A word that is not an option; ``literal`` once ``--`` has made sure of that."""

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


def option_values(words: Sequence[Word], options: Iterable[str]) -> Iterator[Word]:
    """Yield what may be the value of an option: attached, behind ``=``, or the next word.

    Long names may be abbreviated, and short ones stand anywhere in a cluster.
    """
    for option in options:
        for index, word in enumerate(words):
            text = word.text if word.text is not None else word.raw.partition("<(")[0]
            following = words[index + 1 : index + 2]
            key, equals, value = text.partition("=")
            long = option.startswith("--") and len(key) > 2 and option.startswith(key)
            if text == option or (long and not equals):
                yield from following
            elif long or (equals and key == option):
                yield piece(word, value or word.raw[len(key) + 1 :])
            elif len(option) == 2 and text[:1] == "-" and text[:2] != "--" and option[1] in text:
                rest = text[text.index(option[1]) + 1 :]
                yield from [piece(word, rest)] if rest else following


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
