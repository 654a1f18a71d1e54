"""``Graph``: what there is to draw of a trajectory: progress, suites, cases, tokens and time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.traces.environments.results import Delta, Result, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.kernel import Json
    from coilclaw.traces.evaluation.evaluation import Evaluation
    from coilclaw.traces.trajectory.trace import TokenUsage, Trace

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

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


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
        return max(judged, key=lambda point: (point.score or Score(0, 0)).passed, default=None)

    @property
    def regressions(self) -> tuple[Point, ...]:
        """The points at which a case broke that had passed before."""
        return tuple(point for point in self.points if point.change.newly_broken)

    @property
    def rows(self) -> tuple[Point, ...]:
        """The points that a table shows: where files changed, and the last."""
        return tuple(point for point in self.points if point.new_tree or point is self.points[-1])

    def first_at(self, share: float) -> Point | None:
        """Return the first point at which this share of the cases passed."""
        scored = ((point, point.score) for point in self.points if point.score)
        return next(
            (
                point
                for point, score in scored
                if score.total > 0 and score.passed >= share * score.total
            ),
            None,
        )

    def json(self) -> dict[str, Json]:
        """Return the graph as JSON."""
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
            "points": [_encode_point(point) for point in self.points],
            "cases": {name: list(row) for name, row in zip(self.cases, self.statuses, strict=True)},
        }


def graph_of(evaluation: Evaluation) -> Graph:
    """Put together what an evaluation and its trace say."""
    trace = evaluation.recording.trace
    results = {
        tree: one.result() if one.complete else None for tree, one in evaluation.trees.items()
    }
    points = _make_points(evaluation, results)
    names = dict.fromkeys(
        case.id for result in results.values() if result for case in result.every_case()
    )
    suites = dict.fromkeys(suite for point in points for suite in point.suites)
    trees = evaluation.recording.trees
    judged = [results[trees[point.commit]] for point in points]
    columns = [result.statuses() if result else {} for result in judged]
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


def _make_points(evaluation: Evaluation, results: dict[str, Result | None]) -> list[Point]:
    trace, trees = evaluation.recording.trace, evaluation.recording.trees
    changes, spent = evaluation.changes(), _sum_tokens(trace)
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
                suites={} if result is None else _score_suites(result),
                change=changes.get(part.part, Delta()),
                error=evaluation.trees[tree].error,
                summary=part.summary,
            )
        )
        previous = tree
    return points


def _sum_tokens(trace: Trace) -> list[tuple[int, int]]:
    """Return the tokens used up to each part.

    Agents tell it with their parts, or only at the end of a turn, for all of them together.
    """
    added: dict[int, list[TokenUsage]] = {}
    for part in trace.parts:
        if part.token_usage is not None:
            added.setdefault(part.part, []).append(part.token_usage)
    told = {part.turn for part in trace.parts if part.token_usage is not None}
    for turn in trace.turns:
        if turn.turn not in told and turn.token_usage is not None and turn.part_end:
            added.setdefault(turn.part_end, []).append(turn.token_usage)
    sums, given, made = [], 0, 0
    for part in trace.parts:
        more = added.get(part.part, ())
        given += sum(usage.input_tokens or 0 for usage in more)
        made += sum(usage.output_tokens or 0 for usage in more)
        sums.append((given, made))
    return sums


def _score_suites(result: Result) -> dict[str, Score]:
    found = {name: Score(child.passed, child.total) for name, child in result.children.items()}
    if result.cases:
        judged = [case for case in result.cases if case.status != "skipped"]
        found[TOP] = Score(sum(case.passed for case in judged), len(judged))
    return found


def _encode_point(point: Point) -> dict[str, Json]:
    return {
        "part": point.part,
        "turn": point.turn,
        "commit": point.commit,
        "elapsed_ms": point.elapsed_ms,
        "input_tokens": point.input_tokens,
        "output_tokens": point.output_tokens,
        "passed": None if point.score is None else point.score.passed,
        "total": None if point.score is None else point.score.total,
        "suites": {name: asdict(score) for name, score in point.suites.items()},
        **point.change.json(),
        "error": point.error,
    }


MILESTONES: Final = (25, 50, 75, 100)
"""Shares of the cases, in percent, that a trajectory may reach."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """What it took to get there."""

    percent: int
    part: int
    elapsed_ms: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TrajectoryFigures:
    """One trajectory in figures."""

    trajectory_id: str
    agent: str
    agent_model: str
    end: str
    parts: int
    turns: int
    elapsed_ms: int
    tokens: int
    final: Score | None
    best: Score | None
    best_part: int | None
    regressions: int
    milestones: tuple[Milestone, ...]
    """Those that were reached."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of them; ``fastest`` are the indexes of who was first, in parts, at each milestone."""

    standings: tuple[TrajectoryFigures, ...]
    fastest: dict[int, tuple[int, ...]]
    """More than one was there in as many parts. None is, where there is nothing to compare."""
    environments: tuple[str, ...]
    """More than one: the figures cannot be compared."""

    @property
    def comparable(self) -> bool:
        return len(self.standings) > 1 and len(self.environments) == 1

    def json(self) -> dict[str, Json]:
        return {
            "environments": list(self.environments),
            "comparable": self.comparable,
            "trajectories": [asdict(one) for one in self.standings],
            "fastest": {
                str(percent): [self.standings[index].trajectory_id for index in indexes]
                for percent, indexes in self.fastest.items()
            },
        }


def compare(graphs: Sequence[Graph], versions: Sequence[str] = ()) -> Comparison:
    """Put figures beside each other; ``versions`` are those of the environments that judged."""
    standings = tuple(measure_trajectory(graph) for graph in graphs)
    judges = dict.fromkeys(
        (graph.environment, version)
        for graph, version in zip(graphs, versions or [""] * len(graphs), strict=True)
    )
    names = [name for name, _ in judges]
    environments = tuple(
        f"{name} {version[:12]}" if names.count(name) > 1 else name for name, version in judges
    )
    found = Comparison(standings, {}, environments)
    if found.comparable:
        found.fastest.update(_find_fastest(standings))
    return found


def _find_fastest(standings: Sequence[TrajectoryFigures]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for percent in MILESTONES:
        reached = {
            index: milestone.part
            for index, standing in enumerate(standings)
            for milestone in standing.milestones
            if milestone.percent == percent
        }
        if reached:
            best = min(reached.values())
            found[percent] = tuple(index for index, part in reached.items() if part == best)
    return found


def measure_trajectory(graph: Graph) -> TrajectoryFigures:
    """Return the figures of a trajectory."""
    last, best = graph.points[-1] if graph.points else None, graph.best
    reached = [(percent, graph.first_at(percent / 100)) for percent in MILESTONES]
    return TrajectoryFigures(
        trajectory_id=graph.trajectory_id,
        agent=graph.agent,
        agent_model=graph.agent_model,
        end=graph.end,
        parts=len(graph.points),
        turns=last.turn if last else 0,
        elapsed_ms=last.elapsed_ms if last else 0,
        tokens=last.tokens if last else 0,
        final=last.score if last else None,
        best=best.score if best else None,
        best_part=best.part if best else None,
        regressions=len(graph.regressions),
        milestones=tuple(
            Milestone(percent, point.part, point.elapsed_ms, point.tokens)
            for percent, point in reached
            if point is not None
        ),
    )
