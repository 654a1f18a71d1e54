"""``Evaluation``: the code of every part, judged by the tests; each distinct tree once."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.environments.results import Result, delta
from coilclaw.errors import CoilClawError, Stopped, UsageError
from coilclaw.fleet import pool
from coilclaw.trajectory.evalcache import Answer, EvaluationCache, Question
from coilclaw.workspace.cancel import Cancellation
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Case, Delta
    from coilclaw.trajectory.replaying import Recording
    from coilclaw.trajectory.testing import Judging

VERSION: Final = "replay.v1"

Source: TypeAlias = Literal["judged", "kept", "failed"]
"""``kept``: known from before; ``failed``: it could not be judged, which says nothing about it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one tree at one path of tests."""

    question: Question
    source: Source
    answer: Answer | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Court:
    """All it takes to judge trees."""

    environment: str
    version: str
    judge: Judging
    cache: EvaluationCache
    scratch: Path
    """A directory of ours, which is there, for the files of commits while they are judged."""
    jobs: int = 1
    fresh: bool = False
    """Judge again what is known already."""

    def question(self, tree: str, path: str) -> Question:
        return Question(tree, self.version, path)

    def known(self, question: Question) -> Judged | None:
        answer = None if self.fresh else self.cache.get(question)
        return None if answer is None else Judged(question, "kept", answer)

    def hear(
        self, recording: Recording, questions: Iterable[Question], cancel: Cancellation
    ) -> Iterator[Judged]:
        """Answer questions in any order, several at once; each new answer is kept at once."""
        commits = {tree: commit for commit, tree in recording.trees.items()}
        open_ones = []
        for question in dict.fromkeys(questions):
            known = self.known(question)
            if known is None:
                open_ones.append(question)
            else:
                yield known

        def work(question: Question) -> Answer:
            answer = self._judge(recording, commits[question.tree], question, cancel)
            self.cache.put(question, answer)
            return answer

        for done in pool.perform(
            open_ones, work, workers=self.jobs, stop=lambda: cancel.cancel("the replay was stopped")
        ):
            if cancel.cancelled:
                raise Stopped(f"stopped: {cancel.reason}", rule="replay.stopped")
            # A path that does not exist is the caller's mistake, and the same for every tree.
            if isinstance(done.error, UsageError):
                raise done.error
            if done.value is None:
                yield Judged(done.job, "failed", problem=_told(done.error))
            else:
                yield Judged(done.job, "judged", done.value)

    def _judge(
        self, recording: Recording, commit: str, question: Question, cancel: Cancellation
    ) -> Answer:
        if cancel.cancelled:
            raise Stopped(f"stopped: {cancel.reason}", rule="replay.stopped")
        began = time.monotonic()
        with self._room() as room:
            recording.checkout(commit, room)
            result = self.judge.test(room, question.path, cancel=cancel)
        return Answer(result, round((time.monotonic() - began) * 1000))

    @contextmanager
    def _room(self) -> Iterator[Path]:
        room = self.scratch / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            yield room
        finally:
            remove_tree(room)


@dataclass(frozen=True, slots=True)
class TreeEvaluation:
    """One distinct tree, judged at all the paths that were asked for."""

    tree: str
    judged: Mapping[str, Judged]
    """By path of tests."""

    @property
    def complete(self) -> bool:
        return all(one.answer is not None for one in self.judged.values())

    @property
    def duration_ms(self) -> int:
        return sum(one.answer.duration_ms for one in self.judged.values() if one.answer)

    @property
    def error(self) -> str | None:
        """Why it could not be judged, or could not be built."""
        for one in self.judged.values():
            if one.problem:
                return one.problem
            if one.answer and one.answer.result.error:
                return one.answer.result.error
        return None

    def cases(self) -> dict[str, Case]:
        """Every case that was judged, once, by its id."""
        return {
            case.id: case
            for one in self.judged.values()
            if one.answer
            for case in one.answer.result.every_case()
        }

    def result(self) -> Result:
        """All paths together in one result."""
        return Result.build(self.cases().values(), error=self.error)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A recording, judged; what a part is worth is what its tree is worth."""

    recording: Recording
    environment: str
    environment_version: str
    paths: tuple[str, ...]
    trees: Mapping[str, TreeEvaluation]
    judged: int
    """How often something had to be judged; the rest was known."""

    @property
    def failed(self) -> int:
        """How many trees could not be judged."""
        return sum(not one.complete for one in self.trees.values())

    def of_part(self, part: int) -> TreeEvaluation:
        """The evaluation of the files after a part, counted from 1."""
        return self.trees[self.recording.trees[self.recording.commit(part)]]

    def changes(self) -> dict[int, Delta]:
        """Part → what it broke and fixed, for the parts that did."""
        found: dict[int, Delta] = {}
        before: Result | None = None
        for span in self.recording.spans():
            evaluated = self.trees[span.tree]
            if not evaluated.complete:
                continue
            after = evaluated.result()
            change = delta(before, after)
            if change.newly_broken or change.newly_fixed:
                found[span.first] = change
            before = after
        return found

    def json(self) -> dict[str, Json]:
        """The report of ``replay --mode evaluate``."""
        trace = self.recording.trace
        changes = self.changes()
        commits = dict.fromkeys(part.git_commit for part in trace.parts)
        return {
            "schema_version": VERSION,
            "mode": "evaluate",
            "trajectory_id": trace.trajectory_id,
            "session_id": trace.session_id,
            "environment": self.environment,
            "environment_version": self.environment_version,
            "recorded_environment_version": trace.environment_version,
            "test_paths": list(self.paths),
            "trees": len(self.trees),
            "judged": self.judged,
            "failed": self.failed,
            "part_to_commit": {str(part.part): part.git_commit for part in trace.parts},
            "commits_evaluated": list(commits),
            "commit_evaluations": {
                commit: _evaluation_json(self.trees[self.recording.trees[commit]])
                for commit in commits
            },
            "part_evaluations": [
                {
                    "part": part.part,
                    "timestamp": part.timestamp,
                    "commit": part.git_commit,
                    "evaluation": _figures(self.of_part(part.part)),
                    "newly_broken": list(changes[part.part].newly_broken)
                    if part.part in changes
                    else [],
                    "newly_fixed": list(changes[part.part].newly_fixed)
                    if part.part in changes
                    else [],
                }
                for part in trace.parts
            ],
        }


def evaluate(
    recording: Recording,
    court: Court,
    *,
    paths: tuple[str, ...] = ("",),
    cancel: Cancellation | None = None,
    notify: Callable[[int, int, Judged], None] | None = None,
) -> Evaluation:
    """Judge every distinct tree of a recording at every path.

    What was judged before, by this or any other replay, is taken from the cache, so one that was
    killed goes on where it was.
    """
    trees = dict.fromkeys(span.tree for span in recording.spans())
    wanted = tuple(dict.fromkeys(paths))
    questions = [court.question(tree, path) for tree in trees for path in wanted]
    found: dict[str, dict[str, Judged]] = {tree: {} for tree in trees}
    judged = 0
    for count, one in enumerate(
        court.hear(recording, questions, cancel or Cancellation()), start=1
    ):
        found[one.question.tree][one.question.path] = one
        judged += one.source != "kept"
        if notify is not None:
            notify(count, len(questions), one)
    return Evaluation(
        recording,
        court.environment,
        court.version,
        wanted,
        {
            # In the order that was asked for, whichever was ready first.
            tree: TreeEvaluation(tree, {path: by_path[path] for path in wanted})
            for tree, by_path in found.items()
        },
        judged,
    )


def _figures(one: TreeEvaluation) -> dict[str, Json]:
    if not one.complete:
        return {"status": "failed", "tree": one.tree, "error": one.error}
    result = one.result()
    return {
        "status": "evaluated",
        "tree": one.tree,
        "passed": result.passed,
        "failed": result.failed,
        "total": result.total,
        "error": result.error,
    }


def _evaluation_json(one: TreeEvaluation) -> dict[str, Json]:
    return {
        **_figures(one),
        "duration_ms": one.duration_ms,
        "path_results": {path: _path_json(judged) for path, judged in one.judged.items()},
        "cases": {case.id: case.status for case in one.cases().values()},
    }


def _path_json(judged: Judged) -> dict[str, Json]:
    if judged.answer is None:
        return {"ok": False, "source": judged.source, "error": judged.problem}
    result = judged.answer.result
    return {
        "ok": result.solved,
        "source": judged.source,
        "passed": result.passed,
        "failed": result.failed,
        "total": result.total,
        "error": result.error,
    }


def _told(problem: CoilClawError | None) -> str:
    return "unknown" if problem is None else f"{problem.message} [{problem.rule}]"
