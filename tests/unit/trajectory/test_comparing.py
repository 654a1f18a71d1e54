"""Comparisons: milestones, who was first, and tasks that cannot be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from coilclaw.trajectory.comparing import Milestone, compare, standing_of
from coilclaw.trajectory.evaluation import evaluate
from coilclaw.trajectory.graphdata import Graph, Score, graph_of
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
    assert found.fastest == {25: 1, 50: 1, 75: 1, 100: 0}
    assert found.environments == ("kv_store",)
    told = found.json()
    assert told["fastest"] == {"25": "quick", "50": "quick", "75": "quick", "100": "slow"}


def test_different_tasks_are_named(tmp_path: Path) -> None:
    graph = graph_in(tmp_path / "one", "one", [passing(CASES[0])])
    found = compare([graph, replace(graph, environment="c_compiler")])
    assert found.environments == ("kv_store", "c_compiler")


def test_nothing_recorded_is_a_standing_too(tmp_path: Path) -> None:
    standing = standing_of(graph_in(tmp_path / "none", "none", []))
    assert (standing.parts, standing.final, standing.best, standing.milestones) == (
        0,
        None,
        None,
        (),
    )
