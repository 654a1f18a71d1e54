"""Reading a JSON document field by field, with every problem and its path."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Word = TypeVar("Word", bound=StrEnum)

MAX_DEPTH: Final = 128

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and the JSON path of the value it is wrong with."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class RepeatedKeys(dict[str, object]):
    """An object in which some key stands more than once; the last one counts."""

    __slots__ = ("repeated",)

    def __init__(self, pairs: list[tuple[str, object]], repeated: frozenset[str]) -> None:
        super().__init__(pairs)
        self.repeated = repeated


def below(path: str, key: str | int) -> str:
    """Return the path of a member or an item."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _NAME.fullmatch(key) else f"{path}[{json.dumps(key)}]"


def decode(data: bytes) -> object:
    """Return the value of a JSON text; a text that has none is a ``ValueError``."""
    try:
        value = json.loads(
            data.decode("utf-8-sig"), object_pairs_hook=_object, parse_constant=_no_number
        )
    except UnicodeDecodeError as problem:
        raise ValueError(f"is not UTF-8 at byte {problem.start}") from problem
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise ValueError(f"is not JSON at {where}: {problem.msg}") from problem
    except RecursionError as problem:
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep") from problem
    if too_deep(value):
        raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    return value


def too_deep(value: object, limit: int = MAX_DEPTH) -> bool:
    """Tell whether a value is nested deeper than anything that has to be written out again."""
    level = [value]
    for _ in range(limit):
        inside: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        level = inside
        if not level:
            return False
    return True


def repetitions(value: object, path: str = "$") -> Iterator[Problem]:
    """Find the keys that stand twice in one object."""
    waiting = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, RepeatedKeys):
            for key in sorted(value.repeated):
                yield Problem(below(path, key), "this key stands more than once in its object")
        if isinstance(value, dict):
            waiting += [(item, below(path, key)) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(item, below(path, index)) for index, item in enumerate(value)]


class Fields:
    """One object of the document; what is wrong with a field is noted, and it counts as absent."""

    __slots__ = ("_problems", "_values", "path")

    def __init__(
        self, value: object, path: str, problems: list[Problem], known: frozenset[str]
    ) -> None:
        self.path = path
        self._problems = problems
        self._values: dict[str, object] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self.say(None, f"must be an object, not {kind(value)}")
        for key in self._values:
            if key not in known:
                self.say(key, f"is not a field here; known are {', '.join(sorted(known))}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def get(self, key: str, default: object) -> object:
        return self._values.get(key, default)

    def at(self, key: str) -> str:
        """Return the path of a field."""
        return below(self.path, key)

    def say(self, key: str | None, message: str) -> None:
        """Note a problem with a field, or with the object as a whole."""
        self._problems.append(Problem(self.path if key is None else self.at(key), message))

    def text(self, key: str, *, empty: bool = True) -> str | None:
        value = self._values.get(key)
        if key not in self._values or (isinstance(value, str) and (value or empty)):
            return value if isinstance(value, str) else None
        self.say(key, "must not be empty" if value == "" else f"must be text, not {kind(value)}")
        return None

    def flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if key in self._values and not isinstance(value, bool):
            self.say(key, f"must be true or false, not {kind(value)}")
        return value if isinstance(value, bool) else None

    def integer(self, key: str, low: int, high: int) -> int | None:
        value = self._values.get(key)
        if key not in self._values:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.say(key, f"must be a whole number from {low} to {high}, not {_figure(value)}")
        return None

    def number(self, key: str, low: float, high: float) -> float | None:
        if key not in self._values:
            return None
        return number(self._values[key], self.at(key), low, high, self._problems)

    def items(self, key: str, most: int) -> list[tuple[object, str]]:
        """Return the items of a list with their paths."""
        value = self._values.get(key)
        if key not in self._values:
            return []
        return items(value, self.at(key), most, self._problems)

    def one_or_many(self, key: str, most: int) -> list[tuple[object, str]]:
        """Return the items of a list, or the one thing that stands in its place."""
        if key in self._values and not isinstance(self._values[key], list):
            return [(self._values[key], self.at(key))]
        return self.items(key, most)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the members of an object that holds nothing but text."""
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            self.say(key, f"must be an object, not {kind(value)}")
            return ()
        for name, item in value.items():
            if not isinstance(item, str):
                path = below(self.at(key), name)
                self._problems.append(Problem(path, f"must be text, not {kind(item)}"))
        return tuple((name, item) for name, item in value.items() if isinstance(item, str))

    def word(self, key: str, words: type[Word]) -> Word | None:
        """Return one of a fixed set of words."""
        if key not in self._values:
            return None
        value = self._values[key]
        if isinstance(value, str) and value in set(words):
            return words(value)
        shown = repr(value) if isinstance(value, str) else kind(value)
        self.say(key, f"must be one of {', '.join(words)}, not {shown}")
        return None


def number(
    value: object, path: str, low: float, high: float, problems: list[Problem]
) -> float | None:
    """Return a number that lies between two others."""
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    wrong = f"must be a number from {low:g} to {high:g}, not {_figure(value)}"
    problems.append(Problem(path, wrong))
    return None


def items(value: object, path: str, most: int, problems: list[Problem]) -> list[tuple[object, str]]:
    """Return the items of a list with their paths."""
    if not isinstance(value, list):
        problems.append(Problem(path, f"must be a list, not {kind(value)}"))
        return []
    if len(value) > most:
        problems.append(Problem(path, f"holds {len(value)} items, and at most {most} are allowed"))
        return []
    return [(item, below(path, index)) for index, item in enumerate(value)]


def kind(value: object) -> str:
    """Name the JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return "a number"


def _figure(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else kind(value)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    seen = Counter(name for name, _ in pairs)
    return RepeatedKeys(pairs, frozenset(name for name, times in seen.items() if times > 1))


def _no_number(word: str) -> object:
    raise ValueError(f"is not JSON: {word} is no number there")
