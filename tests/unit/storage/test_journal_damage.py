"""Damage: appending refuses, says what is wrong and what to do, and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from coilclaw.kernel.errors import JournalDamaged
from coilclaw.kernel.journal_format import JournalHead, Signer
from tests.unit.storage.worlds import World, record, sound

HINT = (
    "verify it to see what happened; to start a new journal, move this one and "
    "receipts.jsonl.anchor aside together and keep both as evidence"
)


def _cut(world: World, length: int) -> None:
    os.truncate(world.path, world.path.stat().st_size - length)


def _edit_last(world: World) -> None:
    lines = world.lines()
    world.put([*lines[:-1], lines[-1].replace(b"shell", b"SHELL")])


def _edit_anchor(world: World) -> None:
    world.anchor.write_bytes(world.anchor.read_bytes().replace(b'"count":5', b'"count":4'))


def _swap_last(world: World) -> None:
    lines = world.lines()
    world.put([*lines[:3], lines[4], lines[3]])


DAMAGES: list[tuple[Callable[[World], object], str]] = [
    (lambda world: _cut(world, 1), "bytes, and its anchor says 5 records in"),
    (lambda world: world.put(world.lines()[:-1]), "bytes, and its anchor says 5 records in"),
    (lambda world: world.put([]), "it has 0 bytes, and its anchor says 5 records in"),
    (lambda world: world.path.unlink(), "it is gone, and receipts.jsonl.anchor is still there"),
    (lambda world: world.anchor.unlink(), "it has records but no anchor receipts.jsonl.anchor"),
    (_edit_anchor, "receipts.jsonl.anchor was edited"),
    (lambda world: world.anchor.write_bytes(b""), "receipts.jsonl.anchor is not an anchor"),
    (lambda world: os.truncate(world.anchor, 511), "receipts.jsonl.anchor is not an anchor"),
    (lambda world: world.key.unlink(), "of its anchor is missing"),
    (lambda world: world.key.write_bytes(b"k" * 32), "was made with key"),
    (_edit_last, "record 5 is not the one that was anchored"),
    (_swap_last, "record 5 is not the one that was anchored"),
]


@pytest.mark.parametrize(("damage", "what"), DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_journal_is_not_continued(
    world: World, damage: Callable[[World], object], what: str
) -> None:
    world.fill(5)
    damage(world)
    before = {name: (world.directory / name).read_bytes() for name in world.names()}
    journal = world.journal()
    for _ in range(2):  # asking again does not help
        with pytest.raises(JournalDamaged) as caught:
            journal.append(record(6))
        assert what in caught.value.message
        assert str(world.path) in caught.value.message
        assert (caught.value.rule, caught.value.hint) == ("journal.damaged", HINT)
    assert {name: (world.directory / name).read_bytes() for name in world.names()} == before


@pytest.mark.parametrize("damage", [damage for damage, _ in DAMAGES[:8]], ids=range(8))
def test_an_open_journal_that_others_wrote_to_is_not_continued_either(
    world: World, damage: Callable[[World], object]
) -> None:
    journal = world.journal()
    journal.append_all([record(1), record(2)])
    world.fill(3, start=3)
    damage(world)
    with pytest.raises(JournalDamaged):
        journal.append(record(6))


def test_records_of_others_are_checked_when_they_are_learnt(world: World) -> None:
    for damage, what in (
        (_edit_last, "record 5 is wrong: its content does not have its receipt_hash"),
        (_swap_last, "record 4 is wrong: it does not follow the last"),
    ):
        for path in (world.path, world.anchor):
            path.unlink(missing_ok=True)
        journal = world.journal()
        journal.append_all([record(1), record(2)])
        world.fill(3, start=3)
        damage(world)
        with pytest.raises(JournalDamaged) as caught:
            journal.append(record(6))
        assert what in caught.value.message


def test_records_of_others_that_were_cut_off_again_are_missed(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    size = world.path.stat().st_size
    world.fill(2, start=2)
    os.truncate(world.path, size)  # to exactly where this object left it
    with pytest.raises(JournalDamaged, match="it has 1 records, and its anchor says 3"):
        journal.append(record(4))


def test_an_old_journal_put_back_with_its_old_anchor_is_seen_by_who_wrote_it(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    old = world.path.read_bytes(), world.anchor.read_bytes()
    journal.append(record(2))
    world.path.write_bytes(old[0])
    world.anchor.write_bytes(old[1])
    with pytest.raises(JournalDamaged, match=r"and had .* when this process wrote"):
        journal.append(record(3))


def test_an_old_anchor_put_back_is_seen_by_who_wrote_it(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    old = world.anchor.read_bytes()
    journal.append(record(2))
    world.anchor.write_bytes(old)
    with pytest.raises(JournalDamaged, match="its anchor says 1 records, and said 2 before"):
        journal.append(record(3))


def test_another_anchor_for_as_many_records_is_seen(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    head = JournalHead(1, world.path.stat().st_size, "0" * 64)
    world.anchor.write_bytes(Signer(world.key.read_bytes()).render(head))
    with pytest.raises(JournalDamaged, match="its anchor says 1 records, and said 1 before"):
        journal.append(record(2))


def test_an_anchor_that_covers_other_bytes_is_seen(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))
    world.fill(2, start=2)
    head = JournalHead(3, world.path.stat().st_size, "0" * 64)
    world.anchor.write_bytes(Signer(world.key.read_bytes()).render(head))
    with pytest.raises(JournalDamaged, match="record 3 is not the one that was anchored"):
        journal.append(record(4))


def test_an_early_record_is_left_to_verification(world: World) -> None:
    world.fill(5)
    lines = world.lines()
    world.put([lines[0].replace(b"shell", b"SHELL"), *lines[1:]])
    world.fill(1, start=6)  # appending reads only the end
    report = world.verify()
    assert report.break_ is not None
    assert (report.break_.number, report.break_.reason) == (1, "edited")


def test_an_empty_journal_without_anchor_has_nothing_to_lose(world: World) -> None:
    world.path.touch()
    world.fill(1)
    assert world.verify() == sound(1)


def test_long_records_are_found_from_behind(world: World) -> None:
    journal = world.journal()
    for size in (1, 4000, 4096, 100_000):
        journal.append({"text": "x" * size})
        again = world.journal()
        again.append({"text": "y"})
        again.close()
    assert world.verify() == sound(8)
