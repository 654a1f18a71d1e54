"""The stat cache: it saves reading, and never costs a change."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.tree_files import RegularFile
from coilclaw.workspace.snapshot import stat_cache
from coilclaw.workspace.snapshot.stat_cache import MARGIN_NS, Directory, StatCache
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Link, Program, build, git

HOUR_NS = 3600 * 10**9
NAMES = {f"d{n % 3}/f{n}": b"content %d" % n for n in range(12)}


def later() -> int:
    """A clock by which every file in the tree was left alone long ago."""
    return time.time_ns() + HOUR_NS


def settled(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store", clock=later)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "tree", NAMES)


def cache_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "store" / "coilclaw").glob("stat-*")
    return path


def edit_in_place(path: Path) -> None:
    """Change the content, but neither size nor mtime nor inode."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"C")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )


def test_a_file_changed_in_the_same_instant_is_noticed(tmp_path: Path, root: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    for _ in range(15):
        path = root / "d0" / "f0"
        path.write_bytes(b"content 0")
        first = store.take(root)
        edit_in_place(path)
        second = store.take(root)
        assert [change.path for change in store.diff(first.id, second.id)] == ["d0/f0"]


def test_files_touched_within_the_margin_are_not_trusted(tmp_path: Path, root: Path) -> None:
    """A kernel with a coarse clock gives two edits of one tick the same ctime; ours may not."""
    moment = (root / "d0/f0").stat().st_ctime_ns

    def reads_after(began_ns: int) -> int:
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        store = SnapshotStore(tmp_path / "store", clock=lambda: began_ns)
        store.take(root)
        return store.take(root).read

    for name in NAMES:
        os.utime(root / name, ns=(1, 1))
    newest = max((root / name).stat().st_ctime_ns for name in NAMES)
    assert reads_after(moment) == len(NAMES)
    assert reads_after(newest + 2 * 10**9) == len(NAMES)
    assert reads_after(newest + MARGIN_NS) > 0
    assert reads_after(newest + MARGIN_NS + 1) == 0


def test_a_key_that_is_not_trusted_matches_nothing() -> None:
    settled_ns = 1000
    old = (5, 999, 999, 1, 2, 0o100644)
    assert stat_cache.lasting(old, settled_ns) == old
    for fresh in ((5, 1000, 999, 1, 2, 0o100644), (5, 999, 1000, 1, 2, 0o100644)):
        assert stat_cache.lasting(fresh, settled_ns) == (-1, 0, 0, 0, 0, 0o100644)


def test_a_later_edit_that_keeps_size_and_mtime_is_noticed_by_its_ctime(
    tmp_path: Path, root: Path
) -> None:
    store = settled(tmp_path)
    first = store.take(root)
    before = (root / "d0/f0").stat().st_ctime_ns
    while (root / "d0/f0").stat().st_ctime_ns == before:
        edit_in_place(root / "d0/f0")
    second = store.take(root)
    assert second.read == 1
    assert [change.path for change in store.diff(first.id, second.id)] == ["d0/f0"]


def test_another_file_of_the_same_size_and_times_is_noticed(tmp_path: Path, root: Path) -> None:
    store = settled(tmp_path)
    first = store.take(root)
    old = (root / "d0/f0").stat()
    (root / "d0/new").write_bytes(b"CONTENT 0")
    os.utime(root / "d0/new", ns=(old.st_atime_ns, old.st_mtime_ns))
    os.replace(root / "d0/new", root / "d0/f0")
    assert [c.path for c in store.diff(first.id, store.take(root).id)] == ["d0/f0"]


def test_files_in_the_future_are_read_every_time(tmp_path: Path, root: Path) -> None:
    ahead = time.time_ns() + 2 * HOUR_NS
    os.utime(root / "d0/f0", ns=(ahead, ahead))
    store = settled(tmp_path)
    store.take(root)
    assert store.take(root).read == 1


def test_times_beyond_64_bits_do_not_break_the_cache(tmp_path: Path, root: Path) -> None:
    far = 10**10 * 10**9
    os.utime(root / "d0/f0", ns=(far, far))
    if (root / "d0/f0").stat().st_mtime_ns < 2**63:
        pytest.skip("this file system has no such times")
    store = settled(tmp_path)
    assert store.take(root) == store.take(root)


def test_unchanged_files_are_not_read_again_and_nothing_is_written(
    tmp_path: Path, root: Path
) -> None:
    git(root, "init", "-q")
    build(root, {"sub/x": b"", "link": Link("d0"), "tool": Program(b"#!/bin/sh\n")})
    git(root / "sub", "init", "-q")
    first = settled(tmp_path).take(root)
    assert first.read > len(NAMES)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    for path in (root / "d0").iterdir():
        path.chmod(0o644)  # no change, but a new ctime: only these are opened
    assert settled(tmp_path).take(root).read == 4
    second = settled(tmp_path).take(root)
    assert (second, second.read, second.files) == (first, 0, 15)
    changed = {
        path.name
        for path in (tmp_path / "store").rglob("*")
        if before.get(path) != path.stat().st_mtime_ns
    }
    assert changed - {"coilclaw"} == {cache_file(tmp_path).name}
    assert not [path for path in (tmp_path / "store" / "objects").rglob("*") if path not in before]


def test_a_mapped_file_can_change_behind_its_times_and_rereading_finds_it(
    tmp_path: Path, root: Path
) -> None:
    store = settled(tmp_path)
    path = root / "d0" / "f0"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[0:1] = b"X"
        first = store.take(root)
        times = path.stat().st_ctime_ns
        view[0:1] = b"Y"
        assert path.stat().st_ctime_ns == times
        found = store.take(root, reread=True)
        assert store.read(found.id, ["d0/f0"]) == {"d0/f0": RegularFile(b"Yontent 0")}
        assert found != first
        assert store.take(root) == found


def damage(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "cut": data[:-1],
        "longer": data + b"\0",
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "version": data.replace(b"cache 1\n", b"cache 2\n", 1),
        "other": b"something else entirely",
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut", "longer", "flipped", "version", "other"])
def test_a_damaged_cache_is_rebuilt(tmp_path: Path, root: Path, how: str) -> None:
    store = settled(tmp_path)
    first = store.take(root)
    good = cache_file(tmp_path).read_bytes()
    cache_file(tmp_path).write_bytes(damage(good, how))
    again = store.take(root)
    assert (again, again.read) == (first, len(NAMES))
    assert cache_file(tmp_path).read_bytes() == good
    assert store.take(root).read == 0


def test_a_cache_beyond_its_bound_is_no_cache(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = settled(tmp_path)
    store.take(root)
    monkeypatch.setattr(stat_cache, "MAX_CACHE_BYTES", 100)
    assert store.take(root).read == len(NAMES)


def test_a_cache_from_another_store_is_not_believed(tmp_path: Path, root: Path) -> None:
    first = settled(tmp_path).take(root)
    saved = cache_file(tmp_path).read_bytes()
    name = cache_file(tmp_path).name
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store" / "coilclaw").mkdir(parents=True)
    (tmp_path / "store" / "coilclaw" / name).write_bytes(saved)
    store = settled(tmp_path)
    again = store.take(root)
    assert (again, again.read) == (first, len(NAMES))
    assert store.read(again.id, ["d0/f0"]) == {"d0/f0": RegularFile(b"content 0")}


def lose_pack(objects: Path) -> None:
    next(objects.glob("*.pack")).unlink()


def lose_index(objects: Path) -> None:
    next(objects.glob("*.idx")).unlink()


def lose_everything(objects: Path) -> None:
    shutil.rmtree(objects)
    objects.mkdir()


def cut_pack(objects: Path) -> None:
    pack = next(objects.glob("*.pack"))
    data = pack.read_bytes()
    pack.unlink()
    pack.write_bytes(data[:-10])


@pytest.mark.parametrize("lose", [lose_pack, lose_index, lose_everything, cut_pack])
def test_objects_that_the_store_lost_are_stored_again(
    tmp_path: Path, root: Path, lose: Callable[[Path], None]
) -> None:
    store = settled(tmp_path)
    first = store.take(root)
    lose(tmp_path / "store" / "objects" / "pack")
    assert store.take(root) == first
    assert store.read(first.id, list(NAMES)) == {n: RegularFile(NAMES[n]) for n in NAMES}
    git(tmp_path / "store", "fsck", "--full", "--strict")


def test_a_lost_list_of_packs_costs_time_only(tmp_path: Path, root: Path) -> None:
    store = settled(tmp_path)
    first = store.take(root)
    (tmp_path / "store" / "coilclaw" / "packs.json").write_bytes(b"{}")
    again = store.take(root)
    assert (again, again.read) == (first, len(NAMES))
    assert len(list((tmp_path / "store" / "objects" / "pack").glob("*.pack"))) == 1


def test_a_name_that_is_left_out_now_is_not_taken_from_the_cache(
    tmp_path: Path, root: Path
) -> None:
    store = settled(tmp_path)
    whole = store.take(root)
    part = store.take(root, exclude=("d0/f0", "d1"))
    gone = {change.path for change in store.diff(whole.id, part.id)}
    assert gone == {"d0/f0", *(name for name in NAMES if name.startswith("d1/"))}
    assert store.take(root) == whole


def test_what_is_stored_can_be_read_back() -> None:
    key = (5, -7, 2**63 - 1, 2**64 - 1, 2**64 - 1, 0o100644)
    odd = os.fsdecode(b"\xff\n ")
    files = {"a": (key, bytes(range(20))), odd: ((-1, 0, 0, 0, 0, 0o120777), bytes(20))}
    directories = {
        "": Directory(files, {"sub": bytes([7] * 20)}, bytes([9] * 20)),
        "sub/": Directory({}, {}, None),
    }
    cache = StatCache(
        "generation",
        "snapshot",
        {path: entry.encode(path) for path, entry in directories.items()},
        {odd: (key, bytes(range(32)))},
    )
    read = stat_cache.decode(stat_cache.encode(cache))
    assert read == cache
    for path, directory in directories.items():
        remembered = read.directory(path)
        assert remembered is not None
        blobs = {name: remembered.blob(name) for name in (*remembered.keys, "other")}
        assert remembered.keys == {name: found for name, (found, _) in directory.files.items()}
        assert blobs == {"other": None} | {n: blob for n, (_, blob) in directory.files.items()}
        assert remembered.subtrees == directory.subtrees
        assert remembered.tree == directory.tree
    assert read.directory("other/") is None


def test_an_empty_cache_can_be_stored() -> None:
    assert stat_cache.decode(stat_cache.encode(StatCache())) == StatCache()
    assert struct.calcsize("<qqqQQI") == 44
