"""The reports of a run: review, tests, completeness of evidence, research, re-execution."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from coilclaw.contracts.artifact import ArtifactRef
from coilclaw.contracts.record import Record
from coilclaw.contracts.results import Failure
from coilclaw.domain.messages import Json

Verdict: TypeAlias = Literal["PASS", "FAIL", "BLOCKED"]
Severity: TypeAlias = Literal["blocking", "non_blocking"]
TestStatus: TypeAlias = Literal["PASS", "FAIL", "ERROR", "SKIPPED"]
SourceKind: TypeAlias = Literal[
    "webpage", "pdf", "repo", "issue", "paper", "forum_thread", "video", "other"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer(Record):
    SCHEMA: ClassVar[str] = "review_report.v1#Reviewer"

    role: Literal["REVIEWER"]
    agent_id: str
    codex_thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCheck(Record):
    SCHEMA: ClassVar[str] = "review_report.v1#ScopeCheck"

    passed: bool
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Record):
    SCHEMA: ClassVar[str] = "review_report.v1#Finding"

    severity: Severity
    message: str
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewReport(Record):
    """What the reviewer says; a reviewer that produced a diff has no report at all."""

    SCHEMA: ClassVar[str] = "review_report.v1"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRunner(Record):
    SCHEMA: ClassVar[str] = "test_report.v1#TestRunner"
    __test__: ClassVar[bool] = False

    role: Literal["TEST_RUNNER", "ORCHESTRATOR"]
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCommand(Record):
    SCHEMA: ClassVar[str] = "test_report.v1#TestCommand"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCounts(Record):
    SCHEMA: ClassVar[str] = "test_report.v1#TestCounts"
    __test__: ClassVar[bool] = False

    passed: int
    failed: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport(Record):
    """What the acceptance tests said, command by command."""

    SCHEMA: ClassVar[str] = "test_report.v1"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceReport(Record):
    """Whether the evidence of a run is whole."""

    SCHEMA: ClassVar[str] = "evidence_report.v1"

    status: Literal["ok", "fail"]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester(Record):
    SCHEMA: ClassVar[str] = "evidence_bundle.v1#Requester"

    role: Literal["PM", "TECH_LEAD", "SEARCHER", "ORCHESTRATOR"]
    agent_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResearchQuery(Record):
    SCHEMA: ClassVar[str] = "evidence_bundle.v1#ResearchQuery"

    raw_question: str
    refined_prompt: str
    freshness_requirement_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Record):
    SCHEMA: ClassVar[str] = "evidence_bundle.v1#Source"

    source_id: str
    kind: SourceKind
    title: str
    retrieved_at: str
    url: str | None = None
    publisher: str | None = None
    content_sha256: str | None = None
    notes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Record):
    SCHEMA: ClassVar[str] = "evidence_bundle.v1#Claim"

    claim_id: str
    text: str
    status: Literal["UNVERIFIED", "VERIFIED", "DISPUTED", "REJECTED"]
    confidence: float
    supporting_source_ids: tuple[str, ...]
    contradicting_source_ids: tuple[str, ...] | None = None
    verification_notes: str | None = None
    risk_if_wrong: Literal["LOW", "MEDIUM", "HIGH"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus(Record):
    SCHEMA: ClassVar[str] = "evidence_bundle.v1#Consensus"

    agreements: tuple[str, ...] | None = None
    disagreements: tuple[str, ...] | None = None
    needs_verification: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle(Record):
    """The research behind a run; a run without research has no sources and no claims."""

    SCHEMA: ClassVar[str] = "evidence_bundle.v1"

    bundle_id: str
    created_at: str
    requested_by: Requester
    query: ResearchQuery
    sources: tuple[Source, ...]
    claims: tuple[Claim, ...]
    limitations: tuple[str, ...]
    consensus: Consensus | None = None
    artifacts: tuple[ArtifactRef, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence(Record):
    """Where a re-execution differs from the record."""

    SCHEMA: ClassVar[str] = "reexec_report.v1#Divergence"

    key: str
    expected: Json
    actual: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReexecReport(Record):
    """How a run that was executed again compares with what was recorded."""

    SCHEMA: ClassVar[str] = "reexec_report.v1"

    run_id: str
    status: Literal["pass", "fail"]
    reexec_ts: str
    hard_equal_pass: bool
    soft_equal_pass: bool
    hard_diffs: tuple[Divergence, ...]
    soft_diffs: tuple[Divergence, ...]
    errors: tuple[str, ...]
