"""What the summary of a test runner says about how many tests ran.

Each runner has a pattern for its summary, whose groups count tests that ran, and perhaps one for
the sentence that none did. One that says nothing where it ends well is not judged by its silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def judge_summaries(summaries: Iterable[RunnerSummary], text: str) -> bool | None:
    """Whether one of several runners ran a test; a no counts only where none says yes."""
    said = [summary.judge(text) for summary in summaries]
    if True in said:
        return True
    return False if False in said else None
