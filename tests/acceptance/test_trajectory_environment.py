"""A trajectory as a person asks for it: a real environment, its judge, the store of artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.app.drivers import open_tracing
from coilclaw.kernel.errors import Stopped, UsageError
from coilclaw.traces.trace_session import TraceOptions, Tracing
from coilclaw.traces.trajectory.plan import TracePlaces
from coilclaw.traces.trajectory.trace import load_trace
from coilclaw.traces.trajectory.verification import verify_trajectory
from tests.support.environments import BUILD, STORE, VARIANTS
from tests.support.trajectories import opened

ID = "traj-kv"


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    with opened() as world:
        yield open_tracing(world.home, environ={"PATH": "/usr/bin:/bin"}, start=world.home.parent)


def written(tracing: Tracing, *turns: list[dict[str, object]]) -> TraceOptions:
    (tracing.start / "script.json").write_text(json.dumps(turns))
    return TraceOptions(
        agent="scripted:script.json", environment="kv_store", trajectory_id=ID, max_turns=len(turns)
    )


def test_an_agent_that_builds_the_store_solves_the_environment(tracing: Tracing) -> None:
    regression = VARIANTS[0]
    wishes = written(
        tracing,
        [
            {"write": {"build.sh": BUILD, "kv.py": regression.source()}},
            {"shell": "chmod +x build.sh"},
            {"run_tests": "basics"},
            {"shell": f"cat {tracing.home}/artifacts/trajectories/{ID}/agent_trace.json; true"},
        ],
        [{"write": {"kv.py": STORE}}, {"text": "done"}],
    )
    plan = tracing.plan(wishes)
    assert plan.environment == "kv_store"
    assert plan.required == ("basics", "protocol", "durability", "edge_cases", "load")
    outcome = tracing.run(plan)
    assert (outcome.end.reason, outcome.end.total_parts) == ("solved", 6)
    assert outcome.uploads.troubles == ()
    places = TracePlaces(tracing.home, ID)
    assert verify_trajectory(places).problems == ()
    trace = load_trace(tracing.store.get(f"trajectories/{ID}/agent_trace.json"))
    assert trace.artifacts.agent_trace == str(
        tracing.home / "artifacts" / "trajectories" / ID / "agent_trace.json"
    )
    assert "schema_version" not in str(trace.parts[3].tool_output)
    tested = [[call.path for call in turn.envoi_calls] for turn in trace.turns]
    assert tested == [["protocol", "durability", "edge_cases", "load"], [""]]
    fixed = {case for call in trace.turns[1].envoi_calls for case in call.newly_fixed}
    assert fixed == regression.failing
    assert "\nCurrent test status:\n- basics: " in trace.turns[1].prompt
    with pytest.raises(UsageError, match="is solved"):
        tracing.resume(ID)


def test_what_cannot_be_recorded_is_refused_before_anything_is_made(tracing: Tracing) -> None:
    wishes = written(tracing, [{"text": "x"}])
    for refused in (
        replace(wishes, agent="nobody"),
        replace(wishes, agent="scripted:none.json"),
        replace(wishes, environment="nowhere"),
        replace(wishes, trajectory_id="a/b"),
        replace(wishes, max_parts=0),
        replace(wishes, prompt_file=Path("/nonexistent")),
    ):
        with pytest.raises(UsageError):
            tracing.plan(refused)
    (tracing.home / "ESTOP").touch()
    with pytest.raises(Stopped):
        tracing.run(tracing.plan(wishes))
    assert not (tracing.home / "trajectories").exists()


def test_another_environment_than_before_is_refused(tracing: Tracing) -> None:
    tracing.run(tracing.plan(written(tracing, [{"text": "x"}])))
    session = TracePlaces(tracing.home, ID).session
    kept = json.loads(session.read_text())
    session.write_text(json.dumps({**kept, "environment_version": "0" * 64}))
    with pytest.raises(UsageError, match="is not the one that trajectory traj-kv began with"):
        tracing.resume(ID)
