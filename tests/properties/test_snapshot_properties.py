"""Whatever happens to a tree: the cache misses nothing, diffs add up, and patches apply."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel.tree_files import ChangeKind, EntryType, TreeDiff
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.scale import scaled
from tests.support.snapshot_trees import Content, Empty, Link, Program, build, contents, git

LONG = b"".join(b"a line that is shared, number %d\n" % number for number in range(12))

names = st.sampled_from(["a", "b", "c", "a.b", "é", os.fsdecode(b"\xff"), "new\nline", " x ", " "])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
data = st.one_of(
    st.sampled_from(
        [b"", b"x", b"x\n", LONG, LONG + b"end", LONG[40:], b"\0" + LONG, b"a\r\nb\r\n"]
    ),
    st.binary(max_size=40),
)
entries: st.SearchStrategy[Content] = st.one_of(
    data,
    data.map(Program),
    # None of them leads to itself: git cannot put a directory in the place of such a link.
    st.sampled_from(["nowhere", "no/where", "/etc/passwd", ".."]).map(Link),
    st.just(Empty()),
)
trees = st.dictionaries(paths, entries, max_size=7).map(
    lambda tree: {
        path: content
        for path, content in tree.items()
        if not any(path.startswith(other + "/") for other in tree)
    }
)
few = settings(max_examples=scaled(full=300, default=30), deadline=None)


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def directories(tree: dict[str, tuple[EntryType, str]]) -> set[str]:
    """All directories of a listing, empty or not."""
    found = {path for path, (kind, _) in tree.items() if kind is EntryType.DIRECTORY}
    for path in tree:
        parts = path.split("/")
        found.update("/".join(parts[:count]) for count in range(1, len(parts)))
    return found


def listing(store: SnapshotStore, name: str) -> dict[str, tuple[EntryType, str]]:
    return {path: (kind, found) for path, kind, found in store.files(name)}


def plain(tree: dict[str, tuple[EntryType, str]]) -> dict[str, tuple[EntryType, str]]:
    return {path: entry for path, entry in tree.items() if entry[0] is not EntryType.DIRECTORY}


def replayed(
    difference: TreeDiff, old: dict[str, tuple[EntryType, str]]
) -> dict[str, tuple[EntryType, str]]:
    """Apply a diff to a listing, as a reader of the diff would."""
    tree = plain(old)
    for change in difference:
        source = change.old_path or change.path
        if change.kind is not ChangeKind.COPIED and change.old_type not in {
            None,
            EntryType.DIRECTORY,
        }:
            assert change.old_type is not None
            assert tree.pop(source) == (change.old_type, change.old_id)
    for change in difference:
        if change.new_type not in {None, EntryType.DIRECTORY}:
            assert change.new_type is not None
            assert change.new_id is not None
            assert change.path not in tree
            tree[change.path] = (change.new_type, change.new_id)
    return tree


@given(trees, trees)
@few
def test_a_diff_says_exactly_what_changed(old: dict[str, Content], new: dict[str, Content]) -> None:
    with workplace() as place:
        store = SnapshotStore(place / "store")
        a = store.take(build(place / "old", old)).id
        b = store.take(build(place / "new", new)).id
        before, after = listing(store, a), listing(store, b)
        there, back = store.diff(a, b), store.diff(b, a)
    assert replayed(there, before) == plain(after)
    assert replayed(back, after) == plain(before)
    assert there.empty == (a == b)
    assert [change.path for change in there] == sorted({change.path for change in there})
    ends = {path for change in there for path in change.paths}
    assert ends == {path for change in back for path in change.paths}
    was, now = directories(before), directories(after)
    empty_before = {path for path, entry in before.items() if entry[0] is EntryType.DIRECTORY}
    empty_after = {path for path, entry in after.items() if entry[0] is EntryType.DIRECTORY}
    come = {c.path for c in there if c.new_type is EntryType.DIRECTORY}
    gone = {c.path for c in there if c.old_type is EntryType.DIRECTORY}
    assert come == (empty_after - was) | (now & plain(before).keys())
    assert gone == (empty_before - now) | (was & plain(after).keys())


@given(trees, trees)
@few
def test_a_patch_turns_one_tree_into_the_other(
    old: dict[str, Content], new: dict[str, Content]
) -> None:
    with workplace() as place:
        store = SnapshotStore(place / "store")
        a = store.take(build(place / "old", old)).id
        b = store.take(build(place / "new", new)).id
        patch = store.patch(a, b)
        # git knows no empty directories, and stumbles over them where a file is to be put.
        copy = build(place / "copy", files(old))
        if patch:
            (place / "patch").write_bytes(patch)
            git(copy, "apply", "--whitespace=nowarn", str(place / "patch"))
        result = contents(copy)
    assert files(result) == files(new)


def files(tree: dict[str, Content]) -> dict[str, Content]:
    return {path: content for path, content in tree.items() if not isinstance(content, Empty)}


def put(root: Path, path: str, content: Content) -> None:
    """Put something at a path, whatever stands there or on the way."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        place = os.path.join(root, *parts[:count])
        if os.path.lexists(place) and (
            count == len(parts) or os.path.islink(place) or not os.path.isdir(place)
        ):
            remove(root, "/".join(parts[:count]))
    build(root, {path: content})


def remove(root: Path, path: str) -> None:
    place = os.path.join(root, path)
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        os.unlink(place)


def move(root: Path, source: str, target: str) -> None:
    """Rename, where the kernel lets us; nothing else happens where it does not."""
    try:
        os.makedirs(os.path.dirname(os.path.join(root, target)), exist_ok=True)
        os.rename(os.path.join(root, source), os.path.join(root, target))
    except OSError:
        return


def rewrite(root: Path, path: str, back_to_old_times: bool) -> None:
    """Change bytes in place, keeping the size; perhaps the time of modification too."""
    place = os.path.join(root, path)
    if os.path.islink(place) or not os.path.isfile(place) or not os.path.getsize(place):
        return
    before = os.stat(place)
    with open(place, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    if back_to_old_times:
        os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


edits = st.one_of(
    st.tuples(st.just(put), paths, entries),
    st.tuples(st.just(remove), paths),
    st.tuples(st.just(move), paths, paths),
    st.tuples(st.just(rewrite), paths, st.booleans()),
)


@given(trees, st.lists(st.lists(edits, max_size=3), min_size=1, max_size=4), st.booleans())
@settings(max_examples=scaled(full=200, default=20), deadline=None)
def test_a_cached_scan_finds_what_a_fresh_one_finds(
    first: dict[str, Content], rounds: list[list[tuple[object, ...]]], settled: bool
) -> None:
    ahead = 10**13 if settled else 0
    with workplace() as place:
        root = build(place / "tree", first)
        store = SnapshotStore(place / "store", clock=lambda: time.time_ns() + ahead)
        store.take(root)
        for number, several in enumerate(rounds):
            if settled:
                time.sleep(0.011)  # longer than a tick of the kernel's clock: no edit hides in one
            for act, *arguments in several:
                assert callable(act)
                act(root, *arguments)
            cached = store.take(root)
            fresh = SnapshotStore(place / f"fresh{number}").take(root)
            assert cached == fresh
            assert list(store.files(cached.id)) == list(
                SnapshotStore(place / f"fresh{number}").files(fresh.id)
            )
