"""Hints for a planner: what was recognised of the project, and how it is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.taskcontract import SetupCommand
    from coilclaw.orchestrator.baseline import Baseline

MAX_HINTS: Final = 16


def hint_lines(baseline: Baseline, setup: Sequence[SetupCommand] = ()) -> tuple[str, ...]:
    """Return what a planner is told about the project, one sentence a line."""
    profile = baseline.recognise()
    tests = (f"its tests are perhaps run with '{command}'" for command in profile.tests)
    done = (f"'{command.cmd}' has prepared the tree before a test runs" for command in setup)
    return (*map(str, profile.findings), *tests, *done)[:MAX_HINTS]
