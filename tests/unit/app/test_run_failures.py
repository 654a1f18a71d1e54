"""The end of an output is bounded and harmless, and a patch is counted by its lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.runs.evidence.patch_names import line_counts
from coilclaw.runs.run_failures import (
    MAX_LINE_CHARS,
    clean_line,
    read_failed_commands,
    read_refusals,
    tail_lines,
)


def test_the_last_lines_are_kept() -> None:
    data = "".join(f"{number}\n" for number in range(100)).encode()
    assert tail_lines(data) == tuple(str(number) for number in range(80, 100))
    assert tail_lines(b"one\n\n\n") == ("one",)
    assert tail_lines(b"") == tail_lines(b"\n \n") == ()
    assert tail_lines(b"\xff\n") == ("\ufffd",)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after\x1b(B", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("1%\r50%\r100%\r", "100%"),
        ("x" * 10_000, "x" * MAX_LINE_CHARS + "…"),
    ],
)
def test_a_line_is_what_a_terminal_would_show(line: str, shown: str) -> None:
    assert clean_line(line) == shown


def test_a_gate_that_passed_refuses_nothing_and_old_events_have_no_paths() -> None:
    payload = {"gate": "diff_gate", "passed": False, "violations": ["a.b: no", "odd"], "facts": ""}
    event = {"event_type": "DIFF_GATE_RESULT", "task_id": "t", "attempt": 2, "payload": payload}
    one, two = read_refusals(event)
    assert (one.rule, one.reason, one.path, one.task_id, one.attempt) == ("a.b", "no", "", "t", 2)
    assert (two.rule, two.reason) == ("", "odd")
    payload["paths"] = ["p", "q"]
    assert [each.path for each in read_refusals(event)] == ["p", "q"]
    payload["passed"] = True
    assert read_refusals(event) == []


@pytest.mark.parametrize("path", ["ci/none.json", "ci/../../etc/passwd", "/etc/passwd", ""])
def test_a_report_that_cannot_be_read_shows_nothing(tmp_path: Path, path: str) -> None:
    payload = {"path": path, "status": "FAIL", "where": "candidate"}
    event = {"event_type": "TEST_RESULT", "task_id": None, "payload": payload}
    assert read_failed_commands(tmp_path, event) == []


def test_the_lines_of_a_patch_are_counted_and_its_content_is_not_read_as_one() -> None:
    patch = (
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-diff --git a/y b/y\n"
        b"+@@ -1 +1 @@\n c\n@@ -9 +9,2 @@\n-q\n+r\n+s\n"
        b"diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n"
        b'diff --git "a/\\303\\251" "b/\\303\\251"\nnew file mode 100644\n--- /dev/null\n'
        b'+++ "b/\\303\\251"\n@@ -0,0 +1 @@\n+z\n\\ No newline at end of file\n'
    )
    assert line_counts(patch) == ((b"x", 3, 2), (b"new", 0, 0), ("é".encode(), 1, 0))
    assert line_counts(b"") == ()
