"""The parts of a command line as they nest; ``start`` and ``end`` are places in its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Mark:
    """A thing that was seen at a place; two readings of one text must see the same."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Nested:
    """A command or process substitution."""

    opener: Literal["$(", "`", "<(", ">("]
    body: Commands


@dataclass(frozen=True, slots=True)
class Token:
    """One word, with the substitutions that stand in it."""

    start: int
    end: int
    text: str | None
    globs: bool = False
    nested: tuple[Nested, ...] = ()


@dataclass(slots=True)
class HereDocument:
    """A here-document; its body is known only when the line that announces it has ended."""

    start: int
    delimiter: str
    literal: bool
    strips_tabs: bool
    body: Token | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection; of ``<<`` and ``<<<``, the target is not a file."""

    start: int
    end: int
    operator: str
    descriptor: str | None
    target: Token | HereDocument


@dataclass(frozen=True, slots=True)
class SimpleNode:
    """A simple command, or a ``[[ ]]`` or ``(( ))`` with its parts as words."""

    start: int
    end: int
    assignments: tuple[tuple[str, Token], ...] = ()
    words: tuple[Token, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class CompoundNode:
    """A construct around commands."""

    kind: str
    start: int
    end: int
    bodies: tuple[Commands, ...]
    sets: SimpleNode | None = None
    """The variable of a ``for`` with every value that it takes."""
    words: tuple[Token, ...] = ()
    """The subject and the patterns of a ``case``."""
    redirects: tuple[Redirect, ...] = ()


Element: TypeAlias = SimpleNode | CompoundNode


@dataclass(frozen=True, slots=True)
class Entry:
    """The pipelines that ``&&`` and ``||`` join."""

    pipelines: tuple[tuple[Element, ...], ...]
    background: bool


@dataclass(frozen=True, slots=True)
class Commands:
    """Entries that ``;``, ``&`` and newlines separate."""

    entries: tuple[Entry, ...]
