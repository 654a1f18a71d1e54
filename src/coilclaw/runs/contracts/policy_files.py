"""The files of ``policies/`` as records; ``PolicySet`` puts them together."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from coilclaw.kernel import Record
from coilclaw.runs.contracts.roles import Role
from coilclaw.runs.contracts.task_contract import (
    Filesystem,
    Network,
    PackName,
    SetupCommand,
    Shell,
    TestPolicy,
)

CommandKind: TypeAlias = Literal["test", "check", "build", "script", "setup", "read"]
"""What a command is for; a pack says which kinds may be run. ``script``: whatever the project's
own files say under a name, such as a target or a package script. ``setup``: what prepares a
worktree, and is never run for anything else."""


class CommandRule(Record, schema="command_allowlist.v1#CommandRule"):
    """An argv is allowed that starts with ``exec`` and one of the prefixes, token by token.

    A token of a prefix matches exactly; one that ends in a slash means any file below that
    directory, as an ``exec`` does, and the empty prefix anything. A forbidden flag is forbidden in
    every spelling.
    """

    exec: str
    kind: CommandKind
    prefixes: tuple[tuple[str, ...], ...]
    forbidden_flags: tuple[str, ...]
    comment: str | None = None


class CommandAllowlist(Record, schema="command_allowlist.v1"):
    version: Literal["v1"]
    allow: tuple[CommandRule, ...]
    comment: str | None = None
    setup: tuple[SetupCommand, ...] | None = None
    """What prepares a worktree where a contract names no set-up."""


class ForbiddenActions(Record, schema="forbidden_actions.v1"):
    """An action is ``edit PATH``, or a command as tokens, such as ``rm -rf``."""

    version: Literal["v1"]
    forbidden_actions: tuple[str, ...]
    protected_paths: tuple[str, ...]
    comment: str | None = None


class McpAllowlist(Record, schema="mcp_allowlist.v1"):
    version: Literal["v1"]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    comment: str | None = None


class ToolRegistry(Record, schema="tool_registry.v1"):
    version: Literal["v1"]
    installed: tuple[str, ...]
    integrated: tuple[str, ...]
    comment: str | None = None


class PackLimits(Record, schema="policy_pack.v1#PackLimits"):
    max_timeout_sec: int
    max_retries: int
    max_allowed_paths: int
    max_changed_files: int
    max_patch_bytes: int
    broad_segments: int
    """A directory of at most so many segments is broad."""


class PackCeilings(Record, schema="policy_pack.v1#PackCeilings"):
    """What no contract may exceed under the pack, whatever its role may do."""

    filesystem: Filesystem
    shell: Shell
    network: Network


class PolicyPack(Record, schema="policy_pack.v1"):
    version: Literal["v1"]
    pack: PackName
    default_for: tuple[Role, ...]
    command_kinds: tuple[CommandKind, ...]
    forbidden_actions: tuple[str, ...]
    limits: PackLimits
    ceilings: PackCeilings
    test_policies: tuple[TestPolicy, ...]
    binary_changes: bool
    """Whether a contract may name ``binary_paths`` at all."""
    override_approvals: bool
    """Whether a person may approve what is otherwise too broad."""
    strict_acceptance: bool
    """Whether trivial acceptance commands are refused also when the contract does not ask."""
    comment: str | None = None


Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
"""What the platform knows; a contract can never have the last one."""
ApprovalPolicy: TypeAlias = Literal["untrusted", "on-request", "never"]


class RoleDefinition(Record, schema="agent_registry.v1#RoleDefinition"):
    purpose: str
    system_prompt_ref: str | None
    skills_bundle_ref: str | None
    mcp_bundle_ref: str | None
    handoff_eligible: bool
    required_downstream_roles: tuple[Role, ...]
    fail_closed_conditions: tuple[str, ...]


class AgentDefaults(Record, schema="agent_registry.v1#AgentDefaults"):
    sandbox: Sandbox
    approval_policy: ApprovalPolicy
    network: Network


class AgentCapabilities(Record, schema="agent_registry.v1#AgentCapabilities"):
    mcp_tools: tuple[str, ...] | None = None
    notes: str | None = None


class RegisteredAgent(Record, schema="agent_registry.v1#RegisteredAgent"):
    agent_id: str
    role: Role
    codex_home: str
    defaults: AgentDefaults
    description: str | None = None
    capabilities: AgentCapabilities | None = None

    @property
    def mcp_tools(self) -> tuple[str, ...]:
        found = self.capabilities.mcp_tools if self.capabilities else None
        return found or ()


class AgentRegistry(Record, schema="agent_registry.v1"):
    """All agents, and what each role is for."""

    version: Literal["v1"]
    agents: tuple[RegisteredAgent, ...]
    role_contracts: Mapping[str, RoleDefinition] | None = None

    def find(self, agent_id: str, role: str) -> RegisteredAgent | None:
        """Return the agent of that id in that role; neither alone is enough."""
        for agent in self.agents:
            if (agent.agent_id, agent.role) == (agent_id, role):
                return agent
        return None

    def first(self, role: Role) -> RegisteredAgent | None:
        """Return the first agent of a role."""
        return next((agent for agent in self.agents if agent.role == role), None)

    def definition(self, role: Role) -> RoleDefinition | None:
        return (self.role_contracts or {}).get(role)
