"""The self-check: an environment's fixtures and its judge, held to a reference compiler."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Case

FILE: Final = "selfcheck.json"
"""Beside an environment's ``main.py``: which cases a reference compiler is known to fail."""
VERSION: Final = 1
MAX_BYTES: Final = 2**20
REFERENCE: Final = "reference"
FIXTURES: Final = "fixtures"
"""The parameters of an environment that can be self-checked."""

State: TypeAlias = Literal["proved", "differs", "scored", "missing"]

_REASONS: Final = {
    "compile_error": "it does not compile or link as one file by itself",
    "compile_timeout": "it takes too long to compile",
    "compile_crash": "the compiler crashes",
    "timeout": "it takes too long to run",
    "crash": "it ends by a signal",
    "wrong_output": "it prints",
    "wrong_exit_code": "it ends with another exit code",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is known of a compiler."""

    proved_with: str
    failures: Mapping[str, str]
    """The reason by the id of a case."""


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """What a self-check found of one suite."""

    suite: str
    state: State
    passed: int = 0
    total: int = 0
    expected_total: int | None = None
    """From the fixtures that are pinned; ``None`` where nothing says."""
    expected_failures: tuple[str, ...] = ()
    failed: tuple[Case, ...] = ()
    """Against the expectation, or without one."""
    unexpected_passes: tuple[str, ...] = ()
    fixtures: str = ""
    """Of which version they are, or what is missing."""
    error: str | None = None
    """Why judging did not go as it should."""

    def json(self) -> dict[str, Json]:
        """As it is printed for machines."""
        return {
            "suite": self.suite,
            "state": self.state,
            "passed": self.passed,
            "total": self.total,
            "expected_total": self.expected_total,
            "expected_failures": list(self.expected_failures),
            "failed": [
                {
                    "id": case.id,
                    "status": case.status,
                    "failure_kind": case.failure_kind,
                    "told": case.difference or case.log or "",
                }
                for case in self.failed
            ],
            "unexpected_passes": list(self.unexpected_passes),
            "fixtures": self.fixtures,
            "error": self.error,
        }


def expectation(directory: Path, compiler: str) -> Expectation | None:
    """What an environment knows of a compiler by its name; ``None``: it can only be scored."""
    file = directory / FILE
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {file}: {problem.strerror}", rule="selfcheck.unreadable"
        ) from problem
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        document = json.loads(data)
        match document:
            case {"version": int(version), "compilers": list(given)} if version == VERSION:
                known = [_entry(one) for one in given]
            case _:
                raise ValueError(f"it has no version {VERSION}, or no list of compilers")
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{file}: {problem}", rule="selfcheck.declared") from problem
    for names, found in known:
        if any(fnmatchcase(compiler, name) for name in names):
            return found
    return None


def compare(
    suite: str,
    cases: Iterable[Case],
    known: Expectation | None,
    *,
    expected_total: int | None = None,
    fixtures: str = "",
) -> SuiteCheck:
    """Hold the cases of a suite to what is expected of them."""
    there = list(cases)
    failures = {} if known is None else known.failures
    passed = {case.id for case in there if case.passed}
    failed = tuple(case for case in there if not case.passed and case.id not in failures)
    ids = {case.id for case in there}
    expected = tuple(name for name in failures if name in ids)
    surprising = tuple(name for name in expected if name in passed)
    complete = expected_total is None or expected_total == len(there)
    state: State = "scored"
    if known is not None:
        state = "proved" if complete and not failed and not surprising else "differs"
    return SuiteCheck(
        suite=suite,
        state=state,
        passed=len(passed),
        total=len(there),
        expected_total=expected_total,
        expected_failures=tuple(name for name in expected if name not in passed),
        failed=failed,
        unexpected_passes=surprising,
        fixtures=fixtures,
    )


def left_out(suite: str, cases: Iterable[Case], compiler: str, sha256: str) -> dict[str, Json]:
    """What a reference compiler cannot do, as the file that leaves it out says it."""
    there = list(cases)
    reasons: dict[str, Json] = {
        case.id.rpartition("/")[2]: _reason(case)
        for case in sorted(there, key=lambda case: case.id.rpartition("/")[2])
        if not case.passed
    }
    return {
        "suite": suite,
        "compiler": compiler,
        "fixtures_sha256": sha256,
        "programs": len(there),
        "left_out": reasons,
    }


def nothing_left_out(suite: str) -> dict[str, Json]:
    """The same file before anything is known."""
    return left_out(suite, (), "", "")


def _reason(case: Case) -> str:
    kind = case.failure_kind or case.status
    return f"{kind}: {_REASONS[kind]}" if kind in _REASONS else kind


def _entry(value: object) -> tuple[list[str], Expectation]:
    match value:
        case {"names": list(names), "proved_with": str(proved), "failures": dict(failures)} if all(
            isinstance(text, str) and text for text in (*names, *failures.values())
        ):
            return names, Expectation(proved, failures)
    raise ValueError("a compiler has names, proved_with, and failures with their reasons")
