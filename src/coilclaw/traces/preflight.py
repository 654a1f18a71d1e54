"""Check before a recording begins everything that would make it fail later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.kernel import EnvironmentFault, UsageError
from coilclaw.runners import agent_program, runner
from coilclaw.traces.trajectory import opened_trajectory, plan
from coilclaw.traces.trajectory.history import History

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.traces.trajectory.plan import TracePlaces
    from coilclaw.workspace import Kind, SandboxSupport

UNRECORDABLE = frozenset({"builtin", "code-commit"})
"""Runners that work on contracts only."""


def check_agent(name: str, environ: Mapping[str, str], home: Path, start: Path) -> None:
    """Refuse an agent that cannot be recorded, or is not installed."""
    parsed = runner.parse(name)
    if parsed.kind in UNRECORDABLE:
        message = f"the agent {parsed.kind} cannot be recorded as a trajectory"
        hint = "use codex, codex-exec, opencode, acp, process or scripted"
        raise UsageError(message, rule="trajectory.agent", hint=hint)
    if parsed.kind == "scripted":
        from coilclaw.runners import external_runners

        external_runners.read_script(parsed.argument, start)
    elif parsed.kind != "process":
        agent_program.require(parsed, environ, home, start)
    elif not _is_there(parsed.argv[0], environ, start):
        message = f"the agent program {parsed.argv[0][:200]!r} was not found"
        hint = "name it by its path, or put it on PATH"
        raise UsageError(message, rule="agent.missing", hint=hint)


def _is_there(word: str, environ: Mapping[str, str], start: Path) -> bool:
    if "/" in word:
        return agent_program.is_program(start / word)
    return agent_program.on_path(word, environ) is not None


def check_sandbox(kind: Kind, support: SandboxSupport) -> None:
    """Refuse a sandbox that this machine does not have."""
    if kind == "bubblewrap" and not support.bubblewrap:
        message = f"bubblewrap does not work here: {' '.join(support.notes)}"
        hint = "install bubblewrap, or leave --sandbox at local"
        raise EnvironmentFault(message, rule="sandbox.unavailable", hint=hint)


def check_jobs(count: int | None) -> None:
    """Refuse a number of jobs below 1."""
    if count is not None and count < 1:
        raise UsageError(f"{count} jobs are not possible", rule="usage.jobs", hint="at least 1")


def check_free(places: TracePlaces) -> None:
    """Refuse an id that is taken on this machine."""
    if any(True for _ in _records(places)):
        raise opened_trajectory.refuse_existing(places.trajectory_id)


def read_history(places: TracePlaces) -> History:
    """Read the journal of a trajectory that is not being recorded."""
    found = History()
    for record in _records(places):
        found.apply(record)
    return found


def _records(places: TracePlaces) -> Iterator[Mapping[str, object]]:
    if plan.find_recorder(places) is not None:
        raise opened_trajectory.busy_fault(places)
    with opened_trajectory.open_journal(places) as journal:
        yield from journal.read()
