"""Walking a tree that is hostile, huge, or changes under our feet."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.tree_files import EntryType, RegularFile
from coilclaw.workspace.git import object_format
from coilclaw.workspace.git.object_format import CHUNK_BYTES
from coilclaw.workspace.snapshot import scan
from coilclaw.workspace.snapshot.fingerprint import Bounds
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.children import PATIENCE_S
from tests.support.snapshot_trees import Empty, Link, build, git


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build(tmp_path / "tree", {"a": b"a", "d/b": b"b", "d/e/c": b"c"})


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


def paths(store: SnapshotStore, snapshot: str) -> list[str]:
    return [path for path, _, _ in store.files(snapshot)]


def test_a_missing_root_is_named(tmp_path: Path, store: SnapshotStore) -> None:
    with pytest.raises(EnvironmentFault, match=r"cannot open the directory .*gone.*No such file"):
        store.take(tmp_path / "gone")


def test_a_root_that_is_no_directory_is_named(root: Path, store: SnapshotStore) -> None:
    with pytest.raises(EnvironmentFault, match="Not a directory"):
        store.take(root / "a")


@pytest.mark.parametrize("where", [".", "store", "d/e/store"])
def test_a_store_inside_the_tree_is_refused(root: Path, where: str) -> None:
    with pytest.raises(UsageError, match="inside the tree") as caught:
        SnapshotStore(root / where).take(root)
    assert caught.value.rule == "snapshot.store_inside"
    assert paths_on_disk(root) == {"a", "d", "d/b", "d/e", "d/e/c"}


def paths_on_disk(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_a_store_inside_the_tree_through_a_link_is_refused(root: Path, tmp_path: Path) -> None:
    os.symlink(root / "d", tmp_path / "link")
    with pytest.raises(UsageError, match="inside the tree"):
        SnapshotStore(tmp_path / "link" / "store").take(root)


def in_child(work: Callable[[], None]) -> int:
    """Do something that must not happen to this process; return the exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def without_rights() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.mark.parametrize(("name", "mode"), [("d/b", 0), ("d/e", 0), ("d/e", 0o400)])
def test_what_cannot_be_read_is_named(name: str, mode: int) -> None:
    # Not below tmp_path: that is closed to everybody but the user who runs the tests.
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        root = build(Path(directory, "tree"), {"a": b"a", "d/b": b"b", "d/e/c": b"c"})
        (root / name).chmod(mode)

        def take() -> None:
            without_rights()
            with pytest.raises(EnvironmentFault, match=f"cannot read '{name}.*Permission denied"):
                SnapshotStore(Path(directory, "store")).take(root)

        try:
            assert in_child(take) == 0
        finally:
            (root / name).chmod(0o755)


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        (Bounds(entries=4), "snapshot.entries"),
        (Bounds(depth=1), "snapshot.depth"),
        (Bounds(file_bytes=4), "snapshot.file_bytes"),
        (Bounds(read_bytes=7), "snapshot.read_bytes"),
        (Bounds(special=0), "snapshot.special"),
    ],
)
def test_a_tree_beyond_a_bound_is_refused(tmp_path: Path, bounds: Bounds, rule: str) -> None:
    root = build(tmp_path / "tree", {"a": b"aaaaa", "d/e/f": b"bbb", "g": Empty()})
    with pytest.raises(EnvironmentFault) as caught:
        SnapshotStore(tmp_path / "store", bounds=bounds).take(root)
    assert caught.value.rule == rule


def test_a_tree_within_every_bound_is_taken(tmp_path: Path) -> None:
    root = build(tmp_path / "tree", {"a": b"aaaaa", "d/e/f": b"bbb", "g": Empty()})
    bounds = Bounds(entries=5, depth=2, file_bytes=5, read_bytes=8, special=1)
    assert SnapshotStore(tmp_path / "store", bounds=bounds).take(root).files == 2


def test_one_huge_directory_is_refused_while_it_is_listed(tmp_path: Path) -> None:
    root = build(tmp_path / "tree", {f"f{n}": b"" for n in range(50)})
    with pytest.raises(EnvironmentFault, match="more than 20 entries"):
        SnapshotStore(tmp_path / "store", bounds=Bounds(entries=20)).take(root)


def test_a_deep_tree_is_taken(tmp_path: Path, store: SnapshotStore) -> None:
    deep = "/".join(["d"] * Bounds().depth)
    root = build(tmp_path / "tree", {f"{deep}/f": b"x"})
    assert paths(store, store.take(root).id) == [f"{deep}/f"]


def test_a_deeper_tree_is_refused_also_beyond_the_longest_path(
    tmp_path: Path, store: SnapshotStore
) -> None:
    root = build(tmp_path / "tree", {})
    here = os.open(root, os.O_RDONLY)
    for _ in range(Bounds().depth + 2):
        os.mkdir("x" * 100, dir_fd=here)
        below = os.open("x" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(EnvironmentFault, match="directories deep"):
        store.take(root)


def test_links_are_kept_and_never_followed(tmp_path: Path, store: SnapshotStore) -> None:
    outside = build(tmp_path / "outside", {"secret": b"s"})
    root = build(
        tmp_path / "tree",
        {
            "to-file": Link(str(outside / "secret")),
            "to-directory": Link(str(outside)),
            "up": Link(".."),
            "self": Link("self"),
            "dangling": Link("nowhere"),
        },
    )
    taken = store.take(root)
    assert {kind for _, kind, _ in store.files(taken.id)} == {EntryType.SYMLINK}
    assert paths(store, taken.id) == ["dangling", "self", "to-directory", "to-file", "up"]


def test_fifos_sockets_and_devices_are_never_opened(root: Path, store: SnapshotStore) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(root)
        try:
            listener.bind("socket")
        finally:
            os.chdir("/")
    taken = store.take(root)
    opaque = [path for path, kind, _ in store.files(taken.id) if kind is EntryType.OPAQUE]
    assert opaque == ["fifo", "socket"]


class Meddler:
    """Stands in for ``os`` inside the scan and changes the tree at a chosen moment."""

    def __init__(self, call: str, name: str, act: Callable[[], None]) -> None:
        self._call, self._name, self._act = call, name, act
        self.times = 0

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(os, attribute)
        if attribute != self._call:
            return real

        def meddled(*args: Any, **kwargs: Any) -> Any:
            if args and args[0] == self._name:
                self.times += 1
                self._act()
            return real(*args, **kwargs)

        return meddled


def meddle(
    monkeypatch: pytest.MonkeyPatch, call: str, name: str, act: Callable[[], None]
) -> Meddler:
    from coilclaw.workspace.tree import directory_entry

    meddler = Meddler(call, name, act)
    monkeypatch.setattr(directory_entry, "os", meddler)
    monkeypatch.setattr(scan, "os", meddler)
    return meddler


def test_a_directory_swapped_for_a_link_is_not_walked(
    tmp_path: Path, root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = build(tmp_path / "outside", {"secret": b"s"})

    def swap() -> None:
        if not (root / "d").is_symlink():
            os.rename(root / "d", tmp_path / "away")
            os.symlink(outside, root / "d")

    meddle(monkeypatch, "open", "d", swap)
    taken = store.take(root)
    assert [(p, k) for p, k, _ in store.files(taken.id)] == [
        ("a", EntryType.FILE),
        ("d", EntryType.SYMLINK),
    ]


@pytest.mark.parametrize("become", ["link", "fifo", "directory", "socket"])
def test_a_file_that_becomes_something_else_is_taken_as_that(
    tmp_path: Path,
    root: Path,
    store: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    become: str,
) -> None:
    def swap() -> None:
        path = root / "d" / "b"
        if not path.is_file() or path.is_symlink():
            return
        path.unlink()
        if become == "link":
            os.symlink("/etc/passwd", path)
        elif become == "fifo":
            os.mkfifo(path)
        elif become == "directory":
            build(path, {"inside": b"x"})
        else:
            os.mknod(path, 0o140644)

    meddle(monkeypatch, "open", "b", swap)
    before = time.monotonic()
    taken = store.take(root)
    assert time.monotonic() - before < PATIENCE_S
    assert {path: kind for path, kind, _ in store.files(taken.id) if path.startswith("d/b")} == {
        "link": {"d/b": EntryType.SYMLINK},
        "fifo": {"d/b": EntryType.OPAQUE},
        "socket": {"d/b": EntryType.OPAQUE},
        "directory": {"d/b/inside": EntryType.FILE},
    }[become]


@pytest.mark.parametrize("name", ["b", "e"])
def test_what_vanishes_is_absent(
    tmp_path: Path,
    root: Path,
    store: SnapshotStore,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    def remove() -> None:
        if (root / "d" / name).exists():
            os.rename(root / "d" / name, tmp_path / "away")

    meddle(monkeypatch, "open", name, remove)
    left = paths(store, store.take(root).id)
    assert left == (["a", "d/e/c"] if name == "b" else ["a", "d/b"])


class Hasty:
    """Stands in for ``os`` inside the scan: a name is gone before it can be looked at."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, attribute: str) -> Any:
        return getattr(os, attribute)

    @contextmanager
    def scandir(self, descriptor: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with os.scandir(descriptor) as entries:
            yield self._watched(list(entries))

    def _watched(self, entries: list[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            if entry.name == self._path.name:
                self._path.unlink(missing_ok=True)
            yield entry


def test_what_vanishes_between_its_name_and_a_look_at_it_is_absent(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.take(root)
    build(root, {"d/gone": b"x", "d/stays": b"y"})
    monkeypatch.setattr(scan, "os", Hasty(root / "d/gone"))
    assert paths(store, store.take(root).id) == ["a", "d/b", "d/e/c", "d/stays"]


def test_a_directory_removed_while_it_is_walked_is_absent_not_empty(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove() -> None:
        if (root / "d/e").exists():
            (root / "d/e/c").unlink()
            (root / "d/e").rmdir()

    meddle(monkeypatch, "open", "c", remove)
    assert paths(store, store.take(root).id) == ["a", "d/b"]


def test_what_never_holds_still_is_an_error(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flip() -> None:
        path = root / "d" / "b"
        if path.is_symlink():
            path.unlink()
            path.write_bytes(b"file")
        else:
            path.unlink()
            os.symlink("x", path)

    from coilclaw.workspace.tree import directory_entry

    opening, linking = Meddler("open", "b", flip), Meddler("readlink", "b", flip)
    monkeypatch.setattr(directory_entry, "os", opening)
    monkeypatch.setattr(scan, "os", linking)
    with pytest.raises(EnvironmentFault, match="'d/b' kept changing") as caught:
        store.take(root)
    assert caught.value.rule == "snapshot.changing"
    assert opening.times + linking.times == scan.MAX_LOOKS


class Growing:
    """Stands in for ``os`` inside the spool: the file grows after each look at its size."""

    def __init__(self, path: Path, times: int) -> None:
        self._path, self._times = path, times

    def read(self, descriptor: int, size: int) -> bytes:
        if self._times and os.fstat(descriptor).st_ino == self._path.stat().st_ino:
            self._times -= 1
            with self._path.open("ab") as file:
                file.write(b"+")
        return os.read(descriptor, size)


@pytest.mark.parametrize("size", [10, CHUNK_BYTES + 5])
def test_a_file_that_grows_while_it_is_read_is_read_again(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (root / "a").write_bytes(b"x" * size)
    monkeypatch.setattr(object_format, "os", Growing(root / "a", 3))
    taken = store.take(root)
    content = (root / "a").read_bytes()
    assert len(content) > size
    assert store.read(taken.id, ["a"]) == {"a": RegularFile(content)}


def test_a_file_that_never_stops_growing_is_an_error(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_format, "os", Growing(root / "a", 1000))
    with pytest.raises(EnvironmentFault, match="'a' kept changing"):
        store.take(root)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * 2**20 + 3])
def test_contents_of_any_size_come_back_whole(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(object_format, "MAX_IN_MEMORY", 2**20)
    data = os.urandom(size)
    build(root, {"a": data, "twin": data, "zeros": bytes(size)})
    taken = store.take(root)
    assert store.read(taken.id, ["a", "twin", "zeros"]) == {
        "a": RegularFile(data),
        "twin": RegularFile(data),
        "zeros": RegularFile(bytes(size)),
    }
    (root / "a").touch()
    assert store.take(root) == taken
    git(store.directory, "fsck", "--full", "--strict")


def test_a_full_disk_is_not_blamed_on_the_file(
    root: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.take(root)
    before = store.list()
    (root / "a").write_bytes(os.urandom(3 * 2**20))
    monkeypatch.setattr(object_format, "MAX_IN_MEMORY", 2**20)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
        with pytest.raises(EnvironmentFault, match=r"cannot keep what is new in .*File too large"):
            store.take(root)

    assert in_child(limited) == 0
    assert store.list() == before


def test_paths_can_be_left_out(root: Path, store: SnapshotStore) -> None:
    build(root, {"d/e2/x": b"", ".runtime-cache/cortexpilot/runs/x": b"", "only/left-out": b""})
    taken = store.take(root, exclude=("d/e", "only/left-out", "a/"))
    assert paths(store, taken.id) == ["d/b", "d/e2/x"]
    called = store.take(root, exclude=lambda path: path in {"d/e", "only/left-out", "a"})
    assert called.tree == taken.tree
    assert (store.list_excluded(taken.id), store.list_excluded(called.id)) == (
        ("a", "d/e", "only/left-out"),
        (),
    )
    build(root, {".runtime-cache/other": b"x"})
    assert ".runtime-cache/other" in paths(store, store.take(root).id)


def test_no_descriptor_is_left_open(root: Path, store: SnapshotStore) -> None:
    store.take(root)
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    (root / "d/b").write_bytes(b"new")
    store.take(root)
    with pytest.raises(EnvironmentFault):
        SnapshotStore(store.directory, bounds=Bounds(depth=1)).take(root)
    assert sorted(os.listdir("/proc/self/fd")) == before
