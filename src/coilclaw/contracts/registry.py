"""``AgentRegistry``: who may work, in which role, and with which permissions at most."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from coilclaw.contracts.record import Record
from coilclaw.contracts.roles import Role
from coilclaw.contracts.taskcontract import Network

Sandbox: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
"""What the platform knows; a contract can never have the last one."""
ApprovalPolicy: TypeAlias = Literal["untrusted", "on-request", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDefinition(Record):
    SCHEMA: ClassVar[str] = "agent_registry.v1#RoleDefinition"

    purpose: str
    system_prompt_ref: str | None
    skills_bundle_ref: str | None
    mcp_bundle_ref: str | None
    handoff_eligible: bool
    required_downstream_roles: tuple[Role, ...]
    fail_closed_conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDefaults(Record):
    SCHEMA: ClassVar[str] = "agent_registry.v1#AgentDefaults"

    sandbox: Sandbox
    approval_policy: ApprovalPolicy
    network: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCapabilities(Record):
    SCHEMA: ClassVar[str] = "agent_registry.v1#AgentCapabilities"

    mcp_tools: tuple[str, ...] | None = None
    notes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredAgent(Record):
    SCHEMA: ClassVar[str] = "agent_registry.v1#RegisteredAgent"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRegistry(Record):
    """All agents, and what each role is for."""

    SCHEMA: ClassVar[str] = "agent_registry.v1"

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
