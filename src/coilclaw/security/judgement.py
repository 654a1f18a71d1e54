"""What policy says about a whole tool call: the verdict, its parts, and the terms to run under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from coilclaw.domain.verdict import Risk, Verdict


@dataclass(frozen=True, slots=True)
class Segment:
    """One command that a command line would really run, and what was found about it."""

    text: str
    """As it stands in the command line."""
    argv: tuple[str, ...]
    """After quote removal and without its wrappers; a word that cannot be known is ``$…``."""
    kind: Literal["harmless", "allowed", "other", "forbidden", "unknown"]
    risk: Risk
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for the processes of a call that is allowed."""

    writable: bool
    """Whether the workspace can be written; all the rest never can."""
    network: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict over all effects of a call; ``terms`` are for those that start a process."""

    verdict: Verdict
    segments: tuple[Segment, ...] = ()
    terms: Terms = Terms(writable=False, network=False)
