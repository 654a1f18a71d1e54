"""What must hold of a contract beyond its schema; everything that is wrong, in one pass."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import MAX_SCHEMA_PROBLEMS, SchemaProblem, digest_bytes, fold_name, quote_text
from coilclaw.policy import is_trivial
from coilclaw.runs.contracts import paths, permissions, role_contract
from coilclaw.runs.contracts.policy_set import FOLDER
from coilclaw.runs.contracts.roles import HANDOFF_ORDER, PLANNERS, SPINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.task_contract import TaskContract

CHANGES: Final = frozenset({"patch", "commit", "file"})
"""Outputs that need a writable tree."""


def find_rule_problems(
    contract: TaskContract, policies: PolicySet, *, known_files: Callable[[str], bytes | None]
) -> tuple[SchemaProblem, ...]:
    """Return everything that is wrong with a contract whose schema holds.

    ``known_files`` gives the content of a file of the baseline, or of the run's evidence, by its
    relative path.
    """

    def read(name: str) -> bytes | None:
        folder, _, rest = name.partition("/")
        # What the policies refer to among themselves is what was read as the policies.
        return policies.contents.get(rest) if folder == FOLDER else known_files(name)

    found = (
        *_check_identity(contract),
        *_check_allowed_paths(contract, policies),
        *_check_inner_paths(contract, policies),
        *_check_agents(contract, policies),
        *_check_mcp_tools(contract, policies),
        *role_contract.find_binding_problems(contract),
        *_check_artifacts(contract, known_files),
        *_check_tests(contract, policies),
        *_check_setup(contract, policies),
        *_check_limits(contract, policies),
        *_check_rollback(contract),
        *_check_outputs(contract),
        *_check_handoffs(contract),
        *role_contract.find_role_problems(contract, policies.registry, read),
        *_check_browser(contract),
    )
    return tuple(dict.fromkeys(found))[:MAX_SCHEMA_PROBLEMS]


def _check_identity(contract: TaskContract) -> Iterator[SchemaProblem]:
    if not contract.task_id.isprintable() or contract.task_id != contract.task_id.strip():
        yield SchemaProblem(
            "/task_id", f"{quote_text(contract.task_id)} has characters that cannot be seen"
        )
    if contract.parent_task_id == contract.task_id:
        yield SchemaProblem("/parent_task_id", "the contract is its own parent")
    if not contract.inputs.spec.strip():
        yield SchemaProblem("/inputs/spec", "is blank")
    for index, action in enumerate(contract.forbidden_actions):
        if not action.strip() or not action.isprintable():
            yield SchemaProblem(
                f"/forbidden_actions/{index}", f"{quote_text(action)} cannot be read"
            )


def _check_allowed_paths(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    most = policies.pack.limits.max_allowed_paths
    if len(contract.allowed_paths) > most:
        what = f"has more than the {most} paths that {policies.pack.pack} allows"
        yield SchemaProblem("/allowed_paths", what)
    seen: set[str] = set()
    for index, path in enumerate(contract.allowed_paths):
        where = f"/allowed_paths/{index}"
        wrong = paths.find_path_flaw(path)
        if wrong:
            yield SchemaProblem(where, wrong)
            continue
        plain = path.removesuffix("/")
        if plain in seen:
            yield SchemaProblem(where, f"{quote_text(path)} is there twice")
        seen.add(plain)
        for protected in policies.forbidden.protected_paths:
            if _is_protected(plain, protected):
                yield SchemaProblem(
                    where, f"{quote_text(path)} is protected by {quote_text(protected)}"
                )


def _is_protected(path: str, protected: str) -> bool:
    """Tell whether a scope is a protected path or lies in it.

    A bare name is protected everywhere, and with ``.env`` its variants, but not the example.
    """
    if len(paths.segments(protected)) > 1:
        return paths.overlap(path, protected)
    bare = fold_name(protected)
    return any(
        name == bare or (name.startswith(f"{bare}.") and not name.endswith(".example"))
        for name in map(fold_name, paths.segments(path))
    )


def _check_inner_paths(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    for key, listed in (("binary_paths", contract.binary_paths), ("locks", contract.locks)):
        for index, path in enumerate(listed or ()):
            wrong = paths.find_path_flaw(path)
            if not wrong and not paths.is_within(path, contract.allowed_paths):
                wrong = f"{quote_text(path)} is not in allowed_paths"
            if wrong:
                yield SchemaProblem(f"/{key}/{index}", wrong)
    if contract.binary_paths and not policies.pack.binary_changes:
        yield SchemaProblem("/binary_paths", f"{policies.pack.pack} allows no binary changes")


def _check_agents(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    agent = None
    for key in ("owner_agent", "assigned_agent"):
        named = getattr(contract, key)
        agent = policies.registry.find(named.agent_id, named.role)
        if agent is None:
            what = f"the registry has no agent {quote_text(named.agent_id)} as {named.role}"
            yield SchemaProblem(f"/{key}", what)
    asked = contract.tool_permissions
    if agent is not None:
        yield from permissions.find_over_asked(asked, agent)
    yield from permissions.find_exceeding(
        asked, policies.pack.ceilings, asked.mcp_tools, f"the pack {policies.pack.pack}"
    )
    wanted = policies.pack_for(contract)
    if not policies.is_stricter(wanted):
        yield SchemaProblem("/policy_pack", f"is {wanted}, and the run has {policies.pack.pack}")


def _check_mcp_tools(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    for index, tool in enumerate(contract.mcp_tool_set):
        if tool not in policies.mcp_allowed:
            yield SchemaProblem(
                f"/mcp_tool_set/{index}", f"{quote_text(tool)} is not on the MCP allowlist"
            )
    for index, tool in enumerate(contract.tool_permissions.mcp_tools):
        where = f"/tool_permissions/mcp_tools/{index}"
        if tool not in contract.mcp_tool_set:
            yield SchemaProblem(where, f"{quote_text(tool)} is not in mcp_tool_set")
        if tool not in policies.mcp_allowed:
            yield SchemaProblem(where, f"{quote_text(tool)} is not on the MCP allowlist")


def _check_names(key: str, names: Iterable[str]) -> Iterator[SchemaProblem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield SchemaProblem(f"/{key}/{index}/name", f"{quote_text(name)} is there twice")
        seen.add(name)


def _check_artifacts(
    contract: TaskContract, known_files: Callable[[str], bytes | None]
) -> Iterator[SchemaProblem]:
    yield from _check_names("inputs/artifacts", [each.name for each in contract.inputs.artifacts])
    for index, artifact in enumerate(contract.inputs.artifacts):
        if role_contract.is_binding(artifact):
            continue
        where = f"/inputs/artifacts/{index}"
        wrong = paths.find_path_flaw(artifact.uri)
        data = None if wrong else known_files(artifact.uri)
        if data is None:
            yield SchemaProblem(
                f"{where}/uri", wrong or f"the file {quote_text(artifact.uri)} does not exist"
            )
        elif digest_bytes(data) != artifact.sha256.lower():
            yield SchemaProblem(
                f"{where}/sha256", f"is not the SHA-256 of {quote_text(artifact.uri)}"
            )


def _check_tests(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    options = contract.runtime_options
    strict = policies.pack.strict_acceptance or bool(options and options.strict_acceptance)
    if not any(test.must_pass for test in contract.acceptance_tests):
        yield SchemaProblem("/acceptance_tests", "no test must pass, so nothing could fail")
    yield from _check_names("acceptance_tests", [test.name for test in contract.acceptance_tests])
    for index, test in enumerate(contract.acceptance_tests):
        where = f"/acceptance_tests/{index}"
        if not test.cmd.strip():
            yield SchemaProblem(f"{where}/cmd", "is blank")
        elif strict and is_trivial(test.cmd):
            yield SchemaProblem(f"{where}/cmd", f"{quote_text(test.cmd)} tests nothing")
        yield from _check_time(f"{where}/timeout_sec", test.timeout_sec, policies)
    policy = contract.test_policy
    if policy is not None and policy not in policies.pack.test_policies:
        yield SchemaProblem("/test_policy", f"{policies.pack.pack} does not allow {policy}")


def _check_setup(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    """Check the set-up, which the orchestrator runs: the pack bounds it, not an agent's default."""
    setup = policies.setup_for(contract)
    most = policies.pack.ceilings.network
    yield from _check_names("setup", [command.name for command in setup])
    for index, command in enumerate(setup):
        where = f"/setup/{index}"
        if not command.cmd.strip():
            yield SchemaProblem(f"{where}/cmd", "is blank")
        yield from _check_time(f"{where}/timeout_sec", command.timeout_sec, policies)
        if command.may_use_network and permissions.exceeds("network", "allow", most):
            what = f"asks for allow, and the pack {policies.pack.pack} has {most}"
            yield SchemaProblem(f"{where}/network", what)


def _check_time(where: str, seconds: int | None, policies: PolicySet) -> Iterator[SchemaProblem]:
    most = policies.pack.limits.max_timeout_sec
    if (seconds or 0) > most:
        yield SchemaProblem(where, f"is longer than the {most} s that {policies.pack.pack} allows")


def _check_limits(contract: TaskContract, policies: PolicySet) -> Iterator[SchemaProblem]:
    most = policies.pack.limits.max_retries
    given = contract.timeout_retry
    yield from _check_time("/timeout_retry/timeout_sec", given.timeout_sec, policies)
    if given.max_retries > most:
        what = f"is more than the {most} that {policies.pack.pack} allows"
        yield SchemaProblem("/timeout_retry/max_retries", what)


def _check_rollback(contract: TaskContract) -> Iterator[SchemaProblem]:
    rollback = contract.rollback
    for key in ("baseline_ref", "target_ref"):
        text = getattr(rollback, key)
        if text is not None and not _is_ref(text):
            yield SchemaProblem(f"/rollback/{key}", f"{quote_text(text)} names no commit")
    if rollback.strategy == "git_revert_commit":
        if rollback.target_ref is None:
            yield SchemaProblem(
                "/rollback/target_ref", "git_revert_commit needs the commit to revert"
            )
        elif rollback.target_ref == rollback.baseline_ref:
            yield SchemaProblem(
                "/rollback/target_ref", "reverting the baseline undoes the work of others"
            )
    elif rollback.target_ref is not None:
        yield SchemaProblem("/rollback/target_ref", "belongs to git_revert_commit only")


def _is_ref(text: str) -> bool:
    """Tell whether a text may be given to git as the name of a commit."""
    odd = any(char.isspace() or not char.isprintable() for char in text)
    return not odd and not text.startswith("-") and ".." not in text and ":" not in text


def _check_outputs(contract: TaskContract) -> Iterator[SchemaProblem]:
    yield from _check_names("required_outputs", [each.name for each in contract.required_outputs])
    # A planner writes nothing; the contracts that it makes do.
    planner = contract.assigned_agent.role in PLANNERS
    if planner or contract.tool_permissions.filesystem != "read-only":
        return
    for index, output in enumerate(contract.required_outputs):
        if output.type in CHANGES:
            what = f"a read-only task cannot have a {output.type}"
            yield SchemaProblem(f"/required_outputs/{index}/type", what)


def _check_handoffs(contract: TaskContract) -> Iterator[SchemaProblem]:
    """Check the chain along which work is handed on; one that is not enabled binds nothing."""
    chain = contract.handoff_chain
    if chain is None or not chain.enabled:
        return
    roles = chain.roles or ()
    where = "/handoff_chain/roles"
    if not roles:
        yield SchemaProblem(where, "the chain is enabled and names no role")
        return
    for index, (before, after) in enumerate(pairwise(roles), 1):
        if HANDOFF_ORDER.index(before) >= HANDOFF_ORDER.index(after):
            yield SchemaProblem(f"{where}/{index}", f"{after} does not come after {before}")
    present = [index for index, role in enumerate(SPINE) if role in roles]
    for role in SPINE[present[0] : present[-1]] if present else ():
        if role not in roles:
            yield SchemaProblem(where, f"{role} is left out between two that are there")
    if roles[0] != contract.owner_agent.role:
        yield SchemaProblem(f"{where}/0", f"the owner is {contract.owner_agent.role}")
    if roles[-1] != contract.assigned_agent.role:
        what = f"the assigned agent is {contract.assigned_agent.role}"
        yield SchemaProblem(f"{where}/{len(roles) - 1}", what)
    if chain.max_handoffs is not None and len(roles) - 1 > chain.max_handoffs:
        what = f"{len(roles)} roles need {len(roles) - 1} handoffs"
        yield SchemaProblem("/handoff_chain/max_handoffs", what)


def _check_browser(contract: TaskContract) -> Iterator[SchemaProblem]:
    """Refuse what only a browser could hold: nothing here drives one."""
    policy = contract.browser_policy
    if policy is None:
        return
    if policy.profile_mode not in {None, "ephemeral"} or policy.profile_ref or policy.cookie_ref:
        yield SchemaProblem(
            "/browser_policy", "no browser profile and no cookies are lent to an agent"
        )
    disguised = policy.human_behavior is not None and policy.human_behavior.enabled
    if policy.stealth_mode not in {None, "none"} or disguised:
        yield SchemaProblem("/browser_policy", "no agent is disguised as a person")
