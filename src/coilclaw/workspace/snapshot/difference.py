"""What git says about two trees, put right: as a ``TreeDiff``, and as a patch."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.workspace.git.object_format import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coilclaw.workspace.git.object_format import SnapshotManifest

_HEADER: Final = re.compile(rb"^diff --git a/(.* /.*) b/\1$", re.MULTILINE)
"""A header that names one file, with a blank at the end of a directory, on both sides."""
_KINDS: Final = {
    b"A": ChangeKind.ADDED,
    b"D": ChangeKind.REMOVED,
    b"R": ChangeKind.RENAMED,
    b"C": ChangeKind.COPIED,
    b"T": ChangeKind.TYPE,
}
_Side: TypeAlias = tuple[EntryType, str | None, str]
"""What stands at a path: its type, its id, and what must be equal for the type to be the same."""
_DIRECTORY: Final[_Side] = (EntryType.DIRECTORY, None, "directory")


def parse_raw(raw: bytes) -> Iterator[TreeChange]:
    """Read what git writes with ``--raw -z --no-abbrev``."""
    fields = iter(raw.split(b"\0"))
    for head in filter(None, fields):
        old_mode, new_mode, old_id, new_id, state = head[1:].split(b" ")
        path, source = os.fsdecode(next(fields)), None
        if state[:1] in b"RC":
            source, path = path, os.fsdecode(next(fields))
        kind = _KINDS.get(state[:1], ChangeKind.MODIFIED)
        if state[:1] == b"M" and old_id == new_id:
            kind = ChangeKind.MODE
        old, new = _parse_side(old_mode, old_id), _parse_side(new_mode, new_id)
        yield _make_change(kind, path, old, new, source)


def difference(raw: bytes, old: SnapshotManifest, new: SnapshotManifest) -> TreeDiff:
    """Turn what ``git diff-tree -r -z --raw --no-abbrev`` wrote, and two manifests, into a diff.

    Where a path was one thing and is another, that is one change of type, also between a file and
    a directory, and such a path is not an end of a rename. An empty directory comes or goes only
    where no directory stood or stands: one that was merely filled or emptied is still there.
    """
    was: dict[str, _Side] = {}
    now: dict[str, _Side] = {}
    pairs: list[TreeChange] = []
    for change in parse_raw(raw):
        if change.old_path is not None:
            pairs.append(change)
        if change.old_type and change.kind is not ChangeKind.COPIED:
            was[change.old_path or change.path] = _make_side(change.old_type, change.old_id)
        if change.new_type:
            now[change.path] = _make_side(change.new_type, change.new_id)
    for manifest, other, found in ((old, new, was), (new, old, now)):
        for path, entry in manifest.opaque.items():
            if other.opaque.get(path) != entry:
                found[path] = (EntryType.OPAQUE, entry.digest, entry.kind)
        found |= dict.fromkeys(set(manifest.empty).difference(other.empty), _DIRECTORY)
    above_was, above_now = _find_ancestors(was), _find_ancestors(now)
    for path in above_was & now.keys():
        was.setdefault(path, _DIRECTORY)
    for path in above_now & was.keys():
        now.setdefault(path, _DIRECTORY)
    changes = [*_list_changes(was, now, pairs)]
    named = {path for change in changes for path in change.paths}
    # Files whose content is the same and whose permission bits are not.
    for path in {*old.modes, *new.modes} - named:
        if old.modes.get(path) != new.modes.get(path):
            file = EntryType.FILE
            changes.append(TreeChange(ChangeKind.MODE, path, old_type=file, new_type=file))
    changes.sort(key=lambda change: change.path)
    parts = sorted({*old.git, *new.git})
    git_changes = tuple(part for part in parts if old.git.get(part) != new.git.get(part))
    return TreeDiff(tuple(changes), git_changes)


def quote_headers(patch: bytes) -> bytes:
    """Quote names in the headers of a patch that git writes bare and then cannot read.

    They are those with a directory that ends in a blank. A line of content never looks like a
    header: in a hunk it starts with a mark, and in a binary patch it has no blanks.
    """
    return _HEADER.sub(rb'diff --git "a/\1" "b/\1"', patch)


def _parse_side(mode: bytes, name: bytes) -> _Side | None:
    if mode == b"000000":
        return None
    # Any other mode, such as that of a submodule, is something of which only an id is known.
    return _make_side(TYPES.get(mode, EntryType.OPAQUE), name.decode("ascii"))


def _make_side(kind: EntryType, name: str | None) -> _Side:
    return kind, name, "link" if kind is EntryType.SYMLINK else "file"


def _list_changes(
    was: dict[str, _Side], now: dict[str, _Side], pairs: list[TreeChange]
) -> Iterator[TreeChange]:
    paired: set[str] = set()
    for pair in pairs:
        moved = pair.kind is ChangeKind.RENAMED
        if pair.path not in was and not (moved and pair.old_path in now):
            paired.update(pair.paths if moved else (pair.path,))
            yield pair
    for path in {*was, *now}.difference(paired):
        old, new = was.get(path), now.get(path)
        if old is None or new is None:
            kind = ChangeKind.ADDED if old is None else ChangeKind.REMOVED
        elif old[2] != new[2]:
            kind = ChangeKind.TYPE
        elif old[1] != new[1]:
            kind = ChangeKind.MODIFIED
        elif old[0] is not new[0]:
            kind = ChangeKind.MODE
        else:
            continue
        yield _make_change(kind, path, old, new)


def _make_change(
    kind: ChangeKind, path: str, old: _Side | None, new: _Side | None, source: str | None = None
) -> TreeChange:
    (old_type, old_id, _), (new_type, new_id, _) = old or (None, None, ""), new or (None, None, "")
    return TreeChange(kind, path, source, old_type, new_type, old_id, new_id)


def _find_ancestors(paths: Iterable[str]) -> set[str]:
    """Return all directories above the paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found
