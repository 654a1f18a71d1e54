"""Whether a test ran, by what real runners write; and what the gate says when none did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coilclaw.gates import tests
from coilclaw.gates.testoutput import ran

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
    assert ran(argv, stdout, stderr) is False


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
    assert ran(argv, stdout, stderr) is True


@pytest.mark.parametrize("argv", [(), ("make", "test"), ("python3", "tests/run.py"), ("node",)])
def test_nobody_knows(argv: tuple[str, ...]) -> None:
    assert ran(argv, b"", b"") is None


@pytest.mark.parametrize(("body", "said"), [("pass", True), ("import os; os._exit(0)", False)])
@pytest.mark.parametrize("module", ["unittest", "pytest"])
def test_what_the_runners_really_write(tmp_path: Path, module: str, body: str, said: bool) -> None:
    source = (
        f"import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        {body}\n"
    )
    (tmp_path / "test_a.py").write_text(source)
    argv = (sys.executable, "-m", module)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=True)
    assert ran(argv, done.stdout, done.stderr) is said


def outcome(*, must_pass: bool = True, code: int = 0, said: bool | None = None) -> list[str]:
    one = tests.Outcome("unit", PYTEST, must_pass, code, "exited", said)
    planned = [("unit", "pytest -q", must_pass), ("more", "true", True)]
    more = tests.Outcome("more", ("true",), True, 0, "exited")
    gate = tests.judge(planned, [one, more], tested_tree="t", candidate_tree="t")
    return [each.rule for each in gate.violations]


def test_a_green_command_that_ran_nothing_is_not_green() -> None:
    assert outcome(said=False) == ["tests.nothing_ran"]
    assert outcome(said=False, code=5) == ["tests.failed"]
    assert outcome(said=True) == outcome(said=None) == outcome(said=False, must_pass=False) == []
