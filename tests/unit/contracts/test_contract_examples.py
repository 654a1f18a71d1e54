"""The examples: every one is a contract that would be accepted."""

from __future__ import annotations

import shlex
from importlib import resources

import pytest

from coilclaw.runs.contracts import rules, task_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.gates.command import CommandTerms, judge_text
from tests.support.repository import ROOT

FOLDER = ROOT / "contracts" / "examples"
NAMES = sorted(path.name for path in FOLDER.glob("*.json"))


def test_there_are_enough_and_the_readme_names_them_all() -> None:
    assert len(NAMES) >= 6
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_valid_with_the_policies_that_we_ship(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    document = task_contract.parse_document(data)
    contract = TaskContract.of(document)
    assert contract.json() == document
    policies = PolicySet.read_shipped()
    policies = policies.under(policies.pack_for(contract))
    assert rules.find_rule_problems(contract, policies, known_files=lambda _: None) == ()
    shipped = resources.files("coilclaw.runs.contracts") / "examples" / name
    assert shipped.read_bytes() == data


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_an_example_may_be_run(name: str) -> None:
    contract = TaskContract.of(task_contract.parse_document((FOLDER / name).read_bytes()))
    policies = PolicySet.read_shipped(contract.policy_pack)
    terms = CommandTerms(
        rules=policies.commands,
        forbidden_actions=(*policies.forbidden_actions, *contract.forbidden_actions),
        is_file=lambda _: False,
    )
    for test in contract.acceptance_tests:
        assert shlex.split(test.cmd)
        assert judge_text(test.cmd, terms=terms, timeout_sec=test.timeout_sec).violations == ()


def test_the_examples_show_what_they_should() -> None:
    found = {
        name: TaskContract.of(task_contract.parse_document((FOLDER / name).read_bytes()))
        for name in NAMES
    }
    assert {contract.policy_pack for contract in found.values()} == {"low", "medium", "high"}
    assert found["tech_lead_split.json"].assigned_agent.role == "TECH_LEAD"
    assert found["read_only_audit.json"].tool_permissions.filesystem == "read-only"
    assert found["from_request.json"].handoff_chain is not None
