"""What a tool call would touch, in words that policy can judge; and what stands at a path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable


class Decision(IntEnum):
    """Ordered by strictness, so that the strictest of several is their maximum."""

    ALLOW = 0
    ASK = 1
    DENY = 2

    def __str__(self) -> str:
        return self.name.lower()


class Risk(IntEnum):
    """How much harm a call can do."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of policy, with the rule and the reason a person can check."""

    decision: Decision
    risk: Risk
    rule: str
    reason: str

    @property
    def denied(self) -> bool:
        return self.decision is Decision.DENY


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads a file or a directory; the path is as the model gave it."""

    path: str


@dataclass(frozen=True, slots=True)
class Writes:
    """Creates, changes or deletes a file; the path is as the model gave it."""

    path: str


@dataclass(frozen=True, slots=True)
class Runs:
    """Starts programs: either a shell command line, or an argv without any shell."""

    command: str | None = None
    argv: tuple[str, ...] | None = None
    network: bool = False
    """Whether the model asks for the network."""


@dataclass(frozen=True, slots=True)
class Fetches:
    """Asks a server for something, without sending anything but the address."""

    url: str


@dataclass(frozen=True, slots=True)
class Consults:
    """Looks at something that is ours and harmless; silence about effects is never this."""

    what: Literal["clock", "memory", "user"]


@dataclass(frozen=True, slots=True)
class External:
    """Hands the call to a program or server that is not ours, trusted as far as the user says."""

    who: str
    """``plugin:NAME`` or ``mcp:SERVER``."""
    risk: Risk


Effect: TypeAlias = Reads | Writes | Runs | Fetches | Consults | External


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path given by a model leads, as absolute paths."""

    given: str
    lexical: str
    """``..`` and ``.`` removed, no link followed."""
    real: str | None
    """All links followed, as far as the path exists; ``None`` when that could not be told."""
    kind: Literal["file", "directory", "other", "missing"] = "missing"


Locate: TypeAlias = "Callable[[str], Place]"
"""Looks a path up, relative ones from the workspace; policy has this instead of a file system."""
