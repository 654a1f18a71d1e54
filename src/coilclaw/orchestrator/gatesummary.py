"""What the gates of a run come to: the last word of each on every task that still counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.results import GateOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def summed(
    events: Iterable[tuple[str, str | None, Mapping[str, object]]],
) -> dict[str, GateOutcome]:
    """Sum up events, each as its type, task and payload.

    A gate passed if it passed every task; what was said of work that another task repaired does
    not count any more.
    """
    words: dict[str, dict[str | None, GateOutcome]] = {}
    for kind, task_id, payload in events:
        if kind == EventType.CONTRACT_WRITTEN:
            repaired = payload.get("replaces")
            for name in repaired if isinstance(repaired, list) else ():
                for said in words.values():
                    said.pop(str(name), None)
        gate, passed = payload.get("gate"), payload.get("passed")
        if isinstance(gate, str) and isinstance(passed, bool):
            listed = payload.get("violations")
            violations = tuple(map(str, listed)) if isinstance(listed, list) else ()
            words.setdefault(gate, {})[task_id] = GateOutcome(passed=passed, violations=violations)
    return {
        gate: GateOutcome(
            passed=all(word.passed for word in said.values()),
            violations=tuple(each for word in said.values() for each in word.violations),
        )
        for gate, said in words.items()
        if said
    }
