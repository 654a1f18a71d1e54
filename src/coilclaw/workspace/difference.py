"""What git says about two trees, put right: as a ``TreeDiff``, and as a patch."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treediff import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.workspace.treefile import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coilclaw.workspace.treefile import Manifest

_HEADER: Final = re.compile(rb"^diff --git (a/.*)$", re.MULTILINE)
_PAIRS: Final = {b"R": ChangeKind.RENAMED, b"C": ChangeKind.COPIED}


@dataclass(frozen=True, slots=True)
class _Side:
    """What stands at a path in one of the two trees."""

    type: EntryType
    id: str | None
    form: str
    """What must be equal for it not to be a change of type."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A rename or copy that git found."""

    kind: ChangeKind
    source: str
    old: _Side
    target: str
    new: _Side


@dataclass(slots=True)
class _Sides:
    """All paths that differ: what they were, and what they are."""

    old: dict[str, _Side] = field(default_factory=dict)
    new: dict[str, _Side] = field(default_factory=dict)
    pairs: list[_Pair] = field(default_factory=list)


def difference(raw: bytes, old: Manifest, new: Manifest) -> TreeDiff:
    """Turn what ``git diff-tree -r -z --raw --no-abbrev`` wrote, and two manifests, into a diff.

    Where a path was one thing and is another, that is one change of type, also between a file and
    a directory, and such a path is no end of a rename. An empty directory comes or goes only where
    no directory stood or stands: one that was merely filled or emptied is still there.
    """
    sides = _read_raw(raw)
    _add_manifests(sides, old, new)
    was = _ancestors(sides.old)
    now = _ancestors(sides.new)
    directory = _Side(EntryType.DIRECTORY, None, "directory")
    for path in was & sides.new.keys():
        sides.old.setdefault(path, directory)
    for path in now & sides.old.keys():
        sides.new.setdefault(path, directory)
    found = [*_changes(sides)]
    found += _permissions(old, new, {path for change in found for path in change.paths})
    changes = sorted(found, key=lambda change: change.path)
    parts = sorted({*old.git, *new.git})
    git_changes = tuple(part for part in parts if old.git.get(part) != new.git.get(part))
    return TreeDiff(tuple(changes), git_changes)


def _permissions(old: Manifest, new: Manifest, named: set[str]) -> Iterator[TreeChange]:
    """Files whose content is the same and whose permission bits are not."""
    for path in {*old.modes, *new.modes} - named:
        if old.modes.get(path) != new.modes.get(path):
            kind = EntryType.FILE
            yield TreeChange(ChangeKind.MODE, path, old_type=kind, new_type=kind)


def quoted_headers(patch: bytes) -> bytes:
    """Quote names in the headers of a patch that git writes bare and then cannot read.

    They are those with a directory that ends in a blank. A line of content never looks like a
    header: in a hunk it starts with a mark, and in a binary patch it has no blanks.
    """
    return _HEADER.sub(_requoted, patch)


def _requoted(header: re.Match[bytes]) -> bytes:
    names = header[1]
    size = (len(names) - len(b"a/ b/")) // 2
    name = names[2 : 2 + size]
    if b" /" in name and names == b"a/%s b/%s" % (name, name):
        return b'diff --git "a/%s" "b/%s"' % (name, name)
    return header[0]


def _read_raw(raw: bytes) -> _Sides:
    sides = _Sides()
    fields = iter(raw.split(b"\0"))
    for head in fields:
        if not head:
            continue
        old_mode, new_mode, old_id, new_id, state = head[1:].split(b" ")
        path = target = os.fsdecode(next(fields))
        old, new = _side(old_mode, old_id), _side(new_mode, new_id)
        kind = _PAIRS.get(state[:1])
        if kind is not None and old is not None and new is not None:
            target = os.fsdecode(next(fields))
            sides.pairs.append(_Pair(kind, path, old, target, new))
        if old is not None and kind is not ChangeKind.COPIED:
            sides.old[path] = old
        if new is not None:
            sides.new[target] = new
    return sides


def _side(mode: bytes, name: bytes) -> _Side | None:
    if mode == b"000000":
        return None
    kind = TYPES[mode]
    return _Side(kind, name.decode("ascii"), "link" if kind is EntryType.SYMLINK else "file")


def _add_manifests(sides: _Sides, old: Manifest, new: Manifest) -> None:
    for manifest, other, found in ((old, new, sides.old), (new, old, sides.new)):
        for path, entry in manifest.opaque.items():
            if other.opaque.get(path) != entry:
                found[path] = _Side(EntryType.OPAQUE, entry.digest, entry.kind)
        for path in set(manifest.empty).difference(other.empty):
            found[path] = _Side(EntryType.DIRECTORY, None, "directory")


def _changes(sides: _Sides) -> Iterator[TreeChange]:
    paired = set()
    for pair in sides.pairs:
        moved = pair.kind is ChangeKind.RENAMED
        if pair.target not in sides.old and not (moved and pair.source in sides.new):
            paired.add(pair.target)
            if moved:
                paired.add(pair.source)
            yield _change(pair.kind, pair.target, pair.old, pair.new, pair.source)
    for path in {*sides.old, *sides.new}.difference(paired):
        old, new = sides.old.get(path), sides.new.get(path)
        kind = _kind(old, new)
        if kind is not None:
            yield _change(kind, path, old, new)


def _kind(old: _Side | None, new: _Side | None) -> ChangeKind | None:
    if old is None:
        return ChangeKind.ADDED
    if new is None:
        return ChangeKind.REMOVED
    if old.form != new.form:
        return ChangeKind.TYPE
    if old.id != new.id:
        return ChangeKind.MODIFIED
    return None if old.type is new.type else ChangeKind.MODE


def _change(
    kind: ChangeKind, path: str, old: _Side | None, new: _Side | None, source: str | None = None
) -> TreeChange:
    return TreeChange(
        kind,
        path,
        old_path=source,
        old_type=None if old is None else old.type,
        new_type=None if new is None else new.type,
        old_id=None if old is None else old.id,
        new_id=None if new is None else new.id,
    )


def _ancestors(paths: Iterable[str]) -> set[str]:
    """All directories above the paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found
