"""What the gateway needs to offer the runs of a repository; ``app`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that somebody asks for; what is ``None`` is the contract's to say."""

    contract: Mapping[str, Json] | None = None
    request: str = ""
    runner: str | None = None
    reviewer: str | None = None
    merge: bool = False
    diagnostic: bool = False
    no_baseline: bool = False
    wait: bool = True
    """Whether it waits for the paths that other runs hold."""
    asker: str = ""
    """Who asks for it, as approvals name a client."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A file on its way; ``pieces`` are exactly ``size`` bytes, or an error."""

    name: str
    size: int
    pieces: Iterator[bytes]


class CarriedRuns(Protocol):
    """Runs that go on here by themselves, and whose events can be followed.

    Everything may take as long as files do, but for ``size`` and what is a property.
    """

    @property
    def active(self) -> int:
        """How many runs are carried out here at this moment."""

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        """At most ``limit`` events behind the first ``since``."""

    def size(self, run_id: str) -> int:
        """How long the log of events is, so that one can tell whether to read it again."""

    def goes_on(self, run_id: str) -> bool:
        """Whether some process works on it now."""

    def halt(self, reason: str) -> None:
        """Stop all runs that are carried out here, and let none begin."""

    def drained(self, timeout_s: float) -> bool:
        """Wait until none is carried out here, and say whether that is so."""


class RunKeeper(CarriedRuns, Protocol):
    """The runs of one repository, safe to be used by many threads.

    A run that is not there is ``run.unknown``.
    """

    def start(self, wanted: Wanted) -> str:
        """Begin a run and return its id once it is on the disk; it goes on by itself."""

    def resume(self, run_id: str, answer: str = "", *, asker: str = "") -> None:
        """Resume a run on which no process works; return once it goes on.

        ``answer`` is to the question of its planner; to a run without one it is ``run.answer``.
        ``asker`` is who wants it resumed.
        """

    def cancel(self, run_id: str) -> None:
        """Have a run stopped that is carried out here; it can be resumed."""

    def listed(self, limit: int) -> list[Json]:
        """The newest runs, newest first."""

    def described(self, run_id: str) -> dict[str, Json]: ...

    def patch(self, run_id: str, *, task: str | None, rejected: bool) -> bytes: ...

    def verify(self, run_id: str, *, strict: bool, root: str | None) -> dict[str, Json]: ...

    def bundle(self, run_id: str) -> Archive:
        """The evidence of a sealed run as a tar."""
