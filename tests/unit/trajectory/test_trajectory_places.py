"""Where a trajectory keeps what it needs, and which ids it may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan, load_plan


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a..b", "-a", "a.", "a\n", "ä", "a" * 129])
def test_what_is_no_single_name_is_no_id(name: str) -> None:
    with pytest.raises(UsageError, match="not an id of a trajectory"):
        TracePlaces(Path("/home"), name)


@pytest.mark.parametrize("name", ["a", "20261115-104428-e0e204b2", "A.b_c-d", "a" * 128])
def test_a_single_name_is_one(name: str) -> None:
    places = TracePlaces(Path("/home"), name)
    assert places.directory == Path("/home/trajectories") / name
    assert places.key_of("repo.bundle") == f"trajectories/{name}/repo.bundle"


@pytest.mark.parametrize(
    "budget",
    [
        {"max_parts": 0},
        {"max_parts": 1_000_001},
        {"max_turns": 0},
        {"timeout_s": 0.0},
        {"timeout_s": -1.0},
        {"timeout_s": float("inf")},
    ],
)
def test_a_budget_that_is_none_is_refused(budget: dict[str, float]) -> None:
    with pytest.raises(UsageError) as caught:
        TrajectoryPlan(trajectory_id="t", agent="scripted", **budget)  # type: ignore[arg-type]  # as given
    assert caught.value.rule == "trajectory.budget"


def test_a_plan_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    plan = TrajectoryPlan(
        trajectory_id="t",
        agent='acp:"x --y"',
        prompt="say “hello”\n",
        ignore=("*.o", "target/"),
        required=("basics", "extra"),
        max_parts=7,
        timeout_s=1.5,
        versions={"coilclaw": "1"},
    )
    plan.save(tmp_path / "session.json")
    assert load_plan(tmp_path / "session.json") == plan


@pytest.mark.parametrize("text", ["", "{}", '{"form": 2}', "[]", '{"form": 1, "agent": "x"}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "session.json").write_text(text)
    with pytest.raises(EnvironmentFault, match="is not a valid plan of a trajectory"):
        load_plan(tmp_path / "session.json")


def test_without_a_plan_there_is_no_trajectory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trajectory was found"):
        load_plan(tmp_path / "session.json")
