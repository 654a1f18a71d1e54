"""What an index or a commit changes, as git records it: a ``TreeDiff`` and the contents of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EntryType, TreeDiff
from coilclaw.workspace.git.client import MAX_LISTING_BYTES
from coilclaw.workspace.git.object_store import check_objects, read_objects
from coilclaw.workspace.git.repository import check_commit_id
from coilclaw.workspace.snapshot.difference import parse_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import TreeChange
    from coilclaw.workspace.git.repository import Repository

MAX_COMMITS: Final = 2000
"""Most commits that are looked at one by one."""
MAX_BLOB_BYTES: Final = 16 * 2**20
"""Largest content that is read."""
MAX_CONTENT_BYTES: Final = 2**29
_DETECTION: Final = ("-C50%", "-l2000", "--find-copies-harder")
_RAW: Final = ("--raw", "-z", "--no-abbrev")
_CONTENT: Final = frozenset({EntryType.FILE, EntryType.EXECUTABLE})


@dataclass(frozen=True, slots=True)
class Contents:
    """What changed files held and hold; ``None`` where there is not one."""

    old: Mapping[str, bytes | None]
    new: Mapping[str, bytes | None]
    large: frozenset[str]
    """Paths whose contents are too large to be read."""


def diff_index(repository: Repository, variables: Mapping[str, str]) -> TreeDiff:
    """Return what a commit of the index would change; ``variables`` may name another index."""
    listing = ("diff-index", "--cached", *_RAW, *_DETECTION, "HEAD")
    raw = repository.git.run(*listing, variables=variables, limit_bytes=MAX_LISTING_BYTES)
    return TreeDiff(tuple(parse_raw(raw)))


def index_paths(repository: Repository, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return every path of the index."""
    return repository.git.list_names("ls-files", "-z", "--cached", variables=variables)


def new_commits(repository: Repository, tip: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the commits of a history that no known one contains, oldest first.

    At most ``MAX_COMMITS`` and one more are listed.
    """
    orders = "".join(f"{line}\n" for line in (check_commit_id(tip), *(f"^{one}" for one in known)))
    options = ("--reverse", "--topo-order", f"--max-count={MAX_COMMITS + 1}", "--stdin")
    listing = repository.git.run(
        "rev-list", *options, stdin=orders.encode("ascii"), limit_bytes=MAX_LISTING_BYTES
    )
    return tuple(listing.decode("ascii").split())


def diff_commit(repository: Repository, commit: str) -> TreeDiff:
    """Return what a commit changes; of a merge, what it takes from none of its parents."""
    parents = repository.git.read_line("rev-parse", f"{check_commit_id(commit)}^@").split()
    if len(parents) == 1:
        return TreeDiff(tuple(_list_changes(repository, *_DETECTION, parents[0], commit)))
    if not parents:
        return TreeDiff(tuple(_list_changes(repository, "--root", "--no-commit-id", commit)))
    sides = [
        {
            change.path: change
            for change in _list_changes(repository, "--no-renames", parent, commit)
        }
        for parent in parents
    ]
    own = set.intersection(*(set(side) for side in sides))
    return TreeDiff(tuple(sides[0][path] for path in sorted(own)))


def read_contents(repository: Repository, diff: TreeDiff) -> Contents:
    """Read what a difference is about."""
    old = {
        change.old_path or change.path: change.old_id
        for change in diff
        if change.old_type in _CONTENT and change.old_id
    }
    new = {c.path: c.new_id for c in diff if c.new_type in _CONTENT and c.new_id}
    blobs = {*old.values(), *new.values()}
    rows = [row.split(b" ") for row in check_objects(repository.git, blobs)] if blobs else []
    sizes = {row[0].decode("ascii"): int(row[2]) for row in rows if len(row) == 3}
    few = {blob for blob, size in sizes.items() if size <= MAX_BLOB_BYTES}
    total = sum(sizes[blob] + 200 for blob in few)
    wanted = {blob: sizes[blob] for blob in sorted(few)} if total <= MAX_CONTENT_BYTES else {}
    data = dict(read_objects(repository.git, wanted)) if wanted else {}
    large = {path for side in (old, new) for path, blob in side.items() if blob not in data}
    paths = {path for change in diff for path in change.paths}
    return Contents(
        {path: data.get(old.get(path, "")) for path in paths},
        {path: data.get(new.get(path, "")) for path in paths},
        frozenset(large),
    )


def _list_changes(repository: Repository, *arguments: str) -> Iterator[TreeChange]:
    return parse_raw(
        repository.git.run("diff-tree", "-r", *_RAW, *arguments, limit_bytes=MAX_LISTING_BYTES)
    )
