"""The reference pages are made from the program, and are what the program would make now."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.support.house_rules import ours
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


@pytest.mark.slow
def test_every_rule_has_a_meaning_and_a_remedy() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").partition("## Rules")[2]
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in page.splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 900
    assert [row for row in rows if len(row) != 3 or not all(row)] == []
    shown = {row[0].strip("`") for row in rows}
    named = _rules_of_errors()
    assert {"answer.encoding", "run.unknown"} <= named
    assert named - shown == set()


def _rules_of_errors() -> set[str]:
    """Return every rule that the product gives to an error by its keyword."""
    return {
        each.value.value
        for module in ours()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == "rule"
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
        and re.fullmatch(r"[a-z_.]+\.[a-z_.]+", each.value.value)
    }
