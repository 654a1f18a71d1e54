"""Appending: what is refused, what is written, and what happens when the disk says no."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
import stat
import threading
from hashlib import sha256

import pytest

from coilclaw.kernel.canonical_json import encode_record
from coilclaw.kernel.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.kernel.file_lock import FileLock
from coilclaw.kernel.journal import Journal
from tests.support.children import PATIENCE_S
from tests.unit.storage.worlds import HASH_FIELD, World, fork, reap, record, sound

EVERYTHING = {"key", "receipts.jsonl", "receipts.jsonl.anchor"}


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ({"receipt_hash": "x"}, "journal.reserved"),
        ({"previous_hash": "x"}, "journal.reserved"),
        ({"a": 1.0}, "canonical.type"),
        ({"a": 2**53}, "canonical.integer"),
        ({"ä": 1}, "canonical.key"),
        ({"a": "\udfff"}, "canonical.text"),
        ({"a": b"x"}, "canonical.type"),
        ({"text": "x" * 17 * 2**20}, "journal.long"),
    ],
)
def test_a_refused_record_touches_nothing(world: World, bad: dict[str, object], rule: str) -> None:
    journal = world.journal()
    with pytest.raises(UsageError) as caught:
        journal.append(bad)
    assert (caught.value.rule, world.names()) == (rule, set())
    world.fill(2)
    before = world.path.read_bytes(), world.anchor.read_bytes()
    with pytest.raises(UsageError):
        journal.append_all([record(3), bad])  # all or nothing
    assert (world.path.read_bytes(), world.anchor.read_bytes()) == before


def test_field_names_are_checked_when_the_object_is_made(world: World) -> None:
    with pytest.raises(UsageError, match="cannot name"):
        Journal(world.path, hash_field="previous_hash", key_path=world.key)


def test_a_missing_directory_is_a_fault(world: World) -> None:
    nowhere = World(world.directory / "no")
    with pytest.raises(EnvironmentFault, match=f"cannot append to {nowhere.path}: No such file"):
        nowhere.journal().append(record(1))


@pytest.mark.parametrize("name", ["receipts.jsonl", "receipts.jsonl.anchor"])
def test_what_is_no_regular_file_is_a_fault(world: World, name: str) -> None:
    os.mkfifo(world.directory / name)
    with pytest.raises(EnvironmentFault, match=f"{name} is not a regular file"):
        world.journal().append(record(1))


@pytest.mark.parametrize("name", ["receipts.jsonl", "receipts.jsonl.anchor", "key"])
def test_a_link_is_a_fault(world: World, name: str) -> None:
    (world.directory / "elsewhere").touch()
    (world.directory / name).symlink_to("elsewhere")
    with pytest.raises(EnvironmentFault):
        world.journal().append(record(1))
    assert (world.directory / "elsewhere").read_bytes() == b""


def test_a_lock_that_stays_taken_is_a_fault_and_nothing_is_written(world: World) -> None:
    world.fill(1)
    journals = [
        Journal(world.path, hash_field=HASH_FIELD, key_path=world.key, timeout_s=0.05)
        for _ in range(2)
    ]
    journals[1].open()  # whether it is open already or not
    for journal in journals:
        lock = FileLock(world.path, shared=True)
        with lock, pytest.raises(LockTimeout, match=r"receipts\.jsonl was not free"):
            journal.append(record(2))
    assert world.verify() == sound(1)
    for journal in journals:
        journal.append(record(2))
    assert world.verify() == sound(3)


def test_a_full_disk_leaves_the_journal_as_it_was(world: World) -> None:
    world.fill(3)
    before = world.path.read_bytes(), world.anchor.read_bytes()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        journal = world.journal()
        for room in (0, 1, 100, 300, 400):  # from nothing written to one whole record and a half
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before[0]) + room, unlimited[1]))
            with pytest.raises(EnvironmentFault) as caught:
                journal.append_all([record(4), record(5)])
            assert (caught.value.rule, caught.value.hint) == (
                "journal.write",
                "make room on the disk, then try again",
            )
            assert os.strerror(errno.EFBIG) in caught.value.message
            assert (world.path.read_bytes(), world.anchor.read_bytes()) == before
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        journal.append(record(4))
        assert journal.recovered == ()

    assert reap(fork(work)) == 0
    assert world.verify() == sound(4)


def test_after_a_failed_sync_the_object_is_of_no_more_use(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = world.fill(2).journal()
    before = world.path.read_bytes(), world.anchor.read_bytes()

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(EnvironmentFault, match=r"cannot sync .*: Input/output error") as caught:
            journal.append(record(3))
    assert caught.value.rule == "journal.sync"
    assert (world.path.read_bytes(), world.anchor.read_bytes()) == before
    with pytest.raises(EnvironmentFault, match="can no longer append to") as caught:
        journal.append(record(3))
    assert caught.value.rule == "journal.poisoned"
    world.fill(1, start=3)  # by another object
    assert world.verify() == sound(3)


def test_a_write_that_cannot_be_taken_back_poisons_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = world.fill(2).journal()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(EnvironmentFault, match="cannot sync"):
            journal.append(record(3))
    with pytest.raises(EnvironmentFault, match="can no longer"):
        journal.append(record(3))
    assert world.verify() == sound(3, unanchored=1)


def test_an_anchor_that_cannot_be_rewritten_takes_the_record_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = world.fill(2).journal()
    journal.open()
    before = world.path.read_bytes(), world.anchor.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for failing in (full, lambda *_: 100):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failing)
            with pytest.raises(EnvironmentFault, match="cannot rewrite the anchor of") as caught:
                journal.append(record(3))
        assert caught.value.rule == "journal.write"
        assert (world.path.read_bytes(), world.anchor.read_bytes()) == before
    journal.append(record(3))
    assert world.verify() == sound(3)


def test_making_closing_and_leaving_the_object_touches_nothing(world: World) -> None:
    with world.journal() as journal:
        assert journal.append_all([]) == ()
        assert journal.recovered == ()
    journal.close()
    assert world.names() == set()


def test_the_first_append_creates_what_is_missing(world: World) -> None:
    world.journal().open()
    assert world.names() == EVERYTHING
    modes = {stat.S_IMODE((world.directory / name).stat().st_mode) for name in EVERYTHING}
    assert modes == {0o600}
    assert len(world.key.read_bytes()) == 32
    assert world.verify() == sound(0)


def test_each_line_is_canonical_and_chained(world: World) -> None:
    with world.journal() as journal:
        hashes = [journal.append(record(1)), *journal.append_all([record(2), record(3)])]
    previous = "0" * 64
    for number, (line, told) in enumerate(zip(world.lines(), hashes, strict=True), 1):
        body = {**record(number), "previous_hash": previous}
        own = sha256(encode_record(body)).hexdigest()
        assert (line, told) == (encode_record({**body, HASH_FIELD: own}) + b"\n", own)
        previous = own
    anchor = json.loads(world.anchor.read_bytes())
    assert (anchor["count"], anchor["bytes"], anchor["last_hash"]) == (
        3,
        world.path.stat().st_size,
        previous,
    )
    assert world.verify() == sound(3)


def test_the_same_records_and_key_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    worlds = [World(tmp_path_factory.mktemp("world")) for _ in range(2)]
    for world in worlds:
        world.key.write_bytes(b"k" * 32)
    worlds[0].fill(5)
    for number in range(1, 6):
        worlds[1].fill(1, start=number)
    assert worlds[0].path.read_bytes() == worlds[1].path.read_bytes()
    assert worlds[0].anchor.read_bytes() == worlds[1].anchor.read_bytes()


def test_one_key_serves_several_journals(world: World) -> None:
    other = Journal(world.directory / "events", hash_field="event_hash", key_path=world.key)
    other.append({"kind": "START"})
    world.fill(1)
    assert world.verify() == sound(1)
    assert len(world.key.read_bytes()) == 32


def test_two_objects_in_one_process_share_a_journal(world: World) -> None:
    first, second = world.journal(), world.journal()
    for number in range(1, 21):
        (first if number % 3 else second).append(record(number))
    assert world.verify() == sound(20)
    assert [entry["number"] for entry in first.read()] == list(range(1, 21))


def test_a_closed_journal_opens_again(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    journal.close()
    journal.append(record(2))
    assert world.verify() == sound(2)


def test_closing_a_damaged_journal_is_no_fault(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    world.anchor.unlink()
    journal.close()
    assert world.names() == {"key", "receipts.jsonl"}


def test_nothing_stays_open(world: World) -> None:
    gc.collect()
    before = os.listdir("/proc/self/fd")
    for number in range(1, 4):
        with world.journal() as journal:
            journal.append(record(number))
            list(journal.read())
    assert os.listdir("/proc/self/fd") == before


def test_the_working_directory_may_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.directory)
    relative = World(world.directory.relative_to(world.directory))
    journal = relative.journal()
    journal.append(record(1))
    monkeypatch.chdir("/")
    journal.append(record(2))
    assert world.verify() == sound(2)


def test_a_journal_moved_aside_with_its_anchor_starts_anew(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    aside = world.directory / "aside"
    aside.mkdir()
    for path in (world.path, world.anchor):
        path.rename(aside / path.name)
    journal.append(record(2))
    assert world.verify() == sound(1)
    world.key.rename(aside / "key")
    assert World(aside).verify() == sound(1)


def test_threads_share_one_write_and_one_sync(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = world.journal()
    journal.open()
    group = journal._writer().group
    real_sync, real_write = os.fdatasync, os.write
    calls: list[str] = []

    def sync(descriptor: int) -> None:
        calls.append("sync")
        while calls.count("sync") == 1 and len(group._waiting) < 7:
            pass  # the first sync takes until all others stand in line
        real_sync(descriptor)

    def write(descriptor: int, data: bytes) -> int:
        calls.append("write")
        return real_write(descriptor, data)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "write", write)
    hashes: list[str] = []
    threads = [
        threading.Thread(target=lambda number=number: hashes.append(journal.append(record(number))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["write", "sync", "write", "sync"]
    assert sorted(hashes) == sorted(str(entry[HASH_FIELD]) for entry in journal.read())
    assert world.verify() == sound(8)


def test_threads_build_one_chain(world: World) -> None:
    journal = world.journal()
    told: dict[int, list[str]] = {}

    def work(number: int) -> None:
        told[number] = [journal.append({"thread": number, "turn": turn}) for turn in range(40)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.verify() == sound(8 * 40)
    found: dict[int, list[str]] = {}
    for entry in journal.read():
        assert isinstance(entry["thread"], int)
        found.setdefault(entry["thread"], []).append(str(entry[HASH_FIELD]))
    assert found == told


def test_a_fork_in_the_middle_of_appending_is_safe(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    enough = threading.Event()
    appended = [1]

    def background() -> None:
        while not enough.is_set():
            journal.append(record(2))
            appended[0] += 1

    def work() -> None:
        for _ in range(5):
            journal.append(record(3))

    thread = threading.Thread(target=background)
    thread.start()
    codes = [reap(fork(work)) for _ in range(8)]
    enough.set()
    thread.join()
    assert codes == [0] * 8
    assert world.verify() == sound(appended[0] + 8 * 5)


def test_a_journal_that_was_forgotten_open_may_be_collected_in_the_middle_of_a_fork(
    world: World,
) -> None:
    def work() -> None:
        gc.disable()
        before = len(os.listdir("/proc/self/fd"))
        for number in range(3):
            world.journal().append(record(number))
        assert len(os.listdir("/proc/self/fd")) > before
        gc.set_threshold(1)
        gc.enable()
        child = os.fork()  # where it makes its first object, the child collects
        if child == 0:
            os._exit(0 if len(os.listdir("/proc/self/fd")) == before else 1)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.alarm(int(PATIENCE_S))
        assert reap(child) == 0

    assert reap(fork(work)) == 0
    assert world.verify() == sound(3)
