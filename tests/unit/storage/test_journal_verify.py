"""Verification: every way to tamper is named by number, id and reason, and nothing is written."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from coilclaw.kernel.atomic_file import anchor_path
from coilclaw.kernel.errors import EnvironmentFault, UsageError, VerificationFailed
from coilclaw.kernel.file_lock import FileLock
from coilclaw.kernel.journal_format import FIRST_HASH, JournalHead, Signer
from coilclaw.kernel.journal_verification import JournalBreak, JournalReport, verify_journal
from tests.unit.storage.tampers import (
    COUNT,
    EDITED,
    TAMPERS,
    edit,
    own_hash,
    put_in,
    rehash,
    sealed,
    without,
)
from tests.unit.storage.worlds import World, fork, reap, record, sound


@pytest.mark.parametrize("name", TAMPERS)
def test_tampering_is_found(world: World, name: str) -> None:
    tamper, (number, identity, reason), sentence = TAMPERS[name]
    world.fill(COUNT)
    world.put(tamper(world.lines()))
    report = world.verify()
    assert report.break_ is not None
    shown = report.break_.number, report.break_.id, report.break_.reason, report.break_.sentence
    assert shown == (number, identity, reason, sentence)
    assert (report.ok, report.anchor, report.torn_bytes) == (False, "valid", 0)
    assert report == world.verify()  # nothing was healed, and nothing depends on the time


def test_a_whole_report_names_the_first_break(world: World) -> None:
    world.fill(COUNT)
    world.put(edit(edit(without(world.lines(), (8,)), 6), 3))
    sentence = f"line 3 was edited: {EDITED}"
    assert world.verify() == JournalReport(
        ok=False,
        records=2,
        unanchored=0,
        torn_bytes=0,
        anchor="valid",
        break_=JournalBreak(3, "r-3", "edited", sentence),
    )


def _blamed(world: World, lines: list[bytes]) -> tuple[int, str]:
    world.put(lines)
    report = world.verify()
    assert report.break_ is not None, lines
    return report.break_.number, report.break_.reason


def test_every_single_change_is_named_at_every_place(world: World) -> None:
    whole = world.fill(5).lines()
    for n in range(1, 6):
        assert _blamed(world, edit(whole, n)) == (n, "edited")
        assert _blamed(world, rehash(whole, n)) == (n, "edited")
        gone = "deleted" if n < 5 else "truncated"
        assert _blamed(world, without(whole, (n,))) == (n, gone)
        for m in range(1, 7):
            again = put_in(whole, m, whole[n - 1])
            place = m + 1 if m == n else m
            assert _blamed(world, again) == (place, "inserted"), (n, m)
            moved = put_in(without(whole, (n,)), m, whole[n - 1])
            if moved != whole:
                assert _blamed(world, moved) == (min(n, m), "reordered"), (n, m)


def test_every_forged_record_is_named_wherever_it_stands(world: World) -> None:
    whole = world.fill(5).lines()
    claims = [FIRST_HASH, "e" * 64, *(own_hash(whole, n) for n in range(1, 6))]
    for place in range(1, 6):
        for claim in claims:
            forged = put_in(whole, place, sealed(0, claim))
            assert _blamed(world, forged) == (place, "inserted"), (place, claim)
            assert _blamed(world, edit(forged, place)) == (place, "inserted"), (place, claim)


def test_no_other_choice_of_lines_passes(world: World) -> None:
    whole = world.fill(4).lines()
    for length in range(6):
        for chosen in itertools.product(whole, repeat=length):
            if list(chosen) == whole:
                continue
            world.put(chosen)
            report = world.verify()
            same = [a == b for a, b in zip(chosen, whole, strict=False)]
            first = same.index(False) + 1 if False in same else len(same) + 1
            assert report.break_ is not None
            assert (report.ok, report.break_.number) == (False, first), chosen
            assert report.break_.reason in {"deleted", "reordered", "inserted", "truncated"}


def test_every_cut_is_found(world: World) -> None:
    world.fill(3)
    whole = world.path.read_bytes()
    for length in range(len(whole)):
        world.path.write_bytes(whole[:length])
        report = world.verify()
        number = whole[:length].count(b"\n") + 1
        assert report.break_ is not None
        assert (report.break_.number, report.break_.reason) == (number, "truncated")
        assert report.records == number - 1


@pytest.mark.parametrize("value", [b"", b"{}", b"x" * 512, b"\xff" * 512])
def test_an_anchor_that_is_none_is_edited(world: World, value: bytes) -> None:
    world.fill(2).anchor.write_bytes(value)
    sentence = "receipts.jsonl.anchor is not what was written with the key"
    broken = JournalBreak(0, None, "anchor edited", sentence)
    assert world.verify() == JournalReport(False, 2, 0, 0, "edited", broken)


def test_an_anchor_with_another_count_is_edited(world: World) -> None:
    world.fill(2)
    world.anchor.write_bytes(world.anchor.read_bytes().replace(b'"count":2', b'"count":1'))
    report = world.verify()
    assert report.break_ is not None
    assert (report.anchor, report.break_.reason) == ("edited", "anchor edited")


def test_a_missing_anchor_is_named(world: World) -> None:
    world.fill(2).anchor.unlink()
    broken = JournalBreak(
        0, None, "anchor missing", f"there is no receipts.jsonl.anchor beside {world.path}"
    )
    assert world.verify() == JournalReport(False, 2, 0, 0, "missing", broken)
    world.path.write_bytes(b"")
    assert world.verify() == JournalReport(False, 0, 0, 0, "missing", broken)


@pytest.mark.parametrize("key", [None, b"", b"k" * 32])
def test_a_wrong_or_missing_key_is_named(world: World, key: bytes | None) -> None:
    world.fill(2)
    world.key.unlink()
    if key is not None:
        world.key.write_bytes(key)
    sentence = f"receipts.jsonl.anchor was not made with the key in {world.key}"
    broken = JournalBreak(0, None, "wrong key", sentence)
    assert world.verify() == JournalReport(False, 2, 0, 0, "wrong key", broken)
    assert world.key.exists() is (key is not None)


def test_an_anchor_forged_with_another_key_is_a_wrong_key(world: World) -> None:
    world.fill(3)
    world.put(world.lines()[:2])
    size = world.path.stat().st_size
    forger = World(world.directory / "forger")
    forger.directory.mkdir()
    forger.fill(1)
    head = JournalHead(2, size, own_hash(world.lines(), 2))
    world.anchor.write_bytes(Signer(forger.key.read_bytes()).render(head))
    report = world.verify()
    assert report.break_ is not None
    assert (report.ok, report.break_.reason) == (False, "wrong key")


@pytest.mark.parametrize("missing", ["anchor", "key"])
def test_a_broken_line_is_named_even_where_the_anchor_cannot_be_believed(
    world: World, missing: str
) -> None:
    world.fill(COUNT)
    (world.anchor if missing == "anchor" else world.key).unlink()
    whole = world.lines()
    for lines, expected in (
        (edit(whole, 3), (3, "r-3", "edited")),
        (without(whole, (3,)), (3, "r-4", "deleted")),
        (put_in(whole, 3, b"x\n"), (3, None, "unparsable")),
        ([whole[1], whole[0], *whole[2:]], (1, "r-2", "reordered")),
    ):
        world.put(lines)
        report = world.verify()
        assert report.break_ is not None
        assert (report.break_.number, report.break_.id, report.break_.reason) == expected
    world.put([*whole, b"torn"])
    report = world.verify()
    assert report.break_ is not None
    assert (report.torn_bytes, report.break_.number) == (4, 0)


def test_a_journal_that_does_not_exist_is_not_good(world: World) -> None:
    with pytest.raises(VerificationFailed, match=r"the journal .* is missing") as caught:
        world.verify()
    assert (caught.value.rule, world.names()) == ("journal.missing", set())
    world.fill(1).path.unlink()
    with pytest.raises(VerificationFailed, match=r"but there is receipts\.jsonl\.anchor"):
        world.verify()


def test_a_journal_whose_maker_was_killed_is_empty(world: World) -> None:
    """The anchor is there before the file; without its signature it proves nothing."""

    def work() -> None:
        link = os.link

        def link_or_die(source: Path, target: Path, **more: bool) -> None:
            if target == world.path:
                os.kill(os.getpid(), signal.SIGKILL)
            link(source, target, **more)

        os.link = link_or_die  # type: ignore[assignment] # in the child alone
        world.fill(1)

    assert reap(fork(work)) == -signal.SIGKILL
    assert not world.path.exists()
    assert world.verify() == JournalReport(
        ok=True, records=0, unanchored=0, torn_bytes=0, anchor="valid", break_=None
    )
    anchor = anchor_path(world.path)
    good = anchor.read_bytes()
    signature = good.rindex(b'"', 0, good.rindex(b'"'))
    anchor.write_bytes(good[:signature] + b'"' + b"0" * (len(good) - signature - 1))
    with pytest.raises(VerificationFailed, match=r"the journal .* is missing"):
        world.verify()
    anchor.write_bytes(good)
    assert world.fill(2).verify().records == 2


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_what_is_no_file_is_a_fault(world: World, make: Callable[[Path], None]) -> None:
    make(world.path)
    with pytest.raises(EnvironmentFault, match="is not a regular file"):
        world.verify()


def test_the_wrong_field_name_does_not_verify(world: World) -> None:
    world.fill(2)
    report = verify_journal(world.path, hash_field="event_hash", key_path=world.key)
    assert report.break_ is not None
    assert report.break_.sentence == "line 1 was edited: it has no event_hash"
    with pytest.raises(UsageError):
        verify_journal(world.path, hash_field="previous_hash", key_path=world.key)


def test_a_good_journal_is_good(world: World) -> None:
    world.journal().open()
    assert world.verify() == sound(0)
    for count in range(1, 4):
        world.fill(1, start=count)
        assert world.verify() == sound(count)


def test_what_stands_after_the_anchor_is_counted(world: World) -> None:
    world.fill(2)
    anchor = world.anchor.read_bytes()
    world.fill(3, start=3)
    world.anchor.write_bytes(anchor)
    whole = world.lines()
    assert world.verify() == sound(5, unanchored=3)
    for torn in (b"{", b"\0" * 4096, b"nonsense\n", b"\n\n", whole[4][:-1]):
        world.put([*whole[:4], torn])
        assert world.verify() == sound(4, unanchored=2, torn_bytes=len(torn))


def test_a_readable_line_after_the_anchor_must_hold(world: World) -> None:
    world.fill(2)
    anchor = world.anchor.read_bytes()
    world.fill(3, start=3)
    world.anchor.write_bytes(anchor)
    whole = world.lines()
    for lines, expected in (
        (edit(whole, 4), (4, "r-4", "edited")),
        (put_in(whole, 4, whole[2]), (4, "r-3", "inserted")),
        (put_in(whole, 6, b'{"id":"x"}\n'), (6, "x", "edited")),
    ):
        world.put(lines)
        report = world.verify()
        assert report.break_ is not None
        assert (report.break_.number, report.break_.id, report.break_.reason) == expected


def _picture(directory: Path) -> dict[str, tuple[int, int, int, int, bytes]]:
    """Everything that writing would change: times, inodes, modes, contents."""
    paths = [directory, *sorted(directory.iterdir())]
    return {
        path.name: (
            (status := path.lstat()).st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            status.st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in paths
    }


@pytest.mark.parametrize("torn", [b"", b"torn"])
@pytest.mark.parametrize("missing", [None, "key", "receipts.jsonl.anchor"])
def test_verifying_writes_nothing(world: World, torn: bytes, missing: str | None) -> None:
    world.fill(3)
    world.put([*world.lines(), torn])
    if missing:
        (world.directory / missing).unlink()
    before = _picture(world.directory)
    world.verify()
    assert _picture(world.directory) == before


def test_verifying_works_where_nothing_may_be_written() -> None:
    nobody = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
    directory = Path(tempfile.mkdtemp(prefix="coilclaw-read-only-"))
    try:
        world = World(directory).fill(3)
        for path in directory.iterdir():
            os.chown(path, nobody, -1)
            path.chmod(stat.S_IRUSR)
        os.chown(directory, nobody, -1)
        directory.chmod(stat.S_IRUSR | stat.S_IXUSR)

        def work() -> None:
            if os.getuid() == 0:
                os.setuid(nobody)
            with pytest.raises(PermissionError):
                (directory / "new").touch()
            assert world.verify() == sound(3)
            assert len(list(world.journal().read())) == 3

        assert reap(fork(work)) == 0
    finally:
        directory.chmod(stat.S_IRWXU)
        shutil.rmtree(directory)


def test_verifying_waits_for_a_writer_only_to_begin(world: World) -> None:
    world.fill(2)
    with FileLock(world.path, shared=True):
        assert world.verify() == sound(2)


def test_verifying_beside_writers_finds_no_fault(world: World) -> None:
    world.fill(1)

    def work() -> None:
        with world.journal() as journal:
            for number in range(80):
                journal.append(record(number))

    children = [fork(work) for _ in range(3)]
    while children:
        if os.waitpid(children[0], os.WNOHANG) != (0, 0):
            children.pop(0)
        report = world.verify()
        assert report == sound(report.records)
    assert world.verify() == sound(1 + 3 * 80)


def test_verifying_a_journal_that_comes_into_being_finds_no_fault(world: World) -> None:
    for number in range(20):
        fresh = World(world.directory / str(number))
        fresh.directory.mkdir()
        child = fork(partial(_fill_one, fresh))
        report = None
        while report is None or report.records == 0:
            try:
                report = fresh.verify()
            except VerificationFailed:
                continue
            assert report.ok
        assert reap(child) == 0
        assert fresh.names() == {"key", "receipts.jsonl", "receipts.jsonl.anchor"}


def _fill_one(world: World) -> None:
    world.fill(1)
