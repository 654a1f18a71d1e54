"""The gates that judge plain facts: locks, network, MCP, answers, reviews, tests, merges…"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from coilclaw.kernel.schemas import SchemaProblem, find_schema_problems
from coilclaw.kernel.tree_files import ChangeKind, TreeChange, TreeDiff
from coilclaw.runs.contracts.records import ApprovalRecord
from coilclaw.runs.gates import contract_gates, decision_gates, tests
from coilclaw.runs.gates.result import GateResult, Violation


def rules(result: GateResult) -> list[str]:
    return [violation.rule for violation in result.violations]


# Locks


def claims(*paths: str, lock: tuple[str, ...] = ()) -> list[decision_gates.LockClaim]:
    return [decision_gates.LockClaim(f"task-{at}", (path,), lock) for at, path in enumerate(paths)]


@pytest.mark.parametrize(
    ("one", "other"), [("src", "src/a"), ("src/a", "src"), ("src", "src"), ("Src/a", "src/A/b")]
)
def test_siblings_may_not_overlap(one: str, other: str) -> None:
    assert rules(decision_gates.judge_locks(claims(one, other), held={})) == ["lock.siblings"]
    assert rules(decision_gates.judge_locks(claims(one), held={other: "run-2 holds"})) == [
        "lock.held"
    ]


def test_siblings_beside_each_other_are_fine() -> None:
    result = decision_gates.judge_locks(claims("src/a", "src/ab", "docs/"), held={"lib": "run-2"})
    assert result == GateResult(
        "lock_gate", (), {"paths": ["docs/", "src/a", "src/ab"], "tasks": 3}
    )


def test_a_lock_counts_when_both_declare_it() -> None:
    both = [
        decision_gates.LockClaim("one", ("src",), ("src/shared",)),
        decision_gates.LockClaim("two", ("src/shared",)),
    ]
    assert rules(decision_gates.judge_locks(both, held={})) == ["lock.siblings"]
    both[1] = replace(both[1], locks=("src/shared",))
    assert rules(decision_gates.judge_locks(both, held={})) == []
    # What is shared has to be what overlaps.
    both[1] = replace(both[1], allowed_paths=("src/shared", "src/other"))
    assert rules(decision_gates.judge_locks(both, held={})) == ["lock.siblings"]
    assert rules(
        decision_gates.judge_locks([decision_gates.LockClaim("x", ("a",), ("b",))], held={})
    ) == ["lock.undeclared"]


# Network, MCP, integrated tools, sampling


@pytest.mark.parametrize(
    ("word", "needed", "approved", "found"),
    [
        ("deny", (), False, []),
        ("deny", ("search",), True, ["network.denied"]),
        ("on-request", (), False, []),
        ("on-request", ("search",), False, ["network.approval"]),
        ("on-request", ("search",), True, []),
        ("allow", ("search",), False, []),
        ("maybe", (), True, ["network.policy"]),
        ("", (), True, ["network.policy"]),
    ],
)
def test_the_network(word: str, needed: Sequence[str], approved: bool, found: list[str]) -> None:
    assert rules(contract_gates.judge_network(word, needed_by=needed, approved=approved)) == found


def test_defect_12_a_missing_or_malformed_mcp_list_allows_nothing() -> None:
    for allow, deny in ((None, ()), ((), None), (None, None)):
        result = contract_gates.judge_mcp_tools(["a"], servers=["a"], allow=allow, deny=deny)
        assert rules(result) == ["mcp.allowlist", "mcp.unknown"]
    for names in ("a", [""], ["a", 1], ["*"]):
        result = contract_gates.judge_mcp_tools(
            ["a"], servers=["a"], allow=cast("Any", names), deny=()
        )
        assert "mcp.allowlist" in rules(result)


def test_mcp_tools_have_to_be_known_bound_and_not_denied() -> None:
    assert contract_gates.judge_mcp_tools(
        ["a"], servers=["a", "b"], allow=["a", "b"], deny=[]
    ).passed
    assert rules(contract_gates.judge_mcp_tools(["a"], servers=["a"], allow=["b"], deny=[])) == [
        "mcp.unknown"
    ]
    assert rules(contract_gates.judge_mcp_tools(["a"], servers=["a"], allow=["a"], deny=["a"])) == [
        "mcp.denied"
    ]
    assert rules(
        contract_gates.judge_mcp_tools(["a"], servers=["b"], allow=["a", "b"], deny=[])
    ) == ["mcp.unbound"]
    assert rules(contract_gates.judge_mcp_tools(["A"], servers=["A"], allow=["a"], deny=[])) == [
        "mcp.unknown"
    ]


def test_every_tool_that_is_needed_has_to_be_integrated() -> None:
    assert contract_gates.judge_integrated(["codex"], integrated=["codex", "x"]).passed
    assert rules(contract_gates.judge_integrated(["codex", "y"], integrated=["codex"])) == [
        "integrated.missing"
    ]
    assert rules(contract_gates.judge_integrated([], integrated=None)) == ["integrated.registry"]
    assert rules(contract_gates.judge_integrated([], integrated=cast("Any", "codex"))) == [
        "integrated.registry"
    ]


@pytest.mark.parametrize("name", ["sampling", "mcp.sampling", "Sampling"])
def test_sampling_needs_an_approval(name: str) -> None:
    assert rules(contract_gates.judge_sampling(["a", name], approved=False)) == [
        "sampling.approval"
    ]
    assert contract_gates.judge_sampling(["a", name], approved=True).passed
    assert contract_gates.judge_sampling(["resampling"], approved=False).passed


# Schemas and answers


def test_problems_of_a_contract_are_violations() -> None:
    wrong = contract_gates.judge_schema(
        "task_contract.v1",
        schema_problems=[SchemaProblem("/task_id", "is missing")],
        rule_problems=[SchemaProblem("/allowed_paths/0", "is absolute")],
        drift="mismatch",
    )
    assert wrong == GateResult(
        "schema_gate",
        (
            Violation("schema.invalid", "/task_id: is missing", "/task_id"),
            Violation("contract.rule", "/allowed_paths/0: is absolute", "/allowed_paths/0"),
            Violation("schema.drift", "the schemas do not match their hashes: mismatch"),
        ),
        {"schema": "task_contract.v1"},
    )
    assert contract_gates.judge_schema("task_contract.v1", schema_problems=[]).passed


ANSWER: dict[str, Any] = {
    "task_id": "task-0001",
    "status": "SUCCESS",
    "summary": "done",
    "evidence_refs": {},
    "failure": None,
}


def answered(text: str, task_id: str = "task-0001") -> list[str]:
    name = "agent_task_result.v1"
    return rules(
        contract_gates.judge_text(
            text,
            schema=name,
            check=lambda v: [str(p) for p in find_schema_problems(name, v)],
            task_id=task_id,
        )
    )


def test_defect_12_an_answer_has_to_be_there_and_bound() -> None:
    judge = contract_gates.judge_output
    assert rules(judge(None, schema="x", problems=(), task_id="t")) == ["output.missing"]
    assert rules(judge({}, schema="", problems=(), task_id="t")) == ["output.binding"]
    assert rules(judge({}, schema="x", problems=["a", "b"], task_id="t")) == ["output.schema"] * 2
    assert rules(judge({"task_id": "u"}, schema="x", problems=(), task_id="t")) == ["output.task"]
    assert judge({"task_id": "t"}, schema="x", problems=(), task_id="t").passed
    assert judge({}, schema="x", problems=(), task_id="t").passed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done",
        "[1]",
        "null",
        '{"a": 1} and some words',
        'Here it is: {"a": 1}',
        '```json\n{"a": 1}\n```',
        '{"a": 1}{"a": 1}',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        "\ud800",
        '{"a":' + "[" * 200 + "]" * 200 + "}",
    ],
)
def test_text_that_is_not_one_json_object_is_refused(text: str) -> None:
    assert answered(text) == ["output.not_json"]


def test_an_answer_of_the_schema_passes_and_others_do_not() -> None:
    import json

    assert answered(json.dumps(ANSWER)) == []
    assert answered(json.dumps(ANSWER), "another-task") == ["output.task"]
    assert answered(json.dumps({**ANSWER, "status": "FINE"})) == ["output.schema"]
    assert answered(json.dumps({**ANSWER, "more": 1})) == ["output.schema"]


# Reviews

REPORT: dict[str, Any] = {
    "run_id": "run-1",
    "task_id": "task-1",
    "reviewer": {"role": "REVIEWER", "agent_id": "reviewer-1"},
    "verdict": "PASS",
    "summary": "fine",
    "scope_check": {"passed": True, "violations": []},
    "findings": [{"severity": "non_blocking", "message": "a name"}],
    "produced_diff": False,
}
NOTE = {"severity": "blocking", "message": "it is wrong", "path": "src/a.py"}


def reviewed(
    report: dict[str, Any] | None, after: str = "s1", diff: TreeDiff | None = None
) -> list[str]:
    return rules(
        decision_gates.judge_review(
            report,
            run_id="run-1",
            task_id="task-1",
            workers={"worker-1"},
            before="s1",
            after=after,
            diff=TreeDiff(()) if diff is None else diff,
        )
    )


def test_a_review_that_passes() -> None:
    assert reviewed(REPORT) == []
    assert reviewed({**REPORT, "findings": []}) == []


def test_defect_13_no_report_is_no_pass() -> None:
    assert reviewed(None) == ["review.missing"]


def test_defect_13_nobody_reviews_their_own_work() -> None:
    own = {"role": "REVIEWER", "agent_id": "worker-1"}
    assert reviewed({**REPORT, "reviewer": own}) == ["review.self"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"run_id": "run-2"}, ["review.run"]),
        ({"task_id": "task-2"}, ["review.task"]),
        ({"task_id": None}, ["review.task"]),
        ({"reviewer": {"role": "WORKER", "agent_id": "x"}}, ["review.role"]),
        ({"reviewer": "x"}, ["review.role"]),
        ({"produced_diff": True}, ["review.produced_diff"]),
        ({"produced_diff": None}, ["review.produced_diff"]),
        ({"verdict": "FAIL"}, ["review.verdict"]),
        ({"verdict": "BLOCKED"}, ["review.verdict"]),
        ({"verdict": "pass"}, ["review.verdict"]),
        ({"findings": [NOTE]}, ["review.blocking", "review.inconsistent"]),
        ({"findings": [NOTE], "verdict": "FAIL"}, ["review.blocking", "review.verdict"]),
        ({"findings": [{"message": "x"}]}, ["review.blocking", "review.inconsistent"]),
        ({"findings": None}, ["review.blocking", "review.inconsistent"]),
        (
            {"scope_check": {"passed": False, "violations": []}},
            ["review.scope", "review.inconsistent"],
        ),
        (
            {"scope_check": {"passed": True, "violations": ["x"]}},
            ["review.scope", "review.inconsistent"],
        ),
        ({"scope_check": None}, ["review.scope", "review.inconsistent"]),
    ],
)
def test_a_review_that_does_not(change: dict[str, Any], found: list[str]) -> None:
    assert reviewed({**REPORT, **change}) == found


def test_a_reviewer_changes_nothing() -> None:
    assert reviewed(REPORT, after="s2") == ["review.isolation"]
    change = TreeChange(ChangeKind.ADDED, "x")
    assert reviewed(REPORT, diff=TreeDiff((change,))) == ["review.isolation"]
    assert reviewed(REPORT, diff=TreeDiff((), ("hooks",))) == ["review.isolation"]


# Tests

PLANNED = [("unit", "pytest -q", True), ("lint", "ruff check 'a b'", False)]
RAN = [
    tests.SuiteOutcome("unit", ("pytest", "-q"), True, 0, "exited"),
    tests.SuiteOutcome("lint", ("ruff", "check", "a b"), False, 1, "exited"),
]


def outcome_of(
    planned: Sequence[tuple[str, str, bool]] = PLANNED,
    ran: Sequence[tests.SuiteOutcome] = RAN,
    tree: str = "t1",
    weakened: Sequence[Violation] = (),
) -> list[str]:
    return rules(
        tests.judge_tests(planned, ran, tested_tree="t1", candidate_tree=tree, weakened=weakened)
    )


def test_exactly_the_acceptance_tests_ran_and_are_green() -> None:
    assert outcome_of() == []


@pytest.mark.parametrize(
    ("ran", "found"),
    [
        (RAN[:1], ["tests.missing"]),
        ([], ["tests.missing", "tests.missing"]),
        ([*RAN, replace(RAN[0], name="more")], ["tests.extra"]),
        ([*RAN, RAN[0]], ["tests.extra"]),
        (RAN[::-1], ["tests.order"]),
        ([replace(RAN[0], argv=("true",)), RAN[1]], ["tests.command"]),
        ([replace(RAN[0], argv=("pytest", "-q", "x")), RAN[1]], ["tests.command"]),
        ([replace(RAN[0], must_pass=False), RAN[1]], ["tests.must_pass"]),
        ([replace(RAN[0], exit_code=1), RAN[1]], ["tests.failed"]),
        ([replace(RAN[0], outcome="timed_out"), RAN[1]], ["tests.timeout"]),
        ([RAN[0], replace(RAN[1], outcome="timed_out")], ["tests.timeout"]),
        ([RAN[0], replace(RAN[1], outcome="signalled")], ["tests.ended"]),
        ([RAN[0], replace(RAN[1], outcome="cancelled")], ["tests.ended"]),
        ([replace(RAN[0], exit_code=None), RAN[1]], ["tests.ended"]),
    ],
)
def test_anything_else_fails(ran: list[tests.SuiteOutcome], found: list[str]) -> None:
    assert outcome_of(ran=ran) == found


def test_at_least_one_test_has_to_pass() -> None:
    assert outcome_of([], []) == ["tests.none"]
    assert outcome_of(PLANNED[1:], RAN[1:]) == ["tests.no_must_pass"]


def test_defect_9_the_tree_that_was_tested_is_the_one_that_goes_on() -> None:
    assert outcome_of(tree="t2") == ["tests.tree"]
    result = tests.judge_tests(PLANNED, RAN, tested_tree="", candidate_tree="")
    assert rules(result) == ["tests.tree"]


def test_a_command_that_no_shell_would_read_the_same_never_counts_as_run() -> None:
    planned = [("unit", "pytest -q; true", True)]
    ran = [replace(RAN[0], argv=("pytest", "-q;", "true"))]
    assert outcome_of(planned, ran) == ["tests.command"]


def test_weakened_tests_fail_the_gate() -> None:
    loss = Violation("tests.deleted", "x", "tests/test_a.py")
    assert outcome_of(weakened=(loss,)) == ["tests.deleted"]


# Merge


def test_a_merge_brings_in_the_accepted_work_only() -> None:
    result = decision_gates.judge_merge(
        names={"src/a", "lib/b"}, allowed_paths=("src",), tests_passed=True, conflicts=()
    )
    assert rules(result) == ["merge.out_of_scope"]
    fine = decision_gates.judge_merge(
        names={"src/a"}, allowed_paths=("src",), tests_passed=True, conflicts=()
    )
    assert fine == GateResult(
        "merge_gate", (), {"names": 1, "paths": ["src/a"], "tests_passed": True}
    )


def test_a_merge_that_conflicts_is_red_or_touches_what_is_protected() -> None:
    result = decision_gates.judge_merge(
        names={"src/.env"}, allowed_paths=("src",), tests_passed=False, conflicts=("src/a",)
    )
    assert rules(result) == ["merge.conflict", "merge.protected", "merge.tests"]
    assert rules(decision_gates.refuse_merge("merge.dirty", "the branch moved")) == ["merge.dirty"]


# Approvals

DIGEST, POLICY = "a" * 64, "b" * 64
NEED = decision_gates.Need("override", DIGEST, "src is broad", "task-1")
YES = ApprovalRecord(
    approval_id="ap-1",
    run_id="run-1",
    task_id="task-1",
    kind="override",
    title="broad path",
    detail=("src",),
    digest=DIGEST,
    policy_sha256=POLICY,
    reason="src is broad",
    requested_at="2026-01-01T10:00:00Z",
    expires_at="2026-01-01T12:00:00.000000Z",
    state="approved",
    decided_by="somebody",
    decided_at="2026-01-01T10:30:00.5Z",
    used_at=None,
)


def allowed(
    *records: ApprovalRecord, used: tuple[str, ...] = (), now: str = "2026-01-01T11:00:00Z"
) -> list[str]:
    return rules(
        decision_gates.judge_approvals(
            [NEED], records, run_id="run-1", policy_sha256=POLICY, now=now, used=used
        )
    )


def test_an_approval_for_exactly_this() -> None:
    result = decision_gates.judge_approvals(
        [NEED], [YES], run_id="run-1", policy_sha256=POLICY, now="2026-01-01T11:00:00Z"
    )
    assert result == GateResult("human_approval_gate", (), {"needed": 1, "approvals": ["ap-1"]})
    assert decision_gates.judge_approvals([], [], run_id="r", policy_sha256="", now="").passed


def test_absence_denies() -> None:
    assert allowed() == ["approval.missing"]
    assert allowed(replace(YES, digest="c" * 64)) == ["approval.missing"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"state": "pending"}, "approval.pending"),
        ({"state": "rejected"}, "approval.rejected"),
        ({"state": "expired"}, "approval.expired"),
        ({"state": "withdrawn"}, "approval.withdrawn"),
        ({"state": "used"}, "approval.used"),
        ({"used_at": "2026-01-01T10:45:00Z"}, "approval.used"),
        ({"decided_by": None}, "approval.nobody"),
        ({"decided_by": ""}, "approval.nobody"),
        ({"decided_at": None}, "approval.nobody"),
        ({"kind": "command"}, "approval.kind"),
        ({"run_id": "run-2"}, "approval.run"),
        ({"task_id": "task-2"}, "approval.task"),
        ({"task_id": None}, "approval.task"),
        ({"policy_sha256": "c" * 64}, "approval.policy"),
        ({"expires_at": "2026-01-01T11:00:00Z"}, "approval.expired"),
        ({"expires_at": "2026-01-01T10:59:59.999999Z"}, "approval.expired"),
        ({"expires_at": "never"}, "approval.time"),
        ({"expires_at": "2026-01-01T13:00:00+02:00"}, "approval.time"),
        ({"decided_at": "2026-01-01T11:30:00Z"}, "approval.time"),
        ({"requested_at": "2026-01-01T10:31:00Z"}, "approval.time"),
    ],
)
def test_an_approval_for_something_else_or_too_late(change: dict[str, Any], found: str) -> None:
    assert allowed(replace(YES, **change)) == [found]


def test_an_approval_is_used_once() -> None:
    assert allowed(YES, used=("ap-1",)) == ["approval.used"]
    twice = decision_gates.judge_approvals(
        [NEED, NEED], [YES], run_id="run-1", policy_sha256=POLICY, now="2026-01-01T11:00:00Z"
    )
    assert rules(twice) == ["approval.used"]


def test_a_later_yes_counts_beside_an_earlier_no() -> None:
    assert allowed(replace(YES, approval_id="ap-0", state="rejected"), YES) == []
