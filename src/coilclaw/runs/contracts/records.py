"""Records that a run leaves: approvals, handoffs, results of tasks, reports."""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Final, Literal, TypeAlias

from coilclaw.kernel import JSON_NAME, Json, Record
from coilclaw.runs.contracts.roles import Producer

ApprovalKind: TypeAlias = Literal[
    "command", "change", "permission", "override", "network", "sampling", "merge"
]
"""``override`` is the only way to broad paths, and never lasts."""
ApprovalState: TypeAlias = Literal[
    "pending", "approved", "rejected", "expired", "withdrawn", "used"
]


class ApprovalRecord(Record, schema="approval.v1"):
    """Bound to the run, to what was asked (``digest``), and to the policies (``policy_sha256``)."""

    approval_id: str
    run_id: str
    task_id: str | None
    kind: ApprovalKind
    title: str
    detail: tuple[str, ...]
    digest: str
    policy_sha256: str
    reason: str
    requested_at: str
    expires_at: str
    state: ApprovalState
    decided_by: str | None
    decided_at: str | None
    used_at: str | None


class ArtifactRef(Record, schema="run_manifest.v1#ArtifactRef"):
    """One file; ``path`` is relative to the bundle."""

    name: str
    path: str
    sha256: str
    media_type: str | None = None
    size_bytes: int | None = None


class Handoff(Record, schema="handoff.v1"):
    """``instruction_sha256`` names the contract that goes on to be the instruction."""

    instruction_sha256: str
    summary: str
    risks: tuple[str, ...]


ResultStatus: TypeAlias = Literal["SUCCESS", "FAILED", "BLOCKED", "SKIPPED"]
# The specification owns this word.
NEXT: Final = "next_" + "st" + "eps"


class Failure(Record, schema="task_result.v1#Failure"):
    message: str
    hint: str | None = None


class ProducedBy(Record, schema="task_result.v1#ProducedBy"):
    role: Producer
    agent_id: str
    codex_thread_id: str | None = None


class GitState(Record, schema="task_result.v1#GitState"):
    baseline_ref: str
    head_ref: str
    changed_files: ArtifactRef
    patch: ArtifactRef


class GateOutcome(Record, schema="task_result.v1#GateOutcome"):
    passed: bool
    violations: tuple[str, ...]


class NextActions(Record, schema="task_result.v1#NextActions"):
    suggested_action: str
    notes: str


class TaskResult(Record, schema="task_result.v1"):
    """How a task ended, as the orchestrator found it; ``gates`` has each one that judged."""

    run_id: str
    task_id: str
    producer: ProducedBy
    status: ResultStatus
    started_at: str
    finished_at: str
    summary: str
    artifacts: tuple[ArtifactRef, ...]
    git: GitState
    gates: Mapping[str, GateOutcome]
    next_actions: NextActions = field(metadata={JSON_NAME: NEXT})
    attempt: int | None = None
    failure: Failure | None = None


class WorkGates(Record, schema="work_report.v1#WorkGates"):
    diff_gate: GateOutcome | None = None
    tool_gate: GateOutcome | None = None


class WorkEvidence(Record, schema="work_report.v1#WorkEvidence"):
    codex_events_jsonl: ArtifactRef | None = None
    transcript_md: ArtifactRef | None = None
    thread_id_txt: ArtifactRef | None = None
    trace_id_txt: ArtifactRef | None = None
    orchestrator_events_jsonl: ArtifactRef | None = None


class WorkActions(Record, schema="work_report.v1#WorkActions"):
    recommended: tuple[str, ...] | None = None
    suggested_allowed_paths_delta: tuple[str, ...] | None = None


class WorkTimes(Record, schema="work_report.v1#WorkTimes"):
    started_at: str | None = None
    finished_at: str | None = None


class WorkReport(Record, schema="work_report.v1"):
    """The short form of a task's end, to be added up; it does not replace the result."""

    task_id: str
    status: Literal["success", "fail", "aborted"]
    patch_ref: str
    diff_summary: str
    evidence_refs: Mapping[str, Json]
    failure_reason: str
    run_id: str | None = None
    attempt: int | None = None
    role: Literal["PM", "TECH_LEAD", "WORKER", "REVIEWER", "TEST_RUNNER", "ORCHESTRATOR"] | None = (
        None
    )
    baseline_ref: str | None = None
    head_ref: str | None = None
    patch: ArtifactRef | None = None
    changed_files: ArtifactRef | None = None
    gates: WorkGates | None = None
    evidence: WorkEvidence | None = None
    next_actions: WorkActions | None = None
    timestamps: WorkTimes | None = None
    metrics: Mapping[str, Json] | None = None
    notes: str | None = None


Verdict: TypeAlias = Literal["PASS", "FAIL", "BLOCKED"]
Severity: TypeAlias = Literal["blocking", "non_blocking"]
TestStatus: TypeAlias = Literal["PASS", "FAIL", "ERROR", "SKIPPED"]


class Reviewer(Record, schema="review_report.v1#Reviewer"):
    role: Literal["REVIEWER"]
    agent_id: str
    codex_thread_id: str | None = None


class ScopeCheck(Record, schema="review_report.v1#ScopeCheck"):
    passed: bool
    violations: tuple[str, ...]


class Finding(Record, schema="review_report.v1#Finding"):
    severity: Severity
    message: str
    path: str | None = None
    line: int | None = None


class ReviewReport(Record, schema="review_report.v1"):
    """What the reviewer says; a reviewer that produced a diff has no report at all."""

    run_id: str
    reviewer: Reviewer
    reviewed_at: str
    verdict: Verdict
    summary: str
    scope_check: ScopeCheck
    evidence: tuple[ArtifactRef, ...]
    produced_diff: Literal[False]
    findings: tuple[Finding, ...]
    task_id: str | None = None
    attempt: int | None = None
    notes: str | None = None


class TestRunner(Record, schema="test_report.v1#TestRunner"):
    __test__: ClassVar[bool] = False

    role: Literal["TEST_RUNNER", "ORCHESTRATOR"]
    agent_id: str


class TestCommand(Record, schema="test_report.v1#TestCommand"):
    __test__: ClassVar[bool] = False

    name: str
    cmd_argv: tuple[str, ...]
    must_pass: bool
    timeout_sec: float
    exit_code: int
    duration_sec: float
    stdout: ArtifactRef
    stderr: ArtifactRef
    cwd: str | None = None


class TestCounts(Record, schema="test_report.v1#TestCounts"):
    __test__: ClassVar[bool] = False

    passed: int
    failed: int
    skipped: int


class TestReport(Record, schema="test_report.v1"):
    """What the acceptance tests said, command by command."""

    __test__: ClassVar[bool] = False

    run_id: str
    task_id: str
    runner: TestRunner
    started_at: str
    finished_at: str
    status: TestStatus
    commands: tuple[TestCommand, ...]
    artifacts: tuple[ArtifactRef, ...]
    attempt: int | None = None
    summary: TestCounts | None = None
    failure: Failure | None = None


class Divergence(Record, schema="reexec_report.v1#Divergence"):
    """Where a re-execution differs from the record."""

    key: str
    expected: Json
    actual: Json


class ReexecReport(Record, schema="reexec_report.v1"):
    """How a run that was executed again compares with what was recorded."""

    run_id: str
    status: Literal["pass", "fail"]
    reexec_ts: str
    hard_equal_pass: bool
    soft_equal_pass: bool
    hard_diffs: tuple[Divergence, ...]
    soft_diffs: tuple[Divergence, ...]
    errors: tuple[str, ...]
