"""``TaskContract``: the only instruction there is, as a record."""

import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import MAX_INTEGER, JsonFault, Record, UsageError, hash_json, read_json_object
from coilclaw.runs.contracts.roles import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Json

Filesystem: TypeAlias = Literal["read-only", "workspace-write"]
Shell: TypeAlias = Literal["deny", "untrusted", "on-request", "never"]
Network: TypeAlias = Literal["deny", "on-request", "allow"]
PackName: TypeAlias = Literal["low", "medium", "high"]
TaskType: TypeAlias = Literal["PLAN", "IMPLEMENT", "REVIEW", "TEST", "SEARCH"]
TestPolicy: TypeAlias = Literal["protect", "allow"]
ExpectedBaseline: TypeAlias = Literal["red", "green"]
RunnerKind: TypeAlias = Literal[
    "builtin", "code-commit", "scripted", "process", "codex", "opencode", "acp"
]


class Agent(Record, schema="task_contract.v1#Agent"):
    role: Role
    agent_id: str
    codex_thread_id: str | None = None


class InputArtifact(Record, schema="task_contract.v1#InputArtifact"):
    name: str
    uri: str
    sha256: str


class Inputs(Record, schema="task_contract.v1#Inputs"):
    spec: str
    artifacts: tuple[InputArtifact, ...]


class RequiredOutput(Record, schema="task_contract.v1#RequiredOutput"):
    name: str
    type: Literal["patch", "commit", "report", "json", "file"]
    acceptance: str


class AcceptanceTest(Record, schema="task_contract.v1#AcceptanceTest"):
    name: str
    cmd: str
    must_pass: bool
    timeout_sec: int | None = None


class SetupCommand(Record, schema="task_contract.v1#SetupCommand"):
    """A command that prepares a worktree, with a network permission of its own."""

    name: str
    cmd: str
    network: Literal["deny", "allow"] | None = None
    timeout_sec: int | None = None

    @property
    def may_use_network(self) -> bool:
        """Whether it asks for the network; it does not, unless said."""
        return self.network == "allow"


class ToolPermissions(Record, schema="task_contract.v1#ToolPermissions"):
    filesystem: Filesystem
    network: Network
    mcp_tools: tuple[str, ...]
    shell: Shell | None = None

    @property
    def effective_shell(self) -> Shell:
        """What holds when the field is omitted: least privilege."""
        return self.shell or "deny"


class TimeoutRetry(Record, schema="task_contract.v1#TimeoutRetry"):
    timeout_sec: int
    max_retries: int
    retry_backoff_sec: int


class Rollback(Record, schema="task_contract.v1#Rollback"):
    strategy: Literal["git_reset_hard", "git_revert_commit", "worktree_drop"]
    baseline_ref: str
    target_ref: str | None = None


class LogPaths(Record, schema="task_contract.v1#LogPaths"):
    codex_jsonl: str | None = None
    codex_transcript: str | None = None
    git_diff: str | None = None
    tests_log: str | None = None
    trace_id: str | None = None


class LogRefs(Record, schema="task_contract.v1#LogRefs"):
    run_id: str
    paths: LogPaths


class HandoffChain(Record, schema="task_contract.v1#HandoffChain"):
    enabled: bool | None = None
    roles: tuple[Role, ...] | None = None
    max_handoffs: int | None = None


class BrowserProfile(Record, schema="task_contract.v1#BrowserProfile"):
    profile_dir: str | None = None
    profile_name: str | None = None


class BrowserCookies(Record, schema="task_contract.v1#BrowserCookies"):
    cookie_path: str | None = None


class HumanBehavior(Record, schema="task_contract.v1#HumanBehavior"):
    enabled: bool | None = None
    level: Literal["low", "medium", "high"] | None = None


class BrowserPolicy(Record, schema="task_contract.v1#BrowserPolicy"):
    profile_mode: Literal["ephemeral", "allow_profile", "cookie_file"] | None = None
    profile_ref: BrowserProfile | None = None
    cookie_ref: BrowserCookies | None = None
    stealth_mode: Literal["none", "lite", "plugin"] | None = None
    human_behavior: HumanBehavior | None = None


class Execution(Record, schema="task_contract.v1#Execution"):
    mcp_first: bool | None = None


class RuntimeOptions(Record, schema="task_contract.v1#RuntimeOptions"):
    runner: RunnerKind | None = None
    provider: str | None = None
    model: str | None = None
    reviewer: str | None = None
    execution: Execution | None = None
    strict_acceptance: bool | None = None


class RoleIdentity(Record, schema="task_contract.v1#RoleIdentity"):
    role: Role
    agent_id: str


class RuntimeBinding(Record, schema="task_contract.v1#RuntimeBinding"):
    runner: str | None
    provider: str | None
    model: str | None


class RolePermissions(Record, schema="task_contract.v1#RolePermissions"):
    filesystem: Filesystem
    shell: Shell
    network: Network


class RoleHandoff(Record, schema="task_contract.v1#RoleHandoff"):
    eligible: bool
    required_downstream_roles: tuple[Role, ...]
    chain_roles: tuple[Role, ...]
    max_handoffs: int | None


class RoleContract(Record, schema="task_contract.v1#RoleContract"):
    """The resolved view of a role: compiled from the contract, and never an authority itself."""

    identity: RoleIdentity
    purpose: str
    system_prompt_ref: str | None
    skills_bundle_ref: str | None
    mcp_bundle_ref: str | None
    runtime_binding: RuntimeBinding
    tool_permissions: RolePermissions
    resolved_mcp_tool_set: tuple[str, ...]
    handoff: RoleHandoff
    fail_closed_conditions: tuple[str, ...]


class TaskContract(Record, schema="task_contract.v1"):
    """What is to be done, by whom, where, with which permissions, and how it is judged."""

    task_id: str
    owner_agent: Agent
    assigned_agent: Agent
    inputs: Inputs
    required_outputs: tuple[RequiredOutput, ...]
    allowed_paths: tuple[str, ...]
    forbidden_actions: tuple[str, ...]
    acceptance_tests: tuple[AcceptanceTest, ...]
    tool_permissions: ToolPermissions
    timeout_retry: TimeoutRetry
    rollback: Rollback
    evidence_links: tuple[str, ...]
    log_refs: LogRefs
    mcp_tool_set: tuple[str, ...]
    task_type: TaskType | None = None
    parent_task_id: str | None = None
    policy_pack: PackName | None = None
    handoff_chain: HandoffChain | None = None
    audit_only: bool | None = None
    browser_policy: BrowserPolicy | None = None
    runtime_options: RuntimeOptions | None = None
    role_contract: RoleContract | None = None
    test_policy: TestPolicy | None = None
    binary_paths: tuple[str, ...] | None = None
    locks: tuple[str, ...] | None = None
    setup: tuple[SetupCommand, ...] | None = None
    """``None``: what the policies name; empty: nothing."""
    expected_baseline: ExpectedBaseline | None = None
    """``None``: red or green."""

    @property
    def sha256(self) -> str:
        """The hash of the contract: SHA-256 of its RFC 8785 text."""
        return sha256(self.json())

    @property
    def may_change_tests(self) -> bool:
        """Whether weakening, skipping or deleting tests is allowed; by default it is not."""
        return self.test_policy == "allow"


def sha256(contract: "Mapping[str, Json]") -> str:
    """Return the hash of a contract as JSON."""
    return hash_json(dict(contract))


MAX_BYTES: Final = 2**20


def parse_document(data: bytes) -> "dict[str, Json]":
    """Return the object that some bytes are, or say what is wrong with them (``contract.json``)."""
    try:
        if len(data) > MAX_BYTES:
            raise JsonFault(f"has {len(data)} bytes, and {MAX_BYTES} are the most")
        value = read_json_object(data, max_integer=MAX_INTEGER)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        reason = "has half a surrogate pair in a string"
    except JsonFault as fault:
        reason = str(fault)
    else:
        return value
    raise UsageError(f"the file {reason}", rule="contract.json")
