"""Finding runs: by id, by the beginning of it, by the newest; and how one stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.file_lock import FileLock
from coilclaw.runs import run_list
from coilclaw.runs.evidence.layout import RunPlaces
from coilclaw.runs.run_list import RunStore, is_run_worked_on, judge_standing, read_run

FIRST = "run_20260101_000000_aaaaaaaaaaaaaaaa"
SECOND = "run_20260102_000000_aaaabbbbbbbbbbbb"
THIRD = "run_20260102_000001_cccccccccccccccc"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    for name in (FIRST, SECOND, THIRD, "no run", "short"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "run_20260103_000000_ffffffffffffffff").symlink_to(tmp_path)
    (tmp_path / "runs" / "run_a_file_and_no_run").touch()
    return RunStore(RunPlaces(tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "run.unknown"),
        ("run", "run.unknown"),
        ("../runs", "run.unknown"),
        ("run_20260103_000000_ffffffffffffffff", "run.unknown"),
        ("run_a_file_and_no_run", "run.unknown"),
        ("short", "run.unknown"),
        ("run_20260102", "run.ambiguous"),
        ("aaaa", "run.ambiguous"),
    ],
)
def test_what_names_no_run_or_several_is_refused(store: RunStore, text: str, rule: str) -> None:
    with pytest.raises(UsageError) as refused:
        store.find(text)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        (FIRST, FIRST),
        ("run_20260101", FIRST),
        ("aaaaa", FIRST),
        ("aaaab", SECOND),
        ("cccc", THIRD),
        ("last", THIRD),
    ],
)
def test_a_run_is_found(store: RunStore, text: str, run_id: str) -> None:
    assert store.find(text).name == run_id


def test_a_store_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    store = RunStore(RunPlaces(tmp_path, tmp_path / "none"))
    assert store.ids() == ()
    with pytest.raises(UsageError):
        store.find("last")
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_events_is_empty(store: RunStore) -> None:
    assert read_run(store.find(FIRST)).standing == "empty"


def test_how_a_run_stands(store: RunStore, tmp_path: Path) -> None:
    def stands(*kinds: str) -> str:
        found: list[dict[str, object]] = [{"event_type": kind, "payload": {}} for kind in kinds]
        return judge_standing(found, worked=is_run_worked_on(tmp_path / "runs" / FIRST))

    assert stands("RUN_CREATED", "TASK_STARTED") == "interrupted"
    assert stands("RUN_CREATED", "RUN_PAUSED") == "paused"
    assert stands("RUN_CREATED", "RUN_SEALED") == "sealing"
    (tmp_path / "owners").mkdir()
    with FileLock(tmp_path / "owners" / f"{FIRST}.lock"):
        assert stands("RUN_CREATED", "TASK_STARTED") == "running"
        assert stands("RUN_CREATED", "RUN_PAUSED", "RUN_RESUMED") == "running"
    assert stands("RUN_CREATED", "TASK_STARTED") == "interrupted"
    assert store.ids() == (FIRST, SECOND, THIRD)


def test_a_run_that_ends_while_it_is_looked_at_is_not_interrupted(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owners").mkdir()
    owner = FileLock(tmp_path / "owners" / f"{FIRST}.lock")
    began: dict[str, object] = {"event_type": "RUN_CREATED", "task_id": None, "payload": {}}

    def read_and_end(*_: object) -> list[dict[str, object]]:
        owner.release()
        return [began]

    monkeypatch.setattr(run_list, "read_events", read_and_end)
    owner.acquire()
    assert read_run(store.find(FIRST)).standing == "running"
    assert read_run(store.find(FIRST)).standing == "interrupted"
