"""The agent's own session: written down when it is named, so that a kill does not lose it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from coilclaw.kernel.messages import Part
from coilclaw.runners.runner import Assignment, Ending, Means
from coilclaw.traces.trajectory.opened_trajectory import repair_document
from coilclaw.traces.trajectory.plan import TrajectoryPlan
from coilclaw.traces.trajectory.verification import verify_trajectory
from tests.support.scale import scaled
from tests.support.trajectories import Saying, World, opened

KILLS = scaled(full=40, default=12)
TASK = "do it"
Performance: TypeAlias = Callable[[Assignment, Means], Generator[Part, None, Ending]]


class Vanished(BaseException):
    """As if the process were killed here."""


def test_it_is_written_down_before_the_first_part() -> None:
    with opened() as world:

        def named(_: Assignment, means: Means) -> Generator[Part, None, Ending]:
            means.on_session("thread-1")
            kinds = [record["type"] for record in world.records()]
            assert kinds == ["session", "turn", "agent_session"]
            assert world.trace().session_id == "thread-1"
            means.on_session("thread-1")
            yield Part("text", text="x")
            means.on_session("thread-2")
            yield Part("text", text="y")
            return Ending("done", thread_id="thread-2")

        world.run(lambda _: Saying(named), max_turns=1)
        kinds = [record["type"] for record in world.records()]
        assert kinds.count("agent_session") == 2
        trace = world.trace()
        assert [part.session_id for part in trace.parts] == ["thread-1", "thread-2"]
        assert (trace.session_id, trace.turns[0].session_id) == ("thread-2", "thread-2")
        assert verify_trajectory(world.places).problems == ()


def test_what_was_killed_in_its_first_turn_goes_on_and_is_told_the_task_again() -> None:
    given: list[tuple[str, bool]] = []

    def named(assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        given.append((assignment.thread_id, assignment.instruction.startswith(TASK)))
        means.on_session("thread-1")
        yield Part("text", text="x")
        if len(given) == 1:
            raise Vanished
        return Ending("done", thread_id="thread-1")

    with opened() as world:
        try:
            world.run(lambda _: Saying(named), max_turns=3)
        except Vanished:
            repair_document(world.places)
        assert [turn.session_id for turn in world.trace().turns] == ["thread-1"]
        world.resume(lambda _: Saying(named))
        # It may have been killed before it kept what it was told, but not in the turn after.
        assert given == [("", True), ("thread-1", True), ("thread-1", False)]
        assert [turn.status for turn in world.trace().turns] == ["killed", "done", "done"]
        assert verify_trajectory(world.places).problems == ()


def test_a_session_that_the_agent_has_lost_is_begun_anew_with_the_whole_task() -> None:
    given: list[tuple[str, bool]] = []

    def forgets(assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        given.append((assignment.thread_id, assignment.instruction.startswith(TASK)))
        if assignment.thread_id == "thread-1":
            why = "it has no such thread"
            return Ending("failed", why, thread_id="thread-1", session_lost=True)
        name = assignment.thread_id or f"thread-{len(given)}"
        means.on_session(name)
        yield Part("text", text="x")
        return Ending("done", thread_id=name)

    with opened() as world:
        world.run(lambda _: Saying(forgets), max_turns=4)
        assert given == [("", True), ("thread-1", False), ("", True), ("thread-3", False)]
        trace = world.trace()
        assert [turn.status for turn in trace.turns] == ["done", "failed", "done", "done"]
        assert trace.session_id == "thread-3"
        assert verify_trajectory(world.places).problems == ()


def test_a_kill_at_any_moment_leaves_what_was_named() -> None:
    chance = random.Random(os.environ.get("COILCLAW_KILL_SEED", "sessions"))
    with opened() as world:  # This also warms the process that is forked.
        began = time.monotonic()
        world.run(lambda _: Saying(resumed_with([])), max_turns=1)
        took = time.monotonic() - began
    named = 0
    for _ in range(KILLS):
        with opened() as world:
            told, seen = world.home.parent / "told", list[str]()
            killed_after(chance.uniform(0.0, 2 * took), world, told)
            if not world.places.session.exists():
                assert not told.exists()
                continue
            world.resume(always(resumed_with(seen)), one_more_turn)
            named += told.exists()
            assert seen[0] == "thread-1" or not told.exists()
            assert verify_trajectory(world.places).problems == ()
    assert named > 0


def resumed_with(seen: list[str]) -> Performance:
    """An agent that notes the session that it shall go on with."""

    def goes_on(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        seen.append(assignment.thread_id)
        yield Part("text", text="y")
        return Ending("done")

    return goes_on


def always(performance: Performance) -> Callable[[int], Saying]:
    return lambda _: Saying(performance)


def one_more_turn(plan: TrajectoryPlan) -> TrajectoryPlan:
    return replace(plan, max_turns=2, max_parts=1_000_000)


def killed_after(moment_s: float, world: World, told: Path) -> None:
    """Record in a child that tells when the session is named, and kill it."""

    def names(_: Assignment, means: Means) -> Generator[Part, None, Ending]:
        means.on_session("thread-1")
        told.touch()
        while True:
            yield Part("text", text="x")

    child = os.fork()
    if child == 0:
        try:
            world.run(lambda _: Saying(names), max_parts=100_000)
        finally:
            os._exit(1)
    time.sleep(moment_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
