"""The table of moves: what it has, what it lacks, and that nothing else moves a run."""

from __future__ import annotations

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.runs.evidence.progress import (
    START,
    TRANSITIONS,
    RunState,
    Trigger,
    is_legal_move,
    next_state,
)

FORWARD: dict[tuple[RunState, Trigger], RunState] = {
    (RunState.PM, Trigger.CONTRACT_ACCEPTED): RunState.TECH_LEAD,
    (RunState.TECH_LEAD, Trigger.SPLIT_ACCEPTED): RunState.WORKER,
    (RunState.WORKER, Trigger.WORK_ACCEPTED): RunState.REVIEWER,
    (RunState.WORKER, Trigger.WORK_REJECTED): RunState.FIX,
    (RunState.REVIEWER, Trigger.REVIEW_PASSED): RunState.TEST,
    (RunState.REVIEWER, Trigger.REVIEW_BLOCKED): RunState.FIX,
    (RunState.TEST, Trigger.TESTS_PASSED): RunState.DONE,
    (RunState.TEST, Trigger.TESTS_FAILED): RunState.FIX,
    (RunState.FIX, Trigger.FIX_CONTRACTED): RunState.WORKER,
    (RunState.FIX, Trigger.FIX_EXHAUSTED): RunState.FAILED,
}
ENDINGS = (Trigger.GATE_FAILED, Trigger.DENIED, Trigger.FAULT)


def test_every_pair_that_is_not_in_the_table_is_refused() -> None:
    for state in RunState:
        for trigger in Trigger:
            if (state, trigger) in FORWARD or (state is not RunState.FAILED and trigger in ENDINGS):
                continue
            with pytest.raises(EnvironmentFault, match="cannot leave") as caught:
                next_state(state, trigger)
            assert caught.value.rule == "run.transition"


def test_the_table_is_what_the_specification_says() -> None:
    ends: dict[tuple[RunState, Trigger], RunState]
    ends = {(s, t): RunState.FAILED for s in RunState if s is not RunState.FAILED for t in ENDINGS}
    assert dict(TRANSITIONS) == FORWARD | ends
    assert START is RunState.PM


def test_a_failed_run_never_moves_again() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is RunState.FAILED]


@pytest.mark.parametrize("state", [s for s in RunState if s is not RunState.TEST])
def test_nothing_but_green_tests_leads_to_done(state: RunState) -> None:
    assert RunState.DONE not in [
        target for (origin, _), target in TRANSITIONS.items() if origin is state
    ]


def test_only_ended_states_are_ended() -> None:
    assert [state for state in RunState if state.ended] == [RunState.DONE, RunState.FAILED]


@pytest.mark.parametrize(
    ("origin", "target", "trigger"),
    [
        ("S0_PM", "S2_WORKER", "contract_accepted"),
        ("S2_WORKER", "S4_TEST", "work_accepted"),
        ("S2_WORKER", "S6_DONE", "tests_passed"),
        ("FAILED", "S2_WORKER", "fix_contracted"),
        ("S9", "S2_WORKER", "fix_contracted"),
        ("S0_PM", "S1_TECH_LEAD", "because"),
        ("", "", ""),
    ],
)
def test_a_recorded_jump_is_not_legal(origin: str, target: str, trigger: str) -> None:
    assert not is_legal_move(origin, target, trigger)


def test_every_recorded_move_of_the_table_is_legal() -> None:
    for (origin, trigger), target in TRANSITIONS.items():
        assert is_legal_move(origin.value, target.value, trigger.value)
