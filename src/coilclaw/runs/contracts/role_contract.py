"""The role contract: compiled from a contract and the registry, compared, and summed up.

It is a view. Where it differs from the fields that it was compiled from, the contract is invalid.
Its references into the policies and the repository are ``FILE#FRAGMENT``. A fragment is a JSON
pointer, or names with dots between them, of which one may choose from a list:
``agents(role=WORKER).capabilities.mcp_tools``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import SchemaProblem, UsageError, quote_text, schemas
from coilclaw.runs.contracts import paths, permissions
from coilclaw.runs.contracts.manifest import (
    BindingCapability,
    BindingValues,
    McpBinding,
    RoleBindingSummary,
    RuntimeBindingSummary,
    SkillsBinding,
)
from coilclaw.runs.contracts.policy_set import FOLDER, REGISTRY_FILE
from coilclaw.runs.contracts.roles import OUTPUT_SCHEMA
from coilclaw.runs.contracts.task_contract import (
    InputArtifact,
    RoleContract,
    RoleHandoff,
    RoleIdentity,
    RuntimeBinding,
    parse_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.manifest import BindingStatus
    from coilclaw.runs.contracts.policy_files import AgentRegistry
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.contracts.task_contract import TaskContract

_REFS: Final = ("system_prompt_ref", "skills_bundle_ref", "mcp_bundle_ref")
_DERIVED: Final = (
    "identity",
    "runtime_binding",
    "tool_permissions",
    "resolved_mcp_tool_set",
    "handoff",
)
"""What is decided elsewhere; the purpose and the conditions may be said in other words."""

MAX_REFERENCED_BYTES: Final = 256 * 2**10
_SOURCES: Final[Mapping[str, str]] = {
    "mcp_bundle_ref": f"{FOLDER}/{REGISTRY_FILE}",
    "skills_bundle_ref": f"{FOLDER}/skills_bundle_registry.json",
}
"""The only file into which each kind may point with a fragment."""
_NAME: Final = re.compile(r"([A-Za-z0-9_-]+)(?:\(([A-Za-z0-9_]+)=([A-Za-z0-9_.-]+)\))?")


def compile_role_contract(contract: TaskContract, registry: AgentRegistry) -> RoleContract:
    """Return the role contract of a contract's assigned agent."""
    role, chain = contract.assigned_agent.role, contract.handoff_chain
    definition = registry.definition(role)
    if definition is None:
        raise UsageError(f"the registry does not define the role {role}", rule="contract.role")
    return RoleContract(
        identity=RoleIdentity(role=role, agent_id=contract.assigned_agent.agent_id),
        purpose=definition.purpose,
        system_prompt_ref=definition.system_prompt_ref,
        skills_bundle_ref=definition.skills_bundle_ref,
        mcp_bundle_ref=definition.mcp_bundle_ref,
        runtime_binding=_runtime(contract),
        tool_permissions=permissions.effective(contract.tool_permissions),
        resolved_mcp_tool_set=contract.mcp_tool_set,
        handoff=RoleHandoff(
            eligible=definition.handoff_eligible,
            required_downstream_roles=definition.required_downstream_roles,
            chain_roles=(chain.roles if chain else None) or (),
            max_handoffs=chain.max_handoffs if chain else None,
        ),
        fail_closed_conditions=definition.fail_closed_conditions,
    )


def with_role_contract(contract: TaskContract, registry: AgentRegistry) -> TaskContract:
    """Return the contract with its role contract compiled anew."""
    return replace(contract, role_contract=compile_role_contract(contract, registry))


def find_role_problems(
    contract: TaskContract, registry: AgentRegistry, read: Callable[[str], bytes | None]
) -> tuple[SchemaProblem, ...]:
    """Return where the role contract is not what the contract and the registry say."""
    given = contract.role_contract
    if given is None:
        return ()
    found = []
    try:
        expected = compile_role_contract(contract, registry).json()
    except UsageError as problem:
        return (SchemaProblem("/role_contract", problem.message),)
    view = given.json()
    for key in _DERIVED:
        found += _differences(f"/role_contract/{key}", view[key], expected[key])
    for kind in _REFS:
        text = getattr(given, kind)
        wrong = None if text is None else find_reference_flaw(kind, text, read)
        if wrong:
            found.append(SchemaProblem(f"/role_contract/{kind}", wrong))
    return tuple(found)


def summarise_role(contract: TaskContract) -> dict[str, Json]:
    """The ``role_contract_summary``: what the user sees before the contract is carried out."""
    given = contract.role_contract
    tools = contract.tool_permissions
    return {
        "authority": "contract-derived-read-model",
        "execution_authority": "task_contract",
        "task_id": contract.task_id,
        "role": contract.assigned_agent.role,
        "agent_id": contract.assigned_agent.agent_id,
        "purpose": given.purpose if given else None,
        "system_prompt_ref": given.system_prompt_ref if given else None,
        "skills_bundle_ref": given.skills_bundle_ref if given else None,
        "mcp_bundle_ref": given.mcp_bundle_ref if given else None,
        "runtime_binding": dict(_runtime(contract).json()),
        "tool_permissions": dict(permissions.effective(tools).json()),
        "mcp_tools": list(tools.mcp_tools),
        "resolved_mcp_tool_set": list(contract.mcp_tool_set),
        "allowed_paths": list(contract.allowed_paths),
        "acceptance_tests": [test.cmd for test in contract.acceptance_tests],
        "handoff": dict(given.handoff.json()) if given else None,
        "fail_closed_conditions": list(given.fail_closed_conditions) if given else [],
    }


def binding_summary(contract: TaskContract) -> dict[str, Json]:
    """The ``role_binding_summary`` of a manifest: a read model that nothing is executed by."""
    given = contract.role_contract
    skills = given.skills_bundle_ref if given else None
    bundle = given.mcp_bundle_ref if given else None
    values = [(key, getattr(_runtime(contract), key)) for key in ("runner", "provider", "model")]
    chosen = [value is not None for _, value in values]
    status: BindingStatus = "partially-resolved" if any(chosen) else "unresolved"
    tools = permissions.effective(contract.tool_permissions)
    return RoleBindingSummary(
        authority="contract-derived-read-model",
        source="role_contract" if given else "task_contract",
        execution_authority="task_contract",
        skills_bundle_ref=SkillsBinding(
            status="registry-backed" if skills else "unresolved",
            ref=skills,
            bundle_id=skills.partition("#")[2] or None if skills else None,
            resolved_skill_set=(),
            validation="fail-closed",
        ),
        mcp_bundle_ref=McpBinding(
            status="registry-backed" if bundle else "resolved",
            ref=bundle,
            bundle_id=bundle.partition("#")[2] or None if bundle else None,
            resolved_mcp_tool_set=contract.mcp_tool_set,
            validation="fail-closed",
        ),
        runtime_binding=RuntimeBindingSummary(
            status="contract-derived" if all(chosen) else status,
            authority_scope="contract-derived-read-model",
            source=BindingValues(
                **{key: f"runtime_options.{key}" if value else None for key, value in values}
            ),
            summary=BindingValues(**dict(values)),
            capability=BindingCapability.of(tools.json()),
        ),
    ).json()


def _runtime(contract: TaskContract) -> RuntimeBinding:
    chosen = contract.runtime_options
    return RuntimeBinding(
        runner=chosen.runner if chosen else None,
        provider=chosen.provider if chosen else None,
        model=chosen.model if chosen else None,
    )


def _differences(where: str, given: Json, expected: Json) -> list[SchemaProblem]:
    if isinstance(given, dict) and isinstance(expected, dict):
        return [
            problem
            for key in expected
            for problem in _differences(f"{where}/{key}", given.get(key), expected[key])
        ]
    if given == expected:
        return []
    return [SchemaProblem(where, "is not what the contract and the registry say")]


def find_reference_flaw(kind: str, text: str, read: Callable[[str], bytes | None]) -> str | None:
    """Say why a reference leads nowhere; ``None``: it leads to a file, and to what it must."""
    name, mark, fragment = text.partition("#")
    wrong = paths.find_path_flaw(name)
    if wrong or name.endswith("/"):
        return wrong or f"{quote_text(name)} is a directory"
    data = read(name)
    if data is None:
        return f"the file {quote_text(name)} does not exist"
    if len(data) > MAX_REFERENCED_BYTES:
        return f"{quote_text(name)} has more than {MAX_REFERENCED_BYTES} bytes"
    if not mark:
        return None
    if _SOURCES.get(kind) != name:
        return f"a fragment may point into {_SOURCES.get(kind, 'no file')} only"
    try:
        found = _resolve(parse_document(data), fragment)
    except (UsageError, LookupError):
        return f"{quote_text(fragment)} leads nowhere in {quote_text(name)}"
    wanted = found.get("skills") if isinstance(found, dict) else found
    if isinstance(found, dict) == (kind == "mcp_bundle_ref"):
        return f"{quote_text(fragment)} leads to the wrong thing in {quote_text(name)}"
    if not isinstance(wanted, list) or not wanted:
        return f"{quote_text(fragment)} leads to an empty list in {quote_text(name)}"
    return None


def _resolve(document: Json, fragment: str) -> Json:
    """Return what a fragment leads to; ``LookupError`` when it leads nowhere."""
    if fragment.startswith("/"):
        parts = fragment[1:].split("/")
        for part in parts:
            document = _member(document, part.replace("~1", "/").replace("~0", "~"))
        return document
    for part in fragment.split("."):
        match = _NAME.fullmatch(part)
        if match is None:
            raise LookupError(part)
        document = _member(document, match[1])
        if match[2]:
            document = _choose(document, match[2], match[3])
    return document


def _choose(value: Json, key: str, wanted: str) -> Json:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item.get(key) == wanted:
            return item
    raise LookupError(wanted)


def _member(value: Json, name: str) -> Json:
    if isinstance(value, dict):
        return value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit():
        return value[int(name)]
    raise LookupError(name)


ARTIFACT: Final = "output_schema"


def make_binding(role: Role) -> InputArtifact:
    """The binding of a role's output schema."""
    name = OUTPUT_SCHEMA[role]
    return InputArtifact(
        name=f"{ARTIFACT}.{role.lower()}", uri=schemas.uri(name), sha256=schemas.sha256(name)
    )


def is_binding(candidate: InputArtifact) -> bool:
    return candidate.name.partition(".")[0] == ARTIFACT


def bind_output_schema(contract: TaskContract) -> TaskContract:
    """Return the contract with its assigned role's schema bound; an existing binding is kept."""
    if any(map(is_binding, contract.inputs.artifacts)):
        return contract
    added = make_binding(contract.assigned_agent.role)
    inputs = replace(contract.inputs, artifacts=(*contract.inputs.artifacts, added))
    return replace(contract, inputs=inputs)


def find_binding_problems(contract: TaskContract) -> Iterator[SchemaProblem]:
    """Yield what is wrong with the binding; every role answers in a bound form."""
    role = contract.assigned_agent.role
    expected = make_binding(role)
    count = 0
    for index, given in enumerate(contract.inputs.artifacts):
        if not is_binding(given):
            continue
        count += 1
        where = f"/inputs/artifacts/{index}"
        if given.name not in {ARTIFACT, expected.name}:
            what = f"the binding is called {ARTIFACT} or {expected.name}"
            yield SchemaProblem(f"{where}/name", what)
        if given.uri != expected.uri:
            what = f"{role} answers in the form of {expected.uri}, not of {quote_text(given.uri)}"
            yield SchemaProblem(f"{where}/uri", what)
        elif given.sha256.lower() != expected.sha256:
            what = f"is not the SHA-256 of {expected.uri} as it is here"
            yield SchemaProblem(f"{where}/sha256", what)
    if count != 1:
        what = f"binds {count} output schemas; there has to be one, called {expected.name}"
        yield SchemaProblem("/inputs/artifacts", what)
