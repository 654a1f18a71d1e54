"""``Evaluation``: the code of every part, judged by the tests; each distinct tree once."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar

from coilclaw.kernel import (
    CoilClawError,
    Stopped,
    UsageError,
    digest_bytes,
    encode_record,
    explain_os_errors,
    schemas,
    write_atomic,
)
from coilclaw.traces.environments.results import Case, Delta, Result, delta
from coilclaw.workspace import Cancellation, remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.traces.evaluation.recorded_trace import Recording
    from coilclaw.traces.trajectory.test_harness import Judging


CACHE_VERSION: Final = "evaluation.v1"
MAX_BYTES: Final = 256 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TreeQuestion:
    """What was judged: these files, by this version of an environment, at this path of tests."""

    tree: str
    environment_version: str
    path: str

    def digest(self) -> str:
        return digest_bytes(encode_record({"schema_version": CACHE_VERSION, **asdict(self)}))


@dataclass(frozen=True, slots=True)
class EvaluationAnswer:
    """What the tests found, and how long that took."""

    result: Result
    duration_ms: int


class EvaluationCache:
    """One file an answer, each whole or absent; any number of processes may share them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, question: TreeQuestion) -> EvaluationAnswer | None:
        """Return what is known; what cannot be read, or answers something else, is not known."""
        path = self._path(question)
        try:
            if path.stat().st_size > MAX_BYTES:
                return None
            value = json.loads(path.read_bytes())
            if problems := schemas.find_schema_problems(CACHE_VERSION, value):
                raise ValueError(f"it is not {CACHE_VERSION}: {problems[0]}")
            if any(value[name] != wanted for name, wanted in asdict(question).items()):
                raise ValueError("it answers another question")
            return EvaluationAnswer(Result.of(value["result"]), int(value["duration_ms"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, UsageError) as problem:
            _log.warning(
                "an evaluation that was kept cannot be used and is made again: %s: %s",
                path,
                problem,
                extra={"event": "evaluation_unusable", "fields": {"path": str(path)}},
            )
            return None

    def put(self, question: TreeQuestion, answer: EvaluationAnswer) -> None:
        """Keep an answer; one that is there already is replaced."""
        value: dict[str, Json] = {
            "schema_version": CACHE_VERSION,
            **asdict(question),
            "duration_ms": answer.duration_ms,
            "result": answer.result.json(),
        }
        path = self._path(question)
        with explain_os_errors(f"create {path.parent}", rule="evaluation.cache"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, json.dumps(value, ensure_ascii=True).encode("ascii"), mode=0o600)

    def _path(self, question: TreeQuestion) -> Path:
        digest = question.digest()
        return self.directory / digest[:2] / f"{digest[2:]}.json"


MAX_WORKERS: Final = 256

Job = TypeVar("Job")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class FinishedJob(Generic[Job, Value]):
    """One job and its outcome: a value, or the error that prevented it."""

    job: Job
    value: Value | None = None
    error: CoilClawError | None = None


def processors() -> int:
    """Return how many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def perform(
    jobs: Iterable[Job],
    work: Callable[[Job], Value],
    *,
    workers: int,
    stop: Callable[[], None] = lambda: None,
) -> Generator[FinishedJob[Job, Value], None, None]:
    """Do every job, at most ``workers`` at once, and yield each when it is over, in any order.

    An error of ours is an outcome; anything else that a job raises ends the whole, and is raised
    here. When it ends early, also because the caller closes it or is interrupted, no further job
    begins, ``stop`` is called, and those under way are waited for.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    ended = threading.Event()

    def attempt(job: Job) -> FinishedJob[Job, Value] | None:
        if ended.is_set():
            return None
        try:
            return FinishedJob(job, value=work(job))
        except CoilClawError as problem:
            return FinishedJob(job, error=problem)
        except BaseException:
            ended.set()
            raise

    most = max(1, min(workers, MAX_WORKERS))
    with ThreadPoolExecutor(most, thread_name_prefix="fleet") as pool:
        try:
            for done in as_completed([pool.submit(attempt, job) for job in jobs]):
                if (finished := done.result()) is not None:
                    yield finished
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


VERSION: Final = "replay.v1"

Source: TypeAlias = Literal["judged", "kept", "failed"]
"""``kept``: known from before; ``failed``: it could not be judged, which says nothing about it."""


@dataclass(frozen=True, slots=True)
class JudgedTree:
    """The outcome of one tree at one path of tests."""

    question: TreeQuestion
    source: Source
    answer: EvaluationAnswer | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluator:
    """All it takes to judge trees."""

    environment: str
    version: str
    judge: Judging
    cache: EvaluationCache
    scratch: Path
    """An existing private directory for the files of commits while they are judged."""
    jobs: int = 1
    fresh: bool = False
    """Judge again what is known already."""

    def question(self, tree: str, path: str) -> TreeQuestion:
        return TreeQuestion(tree, self.version, path)

    def look_up_tree(self, question: TreeQuestion) -> JudgedTree | None:
        answer = None if self.fresh else self.cache.get(question)
        return None if answer is None else JudgedTree(question, "kept", answer)

    def hear(
        self, recording: Recording, questions: Iterable[TreeQuestion], cancel: Cancellation
    ) -> Iterator[JudgedTree]:
        """Answer questions in any order, several at once; each new answer is kept at once."""
        commits = {tree: commit for commit, tree in recording.trees.items()}
        open_ones = []
        for question in dict.fromkeys(questions):
            known = self.look_up_tree(question)
            if known is None:
                open_ones.append(question)
            else:
                yield known

        def work(question: TreeQuestion) -> EvaluationAnswer:
            answer = self._judge(recording, commits[question.tree], question, cancel)
            self.cache.put(question, answer)
            return answer

        for done in perform(
            open_ones, work, workers=self.jobs, stop=lambda: cancel.cancel("the replay was stopped")
        ):
            if cancel.cancelled:
                raise Stopped(f"stopped: {cancel.reason}", rule="replay.stopped")
            # A path that does not exist is the caller's mistake, and the same for every tree.
            if isinstance(done.error, UsageError):
                raise done.error
            if done.value is not None:
                yield JudgedTree(done.job, "judged", done.value)
                continue
            why = f"{done.error.message} [{done.error.rule}]" if done.error else "unknown"
            yield JudgedTree(done.job, "failed", problem=why)

    def _judge(
        self, recording: Recording, commit: str, question: TreeQuestion, cancel: Cancellation
    ) -> EvaluationAnswer:
        if cancel.cancelled:
            raise Stopped(f"stopped: {cancel.reason}", rule="replay.stopped")
        began = time.monotonic()
        room = self.scratch / f"{os.getpid()}-{os.urandom(8).hex()}"
        try:
            recording.checkout(commit, room)
            result = self.judge.test(room, question.path, cancel=cancel)
        finally:
            remove_tree(room)
        return EvaluationAnswer(result, round((time.monotonic() - began) * 1000))


@dataclass(frozen=True, slots=True)
class TreeEvaluation:
    """One distinct tree, judged at all the paths that were asked for."""

    tree: str
    judged: Mapping[str, JudgedTree]
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
        """Return every judged case by its id."""
        return {
            case.id: case
            for one in self.judged.values()
            if one.answer
            for case in one.answer.result.every_case()
        }

    def result(self) -> Result:
        """Return the results of all paths as one."""
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
        """Return the evaluation of the files after a part, counted from 1."""
        return self.trees[self.recording.trees[self.recording.commit(part)]]

    def changes(self) -> dict[int, Delta]:
        """Return what each part broke and fixed, for the parts that did."""
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
        """Return the report of ``replay --mode evaluate``."""
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
                commit: _encode_evaluation(self.trees[self.recording.trees[commit]])
                for commit in commits
            },
            "part_evaluations": [
                {
                    "part": part.part,
                    "timestamp": part.timestamp,
                    "commit": part.git_commit,
                    "evaluation": _encode_figures(self.of_part(part.part)),
                    **changes.get(part.part, Delta()).json(),
                }
                for part in trace.parts
            ],
        }


def evaluate(
    recording: Recording,
    court: Evaluator,
    *,
    paths: tuple[str, ...] = ("",),
    cancel: Cancellation | None = None,
    notify: Callable[[int, int, JudgedTree], None] | None = None,
) -> Evaluation:
    """Judge every distinct tree of a recording at every path.

    What was judged before, by this or any other replay, is taken from the cache, so one that was
    killed resumes where it was.
    """
    trees = dict.fromkeys(span.tree for span in recording.spans())
    wanted = tuple(dict.fromkeys(paths))
    questions = [court.question(tree, path) for tree in trees for path in wanted]
    found: dict[str, dict[str, JudgedTree]] = {tree: {} for tree in trees}
    judged = 0
    answers = court.hear(recording, questions, cancel or Cancellation())
    for count, one in enumerate(answers, start=1):
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


def _encode_figures(one: TreeEvaluation) -> dict[str, Json]:
    if not one.complete:
        return {"status": "failed", "tree": one.tree, "error": one.error}
    return {"status": "evaluated", "tree": one.tree, **_encode_counts(one.result())}


def _encode_evaluation(one: TreeEvaluation) -> dict[str, Json]:
    return {
        **_encode_figures(one),
        "duration_ms": one.duration_ms,
        "path_results": {path: _encode_path(judged) for path, judged in one.judged.items()},
        "cases": {case.id: case.status for case in one.cases().values()},
    }


def _encode_path(judged: JudgedTree) -> dict[str, Json]:
    if judged.answer is None:
        return {"ok": False, "source": judged.source, "error": judged.problem}
    result = judged.answer.result
    return {"ok": result.solved, "source": judged.source, **_encode_counts(result)}


def _encode_counts(result: Result) -> dict[str, Json]:
    return {
        "passed": result.passed,
        "failed": result.failed,
        "total": result.total,
        "error": result.error,
    }
