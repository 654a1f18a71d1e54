"""The classes of a command, ordered by strictness, and what puts a command into one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.domain.verdict import Risk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.security.finding import Finding

KindName: TypeAlias = Literal["harmless", "allowed", "other", "unknown", "forbidden"]


class CommandClass(IntEnum):
    """The strictest of several is their maximum; the last two are denied at every level."""

    HARMLESS = 0
    ALLOWED = 1
    OTHER = 2
    UNKNOWN = 3
    FORBIDDEN = 4


_NAMES: Final[dict[CommandClass, KindName]] = {
    CommandClass.HARMLESS: "harmless",
    CommandClass.ALLOWED: "allowed",
    CommandClass.OTHER: "other",
    CommandClass.UNKNOWN: "unknown",
    CommandClass.FORBIDDEN: "forbidden",
}
_RISKS: Final = {CommandClass.HARMLESS: Risk.LOW, CommandClass.ALLOWED: Risk.MEDIUM}


@dataclass(frozen=True, slots=True)
class Classed:
    """One reason for a class; ``network`` only when the rule that allows it says so."""

    level: CommandClass
    rule: str
    reason: str
    network: bool = False

    @property
    def kind(self) -> KindName:
        return _NAMES[self.level]

    @property
    def risk(self) -> Risk:
        return _RISKS.get(self.level, Risk.HIGH)

    @property
    def forbidden(self) -> bool:
        return self.level >= CommandClass.UNKNOWN


def harmless(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.HARMLESS, rule, reason)


def allowed(rule: str, reason: str, *, network: bool = False) -> Classed:
    return Classed(CommandClass.ALLOWED, rule, reason, network)


def other(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.OTHER, rule, reason)


def unknown(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.UNKNOWN, rule, reason)


def forbidden(rule: str, reason: str) -> Classed:
    return Classed(CommandClass.FORBIDDEN, rule, reason)


def of_path(finding: Finding) -> Classed:
    """Return what a finding about a path makes of the command that names it."""
    if finding.forbidden:
        return forbidden(finding.rule, finding.reason)
    level = {Risk.LOW: CommandClass.HARMLESS, Risk.MEDIUM: CommandClass.ALLOWED}
    return Classed(level.get(finding.risk, CommandClass.OTHER), finding.rule, finding.reason)


def strictest(found: Iterable[Classed]) -> Classed:
    """Return the first of the strictest, what destroys before all else; there must be one."""
    return max(found, key=lambda each: (each.level, each.rule.startswith("destructive.")))
