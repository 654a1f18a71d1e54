"""Judge a contract before work starts, and the form of what comes back.

The policy gate: no more than the role needs, and nothing broad without a person's yes.

``policy.agent`` the agent is not registered in its role · ``policy.permission`` more is asked than
the registry or the pack grants · ``policy.danger`` full access to the machine ·
``policy.path`` a path that is never granted · ``policy.broad`` a path that needs an override ·
``policy.mcp`` an MCP tool that is not on the allowlist · ``policy.pack`` a pack that is unknown or
weaker than the contract's

The MCP gate: which tools of MCP servers a task may call. A list that is missing denies all.

``mcp.allowlist`` there is none, or it is malformed · ``mcp.unknown`` a tool that it does not name ·
``mcp.denied`` one that it denies · ``mcp.unbound`` a tool of a server that the contract does not
start

The output schema gate: an agent's answer is JSON of the bound schema, and nothing beside it.

``output.binding`` no schema is bound · ``output.missing`` the JSON answer is missing ·
``output.not_json`` text that is not one JSON object · ``output.schema`` the schema says no ·
``output.task`` an answer for another task
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError, quote_text
from coilclaw.runs.contracts.paths import broad_paths, find_path_flaw
from coilclaw.runs.contracts.permissions import find_exceeding, find_over_asked
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.gates.result import GateResult, Violation, find_malformed_names
from coilclaw.runs.gates.scope import find_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from coilclaw.kernel import Json, SchemaProblem
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.task_contract import TaskContract


INTEGRATED: Final = "integrated_gate"


def judge_integrated(required: Sequence[str], *, integrated: Sequence[str] | None) -> GateResult:
    """Judge what a run needs: its runner and whatever else it was promised."""
    found = [*find_malformed_names("integrated.names", "required", required)]
    if integrated is None:
        found.append(Violation("integrated.registry", "the policies have no registry of tools"))
    else:
        found += find_malformed_names("integrated.registry", "integrated", integrated)
    found += [
        Violation("integrated.missing", f"{quote_text(name)} is not integrated", name)
        for name in dict.fromkeys(required)
        if name not in (integrated or ())
    ]
    return GateResult(INTEGRATED, tuple(found), {"required": [*required]})


MCP: Final = "mcp_gate"


def judge_mcp_tools(
    tools: Sequence[str],
    *,
    servers: Sequence[str],
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
) -> GateResult:
    """Judge what a contract asks for: ``mcp_tools``, and the servers of ``mcp_tool_set``."""
    found: list[Violation] = []
    for key, names in (("mcp_tools", tools), ("mcp_tool_set", servers)):
        found += find_malformed_names("mcp.names", key, names)
    if allow is None or deny is None:
        found.append(Violation("mcp.allowlist", "the policies have no allowlist of MCP tools"))
    else:
        for key, names in (("allow", allow), ("deny", deny)):
            found += find_malformed_names("mcp.allowlist", key, names)
    for name in dict.fromkeys((*tools, *servers)):
        if name not in (allow or ()):
            found.append(
                Violation("mcp.unknown", f"{quote_text(name)} is not in the allowlist", name)
            )
        if name in (deny or ()):
            found.append(Violation("mcp.denied", f"{quote_text(name)} is denied", name))
    for name in dict.fromkeys(tools):
        if name not in servers:
            message = f"{quote_text(name)} is not among the servers that the contract starts"
            found.append(Violation("mcp.unbound", message, name))
    return GateResult(MCP, tuple(found), {"tools": [*tools], "servers": [*servers]})


NETWORK: Final = "network_gate"


def judge_network(policy: str, *, needed_by: Sequence[str], approved: bool) -> GateResult:
    """Judge a policy against what needs the network; ``approved`` is for this run and task only."""
    found = []
    needed = ", ".join(quote_text(item) for item in needed_by[:10])
    if policy not in {"deny", "on-request", "allow"}:
        found.append(Violation("network.policy", f"{quote_text(policy)} is not a network policy"))
    elif needed_by and policy == "deny":
        found.append(Violation("network.denied", f"{needed} would need the network"))
    elif needed_by and policy == "on-request" and not approved:
        found.append(Violation("network.approval", f"no approval allows the network for {needed}"))
    facts: dict[str, Json] = {"policy": policy, "needed": bool(needed_by), "approved": approved}
    return GateResult(NETWORK, tuple(found), facts)


SAMPLING_GATE: Final = "sampling_gate"
SAMPLING: Final = frozenset({"sampling", "mcp.sampling", "mcp/sampling", "mcp:sampling"})


def judge_sampling(tools: Sequence[str], *, approved: bool) -> GateResult:
    """Judge the tools and servers that a contract allows."""
    found = [*find_malformed_names("sampling.names", "mcp_tools", tools)]
    asked = [name for name in tools if str(name).casefold() in SAMPLING]
    if asked and not approved:
        found.append(
            Violation("sampling.approval", "no approval lets a server ask for completions")
        )
    facts: dict[str, Json] = {"requested": bool(asked), "approved": approved}
    return GateResult(SAMPLING_GATE, tuple(found), facts)


POLICY: Final = "policy_gate"
DANGER: Final = "danger-full-access"


def judge_policy(
    contract: TaskContract,
    policies: PolicySet,
    *,
    directories: Collection[str],
    approved: Collection[str] = (),
) -> GateResult:
    """Judge what a contract asks for.

    ``directories`` are those of the baseline, ``approved`` the broad paths that an override
    allows for this run, where the pack lets one. What still needs one is in the facts as
    ``needs_approval``.
    """
    broad = broad_paths(
        contract.allowed_paths,
        directories=directories,
        segments_at_most=policies.pack.limits.broad_segments,
    )
    counted = approved if policies.pack.override_approvals else ()
    open_paths = [path for path in broad if path not in counted]
    found = [
        *_permissions(contract, policies),
        *_paths(contract),
        *_broad(open_paths, policies),
        *_tools(contract, policies),
    ]
    facts: dict[str, Json] = {
        "pack": str(policies.pack.pack),
        "needs_approval": [*open_paths],
        "broad": [*broad],
    }
    return GateResult(POLICY, tuple(found), facts)


def _permissions(contract: TaskContract, policies: PolicySet) -> Iterator[Violation]:
    assigned, asked = contract.assigned_agent, contract.tool_permissions
    if DANGER in {str(asked.filesystem), str(asked.shell), str(asked.network)}:
        yield Violation("policy.danger", f"no contract may ask for {DANGER}", "tool_permissions")
    agent = policies.registry.find(assigned.agent_id, assigned.role)
    if agent is None:
        message = f"the registry has no agent {quote_text(assigned.agent_id)} as {assigned.role}"
        yield Violation("policy.agent", message, "assigned_agent")
    problems = [*find_over_asked(asked, agent)] if agent is not None else []
    whose = f"the pack {policies.pack.pack}"
    problems += find_exceeding(asked, policies.pack.ceilings, asked.mcp_tools, whose)
    for item in problems:
        yield Violation("policy.permission", str(item), item.path)
    if not policies.is_stricter(policies.pack_for(contract)):
        message = f"the contract asks for more than {whose}"
        yield Violation("policy.pack", message, "policy_pack")


def _paths(contract: TaskContract) -> Iterator[Violation]:
    if not contract.allowed_paths:
        yield Violation("policy.path", "the contract allows no path", "allowed_paths")
    for path in contract.allowed_paths:
        wrong = find_path_flaw(path) or find_reason(path.removesuffix("/"))
        if wrong is not None:
            yield Violation("policy.path", f"{quote_text(path)}: {wrong}", "allowed_paths")


def _broad(paths: list[str], policies: PolicySet) -> Iterator[Violation]:
    for path in paths:
        how = (
            "which needs an override"
            if policies.pack.override_approvals
            else f"which the pack {policies.pack.pack} does not let a person approve"
        )
        message = f"{quote_text(path)} is a broad directory, {how}"
        yield Violation("policy.broad", message, "allowed_paths")


def _tools(contract: TaskContract, policies: PolicySet) -> Iterator[Violation]:
    for name in dict.fromkeys((*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set)):
        if name not in policies.mcp_allowed:
            yield Violation("policy.mcp", f"{quote_text(name)} is not on the MCP allowlist", name)


OUTPUT_SCHEMA: Final = "output_schema_gate"
MAX_PROBLEMS: Final = 100


def judge_output(
    value: Mapping[str, Json] | None,
    *,
    schema: str,
    problems: Sequence[str],
    task_id: str,
    reason: str = "",
) -> GateResult:
    """Judge an answer that was parsed; ``problems`` is what its schema says about it."""
    found = []
    if not schema:
        found.append(Violation("output.binding", "no output schema is bound"))
    if value is None:
        why = f": {reason}" if reason else ""
        found.append(Violation("output.missing", f"the structured answer is missing{why}"))
    found += [Violation("output.schema", text) for text in problems[:MAX_PROBLEMS]]
    said = None if value is None else value.get("task_id", task_id)
    if said is not None and said != task_id:
        message = (
            f"the answer is for {quote_text(str(said))}, and the task is {quote_text(task_id)}"
        )
        found.append(Violation("output.task", message, "task_id"))
    return GateResult(OUTPUT_SCHEMA, tuple(found), {"schema": schema, "task_id": task_id})


def judge_text(
    text: str, *, schema: str, check: Callable[[Mapping[str, Json]], Sequence[str]], task_id: str
) -> GateResult:
    """Judge an answer as it came; no fence is taken off and no text around it is overlooked."""
    try:
        value = parse_document(text.encode("utf-8"))
    except (UsageError, UnicodeEncodeError) as wrong:
        message = wrong.message if isinstance(wrong, UsageError) else "it is not valid Unicode"
        found = Violation("output.not_json", f"the answer is not one JSON object: {message}")
        return GateResult(OUTPUT_SCHEMA, (found,), {"schema": schema, "task_id": task_id})
    return judge_output(value, schema=schema, problems=check(value), task_id=task_id)


SCHEMA: Final = "schema_gate"


def judge_schema(
    name: str,
    *,
    schema_problems: Sequence[SchemaProblem],
    rule_problems: Sequence[SchemaProblem] = (),
    drift: str = "ok",
) -> GateResult:
    """Judge what ``contracts.schemas`` and ``contracts.rules`` found out about a document."""
    found = [Violation("schema.invalid", str(item), item.path) for item in schema_problems]
    found += [Violation("contract.rule", str(item), item.path) for item in rule_problems]
    if drift != "ok":
        found.append(Violation("schema.drift", f"the schemas do not match their hashes: {drift}"))
    return GateResult(SCHEMA, tuple(found), {"schema": name})
