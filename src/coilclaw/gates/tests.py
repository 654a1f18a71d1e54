"""The tests gate: exactly the acceptance tests, on exactly the tree that goes on, and all green.

``tests.none`` there are none · ``tests.no_must_pass`` none that has to pass · ``tests.missing``,
``tests.extra``, ``tests.order``, ``tests.command``, ``tests.must_pass`` what ran is not what the
contract says · ``tests.timeout``, ``tests.ended`` a command did not end by itself ·
``tests.failed`` · ``tests.nothing_ran`` it is green, and no test ran · ``tests.tree`` the tree
changed after it was tested; and those of ``testweakening``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.domain.treepath import shown
from coilclaw.gates.commandline import parse
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one command."""

    name: str
    argv: tuple[str, ...]
    must_pass: bool
    exit_code: int | None
    outcome: str
    """``exited``, or how else it ended."""
    ran: bool | None = None
    """Whether its output says that a test ran; ``None``: nobody can tell."""


def judge(
    acceptance_tests: Sequence[tuple[str, str, bool]],
    outcomes: Sequence[Outcome],
    *,
    tested_tree: str,
    candidate_tree: str,
    weakened: Sequence[Violation] = (),
) -> GateResult:
    """Judge what ran against name, command and must_pass of each test that the contract has.

    The two trees are those that were tested and that would go on: when they are equal, the last
    green is newer than the last edit.
    """
    found = [
        *_declared(acceptance_tests),
        # First what failed: that the rest was then not run follows from it.
        *_green(outcomes),
        *_same(acceptance_tests, outcomes),
        *_tree(tested_tree, candidate_tree),
        *weakened,
    ]
    facts: dict[str, Json] = {
        "commands": [outcome.name for outcome in outcomes],
        "exit_codes": [outcome.exit_code for outcome in outcomes],
        "tree": tested_tree,
        "weakened": len(weakened),
    }
    return GateResult("tests_gate", tuple(found), facts)


def _declared(tests: Sequence[tuple[str, str, bool]]) -> Iterator[Violation]:
    if not tests:
        yield Violation("tests.none", "the contract has no acceptance test")
    elif not any(must_pass is True for _, _, must_pass in tests):
        yield Violation("tests.no_must_pass", "no acceptance test has to pass")


def _same(
    tests: Sequence[tuple[str, str, bool]], outcomes: Sequence[Outcome]
) -> Iterator[Violation]:
    declared, ran = [name for name, _, _ in tests], [outcome.name for outcome in outcomes]
    for name in sorted(set(declared) - set(ran)):
        yield Violation("tests.missing", f"{shown(name)} was not run", name)
    for name in sorted(set(ran) - set(declared)):
        yield Violation("tests.extra", f"{shown(name)} is no acceptance test", name)
    if declared != ran and sorted(declared) == sorted(ran):
        yield Violation("tests.order", "the tests did not run in the order of the contract")
    elif len(declared) != len(ran) and set(declared) == set(ran):
        yield Violation("tests.extra", "tests did not run as often as the contract says")
    if declared != ran:
        return
    for (name, command, must_pass), outcome in zip(tests, outcomes, strict=True):
        argv = parse(command).argv
        if not argv or argv != outcome.argv:
            yield Violation("tests.command", f"{shown(name)} did not run {shown(command)}", name)
        if must_pass is not outcome.must_pass:
            message = f"{shown(name)} was not judged as the contract says"
            yield Violation("tests.must_pass", message, name)


def _green(outcomes: Sequence[Outcome]) -> Iterator[Violation]:
    for outcome in outcomes:
        name = outcome.name
        if outcome.outcome == "timed_out":
            yield Violation("tests.timeout", f"{shown(name)} did not end in time", name)
        elif outcome.outcome != "exited" or outcome.exit_code is None:
            message = f"{shown(name)} did not end by itself: {shown(outcome.outcome)}"
            yield Violation("tests.ended", message, name)
        elif outcome.must_pass and outcome.exit_code != 0:
            message = f"{shown(name)} ended with exit code {outcome.exit_code}"
            yield Violation("tests.failed", message, name)
        elif outcome.must_pass and outcome.ran is False:
            message = f"{shown(name)} ended well, and its output shows no test that ran"
            yield Violation("tests.nothing_ran", message, name)


def _tree(tested: str, candidate: str) -> Iterator[Violation]:
    if not tested or tested != candidate:
        yield Violation("tests.tree", "what was tested is not what would go on")
