"""Whatever happens to a run, it moves as the table says, and its events alone tell where it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from coilclaw.runs.evidence.progress import (
    START,
    TRANSITIONS,
    RunState,
    Trigger,
    apply_event,
    fold_events,
    is_legal_move,
    next_state,
)


@st.composite
def walks(draw: st.DrawFn) -> list[tuple[RunState, Trigger, RunState]]:
    """Moves as an engine makes them, as long as there are any."""
    state, moves = START, []
    for _ in range(draw(st.integers(0, 20))):
        open_to = sorted(t for (origin, t) in TRANSITIONS if origin is state)
        if not open_to:
            break
        trigger = draw(st.sampled_from(open_to))
        moves.append((state, trigger, next_state(state, trigger)))
        state = moves[-1][2]
    return moves


def told(move: tuple[RunState, Trigger, RunState]) -> dict[str, Any]:
    origin, trigger, target = move
    payload = {"from": origin.value, "to": target.value, "trigger": trigger.value}
    return {"event_type": "STATE_TRANSITION", "task_id": None, "payload": payload}


@given(walks())
def test_done_is_reached_through_review_and_tests_only(
    moves: list[tuple[RunState, Trigger, RunState]],
) -> None:
    visited = [START, *(target for _, _, target in moves)]
    for number, state in enumerate(visited):
        if state is RunState.DONE:
            assert visited[number - 3 : number] == [
                RunState.WORKER,
                RunState.REVIEWER,
                RunState.TEST,
            ]


@given(walks())
def test_work_after_the_first_is_always_a_repair(
    moves: list[tuple[RunState, Trigger, RunState]],
) -> None:
    begun = [origin for origin, _, target in moves if target is RunState.WORKER]
    assert begun[:1] in ([], [RunState.TECH_LEAD])
    assert set(begun[1:]) <= {RunState.FIX}
    progress = fold_events(map(told, moves))
    assert progress.attempt == len(begun[1:])


@given(walks(), st.integers(0, 20))
def test_the_rest_of_the_events_leads_from_anywhere_to_the_same_end(
    moves: list[tuple[RunState, Trigger, RunState]], cut: int
) -> None:
    events = [told(move) for move in moves]
    whole = fold_events(events)
    resumed = fold_events(events[:cut])
    for event in events[cut:]:
        resumed = apply_event(resumed, event)
    assert resumed == whole
    assert whole.state is (moves[-1][2] if moves else START)


@given(st.sampled_from(RunState), st.sampled_from(RunState), st.sampled_from(Trigger))
def test_legal_is_the_table_and_nothing_else(
    origin: RunState, target: RunState, trigger: Trigger
) -> None:
    wanted = TRANSITIONS.get((origin, trigger)) is target
    assert is_legal_move(origin.value, target.value, trigger.value) is wanted


@given(st.text(), st.text(), st.text())
def test_no_other_words_are_a_move(origin: str, target: str, trigger: str) -> None:
    assert not is_legal_move(origin, target, trigger)
