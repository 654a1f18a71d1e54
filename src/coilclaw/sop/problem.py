"""A problem of a SOP: where it stands and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Place: TypeAlias = "tuple[str | int, ...]"
"""A key as its parts, from the outside in; an item of a list is its index."""

Lines: TypeAlias = "Callable[[str], Mapping[Place, int]]"
"""Finds the lines on which the keys of a TOML text stand."""

_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``key`` is empty when it is the file itself."""

    key: str
    line: int | None
    message: str

    def sentence(self, file: str) -> str:
        """Say it on one line, beginning with the file's name as editors understand it."""
        where = file if self.line is None else f"{file}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Noted:
    """A problem before its line is known."""

    place: Place
    message: str


def located(noted: Iterable[Noted], lines: Mapping[Place, int]) -> tuple[Problem, ...]:
    """Give each problem its line, and put them in the order of the file."""
    found = []
    for item in noted:
        place = item.place
        while place and place not in lines:
            place = place[:-1]  # what is missing stands in its table
        found.append(Problem(dotted(item.place), lines.get(place), item.message))
    return tuple(sorted(found, key=lambda problem: problem.line or 0))


def dotted(place: Place) -> str:
    """Write a place as a person would."""
    said = ""
    for part in place:
        if isinstance(part, int):
            said += f"[{part}]"
        else:
            short = part if len(part) <= _SHOWN else f"{part[:_SHOWN]}…"
            plain = short.isprintable() and " " not in short
            said += f"{'.' if said else ''}{short if plain else ascii(short)}"
    return said


def closest(word: str, known: Iterable[str]) -> str:
    """Return what was probably meant, as the end of a sentence."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""


def invalid(name: str, file: str, problems: tuple[Problem, ...]) -> UsageError:
    """Make the error that says all of them."""
    count = "a problem: " if len(problems) == 1 else f"{len(problems)} problems:\n"
    said = "\n".join(problem.sentence(file) for problem in problems)
    return UsageError(
        f"the SOP {name} has {count}{said}",
        rule="sop.invalid",
        hint=f"'coilclaw sop validate {name}' lists them one by one",
    )
