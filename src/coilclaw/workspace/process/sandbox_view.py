"""``SandboxView``: what every child sees: commands, agents, plugins, tests and servers.

All of them see the system's folders, the programs on PATH and their own work. The user's
configuration names what more they see; the rest of the machine is hidden.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.workspace.process.confinement import Sandbox

_ROOTS_OWN: Final = (
    *("shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssl/private"),
    *("security/opasswd", "krb5.keytab"),
)
"""Below /etc: what root alone may read, and a child of root could."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """What the user lets every child see beside the system, its tools and its own work."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()

    def widen(self, sandbox: Sandbox, *, writable: bool = True) -> Sandbox:
        """Return a sandbox with what the user named; without ``writable`` all of it is only read.

        What has gone since the configuration was read is left out.
        """
        write = tuple(path for path in self.write if path.exists())
        read = tuple(path for path in self.read if path.exists())
        if not writable:
            read, write = read + write, ()
        return replace(
            sandbox,
            readable=(*sandbox.readable, *read),
            hidden=(*sandbox.hidden, *find_private_files()),
            writable=(*sandbox.writable, *write),
        )


def find_private_files() -> tuple[Path, ...]:
    """Return what of the system a child may not read although it runs as root."""
    if os.geteuid() != 0:
        return ()
    etc = Path("/etc")
    named = (*(etc / name for name in _ROOTS_OWN), *etc.glob("ssh/ssh_host_*_key"))
    return tuple(path for path in named if path.exists())


def find_git_places(workspace: Path) -> tuple[Path, ...]:
    """Return what git reads outside of a workspace that is a worktree, or a part, of a repository.

    A ``.git`` file may have been written by a command, so that it counts only where the repository
    it leads to names this very worktree. Of a repository around the workspace, only ``.git`` is
    returned, and nothing if that is the user's whole home.
    """
    pointer = workspace / ".git"
    if os.path.lexists(pointer):
        return () if pointer.is_dir() else _find_common(pointer)
    home = os.path.realpath(os.path.expanduser("~"))
    for folder in workspace.parents:
        if Path(home).is_relative_to(folder):
            return ()
        above = folder / ".git"
        if above.is_dir():
            return (above,)
        if above.is_file():
            return (above, *_find_common(above))
    return ()


def _find_common(pointer: Path) -> tuple[Path, ...]:
    """Follow the ``.git`` file of a worktree to its repository, if that one leads back."""
    from coilclaw.workspace.git.repository import find_worktree, follow_pointer

    try:
        git_dir = follow_pointer(pointer)
    except UsageError:
        return ()
    leads_back = find_worktree(git_dir) == Path(os.path.realpath(pointer.parent))
    return (git_dir.parent.parent,) if leads_back and git_dir.parent.name == "worktrees" else ()
