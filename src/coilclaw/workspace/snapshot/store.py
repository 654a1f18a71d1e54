"""``SnapshotStore``: content-addressed pictures of a whole tree, and what lies between two.

The same content always gets the same id. Nothing of the tree's own repository has a say in what
is kept: no configuration, hook, filter, attribute, ignore rule or file system monitor.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ChangeKind,
    EntryType,
    EnvironmentFault,
    RegularFile,
    Symlink,
    UsageError,
    is_below,
    quote_text,
)
from coilclaw.workspace.git.object_format import (
    EMPTY_TREE,
    MAX_COMMIT_BYTES,
    Spool,
    decode_commit,
    encode_commit,
    object_id,
)
from coilclaw.workspace.git.object_store import ObjectStore
from coilclaw.workspace.snapshot import stat_cache
from coilclaw.workspace.snapshot.difference import difference, quote_headers
from coilclaw.workspace.snapshot.fingerprint import Bounds
from coilclaw.workspace.snapshot.scan import Scan
from coilclaw.workspace.snapshot.stat_cache import StatCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import FileState, TreeDiff
    from coilclaw.workspace.git.object_format import SnapshotManifest
    from coilclaw.workspace.snapshot.scan import Picture

__all__ = ["Bounds", "Snapshot", "SnapshotStore"]

RENAME_LIMIT: Final = 2000
"""Renames with changes are looked for among up to this many added times removed files.

Beyond it such a file is removed here and added there, which no rule about paths can tell apart
from a rename. Renames without changes are found among any number.
"""
SIMILARITY: Final = "50%"
MAX_LOADED: Final = 32
"""Snapshots whose lists are kept in memory."""
MIN_PREFIX: Final = 4
MAX_DIFF_BYTES: Final = 2**30
MAX_READ_BYTES: Final = 2**30
"""Most that one call of ``read`` brings into memory."""
MAX_ATTEMPTS: Final = 3
"""How often a snapshot is taken again because the store lost objects meanwhile."""
DIFF_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot in the store."""

    id: str
    tree: str
    """The git tree of its files and links: the one git itself would write for them."""
    files: int = field(default=0, compare=False)
    read: int = field(default=0, compare=False)
    """How many files had to be read to take it."""


_RENAMES: Final = (f"-M{SIMILARITY}", f"-l{RENAME_LIMIT}")
_COPIES: Final = (f"-C{SIMILARITY}", f"-l{RENAME_LIMIT}", "--find-copies-harder")
_ID: Final = re.compile(r"[0-9a-f]{40}")


class SnapshotStore:
    """Snapshots in a directory of our own, which is outside of every tree it keeps.

    Any number of processes may share it. A store serves several trees; each has its own stat cache.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bounds: Bounds | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.directory = directory
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._objects = ObjectStore(directory)
        self._loaded: dict[str, tuple[str, SnapshotManifest]] = {}
        """The snapshots that were looked at last; what has an id never changes."""

    def take(
        self,
        root: Path,
        *,
        exclude: tuple[str, ...] | Callable[[str], bool] = (),
        reread: bool = False,
    ) -> Snapshot:
        """Store a snapshot of the tree and return it.

        ``exclude`` names paths to leave out with everything below them, or says so of a path.
        ``reread`` reads every file whatever its times say: a process that runs meanwhile can change
        a file through a memory mapping without them moving.
        """
        store, tree = os.path.realpath(self.directory), os.path.realpath(root)
        if is_below(store, tree):
            raise UsageError(
                f"the snapshot store {self.directory} is inside the tree {root} it should keep",
                rule="snapshot.store_inside",
                hint="set COILCLAW_HOME to a directory outside of the tree",
            )
        self._objects.create()
        place = self._objects.own / f"stat-{hashlib.sha256(os.fsencode(tree)).hexdigest()[:32]}"
        for _ in range(MAX_ATTEMPTS):
            cache = self._cache(place)
            with Spool(self._objects.own) as spool:
                scan = Scan(
                    cache,
                    spool,
                    exclude=exclude,
                    reread=reread,
                    bounds=self._bounds,
                    clock=self._clock,
                )
                snapshot = self._keep(scan.run(root), spool, cache, place)
            if snapshot is not None:
                return snapshot
        raise EnvironmentFault(
            f"the snapshot store {self.directory} keeps losing objects", rule="snapshot.store"
        )

    def diff(self, a: str, b: str, *, copies: bool = False) -> TreeDiff:
        """Return what changed from one snapshot to another, sorted by path.

        A file that is at least half alike counts as renamed. ``copies`` also looks for copies,
        among all files of the first snapshot.
        """
        (old_tree, old), (new_tree, new) = self._load(a), self._load(b)
        raw = b""
        if old_tree != new_tree:
            detection = _COPIES if copies else _RENAMES
            raw = self._diff_tree(
                "-z", "--raw", "--no-abbrev", old_tree, new_tree, detection=detection
            )
        return difference(raw, old, new)

    def patch(self, a: str, b: str) -> bytes:
        """Return a git patch that turns the files and links of one snapshot into those of another.

        It is complete: binary contents, modes, full object ids. Opaque entries, empty directories
        and anything named ``.git``, which git would refuse to apply, are not in it.
        """
        old_tree, new_tree = self._load(a)[0], self._load(b)[0]
        # git cannot apply every rename between places where a file, a link and a directory swap.
        swapped = any(change.kind is ChangeKind.TYPE for change in self.diff(a, b))
        patch = self._diff_tree(
            *("--patch", "--binary", "--full-index", "--unified=3", "--diff-algorithm=myers"),
            *("--src-prefix=a/", "--dst-prefix=b/", old_tree, new_tree),
            *("--", ":(top,glob,exclude)**/.git"),
            detection=("--no-renames",) if swapped else _RENAMES,
        )
        return quote_headers(patch)

    def files(self, snapshot_id: str) -> Iterator[tuple[str, EntryType, str]]:
        """List all that a snapshot holds, sorted by path; empty directories and opaque entries too.

        The id is that of the blob, of the empty tree, or the digest of an opaque entry.
        """
        tree, manifest = self._load(snapshot_id)
        rows = [*self._objects.leaves(tree)]
        rows += [(path, EntryType.DIRECTORY, EMPTY_TREE.hex()) for path in manifest.empty]
        rows += [(path, EntryType.OPAQUE, item.digest) for path, item in manifest.opaque.items()]
        return iter(sorted(rows))

    def read(self, snapshot_id: str, paths: Sequence[str]) -> Mapping[str, FileState]:
        """Return what stands at each of the paths in a snapshot; ``None`` is nothing."""
        tree, manifest = self._load(snapshot_id)
        wanted = dict.fromkeys(paths)
        found: dict[str, tuple[EntryType, str]] = {}
        above = {*manifest.empty, *manifest.opaque}
        for path, kind, name in self._objects.leaves(tree) if wanted else ():
            above.update(path[:at] for at, char in enumerate(path) if char == "/")
            if path in wanted:
                found[path] = (kind, name)
        for path in above.intersection(wanted):
            raise UsageError(
                f"{quote_text(path)} is not a file in snapshot {snapshot_id}",
                rule="snapshot.not_a_file",
            )
        names = {name: None for _, name in found.values()}
        data = dict(self._objects.blobs(names, MAX_READ_BYTES))
        states: dict[str, FileState] = dict.fromkeys(wanted)
        for path, (kind, name) in found.items():
            executable = kind is EntryType.EXECUTABLE
            link = kind is EntryType.SYMLINK
            states[path] = Symlink(data[name]) if link else RegularFile(data[name], executable)
        return states

    def modes(self, snapshot_id: str) -> Mapping[str, int]:
        """Return the permission bits of the files whose bits git's two modes do not say."""
        return self._load(snapshot_id)[1].modes

    def list_excluded(self, snapshot_id: str) -> tuple[str, ...]:
        """Return what was left out when a snapshot was taken."""
        return self._load(snapshot_id)[1].excluded

    def exists(self, snapshot_id: str) -> bool:
        """Whether this is the full id of a snapshot that is kept."""
        return _ID.fullmatch(snapshot_id) is not None and self._objects.has_snapshot(snapshot_id)

    def resolve(self, prefix: str) -> str:
        """Return the one full id that starts like this."""
        if len(prefix) < MIN_PREFIX:
            raise UsageError(
                f"the snapshot id {quote_text(prefix)} is too short",
                rule="snapshot.prefix",
                hint=f"give at least {MIN_PREFIX} digits",
            )
        found = [name for name in self.list() if name.startswith(prefix)]
        if not found:
            raise self._unknown(prefix)
        if len(found) > 1:
            raise UsageError(
                f"{quote_text(prefix)} is the start of {len(found)} snapshots: "
                f"{', '.join(found[:5])}",
                rule="snapshot.ambiguous",
                hint="give more digits",
            )
        return found[0]

    def list(self) -> tuple[str, ...]:
        """Return the ids of all snapshots, the one kept first first."""
        return self._objects.snapshots()

    def _cache(self, place: Path) -> StatCache:
        """Load what is known about a root, if the store still holds all that it speaks of."""
        generation = self._objects.packs.generation()
        if generation is None:
            with self._objects.lock:
                # A process may have been joining packs a moment ago.
                generation = self._objects.packs.generation() or self._objects.packs.renew()
        cache = stat_cache.load(place)
        return cache if cache.generation == generation else StatCache(generation)

    def _keep(self, picture: Picture, spool: Spool, old: StatCache, place: Path) -> Snapshot | None:
        """Store what is new; ``None`` if what was thought to be stored is gone."""
        commit = encode_commit(picture.tree, picture.manifest)
        name = object_id(b"commit", commit).hex()
        known = name == old.snapshot and self._objects.has_snapshot(name)
        if not known or picture.changed:
            with self._objects.lock:
                if self._objects.packs.generation() != old.generation:
                    return None
                if not known:
                    spool.put(b"commit", commit)
                    self._objects.add(spool, old.generation)
                    self._objects.keep(name)
                stat_cache.save(place, replace(picture.cache, snapshot=name))
        return Snapshot(name, picture.tree.hex(), picture.files, picture.read)

    def _load(self, snapshot_id: str) -> tuple[str, SnapshotManifest]:
        if not self.exists(snapshot_id):
            raise self._unknown(snapshot_id)
        known = self._loaded.get(snapshot_id)
        if known is None:
            known = decode_commit(self._objects.commit(snapshot_id, MAX_COMMIT_BYTES), snapshot_id)
            if len(self._loaded) >= MAX_LOADED:
                self._loaded.clear()
            self._loaded[snapshot_id] = known
        return known

    def _diff_tree(self, *arguments: str, detection: tuple[str, ...]) -> bytes:
        command = ("diff-tree", "-r", *detection, "--no-color", "--no-ext-diff", "--no-textconv")
        return self._objects.git.run(
            *command, *arguments, timeout_s=DIFF_TIMEOUT_S, limit_bytes=MAX_DIFF_BYTES
        )

    def _unknown(self, text: str) -> UsageError:
        return UsageError(
            f"the snapshot {quote_text(text)} does not exist", rule="snapshot.unknown"
        )
