"""``Equipment``: everything that a trajectory is recorded with; ``app`` puts it together."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from coilclaw.agents.runner import ask_nobody
from coilclaw.workspace.sandbox_view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.agents.runner import AgentRequest, Runner
    from coilclaw.domain.toolcalls import Answer
    from coilclaw.trajectory.publishing import Uploads
    from coilclaw.trajectory.testing import Judging
    from coilclaw.trajectory.trace import PartRecord, TurnRecord
    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.sandbox import Kind, SandboxSupport


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What a run of a trajectory needs from outside."""

    home: Path
    """``$COILCLAW_HOME``."""
    runner: Callable[[int], Runner]
    """Who performs the turn with this number, counted from 1."""
    judge: Judging | None
    support: SandboxSupport
    cancel: Cancellation
    """Signals and the emergency stop end a trajectory through it."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    sandbox: Kind = "auto"
    hidden: tuple[Path, ...] = ()
    """What an agent may not see: the environment with its tests, above all."""
    view: View = field(default_factory=View)
    """What the user lets every child see."""
    approve: Callable[[AgentRequest], Answer] = ask_nobody
    redact: Callable[[str], str] = str
    uploads: Uploads | None = None
    now: Callable[[], datetime] = _now
    monotonic: Callable[[], float] = time.monotonic
    on_begin: Callable[[], None] = lambda: None
    """Told once, when everything is open, and before anything else goes to the store."""
    on_part: Callable[[PartRecord], None] = lambda _: None
    on_turn: Callable[[TurnRecord], None] = lambda _: None
    """Told of a turn that begins, and again when it has ended."""
