"""``run``: one trajectory, turn by turn, until it is solved or has to stop.

A turn is one prompt and everything that the agent does with it. What counts are parts: the budget
is in parts, and each is recorded when it is complete. At the end of a turn the tests are run on
what is there, and what they say is the next prompt.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ApprovalAnswer, Budget, CoilClawError, EnvironmentFault, Part, Stopped
from coilclaw.runners import (
    Assignment,
    Ending,
    Means,
    ask_nobody,
    environ_of,
    make_home,
    sandbox_of,
)
from coilclaw.traces.trajectory import test_harness
from coilclaw.traces.trajectory.checkpoints import UNKEEPABLE
from coilclaw.traces.trajectory.opened_trajectory import Opened, TrajectoryOpening
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan, load_plan
from coilclaw.traces.trajectory.recorder import Clock, Publisher, Recorder, Uploads
from coilclaw.traces.trajectory.test_harness import EnvoiFailed, SuiteHarness, SuiteStanding
from coilclaw.workspace import Cancellation, Kind, SandboxSupport, SandboxView, owner

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from coilclaw.runners import AgentRequest, Runner
    from coilclaw.traces.trajectory.test_harness import Judging
    from coilclaw.traces.trajectory.trace import (
        EnvoiCall,
        PartRecord,
        RecordedTurn,
        SessionEnd,
        StopReason,
    )

__all__ = ["TrajectoryDependencies", "TrajectoryPlan", "resume_trajectory", "run_trajectory"]

TIMEOUT: Final = "the time of the trajectory is used up"
MAX_IDLE_TURNS: Final = 3
"""After so many turns without any part an agent counts as broken."""
_CUT: Final = frozenset({"killed", "aborted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryDependencies:
    """What a run of a trajectory needs from outside."""

    home: Path
    """``$COILCLAW_HOME``."""
    runner: Callable[[int], Runner]
    """Who performs the turn with this number, counted from 1."""
    judge: Judging | None
    support: SandboxSupport
    cancel: Cancellation
    """Signals and the emergency stop end a trajectory through it."""
    environ: Mapping[str, str]
    sandbox: Kind = "auto"
    hidden: tuple[Path, ...] = ()
    """What an agent may not see: the environment with its tests, above all."""
    view: SandboxView = field(default_factory=SandboxView)
    """What the user lets every child see."""
    approve: Callable[[AgentRequest], ApprovalAnswer] = ask_nobody
    redact: Callable[[str], str] = str
    uploads: Uploads | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    on_begin: Callable[[], None] = lambda: None
    """Called once, when everything is open, and before anything else goes to the store."""
    on_part: Callable[[PartRecord], None] = lambda _: None
    on_turn: Callable[[RecordedTurn], None] = lambda _: None
    """Receives a turn when it begins, and again when it has ended."""


@dataclass(frozen=True, slots=True)
class _Stop:
    reason: StopReason
    detail: str = ""


class _AgentFailed(Exception):
    """An agent that could not be started or carried on; it never leaves this module."""

    def __init__(self, problem: CoilClawError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def run_trajectory(plan: TrajectoryPlan, equipment: TrajectoryDependencies) -> SessionEnd:
    """Record a new trajectory; the end is a value, also when it is a bad one."""
    session = _Session.of(plan, equipment)
    with session.opening.begin(plan) as opened:
        return session.record(opened)


def resume_trajectory(
    trajectory_id: str,
    equipment: TrajectoryDependencies,
    change: Callable[[TrajectoryPlan], TrajectoryPlan] = lambda same: same,
) -> SessionEnd:
    """Resume a trajectory that was stopped or killed; ``change`` may give it more budget."""
    kept = change(load_plan(TracePlaces(equipment.home, trajectory_id).session))
    session = _Session.of(kept, equipment)
    # An agent of a run that was killed must not continue beside this one.
    owner.sweep_orphans()
    with session.opening.resume(change) as opened:
        return session.record(opened)


@dataclass(slots=True)
class _Session:
    """One process's share of a trajectory."""

    plan: TrajectoryPlan
    equipment: TrajectoryDependencies
    places: TracePlaces
    clock: Clock
    standing: SuiteStanding
    opening: TrajectoryOpening
    timed_out: bool = False
    idle: int = 0
    recorder: Recorder = field(init=False)
    bench: SuiteHarness = field(init=False)

    @classmethod
    def of(cls, plan: TrajectoryPlan, equipment: TrajectoryDependencies) -> _Session:
        places = TracePlaces(equipment.home, plan.trajectory_id)
        clock = Clock(equipment.now, equipment.monotonic)
        standing = SuiteStanding(plan.required if equipment.judge is not None else ())
        opening = TrajectoryOpening(
            places,
            clock.stamp,
            seconds=lambda: int(equipment.now().timestamp()),
            on_call=standing.take,
            redact=equipment.redact,
        )
        return cls(plan, equipment, places, clock, standing, opening)

    def record(self, opened: Opened) -> SessionEnd:
        """Record turns until there is a reason to stop."""
        equipment = self.equipment
        self.clock = Clock(equipment.now, equipment.monotonic, opened.history.elapsed_ms)
        self.bench = SuiteHarness(
            equipment.judge,
            opened.checkpoints.files_of,
            self.places.results,
            standing=self.standing,
            tree=opened.checkpoints.tree,
            stamp=self.clock.stamp,
            cancel=equipment.cancel,
            redact=equipment.redact,
        )
        self.recorder = Recorder(
            self.places,
            opened.history,
            opened.journal,
            opened.document,
            opened.checkpoints,
            self.bench,
            Publisher(self.places, equipment.uploads),
            self.clock,
            equipment.redact,
            keep_raw=self.plan.keep_raw,
            watch=equipment.on_part,
        )
        equipment.on_begin()
        redact, plan = equipment.redact, self.plan
        told = replace(plan, prompt=redact(plan.prompt), agent=redact(plan.agent))
        self.recorder.publish_all(told.encode_plan())
        with self._stop_in_time():
            stop = self._stop()
            while stop is None:
                stop = self._turn() or self._stop()
        return self.recorder.end(stop.reason, stop.detail)

    def _stop(self) -> _Stop | None:
        """Return why no further turn may begin, or ``None``."""
        history, plan = self.recorder.history, self.plan
        if self._is_solved():
            return _Stop("solved")
        if self.timed_out or self._remaining_s() == 0:
            return _Stop("timeout", TIMEOUT)
        if self.equipment.cancel.cancelled:
            return _Stop("interrupted", str(self.equipment.cancel.reason))
        if history.parts >= plan.max_parts:
            return _Stop("part_limit", f"{plan.max_parts} parts")
        if plan.max_turns is not None and len(history.turns) >= plan.max_turns:
            return _Stop("turn_limit", f"{plan.max_turns} turns")
        if self.idle >= MAX_IDLE_TURNS:
            return _Stop("agent_error", f"the agent said nothing in {self.idle} turns")
        return None

    def _turn(self) -> _Stop | None:
        """Run one turn; return a reason to stop that lies in how it went."""
        recorder, history = self.recorder, self.recorder.history
        began = history.parts
        prompt = self._prompt(recorder.calls)
        recorder.begin_turn(prompt)
        self.equipment.on_turn(history.turns[-1])
        ending, stop = self._perform(prompt)
        settled = None
        try:
            with _blame_agent():
                settled = recorder.settle()
        except _AgentFailed as failed:
            stop = stop or _Stop("agent_error", failed.problem.message)
        evaluated: tuple[EnvoiCall, ...] = ()
        if stop is None and not self.equipment.cancel.cancelled:
            evaluated, stop = self._evaluate()
        recorder.end_turn(ending, settled, evaluated)
        self.equipment.on_turn(history.turns[-1])
        self.idle = self.idle + 1 if history.parts == began else 0
        if stop is not None and self._is_solved():
            return None
        return stop

    def _perform(self, prompt: str) -> tuple[Ending, _Stop | None]:
        """Let the agent perform, and record what it does."""
        try:
            runner = self.equipment.runner(len(self.recorder.history.turns))
            means = Means(
                approve=self.equipment.approve,
                cancel=self.equipment.cancel,
                support=self.equipment.support,
                run_tests=self.bench.run_tests,
                on_session=self.recorder.agent_session,
            )
            ending = self._follow(runner.perform(self._assignment(prompt), means))
        except _AgentFailed as failed:
            problem = failed.problem
            aborted = Ending("aborted", problem.message)
            if self.equipment.cancel.cancelled:
                return aborted, None
            reason: StopReason = "interrupted" if isinstance(problem, Stopped) else "agent_error"
            return aborted, _Stop(reason, problem.message)
        if ending.session_lost:
            # The next turn begins a new one, and tells the whole task.
            self.recorder.agent_session("")
            return replace(ending, thread_id=""), None
        if ending.status in {"done", "exhausted"} or self.equipment.cancel.cancelled:
            return ending, None
        return ending, _Stop("agent_error", ending.reason or f"the agent {ending.status}")

    def _follow(self, performance: Generator[Part, None, Ending]) -> Ending:
        """Record parts until the agent ends, or has done enough."""
        recorder = self.recorder
        try:
            while True:
                try:
                    part = next(performance)
                except StopIteration as stop:
                    ending: Ending = stop.value
                    return ending
                except CoilClawError as problem:
                    raise _AgentFailed(problem) from problem
                with _blame_agent():
                    recorder.part(part)
                if self._is_solved():
                    return Ending("done", "everything that is required is green")
                if recorder.history.parts >= self.plan.max_parts:
                    return Ending("exhausted", "the budget of parts is used up")
        finally:
            performance.close()

    def _evaluate(self) -> tuple[tuple[EnvoiCall, ...], _Stop | None]:
        """Test what is there at the end of a turn."""
        if self.equipment.judge is None:
            return (), None
        tree = self.recorder.checkpoints.state.tree
        try:
            return self.bench.evaluate(tree), None
        except EnvoiFailed as problem:
            if self.timed_out or self.equipment.cancel.cancelled:
                return problem.calls, None
            return problem.calls, _Stop("envoi_error", problem.message)

    def _is_solved(self) -> bool:
        return self.standing.is_solved(self.recorder.checkpoints.state.tree)

    def _prompt(self, calls: list[EnvoiCall]) -> str:
        if not self.recorder.history.turns:
            return self.plan.prompt
        told = test_harness.render_later_prompt(self.standing, calls)
        history = self.recorder.history
        if history.thread_id and history.turns[-1].status not in _CUT:
            return told
        # The agent remembers nothing of the turns before, or perhaps not: one that was killed may
        # not have kept its prompt. So the task is repeated.
        return f"{self.plan.prompt}\n\n{told}" if self.plan.prompt else told

    def _assignment(self, prompt: str) -> Assignment:
        places, plan, equipment = self.places, self.plan, self.equipment
        make_home(places.agent_home, equipment.environ)
        history, home = self.recorder.history, places.agent_home.resolve()
        return Assignment(
            task_id=plan.trajectory_id,
            instruction=prompt,
            contract={},
            directory=places.workspace.resolve(),
            home=home,
            sandbox=sandbox_of(
                (places.workspace.resolve(),),
                home,
                filesystem="workspace-write",
                network=plan.network,
                # All of it, not only what it holds now: files are replaced and made meanwhile.
                hidden=(*equipment.hidden, places.home),
                kind=equipment.sandbox,
                view=equipment.view,
            ),
            environ=environ_of(home, equipment.environ, kept_out=(places.workspace,)),
            budget=Budget(parts=plan.max_parts - history.parts, wall_s=self._remaining_s()),
            shell="never" if equipment.sandbox != "none" else "on-request",
            network=plan.network,
            thread_id=history.thread_id,
            model=plan.model,
        )

    def _remaining_s(self) -> float | None:
        if self.plan.timeout_s is None:
            return None
        return max(0.0, self.plan.timeout_s - self.clock.elapsed_ms / 1000)

    @contextmanager
    def _stop_in_time(self) -> Iterator[None]:
        """Stop everything when the time is over, in the middle of a turn too."""
        remaining = self._remaining_s()
        if remaining is None:
            yield
            return

        def over() -> None:
            self.timed_out = True
            self.equipment.cancel.cancel(TIMEOUT)

        timer = threading.Timer(min(remaining, threading.TIMEOUT_MAX), over)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def _blame_agent() -> Iterator[None]:
    """Blame the agent for a workspace that cannot be kept, and nothing else."""
    try:
        yield
    except EnvironmentFault as problem:
        if problem.rule in UNKEEPABLE:
            raise _AgentFailed(problem) from problem
        raise
