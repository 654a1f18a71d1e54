"""The classes of a command, ordered by strictness, and what puts a command into one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.kernel import Risk
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.policy.judgement import PolicyFinding


KindName: TypeAlias = Literal["harmless", "allowed", "contained", "other", "unknown", "forbidden"]


class CommandClass(IntEnum):
    """The strictest of several is their maximum; the last two are denied at every level."""

    HARMLESS = 0
    ALLOWED = 1
    CONTAINED = 2
    OTHER = 3
    UNKNOWN = 4
    FORBIDDEN = 5


_RISKS: Final = {
    CommandClass.HARMLESS: Risk.LOW,
    CommandClass.ALLOWED: Risk.MEDIUM,
    CommandClass.CONTAINED: Risk.MEDIUM,
}
CONTAINED_RULE: Final = "allow.contained"
_CONTAINABLE: Final = frozenset(
    {
        *("command.assignment", "command.carried", "command.environment", "command.git"),
        *("command.interpreter", "command.other", "command.path", "command.shell"),
        *("command.wrapper", "path.adrift", "path.covers", "path.pattern", "path.special"),
        *("redirect.dynamic", "shell.background", "shell.eval", "shell.source", "shell.stdin"),
        *("shell.trap",),
    }
)
"""Reasons for being none of the listed commands that a sandbox without network answers: whatever
then runs reaches the workspace alone."""


@dataclass(frozen=True, slots=True)
class Classed:
    """One reason for a class; ``network`` only when the rule that allows it says so."""

    level: CommandClass
    rule: str
    reason: str
    network: bool = False
    asks: bool = False
    """Whether a person is asked even where the level would let it run."""

    @property
    def kind(self) -> KindName:
        return cast("KindName", self.level.name.lower())

    @property
    def risk(self) -> Risk:
        return _RISKS.get(self.level, Risk.HIGH)

    @property
    def forbidden(self) -> bool:
        return self.level >= CommandClass.UNKNOWN

    @property
    def containable(self) -> bool:
        """Whether a sandbox is an answer to what speaks against the command."""
        return self.level is CommandClass.OTHER and self.rule in _CONTAINABLE


def harmless(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.HARMLESS, rule, reason)


def make_allowed(rule: str, reason: str, *, network: bool = False) -> Classed:
    return Classed(CommandClass.ALLOWED, rule, reason, network)


def other(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.OTHER, rule, reason)


def contain(found: Classed) -> Classed:
    """Return what the rule ``allow.contained`` makes of a command, if it covers it."""
    if not found.containable:
        return found
    reason = f"{found.reason} [{found.rule}]; the sandbox holds it to the workspace"
    return Classed(CommandClass.CONTAINED, CONTAINED_RULE, reason)


def unknown(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.UNKNOWN, rule, reason)


def forbidden(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.FORBIDDEN, rule, reason)


def of_path(finding: PolicyFinding) -> Classed:
    """Return what a finding about a path makes of the command that names it."""
    if finding.forbidden:
        return forbidden(finding.rule, finding.reason)
    level = {Risk.LOW: CommandClass.HARMLESS, Risk.MEDIUM: CommandClass.ALLOWED}
    found = Classed(level.get(finding.risk, CommandClass.OTHER), finding.rule, finding.reason)
    return replace(found, asks=finding.asks)


def strictest(found: Iterable[Classed]) -> Classed:
    """Return the first of the strictest, what destroys before all else; there must be one."""
    return max(
        found,
        key=lambda each: (each.level, not each.containable, each.rule.startswith("destructive.")),
    )


Source: TypeAlias = Literal["nothing", "pipe", "file", "text"]

SYSTEM_DIRECTORIES: Final = frozenset(
    {"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
)
_VERSION: Final = re.compile(r"(?<=[A-Za-z])-?[0-9]+(?:\.[0-9]+)*\Z")


@dataclass(frozen=True, slots=True)
class CommandInput:
    """Where a command's input comes from; ``text`` when its words can be seen."""

    source: Source = "nothing"
    text: Word | None = None


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
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


def refuse_unclear(problem: str) -> UnwrappedCommand:
    """Return the answer when what would run cannot be told."""
    return UnwrappedCommand(unknown("command.wrapper", problem))


def program_name(text: str) -> str:
    """Return the name by which a program is known, wherever it lies."""
    return text.rpartition("/")[2]


def family_name(name: str) -> str:
    """Return a program's name without its version: ``python3.11`` is ``python``."""
    plain = name.casefold().removesuffix(".exe")
    return _VERSION.sub("", plain)


def is_bare(text: str) -> bool:
    """Whether a name is looked up where only the system's programs lie."""
    directory, slash, name = text.rpartition("/")
    return bool(name) and (not slash or directory in SYSTEM_DIRECTORIES)


def join_words(words: Sequence[Word]) -> Word:
    """Put words together as a shell would be given them; one unknown word makes all unknown."""
    texts = [word.text for word in words]
    text = None if any(each is None for each in texts) else " ".join(t for t in texts if t)
    return Word(" ".join(word.raw for word in words), text)
