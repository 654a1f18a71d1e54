"""``OptionTable``: which options a program takes, in a short notation.

``-a --all`` take no value; ``-n=<number> --width=<text>`` need one; ``--color[=<text>]`` may have
one attached; ``--sort=name|size`` takes one of the values; ``-<number>`` is ``-5``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Role: TypeAlias = Literal[
    "text", "number", "format", "pretty", "name", "argument", "revision", "path", "write"
]
Style: TypeAlias = Literal["gnu", "single"]

ROLES: Final[tuple[Role, ...]] = (
    "text",
    "number",
    "format",
    "pretty",
    "name",
    "argument",
    "revision",
    "path",
    "write",
)
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
