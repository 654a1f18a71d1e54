"""``ReviewEvidence``: everything that a review is made of, as it was recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.contracts.artifact import ArtifactRef
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.gates.result import GateResult, Violation


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of a change; ``None`` where there is no file, or no file that has contents."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def name(self) -> str:
        """The path as valid Unicode."""
        return legible(self.path)

    def added(self) -> Iterator[tuple[int, str]]:
        """Return the lines that the change adds, with their numbers in the new file.

        A line that only moved is not added: each line before stands for one equal line after.
        """
        known = Counter((self.before or b"").splitlines())
        for number, line in enumerate((self.after or b"").splitlines(), start=1):
            if known[line] > 0:
                known[line] -= 1
            else:
                yield number, line.decode("utf-8", "replace")


def legible(text: str) -> str:
    """Return text as valid Unicode: what is not is written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class ReviewEvidence:
    """What is reviewed, and what is already known about it."""

    run_id: str
    task_id: str
    attempt: int
    contract: TaskContract
    changes: tuple[ChangedFile, ...]
    patch: str
    """The same change as a unified diff, whole."""
    reviewed_at: str
    """RFC 3339."""
    workers: frozenset[str]
    """The ids of all agents whose work it is: none of them may be the reviewer."""
    weakened: tuple[Violation, ...] = ()
    """What the change does to tests."""
    gates: tuple[GateResult, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    """The files of the bundle that the review refers to."""
