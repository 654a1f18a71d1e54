"""``bisect``: the part that broke or fixed a case, with as few evaluations as it takes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Result, Status
    from coilclaw.trajectory.evaluation import Court
    from coilclaw.trajectory.replaying import Recording, Span

Outcome: TypeAlias = Literal["broke", "fixed", "always_passed", "never_passed"]
_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class Bisection:
    """What became of a case, and at which part; the trees on both sides of it were judged."""

    case: str
    outcome: Outcome
    part: int | None
    """The part that broke or fixed it."""
    before: int | None
    """The last part before it whose files were judged: the other side."""
    status_before: Status | None
    status_after: Status | None
    judged: int
    """How many trees had to be judged for it; the rest was known."""
    trees: int
    """How many distinct states there are."""

    def json(self) -> dict[str, Json]:
        return {
            "case": self.case,
            "outcome": self.outcome,
            "part": self.part,
            "before": self.before,
            "status_before": self.status_before,
            "status_after": self.status_after,
            "judged": self.judged,
            "trees": self.trees,
        }


def bisect(
    recording: Recording,
    court: Court,
    case: str,
    *,
    first: int | None = None,
    last: int | None = None,
    cancel: Cancellation | None = None,
) -> Bisection:
    """Find the last part within a range that broke a case, or else the last that fixed it.

    With both ends given, they have to differ, and what lies between is halved. Otherwise what is
    known already is looked at first, then the ends, then ever finer halves until two neighbours
    differ in the way that is looked for; in the worst case every tree is judged.
    """
    for part in (first, last):
        if part is not None:
            recording.commit(part)  # refuses one that is not there
    spans = _between(recording.spans(), first, last)
    if not spans:
        raise UsageError("there is no part to look at", rule="bisect.range")
    search = _Search(recording, court, case, spans, cancel or Cancellation())
    if first is not None and last is not None:
        low, high = search.passes(0), search.passes(len(spans) - 1)
        if low == high:
            raise UsageError(
                f"{case} {'passes' if low else 'does not pass'} after part {spans[0].last} and "
                f"after part {spans[-1].first} alike",
                rule="bisect.same",
                hint="choose two parts between which it changed",
            )
        return search.narrowed(0, len(spans) - 1)
    pair = search.breakage()
    return search.untouched() if pair is None else search.narrowed(*pair)


class _Search:
    """What is known about a case, state by state."""

    def __init__(
        self,
        recording: Recording,
        court: Court,
        case: str,
        spans: tuple[Span, ...],
        cancel: Cancellation,
    ) -> None:
        self._recording = recording
        self._court = court
        self._case = case
        self._spans = spans
        self._cancel = cancel
        self._by_tree: dict[str, Status] = {}
        self._judged = 0

    def passes(self, index: int) -> bool:
        return self.status(index) == "passed"

    def status(self, index: int) -> Status:
        """The case's status in a state; it is judged if that is not known."""
        tree = self._spans[index].tree
        known = self._known(tree)
        if known is None:
            known = self._judge(tree)
        self._by_tree[tree] = known
        return known

    def breakage(self) -> tuple[int, int] | None:
        """Two states between which it broke; if there are none, between which it was fixed."""
        for index, span in enumerate(self._spans):
            known = self._known(span.tree)
            if known is not None:
                self._by_tree[self._spans[index].tree] = known
        for index in _ever_finer(len(self._spans)):
            pair = self._pair(broke=True)
            if pair is not None:
                return pair
            self.status(index)
        return self._pair(broke=True) or self._pair(broke=False)

    def narrowed(self, low: int, high: int) -> Bisection:
        """Halve until the two are neighbours."""
        before = self.passes(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.passes(middle) == before:
                low = middle
            else:
                high = middle
        return Bisection(
            self._case,
            "broke" if before else "fixed",
            self._spans[high].first,
            self._spans[low].last,
            self.status(low),
            self.status(high),
            self._judged,
            len({span.tree for span in self._spans}),
        )

    def untouched(self) -> Bisection:
        """It was the same all the time."""
        status = self.status(0)
        return Bisection(
            self._case,
            "always_passed" if status == "passed" else "never_passed",
            None,
            None,
            status,
            status,
            self._judged,
            len({span.tree for span in self._spans}),
        )

    def _pair(self, *, broke: bool) -> tuple[int, int] | None:
        known = [
            (index, self._by_tree[span.tree] == "passed")
            for index, span in enumerate(self._spans)
            if span.tree in self._by_tree
        ]
        for (low, before), (high, after) in reversed(list(itertools.pairwise(known))):
            if (before, after) == (broke, not broke):
                return low, high
        return None

    def _known(self, tree: str) -> Status | None:
        """What is kept about the case itself, about a suite that it is in, or about all."""
        if tree in self._by_tree:
            return self._by_tree[tree]
        names = self._case.split("/")
        for end in range(len(names), -1, -1):
            known = self._court.known(self._court.question(tree, "/".join(names[:end])))
            if known is not None and known.answer is not None:
                status = known.answer.result.statuses().get(self._case)
                if status is not None:
                    return status
        return None

    def _judge(self, tree: str) -> Status:
        question = self._court.question(tree, self._case)
        (judged,) = self._court.hear(self._recording, [question], self._cancel)
        self._judged += judged.source != "kept"
        if judged.answer is None:
            raise EnvironmentFault(
                f"the tree {tree} could not be judged: {judged.problem}", rule="bisect.judge"
            )
        return _status(judged.answer.result, self._case)


def _status(result: Result, case: str) -> Status:
    statuses = result.statuses()
    if case not in statuses:
        some = ", ".join(list(statuses)[:_TOLD])
        raise UsageError(
            f"{case!r} is no case but a suite or shard with {len(statuses)} cases",
            rule="bisect.case",
            hint=f"one of {some}",
        )
    return statuses[case]


def _between(spans: tuple[Span, ...], first: int | None, last: int | None) -> tuple[Span, ...]:
    low = 0 if first is None else first
    high = spans[-1].last if last is None and spans else last or 0
    if low > high:
        raise UsageError(f"part {low} is after part {high}", rule="bisect.range")
    return tuple(span for span in spans if span.last >= low and span.first <= high)


def _ever_finer(count: int) -> Iterator[int]:
    """All indices: the ends, the middle, the middles of the halves, and so on."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < count:
        for number in range(parts, -1, -1):
            index = (count - 1) * number // parts
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2
