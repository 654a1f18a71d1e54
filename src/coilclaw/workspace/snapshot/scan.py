"""``Scan``: one walk over a tree, from open directory to open directory, following no link.

Files that the stat cache knows are not opened. Everything else is read once, hashed, and handed to
the spool. What vanishes during the walk is absent; what changes its type is looked at again.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, UsageError, explain_os_errors, quote_text
from coilclaw.workspace.git.object_format import (
    TREE,
    USUAL_MODES,
    Opaque,
    SnapshotManifest,
    encode_tree,
    git_mode,
)
from coilclaw.workspace.snapshot.fingerprint import Bounds, Digester, ScanTally
from coilclaw.workspace.snapshot.stat_cache import MARGIN_NS, Directory, StatCache, key_of, lasting
from coilclaw.workspace.tree.directory_entry import DIRECTORY, FILE, Changing, fault, open_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from coilclaw.workspace.git.object_format import Spool
    from coilclaw.workspace.snapshot.stat_cache import Key, Leaf, Remembered

LEFT_OUT: Final = (".runtime-cache/cortexpilot",)
"""Never part of a snapshot: the runtime root. The tree's own ``.git`` is fingerprinted."""


class Exclusion:
    """Paths that are left out with everything below them, or whatever a function says."""

    def __init__(self, rule: tuple[str, ...] | Callable[[str], bool]) -> None:
        self.named: tuple[str, ...] = ()
        if not callable(rule):
            self.named = tuple(sorted({_check_path(path) for path in rule}))
        self._paths = frozenset((*LEFT_OUT, *self.named))
        self._parents = frozenset("".join(path.rpartition("/")[:2]) for path in self._paths)
        self._says = rule if callable(rule) else None

    def covers(self, path: str) -> bool:
        """Whether a path is left out; its parents were asked about before."""
        return path in self._paths or (self._says is not None and self._says(path))

    def touches(self, prefix: str) -> bool:
        """Whether anything directly in this directory (a path with a slash) may be left out."""
        return self._says is not None or prefix in self._parents


def _check_path(path: str) -> str:
    """Return a path of the tree as a scan spells it."""
    trimmed = path.removeprefix("./").rstrip("/")
    if path.startswith("/") or not trimmed or {"", ".", ".."} & set(trimmed.split("/")):
        raise UsageError(
            f"{quote_text(path)} is not a path inside the tree that could be left out",
            rule="snapshot.exclude",
        )
    return trimmed


_USUAL: Final = frozenset(stat.S_IFREG | mode for mode in USUAL_MODES)

MAX_LOOKS: Final = 5
"""How often a name that keeps changing is read again."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What a scan found."""

    tree: bytes
    manifest: SnapshotManifest
    cache: StatCache
    """What to remember for the next scan."""
    changed: bool
    """Whether that differs from what was remembered before."""
    files: int
    read: int
    """How many files had to be read."""


@dataclass(slots=True)
class _Listing:
    """One directory being put together."""

    prefix: str
    """The path of the directory with a slash after it; empty for the root."""
    depth: int
    old: Remembered | None
    files: dict[str, Leaf] = field(default_factory=dict)
    subtrees: dict[str, bytes] = field(default_factory=dict)
    empty: bool = True

    def find_known_blob(self, name: str) -> bytes | None:
        """Return the blob that a name had the last time, which is stored."""
        return None if self.old is None else self.old.blob(name)


class Scan:
    """Use one object per walk."""

    def __init__(
        self,
        cache: StatCache,
        spool: Spool,
        *,
        exclude: tuple[str, ...] | Callable[[str], bool] = (),
        reread: bool = False,
        bounds: Bounds | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._old = cache
        self._spool = spool
        self._exclusion = Exclusion(exclude)
        self._reread = reread
        self._tally = ScanTally(bounds or Bounds())
        self._settled_ns = clock() - MARGIN_NS
        self._digester = Digester({} if reread else cache.digests, self._settled_ns, self._tally)
        self._directories: dict[str, bytes] = {}
        self._empty: list[str] = []
        self._opaque: dict[str, Opaque] = {}
        self._git: Mapping[str, str] = {}
        self._modes: dict[str, int] = {}

    def run(self, root: Path) -> Picture:
        """Walk the tree."""
        with explain_os_errors(f"open the directory {quote_text(str(root))}", rule="snapshot.root"):
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            tree = self._directory(descriptor, "", 0)[0] or self._spool.put(b"tree", b"")
        finally:
            os.close(descriptor)
        cache = StatCache(self._old.generation, "", self._directories, self._digester.found)
        changed = cache.directories != self._old.directories or cache.digests != self._old.digests
        empty, opaque = tuple(sorted(self._empty)), dict(sorted(self._opaque.items()))
        modes = dict(sorted(self._modes.items()))
        manifest = SnapshotManifest(empty, opaque, self._git, modes, self._exclusion.named)
        return Picture(tree, manifest, cache, changed, self._tally.files, self._tally.read_files)

    def _directory(self, descriptor: int, prefix: str, depth: int) -> tuple[bytes | None, bool]:
        """Walk an open directory; return its tree, and whether there is nothing at all in it."""
        old = self._old.directory(prefix)
        # What the cache says about the files, without those now left out.
        known: Mapping[str, Key] = {} if old is None or self._reread else old.keys
        if self._exclusion.touches(prefix):
            covers = self._exclusion.covers
            known = {name: key for name, key in known.items() if not covers(prefix + name)}
        found = self._look(descriptor, prefix)
        for name, key in found.items():
            if key[5] not in _USUAL and stat.S_ISREG(key[5]):
                path = prefix + name
                if path != ".git" and not self._exclusion.covers(path):
                    self._modes[path] = stat.S_IMODE(key[5])
        # The names of which both say the same.
        kept: Collection[str] = found.keys()
        if found != known:
            kept = {name for name, key in found.items() if known.get(name) == key}
        listing = _Listing(prefix, depth, old, empty=not kept)
        for name, key in found.items():
            if name not in kept:
                self._entry(descriptor, name, key, listing)
        self._tally.enter(prefix, depth, len(kept))
        self._tally.files += len(kept) + len(listing.files)
        if (
            old is not None
            and len(kept) == len(old.keys)
            and not listing.files
            and listing.subtrees == old.subtrees
        ):
            self._directories[prefix] = self._old.directories[prefix]
            return old.tree, listing.empty
        for name in kept:
            blob = listing.find_known_blob(name)
            assert blob is not None
            listing.files[name] = (known[name], blob)
        return self._finish(listing), listing.empty

    def _look(self, descriptor: int, prefix: str) -> Mapping[str, Key]:
        """List a directory with the keys of its entries."""
        limit = self._tally.room + 1
        found: dict[str, Key]
        try:
            try:
                found = _list_directory(descriptor, limit)
            except FileNotFoundError:
                found = {}  # something vanishes from it meanwhile
                with os.scandir(descriptor) as entries:
                    for entry in islice(entries, limit):
                        with suppress(FileNotFoundError):
                            found[entry.name] = key_of(entry.stat(follow_symlinks=False))
        except OSError as problem:
            raise fault(problem, prefix or ".") from problem
        self._tally.expect(prefix, len(found))
        return found

    def _entry(self, parent: int, name: str, key: Key, listing: _Listing) -> None:
        """Record one entry, whatever its type is by now."""
        path = listing.prefix + name
        if path != ".git" and self._exclusion.covers(path):
            listing.empty = False
            return
        self._tally.enter(path, listing.depth)
        for _ in range(MAX_LOOKS):
            try:
                self._take(parent, name, key, listing)
            except FileNotFoundError:
                return
            except Changing:
                pass
            except OSError as problem:
                if not isinstance(reason := fault(problem, path), Changing):
                    raise reason from problem
            else:
                listing.empty = False
                return
            try:
                key = key_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
            except FileNotFoundError:
                return
        raise _explain_changing(path)

    def _take(self, parent: int, name: str, key: Key, listing: _Listing) -> None:
        path = listing.prefix + name
        mode = key[5]
        if path == ".git":
            self._git = self._digester.own_git(parent, name)
        elif stat.S_ISREG(mode):
            listing.files[name] = self._file(parent, name, path, listing.find_known_blob(name))
        elif stat.S_ISLNK(mode):
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            blob = self._spool.put(b"blob", target, known=listing.find_known_blob(name))
            listing.files[name] = (lasting(key, self._settled_ns), blob)
        elif stat.S_ISDIR(mode) and name != ".git":
            with open_entry(parent, name, DIRECTORY) as descriptor:
                tree, empty = self._directory(descriptor, path + "/", listing.depth + 1)
            if tree is not None:
                listing.subtrees[name] = tree
            elif empty:
                # One that was removed while it was open looks empty too, and then this raises.
                os.stat(name, dir_fd=parent, follow_symlinks=False)
                self._empty.append(path)
                self._tally.enter_special(path)
        else:
            self._opaque[path] = self._opaque_entry(parent, name, mode, listing)
            self._tally.enter_special(path)

    def _file(self, parent: int, name: str, path: str, known: bytes | None) -> Leaf:
        with open_entry(parent, name, FILE) as descriptor:
            for look in range(MAX_LOOKS):
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise Changing(path)
                self._tally.read(path, status.st_size)
                if look:
                    os.lseek(descriptor, 0, os.SEEK_SET)
                blob = self._spool.put_file(descriptor, status.st_size, known=known)
                if blob is not None:
                    self._tally.read_files += 1
                    return lasting(key_of(status), self._settled_ns), blob
        raise _explain_changing(path)

    def _opaque_entry(self, parent: int, name: str, mode: int, listing: _Listing) -> Opaque:
        path = listing.prefix + name
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        form = stat.S_IFMT(status.st_mode)
        if form != stat.S_IFMT(mode):
            raise Changing(path)
        if form == stat.S_IFDIR:
            digest = self._digester.entry(parent, name, path, listing.depth)
            if digest is None:
                raise FileNotFoundError(path)
            return Opaque("repository", digest.hex())
        kind = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}.get(form, "device")
        return Opaque(kind, sha256(b"%o %d" % (form, status.st_rdev)).hexdigest())

    def _finish(self, listing: _Listing) -> bytes | None:
        """Make the tree of a directory that is not as it was, and remember it."""
        tree: bytes | None = None
        files = dict(sorted(listing.files.items()))
        if files or listing.subtrees:
            entries = {
                os.fsencode(name): (git_mode(key[5]), blob) for name, (key, blob) in files.items()
            }
            entries |= {os.fsencode(name): (TREE, sub) for name, sub in listing.subtrees.items()}
            old_tree = None if listing.old is None else listing.old.tree
            tree = self._spool.put(b"tree", encode_tree(entries), known=old_tree)
        subtrees = dict(sorted(listing.subtrees.items()))
        self._directories[listing.prefix] = Directory(files, subtrees, tree).encode(listing.prefix)
        return tree


def _list_directory(descriptor: int, limit: int) -> dict[str, Key]:
    """List a directory; this is where the scan of a tree without changes spends its time."""
    with os.scandir(descriptor) as entries:
        return {
            entry.name: (
                (status := entry.stat(follow_symlinks=False)).st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
                status.st_dev,
                status.st_mode,
            )
            for entry in islice(entries, limit)
        }


def _explain_changing(path: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{quote_text(path)} kept changing while it was read",
        rule="snapshot.changing",
        hint="take the snapshot when nothing writes to the tree",
    )
