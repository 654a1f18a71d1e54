"""The table of moves: what it has, what it lacks, and that nothing else moves a run."""

from __future__ import annotations

import pytest

from coilclaw.errors import EnvironmentFault
from coilclaw.orchestrator.states import START, TRANSITIONS, State, Trigger, after, legal

FORWARD: dict[tuple[State, Trigger], State] = {
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
}
ENDINGS = (Trigger.GATE_FAILED, Trigger.DENIED, Trigger.FAULT)


def test_every_pair_that_is_not_in_the_table_is_refused() -> None:
    for state in State:
        for trigger in Trigger:
            if (state, trigger) in FORWARD or (state is not State.FAILED and trigger in ENDINGS):
                continue
            with pytest.raises(EnvironmentFault, match="cannot leave") as caught:
                after(state, trigger)
            assert caught.value.rule == "run.transition"


def test_the_table_is_what_the_specification_says() -> None:
    ends: dict[tuple[State, Trigger], State]
    ends = {(s, t): State.FAILED for s in State if s is not State.FAILED for t in ENDINGS}
    assert dict(TRANSITIONS) == FORWARD | ends
    assert START is State.PM


def test_a_failed_run_never_moves_again() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is State.FAILED]


@pytest.mark.parametrize("state", [s for s in State if s is not State.TEST])
def test_nothing_but_green_tests_leads_to_done(state: State) -> None:
    assert State.DONE not in [
        target for (origin, _), target in TRANSITIONS.items() if origin is state
    ]


def test_only_ended_states_are_ended() -> None:
    assert [state for state in State if state.ended] == [State.DONE, State.FAILED]


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
    assert not legal(origin, target, trigger)


def test_every_recorded_move_of_the_table_is_legal() -> None:
    for (origin, trigger), target in TRANSITIONS.items():
        assert legal(origin.value, target.value, trigger.value)
