"""``RunManifest``: what a run was, what it left, and the seal over it."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from coilclaw.kernel import Record
from coilclaw.runs.contracts.records import ArtifactRef
from coilclaw.runs.contracts.roles import Role
from coilclaw.runs.contracts.task_contract import Filesystem, Network, PackName, Shell

RunStatus: TypeAlias = Literal["RUNNING", "SUCCESS", "FAILURE"]
TaskStatus: TypeAlias = Literal["PENDING", "RUNNING", "SUCCESS", "FAILED", "BLOCKED", "SKIPPED"]
MergeStatus: TypeAlias = Literal["none", "pending", "merged", "failed", "not_requested"]
BundleRefStatus: TypeAlias = Literal["unresolved", "resolved", "registry-backed"]
BindingStatus: TypeAlias = Literal["unresolved", "partially-resolved", "contract-derived"]


class RunnerUsed(Record, schema="run_manifest.v1#RunnerUsed"):
    name: str | None = None
    mcp_only: bool | None = None
    profile: str | None = None


class RepoState(Record, schema="run_manifest.v1#RepoState"):
    root: str
    baseline_ref: str
    remote_url: str | None = None
    branch: str | None = None
    final_ref: str | None = None


class Versions(Record, schema="run_manifest.v1#Versions"):
    contracts_schema: str
    orchestrator: str
    codex_cli: str | None = None
    agents_sdk: str | None = None
    agent: str | None = None
    git: str | None = None
    python: str | None = None
    node: str | None = None


class ModelUsed(Record, schema="run_manifest.v1#ModelUsed"):
    id: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    notes: str | None = None


class SkillsBinding(Record, schema="run_manifest.v1#SkillsBinding"):
    status: BundleRefStatus
    ref: str | None
    bundle_id: str | None
    resolved_skill_set: tuple[str, ...]
    validation: Literal["fail-closed"]


class McpBinding(Record, schema="run_manifest.v1#McpBinding"):
    status: BundleRefStatus
    ref: str | None
    bundle_id: str | None
    resolved_mcp_tool_set: tuple[str, ...]
    validation: Literal["fail-closed"]


class BindingValues(Record, schema="run_manifest.v1#BindingValues"):
    """The runner, provider and model of a binding, or where each of them was taken from."""

    runner: str | None
    provider: str | None
    model: str | None


class BindingCapability(Record, schema="run_manifest.v1#BindingCapability"):
    filesystem: Filesystem
    shell: Shell
    network: Network


class RuntimeBindingSummary(Record, schema="run_manifest.v1#RuntimeBindingSummary"):
    status: BindingStatus
    authority_scope: str
    source: BindingValues
    summary: BindingValues
    capability: BindingCapability


class RoleBindingSummary(Record, schema="run_manifest.v1#RoleBindingSummary"):
    """A read model, derived from the contract; nothing is executed by it."""

    authority: Literal["contract-derived-read-model"]
    source: str
    execution_authority: Literal["task_contract"]
    skills_bundle_ref: SkillsBinding
    mcp_bundle_ref: McpBinding
    runtime_binding: RuntimeBindingSummary


class ManifestTask(Record, schema="run_manifest.v1#ManifestTask"):
    task_id: str
    role: Role
    status: TaskStatus
    contract: ArtifactRef
    assigned_agent_id: str | None = None
    thread_id: str | None = None
    result: ArtifactRef | None = None
    review_report: ArtifactRef | None = None
    test_report: ArtifactRef | None = None


class Merge(Record, schema="run_manifest.v1#Merge"):
    """What became of the accepted work; ``pending``: accepted, and not merged yet."""

    status: MergeStatus
    branch: str | None = None
    commit: str | None = None


class Signature(Record, schema="run_manifest.v1#Signature"):
    keyid: str
    sig: str


class Integrity(Record, schema="run_manifest.v1#Integrity"):
    """The seal: ``root_hash`` is over the manifest without itself, ``seal`` and ``signature``."""

    contract_sha256: str
    events_count: int
    events_head: str
    root_hash: str
    seal: str
    key_id: str
    signature: Signature | None = None


class Trace(Record, schema="run_manifest.v1#Trace"):
    trace_id: str | None = None
    trace_url: str | None = None


class Workflow(Record, schema="run_manifest.v1#Workflow"):
    workflow_id: str | None = None
    task_queue: str | None = None
    namespace: str | None = None
    status: RunStatus | None = None


class Observability(Record, schema="run_manifest.v1#Observability"):
    enabled: bool | None = None
    has_otel: bool | None = None
    otlp_endpoint: str | None = None
    otlp_protocol: str | None = None
    console_enabled: bool | None = None
    required: bool | None = None


class RunManifest(Record, schema="run_manifest.v1"):
    """The table of contents of a bundle. It is sealed exactly when it has ``integrity``."""

    run_id: str
    created_at: str
    status: RunStatus
    user_request: str
    trace_id: str
    repo: RepoState
    versions: Versions
    tasks: tuple[ManifestTask, ...]
    artifacts: tuple[ArtifactRef, ...]
    evidence_hashes: Mapping[str, str]
    directories: tuple[str, ...]
    merge: Merge
    task_id: str | None = None
    finished_at: str | None = None
    failure_reason: str | None = None
    diagnostic: bool | None = None
    runner: RunnerUsed | None = None
    policy_pack: PackName | None = None
    model: ModelUsed | None = None
    role_binding_summary: RoleBindingSummary | None = None
    integrity: Integrity | None = None
    trace: Trace | None = None
    workflow: Workflow | None = None
    observability: Observability | None = None
    notes: str | None = None
