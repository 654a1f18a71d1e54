"""Whether runs can be carried out here: the repository, its policies and hooks, and the schemas."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.app.doctor import Finding
from coilclaw.errors import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.app.runwiring import Orchestrator


def examine_runs(
    start: Path, home: Path, environ: Mapping[str, str], *, required: bool
) -> tuple[Finding, ...]:
    """Look at everything that a run needs; nothing is made or changed."""
    from coilclaw.app.runwiring import Orchestrator

    general = (_checked("schemas", _schemas, required=True), *_agents(environ, home))
    try:
        orchestrator = Orchestrator(start, home, environ)
    except CoilClawError as problem:
        none = problem.rule in {"repository.none", "repository.empty"}
        finding = Finding("repository", False, required or not none, problem.message)
        return (*general, finding)
    top = orchestrator.repository.top
    return (
        *general,
        Finding("repository", True, required, str(top)),
        _checked("runtime root", lambda: _runtime(orchestrator), required=True),
        _checked("policies", lambda: _policies(orchestrator), required=True),
        _hooks(orchestrator, environ),
    )


def _checked(name: str, look: Callable[[], str], *, required: bool) -> Finding:
    try:
        return Finding(name, True, required, look())
    except (CoilClawError, OSError) as problem:
        return Finding(name, False, required, str(problem))


def _schemas() -> str:
    from coilclaw.contracts import schemas

    drift = schemas.drift()
    if drift.status != "ok":
        names = ", ".join((*drift.mismatched, *drift.missing, *drift.extra)) or "the registry"
        raise CoilClawError(f"the schemas are not those of the registry ({drift.status}): {names}")
    return f"{len(schemas.NAMES)} schemas are as registered"


def _runtime(orchestrator: Orchestrator) -> str:
    """Whether the runtime root is there and writable, or could be made."""
    place = orchestrator.places.runtime
    there = place
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise CoilClawError(f"{there} cannot be written, so no run can be kept in {place}")
    return f"{place} {'can be written' if there == place else 'can be made'}"


def _policies(orchestrator: Orchestrator) -> str:
    from coilclaw.app.policy_source import PolicySource

    repository = orchestrator.repository
    head = repository.resolve("HEAD")
    policies = orchestrator.policies(head)
    shipped = PolicySource(repository).find(head) == "shipped"
    own = "that come with CoilClaw" if shipped else "of the repository"
    return f"the policies {own} are valid ({policies.sha256[:12]})"


def _hooks(orchestrator: Orchestrator, environ: Mapping[str, str]) -> Finding:
    from coilclaw.app import hooks

    try:
        found = hooks.status(orchestrator.repository, environ)
    except (CoilClawError, OSError) as problem:
        return Finding("hooks", False, False, str(problem))
    said = ", ".join(f"{one.name}: {one.state}" for one in found)
    return Finding("hooks", all(one.state == "installed" for one in found), False, said)


def _agents(environ: Mapping[str, str], home: Path) -> Iterator[Finding]:
    """Yield what ``coilclaw agents`` lists."""
    from coilclaw.agents import finding

    for agent, program in finding.look(environ, home):
        if isinstance(program, CoilClawError):
            yield Finding(agent.name, False, False, program.message)
        else:
            yield Finding(agent.name, True, False, str(program))
