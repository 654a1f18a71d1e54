"""What can be refused is refused before anything is printed or made; and the defaults."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.agent.estop import Estop
from coilclaw.app.drivers import open_tracing
from coilclaw.cli.console import Console
from coilclaw.cli.parser import Parser
from coilclaw.cli.traces import trace_run
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, Stopped, UsageError
from coilclaw.traces import trace_session as trace_recorder
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.artifacts.uploader import UploadReport
from coilclaw.traces.environments import catalogue
from coilclaw.traces.trace_session import TraceOptions, Tracing
from coilclaw.traces.trajectory.opened_trajectory import TrajectoryOpening
from coilclaw.traces.trajectory.plan import TracePlaces
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.acceptance.test_trace_commands import ENVIRONMENT
from tests.support.s3server import Fault, going_wrong
from tests.support.trajectories import opened

ID = "refused"


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    with opened() as world:
        start = world.home.parent
        (start / "task").mkdir()
        (start / "task" / "main.py").write_text(ENVIRONMENT)
        (start / "task" / "task.md").write_text("Make three files that say ok.\n")
        (start / "agent.json").write_text(json.dumps([[{"text": "x"}]]))
        yield open_tracing(world.home, environ={"PATH": "/usr/bin:/bin"}, start=start)


def wishes(**more: Any) -> TraceOptions:
    made = TraceOptions(
        agent="scripted:agent.json",
        environment="./task/main.py",
        trajectory_id=ID,
        max_turns=1,
    )
    return replace(made, **more)


def refusal(tracing: Tracing, **more: Any) -> CoilClawError:
    """The error; nothing may be there that was not there before."""
    with pytest.raises(CoilClawError) as refused:
        tracing.ready(tracing.plan(wishes(**more)))
    assert not (tracing.home / "trajectories").exists()
    return refused.value


@pytest.mark.parametrize(
    ("agent", "rule", "hint"),
    [
        ("builtin", "trajectory.agent", "use codex"),
        ("code-commit", "trajectory.agent", "use codex"),
        ("codex", "agent.missing", "coilclaw agents install codex"),
        ("codex-exec", "agent.missing", "coilclaw agents install codex"),
        ("opencode", "agent.missing", "coilclaw agents install opencode"),
        ('acp:"gemini --acp"', "acp.missing", "PATH"),
        ("acp:gemini --acp", "agent.missing", "coilclaw agents install gemini"),
        ("acp:./nothing", "acp.missing", "path"),
        ("process:no-such-program", "agent.missing", "PATH"),
        ("process:./agent.json", "agent.missing", "path"),
        ("scripted:none.json", "script.read", ""),
        ("somebody", "runner.unknown", "use "),
    ],
)
def test_an_agent_that_cannot_work_here(tracing: Tracing, agent: str, rule: str, hint: str) -> None:
    problem = refusal(tracing, agent=agent)
    assert (type(problem), problem.rule) == (UsageError, rule)
    assert hint in (problem.hint or "")


def test_the_neighbours_are_let_through(tracing: Tracing) -> None:
    tracing.ready(tracing.plan(wishes()))
    tracing.ready(tracing.plan(wishes(agent="process:true")))
    (tracing.start / "mine").write_text("#!/bin/sh\n")
    (tracing.start / "mine").chmod(0o755)
    tracing.ready(tracing.plan(wishes(agent="process:./mine")))
    tracing.ready(tracing.plan(wishes(agent="acp:./mine")))
    assert not (tracing.home / "trajectories").exists()


def test_flags_that_are_none(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    tracing.jobs = 0
    assert refusal(tracing).rule == "usage.jobs"
    tracing.jobs = 1
    assert refusal(tracing, max_parts=0).rule == "trajectory.budget"
    assert refusal(tracing, timeout_s=float("nan")).rule == "trajectory.budget"
    assert refusal(tracing, trajectory_id="nul").rule == "trajectory.id"
    assert refusal(tracing, environment="./nowhere").rule == "environment.unknown"
    none = SandboxSupport(None, False, 3, ("it is not installed",), True)
    monkeypatch.setattr(trace_recorder, "probe_sandboxes", lambda: none)
    tracing.ready(tracing.plan(wishes()))
    tracing.box = "bwrap"
    assert refusal(tracing).rule == "sandbox.unavailable"


def test_the_emergency_stop(tracing: Tracing) -> None:
    Estop.of(tracing.home).trigger("a test")
    problem = refusal(tracing)
    assert (type(problem), problem.rule) == (Stopped, "estop")
    with pytest.raises(Stopped):
        tracing.resumable(ID)
    Estop.of(tracing.home).clear()
    tracing.ready(tracing.plan(wishes()))


def test_an_id_that_is_taken_here_or_in_the_store(tracing: Tracing) -> None:
    plan = tracing.plan(wishes())
    tracing.ready(plan)
    tracing.run(plan)
    with pytest.raises(UsageError) as here:
        tracing.ready(plan)
    assert here.value.rule == "trajectory.exists"
    elsewhere = open_tracing(
        tracing.home.parent / "other", tracing.environ, tracing.start,
        store_at=str(tracing.home / "artifacts"),
    )  # fmt: skip
    problem = refusal(elsewhere)
    assert (problem.rule, "at /" in problem.message) == ("trajectory.exists", True)
    assert refusal(elsewhere, trajectory_id=ID, agent="codex").rule == "agent.missing"
    elsewhere.ready(elsewhere.plan(wishes(trajectory_id="another")))


def test_one_that_is_being_recorded(tracing: Tracing) -> None:
    plan = tracing.plan(wishes())
    tracing.run(plan)
    opening = TrajectoryOpening(TracePlaces(tracing.home, ID), stamp=str, seconds=int)
    with opening.lock_trajectory():
        for ask in (lambda: tracing.ready(plan), lambda: tracing.resumable(ID)):
            with pytest.raises(EnvironmentFault) as refused:
                ask()
            assert refused.value.rule == "trajectory.busy"
            assert f"process {os.getpid()}" in refused.value.message
    tracing.resumable(ID)


def test_what_cannot_be_gone_on_with(tracing: Tracing) -> None:
    with pytest.raises(UsageError) as unknown:
        tracing.resumable(ID)
    assert unknown.value.rule == "trajectory.unknown"
    tracing.run(tracing.plan(wishes()))
    before = TracePlaces(tracing.home, ID).journal.read_bytes()
    (tracing.start / "agent.json").unlink()
    with pytest.raises(UsageError) as script:
        tracing.resumable(ID)
    assert script.value.rule == "script.read"
    (tracing.start / "task" / "main.py").write_text(ENVIRONMENT + "#\n")
    with pytest.raises(UsageError) as changed:
        tracing.resumable(ID)
    assert changed.value.rule == "trajectory.environment"
    assert TracePlaces(tracing.home, ID).journal.read_bytes() == before


def unwritable(folder: Path) -> str:
    (folder / "file").write_text("")
    return str(folder / "file" / "store")


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        (lambda _: "s3://x", "artifact.address"),
        (lambda _: "ftp://x/y", "artifact.address"),
        (lambda _: "s3://bucket", "artifact.credentials"),
        (unwritable, "artifact.io"),
    ],
)
def test_a_store_that_is_none(tracing: Tracing, place: Callable[[Path], str], rule: str) -> None:
    tracing.store_at = place(tracing.start)
    assert refusal(tracing).rule == rule


def test_a_bucket_that_cannot_be_reached_or_used(tracing: Tracing) -> None:
    tracing.store_at = "s3://bucket-under-test"
    refusals: list[Fault] = ["denied"] * 9
    with going_wrong(*refusals) as server:
        tracing.environ = {**tracing.environ, **server.environ()}
        assert refusal(tracing).rule == "artifact.denied"
    problem = refusal(tracing)
    assert (problem.rule, "nothing was begun" in problem.message) == ("artifact.network", True)
    assert "--store" in (problem.hint or "")


def test_a_store_without_conditions(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.put

    def careless(self: LocalStore, key: str, source: Any, **_: Any) -> Any:
        return real(self, key, source, previous=None)

    monkeypatch.setattr(LocalStore, "put", careless)
    assert refusal(tracing).rule == "artifact.conditions"


def test_the_defaults(tracing: Tracing) -> None:
    parser = Parser()
    trace_run.declare(parser)
    args = parser.parse_args([])
    asked = trace_run._read_options(args)
    assert asked == TraceOptions()
    assert (asked.agent, asked.max_parts) == ("codex", 1000)
    assert (asked.max_turns, asked.timeout_s) == (None, None)
    assert (args.sandbox, args.detach, args.preemptible) == ("local", False, False)
    assert trace_recorder.DEFAULT_ENVIRONMENT == "c_compiler"
    assert "c_compiler" in catalogue.names()
    plan = tracing.plan(TraceOptions())
    assert (plan.agent, plan.environment, plan.max_parts) == ("codex", "c_compiler", 1000)
    assert plan.network == "deny"
    place = f"{tracing.home}/artifacts/trajectories/{plan.trajectory_id}"
    assert plan.trace_uri == f"{place}/agent_trace.json"
    assert plan.bundle_uri == f"{place}/repo.bundle"
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_S3_BUCKET": "a-bucket"}
    tracing.environ = {**tracing.environ, **keys}
    afar = tracing.plan(TraceOptions())
    assert afar.trace_uri == f"s3://a-bucket/trajectories/{afar.trajectory_id}/agent_trace.json"
    assert afar.trajectory_id != plan.trajectory_id


def test_the_end_says_that_it_waits_and_a_signal_ends_the_waiting(
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalStore.put

    def full(self: LocalStore, key: str, source: Any, **more: Any) -> Any:
        if key.endswith("repo.bundle"):
            raise EnvironmentFault("there is no room", rule="artifact.io")
        return real(self, key, source, **more)

    monkeypatch.setattr(LocalStore, "put", full)
    monkeypatch.setattr(trace_recorder, "FLUSH_LOOK_S", 0.2)
    err = io.StringIO()
    progress = trace_run.TraceProgress(
        Console(io.StringIO(), err, colour_out=False, colour_err=False)
    )

    def wait(report: UploadReport, seconds: int) -> None:
        progress.wait(report, seconds)
        tracing.cancel.cancel("signal SIGINT")

    tracing.on_wait = wait
    outcome = tracing.run(tracing.plan(wishes()))
    assert outcome.end.reason == "turn_limit"
    assert not outcome.uploads.complete
    assert "artifacts to reach the store: there is no room; a signal ends" in err.getvalue()
