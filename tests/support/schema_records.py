"""Records of schemas that the product writes or reads as plain JSON; tests compare shapes."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeAlias

from coilclaw.kernel import Json, Record
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import ArtifactRef, Failure, ResultStatus
from coilclaw.runs.contracts.roles import Role
from coilclaw.runs.contracts.task_contract import Agent
from coilclaw.runs.gates.table import GATES

Level: TypeAlias = Literal["INFO", "WARN", "ERROR"]
SourceKind: TypeAlias = Literal[
    "webpage", "pdf", "repo", "issue", "paper", "forum_thread", "video", "other"
]


class ChainLifecycle(Record, schema="task_chain.v1#ChainLifecycle"):
    enforce: bool | None = None
    required_path: tuple[Role, ...] | None = None
    min_workers: int | None = None
    min_reviewers: int | None = None
    reviewer_quorum: int | None = None
    require_test_stage: bool | None = None
    require_return_to_pm: bool | None = None


class ChainStrategy(Record, schema="task_chain.v1#ChainStrategy"):
    continue_on_fail: bool | None = None
    lifecycle: ChainLifecycle | None = None


class ChainStage(Record, schema="task_chain.v1#ChainStage"):
    name: str
    kind: Literal["plan", "contract", "handoff"]
    payload: Mapping[str, Json]
    labels: tuple[str, ...] | None = None
    depends_on: tuple[str, ...] | None = None
    parallel_group: str | None = None
    context_policy: Mapping[str, Json] | None = None
    exclusive_paths: tuple[str, ...] | None = None


class TaskChain(Record, schema="task_chain.v1"):
    chain_id: str
    owner_agent: Agent
    stages: tuple[ChainStage, ...]
    strategy: ChainStrategy | None = None


class OrchestratorEvent(Record, schema="orchestrator_event.v1"):
    ts: str
    level: Level
    event_type: EventType
    run_id: str
    task_id: str | None
    attempt: int | None
    payload: Mapping[str, Json]
    trace_id: str
    previous_hash: str
    event_hash: str
    model_id: str | None = None
    agent_id: str | None = None
    role: str | None = None
    tool_name: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None


Gate = StrEnum("Gate", [*GATES])  # type: ignore[misc]  # the names are those of the table


class ViolationRecord(Record, schema="gate_result.v1#ViolationRecord"):
    rule: str
    message: str
    path: str


class GateResultRecord(Record, schema="gate_result.v1"):
    run_id: str
    task_id: str | None
    attempt: int | None
    ts: str
    gate: Gate
    passed: bool
    violations: tuple[ViolationRecord, ...]
    facts: Mapping[str, Json]


class ToolCallRecord(Record, schema="tool_call.v1"):
    ts: str
    run_id: str
    tool: str
    status: str
    args: Mapping[str, Json]
    task_id: str | None = None
    config: Mapping[str, Json] | None = None
    mode: str | None = None
    duration_ms: int | None = None
    error: str | None = None
    artifacts: tuple[str, ...] | None = None
    thread_id: str | None = None
    session_id: str | None = None
    output_sha256: str | None = None


class EvidenceReport(Record, schema="evidence_report.v1"):
    """Whether the evidence of a run is whole."""

    status: Literal["ok", "fail"]
    missing: tuple[str, ...]


class Requester(Record, schema="evidence_bundle.v1#Requester"):
    role: Literal["PM", "TECH_LEAD", "SEARCHER", "ORCHESTRATOR"]
    agent_id: str


class ResearchQuery(Record, schema="evidence_bundle.v1#ResearchQuery"):
    raw_question: str
    refined_prompt: str
    freshness_requirement_days: int | None = None


class Source(Record, schema="evidence_bundle.v1#Source"):
    source_id: str
    kind: SourceKind
    title: str
    retrieved_at: str
    url: str | None = None
    publisher: str | None = None
    content_sha256: str | None = None
    notes: str | None = None


class Claim(Record, schema="evidence_bundle.v1#Claim"):
    claim_id: str
    text: str
    status: Literal["UNVERIFIED", "VERIFIED", "DISPUTED", "REJECTED"]
    confidence: float
    supporting_source_ids: tuple[str, ...]
    contradicting_source_ids: tuple[str, ...] | None = None
    verification_notes: str | None = None
    risk_if_wrong: Literal["LOW", "MEDIUM", "HIGH"] | None = None


class Consensus(Record, schema="evidence_bundle.v1#Consensus"):
    agreements: tuple[str, ...] | None = None
    disagreements: tuple[str, ...] | None = None
    needs_verification: tuple[str, ...] | None = None


class EvidenceBundle(Record, schema="evidence_bundle.v1"):
    """The research behind a run; a run without research has no sources and no claims."""

    bundle_id: str
    created_at: str
    requested_by: Requester
    query: ResearchQuery
    sources: tuple[Source, ...]
    claims: tuple[Claim, ...]
    limitations: tuple[str, ...]
    consensus: Consensus | None = None
    artifacts: tuple[ArtifactRef, ...] | None = None


class AgentTaskResult(Record, schema="agent_task_result.v1"):
    """What an agent answers with; its word is recorded, and nothing is decided by it."""

    task_id: str
    status: ResultStatus
    summary: str
    evidence_refs: Mapping[str, Json]
    failure: Failure | None
    contracts: tuple[Mapping[str, Json], ...] | None = None
    handoff_payload: Mapping[str, Json] | None = None
