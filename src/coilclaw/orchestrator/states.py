"""The states of a run, and the one table of how it may go on. Nothing else moves a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """Where a run is."""

    PM = "S0_PM"
    TECH_LEAD = "S1_TECH_LEAD"
    WORKER = "S2_WORKER"
    REVIEWER = "S3_REVIEWER"
    TEST = "S4_TEST"
    FIX = "S5_FIX"
    DONE = "S6_DONE"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Whether no agent will work on the run any more."""
        return self in {State.DONE, State.FAILED}


class Trigger(StrEnum):
    """What moved it there."""

    CONTRACT_ACCEPTED = "contract_accepted"
    SPLIT_ACCEPTED = "split_accepted"
    WORK_ACCEPTED = "work_accepted"
    WORK_REJECTED = "work_rejected"
    REVIEW_PASSED = "review_passed"
    REVIEW_BLOCKED = "review_blocked"
    TESTS_PASSED = "tests_passed"
    TESTS_FAILED = "tests_failed"
    FIX_CONTRACTED = "fix_contracted"
    FIX_EXHAUSTED = "fix_exhausted"
    GATE_FAILED = "gate_failed"
    DENIED = "denied"
    FAULT = "fault"
    """The system itself is at fault: a reviewer that wrote, evidence that cannot be kept."""


START: Final = State.PM

_ENDINGS: Final = (Trigger.GATE_FAILED, Trigger.DENIED, Trigger.FAULT)

TRANSITIONS: Final[Mapping[tuple[State, Trigger], State]] = {
    (State.PM, Trigger.CONTRACT_ACCEPTED): State.TECH_LEAD,
    (State.TECH_LEAD, Trigger.SPLIT_ACCEPTED): State.WORKER,
    (State.WORKER, Trigger.WORK_ACCEPTED): State.REVIEWER,
    (State.WORKER, Trigger.WORK_REJECTED): State.FIX,
    (State.REVIEWER, Trigger.REVIEW_PASSED): State.TEST,
    (State.REVIEWER, Trigger.REVIEW_BLOCKED): State.FIX,
    (State.TEST, Trigger.TESTS_PASSED): State.DONE,
    (State.TEST, Trigger.TESTS_FAILED): State.FIX,
    (State.FIX, Trigger.FIX_CONTRACTED): State.WORKER,
    (State.FIX, Trigger.FIX_EXHAUSTED): State.FAILED,
    **{
        (state, trigger): State.FAILED
        for state in State
        if state is not State.FAILED
        for trigger in _ENDINGS
    },
}
"""Every move there is; also out of ``DONE``, where merging may still fail."""


def after(state: State, trigger: Trigger) -> State:
    """Return where a trigger leads; a move that is not in the table is our own fault."""
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        raise EnvironmentFault(
            f"a run cannot leave {state} because of {trigger}", rule="run.transition"
        ) from None


def legal(origin: str, target: str, trigger: str) -> bool:
    """Whether a recorded move is one of the table."""
    try:
        return TRANSITIONS.get((State(origin), Trigger(trigger))) == State(target)
    except ValueError:
        return False
