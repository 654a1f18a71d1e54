"""``Graph``: what there is to draw of a trajectory: progress, suites, cases, tokens and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.environments.results import Delta

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Result, Status
    from coilclaw.trajectory.evaluation import Evaluation
    from coilclaw.trajectory.trace import Trace

VERSION: Final = "graph_trace.v1"
TOP: Final = "(top)"
"""What cases that are in no suite are shown under."""


@dataclass(frozen=True, slots=True)
class Score:
    """How many cases of how many pass."""

    passed: int
    total: int

    @property
    def share(self) -> float:
        return self.passed / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{self.passed}/{self.total}"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a trajectory stood after one part."""

    part: int
    turn: int
    commit: str
    new_tree: bool
    """Whether this part changed the files."""
    elapsed_ms: int
    input_tokens: int
    output_tokens: int
    """Both since the beginning."""
    score: Score | None
    """``None`` where it could not be judged."""
    suites: dict[str, Score]
    change: Delta
    error: str | None
    summary: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything that is drawn or put into a table."""

    trajectory_id: str
    agent: str
    agent_model: str
    environment: str
    started_at: str
    end: str
    points: tuple[Point, ...]
    suites: tuple[str, ...]
    cases: tuple[str, ...]
    statuses: tuple[tuple[Status | None, ...], ...]
    """For each case its status after each part; ``None`` where it was not judged."""

    @property
    def best(self) -> Point | None:
        """The earliest point with the most cases passed."""
        judged = [point for point in self.points if point.score is not None]
        return max(judged, key=_worth, default=None)

    @property
    def regressions(self) -> tuple[Point, ...]:
        """The points at which a case broke that had passed before."""
        return tuple(point for point in self.points if point.change.newly_broken)

    @property
    def rows(self) -> tuple[Point, ...]:
        """The points that a table shows: where files changed, and the last."""
        return tuple(point for point in self.points if point.new_tree or point is self.points[-1])

    def first_at(self, share: float) -> Point | None:
        """The first point at which this share of the cases passed."""
        return next(
            (point for point in self.points if point.score and _reached(point.score, share)), None
        )

    def json(self) -> dict[str, Json]:
        """All of it for other programs."""
        best = self.best
        return {
            "schema_version": VERSION,
            "trajectory_id": self.trajectory_id,
            "agent": self.agent,
            "agent_model": self.agent_model,
            "environment": self.environment,
            "started_at": self.started_at,
            "end": self.end,
            "best_part": None if best is None else best.part,
            "regressions": [point.part for point in self.regressions],
            "suites": list(self.suites),
            "points": [_point_json(point) for point in self.points],
            "cases": {name: list(row) for name, row in zip(self.cases, self.statuses, strict=True)},
        }


def graph_of(evaluation: Evaluation) -> Graph:
    """Put together what an evaluation and its trace say."""
    trace = evaluation.recording.trace
    results = {
        tree: one.result() if one.complete else None for tree, one in evaluation.trees.items()
    }
    points = _points(evaluation, results)
    names = dict.fromkeys(
        case.id for result in results.values() if result for case in result.every_case()
    )
    suites = dict.fromkeys(suite for point in points for suite in point.suites)
    columns = [_statuses(results, evaluation, point.part) for point in points]
    return Graph(
        trajectory_id=trace.trajectory_id,
        agent=trace.agent,
        agent_model=trace.agent_model,
        environment=evaluation.environment,
        started_at=trace.started_at,
        end=trace.session_end.reason if trace.session_end else "still open",
        points=tuple(points),
        suites=tuple(suites),
        cases=tuple(names),
        statuses=tuple(tuple(column.get(name) for column in columns) for name in names),
    )


def _points(evaluation: Evaluation, results: dict[str, Result | None]) -> list[Point]:
    trace, trees = evaluation.recording.trace, evaluation.recording.trees
    changes, spent = evaluation.changes(), _tokens(trace)
    points: list[Point] = []
    previous = trees.get(trace.initial_commit, "")
    for part, (given, made) in zip(trace.parts, spent, strict=True):
        tree = trees[part.git_commit]
        result = results[tree]
        points.append(
            Point(
                part=part.part,
                turn=part.turn,
                commit=part.git_commit,
                new_tree=tree != previous,
                elapsed_ms=part.elapsed_ms,
                input_tokens=given,
                output_tokens=made,
                score=None if result is None else Score(result.passed, result.total),
                suites={} if result is None else _suites(result),
                change=changes.get(part.part, Delta()),
                error=evaluation.trees[tree].error,
                summary=part.summary,
            )
        )
        previous = tree
    return points


def _tokens(trace: Trace) -> list[tuple[int, int]]:
    """What was used up to each part.

    Agents tell it with their parts, or only at the end of a turn, for all of them together.
    """
    added = {
        part.part: (part.token_usage.input_tokens or 0, part.token_usage.output_tokens or 0)
        for part in trace.parts
        if part.token_usage is not None
    }
    told = {part.turn for part in trace.parts if part.token_usage is not None}
    for turn in trace.turns:
        if turn.turn not in told and turn.token_usage is not None and turn.part_end:
            usage = turn.token_usage
            before = added.get(turn.part_end, (0, 0))
            added[turn.part_end] = (
                before[0] + (usage.input_tokens or 0),
                before[1] + (usage.output_tokens or 0),
            )
    sums, given, made = [], 0, 0
    for part in trace.parts:
        more = added.get(part.part, (0, 0))
        given, made = given + more[0], made + more[1]
        sums.append((given, made))
    return sums


def _suites(result: Result) -> dict[str, Score]:
    found = {name: Score(child.passed, child.total) for name, child in result.children.items()}
    if result.cases:
        judged = [case for case in result.cases if case.status != "skipped"]
        found[TOP] = Score(sum(case.passed for case in judged), len(judged))
    return found


def _statuses(
    results: dict[str, Result | None], evaluation: Evaluation, part: int
) -> dict[str, Status]:
    recording = evaluation.recording
    result = results[recording.trees[recording.commit(part)]]
    return {} if result is None else result.statuses()


def _worth(point: Point) -> tuple[int, int]:
    return (point.score.passed if point.score else -1, -point.part)


def _reached(score: Score, share: float) -> bool:
    return score.total > 0 and score.passed >= share * score.total


def _point_json(point: Point) -> dict[str, Json]:
    return {
        "part": point.part,
        "turn": point.turn,
        "commit": point.commit,
        "elapsed_ms": point.elapsed_ms,
        "input_tokens": point.input_tokens,
        "output_tokens": point.output_tokens,
        "passed": None if point.score is None else point.score.passed,
        "total": None if point.score is None else point.score.total,
        "suites": {
            name: {"passed": score.passed, "total": score.total}
            for name, score in point.suites.items()
        },
        "newly_broken": list(point.change.newly_broken),
        "newly_fixed": list(point.change.newly_fixed),
        "error": point.error,
    }
