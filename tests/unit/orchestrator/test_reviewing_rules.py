"""The reviewer that is no model: every rule, and the neighbour that it lets through."""

from __future__ import annotations

import time

import pytest

from coilclaw.runs.contracts.records import Finding, Reviewer, ReviewReport, ScopeCheck
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.roles import rule_review
from coilclaw.runs.roles.rule_review import MAX_READ_BYTES, MAX_SHOWN_LINES, ChangedFile
from tests.support.children import PATIENCE_S
from tests.unit.orchestrator.planning import NOW, RUN, changed, contract, evidence

BEGIN = "-----BEGIN " + "RSA PRIVATE KEY-----"
NOTE = "TO" + "DO"
CONFLICT = "a\n" + "<" * 7 + " ours\nb\n" + "=" * 7 + "\nc\n" + ">" * 7 + " theirs\n"


def found(*changes: ChangedFile, of: TaskContract | None = None) -> list[tuple[str, str, int]]:
    """Return path, severity and line of each finding."""
    return [
        (finding.path or "", finding.severity, finding.line or 0)
        for finding in rule_review.findings(evidence(*changes, of=of))
    ]


def one(path: str, before: str | None, after: str | None) -> list[tuple[str, int]]:
    return [(severity, line) for _, severity, line in found(changed(path, before, after))]


# ---- what blocks ----------------------------------------------------------------------------

PY = "src/app/a.py"
JS = "src/app/a.js"
BLOCKED: list[tuple[str, str | None, str, int]] = [
    ("src/app/a.txt", "a\n", CONFLICT, 2),
    ("src/app/a.txt", None, CONFLICT, 2),
    ("src/app/a.txt", CONFLICT.replace("=" * 7, "-"), CONFLICT, 2),
    (PY, "a = 1\n", "a = (\n", 1),
    ("src/app/a.json", "{}\n", "{\n,}\n", 2),
    ("src/app/a.toml", "a = 1\n", "a = \n", 0),
    ("src/app/a.pem", None, f"x\n{BEGIN}\n", 2),
    ("src/app/a.pem", "x\n", "x\n-----BEGIN " + "OPENSSH PRIVATE KEY-----\n", 2),
    ("src/app/a.asc", None, "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----\n", 1),
    (PY, "a = 1\n", "a = 1\nbreakpoint()\n", 2),
    (PY, "a = 1\n", "import pdb\npdb.set_trace()\n", 2),
    (PY, "a = 1\n", "if a:\n    breakpoint(\n    )\n", 2),
    (JS, "a()\n", "a()\n  debugger;\n", 2),
    ("src/app/a.tsx", "a()\n", "debugger // now\n", 1),
]


@pytest.mark.parametrize(("path", "before", "after", "line"), BLOCKED)
def test_it_blocks(path: str, before: str | None, after: str, line: int) -> None:
    assert one(path, before, after) == [("blocking", line)]


ALLOWED: list[tuple[str, str | None, str | None]] = [
    (PY, "a = 1\n", "a = 2\n"),
    (PY, "a = 1\n", None),
    ("src/app/a.rst", "a\n", "Title\n" + "=" * 7 + "\n"),
    ("src/app/a.txt", CONFLICT, CONFLICT + "one more line\n"),
    ("src/app/a.txt", "a\n", "<" * 7 + " only the first marker\n"),
    ("src/app/a.txt", "a\n", ">" * 7 + " in\n" + "=" * 7 + "\n" + "<" * 7 + " another order\n"),
    (PY, "breakpoint()\na = 1\n", "breakpoint()\na = 2\n"),
    (PY, "a = 1\n", "# breakpoint()\na = 'breakpoint()'\n"),
    (PY, "a = 1\n", "def breakpoints() -> None: ...\n"),
    (PY, "print(1)\n", "print(1)\nprint(2)\n"),
    (JS, "a()\n", "const debuggers = 1;\n"),
    ("src/app/a.pem", f"{BEGIN}\n", f"{BEGIN}\n\n"),
    ("src/app/a.pem", "", "-----BEGIN PUBLIC KEY-----\n"),
    ("src/app/noending", "a", "b"),
    (JS, "console.log(1)\n", ""),
]


@pytest.mark.parametrize(("path", "before", "after"), ALLOWED)
def test_its_neighbour_is_no_finding(path: str, before: str | None, after: str | None) -> None:
    assert one(path, before, after) == []


MENTIONED: list[tuple[str, str | None, str, int]] = [
    (PY, "a = (\n", "a = ((\n", 1),
    (PY, None, "a = (\n", 1),
    ("src/app/new.json", None, "{", 1),
    (PY, "a = 1\n", f"a = 1  # {NOTE}: more\n", 1),
    (PY, "a = 1\n", "a = 1\nprint(a)\n", 2),
    (JS, "a()\n", "console.log(a)\n", 1),
    ("src/app/a.rs", "", "dbg!(x);\n", 1),
    ("src/app/a.txt", "a\n", "b", 0),
    ("src/app/a.bin", None, "a\0b", 0),
    ("src/app/a.txt", None, "x" * (MAX_READ_BYTES + 1), 0),
]


@pytest.mark.parametrize(("path", "before", "after", "line"), MENTIONED)
def test_it_is_mentioned(path: str, before: str | None, after: str, line: int) -> None:
    mentioned = one(path, before, after)
    assert ("non_blocking", line) in mentioned
    assert "blocking" not in {severity for severity, _ in mentioned}


def test_files_outside_of_scope_block_and_names_are_compared_by_segments() -> None:
    inside = changed("tests/test_app.py", "a = 1\n", "a = 2\n")
    for path in ("src/application/a.py", "src/app.py", "tests/test_app.pyc", ".env", "src"):
        outside = changed(path, None, "a = 1\n")
        report = rule_review.review(evidence(inside, outside))
        assert report.scope_check == ScopeCheck(passed=False, violations=(path,))
        assert report.verdict == "FAIL"
    assert rule_review.review(evidence(inside)).scope_check == ScopeCheck(
        passed=True, violations=()
    )


def test_nothing_changed_though_something_must() -> None:
    empty = evidence()
    object.__setattr__(empty, "changes", ())
    assert rule_review.review(empty).verdict == "FAIL"
    audit = evidence(of=contract(audit_only=True))
    object.__setattr__(audit, "changes", ())
    assert rule_review.review(audit).verdict == "PASS"
    report = [{"name": "r", "type": "report", "acceptance": "is there"}]
    only_report = evidence(of=contract(required_outputs=report))  # type: ignore[arg-type]
    object.__setattr__(only_report, "changes", ())
    assert rule_review.review(only_report).verdict == "PASS"


def test_something_changed_though_nothing_may() -> None:
    assert rule_review.review(evidence(of=contract(audit_only=True))).verdict == "FAIL"
    read_only = contract(
        tool_permissions={"filesystem": "read-only", "network": "deny", "mcp_tools": []}
    )
    assert rule_review.review(evidence(of=read_only)).verdict == "FAIL"


def test_weakened_tests_block_unless_the_contract_allows_them() -> None:
    weak = (Violation("tests.skipped", "a test is skipped", "tests/test_app.py"),)
    report = rule_review.review(evidence(weakened=weak))
    assert report.findings == (
        Finding(
            severity="blocking",
            message="tests.skipped: a test is skipped",
            path="tests/test_app.py",
        ),
    )
    allowed = evidence(of=contract(test_policy="allow"), weakened=weak)
    assert rule_review.review(allowed).verdict == "PASS"


def test_a_gate_that_did_not_pass_blocks() -> None:
    failed = GateResult("diff_gate", (Violation("diff.x", "no"),))
    assert rule_review.review(evidence(gates=(failed,))).verdict == "FAIL"
    assert rule_review.review(evidence(gates=(GateResult("diff_gate"),))).verdict == "PASS"


# ---- the report -----------------------------------------------------------------------------


def test_the_report_is_honest_about_who_made_it() -> None:
    report = rule_review.review(evidence())
    assert report == ReviewReport(
        run_id=RUN,
        task_id="task-0001",
        attempt=0,
        reviewer=Reviewer(role="REVIEWER", agent_id="rules"),
        reviewed_at=NOW,
        verdict="PASS",
        summary=(
            "Checked by rules; no model and no person read this change. 1 changed files, "
            "0 blocking findings, 0 others."
        ),
        scope_check=ScopeCheck(passed=True, violations=()),
        evidence=(),
        produced_diff=False,
        findings=(),
    )
    assert ReviewReport.of(report.json()) == report


def test_findings_are_bounded_and_blocking_ones_come_first() -> None:
    many = [changed(f"src/app/{n}.txt", None, f"{NOTE}\n" * 50) for n in range(100)]
    blocking = changed("src/app/z.txt", None, CONFLICT)
    report = rule_review.review(evidence(*many, blocking))
    assert len(report.findings) == rule_review.MAX_FINDINGS
    assert report.findings[0].path == "src/app/z.txt"
    assert report.findings[-1].message == "403 more findings are not listed"
    per_file = [finding for finding in report.findings if finding.path == "src/app/0.txt"]
    assert len(per_file) == MAX_SHOWN_LINES + 1


def test_a_large_change_is_mentioned() -> None:
    lines = "".join(f"{n}\n" for n in range(rule_review.LARGE_CHANGE_LINES + 1))
    (finding,) = rule_review.findings(evidence(changed("src/app/a.txt", None, lines)))
    assert (finding.severity, finding.path) == ("non_blocking", None)


def test_a_name_that_is_no_unicode_is_reported_all_the_same() -> None:
    odd = ChangedFile("src/other/\udcff.txt", None, b"a\n")
    report = rule_review.review(evidence(odd))
    assert report.scope_check.violations == ("src/other/\\udcff.txt",)
    assert ReviewReport.of(report.json()) == report


@pytest.mark.parametrize(
    "after",
    [
        "<" * 7 + " a\n" + ("<" * 7 + " a\n") * 100_000,
        "(" * 900_000,
        "-" * 500_000 + "1",
        "a." * 300_000 + "b",
        f"{BEGIN[:-1]} " * 20_000,
    ],
)
@pytest.mark.parametrize("path", [PY, "src/app/a.json", "src/app/a.toml", JS])
def test_hostile_files_cost_little(path: str, after: str) -> None:
    started = time.monotonic()
    rule_review.findings(evidence(changed(path, "a = 1\n", after)))
    assert time.monotonic() - started < PATIENCE_S
