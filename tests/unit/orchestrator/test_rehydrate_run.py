"""Rehydration: a run told from its events, and where its records part from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import json_bytes
from coilclaw.runs.evidence.event_index import EvidenceDivergence
from coilclaw.runs.evidence.rehydration import rehydrate_run
from tests.support.bundles import CHILD, RUN_ID, TASK, World, picture


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("whole"))
    world.play()
    world.seal()
    return world


def test_an_unknown_run_is_a_usage_error_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        rehydrate_run(tmp_path / RUN_ID)
    assert caught.value.rule == "run.unknown"
    assert list(tmp_path.iterdir()) == []


def test_the_course_of_a_run_is_told_again_and_again(whole: World) -> None:
    before = picture(whole.directory)
    told = rehydrate_run(whole.directory)
    assert rehydrate_run(whole.directory) == told
    assert picture(whole.directory) == before
    assert (told.run_id, told.status, told.state, told.sealed) == (
        RUN_ID, "SUCCESS", "S6_DONE", True,
    )  # fmt: skip
    assert [moment.state for moment in told.timeline] == [
        "S0_PM", "S1_TECH_LEAD", "S2_WORKER", "S3_REVIEWER", "S4_TEST", "S5_FIX", "S2_WORKER",
        "S3_REVIEWER", "S4_TEST", "S6_DONE",
    ]  # fmt: skip
    assert (told.divergences, told.first_divergence) == ((), None)


def test_tasks_tests_reviews_gates_and_the_fix_loop_are_told(whole: World) -> None:
    told = rehydrate_run(whole.directory)
    assert {task: facts["parent"] for task, facts in told.tasks.items()} == {
        TASK: None,
        CHILD: TASK,
    }
    assert [(row["task_id"], row["attempt"], row["status"]) for row in told.tests] == [
        (TASK, 0, "FAIL"),
        (CHILD, 1, "PASS"),
    ]
    assert [(row["task_id"], row["verdict"]) for row in told.reviews] == [
        (TASK, "PASS"),
        (CHILD, "PASS"),
    ]
    assert [(row["task_id"], row["child_task_id"], row["reason"]) for row in told.fixes] == [
        (TASK, CHILD, "tests failed")
    ]
    assert [row["passed"] for row in told.gates if row["gate"] == "tests_gate"] == [
        False,
        True,
        True,
    ]
    assert told.json()["first_divergence"] is None
    json.dumps(told.json())


def test_a_run_that_goes_on_or_waits_is_told_as_far_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    assert (rehydrate_run(world.directory).status, rehydrate_run(world.directory).state) == (
        "RUNNING",
        "S2_WORKER",
    )
    world.tell(EventType.RUN_PAUSED, reason="approval")
    assert rehydrate_run(world.directory).status == "PAUSED"
    world.tell(EventType.RUN_RESUMED, process="1:2")
    told = rehydrate_run(world.directory)
    assert (told.status, told.sealed, told.divergences) == ("RUNNING", False, ())


def _edit(path: str, **change: Any) -> Callable[[World], object]:
    def edit(world: World) -> object:
        place = world.directory / path
        value = {**json.loads(place.read_bytes()), **change}
        return place.write_bytes(json_bytes(value))

    return edit


def _events(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[World], object]:
    def edit(world: World) -> object:
        place = world.directory / layout.EVENTS
        return place.write_bytes(b"".join(change(place.read_bytes().splitlines(keepends=True))))

    return edit


REPORT = f"ci/{CHILD}/report-1.json"

DIVERGING: dict[str, tuple[Callable[[World], object], tuple[int, str, str]]] = {
    "another status": (
        _edit(REPORT, status="FAIL"),
        (28, "the file is not the one of the event", REPORT),
    ),
    "a file that is gone": (
        lambda world: (world.directory / REPORT).unlink(),
        (28, "the file that the event names is not there", REPORT),
    ),
    "a report that nobody made": (
        lambda world: (world.directory / "reviews" / "other.json").write_text("{}\n"),
        (0, "no event names this report", "reviews/other.json"),
    ),
    "an event that was changed": (
        _events(lambda lines: [*lines[:4], lines[4].replace(b"scripted", b"unscript"), *lines[5:]]),
        (5, "the chain of events is broken from here on", ""),
    ),
    "an event that is gone": (
        _events(lambda lines: [*lines[:9], *lines[10:]]),
        (10, "the chain of events is broken from here on", ""),
    ),
    "another end in the manifest": (
        _edit(layout.MANIFEST, status="FAILURE"),
        (33, "the manifest ends otherwise", "manifest.json"),
    ),
}


@pytest.mark.parametrize("name", DIVERGING)
def test_the_first_divergence_is_named(whole: World, tmp_path: Path, name: str) -> None:
    change, expected = DIVERGING[name]
    world = whole.copied(tmp_path)
    for path in [world.directory, *world.directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    change(world)
    found = rehydrate_run(world.directory).first_divergence
    assert found is not None
    assert (found.event, found.what, found.path) == expected


def test_both_sides_of_a_divergence_are_shown(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    place = world.directory / REPORT
    place.chmod(0o644)
    _edit(REPORT, status="FAIL", attempt=9)(world)
    found = rehydrate_run(world.directory).divergences
    assert (
        EvidenceDivergence(28, "event and report differ in status", REPORT, "PASS", "FAIL") in found
    )
    assert EvidenceDivergence(28, "event and report differ in attempt", REPORT, 1, 9) in found


def test_a_move_that_is_no_move_is_a_divergence(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    world.move("S2_WORKER", "S6_DONE", "tests_passed")
    assert rehydrate_run(world.directory).divergences == (
        EvidenceDivergence(
            5, "the run moved where it cannot", "", "S2_WORKER → S6_DONE", "S2_WORKER"
        ),
    )


def test_a_bundle_without_events_says_so(tmp_path: Path) -> None:
    (tmp_path / RUN_ID).mkdir()
    told = rehydrate_run(tmp_path / RUN_ID)
    assert told.divergences == (EvidenceDivergence(0, "no event exists", layout.EVENTS),)
    assert (told.status, told.state) == ("RUNNING", "S0_PM")
