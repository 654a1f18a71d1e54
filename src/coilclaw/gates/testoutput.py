"""What the output of a test runner says about whether any test ran."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.trivial import runner
from coilclaw.gates import runner_summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.gates.runner_summary import RunnerSummary

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
    "jest": runner_summary.JEST,
    "vitest": runner_summary.VITEST,
    "node": runner_summary.NODE,
    "cargo": runner_summary.CARGO,
    "go": runner_summary.GO,
    "mvn": runner_summary.MAVEN,
    "mvnw": runner_summary.MAVEN,
    "gradle": runner_summary.GRADLE,
    "gradlew": runner_summary.GRADLE,
    "dotnet": runner_summary.DOTNET,
    "bazel": runner_summary.BAZEL,
    "bazelisk": runner_summary.BAZEL,
    "ctest": runner_summary.CTEST,
}
_DRIVERS: Final = frozenset(
    {"bun", "hatch", "just", "make", "gmake", "nox", "npm", "pnpm", "tox", "yarn"}
)
"""Programs that start a test runner which their own files name, or several."""
_DRIVEN: Final = (
    *(runner_summary.JEST, runner_summary.VITEST, runner_summary.MOCHA, runner_summary.NODE),
    *(runner_summary.CARGO, runner_summary.GO, runner_summary.MAVEN, runner_summary.DOTNET),
    *(runner_summary.BAZEL, runner_summary.CTEST),
)


def ran(argv: Sequence[str], stdout: bytes, stderr: bytes) -> bool | None:
    """Whether a command ran at least one test; ``None`` where nobody can tell."""
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
    """Judge a command that runs whatever tests the project has, by any summary that is there."""
    said = [runner_summary.judge_summaries(_DRIVEN, text)]
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
