"""``bisect``: the part that broke or fixed a case, with as few evaluations as it takes."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import EnvironmentFault, Json, UsageError
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.traces.environments.results import Status
    from coilclaw.traces.evaluation.evaluation import Evaluator
    from coilclaw.traces.evaluation.recorded_trace import Recording, Span

Outcome: TypeAlias = Literal["broke", "fixed", "always_passed", "never_passed"]
_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class Bisection:
    """The outcome of a case, and its part; the trees on both sides of it were judged."""

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
        return asdict(self)


def bisect(
    recording: Recording,
    court: Evaluator,
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
    spans = _select_spans(recording.spans(), first, last)
    if not spans:
        raise UsageError("the range holds no part", rule="bisect.range")
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
        return search.narrow(0, len(spans) - 1)
    pair = search.find_change()
    return search.describe_untouched() if pair is None else search.narrow(*pair)


@dataclass(slots=True)
class _Search:
    """What is known about a case, state by state."""

    _recording: Recording
    _court: Evaluator
    _case: str
    _spans: tuple[Span, ...]
    _cancel: Cancellation
    _by_tree: dict[str, Status] = field(default_factory=dict)
    _judged: int = 0

    def passes(self, index: int) -> bool:
        return self.status(index) == "passed"

    def status(self, index: int) -> Status:
        """Return the status of the case in a state; judge it if that is not known."""
        tree = self._spans[index].tree
        self._by_tree[tree] = self._find_known(tree) or self._judge(tree)
        return self._by_tree[tree]

    def find_change(self) -> tuple[int, int] | None:
        """Return two states between which it broke, else between which it was fixed."""
        for span in self._spans:
            if (known := self._find_known(span.tree)) is not None:
                self._by_tree[span.tree] = known
        for index in _order_by_halves(len(self._spans)):
            pair = self._find_pair(broke=True)
            if pair is not None:
                return pair
            self.status(index)
        return self._find_pair(broke=True) or self._find_pair(broke=False)

    def narrow(self, low: int, high: int) -> Bisection:
        """Halve until the two are neighbours."""
        before = self.passes(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.passes(middle) == before:
                low = middle
            else:
                high = middle
        statuses = self.status(low), self.status(high)
        outcome: Outcome = "broke" if before else "fixed"
        return self._make_finding(outcome, statuses, self._spans[high].first, self._spans[low].last)

    def describe_untouched(self) -> Bisection:
        """Return the finding for a case that never changed."""
        status = self.status(0)
        outcome: Outcome = "always_passed" if status == "passed" else "never_passed"
        return self._make_finding(outcome, (status, status))

    def _make_finding(
        self,
        outcome: Outcome,
        statuses: tuple[Status, Status],
        part: int | None = None,
        before: int | None = None,
    ) -> Bisection:
        trees = len({span.tree for span in self._spans})
        return Bisection(self._case, outcome, part, before, *statuses, self._judged, trees)

    def _find_pair(self, *, broke: bool) -> tuple[int, int] | None:
        known = [
            (index, self._by_tree[span.tree] == "passed")
            for index, span in enumerate(self._spans)
            if span.tree in self._by_tree
        ]
        for (low, before), (high, after) in reversed(list(itertools.pairwise(known))):
            if (before, after) == (broke, not broke):
                return low, high
        return None

    def _find_known(self, tree: str) -> Status | None:
        """Return a cached status, from the case itself, a suite above it, or all tests."""
        if tree in self._by_tree:
            return self._by_tree[tree]
        names = self._case.split("/")
        for end in range(len(names), -1, -1):
            known = self._court.look_up_tree(self._court.question(tree, "/".join(names[:end])))
            answer = known and known.answer
            if answer and (status := answer.result.statuses().get(self._case)) is not None:
                return status
        return None

    def _judge(self, tree: str) -> Status:
        question = self._court.question(tree, self._case)
        (judged,) = self._court.hear(self._recording, [question], self._cancel)
        self._judged += judged.source != "kept"
        if judged.answer is None:
            message = f"the tree {tree} could not be judged: {judged.problem}"
            raise EnvironmentFault(message, rule="bisect.judge")
        statuses = judged.answer.result.statuses()
        if self._case not in statuses:
            raise UsageError(
                f"{self._case!r} is not a case but a suite or shard with {len(statuses)} cases",
                rule="bisect.case",
                hint=f"one of {', '.join(list(statuses)[:_TOLD])}",
            )
        return statuses[self._case]


def _select_spans(spans: tuple[Span, ...], first: int | None, last: int | None) -> tuple[Span, ...]:
    low = 0 if first is None else first
    high = spans[-1].last if last is None and spans else last or 0
    if low > high:
        raise UsageError(f"part {low} is after part {high}", rule="bisect.range")
    return tuple(span for span in spans if span.last >= low and span.first <= high)


def _order_by_halves(count: int) -> Iterator[int]:
    """Yield all indices: the ends, the middle, the middles of the halves, and so on."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < count:
        for number in range(parts, -1, -1):
            index = (count - 1) * number // parts
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2
