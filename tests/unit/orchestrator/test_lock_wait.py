"""A wait is told when it begins, when it changes, and ever more seldom while it does not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coilclaw.runs.engine.contract_stage import MAX_HOLDERS, WaitNotice
from coilclaw.runs.engine.locks import Conflict, Lock, Taken, Ticket
from coilclaw.runs.engine.run import Run
from coilclaw.runs.evidence.event_index import EventIndex
from coilclaw.workspace.process.owner import Owner

OWNER = Owner(1, 1, "boot")


class Recording:
    """Keeps what a run would record."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0.0

    def emit(self, kind: str, payload: dict[str, Any]) -> None:
        assert kind == "LOCKS_AWAITED"
        self.events.append(payload)


def taken(*run_ids: str, queued: bool = False) -> Taken:
    conflicts = [
        Conflict("src/a", Lock("src", run_id, "task", OWNER, "then", "token"), queued)
        for run_id in run_ids
    ]
    return Taken(tuple(conflicts), Ticket(1, "own", "task", ("src/a",), OWNER, "now"))


def test_an_event_says_for_whom_and_since_when() -> None:
    run = Recording()
    WaitNotice(cast("Run", run)).tell(taken("one", "one", "two"))
    held = {"task_id": "task", "path": "src", "since": "then", "holds": True}
    assert run.events == [
        {
            "paths": ["src/a"],
            "holders": [{"run_id": "one", **held}, {"run_id": "two", **held}],
            "since": "now",
            "reason": "waits since now for run one, which has held 'src' since then, "
            "and for 1 more",
        }
    ]
    WaitNotice(cast("Run", run)).tell(taken("one", queued=True))
    assert run.events[-1]["reason"].endswith("run one, which has waited for 'src' since then")
    WaitNotice(cast("Run", run)).tell(taken(*(f"run-{n}" for n in range(3 * MAX_HOLDERS))))
    assert len(run.events[-1]["holders"]) == MAX_HOLDERS


def test_what_does_not_change_is_told_ever_more_seldom() -> None:
    run = Recording()
    notice = WaitNotice(cast("Run", run), clock=lambda: run.now)
    told: list[int] = []
    for second in range(4 * 3600):
        run.now = float(second)
        notice.tell(taken("one"))
        if len(run.events) > len(told):
            told.append(second)
    assert told == [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980]
    notice.tell(taken("two"))
    assert len(run.events) == len(told) + 1, "a change is told at once"


@pytest.mark.parametrize(
    ("kinds", "baseline"), [(("M", "T"), "b"), (("T", "M"), "a"), (("T",), "a")]
)
def test_the_baseline_moves_only_before_there_is_work(
    kinds: tuple[str, ...], baseline: str
) -> None:
    events = EventIndex()
    events.add(1, {"event_type": "RUN_CREATED", "payload": {"baseline_commit": "a"}})
    for number, kind in enumerate(kinds, 2):
        name = {"M": "BASELINE_MOVED", "T": "TASK_STARTED"}[kind]
        events.add(number, {"event_type": name, "payload": {"baseline_commit": "b"}})
    assert events.baseline == baseline
