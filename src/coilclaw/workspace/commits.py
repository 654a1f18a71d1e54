"""What an index or a commit changes, as git records it: a ``TreeDiff`` and the contents of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treediff import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.workspace.repository import MAX_LISTING_BYTES, checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coilclaw.workspace.repository import Repository

MAX_COMMITS: Final = 2000
"""Most commits that are looked at one by one."""
MAX_BLOB_BYTES: Final = 16 * 2**20
"""Largest content that is read."""
MAX_CONTENT_BYTES: Final = 2**29
_DETECTION: Final = ("-C50%", "-l2000", "--find-copies-harder")
_TYPES: Final = {
    "100644": EntryType.FILE,
    "100755": EntryType.EXECUTABLE,
    "120000": EntryType.SYMLINK,
}
"""Any other mode, such as that of a submodule, is something of which only an id is known."""
_ABSENT: Final = "000000"
_KINDS: Final = {
    "A": ChangeKind.ADDED,
    "D": ChangeKind.REMOVED,
    "R": ChangeKind.RENAMED,
    "C": ChangeKind.COPIED,
    "T": ChangeKind.TYPE,
}
_CONTENT: Final = frozenset({EntryType.FILE, EntryType.EXECUTABLE})


@dataclass(frozen=True, slots=True)
class Contents:
    """What changed files held and hold; ``None`` where there is no file."""

    old: Mapping[str, bytes | None]
    new: Mapping[str, bytes | None]
    large: frozenset[str]
    """Paths whose contents are too large to be read."""


def staged(repository: Repository, variables: Mapping[str, str]) -> TreeDiff:
    """What a commit of the index would change; ``variables`` may name another index."""
    raw = repository.git.run(
        "diff-index",
        "--cached",
        "--raw",
        "-z",
        "--no-abbrev",
        *_DETECTION,
        "HEAD",
        variables=variables,
        limit_bytes=MAX_LISTING_BYTES,
    )
    return TreeDiff(tuple(_changes(raw)))


def index_paths(repository: Repository, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Every path of the index."""
    listing = repository.git.run(
        "ls-files", "-z", "--cached", variables=variables, limit_bytes=MAX_LISTING_BYTES
    )
    return tuple(os.fsdecode(name) for name in listing.split(b"\0") if name)


def new_commits(repository: Repository, tip: str, known: Sequence[str]) -> tuple[str, ...]:
    """The commits of a history that are not in any of the known ones, oldest first.

    One more than ``MAX_COMMITS`` of them at most.
    """
    orders = "".join(f"{line}\n" for line in (checked(tip), *(f"^{one}" for one in known)))
    listing = repository.git.run(
        "rev-list",
        "--reverse",
        "--topo-order",
        f"--max-count={MAX_COMMITS + 1}",
        "--stdin",
        stdin=orders.encode("ascii"),
        limit_bytes=MAX_LISTING_BYTES,
    )
    return tuple(listing.decode("ascii").split())


def committed(repository: Repository, commit: str) -> TreeDiff:
    """What a commit changes; of a merge, only what it has from none of its parents."""
    said = repository.git.run("rev-parse", f"{checked(commit)}^@")
    parents = said.decode("ascii").split()
    if len(parents) == 1:
        return TreeDiff(tuple(_between(repository, parents[0], commit, _DETECTION)))
    if not parents:
        listing = ("diff-tree", "--root", "--no-commit-id", "-r", "--raw", "-z", "--no-abbrev")
        raw = repository.git.run(*listing, commit, limit_bytes=MAX_LISTING_BYTES)
        return TreeDiff(tuple(_changes(raw)))
    sides = [
        {change.path: change for change in _between(repository, parent, commit, ("--no-renames",))}
        for parent in parents
    ]
    own = set.intersection(*(set(side) for side in sides))
    return TreeDiff(tuple(sides[0][path] for path in sorted(own)))


def contents(repository: Repository, diff: TreeDiff) -> Contents:
    """Read what a difference is about."""
    old = {
        change.old_path or change.path: change.old_id
        for change in diff
        if change.old_type in _CONTENT and change.old_id
    }
    new = {c.path: c.new_id for c in diff if c.new_type in _CONTENT and c.new_id}
    sizes = _sizes(repository, {*old.values(), *new.values()})
    few = {blob for blob, size in sizes.items() if size <= MAX_BLOB_BYTES}
    data = _read(repository, sorted(few), sum(sizes[blob] + 200 for blob in few))
    large = {path for side in (old, new) for path, blob in side.items() if blob not in data}
    paths = {path for change in diff for path in change.paths}
    return Contents(
        {path: data.get(old.get(path, "")) for path in paths},
        {path: data.get(new.get(path, "")) for path in paths},
        frozenset(large),
    )


def _between(
    repository: Repository, old: str, new: str, detection: Iterable[str]
) -> Iterator[TreeChange]:
    raw = repository.git.run(
        "diff-tree",
        "-r",
        "--raw",
        "-z",
        "--no-abbrev",
        *detection,
        old,
        new,
        limit_bytes=MAX_LISTING_BYTES,
    )
    return _changes(raw)


def _changes(raw: bytes) -> Iterator[TreeChange]:
    """Read what git writes with ``--raw -z --no-abbrev``."""
    fields = iter(raw.split(b"\0"))
    for head in fields:
        if not head:
            continue
        words = head[1:].decode("ascii").split(" ")
        old_mode, new_mode, old_id, new_id, state = words
        path = os.fsdecode(next(fields))
        source = None
        if state[0] in "RC":
            source, path = path, os.fsdecode(next(fields))
        old, new = _type(old_mode), _type(new_mode)
        kind = _KINDS.get(state[0], ChangeKind.MODIFIED)
        if state[0] == "M" and old_id == new_id:
            kind = ChangeKind.MODE
        yield TreeChange(
            kind,
            path,
            old_path=source,
            old_type=old,
            new_type=new,
            old_id=None if old is None else old_id,
            new_id=None if new is None else new_id,
        )


def _type(mode: str) -> EntryType | None:
    return None if mode == _ABSENT else _TYPES.get(mode, EntryType.OPAQUE)


def _sizes(repository: Repository, blobs: set[str]) -> dict[str, int]:
    if not blobs:
        return {}
    asked = "".join(f"{blob}\n" for blob in sorted(blobs)).encode("ascii")
    listing = repository.git.run(
        "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked,
        limit_bytes=MAX_LISTING_BYTES,
    )  # fmt: skip
    rows = [row.split(" ") for row in listing.decode("ascii").splitlines()]
    return {name: int(size) for name, size in rows if size.isdigit()}


def _read(repository: Repository, blobs: Sequence[str], total: int) -> dict[str, bytes]:
    if not blobs or total > MAX_CONTENT_BYTES:
        return {}
    asked = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
    answer = repository.git.run("cat-file", "--batch", stdin=asked, limit_bytes=total)
    found: dict[str, bytes] = {}
    at = 0
    for blob in blobs:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split(b" ")[2])
        found[blob] = answer[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
    return found
