"""Whether a test ran, by what real runners write; and what the gate says when none did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coilclaw.runs.gates import tests
from coilclaw.runs.gates.tests import find_whether_tests_ran

UNITTEST = ("python3", "-m", "unittest")
PYTEST = ("pytest", "-q")
LINE = b"-" * 70 + b"\n"


@pytest.mark.parametrize(
    ("argv", "stdout", "stderr"),
    [
        (UNITTEST, b"", LINE + b"Ran 0 tests in 0.000s\n\nOK\n"),
        (UNITTEST, b"", LINE + b"Ran 0 tests in 0.000s\n\nNO TESTS RAN\n"),
        (UNITTEST, b"", LINE + b"Ran 2 tests in 0.000s\n\nOK (skipped=2)\n"),
        (UNITTEST, b"Ran 5 tests in 0.1s\n", b""),
        (UNITTEST, b"", b""),
        (PYTEST, b"no tests ran in 0.01s\n", b""),
        (PYTEST, b"===== 3 deselected in 0.01s =====\n", b""),
        (PYTEST, b"===== 3 skipped in 0.01s =====\n", b""),
        (PYTEST, b"collected 0 items\n", b""),
        (PYTEST, b"", b"1 passed in 0.01s\n"),
        (("python3", "-m", "pytest"), b"1 passed in 0.01s\nno tests ran in 0.00s\n", b""),
        (("python3", "-m", "coverage", "run", "-m", "pytest"), b"", b""),
        (("py.test",), b"", b""),
    ],
)
def test_none_ran(argv: tuple[str, ...], stdout: bytes, stderr: bytes) -> None:
    assert find_whether_tests_ran(argv, stdout, stderr) is False


@pytest.mark.parametrize(
    ("argv", "stdout", "stderr"),
    [
        (UNITTEST, b"", LINE + b"Ran 1 test in 0.000s\n\nOK\n"),
        (UNITTEST, b"", LINE + b"Ran 3 tests in 1.234s\n\nOK (skipped=2)\n"),
        (("python3.12", *UNITTEST[1:], "discover"), b"", b"Ran 3 tests in 1.2s\r\n\r\nOK\r\n"),
        (PYTEST, b"1 passed in 0.01s\n", b""),
        (PYTEST, b"==== 2 passed, 1 skipped, 3 warnings in 61.00s (0:01:01) ====\n", b""),
        (PYTEST, b"\x1b[32m==== \x1b[1m1 passed\x1b[0m\x1b[32m in 0.14s ====\x1b[0m\n", b""),
        (PYTEST, b"1 xfailed in 0.01s\n", b""),
        (("pytest", "-qq"), b".      [100%]\n", b""),
        (("bin/pytest",), b"Results (0.10s):\n       3 passed\n", b""),
    ],
)
def test_some_ran(argv: tuple[str, ...], stdout: bytes, stderr: bytes) -> None:
    assert find_whether_tests_ran(argv, stdout, stderr) is True


JEST = ("npx", "jest")
VITEST = ("npx", "vitest", "run")
GO = ("go", "test", "./...")
GRADLE = ("./gradlew", "test")
DOTNET = ("dotnet", "test")
BAZEL = ("bazel", "test", "//...")
MAVEN = ("mvn", "-B", "test")
CARGO = ("cargo", "test")
NEXTEST = ("cargo", "nextest", "run")


@pytest.mark.parametrize(
    ("argv", "output", "said"),
    [
        (JEST, "Test Suites: 1 passed, 1 total\nTests:       3 passed, 3 total\n", True),
        (JEST, "Tests:       1 failed, 2 skipped, 3 passed, 6 total\n", True),
        (JEST, "Tests:       1 failed, 1 total\n", True),
        (JEST, "Tests:       2 skipped, 2 total\n", False),
        (JEST, "Tests:       0 total\n", False),
        (JEST, "No tests found, exiting with code 0\n", False),
        (JEST, "", None),
        (VITEST, " Test Files  1 passed (1)\n      Tests  3 passed (3)\n", True),
        (VITEST, "      Tests  1 failed | 2 passed (3)\n", True),
        (VITEST, "      Tests  2 skipped (2)\n", False),
        (VITEST, "No test files found, exiting with code 0\n", False),
        (("node", "--test"), "# tests 3\n# pass 3\n# fail 0\n", True),
        (("node", "--test"), "ℹ tests 1\nℹ pass 1\nℹ fail 0\n", True),
        (("node", "--test"), "# tests 0\n# pass 0\n# fail 0\n", False),
        (CARGO, "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured;\n", True),
        (CARGO, "test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured;\n", False),
        (CARGO, 2 * "test result: ok. 0 passed; 0 failed;\n" + "x\n", False),
        (
            CARGO,
            "test result: ok. 4 passed; 0 failed;\n\ntest result: ok. 0 passed; 0 failed;\n",
            True,
        ),
        (CARGO, "a harness of its own says what it likes\n", None),
        (NEXTEST, "     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped\n", True),
        (NEXTEST, "     Summary [   0.012s] 0 tests run: 0 passed, 3 skipped\n", False),
        (GO, "ok  \texample.com/a\t0.012s\n", True),
        (GO, "ok  \texample.com/a\t(cached)\n?   \texample.com/b\t[no test files]\n", True),
        (GO, "--- FAIL: TestA (0.00s)\nFAIL\nFAIL\texample.com/a\t0.01s\n", True),
        (GO, "ok  \texample.com/a\t0.012s [no tests to run]\n", False),
        (GO, "ok  \texample.com/a\t0.012s\tcoverage: 0% [no tests to run]\n", False),
        (GO, "?   \texample.com/b\t[no test files]\n", False),
        (MAVEN, "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 1\n", True),
        (MAVEN, "[INFO] Tests run: 0, Failures: 0, Errors: 0, Skipped: 0\n", False),
        (MAVEN, "[INFO] No tests to run.\n", False),
        (("mvn", "-q", "test"), "", None),
        (GRADLE, "> Task :test\nBUILD SUCCESSFUL in 3s\n", None),
        (GRADLE, "CalcTest > adds() PASSED\n", True),
        (GRADLE, "> Task :test NO-SOURCE\nBUILD SUCCESSFUL in 3s\n", False),
        (DOTNET, "Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3\n", True),
        (DOTNET, "Passed!  - Failed:     0, Passed:     0, Skipped:     2, Total:     2\n", False),
        (DOTNET, "No test is available in /x/a.dll. Make sure\n", False),
        (BAZEL, "//a:b_test   (cached) PASSED in 0.3s\n", True),
        (BAZEL, "//a:b_test            PASSED in 0.3s\n", True),
        (BAZEL, "Executed 0 out of 0 tests.\n", False),
        (BAZEL, "INFO: Build completed successfully\n", None),
        (("ctest",), "100% tests passed, 0 tests failed out of 3\n", True),
        (("ctest",), "No tests were found!!!\n", False),
        (("ctest",), "***\nNo test configuration file found!\n***\nUsage\n", False),
        (("uv", "run", "pytest"), "1 passed in 0.01s\n", True),
        (("uv", "run", "pytest"), "no tests ran in 0.01s\n", False),
        (("poetry", "run", "python", "-m", "pytest"), "", False),
        (("tox", "-e", "py"), "==== 3 passed in 0.1s ====\n  py: OK (1.2 seconds)\n", True),
        (("tox", "-e", "py"), "Ran 0 tests in 0.000s\n\nOK\n  py: OK\n", False),
        (("tox", "-e", "py"), "  py: OK (1.2 seconds)\n", None),
        (("make", "test"), "100% tests passed, 0 tests failed out of 3\n", True),
        (("make", "test"), "Ran 0 tests in 0.0s\n\nOK\n3 passed in 0.1s\n", True),
        (("make", "test"), "all tests ok\n", None),
        (("npm", "test"), "Tests:       3 passed, 3 total\n", True),
        (("npm", "test"), "No tests found, exiting with code 0\n", False),
        (("npm", "test"), "  3 passing (5ms)\n", True),
        (("npm", "test"), "  0 passing (1ms)\n", False),
        (("just", "test"), "test result: ok. 3 passed; 0 failed;\n", True),
        (("./run.sh",), "no tests ran in 0.01s\n", False),
        (("./run.sh",), "fine\n", None),
    ],
)
def test_what_other_runners_say(argv: tuple[str, ...], output: str, said: bool | None) -> None:
    assert find_whether_tests_ran(argv, output.encode(), b"") is said
    if "pytest" not in argv and "unittest" not in argv:
        assert find_whether_tests_ran(argv, b"", output.encode()) is said


@pytest.mark.parametrize("argv", [(), ("make", "test"), ("python3", "tests/run.py"), ("node",)])
def test_nobody_knows(argv: tuple[str, ...]) -> None:
    assert find_whether_tests_ran(argv, b"", b"") is None


@pytest.mark.parametrize(("body", "said"), [("pass", True), ("import os; os._exit(0)", False)])
@pytest.mark.parametrize("module", ["unittest", "pytest"])
def test_what_the_runners_really_write(tmp_path: Path, module: str, body: str, said: bool) -> None:
    source = (
        f"import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        {body}\n"
    )
    (tmp_path / "test_a.py").write_text(source)
    argv = (sys.executable, "-m", module)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=True)
    assert find_whether_tests_ran(argv, done.stdout, done.stderr) is said


def outcome(*, must_pass: bool = True, code: int = 0, said: bool | None = None) -> list[str]:
    one = tests.SuiteOutcome("unit", PYTEST, must_pass, code, "exited", said)
    planned = [("unit", "pytest -q", must_pass), ("more", "true", True)]
    more = tests.SuiteOutcome("more", ("true",), True, 0, "exited")
    gate = tests.judge_tests(planned, [one, more], tested_tree="t", candidate_tree="t")
    return [each.rule for each in gate.violations]


def test_a_green_command_that_ran_nothing_is_not_green() -> None:
    assert outcome(said=False) == ["tests.nothing_ran"]
    assert outcome(said=False, code=5) == ["tests.failed"]
    assert outcome(said=True) == outcome(said=None) == outcome(said=False, must_pass=False) == []
