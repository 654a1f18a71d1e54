"""What policy says about a whole tool call: the verdict, its parts, and the terms to run under."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Decision, Risk

if TYPE_CHECKING:
    from coilclaw.kernel import Verdict
    from coilclaw.policy.commands.command_class import KindName


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


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """How risky a thing is, by which rule; what is ``forbidden`` no level allows."""

    risk: Risk
    rule: str
    reason: str
    forbidden: bool = False
    asks: bool = False
    """Whether a person is asked even where the level would let it run."""


@dataclass(frozen=True, slots=True)
class CommandSegment:
    """One command that a command line would really run, and what was found about it."""

    text: str
    """As it stands in the command line."""
    argv: tuple[str, ...]
    """After quote removal and without its wrappers; a word that cannot be known is ``$…``."""
    kind: KindName
    risk: Risk
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for the processes of a call that is allowed."""

    writable: bool
    """Whether the workspace can be written; all the rest never can."""
    network: bool
    contained: bool = False
    """Whether only bubblewrap makes it permissible; nothing weaker will do."""
    sets_git: bool = field(default=False, compare=False)
    """Whether a command of it writes git's own settings, which are else read-only."""
    sweeps: bool = field(default=True, compare=False)
    """Whether it may read files that it does not name, so that those with secrets are hidden."""
    asked_for: str = ""
    """Why the network is needed, where no rule of the policy grants it: a person has to."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict over all effects of a call; ``terms`` are for those that start a process."""

    verdict: Verdict
    segments: tuple[CommandSegment, ...] = ()
    terms: Terms = Terms(writable=False, network=False)
