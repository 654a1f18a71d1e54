"""The directory: durable before it says so, whole after any kill, and private."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
import threading
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.kernel.file_lock import FileLock
from coilclaw.traces.artifacts import local_store
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.artifacts.store import ArtifactEntry
from tests.support.scale import scaled

KEY = "trajectories/t/agent_trace.json"


def test_what_a_person_changed_by_hand_is_not_overwritten(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    version = store.put(KEY, b"ours", previous=None)
    (tmp_path / KEY).write_bytes(b"mine")
    with pytest.raises(EnvironmentFault) as refused:
        store.put(KEY, b"ours, newer", previous=version)
    assert refused.value.rule == "artifact.conflict"
    assert (tmp_path / KEY).read_bytes() == b"mine"


def test_a_link_in_place_of_an_artifact_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    store = LocalStore(tmp_path / "store")
    (store.root / "a").mkdir(parents=True)
    (store.root / "a/b").symlink_to(secret)
    assert not store.exists("a/b")
    assert store.list() == ()
    with pytest.raises(EnvironmentFault) as missing:
        store.get("a/b")
    assert missing.value.rule == "artifact.missing"
    with pytest.raises(EnvironmentFault) as refused:
        store.put("a/b", b"x", previous=None)
    assert refused.value.rule == "artifact.io"
    assert secret.read_bytes() == b"s"


def test_a_name_cannot_be_a_file_and_a_directory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"x", previous=None)
    with pytest.raises(EnvironmentFault) as refused:
        store.put("a/b", b"y", previous=None)
    assert refused.value.rule == "artifact.io"
    assert store.head("a/b") is None
    assert store.get("a") == b"x"


def test_a_source_that_is_no_file_is_said(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "nothing", tmp_path):
        with pytest.raises(EnvironmentFault) as refused:
            store.put(KEY, source, previous=None)
        assert refused.value.rule == "artifact.io"
    assert store.list() == ()


def test_everything_is_for_its_owner_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    store.put(KEY, b"x", previous=None)
    paths = [store.root, *store.root.rglob("*")]
    open_to_others = [p for p in paths if stat.S_IMODE(p.stat().st_mode) & 0o077 and p.is_dir()]
    assert open_to_others == []
    assert stat.S_IMODE((store.root / KEY).stat().st_mode) == 0o600


def test_bytes_are_durable_before_their_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path / "store")
    store.put("t/other", b"", previous=None)
    events: list[str] = []
    real_data, real_sync, real_replace = os.fdatasync, os.fsync, os.replace

    def data(descriptor: int) -> None:
        events.append("bytes")
        real_data(descriptor)

    def sync(descriptor: int) -> None:
        events.append(f"names in {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        real_sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        events.append(f"rename to {target.name}")
        real_replace(source, target)

    monkeypatch.setattr(os, "fdatasync", data)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    store.put("t/new/a", b"x", previous=None)
    assert events == ["names in t", "bytes", "rename to a", "names in new"]


def test_what_a_killed_writer_left_is_swept_and_what_a_living_one_holds_is_not(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"x", previous=None)
    staging = tmp_path / local_store.OWN / "staging"
    left, held, young = (staging / name for name in ("1-left", "2-held", "3-young"))
    for path in (left, held, young):
        path.write_bytes(b"part of")
    for path in (left, held):
        os.utime(path, (0, 0))
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store.put("b", b"y", previous=None)
        assert sorted(path.name for path in staging.iterdir()) == ["2-held", "3-young"]
    assert store.list() == (ArtifactEntry("a", 1), ArtifactEntry("b", 1))


def test_who_comes_second_waits_for_the_first_and_sees_what_it_did(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    version = store.put(KEY, b"start", previous=None)
    rules: list[str] = []

    def write() -> None:
        try:
            store.put(KEY, b"second", previous=version)
        except EnvironmentFault as problem:
            rules.append(problem.rule)

    thread = threading.Thread(target=write)
    with FileLock(store._lock(KEY)):
        thread.start()
        thread.join(0.3)  # long enough for whoever does not wait
        assert thread.is_alive()
        (tmp_path / KEY).write_bytes(b"first")
    thread.join()
    assert rules == ["artifact.conflict"]
    assert store.get(KEY) == b"first"


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "doc"
    file.write_bytes(b"old")
    pieces: list[bytes] = []
    changes = [b"newer", b"newest, and longer"]

    def take(piece: bytes) -> None:
        pieces.append(piece)
        if changes:
            file.write_bytes(changes.pop(0))
            os.utime(file, ns=(0, len(changes)))  # clocks of file systems are coarse

    digest = local_store.copy_file(file, take, pieces.clear, limit=100)
    assert b"".join(pieces) == b"newest, and longer"
    assert digest == local_store.digest_of(b"newest, and longer")


def test_a_file_that_never_stays_as_it_is_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "doc"
    file.write_bytes(b"old")
    readings: list[bytes] = []

    def take(piece: bytes) -> None:
        readings.append(piece)
        os.utime(file, ns=(0, len(readings)))

    with pytest.raises(EnvironmentFault) as unsteady:
        local_store.copy_file(file, take, lambda: None, limit=100)
    assert unsteady.value.rule == "artifact.unsteady"
    assert len(readings) == local_store.MAX_READINGS


def test_a_kill_at_any_moment_leaves_every_artifact_whole_and_loses_none_that_was_kept(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    number = 0
    for attempt in range(scaled(full=200, default=40)):
        told = _killed_writer(tmp_path, number, chance.uniform(0, 0.02))
        store = LocalStore(tmp_path)
        # The document has the last state that was answered for, or the one after it, whole.
        if store.exists("doc"):
            kept, _, filling = store.get("doc").partition(b"\n")
            assert set(filling) <= {ord("x")}
            assert len(filling) == int(kept) % 7 * 10_000
            assert told <= int(kept) <= told + 1, attempt
            number = int(kept)
        else:
            assert told == 0
        pieces = [int(entry.key.split("/")[1]) for entry in store.list("pieces")]
        assert pieces == list(range(1, len(pieces) + 1))
        assert len(pieces) - number in {0, 1}
    assert number > 0
    staging = tmp_path / local_store.OWN / "staging"
    for path in staging.iterdir():
        os.utime(path, (0, 0))
    LocalStore(tmp_path).put("last", b"", previous=None)
    assert list(staging.iterdir()) == []


def _killed_writer(root: Path, number: int, after_s: float) -> int:
    """Write on from a state in a child that is killed; return the last state it answered for."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store = LocalStore(root)
            version = store.head("doc")
            while True:
                number += 1
                store.put(f"pieces/{number:06}", str(number).encode(), previous=None)
                data = b"%d\n" % number + b"x" * (number % 7 * 10_000)
                version = store.put("doc", data, previous=version)
                os.write(writer, b"%d\n" % number)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as answers:
        threading.Event().wait(after_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        lines = answers.read().splitlines()
    return int(lines[-1]) if lines else number
