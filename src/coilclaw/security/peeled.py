"""``Peeled``: what a program would run in turn, and what it adds of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.security.commandclass import unknown
from coilclaw.security.shellscript import Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.commandclass import Classed

Source: TypeAlias = Literal["nothing", "pipe", "file", "text"]

SYSTEM_DIRECTORIES: Final = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
)
_VERSION: Final = re.compile(r"(?<=[A-Za-z])-?[0-9]+(?:\.[0-9]+)*\Z")


@dataclass(frozen=True, slots=True)
class Input:
    """Where a command's input comes from; ``text`` when its words can be seen."""

    source: Source = "nothing"
    text: Word | None = None


@dataclass(frozen=True, slots=True)
class Peeled:
    """The layers below a program; every one of them is judged like a command of its own."""

    floor: Classed
    """What the program itself makes of everything it runs."""
    commands: tuple[tuple[Word, ...], ...] = ()
    scripts: tuple[Word, ...] = ()
    """Texts for a shell."""
    codes: tuple[Word, ...] = ()
    """Programs in another language."""
    assignments: tuple[tuple[str, Word], ...] = ()
    directory: Word | None = None
    """Where the commands are run."""
    itself: bool = False
    """Whether the program's own words are judged by the rules as well."""
    passes_input: bool = True
    """Whether the command below reads the input of this one."""


def unclear(problem: str) -> Peeled:
    """Return the answer when what would run cannot be told."""
    return Peeled(unknown("command.wrapper", problem))


def program_name(text: str) -> str:
    """Return the name by which a program is known, wherever it lies."""
    return text.rpartition("/")[2]


def family(name: str) -> str:
    """Return a program's name without its version: ``python3.11`` is ``python``."""
    plain = name.casefold().removesuffix(".exe")
    return _VERSION.sub("", plain)


def is_bare(text: str) -> bool:
    """Whether a name is looked up where only the system's programs lie."""
    directory, slash, name = text.rpartition("/")
    return bool(name) and (not slash or directory in SYSTEM_DIRECTORIES)


def joined(words: Sequence[Word]) -> Word:
    """Put words together as a shell would be given them; one unknown word makes all unknown."""
    texts = [word.text for word in words]
    text = None if any(each is None for each in texts) else " ".join(t for t in texts if t)
    return Word(" ".join(word.raw for word in words), text)
