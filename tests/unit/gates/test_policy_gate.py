"""The policy gate, with the policies that are shipped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import Agent, TaskContract
from coilclaw.runs.gates import contract_gates
from coilclaw.runs.gates.result import GateResult

POLICIES = PolicySet.read_shipped("low")
CONTRACT = draft_contract("Make it work.", ("src/a.py",), ("pytest -q",), policies=POLICIES)


def judged(
    contract: TaskContract,
    directories: Collection[str] = (),
    approved: Collection[str] = (),
    pack: str = "low",
) -> GateResult:
    policies = PolicySet.read_shipped(pack)
    return contract_gates.judge_policy(
        contract, policies, directories=directories, approved=approved
    )


def rules(result: GateResult) -> list[str]:
    return [violation.rule for violation in result.violations]


def asking(**change: Any) -> TaskContract:
    return replace(CONTRACT, tool_permissions=replace(CONTRACT.tool_permissions, **change))


def test_a_drafted_contract_passes() -> None:
    assert judged(CONTRACT) == GateResult(
        "policy_gate", (), {"pack": "low", "needs_approval": [], "broad": []}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"network": "allow"},
        {"network": "on-request"},
        {"shell": "on-request"},
        {"shell": "untrusted"},
        {"network": "everything"},
        {"mcp_tools": (*CONTRACT.tool_permissions.mcp_tools, "search")},
    ],
)
def test_defect_12_permissions_that_were_over_asked_are_refused(change: dict[str, Any]) -> None:
    assert "policy.permission" in rules(judged(asking(**change)))


def test_less_than_the_role_has_is_fine() -> None:
    assert judged(asking(filesystem="read-only", shell="deny", mcp_tools=())).passed
    assert judged(asking(shell=None)).passed


def test_full_access_is_never_a_contracts_to_ask_for() -> None:
    assert "policy.danger" in rules(judged(asking(filesystem="danger-full-access")))


def test_the_agent_has_to_be_registered_in_its_role() -> None:
    for agent in (
        replace(CONTRACT.assigned_agent, agent_id="nobody"),
        Agent(role="REVIEWER", agent_id=CONTRACT.assigned_agent.agent_id + "x"),
    ):
        assert "policy.agent" in rules(judged(replace(CONTRACT, assigned_agent=agent)))


@pytest.mark.parametrize(
    "path",
    ["", ".", "/", "**", "src/*", "../x", "/etc", ".git", "sub/.env", ".coilclaw", "a/.gitmodules"],
)
def test_paths_that_nobody_is_given(path: str) -> None:
    assert rules(judged(replace(CONTRACT, allowed_paths=(path,)))) == ["policy.path"]


def test_a_contract_without_paths() -> None:
    assert rules(judged(replace(CONTRACT, allowed_paths=()))) == ["policy.path"]


def test_a_broad_directory_needs_an_override() -> None:
    broad = replace(CONTRACT, allowed_paths=("src", "lib", "README.md", "new", "src/a"))
    result = judged(broad, {"src", "lib", "src/a"})
    assert rules(result) == ["policy.broad", "policy.broad"]
    assert result.facts["needs_approval"] == ["src", "lib"]
    half = judged(broad, {"src", "lib", "src/a"}, approved={"src"})
    assert half.facts["needs_approval"] == ["lib"]
    assert judged(broad, {"src", "lib"}, approved={"src", "lib"}).passed


def test_the_strictest_pack_lets_nobody_override() -> None:
    broad = replace(CONTRACT, allowed_paths=("src",), policy_pack="high")
    assert "policy.broad" in rules(judged(broad, {"src"}, approved={"src"}, pack="high"))


def test_mcp_tools_have_to_be_on_the_allowlist() -> None:
    assert "policy.mcp" in rules(judged(replace(CONTRACT, mcp_tool_set=("unheard-of",))))


def test_a_contract_is_not_judged_by_a_weaker_pack_than_its_own() -> None:
    strict = replace(CONTRACT, policy_pack="high")
    assert rules(judged(strict, pack="low")) == ["policy.pack"]
    assert judged(strict, pack="high").passed
    assert judged(replace(CONTRACT, policy_pack="low"), pack="high").passed
