"""The hooks that ask the active contract: installed beside what is there, and taken away again."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.workspace import process
from coilclaw.workspace.environment import search_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace.repository import Repository

NAMES: Final = ("pre-commit", "pre-push")
BEFORE: Final = ".coilclaw-before"
"""What the hook that was there first is called while ours is."""
MARK: Final = "# coilclaw-hook v1"
MAX_HOOK_BYTES: Final = 2**20
GIT_TIMEOUT_S: Final = 30.0
STRICT: Final = "--strict"

State: TypeAlias = Literal["installed", "outdated", "foreign", "missing"]
Done: TypeAlias = Literal["installed", "updated", "unchanged", "removed", "left"]

_TEXT: Final = """\
#!/bin/sh
{mark}
# Asks the active contract. 'coilclaw hooks uninstall' takes it away and puts back what was here.
before="$(dirname -- "$0")/{name}{suffix}"
{body}
"""
_COMMIT: Final = """\
if [ -x "$before" ]; then
    "$before" "$@" || exit $?
fi
exec {command} hooks check {flags}{name} "$@"\
"""
_PUSH: Final = """\
refs=$(cat)
if [ -x "$before" ]; then
    printf '%s\\n' "$refs" | "$before" "$@" || exit $?
fi
printf '%s\\n' "$refs" | {command} hooks check {flags}{name} "$@"\
"""


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook as it stands."""

    name: str
    path: Path
    state: State
    chained: bool
    """Whether another hook is run first."""
    strict: bool = False
    """Whether it refuses everything while no contract is active."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done about one hook."""

    name: str
    path: Path
    done: Done
    chained: bool = False
    strict: bool = False


def status(repository: Repository, environ: Mapping[str, str]) -> tuple[Hook, ...]:
    """Look at the hooks."""
    folder = directory(repository, environ)
    return tuple(_hook(folder, name) for name in NAMES)


def install(
    repository: Repository, environ: Mapping[str, str], *, strict: bool = False
) -> tuple[Change, ...]:
    """Put our hooks in place; those that are there are kept, and run first.

    A strict hook stays strict: only ``uninstall`` loosens it.
    """
    folder = directory(repository, environ)
    if not folder.resolve().is_relative_to(repository.top) and not folder.resolve().is_relative_to(
        repository.common_dir
    ):
        raise UsageError(
            f"the hooks of {repository.top} are in {folder}, which other repositories share",
            rule="hooks.shared",
            hint="give it hooks of its own: git config core.hooksPath .githooks",
        )
    hooks = [_hook(folder, name) for name in NAMES]
    for hook in hooks:
        if hook.state == "foreign" and hook.chained:
            raise UsageError(
                f"{hook.path} took the place of ours, and {hook.path.name}{BEFORE} is there too",
                rule="hooks.both",
                hint="keep one of them, and remove the other",
            )
    return tuple(_install(hook, strict=strict or hook.strict) for hook in hooks)


def uninstall(repository: Repository, environ: Mapping[str, str]) -> tuple[Change, ...]:
    """Take our hooks away and put back what was there before them."""
    folder = directory(repository, environ)
    return tuple(_uninstall(_hook(folder, name)) for name in NAMES)


def directory(repository: Repository, environ: Mapping[str, str]) -> Path:
    """Where git looks for the hooks of a repository, by all of the user's configuration."""
    keep = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
    result = process.run(
        ["git", "rev-parse", "--git-path", "hooks"],
        cwd=repository.top,
        timeout_s=GIT_TIMEOUT_S,
        env={
            "PATH": search_path(),
            "LC_ALL": "C",
            **{name: environ[name] for name in keep if name in environ},
        },
    )
    said = os.fsdecode(result.stdout.data.rstrip(b"\n"))
    if not result.ok or not said:
        raise EnvironmentFault(
            f"git does not say where its hooks are: {result.stderr.text().strip()}",
            rule="hooks.place",
        )
    return repository.top / Path(said).expanduser()


def text(name: str, *, strict: bool = False) -> str:
    """The hook itself; the directory that git runs it in has no say in what is imported."""
    command = f"{shlex.quote(sys.executable)} -P -m coilclaw"
    flags = f"{STRICT} " if strict else ""
    pattern = _PUSH if name == "pre-push" else _COMMIT
    body = pattern.format(command=command, flags=flags, name=name)
    return _TEXT.format(mark=MARK, name=name, suffix=BEFORE, body=body)


def _hook(folder: Path, name: str) -> Hook:
    path = folder / name
    chained = os.path.lexists(folder / f"{name}{BEFORE}")
    if not os.path.lexists(path):
        return Hook(name, path, "missing", chained)
    data = b""
    if stat.S_ISREG(os.lstat(path).st_mode):
        with path.open("rb") as file:
            data = file.read(MAX_HOOK_BYTES)
    elif path.is_dir():
        raise UsageError(f"{path} is a directory, and no hook", rule="hooks.odd")
    if MARK.encode() not in data.splitlines():
        return Hook(name, path, "foreign", chained)
    runs = bool(os.lstat(path).st_mode & 0o100)
    strict = f" hooks check {STRICT} ".encode() in data
    same = data == text(name, strict=strict).encode() and runs
    return Hook(name, path, "installed" if same else "outdated", chained, strict)


def _install(hook: Hook, *, strict: bool) -> Change:
    if hook.state == "installed" and hook.strict == strict:
        return Change(hook.name, hook.path, "unchanged", hook.chained, strict)
    try:
        hook.path.parent.mkdir(parents=True, exist_ok=True)
        if hook.state == "foreign":
            os.rename(hook.path, hook.path.with_name(f"{hook.name}{BEFORE}"))
        write_atomic(hook.path, text(hook.name, strict=strict).encode(), mode=0o755)
        hook.path.chmod(0o755)
    except OSError as problem:
        raise _fault(hook.path, problem) from problem
    done: Done = "updated" if hook.state in {"outdated", "installed"} else "installed"
    return Change(hook.name, hook.path, done, hook.chained or hook.state == "foreign", strict)


def _uninstall(hook: Hook) -> Change:
    before = hook.path.with_name(f"{hook.name}{BEFORE}")
    if hook.state not in {"installed", "outdated"} and not (
        hook.state == "missing" and hook.chained
    ):
        return Change(hook.name, hook.path, "left")
    try:
        if hook.chained:
            os.replace(before, hook.path)
        else:
            hook.path.unlink()
    except OSError as problem:
        raise _fault(hook.path, problem) from problem
    return Change(hook.name, hook.path, "removed", hook.chained)


def _fault(path: Path, problem: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"cannot change the hook {path}: {problem.strerror}", rule="hooks.io")
