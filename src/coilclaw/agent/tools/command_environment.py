"""The environment and the sandbox of a command, both built from an empty one."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError
from coilclaw.workspace import SYSTEM_PATHS, CacheFolders, Sandbox, find_git_places, private_home

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.policy import SecretFiles, Terms
    from coilclaw.workspace import Enforced, ProcessResult, SandboxSupport

FIXED_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KEPT: Final = ("HOME", "USER", "LOGNAME", "TZ")
_QUIET: Final = {
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}
# Settings by which a repository's own configuration could make git run a program.
_GIT_SETTINGS: Final = (
    ("core.alternateRefsCommand", ""),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("gpg.openpgp.program", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.diffMerges", "separate"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
)
_COPYING: Final = {
    ("diff", "textconv"): "cat",
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("merge", "driver"): "false",
}
_COMPARING: Final = ("diff", "show", "log", "stash", "whatchanged", "blame", "annotate")
_ONLY_READING: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _) in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{index}": value for index, (_, value) in enumerate(_GIT_SETTINGS)},
}


def command_environment(
    ours: Mapping[str, str],
    *,
    kept_out: Iterable[str],
    only_reading: bool,
    trusted: Iterable[str] = (),
) -> dict[str, str]:
    """Return the environment of a command.

    Its search path has no directory below ``kept_out``, except below a ``trusted`` one.
    """
    kept = {name: ours[name] for name in _KEPT if ours.get(name)}
    path = search_path(
        ours.get("PATH", ""),
        kept_out=tuple(kept_out),
        system_only=only_reading,
        trusted=tuple(trusted),
    )
    return {"PATH": path, **kept, **_QUIET, **(_ONLY_READING if only_reading else {})}


def tool_environment(
    context: ToolContext, *, only_reading: bool, ours: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a command of a tool; ``ours`` replaces the context's variables."""
    kept_out = (str(context.root.path), str(context.home), *context.security.own_paths)
    source = context.environ if ours is None else ours
    return command_environment(source, kept_out=kept_out, only_reading=only_reading)


def quiet_drivers(names: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return variables that replace each driver of a repository by one that only copies."""
    count = int(env.get("GIT_CONFIG_COUNT", "0"))
    added = {}
    for name in dict.fromkeys(names):
        value = _COPYING.get((name.partition(".")[0], name.rpartition(".")[2]))
        if value is not None and name.count(".") > 1:
            added[f"GIT_CONFIG_KEY_{count}"] = name
            added[f"GIT_CONFIG_VALUE_{count}"] = value
            count += 1
    return {**added, "GIT_CONFIG_COUNT": str(count)}


def external_diff(names: Iterable[str], argv: Iterable[str]) -> str | None:
    """Return why git may not compare, if the repository sets a program for it, or ``None``."""
    if not any(word in text for text in argv for word in _COMPARING):
        return None
    for name in names:
        if name == "diff.external" or (name.startswith("diff.") and name.endswith(".command")):
            return (
                f"the repository sets {name}, so that git would run a program of its choice "
                "without approval"
            )
    return None


def search_path(
    path: str, *, kept_out: tuple[str, ...], system_only: bool, trusted: tuple[str, ...] = ()
) -> str:
    """Return the entries of a PATH in which only the owner can put a program."""
    barred = tuple(os.path.realpath(place) for place in kept_out)
    entries = []
    for entry in dict.fromkeys(path.split(":")):
        if not entry.startswith("/"):
            continue
        real = os.path.realpath(entry)
        inside = any(_is_below(real, place) or _is_below(entry, place) for place in barred)
        if inside and not any(_is_below(real, place) for place in trusted):
            continue
        if system_only and not any(_is_below(real, str(place)) for place in SYSTEM_PATHS):
            continue
        if _is_guarded(real):
            entries.append(entry)
    return ":".join(entries) or FIXED_PATH


def _is_guarded(directory: str) -> bool:
    """Return whether a directory exists, and neither it nor a parent is writable by everyone."""
    try:
        mode = os.stat(directory).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWOTH:
            return False
        above = os.path.dirname(directory)
        while above != "/":
            mode = os.stat(above).st_mode
            # With the sticky bit, only the owner of an entry can replace it.
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return False
            above = os.path.dirname(above)
    except OSError:
        return False
    return True


def _is_below(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")


CACHES: Final = "caches"
"""The directory of the home with the package caches of each workspace, which may be removed."""
MAX_GIT_FOLDERS: Final = 256
MAX_SEARCHED: Final = 50_000
"""Entries of a workspace that are searched for files with secrets."""
MAX_FOUND: Final = 256
"""Files with secrets that are hidden at most."""
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".tox", ".mypy_cache"})
"""Directories with many generated files and without the user's secrets."""
_NEEDED: Final = ("/etc", "/sys", "/proc", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/")
"""Paths that every program needs; the policy decides which commands may name them."""

_ETC: Final = tuple(
    Path("/etc", name)
    for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
)
"""The parts of /etc that programs need; they hold no personal data."""


def command_sandbox(terms: Terms, context: ToolContext) -> Sandbox:
    """Return the sandbox of a command, without its private home."""
    workspace = context.root.path
    named = (str(context.home), *context.security.own_paths, *context.security.forbidden_paths)
    real = sorted({os.path.realpath(path) for path in named})
    hidden = tuple(Path(path) for path in real if path not in _NEEDED and os.path.lexists(path))
    around = find_git_places(workspace)
    if terms.writable:
        mounting = _can_mount(terms, context)
        shared = () if context.shared_home is None else (context.shared_home,)
        held = Sandbox(
            "bubblewrap" if terms.contained else context.sandbox,
            readable=(*SYSTEM_PATHS, *shared),
            writable=(workspace, *(_find_git_folders(workspace) if mounting else ())),
            hidden=hidden,
            network=terms.network,
            shown=around,
            mounts=context.mounts,
            replaced=tuple(_find_git_files(workspace, terms)) if mounting else (),
        )
        return context.view.widen(held)
    if context.sandbox == "none":
        raise DeniedError(
            "a command that runs without approval needs a sandbox, but the sandbox is off",
            rule="sandbox.none",
            hint="set security.sandbox to auto, or security.harmless_commands to false",
        )
    if terms.sweeps:
        hidden = (*hidden, *_find_secrets(workspace, context.security.secrets))
    held = Sandbox(
        context.sandbox,
        readable=(*_system_paths(context), workspace),
        hidden=hidden,
        network=False,
        narrow=True,
        required=True,
        shown=around,
        mounts=context.mounts,
    )
    return context.view.widen(held, writable=False)


@contextmanager
def open_home(
    env: Mapping[str, str], box: Sandbox, kind: str, context: ToolContext, support: SandboxSupport
) -> Iterator[tuple[dict[str, str], Sandbox]]:
    """Yield the environment and the sandbox of a command with a private home.

    Package managers find their caches in it.
    """
    with private_home.open_home(context.environ) as home:
        found = private_home.find_tool_variables(context.environ, env["PATH"])
        # Only bubblewrap has a /tmp of its own for the command.
        scratch = {} if kind == "bubblewrap" else {"TMPDIR": str(home / private_home.SCRATCH)}
        env = {**env, **found, "HOME": str(context.shared_home or home), **scratch}
        box = replace(box, writable=(*box.writable, home))
        if context.shared_home is None:
            own = context.home / CACHES / context.state.directory.name
            folders = CacheFolders(Path(context.environ.get("HOME") or "/"), own)
            box = folders.lay(box, home, layers=kind == "bubblewrap" and support.layers)
        yield env, box


def refuse_open_network(terms: Terms, enforced: Enforced) -> None:
    """Raise ``DeniedError`` if a command without approval could still use the network.

    Landlock blocks only TCP.
    """
    if not terms.writable and enforced.network != "blocked":
        raise DeniedError(
            "a command that runs without approval needs a sandbox without network, but "
            f"{enforced.kind} leaves it {enforced.network}",
            rule="sandbox.network",
            hint="install bubblewrap, or set security.harmless_commands to false",
        )


def describe_sandbox(enforced: Enforced, *, writable: bool) -> str:
    """Return a short description of the enforced sandbox, for the receipt."""
    if enforced.kind == "none":
        return "none"
    files = ("workspace" if writable else "read-only") if enforced.filesystem else "open"
    return f"{enforced.kind} fs={files} net={enforced.network}"


def explain_end(result: ProcessResult, timeout_s: float, context: ToolContext) -> str | None:
    """Return why a process failed; ``None`` if it succeeded."""
    if result.outcome == "cancelled":
        return f"stopped: {context.cancel.reason or 'it was cancelled'}"
    if result.outcome == "timed_out":
        return f"ended after the limit of {timeout_s:g} s"
    if result.unkillable:
        return "one of its processes cannot be ended"
    if result.signal is not None:
        return f"ended by signal {result.signal}"
    return None if result.exit_code == 0 else f"exit code {result.exit_code}"


def _system_paths(context: ToolContext) -> tuple[Path, ...]:
    """Return the system paths that programs need; of a forbidden /etc only the essential parts."""
    if "/etc" not in context.security.forbidden_paths:
        return SYSTEM_PATHS
    others = (path for path in SYSTEM_PATHS if path != Path("/etc"))
    return (*others, *(path for path in _ETC if path.exists()))


def _can_mount(terms: Terms, context: ToolContext) -> bool:
    """Return whether bubblewrap is used: Landlock cannot exclude a part of a writable path."""
    if terms.contained or context.support is None:
        return terms.contained
    return context.sandbox in {"auto", "bubblewrap"} and bool(context.support().bubblewrap)


def _find_git_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the git directory of the repository and those of its submodules.

    Each is mounted separately: a mount cannot be renamed and replaced by another directory.
    """
    own = workspace / ".git"
    if not own.is_dir() or own.is_symlink():
        return ()
    found = [own]
    modules = own / "modules"
    for folder, below, files in () if modules.is_symlink() else os.walk(modules):
        if "HEAD" in files:
            found.append(Path(folder))
            below[:] = [name for name in below if name == "modules"]
        if len(found) >= MAX_GIT_FOLDERS:
            break
    return tuple(found)


def _find_git_files(workspace: Path, terms: Terms) -> Iterable[tuple[Path, Path]]:
    """Return the files by which git runs programs outside of the sandbox, to mount read-only.

    Links are left out: a command may have created one, and its target would become visible.
    """
    found = [workspace / ".git"] if (workspace / ".git").is_file() else []
    for folder in _find_git_folders(workspace):
        # Otherwise a command could create the directory and put hooks there.
        with suppress(FileExistsError):
            (folder / "hooks").mkdir()
        names = ("hooks", *(() if terms.sets_git else ("config", "config.worktree")))
        found += [folder / name for name in names if (folder / name).exists()]
    return ((path, path) for path in found if not path.is_symlink())


@contextmanager
def keep_git_settings(terms: Terms, context: ToolContext) -> Iterator[None]:
    """Afterwards, remove a ``commondir`` or ``config.worktree`` that the command added to git.

    They could redirect settings or hooks. Existing files are mounted read-only; a missing file
    cannot be.
    """
    held = terms.writable and _can_mount(terms, context)
    names = ("commondir", *(() if terms.sets_git else ("config.worktree",)))
    missing = [
        folder / name
        for folder in (_find_git_folders(context.root.path) if held else ())
        for name in names
        if not os.path.lexists(folder / name)
    ]
    try:
        yield
    finally:
        for path in missing:
            # Git does not read a directory as settings.
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)


def _find_secrets(workspace: Path, secrets: SecretFiles) -> Iterator[Path]:
    """Yield the files with secrets, nearest to the top first, within the bounds."""
    if secrets.read == "allow":
        return
    waiting = [workspace]
    seen = found = 0
    for directory in waiting:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue  # the command cannot list it either
        for entry in entries:
            seen += 1
            if seen > MAX_SEARCHED or found >= MAX_FOUND:
                return
            if entry.is_dir(follow_symlinks=False):
                waiting += [Path(entry.path)] if entry.name not in _SKIPPED else []
            elif secrets.covers(entry.name):
                found += 1
                yield Path(entry.path)
