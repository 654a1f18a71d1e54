"""A command line, understood: every simple command in it, wherever it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Word:
    """One word. ``text`` is its value after quote removal, or ``None`` if only running tells."""

    raw: str
    text: str | None
    globs: bool = False
    """Unquoted ``*``, ``?``, ``[…]``, a leading ``~``, or braces: it may become other words."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """One redirection. A here-document or here-string has no target; its text is data."""

    operator: str
    """As written: ``<``, ``>``, ``>>``, ``>|``, ``<>``, ``&>``, ``<<``, ``<<<``, ``>&``…"""
    descriptor: str | None
    target: Word | None
    writes: bool
    body: Word | None = None
    """The text of a here-document or here-string."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command, with everything that decides what it does."""

    raw: str
    words: tuple[Word, ...]
    """The command's name first; empty for a bare assignment or redirection."""
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    pipeline: int = 0
    """Commands with the same number feed each other, in order."""
    piped_into: bool = False
    """Whether its input comes from the command before it."""
    background: bool = False
    nested: bool = False
    """Whether it stands inside a command or process substitution."""
    compound: tuple[str, ...] = ()
    """The constructs around it, outermost first: ``subshell``, ``group``, ``if``, ``for``…"""


@dataclass(frozen=True, slots=True)
class Script:
    """All simple commands of a command line, in the order in which they stand."""

    commands: tuple[Simple, ...]


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A command line that holds something nobody here can say the meaning of."""

    reason: str
    excerpt: str
    rule: Literal["shell.syntax", "shell.construct", "shell.bound", "shell.text"]


Reading: TypeAlias = Script | NotUnderstood
