"""Reading a TOML table field by field, with everything that is wrong with it collected."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from coilclaw.domain.messages import Json

Place: TypeAlias = "tuple[str | int, ...]"
Lines: TypeAlias = "Callable[[str], Mapping[Place, int]]"
"""Finds the lines on which the keys of a TOML text stand."""

MAX_JSON_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``key`` is dotted, and empty for the whole."""

    key: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        said = f"{self.key}: {self.message}" if self.key else self.message
        return said if self.line is None else f"line {self.line}: {said}"


def located(problems: Iterable[Problem], lines: Mapping[Place, int]) -> tuple[Problem, ...]:
    """Give each problem the line of its key, or of the table that lacks it, in their order."""
    found = []
    for problem in problems:
        place = _place(problem.key)
        while place and place not in lines:
            place = place[:-1]
        found.append(replace(problem, line=problem.line or lines.get(place)))
    return tuple(sorted(found, key=lambda one: one.line or 0))


def _place(key: str) -> Place:
    """Return the parts of a dotted key; an index is a number."""
    parts = re.findall(r"[^.\[\]]+", key)
    return tuple(int(part) if part.isdigit() else part for part in parts)


class Fields:
    """A table; whatever is asked of it and is not there, or is wrong, becomes a problem."""

    def __init__(self, table: Mapping[str, object], place: str, problems: list[Problem]) -> None:
        self.place = place
        self._table = table
        self._problems = problems
        self._known: list[str] = []

    def problem(self, key: str, message: str) -> None:
        """Note what is wrong with a key."""
        self._problems.append(Problem(self.key(key), message))

    def key(self, name: str) -> str:
        """Return the dotted name of a key of this table."""
        return f"{self.place}.{name}" if self.place else name

    def take(self, name: str, *, needed: bool = False) -> object:
        """Return what stands at a key as it is; ``None`` is nothing."""
        self._known.append(name)
        value = self._table.get(name)
        if value is None and needed:
            self.problem(name, "is missing")
        return value

    def text(
        self,
        name: str,
        *,
        most: int,
        form: re.Pattern[str] | None = None,
        rule: str = "",
        needed: bool = True,
    ) -> str:
        """Return a text that is not empty; ``rule`` says in words what ``form`` wants."""
        value = self.take(name, needed=needed)
        if value is None:
            return ""
        if not isinstance(value, str) or not value.strip():
            self.problem(name, "is no text, or empty")
        elif len(value) > most:
            self.problem(name, f"is longer than {most} characters")
        elif form is not None and not form.fullmatch(value):
            self.problem(name, f"{shown(value)} is not {rule}")
        else:
            return value
        return ""

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(name, "is neither true nor false")
            return default
        return value

    def number(self, name: str, most: float) -> float | None:
        """Return a number above zero, or ``None`` where there is none."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            self.problem(name, f"is no number above 0 and up to {most:,}")
            return None
        return float(value)

    def texts(self, name: str, *, most: int, longest: int) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.take(name)
        if value is None:
            return ()
        good = isinstance(value, list) and len(value) <= most
        if not good or not isinstance(value, list):
            self.problem(name, f"is no list of at most {most} texts")
            return ()
        for index, item in enumerate(value):
            if not isinstance(item, str) or not 0 < len(item) <= longest:
                self.problem(f"{name}[{index}]", f"is no text of 1 to {longest} characters")
                return ()
        return tuple(value)

    def object(self, name: str, *, needed: bool) -> dict[str, Json] | None:
        """Return a table that could as well be JSON."""
        value = self.take(name, needed=needed)
        if value is None:
            return None
        found = as_json(value)
        if not isinstance(found, dict):
            self.problem(name, "is no table of what JSON can say")
            return None
        return found

    def table(self, name: str) -> Fields:
        """Return a table below this one, empty if there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.problem(name, "is no table")
            value = None
        return Fields(value or {}, self.key(name), self._problems)

    def tables(self, name: str, *, most: int, needed: bool) -> tuple[Fields, ...]:
        """Return the tables of a list."""
        value = self.take(name, needed=needed)
        if value is None:
            return ()
        if not isinstance(value, list) or not 0 < len(value) <= most:
            self.problem(name, f"is no list of 1 to {most} tables")
            return ()
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                self.problem(f"{name}[{index}]", "is no table")
                return ()
        return tuple(
            Fields(item, self.key(f"{name}[{index}]"), self._problems)
            for index, item in enumerate(value)
        )

    def close(self) -> None:
        """Note every key that nobody asked for."""
        for name in self._table:
            if name in self._known:
                continue
            from difflib import get_close_matches

            near = get_close_matches(name.lower(), self._known, n=1, cutoff=0.6)
            meant = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(self._known)}"
            self.problem(shown(name)[1:-1], f"there is no such key{meant}")


class NoJson(Exception):
    """A value of TOML that JSON has not."""


def as_json(value: object) -> Json:
    """Return a value if JSON can say it, else ``None``, which TOML cannot say."""
    try:
        return _json(value, MAX_JSON_DEPTH)
    except NoJson:
        return None


def _json(value: object, depth: int) -> Json:
    if depth == 0:
        raise NoJson
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [_json(item, depth - 1) for item in value]
    if isinstance(value, dict):
        return {str(name): _json(item, depth - 1) for name, item in value.items()}
    raise NoJson
