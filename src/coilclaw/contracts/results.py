"""What is said of a task when it ended: by its agent, and by the orchestrator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from coilclaw.contracts.artifact import ArtifactRef
from coilclaw.contracts.record import JSON_NAME, Record
from coilclaw.contracts.roles import Producer
from coilclaw.domain.messages import Json

ResultStatus: TypeAlias = Literal["SUCCESS", "FAILED", "BLOCKED", "SKIPPED"]
# The specification owns this word.
NEXT: Final = "next_" + "st" + "eps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Record):
    SCHEMA: ClassVar[str] = "task_result.v1#Failure"

    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTaskResult(Record):
    """What an agent answers with; its word is recorded, and nothing is decided by it."""

    SCHEMA: ClassVar[str] = "agent_task_result.v1"

    task_id: str
    status: ResultStatus
    summary: str
    evidence_refs: Mapping[str, Json]
    failure: Failure | None
    contracts: tuple[Mapping[str, Json], ...] | None = None
    handoff_payload: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedBy(Record):
    SCHEMA: ClassVar[str] = "task_result.v1#ProducedBy"

    role: Producer
    agent_id: str
    codex_thread_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState(Record):
    SCHEMA: ClassVar[str] = "task_result.v1#GitState"

    baseline_ref: str
    head_ref: str
    changed_files: ArtifactRef
    patch: ArtifactRef


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome(Record):
    SCHEMA: ClassVar[str] = "task_result.v1#GateOutcome"

    passed: bool
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextActions(Record):
    SCHEMA: ClassVar[str] = "task_result.v1#NextActions"

    suggested_action: str
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(Record):
    """How a task ended, as the orchestrator found it; ``gates`` has each one that judged."""

    SCHEMA: ClassVar[str] = "task_result.v1"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkGates(Record):
    SCHEMA: ClassVar[str] = "work_report.v1#WorkGates"

    diff_gate: GateOutcome | None = None
    tool_gate: GateOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEvidence(Record):
    SCHEMA: ClassVar[str] = "work_report.v1#WorkEvidence"

    codex_events_jsonl: ArtifactRef | None = None
    transcript_md: ArtifactRef | None = None
    thread_id_txt: ArtifactRef | None = None
    trace_id_txt: ArtifactRef | None = None
    orchestrator_events_jsonl: ArtifactRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkActions(Record):
    SCHEMA: ClassVar[str] = "work_report.v1#WorkActions"

    recommended: tuple[str, ...] | None = None
    suggested_allowed_paths_delta: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTimes(Record):
    SCHEMA: ClassVar[str] = "work_report.v1#WorkTimes"

    started_at: str | None = None
    finished_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport(Record):
    """The short form of a task's end, to be added up; it does not replace the result."""

    SCHEMA: ClassVar[str] = "work_report.v1"

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
