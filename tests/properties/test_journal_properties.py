"""The journal: whatever is appended reads back and verifies, and no changed byte goes unseen."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coilclaw.kernel.journal import Journal
from coilclaw.kernel.journal_format import JournalForm, JournalLink
from coilclaw.kernel.journal_verification import JournalReport, verify_journal
from coilclaw.kernel.strict_json import MAX_INTEGER

NAMES = st.sampled_from(["receipt_hash", "event_hash", "A", "zz", "previous", "previous_hash_"])
RESERVED = {"previous_hash", "receipt_hash", "event_hash", "A", "zz", "previous"}
# Keys that come close to the journal's own, so that cutting the hash out could go wrong.
KEYS = st.text(st.sampled_from('azAZ_"\\,:{}previous_hash\n'), max_size=16) | st.sampled_from(
    ['x"receipt_hash', ',"event_hash', "previous_hash_2", '"', "\\", "receipt_has"]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(['","receipt_hash":"', '{"previous_hash":"' + "0" * 64 + '"}', "0" * 64])
)
ANY_KEYS = KEYS | st.sampled_from(sorted(RESERVED))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_KEYS, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(KEYS.filter(lambda key: key not in RESERVED), VALUES, max_size=5)


@dataclass(frozen=True, slots=True)
class Made:
    """A finished journal, whose bytes each example changes in its own way."""

    path: Path
    key: Path
    lines: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        return b"".join(self.lines)

    def verify(self, data: bytes) -> JournalReport:
        self.path.write_bytes(data)
        return verify_journal(
            self.path, hash_field="receipt_hash", id_field="id", key_path=self.key
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("made")
    path, key = directory / "journal", directory / "key"
    with Journal(path, hash_field="receipt_hash", id_field="id", key_path=key) as journal:
        journal.append_all(
            {"id": f"r-{n}", "text": 'a "quoted" ünïcödé text', "nested": {"receipt_hash": n}}
            for n in range(1, 7)
        )
    return Made(path, key, tuple(path.read_bytes().splitlines(keepends=True)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(RECORDS, max_size=4), max_size=4), NAMES)
def test_whatever_is_appended_reads_back_and_verifies(
    batches: list[list[dict[str, Any]]], name: str
) -> None:
    with tempfile.TemporaryDirectory() as text:
        path, key = Path(text, "journal"), Path(text, "key")
        records = [record for batch in batches for record in batch]
        with Journal(path, hash_field=name, key_path=key) as journal:
            journal.open()
            hashes = [value for batch in batches for value in journal.append_all(batch)]
            found = list(journal.read())
        report = verify_journal(path, hash_field=name, key_path=key)
        assert report == JournalReport(True, len(records), 0, 0, "valid", None)
        previous = ["0" * 64, *hashes[:-1]][: len(records)]
        assert found == [
            {**record, "previous_hash": before, name: own}
            for record, before, own in zip(records, previous, hashes, strict=True)
        ]


@settings(deadline=None)
@given(RECORDS, NAMES, st.data())
def test_no_changed_byte_of_any_line_passes(
    record: dict[str, Any], name: str, data: st.DataObject
) -> None:
    form = JournalForm(name)
    line, _ = form.seal(form.draft(record), "0" * 64)
    assert isinstance(form.check(line, strict=True), JournalLink)
    place = data.draw(st.integers(0, len(line) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    assert not isinstance(
        form.check(line[:place] + bytes([value]) + line[place + 1 :]), JournalLink
    )


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_changed_byte_of_a_journal_passes(made: Made, data: st.DataObject) -> None:
    whole = made.data
    place = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    report = made.verify(whole[:place] + bytes([value]) + whole[place + 1 :])
    assert report.break_ is not None
    blamed = whole[:place].count(b"\n") + 1
    # A byte that becomes a newline splits its line: the line to blame stays the same.
    assert (report.ok, report.break_.number) == (False, blamed)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_bytes_put_in_or_taken_out_pass(made: Made, data: st.DataObject) -> None:
    whole = made.data
    start = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(start, min(len(whole), start + 400)))
    new = data.draw(st.binary(max_size=20))
    changed = whole[:start] + new + whole[end:]
    assume(not changed.startswith(whole))  # what comes after the anchor has rules of its own
    assert not made.verify(changed).ok


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_other_order_or_choice_of_lines_passes(made: Made, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(made.lines), max_size=9))
    assume(tuple(chosen) != made.lines)
    report = made.verify(b"".join(chosen))
    assert not report.ok
    assert report.break_ is not None
    assert report.break_.reason in {"deleted", "reordered", "inserted", "truncated"}


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_what_comes_after_the_anchor_is_counted_or_blamed(made: Made, data: st.DataObject) -> None:
    extra = data.draw(st.binary(min_size=1, max_size=60))
    report = made.verify(made.data + extra)
    assert report == JournalReport(True, 6, 0, len(extra), "valid", None)
