"""What this machine offers, and whether it is enough."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, FileLock, UsageError, write_atomic
from coilclaw.workspace import command, sandbox, try_to_escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.runs import Orchestrator
    from coilclaw.workspace import Kind, SandboxSupport


OLDEST_PYTHON: Final = (3, 11)
OLDEST_GIT: Final = (2, 38)
"""The first that merges without a worktree."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at."""

    name: str
    ok: bool
    required: bool
    detail: str


def examine(home: Path, environ: Mapping[str, str]) -> tuple[DoctorFinding, ...]:
    """Look at everything; nothing stays behind but the home directory itself."""
    return (
        DoctorFinding(
            "python",
            sys.version_info[:2] >= OLDEST_PYTHON,
            True,
            f"{platform.python_version()} at {sys.executable}",
        ),
        find_out("git", _git),
        find_out("home", lambda: _home(home)),
        find_out("locks", lambda: _locks(home)),
        *_sandboxes(sandbox.probe_sandboxes()),
        *_check_configuration(home, environ),
    )


def _check_configuration(home: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Say how far the last checkpoint is behind, and which rules an older policy file lacks."""
    from coilclaw.app.drivers import open_receipts
    from coilclaw.app.policy import describe_missing, find_missing_rules

    lag = None
    with suppress(UsageError):  # what is wrong with the configuration is another matter
        lag = open_receipts(home, environ).examine_lag()
    if lag is not None:
        yield DoctorFinding("checkpoint", not (lag.late or lag.problem), False, lag.sentence)
    try:
        if missing := find_missing_rules(home):
            yield DoctorFinding("policy", False, False, describe_missing(missing))
    except CoilClawError as problem:
        yield DoctorFinding("policy", False, False, str(problem))


def _sandboxes(support: SandboxSupport) -> tuple[DoctorFinding, ...]:
    landlock = support.landlock_abi
    if support.bubblewrap:
        best = "commands are contained by bubblewrap: files, processes and network"
    elif landlock:
        best = "commands are contained by Landlock: files, and the network where the kernel can"
    else:
        best = "NONE: commands would run with all your rights; install bubblewrap"
    kinds: tuple[Kind, ...] = ("bubblewrap", "landlock")
    works = (support.bubblewrap, landlock)
    return (
        DoctorFinding(
            "bubblewrap", bool(support.bubblewrap), False, support.bubblewrap or "not usable"
        ),
        DoctorFinding(
            "landlock", landlock > 0, False, f"ABI {landlock}" if landlock else "not usable"
        ),
        DoctorFinding("sandbox", bool(support.bubblewrap or landlock), False, best),
        *(_trial(kind, support) for kind, usable in zip(kinds, works, strict=True) if usable),
    )


def _trial(kind: Kind, support: SandboxSupport) -> DoctorFinding:
    """Prove a sandbox by trying to get out of it; a way out of bubblewrap is a hard failure."""
    name, hard = f"escape {kind}", kind == "bubblewrap"
    try:
        report = try_to_escape(kind, support)
    except (CoilClawError, OSError) as problem:
        return DoctorFinding(name, False, hard, str(problem))
    held = report.attempts - len(report.escaped)
    detail = f"{held} of {report.attempts} attempts to get out were stopped"
    if report.escaped:
        detail += f"; a command can {', '.join(report.escaped)}"
    return DoctorFinding(name, report.as_promised, hard, detail)


def find_out(name: str, look: Callable[[], str]) -> DoctorFinding:
    """Return what a look says; one that fails is a hard failure."""
    try:
        return DoctorFinding(name, True, True, look())
    except (CoilClawError, OSError) as problem:
        return DoctorFinding(name, False, True, str(problem))


def _git() -> str:
    result = command.run(["git", "--version"], cwd="/", timeout_s=10)
    text = result.stdout.text().strip()
    match = re.search(r"(\d+)\.(\d+)", text)
    if not result.ok or match is None:
        raise CoilClawError(f"'git --version' failed: {text or result.stderr.text().strip()}")
    if (int(match[1]), int(match[2])) < OLDEST_GIT:
        raise CoilClawError(f"{text} is older than {OLDEST_GIT[0]}.{OLDEST_GIT[1]}")
    return text


def _home(home: Path) -> str:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    trial = home / ".doctor"
    write_atomic(trial, b"ok")
    trial.unlink()
    return f"{home} can be written and synced"


def _locks(home: Path) -> str:
    trial = home / ".doctor.lock"
    try:
        with FileLock(trial, timeout_s=5):
            return "file locks work"
    finally:
        trial.unlink(missing_ok=True)


def examine_runs(
    start: Path, home: Path, environ: Mapping[str, str], *, required: bool
) -> tuple[DoctorFinding, ...]:
    """Look at everything that a run needs; nothing is made or changed."""
    from coilclaw.app.drivers import open_orchestrator
    from coilclaw.runners import agent_program

    general = [find_out("schemas", _schemas)]
    for agent, program in agent_program.look(environ, home):
        found = not isinstance(program, CoilClawError)
        general.append(DoctorFinding(agent.name, found, False, str(program)))
    try:
        orchestrator = open_orchestrator(start, home, environ)
    except CoilClawError as problem:
        none = problem.rule in {"repository.none", "repository.empty"}
        return (*general, DoctorFinding("repository", False, required or not none, problem.message))
    top = orchestrator.repository.top
    return (
        *general,
        DoctorFinding("repository", True, required, str(top)),
        find_out("runtime root", lambda: _runtime(orchestrator)),
        find_out("policies", lambda: _policies(orchestrator)),
        _hooks(orchestrator, environ),
    )


def _schemas() -> str:
    from coilclaw.kernel import schemas

    drift = schemas.find_drift()
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
    from coilclaw.runs import PolicySource

    repository = orchestrator.repository
    head = repository.resolve("HEAD")
    policies = orchestrator.policies(head)
    shipped = PolicySource(repository).find(head) == "shipped"
    own = "that come with CoilClaw" if shipped else "of the repository"
    return f"the policies {own} are valid ({policies.sha256[:12]})"


def _hooks(orchestrator: Orchestrator, environ: Mapping[str, str]) -> DoctorFinding:
    from coilclaw.runs import hooks

    try:
        found = hooks.status(orchestrator.repository, environ)
    except (CoilClawError, OSError) as problem:
        return DoctorFinding("hooks", False, False, str(problem))
    said = ", ".join(f"{one.name}: {one.state}" for one in found)
    return DoctorFinding("hooks", all(one.state == "installed" for one in found), False, said)
