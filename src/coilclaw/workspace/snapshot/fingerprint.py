"""Digests of git directories, of which a snapshot keeps no content."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, quote_text
from coilclaw.workspace.snapshot.stat_cache import key_of, lasting
from coilclaw.workspace.tree.directory_entry import DIRECTORY, FILE, Changing, fault, open_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace.snapshot.stat_cache import Leaf

_EXCLUDE: Final = "exclude directories that need not be kept"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a scan; it raises beyond any of them."""

    entries: int = 2_000_000
    special: int = 200_000
    """Empty directories and opaque entries."""
    depth: int = 200
    """Each level holds one descriptor open while the levels below it are walked."""
    file_bytes: int = 4 * 2**30
    read_bytes: int = 64 * 2**30
    """Most that one scan reads of new and changed files."""


class ScanTally:
    """Counts, and raises when a bound is passed."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.entries = 0
        self.special = 0
        self.files = 0
        self.read_files = 0
        self.read_bytes = 0

    @property
    def room(self) -> int:
        """How many more entries there may be."""
        return self._bounds.entries - self.entries

    def enter(self, path: str, depth: int, more: int = 1) -> None:
        """Count entries; ``path`` is where they were met."""
        self.entries += more
        self.expect(path, 0)
        if depth > self._bounds.depth:
            what = f"{quote_text(path)} is more than {self._bounds.depth} directories deep"
            raise EnvironmentFault(what, rule="snapshot.depth")

    def expect(self, path: str, more: int) -> None:
        """Raise if that many more entries exceed the bound, before they take memory."""
        if more > self.room:
            most = self._bounds.entries
            what = f"the tree has more than {most} entries, up to {quote_text(path)}"
            raise EnvironmentFault(what, rule="snapshot.entries", hint=_EXCLUDE)

    def enter_special(self, path: str) -> None:
        """Count an empty directory or an opaque entry."""
        self.special += 1
        if self.special > self._bounds.special:
            most = f"{self._bounds.special} empty directories and special files"
            what = f"the tree has more than {most}; the last was {quote_text(path)}"
            raise EnvironmentFault(what, rule="snapshot.special")

    def read(self, path: str, size: int) -> None:
        """Count the bytes of a file that is about to be read."""
        self.read_bytes += size
        if size > self._bounds.file_bytes:
            what = f"{quote_text(path)} holds {size} bytes, more than {self._bounds.file_bytes}"
            raise EnvironmentFault(what, rule="snapshot.file_bytes", hint="exclude it")
        if self.read_bytes > self._bounds.read_bytes:
            read = self._bounds.read_bytes
            what = f"more than {read} bytes have to be read; the last file was {quote_text(path)}"
            raise EnvironmentFault(what, rule="snapshot.read_bytes", hint=_EXCLUDE)


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
"""The name for a ``.git`` that is not a directory: a worktree's file, or a link."""

_CHUNK: Final = 2**20
_QUIET: Final = frozenset(("modules", "worktrees"))
# The git directories below those two change in these places whenever git only looks at them.
_NOISE: Final = frozenset(
    ("objects", "logs", "index", "COMMIT_EDITMSG", "FETCH_HEAD", "MERGE_MSG", "ORIG_HEAD")
)


class Digester:
    """Digests names, types, modes and bytes. A file whose key is known is not read again."""

    def __init__(self, known: Mapping[str, Leaf], settled_ns: int, tally: ScanTally) -> None:
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
                with open_entry(parent, name, DIRECTORY) as descriptor:
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
            mode = status.st_mode
            if stat.S_ISDIR(mode):
                with open_entry(parent, name, DIRECTORY) as descriptor:
                    payload = self._directory(descriptor, path, depth, quiet=quiet)
            elif stat.S_ISREG(mode):
                payload = self._file(parent, name, path, status)
            elif stat.S_ISLNK(mode):
                payload = os.fsencode(os.readlink(name, dir_fd=parent))
            else:
                payload = b"%d" % status.st_rdev
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise fault(problem, path) from problem
        return sha256(b"%o\0%s" % (mode, payload)).digest()

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
        with open_entry(parent, name, FILE) as descriptor:
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
        found = {one: self._member(descriptor, path, one.split("/"), quiet) for one in members}
        rows = [b"%s\0%s" % (os.fsencode(one), row) for one, row in found.items() if row]
        return sha256(b"".join(rows)).digest() if rows else None

    def _member(self, parent: int, path: str, names: list[str], quiet: bool) -> bytes | None:
        """Digest a path inside ``.git``, or whatever stands in its way (a link, say)."""
        name, *rest = names
        path = f"{path}/{name}"
        if not rest:
            return self.entry(parent, name, path, 1, quiet=quiet)
        try:
            with open_entry(parent, name, DIRECTORY) as descriptor:
                return self._member(descriptor, path, rest, quiet)
        except FileNotFoundError:
            return None
        except OSError as problem:
            if isinstance(reason := fault(problem, path), Changing):
                return self.entry(parent, name, path, 1, quiet=quiet)
            raise reason from problem
