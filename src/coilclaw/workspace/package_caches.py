"""Caches of package managers: what the user has downloaded can be used, and is never written.

Without network a command reads the user's caches through a layer of its own, where bubblewrap can
make one; otherwise those that work without being written are shown as they are. With network it
fills caches that belong to its workspace alone, and later commands there find them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace.confinement import Layer

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.workspace.confinement import Sandbox

CACHES: Final = (
    (".cache/pip", False),
    (".cache/uv", False),
    (".npm", False),
    (".cargo/registry", True),
    (".cargo/git", True),
    ("go/pkg/mod", True),
    (".cache/go-build", False),
    (".m2/repository", True),
    (".gradle/caches", False),
    (".gradle/wrapper", True),
)
"""Where they are in a home, and whether each is of use to a program that cannot write it."""


@dataclass(frozen=True, slots=True)
class CacheFolders:
    """The caches of the user, and those of one workspace."""

    user_home: Path
    own: Path

    def lay(self, sandbox: Sandbox, home: Path, *, layers: bool) -> Sandbox:
        """Link the caches into a private home, and return the sandbox in which the links lead on.

        ``layers`` is whether bubblewrap can put a layer over a directory.
        """
        for name, readable_alone in CACHES:
            theirs, own = self.user_home / name, self.own / name
            filled = _is_filled(own)
            if not sandbox.network and not filled and not os.path.isdir(theirs):
                continue
            if not sandbox.network and not layers and not filled and readable_alone:
                _link(home / name, theirs)
                sandbox = replace(sandbox, readable=(*sandbox.readable, theirs))
                continue
            _make(own)
            _link(home / name, own)
            if layers and not sandbox.network and os.path.isdir(theirs):
                layer = Layer((theirs, own), own)
                sandbox = replace(sandbox, layers=(*sandbox.layers, layer))
            else:
                sandbox = replace(sandbox, writable=(*sandbox.writable, own))
        return sandbox


def _is_filled(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot create the cache {folder}: {problem.strerror}", rule="sandbox.cache"
        ) from problem


def _link(link: Path, target: Path) -> None:
    _make(link.parent)
    try:
        link.symlink_to(target)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot prepare the cache {link}: {problem.strerror}", rule="sandbox.cache"
        ) from problem
