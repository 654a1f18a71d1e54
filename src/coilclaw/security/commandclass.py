"""The classes of a command, ordered by strictness, and what puts a command into one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.domain.verdict import Risk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.security.finding import Finding

KindName: TypeAlias = Literal["harmless", "allowed", "contained", "other", "unknown", "forbidden"]


class CommandClass(IntEnum):
    """The strictest of several is their maximum; the last two are denied at every level."""

    HARMLESS = 0
    ALLOWED = 1
    CONTAINED = 2
    OTHER = 3
    UNKNOWN = 4
    FORBIDDEN = 5


_NAMES: Final[dict[CommandClass, KindName]] = {
    CommandClass.HARMLESS: "harmless",
    CommandClass.ALLOWED: "allowed",
    CommandClass.CONTAINED: "contained",
    CommandClass.OTHER: "other",
    CommandClass.UNKNOWN: "unknown",
    CommandClass.FORBIDDEN: "forbidden",
}
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
        return _NAMES[self.level]

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


def allowed(rule: str, reason: str, *, network: bool = False) -> Classed:
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


def of_path(finding: Finding) -> Classed:
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
