"""The output schema that a contract binds: its name, where it is, and its hash."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import schemas
from coilclaw.contracts.roles import OUTPUT_SCHEMA
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import InputArtifact
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import TaskContract

ARTIFACT: Final = "output_schema"


def artifact(role: Role) -> InputArtifact:
    """The binding of a role's output schema."""
    name = OUTPUT_SCHEMA[role]
    return InputArtifact(
        name=f"{ARTIFACT}.{role.lower()}", uri=schemas.uri(name), sha256=schemas.sha256(name)
    )


def is_binding(candidate: InputArtifact) -> bool:
    return candidate.name.partition(".")[0] == ARTIFACT


def bound(contract: TaskContract) -> TaskContract:
    """Return the contract with its assigned role's schema bound; one that is there stays."""
    if any(map(is_binding, contract.inputs.artifacts)):
        return contract
    added = artifact(contract.assigned_agent.role)
    inputs = replace(contract.inputs, artifacts=(*contract.inputs.artifacts, added))
    return replace(contract, inputs=inputs)


def schema_name(contract: TaskContract) -> str:
    """The name of the schema that the answer to a contract must have."""
    return OUTPUT_SCHEMA[contract.assigned_agent.role]


def problems(contract: TaskContract) -> tuple[Problem, ...]:
    """Return what is wrong with the binding; every role answers in a bound form."""
    expected = artifact(contract.assigned_agent.role)
    found: list[Problem] = []
    count = 0
    for index, given in enumerate(contract.inputs.artifacts):
        if not is_binding(given):
            continue
        count += 1
        where = f"/inputs/artifacts/{index}"
        if given.name not in {ARTIFACT, expected.name}:
            found.append(
                Problem(f"{where}/name", f"the binding is called {ARTIFACT} or {expected.name}")
            )
        if given.uri != expected.uri:
            found.append(
                Problem(
                    f"{where}/uri",
                    f"{contract.assigned_agent.role} answers in the form of {expected.uri}, "
                    f"not of {shown(given.uri)}",
                )
            )
        elif given.sha256.lower() != expected.sha256:
            found.append(
                Problem(f"{where}/sha256", f"is not the SHA-256 of {expected.uri} as it is here")
            )
    if count != 1:
        found.append(
            Problem(
                "/inputs/artifacts",
                f"binds {count} output schemas; there has to be one, called {expected.name}",
            )
        )
    return tuple(found)
