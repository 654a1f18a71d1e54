"""Digests of git directories, of which a snapshot keeps no content."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.workspace.openat import DIRECTORY, FILE, Changing, fault, opened
from coilclaw.workspace.statcache import key_of, lasting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace.statcache import Leaf
    from coilclaw.workspace.tally import Tally

GIT_PARTS: Final = {
    "attributes": (
        "info/attributes",
        "info/exclude",
        "info/grafts",
        "info/sparse-checkout",
        "objects/info/alternates",
        "objects/info/http-alternates",
        "shallow",
    ),
    "config": ("config", "config.worktree", "commondir", "gitdir"),
    "hooks": ("hooks",),
    "modules": ("modules",),
    "refs": ("HEAD", "packed-refs", "refs", "reftable"),
    "worktrees": ("worktrees",),
}
"""What of the tree's own ``.git`` is watched, and the name under which a change is reported."""

POINTER: Final = "pointer"
"""The name for a ``.git`` that is no directory: a worktree's file, or a link."""

_CHUNK: Final = 2**20
_QUIET: Final = frozenset(("modules", "worktrees"))
# The git directories below those two change in these places whenever somebody only looks at them.
_NOISE: Final = frozenset(
    ("objects", "logs", "index", "COMMIT_EDITMSG", "FETCH_HEAD", "MERGE_MSG", "ORIG_HEAD")
)


class Digester:
    """Digests names, types, modes and bytes. A file whose key is known is not read again."""

    def __init__(self, known: Mapping[str, Leaf], settled_ns: int, tally: Tally) -> None:
        self._known = known
        self._settled_ns = settled_ns
        self._tally = tally
        self.found: dict[str, Leaf] = {}

    def own_git(self, parent: int, name: str) -> dict[str, str]:
        """Return the digest of each watched part of the tree's own ``.git`` that is there."""
        digests: dict[str, bytes | None] = {}
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                with opened(parent, name, DIRECTORY) as descriptor:
                    for part, members in GIT_PARTS.items():
                        digests[part] = self._members(descriptor, name, members, part in _QUIET)
            else:
                digests[POINTER] = self.entry(parent, name, name, 1)
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise fault(problem, name) from problem
        return {part: digest.hex() for part, digest in digests.items() if digest is not None}

    def entry(
        self, parent: int, name: str, path: str, depth: int, *, quiet: bool = False
    ) -> bytes | None:
        """Return the digest of whatever stands at a name, or ``None`` for nothing.

        ``quiet`` leaves out of every git directory below it what changes when it is merely used.
        """
        self._tally.enter(path, depth)
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            payload = self._payload(parent, name, path, depth, status, quiet=quiet)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise fault(problem, path) from problem
        return sha256(b"%o\0%s" % (status.st_mode, payload)).digest()

    def _payload(
        self, parent: int, name: str, path: str, depth: int, status: os.stat_result, *, quiet: bool
    ) -> bytes:
        if stat.S_ISDIR(status.st_mode):
            with opened(parent, name, DIRECTORY) as descriptor:
                return self._directory(descriptor, path, depth, quiet=quiet)
        if stat.S_ISREG(status.st_mode):
            return self._file(parent, name, path, status)
        if stat.S_ISLNK(status.st_mode):
            return os.fsencode(os.readlink(name, dir_fd=parent))
        return b"%d" % status.st_rdev

    def _directory(self, descriptor: int, path: str, depth: int, *, quiet: bool) -> bytes:
        names = sorted(os.listdir(descriptor), key=os.fsencode)
        skipped = _NOISE if quiet and "HEAD" in names else frozenset()
        total = sha256()
        for name in names:
            if name in skipped:
                continue
            digest = self.entry(descriptor, name, f"{path}/{name}", depth + 1, quiet=quiet)
            if digest is not None:
                total.update(b"%s\0%s" % (os.fsencode(name), digest))
        return total.digest()

    def _file(self, parent: int, name: str, path: str, status: os.stat_result) -> bytes:
        known = self._known.get(path)
        if known is not None and known[0] == key_of(status):
            self.found[path] = known
            return known[1]
        with opened(parent, name, FILE) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Changing(path)
            self._tally.read(path, status.st_size)
            total = sha256()
            while data := os.read(descriptor, _CHUNK):
                total.update(data)
        self._tally.read_files += 1
        self.found[path] = (lasting(key_of(status), self._settled_ns), total.digest())
        return total.digest()

    def _members(
        self, descriptor: int, path: str, members: tuple[str, ...], quiet: bool
    ) -> bytes | None:
        total = sha256()
        some = False
        for member in members:
            digest = self._member(descriptor, path, member.split("/"), quiet)
            if digest is not None:
                total.update(b"%s\0%s" % (os.fsencode(member), digest))
                some = True
        return total.digest() if some else None

    def _member(self, parent: int, path: str, names: list[str], quiet: bool) -> bytes | None:
        """Digest a path inside ``.git``, or whatever stands in its way (a link, say)."""
        name, *rest = names
        path = f"{path}/{name}"
        if not rest:
            return self.entry(parent, name, path, 1, quiet=quiet)
        try:
            with opened(parent, name, DIRECTORY) as descriptor:
                return self._member(descriptor, path, rest, quiet)
        except FileNotFoundError:
            return None
        except OSError as problem:
            if isinstance(reason := fault(problem, path), Changing):
                return self.entry(parent, name, path, 1, quiet=quiet)
            raise reason from problem
