"""The format of version 1, which stays readable and verifiable for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

from coilclaw.kernel.journal_verification import verify_journal
from tests.unit.storage.worlds import World, sound

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "journal"

RECORDS: list[dict[str, object]] = [
    {"id": "r-1", "tool": "time", "arguments": "{}", "exit": 0, "ok": True},
    {"id": "r-2", "tool": "shell", "arguments": '{"argv":["ls","-l"]}', "exit": 2, "ok": False},
    {"id": "r-3", "text": 'quote " backslash \\ newline \n tab \t bell \x07 delete \x7f'},
    {"id": "r-4", "text": "ünïcödé \u2028 \U0001f40d", "list": [1, [None, {"b": 2, "a": 1}]]},
    {"id": "r-5", "largest": 2**53 - 1, "smallest": -(2**53) + 1, "zebra": {}, "alpha": []},
]


def test_the_baseline_verifies_where_it_stands() -> None:
    before = {path.name: path.stat().st_mtime_ns for path in BASELINE.iterdir()}
    report = verify_journal(
        BASELINE / "receipts.jsonl",
        hash_field="receipt_hash",
        id_field="id",
        key_path=BASELINE / "key",
    )
    assert report == sound(5)
    assert {path.name: path.stat().st_mtime_ns for path in BASELINE.iterdir()} == before
    assert set(before) == {"key", "receipts.jsonl", "receipts.jsonl.anchor"}


def test_the_baseline_reads_as_it_was_written() -> None:
    added = {"previous_hash", "receipt_hash"}
    records = list(World(BASELINE).journal().read())
    assert [{k: v for k, v in entry.items() if k not in added} for entry in records] == RECORDS


def test_the_same_records_are_written_the_same_today(world: World) -> None:
    shutil.copyfile(BASELINE / "key", world.key)
    world.journal().append_all(RECORDS)
    for name in ("receipts.jsonl", "receipts.jsonl.anchor"):
        assert (world.directory / name).read_bytes() == (BASELINE / name).read_bytes()


def test_the_baseline_can_be_continued(world: World) -> None:
    for path in BASELINE.iterdir():
        shutil.copyfile(path, world.directory / path.name)
    world.fill(1, start=6)
    assert world.verify() == sound(6)
