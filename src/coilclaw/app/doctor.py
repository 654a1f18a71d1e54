"""What this machine offers, and whether it is enough."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock
from coilclaw.workspace import process, sandbox
from coilclaw.workspace.escape_trial import try_to_escape

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.workspace.sandbox import Kind, SandboxSupport

OLDEST_PYTHON: Final = (3, 11)
OLDEST_GIT: Final = (2, 38)
"""The first that merges without a worktree."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    required: bool
    detail: str


def examine(home: Path) -> tuple[Finding, ...]:
    """Look at everything; nothing stays behind but the home directory itself."""
    return (
        _python(),
        _checked("git", _git, home),
        _checked("home", _home, home),
        _checked("locks", _locks, home),
        *_sandboxes(sandbox.probe()),
        *_checkpoints(home),
        *_policy(home),
    )


def _policy(home: Path) -> tuple[Finding, ...]:
    """Say which rules of this version an older policy file does not have."""
    from coilclaw.app.policy import describe_missing, find_missing_rules

    try:
        missing = find_missing_rules(home)
    except CoilClawError as problem:
        return (Finding("policy", False, False, str(problem)),)
    return (Finding("policy", False, False, describe_missing(missing)),) if missing else ()


def _checkpoints(home: Path) -> tuple[Finding, ...]:
    """Say how far the last checkpoint is behind, where the configuration wants them."""
    from coilclaw.app.checkpoints import examine_lag

    lag = examine_lag(home)
    if lag is None:
        return ()
    return (Finding("checkpoint", not (lag.late or lag.problem), False, lag.sentence),)


def _sandboxes(support: SandboxSupport) -> tuple[Finding, ...]:
    landlock = support.landlock_abi
    if support.bubblewrap:
        best = "commands are contained by bubblewrap: files, processes and network"
    elif landlock:
        best = "commands are contained by Landlock: files, and the network where the kernel can"
    else:
        best = "NONE: commands would run with all your rights; install bubblewrap"
    found = [
        Finding("bubblewrap", bool(support.bubblewrap), False, support.bubblewrap or "not usable"),
        Finding("landlock", landlock > 0, False, f"ABI {landlock}" if landlock else "not usable"),
        Finding("sandbox", bool(support.bubblewrap or landlock), False, best),
    ]
    if support.bubblewrap:
        found.append(_trial("bubblewrap", support))
    if landlock:
        found.append(_trial("landlock", support))
    return tuple(found)


def _trial(kind: Kind, support: SandboxSupport) -> Finding:
    """Prove a sandbox by trying to get out of it; a way out of bubblewrap is a hard failure."""
    name, hard = f"escape {kind}", kind == "bubblewrap"
    try:
        report = try_to_escape(kind, support)
    except (CoilClawError, OSError) as problem:
        return Finding(name, False, hard, str(problem))
    held = report.attempts - len(report.escaped)
    detail = f"{held} of {report.attempts} attempts to get out were stopped"
    if report.escaped:
        detail += f"; a command can {', '.join(report.escaped)}"
    return Finding(name, report.as_promised, hard, detail)


def _checked(name: str, look: Callable[[Path], str], home: Path) -> Finding:
    try:
        return Finding(name, True, True, look(home))
    except (CoilClawError, OSError) as problem:
        return Finding(name, False, True, str(problem))


def _python() -> Finding:
    version = sys.version_info
    return Finding(
        "python",
        version[:2] >= OLDEST_PYTHON,
        True,
        f"{platform.python_version()} at {sys.executable}",
    )


def _git(home: Path) -> str:  # noqa: ARG001 - one shape for all checks
    result = process.run(["git", "--version"], cwd="/", timeout_s=10)
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
