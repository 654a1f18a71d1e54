"""A problem of the configuration: which key, where, what is wrong, and what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

Place: TypeAlias = "tuple[str | int, ...]"
"""A key as its parts, from the outside in; an item of a list is its index."""

_SHOWN: Final = 64
"""Characters of a name that are shown."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; ``key`` is empty when it is the file itself."""

    key: str
    line: int | None
    message: str
    allowed: tuple[str, ...] = ()

    def sentence(self, file: str) -> str:
        """Say it on one line, beginning with the file's name as editors understand it."""
        where = file if self.line is None else f"{file}:{self.line}"
        said = f"{self.key}: {self.message}" if self.key else self.message
        choices = f" (allowed: {', '.join(self.allowed)})" if self.allowed else ""
        return f"{where}: {said}{choices}"


def invalid(file: str, problems: tuple[Problem, ...], hint: str | None = None) -> UsageError:
    """Make the error that says all of them."""
    count = "a problem: " if len(problems) == 1 else f"{len(problems)} problems:\n"
    said = "\n".join(problem.sentence(file) for problem in problems)
    return UsageError(
        f"the configuration has {count}{said}",
        rule="config.invalid",
        hint=hint or "coilclaw config validate lists them one by one",
    )


def dotted(place: Place) -> str:
    """Write a place as a person would: ``security.forbidden_paths[2]``."""
    said = ""
    for part in place:
        if isinstance(part, int):
            said += f"[{part}]"
        else:
            short = part if len(part) <= _SHOWN else f"{part[:_SHOWN]}…"
            said += f"{'.' if said else ''}{short if is_bare(part) else _quoted(short)}"
    return said


def is_bare(name: str) -> bool:
    """Tell whether a name can stand in TOML without quotes."""
    return name != "" and name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return what was probably meant, if anything is near."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def _quoted(name: str) -> str:
    import json

    return json.dumps(name, ensure_ascii=not name.isprintable())
