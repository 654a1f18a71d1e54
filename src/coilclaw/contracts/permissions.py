"""Permissions in their order, and who asks for more than there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import RolePermissions, ToolPermissions
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.contracts.registry import RegisteredAgent

ORDER: Final = {
    "filesystem": ("read-only", "workspace-write", "danger-full-access"),
    "shell": ("deny", "never", "untrusted", "on-request"),
    "network": ("deny", "on-request", "allow"),
}
"""Each kind from the least to the most.

``never`` runs what the sandbox holds and asks nobody; ``untrusted`` may go further, when somebody
says yes to each command; ``on-request`` needs a yes only for what goes further.
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


def exceeding(
    asked: ToolPermissions, granted: Granted, mcp_tools: Iterable[str], whose: str
) -> tuple[Problem, ...]:
    """Return every permission that goes beyond what is granted."""
    wanted = effective(asked)
    pairs = (
        ("filesystem", wanted.filesystem, granted.filesystem),
        ("shell", wanted.shell, granted.shell),
        ("network", wanted.network, granted.network),
    )
    found = [
        Problem(f"/tool_permissions/{kind}", f"asks for {want}, and {whose} has {most}")
        for kind, want, most in pairs
        if exceeds(kind, want, most)
    ]
    known = frozenset(mcp_tools)
    found += [
        Problem(f"/tool_permissions/mcp_tools/{index}", f"{whose} has no tool {shown(tool)}")
        for index, tool in enumerate(asked.mcp_tools)
        if tool not in known
    ]
    return tuple(found)


def within(asked: ToolPermissions, parent: ToolPermissions) -> tuple[Problem, ...]:
    """Return every permission in which a sub-contract goes beyond its parent."""
    return exceeding(asked, effective(parent), parent.mcp_tools, "the parent contract")


def over_asked(asked: ToolPermissions, agent: RegisteredAgent) -> tuple[Problem, ...]:
    """Return every permission that goes beyond the registry's defaults for an agent."""
    return exceeding(
        asked,
        _Defaults(agent),
        agent.mcp_tools,
        f"{agent.agent_id} as {agent.role}",
    )


class _Defaults:
    """The registry's words for what a contract calls otherwise."""

    def __init__(self, agent: RegisteredAgent) -> None:
        self.filesystem: str = agent.defaults.sandbox
        self.shell: str = agent.defaults.approval_policy
        self.network: str = agent.defaults.network
