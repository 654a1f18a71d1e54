"""Git hooks that ask the active contract: installed beside existing hooks, and removed again."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import EnvironmentFault, UsageError, explain_os_errors, write_atomic
from coilclaw.workspace import command as process
from coilclaw.workspace import search_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace import Repository

NAMES: Final = ("pre-commit", "pre-push")
BEFORE: Final = ".coilclaw-before"
"""The suffix of an earlier hook while ours is installed."""
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
class GitHook:
    """The state of one hook."""

    name: str
    path: Path
    state: State
    chained: bool
    """Whether another hook is run first."""
    strict: bool = False
    """Whether it refuses everything while no contract is active."""
    done: Done = "unchanged"
    """What was done about it."""


def status(repository: Repository, environ: Mapping[str, str]) -> tuple[GitHook, ...]:
    """Return the state of the hooks."""
    folder = directory(repository, environ)
    return tuple(_read_hook(folder, name) for name in NAMES)


def install(
    repository: Repository, environ: Mapping[str, str], *, strict: bool = False
) -> tuple[GitHook, ...]:
    """Install our hooks; existing hooks are kept, and run first.

    A strict hook stays strict: only ``uninstall`` loosens it.
    """
    folder = directory(repository, environ)
    if not any(map(folder.resolve().is_relative_to, (repository.top, repository.common_dir))):
        raise UsageError(
            f"the hooks of {repository.top} are in {folder}, which other repositories share",
            rule="hooks.shared",
            hint="give it hooks of its own: git config core.hooksPath .githooks",
        )
    hooks = status(repository, environ)
    for hook in hooks:
        if hook.state == "foreign" and hook.chained:
            raise UsageError(
                f"{hook.path} took the place of ours, and {hook.path.name}{BEFORE} is there too",
                rule="hooks.both",
                hint="keep one of them, and remove the other",
            )
    return tuple(_install(hook, strict=strict or hook.strict) for hook in hooks)


def uninstall(repository: Repository, environ: Mapping[str, str]) -> tuple[GitHook, ...]:
    """Remove our hooks and restore those that existed before."""
    return tuple(map(_uninstall, status(repository, environ)))


def directory(repository: Repository, environ: Mapping[str, str]) -> Path:
    """Return where git looks for the hooks of a repository, by the user's whole configuration."""
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
    """Return the script of a hook; the directory that git runs it in cannot affect imports."""
    command = f"{shlex.quote(sys.executable)} -P -m coilclaw"
    flags = f"{STRICT} " if strict else ""
    pattern = _PUSH if name == "pre-push" else _COMMIT
    body = pattern.format(command=command, flags=flags, name=name)
    return _TEXT.format(mark=MARK, name=name, suffix=BEFORE, body=body)


def _read_hook(folder: Path, name: str) -> GitHook:
    path = folder / name
    chained = os.path.lexists(folder / f"{name}{BEFORE}")
    if not os.path.lexists(path):
        return GitHook(name, path, "missing", chained)
    data = b""
    if stat.S_ISREG(os.lstat(path).st_mode):
        with path.open("rb") as file:
            data = file.read(MAX_HOOK_BYTES)
    elif path.is_dir():
        raise UsageError(f"{path} is a directory, and no hook", rule="hooks.odd")
    if MARK.encode() not in data.splitlines():
        return GitHook(name, path, "foreign", chained)
    runs = bool(os.lstat(path).st_mode & 0o100)
    strict = f" hooks check {STRICT} ".encode() in data
    same = data == text(name, strict=strict).encode() and runs
    return GitHook(name, path, "installed" if same else "outdated", chained, strict)


def _install(hook: GitHook, *, strict: bool) -> GitHook:
    if hook.state == "installed" and hook.strict == strict:
        return hook
    foreign = hook.state == "foreign"
    with explain_os_errors(f"change the hook {hook.path}", rule="hooks.io"):
        hook.path.parent.mkdir(parents=True, exist_ok=True)
        if foreign:
            os.rename(hook.path, hook.path.with_name(f"{hook.name}{BEFORE}"))
        write_atomic(hook.path, text(hook.name, strict=strict).encode(), mode=0o755)
        hook.path.chmod(0o755)
    done: Done = "updated" if hook.state in {"outdated", "installed"} else "installed"
    return replace(hook, done=done, chained=hook.chained or foreign, strict=strict)


def _uninstall(hook: GitHook) -> GitHook:
    ours = hook.state in {"installed", "outdated"} or (hook.state == "missing" and hook.chained)
    if not ours:
        return replace(hook, done="left", chained=False, strict=False)
    with explain_os_errors(f"change the hook {hook.path}", rule="hooks.io"):
        if hook.chained:
            os.replace(hook.path.with_name(f"{hook.name}{BEFORE}"), hook.path)
        else:
            hook.path.unlink()
    return replace(hook, done="removed", strict=False)
