"""What must hold of a chain along which work is handed on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from coilclaw.contracts.roles import HANDOFF_ORDER, SPINE
from coilclaw.contracts.schemas import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import TaskContract

_WHERE = "/handoff_chain/roles"


def problems(contract: TaskContract) -> tuple[Problem, ...]:
    """Return what is wrong with the chain; one that is not enabled binds nobody."""
    chain = contract.handoff_chain
    if chain is None or not chain.enabled:
        return ()
    roles = chain.roles or ()
    if not roles:
        return (Problem(_WHERE, "the chain is enabled and names no role"),)
    found = [*_order(roles), *_ends(roles, contract)]
    if chain.max_handoffs is not None and len(roles) - 1 > chain.max_handoffs:
        found.append(
            Problem(
                "/handoff_chain/max_handoffs",
                f"{len(roles)} roles need {len(roles) - 1} handoffs",
            )
        )
    return tuple(found)


def _order(roles: tuple[Role, ...]) -> Iterator[Problem]:
    places = [HANDOFF_ORDER.index(role) for role in roles]
    for index, (before, after) in enumerate(pairwise(places), 1):
        if before >= after:
            yield Problem(
                f"{_WHERE}/{index}", f"{roles[index]} does not come after {roles[index - 1]}"
            )
    present = [index for index, role in enumerate(SPINE) if role in roles]
    if present:
        for role in SPINE[present[0] : present[-1]]:
            if role not in roles:
                yield Problem(_WHERE, f"{role} is left out between two that are there")


def _ends(roles: tuple[Role, ...], contract: TaskContract) -> Iterator[Problem]:
    if roles[0] != contract.owner_agent.role:
        yield Problem(f"{_WHERE}/0", f"the owner is {contract.owner_agent.role}")
    if roles[-1] != contract.assigned_agent.role:
        yield Problem(
            f"{_WHERE}/{len(roles) - 1}", f"the assigned agent is {contract.assigned_agent.role}"
        )
