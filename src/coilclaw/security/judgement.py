"""What policy says about a whole tool call: the verdict, its parts, and the terms to run under."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.domain.verdict import Risk, Verdict
    from coilclaw.security.commandclass import KindName


@dataclass(frozen=True, slots=True)
class Segment:
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
    segments: tuple[Segment, ...] = ()
    terms: Terms = Terms(writable=False, network=False)
