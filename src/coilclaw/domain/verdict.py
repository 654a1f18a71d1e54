"""What policy answers: a decision, how risky the thing is, and the rule that says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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
