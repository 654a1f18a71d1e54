"""The tests gate: exactly the acceptance tests, on exactly the tree that goes on, and all green.

``tests.none`` there are none · ``tests.no_must_pass`` none that has to pass · ``tests.missing``,
``tests.extra``, ``tests.order``, ``tests.command``, ``tests.must_pass`` what ran is not what the
contract says · ``tests.timeout``, ``tests.ended`` a command did not end by itself ·
``tests.failed`` · ``tests.nothing_ran`` it is green, and no test ran · ``tests.tree`` the tree
changed after it was tested; and those of ``testweakening``
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import quote_text
from coilclaw.policy import runner
from coilclaw.runs.gates.command_line import parse_command
from coilclaw.runs.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import Json


NAME: Final = "tests_gate"


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """What became of one command."""

    name: str
    argv: tuple[str, ...]
    must_pass: bool
    exit_code: int | None
    outcome: str
    """``exited``, or how else it ended."""
    ran: bool | None = None
    """Whether its output says that a test ran; ``None``: unknown."""


def judge_tests(
    acceptance_tests: Sequence[tuple[str, str, bool]],
    outcomes: Sequence[SuiteOutcome],
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
        *_check_declared(acceptance_tests),
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
    return GateResult(NAME, tuple(found), facts)


def _check_declared(tests: Sequence[tuple[str, str, bool]]) -> Iterator[Violation]:
    if not tests:
        yield Violation("tests.none", "the contract has no acceptance test")
    elif not any(must_pass is True for _, _, must_pass in tests):
        yield Violation("tests.no_must_pass", "no acceptance test has to pass")


def _same(
    tests: Sequence[tuple[str, str, bool]], outcomes: Sequence[SuiteOutcome]
) -> Iterator[Violation]:
    declared, ran = [name for name, _, _ in tests], [outcome.name for outcome in outcomes]
    for name in sorted(set(declared) - set(ran)):
        yield Violation("tests.missing", f"{quote_text(name)} was not run", name)
    for name in sorted(set(ran) - set(declared)):
        yield Violation("tests.extra", f"{quote_text(name)} is not an acceptance test", name)
    if declared != ran and sorted(declared) == sorted(ran):
        yield Violation("tests.order", "the tests did not run in the order of the contract")
    elif len(declared) != len(ran) and set(declared) == set(ran):
        yield Violation("tests.extra", "tests did not run as often as the contract says")
    if declared != ran:
        return
    for (name, command, must_pass), outcome in zip(tests, outcomes, strict=True):
        argv = parse_command(command).argv
        if not argv or argv != outcome.argv:
            yield Violation(
                "tests.command", f"{quote_text(name)} did not run {quote_text(command)}", name
            )
        if must_pass is not outcome.must_pass:
            message = f"{quote_text(name)} was not judged as the contract says"
            yield Violation("tests.must_pass", message, name)


def _green(outcomes: Sequence[SuiteOutcome]) -> Iterator[Violation]:
    for outcome in outcomes:
        name = outcome.name
        if outcome.outcome == "timed_out":
            yield Violation("tests.timeout", f"{quote_text(name)} did not end in time", name)
        elif outcome.outcome != "exited" or outcome.exit_code is None:
            message = f"{quote_text(name)} did not end by itself: {quote_text(outcome.outcome)}"
            yield Violation("tests.ended", message, name)
        elif outcome.must_pass and outcome.exit_code != 0:
            message = f"{quote_text(name)} ended with exit code {outcome.exit_code}"
            yield Violation("tests.failed", message, name)
        elif outcome.must_pass and outcome.ran is False:
            message = f"{quote_text(name)} ended well, and its output shows no test that ran"
            yield Violation("tests.nothing_ran", message, name)


def _tree(tested: str, candidate: str) -> Iterator[Violation]:
    if not tested or tested != candidate:
        yield Violation("tests.tree", "what was tested is not what would go on")


@dataclass(frozen=True, slots=True)
class RunnerSummary:
    """How one runner ends its output."""

    counts: re.Pattern[str]
    """Each of its groups is a number of tests that ran, or empty; one without groups is a test."""
    none: re.Pattern[str] | None = None
    """What it says where no test ran."""

    def judge(self, text: str) -> bool | None:
        """Whether a test ran; ``None`` where the text has no such summary."""
        found = [*self.counts.finditer(text)]
        if any(_ran(one) for one in found):
            return True
        none = self.none is not None and self.none.search(text) is not None
        return False if found or none else None


def _ran(found: re.Match[str]) -> bool:
    return not found.re.groups or any(int(number) > 0 for number in found.groups() if number)


def _lines(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE)


JEST: Final = RunnerSummary(
    _lines(r"^Tests:\s+(?:(\d+) failed, )?(?:\d+ (?:skipped|todo), )*(?:(\d+) passed, )?\d+ total"),
    _lines(r"^No tests? found"),
)
VITEST: Final = RunnerSummary(
    _lines(r"^[ \t]*Tests\s+(?:(\d+) failed(?: \| )?)?(?:(\d+) passed)?.*\(\d+\)"),
    _lines(r"^[ \t]*No test files? found"),
)
MOCHA: Final = RunnerSummary(_lines(r"^[ \t]*(\d+) (?:passing|failing)\b"))
NODE: Final = RunnerSummary(_lines(r"^(?:#|ℹ) (?:pass|fail) (\d+)\s*$"))
CARGO: Final = RunnerSummary(
    _lines(
        r"^test result: \w+\. (\d+) passed; (\d+) failed;"
        r"|^[ \t]*Summary \[[^\]]*\] (\d+) tests? run:"
    )
)
GO: Final = RunnerSummary(
    _lines(r"^(?:ok|FAIL)\s+\S+\s+(?:\(cached\)|[\d.]+s)(?!.*\[no tests to run\])|^--- FAIL:"),
    _lines(r"\[no test(?: file)?s(?: to run)?\]"),
)
MAVEN: Final = RunnerSummary(
    _lines(r"Tests run: (\d+), Failures: \d+, Errors: \d+, Skipped: \d+"),
    _lines(r"\bNo tests (?:to run|were executed)"),
)
GRADLE: Final = RunnerSummary(
    _lines(r"^\d+ tests completed|^\S+ > \S.* (?:PASSED|FAILED)\s*$"),
    _lines(r"^(?:> Task )?\S*:test NO-SOURCE\s*$"),
)
DOTNET: Final = RunnerSummary(
    _lines(r"Failed:\s+(\d+), Passed:\s+(\d+),|^[ \t]*(?:Passed|Failed): (\d+)\s*$"),
    _lines(r"No test (?:is available|matches the given)"),
)
BAZEL: Final = RunnerSummary(
    _lines(r"^//\S+\s+(?:\(cached\) )?(?:PASSED|FAILED|FLAKY|TIMEOUT)\b"),
    _lines(r"^Executed 0 out of 0 tests|No test targets were found"),
)
CTEST: Final = RunnerSummary(
    _lines(r"^\d+% tests passed, \d+ tests? failed out of (\d+)"),
    _lines(r"^No tests were found|^No test configuration file found"),
)


TAIL_BYTES: Final = 64 * 2**10
"""A summary stands at the end; what a test printed before it proves nothing."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_UNITTEST: Final = re.compile(r"^Ran (\d+) tests? in [\d.]+s\s*$", re.MULTILINE)
_SKIPPED: Final = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)\b.*\bskipped=(\d+)", re.MULTILINE)
_PYTEST: Final = re.compile(
    r"^(?:=+ )?(?:no tests ran|no tests collected|(\d+ \w+(?:, \d+ \w+)*)) in [\d.]+s.*$",
    re.MULTILINE,
)
_PYTEST_RAN: Final = re.compile(r"\b(?:passed|failed|xfailed|xpassed|errors?)\b")
_NONE_COLLECTED: Final = re.compile(r"^collected 0 items", re.MULTILINE)
# All that is left of it under -qq, or in the looks that a plugin gives it.
_PROGRESS: Final = re.compile(r"^\S*[.xXFE]\S*\s+\[100%\]\s*$|^\s+\d+ passed\b", re.MULTILINE)
_SUMMARIES: Final[Mapping[str, RunnerSummary]] = {
    "jest": JEST,
    "vitest": VITEST,
    "node": NODE,
    "cargo": CARGO,
    "go": GO,
    "mvn": MAVEN,
    "mvnw": MAVEN,
    "gradle": GRADLE,
    "gradlew": GRADLE,
    "dotnet": DOTNET,
    "bazel": BAZEL,
    "bazelisk": BAZEL,
    "ctest": CTEST,
}
_DRIVERS: Final = frozenset(
    {"bun", "hatch", "just", "make", "gmake", "nox", "npm", "pnpm", "tox", "yarn"}
)
"""Programs that start a test runner which their own files name, or several."""
_DRIVEN: Final = (*(JEST, VITEST, MOCHA, NODE), *(CARGO, GO, MAVEN, DOTNET), *(BAZEL, CTEST))


def find_whether_tests_ran(argv: Sequence[str], stdout: bytes, stderr: bytes) -> bool | None:
    """Whether a command ran at least one test; ``None`` if unknown."""
    if not argv:
        return None
    name, _ = runner(argv)
    if name == "unittest":
        return _unittest(_text(stderr))
    if name in {"pytest", "py.test"}:
        return _pytest(_text(stdout))
    both = f"{_text(stdout)}\n{_text(stderr)}"
    if name in _SUMMARIES:
        return _SUMMARIES[name].judge(both)
    return _driven(both) if name in _DRIVERS or "/" in argv[0] else None


def _driven(text: str) -> bool | None:
    """Judge a command that runs whatever tests the project has, by any summary that is there.

    A summary without tests counts only where no other shows one.
    """
    said = [summary.judge(text) for summary in _DRIVEN]
    if _UNITTEST.search(text):
        said.append(_unittest(text))
    if _PYTEST.search(text):
        said.append(any(_PYTEST_RAN.search(each[1] or "") for each in _PYTEST.finditer(text)))
    return True if True in said else False if False in said else None


def _text(data: bytes) -> str:
    return _COLOUR.sub("", data[-TAIL_BYTES:].decode("utf-8", "replace")).replace("\r\n", "\n")


def _unittest(text: str) -> bool:
    summary = [*_UNITTEST.finditer(text)]
    if not summary:
        return False
    skipped = _SKIPPED.search(text, summary[-1].end())
    return int(summary[-1][1]) > (int(skipped[1]) if skipped else 0)


def _pytest(text: str) -> bool:
    summary = [*_PYTEST.finditer(text)]
    if summary:
        return _PYTEST_RAN.search(summary[-1][1] or "") is not None
    return not _NONE_COLLECTED.search(text) and _PROGRESS.search(text) is not None
