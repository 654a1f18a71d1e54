"""What the gateway needs to offer SOPs and their runs; ``app`` makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coilclaw.gateway.runkeeper import CarriedRuns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True)
class SopResume:
    """How a run is to be resumed; ``interrupted`` is about a stage that a crash cut short."""

    run_id: str
    by: str
    interrupted: str = ""
    """``redo``, ``accept``, ``skip``, or nothing."""
    stage: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class SopStart:
    """A run that a client asks for."""

    name: str
    inputs: Mapping[str, Json] = field(default_factory=dict)
    asker: str = ""
    """Who asks for it, as approvals name a client."""


class SopKeeper(CarriedRuns, Protocol):
    """The SOPs of one home, safe to be used by many threads.

    A run that is not there is ``sop.unknown_run``.
    """

    def sops(self) -> list[Json]:
        """Every SOP, with what is wrong with it."""

    def start(self, wanted: SopStart) -> str:
        """Begin a run and return its id once it is on the disk; it goes on by itself."""

    def resume(self, wanted: SopResume) -> None:
        """Resume a run on which no process works; return once it goes on."""

    def listed(self, limit: int) -> list[Json]:
        """The newest runs, newest first."""

    def described(self, run_id: str) -> dict[str, Json]: ...
