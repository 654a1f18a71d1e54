"""What waits to be uploaded, and when it is due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from coilclaw.artifacts.store import CONFLICT, DENIED, LARGE, NO_BUCKET, UNTAGGED

Source = bytes | Path | Callable[[], bytes]
"""The bytes, a file that is read when its turn comes, or whoever makes them then."""

LASTING: Final = frozenset({CONFLICT, DENIED, LARGE, NO_BUCKET, UNTAGGED, "artifact.key"})
"""Rules of troubles that trying again does not end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of an uploader."""

    backlog: int = 100_000
    """Most pieces that wait."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    """How long a failed upload waits: twice as long each time, up to the longest."""
    document_interval_s: float = 1.0
    document_bytes_per_s: int = 2 * 2**20
    """A document that changes all the time is sent no oftener, and takes no more, than this."""


@dataclass(frozen=True, slots=True)
class Job:
    """One artifact on its way."""

    key: str
    source: Source


@dataclass(slots=True)
class Lane:
    """Jobs that wait for each other; a document has a lane of its own, of one job."""

    waiting: deque[Job] = field(default_factory=deque)
    failures: int = 0
    due: float = 0.0
    stopped: bool = False

    def succeeded(self, now: float, pause_s: float) -> None:
        self.failures = 0
        self.due = now + pause_s

    def failed(self, now: float, limits: Limits, jitter: float) -> None:
        """Put the next try off; ``jitter`` between 0 and 1 keeps many clients apart."""
        wait = limits.first_wait_s * 2 ** min(self.failures, 30)
        self.failures += 1
        self.due = now + min(wait, limits.longest_wait_s) * (0.5 + jitter / 2)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an artifact is not in the store; ``lasting`` says that nobody tries again."""

    key: str
    rule: str
    message: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Report:
    """How things stand."""

    uploaded: int
    retries: int
    waiting: int
    troubles: tuple[Trouble, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that was handed over is in the store."""
        return self.waiting == 0 and not self.troubles
