"""Comparisons: milestones, who was first, and tasks that cannot be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coilclaw.traces.evaluation.evaluation import evaluate
from coilclaw.traces.evaluation.graph import (
    Graph,
    Milestone,
    Score,
    compare,
    graph_of,
    measure_trajectory,
)
from tests.support.recordings import CASES, FakeJudge, court, passing, recording


def graph_in(folder: Path, name: str, parts: list[dict[str, str] | None]) -> Graph:
    folder.mkdir()
    return graph_of(evaluate(recording(folder, parts, name), court(folder, FakeJudge())))


def test_who_was_first_at_each_milestone(tmp_path: Path) -> None:
    slow = graph_in(
        tmp_path / "slow", "slow", [None, None, passing(*CASES[:2]), None, passing(*CASES)]
    )
    quick = graph_in(
        tmp_path / "quick", "quick", [passing(*CASES[:3]), passing(*CASES[:4]), passing(CASES[0])]
    )
    found = compare([slow, quick])
    first, second = found.standings
    assert first.milestones == (
        Milestone(25, 3, 3000, 330),
        Milestone(50, 5, 5000, 550),
        Milestone(75, 5, 5000, 550),
        Milestone(100, 5, 5000, 550),
    )
    assert [one.percent for one in second.milestones] == [25, 50, 75]
    assert (second.final, second.best, second.best_part) == (Score(1, 5), Score(4, 5), 2)
    assert second.regressions == 1
    assert found.fastest == {25: (1,), 50: (1,), 75: (1,), 100: (0,)}
    assert found.environments == ("kv_store",)
    told = found.json()
    assert told["fastest"] == {"25": ["quick"], "50": ["quick"], "75": ["quick"], "100": ["slow"]}
    assert told["comparable"] is True


def test_who_is_there_at_once_is_first_together(tmp_path: Path) -> None:
    one = graph_in(tmp_path / "one", "one", [passing(*CASES[:2]), passing(*CASES)])
    two = graph_in(tmp_path / "two", "two", [passing(*CASES[:3]), None, passing(*CASES)])
    found = compare([one, two, replace(two, trajectory_id="three")])
    assert found.fastest == {25: (0, 1, 2), 50: (1, 2), 75: (0,), 100: (0,)}
    fastest = found.json()["fastest"]
    assert fastest == {
        "25": ["one", "two", "three"],
        "50": ["two", "three"],
        "75": ["one"],
        "100": ["one"],
    }


def test_different_tasks_are_named_and_nobody_is_first(tmp_path: Path) -> None:
    graph = graph_in(tmp_path / "one", "one", [passing(*CASES)])
    found = compare([graph, replace(graph, environment="c_compiler")])
    assert found.environments == ("kv_store", "c_compiler")
    assert (found.comparable, found.fastest) == (False, {})
    versions = compare([graph, graph], ["a" * 64, "b" * 64])
    assert versions.environments == (f"kv_store {'a' * 12}", f"kv_store {'b' * 12}")
    assert (versions.comparable, versions.fastest) == (False, {})
    same = compare([graph, graph], ["a" * 64, "a" * 64])
    assert (same.comparable, same.environments) == (True, ("kv_store",))


def test_one_alone_is_first_nowhere(tmp_path: Path) -> None:
    found = compare([graph_in(tmp_path / "one", "one", [passing(*CASES)])])
    assert (found.comparable, found.fastest) == (False, {})
    assert len(found.standings[0].milestones) == 4


def test_nothing_recorded_is_a_standing_too(tmp_path: Path) -> None:
    standing = measure_trajectory(graph_in(tmp_path / "none", "none", []))
    assert (standing.parts, standing.final, standing.best, standing.milestones) == (
        0,
        None,
        None,
        (),
    )
