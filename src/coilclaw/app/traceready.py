"""Whether a trajectory can be recorded here: everything that can be refused before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.agents import finding, naming
from coilclaw.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.trajectory import opening, presence
from coilclaw.trajectory.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.trajectory.places import Places
    from coilclaw.workspace.sandbox import Kind, SandboxSupport

UNRECORDABLE = frozenset({"builtin", "code-commit"})
"""Runners that work on contracts only."""


def agent(name: str, environ: Mapping[str, str], home: Path, start: Path) -> None:
    """Refuse an agent that cannot be recorded, or is not installed."""
    parsed = naming.parse(name)
    if parsed.kind in UNRECORDABLE:
        raise UsageError(
            f"the agent {parsed.kind} cannot be recorded as a trajectory",
            rule="trajectory.agent",
            hint="use codex, codex-exec, opencode, acp, process or scripted",
        )
    if parsed.kind == "scripted":
        from coilclaw.app import runners

        runners.read_script(parsed.argument, start)
    elif parsed.kind == "process":
        _program(parsed.argv[0], environ, start)
    else:
        finding.require(parsed, environ, home, start)


def _program(word: str, environ: Mapping[str, str], start: Path) -> None:
    there = (
        finding.is_program(start / word)
        if "/" in word
        else finding.on_path(word, environ) is not None
    )
    if not there:
        raise UsageError(
            f"there is no program {word[:200]!r} to start as an agent",
            rule="agent.missing",
            hint="name it by its path, or put it on PATH",
        )


def sandbox(kind: Kind, support: SandboxSupport) -> None:
    """Refuse a sandbox that this machine does not have."""
    if kind == "bubblewrap" and not support.bubblewrap:
        raise EnvironmentFault(
            f"bubblewrap does not work here: {' '.join(support.notes)}",
            rule="sandbox.unavailable",
            hint="install bubblewrap, or leave --sandbox at local",
        )


def jobs(count: int | None) -> None:
    """Refuse a number of jobs that is none."""
    if count is not None and count < 1:
        raise UsageError(f"{count} jobs are not possible", rule="usage.jobs", hint="at least 1")


def not_stopped(home: Path) -> None:
    """Refuse while the emergency stop is set."""
    from coilclaw.runtime.estop import Estop

    if Estop.of(home).set:
        raise Stopped(
            "the emergency stop is set, so no trajectory goes on",
            rule="estop",
            hint="clear it with 'coilclaw estop --clear'",
        )


def free(places: Places) -> None:
    """Refuse an id that is taken on this machine."""
    if presence.of(places) is not None:
        raise opening.busy(places)
    with opening.open_journal(places) as journal:
        taken = next(journal.read(), None) is not None
    if taken:
        raise UsageError(
            f"there is a trajectory {places.trajectory_id} already",
            rule="trajectory.exists",
            hint="go on with it by --resume, or give another id",
        )


def history(places: Places) -> History:
    """What was recorded here of a trajectory that nobody records at this moment."""
    if presence.of(places) is not None:
        raise opening.busy(places)
    found = History()
    with opening.open_journal(places) as journal:
        for record in journal.read():
            found.apply(record)
    return found


def unsolved(found: History, trajectory_id: str) -> None:
    """Refuse to go on with what is over."""
    if found.end is not None and found.end.reason == "solved":
        raise UsageError(f"trajectory {trajectory_id} is solved", rule="trajectory.solved")
