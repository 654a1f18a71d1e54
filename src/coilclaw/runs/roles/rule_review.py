"""The reviewer without a model: it looks for what rules can find, and says so.

Its findings are part of every review: a model can add to them, and takes none away.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import valid_text
from coilclaw.runs.contracts.records import Finding, Reviewer, ReviewReport, ScopeCheck
from coilclaw.runs.gates.scope import ScopePlaces
from coilclaw.runs.gates.test_files import is_test, is_test_configuration
from coilclaw.runs.roles.test_evasion import evasions, parse_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.runs.contracts.records import ArtifactRef, Severity, Verdict
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.gates.result import GateResult, Violation


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of a change; ``None`` where nothing has contents."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def name(self) -> str:
        """The path as valid Unicode."""
        return valid_text(self.path)

    def added_lines(self) -> Iterator[tuple[int, str]]:
        """Return the lines that the change adds, with their numbers in the new file.

        A line that only moved is not added: each line before stands for one equal line after.
        """
        known = Counter((self.before or b"").splitlines())
        for number, line in enumerate((self.after or b"").splitlines(), start=1):
            if known[line] > 0:
                known[line] -= 1
            else:
                yield number, line.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ReviewEvidence:
    """What is reviewed, and what is already known about it."""

    run_id: str
    task_id: str
    attempt: int
    contract: TaskContract
    changes: tuple[ChangedFile, ...]
    patch: str
    """The same change as a unified diff, whole."""
    reviewed_at: str
    """RFC 3339."""
    workers: frozenset[str]
    """The ids of all agents whose work it is: none of them may be the reviewer."""
    weakened: tuple[Violation, ...] = ()
    """What the change does to tests."""
    gates: tuple[GateResult, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    """The files of the bundle that the review refers to."""


MAX_READ_BYTES: Final = 2**20
"""A larger file is not looked into, and a finding says so."""
MAX_TOML_BYTES: Final = 256 * 2**10
MAX_TOML_LINE: Final = 2_000
"""The time that the standard library takes to read a key grows with the square of its length."""
MAX_SHOWN_LINES: Final = 5
"""Of one rule in one file."""

_MARKERS: Final = (b"<<<<<<< ", b"=======", b">>>>>>> ")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_DEBUGGER: Final = re.compile(r"^\s*debugger\s*;?\s*(?://.*)?$")
_PRINTED: Final = re.compile(r"^\s*(?:console\.(?:log|debug)\(|dbg!\(|var_dump\()")
_UNFINISHED: Final = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME)\b")
_SCRIPTS: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
_DEBUG_CALLS: Final = frozenset(
    {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem"}
)


def find_in_file(change: ChangedFile) -> Iterator[Finding]:
    """Return everything that the rules have against one file."""
    after = change.after
    if after is None:
        return
    if len(after) > MAX_READ_BYTES or len(change.before or b"") > MAX_READ_BYTES:
        large = f"larger than {MAX_READ_BYTES:,} bytes, and not looked into"
        yield _make_finding("non_blocking", large, change)
        return
    if b"\0" in after:
        yield _make_finding("non_blocking", "no text, and not looked into", change)
        return
    added = list(change.added_lines())
    yield from _find_conflict_markers(change, added)
    yield from _find_lines(change, added, _PRIVATE_KEY, "blocking", "a private key is added")
    yield from _find_unparsable(change)
    yield from _find_debugging(change, added)
    yield from _find_lines(change, added, _UNFINISHED, "non_blocking", "a note of unfinished work")
    if after and not after.endswith(b"\n") and (change.before or b"\n").endswith(b"\n"):
        yield _make_finding("non_blocking", "the last line has no end", change)


def _find_conflict_markers(change: ChangedFile, added: list[tuple[int, str]]) -> Iterator[Finding]:
    """A conflict is all three markers in order, of which the change adds at least one."""
    new = {number for number, _ in added}
    seen: list[int] = []
    for number, line in enumerate((change.after or b"").splitlines(), start=1):
        if line.startswith(_MARKERS[0]):
            seen = [number]
        elif seen and (line == _MARKERS[1] if len(seen) == 1 else line.startswith(_MARKERS[2])):
            seen.append(number)
        if len(seen) < len(_MARKERS):
            continue
        if new.intersection(seen):
            yield _make_finding("blocking", "markers of a merge conflict are left", change, seen[0])
            return
        seen = []


def _find_lines(
    change: ChangedFile,
    added: list[tuple[int, str]],
    pattern: re.Pattern[str],
    severity: Severity,
    message: str,
) -> Iterator[Finding]:
    found = [number for number, line in added if pattern.search(line)]
    for number in found[:MAX_SHOWN_LINES]:
        yield _make_finding(severity, message, change, number)
    if len(found) > MAX_SHOWN_LINES:
        left = len(found) - MAX_SHOWN_LINES
        yield _make_finding(severity, f"{message} ({left} more times)", change)


def _find_debugging(change: ChangedFile, added: list[tuple[int, str]]) -> Iterator[Finding]:
    if change.path.endswith(_SCRIPTS):
        yield from _find_lines(change, added, _DEBUGGER, "blocking", "a debugger statement is left")
    if not change.path.endswith(".py"):
        yield from _find_lines(change, added, _PRINTED, "non_blocking", "output for debugging")
        return
    new = {number for number, _ in added}
    before, after = parse_python(change.before), parse_python(change.after)
    calls = [call for call in _find_calls(after) if call[0] in new]
    for number, name in calls:
        if name in _DEBUG_CALLS:
            yield _make_finding("blocking", f"a call of {name} is left", change, number)
    printed = [number for number, name in calls if name == "print"]
    # In a file that prints anyway, one more is no trace of debugging.
    if printed and not any(name == "print" for _, name in _find_calls(before)):
        yield _make_finding("non_blocking", "output with print is new here", change, printed[0])
    # Code that could end the tests before they fail, or be another when it is tested.
    if is_test(change.path) or is_test_configuration(change.path):
        return
    is_program = change.path.rpartition("/")[2] == "__main__.py"
    known = [each.message for each in evasions(before, is_program=is_program)]
    for each in sorted(evasions(after, is_program=is_program)):
        # A line that only moved counts where the same was not there before.
        if each.message in known and new.isdisjoint(range(each.line, each.end + 1)):
            known.remove(each.message)
        else:
            yield _make_finding("blocking", each.message, change, each.line)


def _find_calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            held = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            yield node.lineno, ast.unparse(node.func) if isinstance(held, ast.Name) else ""


def _find_unparsable(change: ChangedFile) -> Iterator[Finding]:
    kind = change.path.rpartition("/")[2].rpartition(".")[2]
    flaw = None if change.after is None else _find_flaw(change.after, kind)
    if flaw is None:
        return
    # What was broken before, or is new, may be so on purpose.
    sound = change.before is not None and _find_flaw(change.before, kind) is None
    message, line = flaw
    yield _make_finding(
        "blocking" if sound else "non_blocking",
        f"it does not parse{' any more' if sound else ''}: {message[:200]}",
        change,
        line,
    )


def _find_flaw(source: bytes, kind: str) -> tuple[str, int] | None:
    """Return why a file does not parse, and the line; 0 where it is not known."""
    longest = max(map(len, source.splitlines()), default=0)
    try:
        if kind in {"py", "pyi"}:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(source)
        elif kind == "json":
            json.loads(source)
        elif kind == "toml" and len(source) <= MAX_TOML_BYTES and longest <= MAX_TOML_LINE:
            tomllib.loads(source.decode("utf-8"))
    except SyntaxError as problem:
        return problem.msg, problem.lineno or 0
    except json.JSONDecodeError as problem:
        return problem.msg, problem.lineno
    except (ValueError, RecursionError, MemoryError) as problem:
        return str(problem) or "it is nested too deeply", 0
    return None


def _make_finding(severity: Severity, message: str, change: ChangedFile, line: int = 0) -> Finding:
    return Finding(severity=severity, message=message, path=change.name, line=line or None)


AGENT_ID: Final = "rules"
MAX_FINDINGS: Final = 200
LARGE_CHANGE_LINES: Final = 2_000
_OF_A_CHANGE: Final = frozenset({"patch", "commit"})


def review(evidence: ReviewEvidence) -> ReviewReport:
    """Judge a change by rules alone."""
    found = findings(evidence)
    scope = scope_check(evidence)
    blocking = sum(finding.severity == "blocking" for finding in found)
    summary = (
        "Checked by rules; no model and no person read this change. "
        f"{len(evidence.changes)} changed files, {blocking} blocking findings, "
        f"{len(found) - blocking} others."
    )
    verdict: Verdict = "FAIL" if blocking or not scope.passed else "PASS"
    rules = Reviewer(role="REVIEWER", agent_id=AGENT_ID)
    return make_report(evidence, rules, verdict, summary, found)


def make_report(
    evidence: ReviewEvidence,
    reviewer: Reviewer,
    verdict: Verdict,
    summary: str,
    found: tuple[Finding, ...],
) -> ReviewReport:
    """Make the report of a review, with the scope as rules see it."""
    return ReviewReport(
        run_id=evidence.run_id,
        task_id=evidence.task_id,
        attempt=evidence.attempt,
        reviewer=reviewer,
        reviewed_at=evidence.reviewed_at,
        verdict=verdict,
        summary=summary,
        scope_check=scope_check(evidence),
        evidence=evidence.artifacts,
        produced_diff=False,
        findings=found,
    )


def findings(evidence: ReviewEvidence) -> tuple[Finding, ...]:
    """Return what the rules find, blocking ones first, up to ``MAX_FINDINGS``."""
    found = sorted(_find_all(evidence), key=lambda finding: finding.severity != "blocking")
    if len(found) <= MAX_FINDINGS:
        return tuple(found)
    left = len(found) - MAX_FINDINGS + 1
    severity = found[MAX_FINDINGS - 1].severity
    more = Finding(severity=severity, message=f"{left} more findings are not listed")
    return (*found[: MAX_FINDINGS - 1], more)


def scope_check(evidence: ReviewEvidence) -> ScopeCheck:
    """Tell whether all changed files are allowed ones."""
    outside = _list_outside(evidence)
    return ScopeCheck(passed=not outside, violations=tuple(outside[:MAX_FINDINGS]))


def _find_all(evidence: ReviewEvidence) -> Iterator[Finding]:
    contract, changes = evidence.contract, evidence.changes
    wanted = {output.type for output in contract.required_outputs} & _OF_A_CHANGE
    audit = contract.audit_only or contract.tool_permissions.filesystem == "read-only"
    if not changes and wanted and not audit:
        yield Finding(severity="blocking", message="nothing changed, though a change is required")
    if changes and audit:
        yield Finding(severity="blocking", message="something changed, though nothing may")
    for gate in evidence.gates:
        if not gate.passed:
            yield Finding(severity="blocking", message=f"{gate.gate} did not pass")
    lines = sum(sum(1 for _ in change.added_lines()) for change in changes)
    if lines > LARGE_CHANGE_LINES:
        yield Finding(severity="non_blocking", message=f"a large change: {lines:,} lines are new")
    for path in _list_outside(evidence):
        yield Finding(severity="blocking", message="it is outside of allowed_paths", path=path)
    for weak in () if contract.may_change_tests else evidence.weakened:
        yield Finding(severity="blocking", message=str(weak)[:1000], path=weak.path or None)
    for change in changes:
        yield from find_in_file(change)


def _list_outside(evidence: ReviewEvidence) -> list[str]:
    allowed = ScopePlaces.of(evidence.contract.allowed_paths)
    return [change.name for change in evidence.changes if not allowed.cover(change.path)]
