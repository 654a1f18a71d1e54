"""The sandbox of a command: what the terms of its verdict mean on this machine."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import DeniedError
from coilclaw.tools.secret_search import find_secrets
from coilclaw.workspace import private_home
from coilclaw.workspace.package_caches import CacheFolders
from coilclaw.workspace.sandbox import SYSTEM_PATHS, Sandbox
from coilclaw.workspace.sandbox_view import find_git_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coilclaw.security.judgement import Terms
    from coilclaw.tools.contract import ToolContext
    from coilclaw.workspace.sandbox import Enforced, SandboxSupport

CACHES: Final = "caches"
"""Below our home: the package caches of each workspace, which can be removed at any time."""
MAX_GIT_FOLDERS: Final = 256
_NEEDED: Final = ("/etc", "/sys", "/proc", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/")
"""Without these no program runs; who may name them is for the gate to say."""

_ETC: Final = tuple(
    Path("/etc", name)
    for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
)
"""The parts of /etc that programs cannot be without; none of them tells about anybody."""


def sandbox(terms: Terms, context: ToolContext) -> Sandbox:
    """Return what a command is held to, beside the private home that it gets."""
    workspace = context.root.path
    hidden = tuple(_hidden(context))
    around = find_git_places(workspace)
    if terms.writable:
        mounting = _can_mount(terms, context)
        held = Sandbox(
            "bubblewrap" if terms.contained else context.sandbox,
            writable=(workspace, *(_find_git_folders(workspace) if mounting else ())),
            hidden=hidden,
            network=terms.network,
            shown=around,
            mounts=context.mounts,
            replaced=tuple(_find_git_files(workspace, terms)) if mounting else (),
        )
        shared = context.shared_home
        if shared is not None:
            held = replace(held, readable=(*held.readable, shared))
        return context.view.widen(held)
    if context.sandbox == "none":
        raise DeniedError(
            "a command that runs without being asked about needs a sandbox, and there is none",
            rule="sandbox.none",
            hint="set security.sandbox to auto, or security.harmless_commands to false",
        )
    if terms.sweeps:
        hidden = (*hidden, *find_secrets(workspace, context.security.secrets))
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


def at_home(env: Mapping[str, str], home: Path, kind: str, context: ToolContext) -> dict[str, str]:
    """Return an environment with a directory as the home of a command."""
    found = private_home.find_tool_variables(context.environ, env["PATH"])
    # Only bubblewrap has a /tmp that is the command's own.
    scratch = {} if kind == "bubblewrap" else {"TMPDIR": str(home / private_home.SCRATCH)}
    return {**env, **found, "HOME": str(context.shared_home or home), **scratch}


def with_home(
    box: Sandbox, home: Path, context: ToolContext, support: SandboxSupport, kind: str
) -> Sandbox:
    """Return a sandbox with a private home, in which package managers find their caches."""
    box = replace(box, writable=(*box.writable, home))
    if context.shared_home is not None:
        return box
    own = context.home / CACHES / context.state.directory.name
    folders = CacheFolders(Path(context.environ.get("HOME") or "/"), own)
    return folders.lay(box, home, layers=kind == "bubblewrap" and support.layers)


def refuse_open_network(terms: Terms, enforced: Enforced) -> None:
    """Landlock blocks TCP alone: a command that nobody was asked about could still send."""
    if not terms.writable and enforced.network != "blocked":
        raise DeniedError(
            "a command that runs without being asked about needs a sandbox without network, and "
            f"{enforced.kind} leaves it {enforced.network}",
            rule="sandbox.network",
            hint="install bubblewrap, or set security.harmless_commands to false",
        )


def described(enforced: Enforced, *, writable: bool) -> str:
    """Say in a few words what really held, for the receipt."""
    if enforced.kind == "none":
        return "none"
    files = ("workspace" if writable else "read-only") if enforced.filesystem else "open"
    return f"{enforced.kind} fs={files} net={enforced.network}"


def _system_paths(context: ToolContext) -> tuple[Path, ...]:
    """What programs need; of a forbidden /etc only the parts that they cannot be without."""
    if "/etc" not in context.security.forbidden_paths:
        return SYSTEM_PATHS
    others = (path for path in SYSTEM_PATHS if path != Path("/etc"))
    return (*others, *(path for path in _ETC if path.exists()))


def _hidden(context: ToolContext) -> Iterable[Path]:
    """Our state and forbidden places, each once, as far as they are there."""
    named = (str(context.home), *context.security.own_paths, *context.security.forbidden_paths)
    seen = {os.path.realpath(path) for path in named}
    for path in sorted(seen):
        if path not in _NEEDED and os.path.lexists(path):
            yield Path(path)


def _can_mount(terms: Terms, context: ToolContext) -> bool:
    """Whether bubblewrap holds the command: Landlock cannot keep a part of what is writable."""
    if terms.contained or context.support is None:
        return terms.contained
    return context.sandbox in {"auto", "bubblewrap"} and bool(context.support().bubblewrap)


def _find_git_folders(workspace: Path) -> tuple[Path, ...]:
    """Return the repository's own folder and those of its submodules.

    Each is mounted by itself: nothing renames a mount, so that no other folder takes its place.
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
    """What makes git run programs outside of the sandbox, each read-only in its own place.

    A link is left out: a command may have made it, and what it leads to would be shown.
    """
    found = [workspace / ".git"] if (workspace / ".git").is_file() else []
    for folder in _find_git_folders(workspace):
        # Without one a command could make it, and put hooks there.
        with suppress(FileExistsError):
            (folder / "hooks").mkdir()
        names = ("hooks", *(() if terms.sets_git else ("config", "config.worktree")))
        found += [folder / name for name in names if (folder / name).exists()]
    return ((path, path) for path in found if not path.is_symlink())


@contextmanager
def keep_git_settings(terms: Terms, context: ToolContext) -> Iterator[None]:
    """Remove what a command made in git's folders that leads git to other settings and hooks.

    What is not there cannot be mounted read-only.
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
            # Git reads no folder as its settings.
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
