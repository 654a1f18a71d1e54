"""Autonomy: how much an agent may do without asking, and what that makes of a risk."""

from __future__ import annotations

from enum import Enum
from typing import Final

from coilclaw.domain.verdict import Decision, Risk


class Autonomy(Enum):
    """The three levels; the value is what the configuration says."""

    READONLY = "readonly"
    SUPERVISED = "supervised"
    FULL = "full"


_DECISIONS: Final = {
    Autonomy.READONLY: (Decision.ALLOW, Decision.DENY, Decision.DENY),
    Autonomy.SUPERVISED: (Decision.ALLOW, Decision.ASK, Decision.DENY),
    Autonomy.FULL: (Decision.ALLOW, Decision.ALLOW, Decision.ALLOW),
}


def decide(risk: Risk, autonomy: Autonomy) -> Decision:
    """Return what a level makes of a risk that no rule forbids."""
    return _DECISIONS[autonomy][risk]
