"""A home, a scripted agent and tests of a few files: everything that a trajectory needs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.messages import Json
from coilclaw.runners import script
from coilclaw.runners.runner import Assignment, Ending, Means, Runner
from coilclaw.runners.scripted import ScriptedRunner
from coilclaw.traces.environments.results import Case, Result
from coilclaw.traces.trajectory import trajectory_run
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan
from coilclaw.traces.trajectory.trace import SessionEnd, Trace, load_trace
from coilclaw.traces.trajectory.trajectory_run import TrajectoryDependencies
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.performing import support

ID = "traj-1"
CASES = ("basics/one", "basics/two", "extra/three")


@dataclass
class FileTests:
    """A case passes if the file of its name holds ``ok``."""

    cases: tuple[str, ...] = CASES
    broken: str = ""
    """Why the tests cannot be run at all, if so."""
    asked: list[str] = field(default_factory=list)

    def test(self, submission: Path, path: str = "", *, cancel: Cancellation) -> Result:
        assert cancel is not None
        self.asked.append(path)
        if self.broken:
            raise EnvironmentFault(self.broken)
        chosen = [c for c in self.cases if not path or c == path or c.startswith(f"{path}/")]
        if not chosen:
            raise UsageError(f"there are no tests at {path}", hint="basics, extra")
        return Result.build([self._case(submission, name) for name in chosen], path)

    def _case(self, submission: Path, name: str) -> Case:
        file = submission / f"{name.rpartition('/')[2]}.txt"
        good = file.is_file() and file.read_text() == "ok"
        return Case(id=name, status="passed" if good else "failed", duration_ms=0)


def turns(*given: list[Mapping[str, Any]]) -> Callable[[int], Runner]:
    """An agent that plays the n-th list in the n-th turn, whatever was before."""
    read = script.read(json.dumps(given).encode())
    return lambda number: ScriptedRunner(read, turn=lambda _: number - 1)


@dataclass(frozen=True)
class Saying:
    """An agent of our own making: a function that yields parts."""

    perform_with: Callable[[Assignment, Means], Any]
    name: str = "saying"

    def perform(self, assignment: Assignment, means: Means) -> Any:
        ending = yield from self.perform_with(assignment, means)
        return ending or Ending("done")


@dataclass
class World:
    """A home outside of /tmp, which sandboxes cover."""

    home: Path
    judge: FileTests | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def places(self) -> TracePlaces:
        return TracePlaces(self.home, ID)

    def equipment(self, runner: Callable[[int], Runner], **more: Any) -> TrajectoryDependencies:
        given: dict[str, Any] = {
            "home": self.home,
            "runner": runner,
            "judge": self.judge,
            "support": support(),
            "cancel": self.cancel,
            "environ": dict(os.environ),
            **self.changes,
            **more,
        }
        return TrajectoryDependencies(**given)

    def plan(self, **more: Any) -> TrajectoryPlan:
        given: dict[str, Any] = {
            "trajectory_id": ID,
            "agent": "scripted",
            "prompt": "do it",
            "environment": "files" if self.judge else "",
            **more,
        }
        return TrajectoryPlan(**given)

    def run(self, runner: Callable[[int], Runner], **more: Any) -> SessionEnd:
        return trajectory_run.run_trajectory(self.plan(**more), self.equipment(runner))

    def resume(
        self,
        runner: Callable[[int], Runner],
        change: Callable[[TrajectoryPlan], TrajectoryPlan] = lambda p: p,
    ) -> SessionEnd:
        self.cancel = Cancellation()
        return trajectory_run.resume_trajectory(ID, self.equipment(runner), change)

    def trace(self) -> Trace:
        return load_trace(self.places.document)

    def records(self) -> list[dict[str, Json]]:
        lines = self.places.journal.read_text().splitlines()
        return [json.loads(line) for line in lines]

    def git(self, *arguments: str, git_dir: Path | None = None) -> str:
        done = subprocess.run(
            ["git", "--git-dir", str(git_dir or self.places.repository), *arguments],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def at(self, commit: str) -> dict[str, str]:
        """The files of a commit."""
        names = self.git("ls-tree", "-r", "--name-only", commit).splitlines()
        return {name: self.git("show", f"{commit}:{name}") for name in names}


@contextmanager
def opened(judge: FileTests | None = None) -> Iterator[World]:
    # Below /tmp, which the sandbox covers: what an agent needs shows all the same.
    folder = Path(tempfile.mkdtemp(prefix="coilclaw-trajectory-", dir="/tmp"))
    try:
        (folder / "home").mkdir(mode=0o700)
        yield World(folder / "home", judge)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def ticking() -> Callable[[], float]:
    """A clock that moves by a second at each look."""
    counter = itertools.count()
    return lambda: float(next(counter))
