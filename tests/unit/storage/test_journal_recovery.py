"""After a crash: torn bytes are kept and moved aside, whole records are taken over."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.kernel.journal_tail import Recovered
from tests.unit.storage.worlds import World, record, sound


def _crashed(world: World, *, anchored: int, whole: int) -> bytes:
    """Leave the anchor where it was after some of the records; return the last record's line."""
    world.journal().open()
    world.fill(anchored)
    anchor = world.anchor.read_bytes()
    world.fill(whole - anchored, start=anchored + 1)
    world.anchor.write_bytes(anchor)
    return world.lines()[-1]


def test_a_last_line_torn_anywhere_is_moved_aside(world: World) -> None:
    last = _crashed(world, anchored=2, whole=3)
    anchor, whole = world.anchor.read_bytes(), world.path.read_bytes()
    kept = len(whole) - len(last)
    for length in range(1, len(last)):
        world.path.write_bytes(whole[: kept + length])
        world.anchor.write_bytes(anchor)
        assert world.verify() == sound(2, torn_bytes=length)
        with world.journal() as journal:
            journal.append(record(3))
            torn = world.directory / "receipts.jsonl.torn-1"
            assert journal.recovered == (Recovered(torn, length, 3),)
        assert torn.read_bytes() == last[:length]
        assert world.path.read_bytes() == whole
        assert world.verify() == sound(3)
        torn.unlink()


def test_nothing_is_moved_where_nothing_is_torn(world: World) -> None:
    _crashed(world, anchored=2, whole=3)
    world.path.write_bytes(b"".join(world.lines()[:2]))
    with world.journal() as journal:
        journal.append(record(3))
        assert journal.recovered == ()
    assert world.verify() == sound(3)


@pytest.mark.parametrize("anchored", [0, 1, 4])
def test_whole_records_after_the_anchor_are_taken_over(world: World, anchored: int) -> None:
    _crashed(world, anchored=anchored, whole=5)
    assert world.verify() == sound(5, unanchored=5 - anchored)
    with world.journal() as journal:
        journal.open()
        assert world.verify() == sound(5)
        journal.append(record(6))
        assert journal.recovered == ()
    assert world.verify() == sound(6)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 5000,
        b"\n",
        b"\0\0\n\0\0\n",
        b'{"half":',
        b'{"a":1}\n',
        b"[]\n[]\n",
        b"\xff\xfe\n",
        b"x" * (17 * 2**20),
        b"x" * (17 * 2**20) + b"\nmore\n",
    ],
    ids=range(9),
)
def test_bytes_that_are_no_record_are_moved_aside(world: World, garbage: bytes) -> None:
    _crashed(world, anchored=1, whole=2)
    with world.path.open("ab") as file:
        file.write(garbage)
    with world.journal() as journal:
        journal.append(record(3))
        assert [(r.size, r.record) for r in journal.recovered] == [(len(garbage), 3)]
        assert journal.recovered[0].path.read_bytes() == garbage
    assert world.verify() == sound(3)


def test_a_record_that_does_not_follow_is_moved_aside_with_all_behind_it(world: World) -> None:
    _crashed(world, anchored=1, whole=5)
    lines = world.lines()
    world.put([*lines[:2], *lines[3:]])
    with world.journal() as journal:
        journal.open()
        assert [(r.size, r.record) for r in journal.recovered] == [(len(b"".join(lines[3:])), 3)]
        assert journal.recovered[0].path.read_bytes() == b"".join(lines[3:])
    assert world.verify() == sound(2)


def test_torn_bytes_are_found_by_an_object_that_is_open_already(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    journal = world.journal()
    journal.append(record(1))
    world.fill(1, start=2)  # by another process, which then died in the middle of a write
    with world.path.open("ab") as file:
        file.write(b'{"id":"r-3"')
    with caplog.at_level(logging.WARNING):
        journal.append(record(3))
    torn = world.directory / "receipts.jsonl.torn-1"
    assert journal.recovered == (Recovered(torn, 11, 3),)
    what = "ended in 11 bytes that are not a record after record 2"
    said = f"{world.path} {what}; they are kept in {torn}"
    assert [entry.getMessage() for entry in caplog.records] == [said]
    assert world.verify() == sound(3)


def test_every_crash_keeps_its_own_torn_file(world: World) -> None:
    journal = world.journal()
    for number in range(1, 4):
        journal.append(record(number))
        with world.path.open("ab") as file:
            file.write(b"torn %d" % number)
    journal.append(record(4))
    found = {r.path.name: r.path.read_bytes() for r in journal.recovered}
    assert found == {f"receipts.jsonl.torn-{n}": b"torn %d" % n for n in (1, 2, 3)}
    assert world.verify() == sound(4)


def test_a_torn_end_that_cannot_be_kept_stays_where_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill(1)
    with world.path.open("ab") as file:
        file.write(b"torn")
    before = world.path.read_bytes()
    names = world.names()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = world.journal()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(EnvironmentFault, match=r"cannot append to .*: No space left"):
            journal.append(record(2))
    assert (world.path.read_bytes(), world.names()) == (before, names)
    journal.append(record(2))
    assert world.verify() == sound(2)


def test_a_kill_before_the_first_record_leaves_a_good_start(world: World) -> None:
    world.journal().open()
    for names in (["receipts.jsonl"], ["receipts.jsonl", "receipts.jsonl.anchor"]):
        for name in names:
            (world.directory / name).unlink()
        world.fill(1)
        assert world.verify() == sound(1)
        world.path.unlink()
        world.anchor.unlink()
        world.journal().open()
