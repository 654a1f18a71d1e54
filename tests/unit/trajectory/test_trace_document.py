"""``agent_trace.json``: valid after every part, one write a part, and readable when it is torn."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.trajectory.trace import load_trace
from coilclaw.traces.trajectory.trace_document import (
    HEAD_BYTES,
    TraceDocument,
    encode_part,
    parse_trace,
)

PARTS: list[dict[str, Any]] = [{"part": n, "content": "\n]}" + f" {n} ä"} for n in range(1, 6)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent_trace.json"


def test_it_is_valid_json_after_every_part(path: Path) -> None:
    document = TraceDocument(path)
    document.rebuild({"a": 1}, [])
    assert json.loads(path.read_bytes()) == {"a": 1, "parts": []}
    for count, part in enumerate(PARTS, 1):
        document.append(part)
        assert json.loads(path.read_bytes()) == {"a": 1, "parts": PARTS[:count]}
    document.close()


def test_a_part_is_written_at_the_end_and_nothing_else_is_touched(path: Path) -> None:
    document = TraceDocument(path)
    document.rebuild({"a": 1}, PARTS[:3])
    before = path.read_bytes()
    inode = os.stat(path).st_ino
    document.append(PARTS[3])
    after = path.read_bytes()
    assert after.startswith(before[:-4])
    assert len(after) == len(before) + len(encode_part(PARTS[3])) + 2
    assert os.stat(path).st_ino == inode


def test_a_head_is_written_over_the_old_one(path: Path) -> None:
    document = TraceDocument(path)
    document.rebuild({"a": 1}, PARTS[:2])
    size = path.stat().st_size
    document.set_head({"a": "x" * 1000})
    assert json.loads(path.read_bytes()) == {"a": "x" * 1000, "parts": PARTS[:2]}
    document.set_head({"b": 2})
    document.append(PARTS[2])
    assert json.loads(path.read_bytes()) == {"b": 2, "parts": PARTS[:3]}
    assert path.stat().st_size == size + len(encode_part(PARTS[2])) + 2


def test_a_head_that_outgrows_its_place_gets_twice_as_much(path: Path) -> None:
    document = TraceDocument(path)
    document.rebuild({"a": 1}, PARTS[:2])
    large = {"a": "x" * HEAD_BYTES}
    document.set_head(large)
    document.append(PARTS[2])
    assert json.loads(path.read_bytes()) == {**large, "parts": PARTS[:3]}
    document.set_head({"a": 2})
    document.append(PARTS[3])
    assert json.loads(path.read_bytes()) == {"a": 2, "parts": PARTS[:4]}
    assert path.read_bytes().index(b',"parts":[') > HEAD_BYTES
    assert not list(path.parent.glob(".*"))


def test_what_a_crash_left_is_written_anew(path: Path) -> None:
    path.write_bytes(b"{")
    path.with_name(".agent_trace.json.tmp").write_bytes(b"junk")
    document = TraceDocument(path)
    document.rebuild({"a": 1}, PARTS)
    assert json.loads(path.read_bytes()) == {"a": 1, "parts": PARTS}


@pytest.mark.parametrize("cut", [1, 3, 5, 20, 40])
def test_of_a_torn_document_the_whole_parts_are_read(path: Path, cut: int) -> None:
    document = TraceDocument(path)
    document.rebuild({"a": 1}, PARTS)
    found = parse_trace(path.read_bytes()[:-cut], "it")
    parts = found["parts"]
    assert isinstance(parts, list)
    assert found["a"] == 1
    assert len(parts) >= len(PARTS) - 1 - (cut > 30)
    assert parts == PARTS[: len(parts)]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"3", b"\xff", b'{"a":1', b"[" * 100_000, b'x,"parts":[\n{}\n]}']
)
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="it is not a trace"):
        parse_trace(data, "it")


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"this version.*'agent_trace\.v0'") as caught:
        load_trace(b'{"schema_version": "agent_trace.v0", "parts": []}')
    assert caught.value.hint == "this program reads agent_trace.v1"
