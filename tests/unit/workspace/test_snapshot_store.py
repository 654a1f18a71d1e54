"""The store: ids, reading back, many processes, many snapshots, and being killed."""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, GitFailed, UsageError
from coilclaw.kernel.tree_files import EntryType, RegularFile
from coilclaw.workspace.git import object_store
from coilclaw.workspace.snapshot import store as snapshot
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.scale import scaled
from tests.support.snapshot_trees import Empty, Link, build, contents, git

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "tree", {"a": b"a", "d/b": b"b", "e": Empty(), "l": Link("a")})


@pytest.mark.parametrize("prefix", ["", "abc", "zzzz", "0" * 40, "*", "../x", "....", "0000"])
def test_a_prefix_of_nothing_is_a_usage_error(
    root: Path, store: SnapshotStore, prefix: str
) -> None:
    store.take(root)
    with pytest.raises(UsageError):
        store.resolve(prefix)


def test_prefixes(root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = store.take(root).id
    assert {store.resolve(taken[:size]) for size in (4, 12, 40)} == {taken}
    refs = store.directory / "refs" / "snapshots"
    (refs / (taken[:5] + "0" * 35)).write_text("")
    with pytest.raises(UsageError, match="is the start of 2 snapshots") as caught:
        store.resolve(taken[:5])
    assert caught.value.rule == "snapshot.ambiguous"


def test_a_store_that_is_not_there_yet_is_empty(store: SnapshotStore) -> None:
    assert store.list() == ()
    assert not store.exists("0" * 40)
    assert not store.directory.exists()
    for ask in (store.files, lambda name: store.read(name, ["a"])):
        with pytest.raises(UsageError, match=r"the snapshot .* does not exist"):
            ask("0" * 40)


def test_all_snapshots_are_listed_the_oldest_first(root: Path, store: SnapshotStore) -> None:
    taken = []
    for number in range(4):
        build(root, {"a": b"%d" % number})
        taken.append(store.take(root).id)
        os.utime(store.directory / "refs/snapshots" / taken[-1], (number, number))
    assert store.list() == tuple(taken)
    assert all(store.exists(name) for name in taken)


def test_everything_is_listed_with_its_id(root: Path, store: SnapshotStore) -> None:
    os.mkfifo(root / "d" / "p")
    rows = list(store.files(store.take(root).id))
    assert rows == [
        ("a", EntryType.FILE, "2e65efe2a145dda7ee51d1741299f848e5bf752e"),
        ("d/b", EntryType.FILE, "63d8dbd40c23542e740659a7168a0ce3138ea748"),
        ("d/p", EntryType.OPAQUE, rows[2][2]),
        ("e", EntryType.DIRECTORY, EMPTY_TREE),
        ("l", EntryType.SYMLINK, "2e65efe2a145dda7ee51d1741299f848e5bf752e"),
    ]
    assert len(rows[2][2]) == 64


@pytest.mark.parametrize("path", ["d", "e", "d/p"])
def test_what_is_no_file_cannot_be_read(root: Path, store: SnapshotStore, path: str) -> None:
    os.mkfifo(root / "d" / "p")
    taken = store.take(root).id
    with pytest.raises(UsageError, match=f"'{path}' is not a file in snapshot"):
        store.read(taken, ["a", path])
    assert store.read(taken, ["a", path + "x"]) == {"a": RegularFile(b"a"), path + "x": None}


def test_reading_is_bounded(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = store.take(root).id
    monkeypatch.setattr(snapshot, "MAX_READ_BYTES", 1)
    assert store.read(taken, ["a"]) == {"a": RegularFile(b"a")}
    with pytest.raises(EnvironmentFault, match="hold 2 bytes, more than 1"):
        store.read(taken, ["a", "d/b"])


def test_reading_in_batches(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {f"f{n}": bytes([n]) * n for n in range(40)}
    taken = store.take(build(root, wanted)).id
    monkeypatch.setattr(object_store, "BATCH_BYTES", 100)
    assert store.read(taken, list(wanted)) == {n: RegularFile(c) for n, c in wanted.items()}
    assert store.read(taken, []) == {}


def test_a_damaged_object_is_not_read(root: Path, store: SnapshotStore) -> None:
    taken = store.take(root).id
    pack = next((store.directory / "objects/pack").glob("*.pack"))
    pack.chmod(0o600)
    data = bytearray(pack.read_bytes())
    data[12:40] = bytes(28)
    pack.write_bytes(data)
    with pytest.raises(EnvironmentFault):
        store.read(taken, ["a", "d/b", "l"])


def test_a_missing_object_is_named(root: Path, store: SnapshotStore) -> None:
    store.take(root)
    with pytest.raises(EnvironmentFault, match=f"object {'1' * 40} is missing") as caught:
        list(store._objects.blobs(["1" * 40], 100))
    assert caught.value.rule == "snapshot.damaged"


def test_a_commit_of_somebody_else_is_no_snapshot(root: Path, store: SnapshotStore) -> None:
    store.take(root)
    tree = git(store.directory, "mktree", stdin=b"").decode().strip()
    other = git(store.directory, "commit-tree", "-m", "x", tree).decode().strip()
    (store.directory / "refs/snapshots" / other).write_text(other + "\n")
    with pytest.raises(EnvironmentFault, match="not a snapshot of this format"):
        store.files(other)


def test_the_store_is_private_and_sound(root: Path, store: SnapshotStore) -> None:
    store.take(root)
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    git(store.directory, "fsck", "--full", "--strict")


def test_many_snapshots_do_not_make_many_packs(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "MAX_PACKS", 4)
    taken = {}
    for number in range(12):
        build(root, {"d/b": b"version %d" % number})
        taken[store.take(root).id] = b"version %d" % number
    assert len(list((store.directory / "objects/pack").glob("*.pack"))) <= 5
    for name, content in taken.items():
        assert store.read(name, ["d/b"]) == {"d/b": RegularFile(content)}
    fresh = SnapshotStore(store.directory, clock=lambda: time.time_ns() + 10**13)
    fresh.take(root)
    assert fresh.take(root).read == 0


def test_a_snapshot_survives_what_git_calls_housekeeping(root: Path, store: SnapshotStore) -> None:
    first = store.take(root)
    build(root, {"a": b"other"})
    store.take(root)
    git(store.directory, "gc", "-q", "--prune=now")
    assert store.take(root) != first
    assert store.read(first.id, ["a"]) == {"a": RegularFile(b"a")}


def test_leftovers_of_a_killed_git_are_removed(root: Path, store: SnapshotStore) -> None:
    store.take(root)
    leftover = store.directory / "objects/pack/tmp_pack_abc"
    leftover.write_bytes(b"half")
    build(root, {"a": b"new"})
    store.take(root)
    assert not leftover.exists()


def test_a_failure_while_storing_leaves_no_snapshot(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store.take(root)
    build(root, {"a": b"new"})
    monkeypatch.setattr(object_store, "TIMEOUT_S", 1e-9)
    with pytest.raises(GitFailed, match="index-pack"):
        store.take(root)
    assert store.list() == (first.id,)
    monkeypatch.undo()
    second = store.take(root)
    assert store.list() == (first.id, second.id)
    assert store.read(second.id, ["a"]) == {"a": RegularFile(b"new")}


def in_children(number: int, work: Callable[[int], None]) -> list[int]:
    children = []
    for index in range(number):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                work(index)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_many_processes_share_a_store(tmp_path: Path, store: SnapshotStore) -> None:
    roots = [build(tmp_path / f"tree{n}", {"same": b"same", "own": b"%d" % n}) for n in range(3)]

    def work(index: int) -> None:
        mine = SnapshotStore(store.directory)
        for turn in range(4):
            own = build(tmp_path / f"own{index}", {"turn": b"%d" % turn, "index": b"%d" % index})
            taken = {root: mine.take(root) for root in (own, roots[(index + turn) % 3])}
            for root, picture in taken.items():
                wanted = {path: RegularFile((root / path).read_bytes()) for path in contents(root)}
                assert mine.read(picture.id, list(wanted)) == wanted

    assert in_children(4, work) == [0] * 4
    assert len(store.list()) == 3 + 4 * 4
    assert {store.take(root).id for root in roots} <= set(store.list())
    git(store.directory, "fsck", "--full", "--strict")


def test_a_snapshot_that_is_killed_at_any_instant_leaves_a_sound_store(
    tmp_path: Path, root: Path, store: SnapshotStore
) -> None:
    store.take(root)
    chance = random.Random(7)
    for turn in range(scaled(full=200, default=25)):
        build(root, {"a": b"turn %d" % turn, f"d/new{turn}": chance.randbytes(3000)})
        child = os.fork()
        if child == 0:
            try:
                SnapshotStore(store.directory).take(root)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0, 0.025))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for known in store.list()[-2:]:
            store.read(known, [path for path, kind, _ in store.files(known) if kind == "file"])
    last = store.take(root)
    assert last == SnapshotStore(tmp_path / "fresh").take(root)
    git(store.directory, "fsck", "--full", "--strict")
