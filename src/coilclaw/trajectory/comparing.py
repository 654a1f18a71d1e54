"""``compare``: several trajectories beside each other: how far they came, and what it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.domain.messages import Json
    from coilclaw.trajectory.graphdata import Graph, Point, Score

MILESTONES: Final = (25, 50, 75, 100)
"""Shares of the cases, in percent, that a trajectory may reach."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """What it took to get there."""

    percent: int
    part: int
    elapsed_ms: int
    tokens: int

    def json(self) -> dict[str, Json]:
        return {
            "percent": self.percent,
            "part": self.part,
            "elapsed_ms": self.elapsed_ms,
            "tokens": self.tokens,
        }


@dataclass(frozen=True, slots=True)
class Standing:
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

    def json(self) -> dict[str, Json]:
        return {
            "trajectory_id": self.trajectory_id,
            "agent": self.agent,
            "agent_model": self.agent_model,
            "end": self.end,
            "parts": self.parts,
            "turns": self.turns,
            "elapsed_ms": self.elapsed_ms,
            "tokens": self.tokens,
            "final": _score_json(self.final),
            "best": _score_json(self.best),
            "best_part": self.best_part,
            "regressions": self.regressions,
            "milestones": [one.json() for one in self.milestones],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of them; ``fastest`` are the indexes of who was first, in parts, at each milestone."""

    standings: tuple[Standing, ...]
    fastest: dict[int, tuple[int, ...]]
    """More than one was there in as many parts. Nobody is, where there is nothing to compare."""
    environments: tuple[str, ...]
    """More than one: the figures cannot be compared."""

    @property
    def comparable(self) -> bool:
        return len(self.standings) > 1 and len(self.environments) == 1

    def json(self) -> dict[str, Json]:
        return {
            "environments": list(self.environments),
            "comparable": self.comparable,
            "trajectories": [one.json() for one in self.standings],
            "fastest": {
                str(percent): [self.standings[index].trajectory_id for index in indexes]
                for percent, indexes in self.fastest.items()
            },
        }


def compare(graphs: Sequence[Graph], versions: Sequence[str] = ()) -> Comparison:
    """Put figures beside each other; ``versions`` are those of the environments that judged."""
    standings = tuple(standing_of(graph) for graph in graphs)
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
        found.fastest.update(_fastest(standings))
    return found


def _fastest(standings: Sequence[Standing]) -> dict[int, tuple[int, ...]]:
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


def standing_of(graph: Graph) -> Standing:
    """One trajectory in figures."""
    last, best = graph.points[-1] if graph.points else None, graph.best
    reached = [(percent, graph.first_at(percent / 100)) for percent in MILESTONES]
    return Standing(
        trajectory_id=graph.trajectory_id,
        agent=graph.agent,
        agent_model=graph.agent_model,
        end=graph.end,
        parts=len(graph.points),
        turns=last.turn if last else 0,
        elapsed_ms=last.elapsed_ms if last else 0,
        tokens=_tokens(last) if last else 0,
        final=last.score if last else None,
        best=best.score if best else None,
        best_part=best.part if best else None,
        regressions=len(graph.regressions),
        milestones=tuple(
            Milestone(percent, point.part, point.elapsed_ms, _tokens(point))
            for percent, point in reached
            if point is not None
        ),
    )


def _tokens(point: Point) -> int:
    return point.input_tokens + point.output_tokens


def _score_json(score: Score | None) -> Json:
    return None if score is None else {"passed": score.passed, "total": score.total}
