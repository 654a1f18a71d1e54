"""How a process ended, what it wrote, and what was enforced while it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.workspace.capture import Captured
    from coilclaw.workspace.confinement import Enforced
    from coilclaw.workspace.supervise import Ending, Outcome


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The end of a process that was started, or of one cancelled before it could be.

    ``leftovers`` are processes that had to be killed after the leader ended by itself,
    ``unkillable`` ones that outlived SIGKILL, and ``held_open`` says that somebody whom we could
    not find kept an output pipe open. A signal inside bubblewrap shows as exit code 128 + signal.
    """

    argv: tuple[str | bytes, ...]
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    stdout: Captured
    stderr: Captured
    duration_s: float
    enforced: Enforced
    leftovers: tuple[int, ...] = ()
    unkillable: tuple[int, ...] = ()
    held_open: bool = False

    @classmethod
    def of(
        cls,
        argv: tuple[str | bytes, ...],
        ending: Ending,
        *,
        stdout: Captured,
        stderr: Captured,
        duration_s: float,
        enforced: Enforced,
    ) -> ProcessResult:
        """The result of a process that came to this ``ending``."""
        return cls(
            argv=argv,
            outcome=ending.outcome,
            exit_code=ending.exit_code,
            signal=ending.signal,
            stdout=stdout,
            stderr=stderr,
            duration_s=duration_s,
            enforced=enforced,
            leftovers=ending.leftovers,
            unkillable=ending.unkillable,
            held_open=ending.held_open,
        )

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0, and is really gone."""
        return self.outcome == "exited" and self.exit_code == 0 and not self.unkillable
