"""What must hold of a contract beyond its schema; everything that is wrong, in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts import (
    binding,
    handoffrules,
    pathrules,
    paths,
    permissions,
    rolecontract,
)
from coilclaw.contracts.policyset import FOLDER
from coilclaw.contracts.roles import PLANNERS
from coilclaw.contracts.schemas import MAX_PROBLEMS, Problem
from coilclaw.contracts.trivial import is_trivial
from coilclaw.domain.canonical import digest
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract

CHANGES: Final = frozenset({"patch", "commit", "file"})
"""Outputs that need a writable tree."""
_REFS: Final = ("baseline_ref", "target_ref")


def problems(
    contract: TaskContract,
    policies: PolicySet,
    *,
    known_files: Callable[[str], bytes | None],
) -> tuple[Problem, ...]:
    """Return everything that is wrong with a contract whose schema holds.

    ``known_files`` gives the content of a file of the baseline, or of the run's evidence, by its
    relative path.
    """

    def read(name: str) -> bytes | None:
        folder, _, rest = name.partition("/")
        # What the policies refer to among themselves is what was read as the policies.
        return policies.contents.get(rest) if folder == FOLDER else known_files(name)

    found = (
        *_identity(contract),
        *pathrules.problems(contract, policies),
        *_agents(contract, policies),
        *_permissions(contract, policies),
        *_mcp(contract, policies),
        *binding.problems(contract),
        *_artifacts(contract, known_files),
        *_tests(contract, policies),
        *_setup(contract, policies),
        *_limits(contract, policies),
        *_rollback(contract),
        *_outputs(contract),
        *_actions(contract),
        *handoffrules.problems(contract),
        *rolecontract.problems(contract, policies.registry, read),
        *_browser(contract),
    )
    return tuple(dict.fromkeys(found))[:MAX_PROBLEMS]


def _identity(contract: TaskContract) -> Iterator[Problem]:
    if not contract.task_id.isprintable() or contract.task_id != contract.task_id.strip():
        yield Problem("/task_id", f"{shown(contract.task_id)} has characters that cannot be seen")
    if contract.parent_task_id == contract.task_id:
        yield Problem("/parent_task_id", "the contract is its own parent")
    if not contract.inputs.spec.strip():
        yield Problem("/inputs/spec", "is blank")


def _agents(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    for key, agent in (
        ("owner_agent", contract.owner_agent),
        ("assigned_agent", contract.assigned_agent),
    ):
        if policies.registry.find(agent.agent_id, agent.role) is None:
            yield Problem(
                f"/{key}", f"the registry has no agent {shown(agent.agent_id)} as {agent.role}"
            )


def _permissions(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    assigned = contract.assigned_agent
    agent = policies.registry.find(assigned.agent_id, assigned.role)
    asked = contract.tool_permissions
    if agent is not None:
        yield from permissions.over_asked(asked, agent)
    yield from permissions.exceeding(
        asked, policies.pack.ceilings, asked.mcp_tools, f"the pack {policies.pack.pack}"
    )
    wanted = policies.pack_for(contract)
    if not policies.is_stricter(wanted):
        yield Problem("/policy_pack", f"is {wanted}, and the run has {policies.pack.pack}")


def _mcp(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    for index, tool in enumerate(contract.mcp_tool_set):
        if tool not in policies.mcp_allowed:
            yield Problem(f"/mcp_tool_set/{index}", f"{shown(tool)} is not on the MCP allowlist")
    for index, tool in enumerate(contract.tool_permissions.mcp_tools):
        where = f"/tool_permissions/mcp_tools/{index}"
        if tool not in contract.mcp_tool_set:
            yield Problem(where, f"{shown(tool)} is not in mcp_tool_set")
        if tool not in policies.mcp_allowed:
            yield Problem(where, f"{shown(tool)} is not on the MCP allowlist")


def _artifacts(
    contract: TaskContract, known_files: Callable[[str], bytes | None]
) -> Iterator[Problem]:
    names: set[str] = set()
    for index, artifact in enumerate(contract.inputs.artifacts):
        where = f"/inputs/artifacts/{index}"
        if artifact.name in names:
            yield Problem(f"{where}/name", f"{shown(artifact.name)} is there twice")
        names.add(artifact.name)
        if binding.is_binding(artifact):
            continue
        wrong = paths.flaw(artifact.uri)
        if wrong:
            yield Problem(f"{where}/uri", wrong)
            continue
        data = known_files(artifact.uri)
        if data is None:
            yield Problem(f"{where}/uri", f"there is no file {shown(artifact.uri)}")
        elif digest(data) != artifact.sha256.lower():
            yield Problem(f"{where}/sha256", f"is not the SHA-256 of {shown(artifact.uri)}")


def _tests(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    options = contract.runtime_options
    strict = policies.pack.strict_acceptance or bool(options and options.strict_acceptance)
    names: set[str] = set()
    if not any(test.must_pass for test in contract.acceptance_tests):
        yield Problem("/acceptance_tests", "no test must pass, so nothing could fail")
    for index, test in enumerate(contract.acceptance_tests):
        where = f"/acceptance_tests/{index}"
        if not test.cmd.strip():
            yield Problem(f"{where}/cmd", "is blank")
        elif strict and is_trivial(test.cmd):
            yield Problem(f"{where}/cmd", f"{shown(test.cmd)} tests nothing")
        if test.name in names:
            yield Problem(f"{where}/name", f"{shown(test.name)} is there twice")
        names.add(test.name)
        if (test.timeout_sec or 0) > policies.pack.limits.max_timeout_sec:
            yield Problem(f"{where}/timeout_sec", _too_long(policies))
    policy = contract.test_policy
    if policy is not None and policy not in policies.pack.test_policies:
        yield Problem("/test_policy", f"{policies.pack.pack} does not allow {policy}")


def _setup(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    """The set-up is run by the orchestrator, so that the pack bounds it, and no agent's default."""
    names: set[str] = set()
    most = policies.pack.ceilings.network
    for index, command in enumerate(policies.setup_for(contract)):
        where = f"/setup/{index}"
        if not command.cmd.strip():
            yield Problem(f"{where}/cmd", "is blank")
        if command.name in names:
            yield Problem(f"{where}/name", f"{shown(command.name)} is there twice")
        names.add(command.name)
        if (command.timeout_sec or 0) > policies.pack.limits.max_timeout_sec:
            yield Problem(f"{where}/timeout_sec", _too_long(policies))
        if command.may_use_network and permissions.exceeds("network", "allow", most):
            yield Problem(
                f"{where}/network", f"asks for allow, and the pack {policies.pack.pack} has {most}"
            )


def _limits(contract: TaskContract, policies: PolicySet) -> Iterator[Problem]:
    limits = policies.pack.limits
    if contract.timeout_retry.timeout_sec > limits.max_timeout_sec:
        yield Problem("/timeout_retry/timeout_sec", _too_long(policies))
    if contract.timeout_retry.max_retries > limits.max_retries:
        yield Problem(
            "/timeout_retry/max_retries",
            f"is more than the {limits.max_retries} that {policies.pack.pack} allows",
        )


def _too_long(policies: PolicySet) -> str:
    most = policies.pack.limits.max_timeout_sec
    return f"is longer than the {most} s that {policies.pack.pack} allows"


def _rollback(contract: TaskContract) -> Iterator[Problem]:
    rollback = contract.rollback
    for key in _REFS:
        text = getattr(rollback, key)
        if text is not None and not _is_ref(text):
            yield Problem(f"/rollback/{key}", f"{shown(text)} names no commit")
    if rollback.strategy == "git_revert_commit":
        if rollback.target_ref is None:
            yield Problem("/rollback/target_ref", "git_revert_commit needs the commit to revert")
        elif rollback.target_ref == rollback.baseline_ref:
            yield Problem("/rollback/target_ref", "reverting the baseline undoes somebody's work")
    elif rollback.target_ref is not None:
        yield Problem("/rollback/target_ref", "belongs to git_revert_commit only")


def _is_ref(text: str) -> bool:
    """Whether a text may be given to git as the name of a commit."""
    odd = any(char.isspace() or not char.isprintable() for char in text)
    return not odd and not text.startswith("-") and ".." not in text and ":" not in text


def _outputs(contract: TaskContract) -> Iterator[Problem]:
    names: set[str] = set()
    for index, output in enumerate(contract.required_outputs):
        where = f"/required_outputs/{index}"
        if output.name in names:
            yield Problem(f"{where}/name", f"{shown(output.name)} is there twice")
        names.add(output.name)
        if contract.tool_permissions.filesystem == "read-only" and output.type in CHANGES:
            # A planner writes nothing; the contracts that it makes do.
            if contract.assigned_agent.role in PLANNERS:
                continue
            yield Problem(f"{where}/type", f"a read-only task cannot have a {output.type}")


def _actions(contract: TaskContract) -> Iterator[Problem]:
    for index, action in enumerate(contract.forbidden_actions):
        if not action.strip() or not action.isprintable():
            yield Problem(f"/forbidden_actions/{index}", f"{shown(action)} cannot be read")


def _browser(contract: TaskContract) -> Iterator[Problem]:
    """Nothing here drives a browser, so that nothing could hold what such a policy asks for."""
    policy = contract.browser_policy
    if policy is None:
        return
    if policy.profile_mode not in {None, "ephemeral"} or policy.profile_ref or policy.cookie_ref:
        yield Problem("/browser_policy", "no browser profile and no cookies are lent to an agent")
    disguised = policy.human_behavior is not None and policy.human_behavior.enabled
    if policy.stealth_mode not in {None, "none"} or disguised:
        yield Problem("/browser_policy", "no agent is disguised as a person")
