"""Permissions in their order, and who asks for more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.kernel import SchemaProblem, quote_text
from coilclaw.runs.contracts.task_contract import RolePermissions, ToolPermissions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.runs.contracts.policy_files import RegisteredAgent

ORDER: Final = {
    "filesystem": ("read-only", "workspace-write", "danger-full-access"),
    "shell": ("deny", "never", "untrusted", "on-request"),
    "network": ("deny", "on-request", "allow"),
}
"""Each kind from the least to the most.

``never`` runs what the sandbox holds and never asks; ``untrusted`` may go further, when a person
approves each command; ``on-request`` needs approval only for what goes further.
"""


class Granted(Protocol):
    """The most that may be asked for."""

    @property
    def filesystem(self) -> str: ...
    @property
    def shell(self) -> str: ...
    @property
    def network(self) -> str: ...


def exceeds(kind: str, asked: str, granted: str) -> bool:
    """Whether more is asked than granted; a word that is not in the order is more than anything."""
    order = ORDER[kind]
    if asked not in order or granted not in order:
        return True
    return order.index(asked) > order.index(granted)


def effective(permissions: ToolPermissions) -> RolePermissions:
    """Return what a contract's permissions come to: an omitted shell is denied."""
    return RolePermissions(
        filesystem=permissions.filesystem,
        shell=permissions.effective_shell,
        network=permissions.network,
    )


def find_exceeding(
    asked: ToolPermissions, granted: Granted, mcp_tools: Iterable[str], whose: str
) -> tuple[SchemaProblem, ...]:
    """Return every permission that goes beyond what is granted."""
    wanted, known = effective(asked), frozenset(mcp_tools)
    kinds = ((kind, getattr(wanted, kind), getattr(granted, kind)) for kind in ORDER)
    return (
        *(
            SchemaProblem(f"/tool_permissions/{kind}", f"asks for {want}, and {whose} has {most}")
            for kind, want, most in kinds
            if exceeds(kind, want, most)
        ),
        *(
            SchemaProblem(
                f"/tool_permissions/mcp_tools/{index}", f"{whose} has no tool {quote_text(tool)}"
            )
            for index, tool in enumerate(asked.mcp_tools)
            if tool not in known
        ),
    )


def find_over_asked(asked: ToolPermissions, agent: RegisteredAgent) -> tuple[SchemaProblem, ...]:
    """Return every permission that goes beyond the registry's defaults for an agent."""
    whose = f"{agent.agent_id} as {agent.role}"
    return find_exceeding(asked, _Defaults(agent), agent.mcp_tools, whose)


class _Defaults:
    """The registry's words for what a contract calls otherwise."""

    def __init__(self, agent: RegisteredAgent) -> None:
        self.filesystem: str = agent.defaults.sandbox
        self.shell: str = agent.defaults.approval_policy
        self.network: str = agent.defaults.network
