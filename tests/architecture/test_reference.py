"""The reference pages are made from the program, and are what the program would make now."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.repository import ROOT


@pytest.mark.slow
def test_the_reference_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
