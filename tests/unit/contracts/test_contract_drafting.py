"""Contracts that are made: complete, valid, with least privilege, the same each time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from coilclaw.kernel import canonical_json, schemas
from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts import draft, role_contract, rules
from coilclaw.runs.contracts.manifest import RoleBindingSummary
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.roles import OUTPUT_SCHEMA, ROLES, Role
from coilclaw.runs.contracts.task_contract import (
    AcceptanceTest,
    HandoffChain,
    InputArtifact,
    RuntimeOptions,
    SetupCommand,
    TaskContract,
)

POLICIES = PolicySet.read_shipped()


def _draft(**changes: Any) -> TaskContract:
    given: dict[str, Any] = {
        "spec": "Do it.",
        "allowed_paths": ["src/a.py"],
        "tests": ["pytest -q"],
        "policies": POLICIES,
    }
    return draft.draft_contract(**{**given, **changes})


@pytest.mark.parametrize("change", [{"allowed_paths": []}, {"tests": []}, {"spec": ""}])
def test_what_is_no_contract_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        _draft(**change)
    assert caught.value.rule == "contract.schema"


def test_a_role_without_an_agent_is_refused() -> None:
    registry = POLICIES.registry
    fewer = replace(registry, agents=tuple(a for a in registry.agents if a.role != "AI"))
    with pytest.raises(UsageError) as caught:
        _draft(policies=replace(POLICIES, registry=fewer), role="AI")
    assert caught.value.rule == "contract.agent"
    undefined = replace(registry, role_contracts={})
    with pytest.raises(UsageError) as caught:
        _draft(policies=replace(POLICIES, registry=undefined))
    assert caught.value.rule == "contract.role"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_draft_for_every_role_is_valid(role: Role, read_only: bool) -> None:
    contract = _draft(role=role, read_only=read_only)
    assert schemas.find_schema_problems("task_contract.v1", contract.json()) == ()
    assert rules.find_rule_problems(contract, POLICIES, known_files=lambda _: None) == ()
    assert contract.role_contract is not None
    assert contract.role_contract.identity.role == role
    (bound,) = contract.inputs.artifacts
    name = OUTPUT_SCHEMA[role]
    assert bound == InputArtifact(
        name=f"output_schema.{role.lower()}",
        uri=f"schemas/{name}.json",
        sha256=sha256(schemas.read_schema(name)).hexdigest(),
    )
    if read_only:
        assert contract.audit_only
        assert contract.tool_permissions.filesystem == "read-only"


def test_a_draft_is_the_same_each_time_and_another_is_not() -> None:
    assert _draft() == _draft()
    assert _draft().sha256 == _draft().sha256
    assert _draft(spec="Do more.").task_id != _draft().task_id
    assert _draft(task_id="task-given-1").task_id == "task-given-1"


def test_what_is_given_is_kept() -> None:
    test = AcceptanceTest(name="t", cmd="npm test", must_pass=False, timeout_sec=5)
    options = RuntimeOptions(runner="codex", provider="p", model="m")
    artifact = InputArtifact(name="a", uri="b", sha256="0" * 64)
    contract = _draft(
        tests=["pytest", test],
        runtime_options=options,
        artifacts=[artifact],
        parent_task_id="task-parent",
        policy_pack="high",
        forbidden_actions=["docker", "sudo"],
        timeout_sec=60,
        max_retries=1,
        baseline_ref="main",
    )
    first = AcceptanceTest(name="acceptance-1", cmd="pytest", must_pass=True)
    assert contract.acceptance_tests == (first, test)
    assert contract.inputs.artifacts == (artifact, role_contract.make_binding("WORKER"))
    assert contract.parent_task_id == "task-parent"
    assert contract.policy_pack == "high"
    assert contract.forbidden_actions == (*POLICIES.forbidden_actions, "docker")
    assert (contract.timeout_retry.timeout_sec, contract.timeout_retry.max_retries) == (60, 1)
    assert contract.rollback.baseline_ref == "main"
    assert contract.role_contract is not None
    assert contract.role_contract.runtime_binding.json() == {
        "runner": "codex",
        "provider": "p",
        "model": "m",
    }


def test_a_binding_that_is_there_is_not_replaced() -> None:
    contract = _draft()
    assert role_contract.bind_output_schema(contract) is contract
    wrong = replace(role_contract.make_binding("WORKER"), sha256="0" * 64)
    changed = replace(contract, inputs=replace(contract.inputs, artifacts=(wrong,)))
    assert role_contract.bind_output_schema(changed) is changed


def test_the_hash_is_that_of_the_canonical_text() -> None:
    contract = _draft(spec="Größe 😀")
    text = canonical_json.render_json(contract.json())
    assert contract.sha256 == sha256(text.encode()).hexdigest()
    assert TaskContract.of(dict(reversed(contract.json().items()))).sha256 == contract.sha256


def test_the_role_contract_follows_the_contract() -> None:
    contract = replace(
        _draft(), handoff_chain=HandoffChain(enabled=True, roles=("PM", "TECH_LEAD", "WORKER"))
    )
    again = draft.complete_contract(contract, POLICIES)
    assert again.role_contract is not None
    assert again.role_contract.handoff.chain_roles == ("PM", "TECH_LEAD", "WORKER")
    assert again.role_contract.handoff.required_downstream_roles == ("REVIEWER", "TEST_RUNNER")
    assert rules.find_rule_problems(again, POLICIES, known_files=lambda _: None) == ()


def test_the_summary_says_what_the_contract_says() -> None:
    contract = replace(_draft(), tool_permissions=replace(_draft().tool_permissions, shell=None))
    found = role_contract.summarise_role(contract)
    assert found["authority"] == "contract-derived-read-model"
    assert found["execution_authority"] == "task_contract"
    assert found["role"] == "WORKER"
    assert found["tool_permissions"] == {
        "filesystem": "workspace-write",
        "shell": "deny",
        "network": "deny",
    }
    assert found["allowed_paths"] == ["src/a.py"]
    assert found["acceptance_tests"] == ["pytest -q"]
    assert role_contract.summarise_role(replace(contract, role_contract=None))["purpose"] is None


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (None, "unresolved"),
        (RuntimeOptions(runner="codex"), "partially-resolved"),
        (RuntimeOptions(runner="codex", provider="p", model="m"), "contract-derived"),
    ],
)
def test_the_binding_summary_is_a_read_model(options: RuntimeOptions | None, status: str) -> None:
    found = RoleBindingSummary.of(role_contract.binding_summary(_draft(runtime_options=options)))
    assert found.authority == "contract-derived-read-model"
    assert found.execution_authority == "task_contract"
    assert found.runtime_binding.status == status
    assert found.mcp_bundle_ref.resolved_mcp_tool_set == ("coilclaw",)
    assert found.mcp_bundle_ref.status == "registry-backed"
    assert found.skills_bundle_ref.status == "unresolved"
    expected = "runtime_options.runner" if options else None
    assert found.runtime_binding.source.runner == expected


def test_a_draft_says_nothing_of_a_setup_that_was_not_given() -> None:
    assert not {"setup", "expected_baseline"} & _draft().json().keys()
    setup = (SetupCommand(name="install", cmd="npm ci", network="allow", timeout_sec=60),)
    made = _draft(setup=setup, expected_baseline="red")
    assert (made.setup, made.expected_baseline) == (setup, "red")
    assert _draft(setup=()).json()["setup"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"network": "on-request"},
        {"timeout_sec": 0},
        {"cmd": ""},
        {"name": ""},
        {"must_pass": True},
    ],
)
def test_a_setup_of_another_form_is_refused(change: dict[str, Any]) -> None:
    value = _draft().json()
    good: dict[str, Any] = {"name": "install", "cmd": "npm ci", "network": "deny"}
    assert schemas.find_schema_problems("task_contract.v1", {**value, "setup": [good]}) == ()
    assert schemas.find_schema_problems(
        "task_contract.v1", {**value, "setup": [{**good, **change}]}
    )
    assert schemas.find_schema_problems(
        "task_contract.v1", {**value, "expected_baseline": "unknown"}
    )


def test_the_setup_of_the_policies_holds_where_a_contract_names_none() -> None:
    own = (SetupCommand(name="own", cmd="make generate"),)
    shared = (SetupCommand(name="shared", cmd="npm ci", network="allow"),)
    policies = replace(POLICIES, allowlist=replace(POLICIES.allowlist, setup=shared))
    assert POLICIES.setup == ()
    assert policies.setup == policies.setup_for(_draft()) == shared
    assert policies.setup_for(_draft(setup=own)) == own
    assert policies.setup_for(_draft(setup=())) == ()
    assert not own[0].may_use_network
    assert shared[0].may_use_network
