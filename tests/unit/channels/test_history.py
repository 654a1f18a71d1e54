"""The history file: private, bounded, and never in the way."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from coilclaw.agent.channels.lines import MAX_BYTES, MAX_ENTRIES, MAX_ENTRY, LineHistory
from coilclaw.kernel.errors import EnvironmentFault


@pytest.mark.parametrize("line", ["", " secret", "x" * (MAX_ENTRY + 1)])
def test_some_lines_are_not_kept(tmp_path: Path, line: str) -> None:
    history = LineHistory(tmp_path / "history")
    assert not history.add(line)
    assert not (tmp_path / "history").exists()


def test_lines_are_kept_in_order_and_repetitions_once(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = LineHistory(path)
    kept = [history.add(line) for line in ("a", "a", "b\nc", "\u2028\ud800", "a")]
    assert kept == [True, False, True, True, True]
    assert LineHistory(path).load() == ["a", "b\nc", "\u2028\ud800", "a"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.touch(0o644)
    LineHistory(path).add("a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_read_in_the_file_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"a"\nnot json\n17\n"\xff"\n"b"\n"torn')
    assert LineHistory(path).load() == ["a", "b"]


def test_the_file_is_cut_down_to_its_last_entries(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(f"line {n}") + "\n" for n in range(3 * MAX_ENTRIES)))
    loaded = LineHistory(path).load()
    assert loaded == [f"line {n}" for n in range(2 * MAX_ENTRIES, 3 * MAX_ENTRIES)]
    assert [json.loads(line) for line in path.read_text().splitlines()] == loaded
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_huge_file_is_cut_down_too(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text((json.dumps("x" * 4000) + "\n") * 900)
    assert path.stat().st_size > 3 * MAX_BYTES
    assert set(LineHistory(path).load()) == {"x" * 4000}
    assert path.stat().st_size <= 2 * MAX_BYTES


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('"a"\n')
    (tmp_path / "history").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentFault):
        LineHistory(tmp_path / "history").add("b")
    with pytest.raises(EnvironmentFault):
        LineHistory(tmp_path / "history").load()
    assert (tmp_path / "elsewhere").read_text() == '"a"\n'
