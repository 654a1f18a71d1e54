"""A request over HTTP whose planner asks: the question is told, and answered."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from coilclaw.runs.roles.planner import MAX_QUESTION_CHARS
from tests.acceptance.test_gateway_runs import _begin, _home, _refused, _status, _until
from tests.acceptance.test_planner_exploration import PLAN, SENTENCE, saying
from tests.acceptance.test_planner_exploration import serving as playing
from tests.support.gateways import serving
from tests.support.runs import ADDS, World, opened

ANSWER = "No, only numbers."
SAID = "Shall add also take texts?\x1b[31m <b>"


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def _paused(client: httpx2.Client, run_id: str) -> Any:
    _until(lambda: _status(client, run_id) == "paused")
    return client.get(f"/runs/{run_id}").json()


def test_a_question_is_told_with_what_comes_next_and_answered(world: World) -> None:
    key = "sk-canary-0123456789abcdef"
    question = f"{SAID} {key} {'x' * 2 * MAX_QUESTION_CHARS}"
    answers = [{**saying(PLAN), "when": ANSWER}, saying({"question": question})]
    for name in ("workspace", "coilclaw-workspace"):
        (world.root / name).mkdir()
    agent = world.script([{"write": ADDS}])
    with playing(world, answers=answers):
        settings = {"repo": str(world.repo), "allow_run_programs": True}
        environ = {"PATH": world.environ["PATH"], "MY_KEY": world.environ["MY_KEY"]}
        with serving(_home(world), settings, **environ) as served, served.client() as client:
            run_id = _begin(client, {"request": SENTENCE, "runner": agent, "merge": True})
            told = _paused(client, run_id)
            assert told["reason"].startswith(f"the planner asks: {SAID}")
            assert len(told["reason"]) < MAX_QUESTION_CHARS + 100
            assert key not in told["reason"]
            (row,) = client.get("/runs").json()["runs"]
            assert row["reason"] == told["reason"]
            expected = ["coilclaw", "runs", "resume", run_id, "--answer", "YOUR ANSWER"]
            assert shlex.split(told["next"]) == [*expected, "--repo", str(world.repo)]

            # Without an answer it only waits again, and a blank one is none.
            at = f"/runs/{run_id}/resume"
            _until(lambda: client.post(at).status_code == 202)
            assert _paused(client, run_id)["reason"] == told["reason"]
            assert client.post(at, json={"answer": " "}).status_code == 400
            # It may be told to be paused a moment before it is let go.
            _until(lambda: client.post(at, json={"answer": ANSWER}).status_code == 202)
            _until(lambda: _status(client, run_id) == "passed")
            done = client.get(f"/runs/{run_id}").json()
            assert (done["merge"], done["next"]) == ("merged", "")
            assert _refused(client.post(at, json={"answer": ANSWER})) == (409, "run.answer")
    (answered,) = world.of(run_id, "USER_ANSWERED")
    assert answered["answer"] == ANSWER
