"""What must hold of a contract beyond its schema: each rule with a denial and its neighbour."""

from __future__ import annotations

import copy
import json
from hashlib import sha256
from typing import Any

import pytest

from coilclaw.kernel import schemas
from coilclaw.kernel.schemas import MAX_SCHEMA_PROBLEMS, SchemaProblem
from coilclaw.policy.commands.launchers import is_trivial
from coilclaw.runs.contracts import role_contract, rules
from coilclaw.runs.contracts.draft import complete_contract, draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet, shipped_files
from coilclaw.runs.contracts.roles import HANDOFF_ORDER, ROLES
from coilclaw.runs.contracts.task_contract import TaskContract

POLICIES = PolicySet.read_shipped("low")
KNOWN = {"notes.md": b"notes\n", "docs/prompt.md": b"x"}
GOOD = draft_contract(
    "Do it.", ["src/a.py"], ["pytest -q"], policies=POLICIES, task_id="task-12345678"
)


def _set(value: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with members set by their dotted names; ``...`` removes one."""
    out = copy.deepcopy(value)
    for name, new in change.items():
        inner: Any = out
        *parents, last = name.split("/")
        for part in parents:
            inner = inner[int(part)] if isinstance(inner, list) else inner.setdefault(part, {})
        if isinstance(inner, list):
            inner[int(last)] = new
        elif new is ...:
            del inner[last]
        else:
            inner[last] = new
    return out


def _problems(
    change: dict[str, Any],
    *,
    pack: str = "low",
    compile_role: bool = True,
    policies: PolicySet = POLICIES,
) -> tuple[SchemaProblem, ...]:
    contract = TaskContract.of(_set(GOOD.json(), change))
    if compile_role:
        contract = complete_contract(contract, policies)
    return rules.find_rule_problems(contract, policies.under(pack), known_files=KNOWN.get)


def _where(change: dict[str, Any], **more: Any) -> list[str]:
    return [problem.path for problem in _problems(change, **more)]


def test_the_good_one_is_good() -> None:
    assert _problems({}) == ()


DENIED: list[tuple[dict[str, Any], str]] = [
    ({"task_id": "task\x00-1234"}, "/task_id"),
    ({"task_id": " task-1234"}, "/task_id"),
    ({"parent_task_id": "task-12345678"}, "/parent_task_id"),
    ({"inputs/spec": " \n"}, "/inputs/spec"),
    ({"allowed_paths": ["../x"]}, "/allowed_paths/0"),
    ({"allowed_paths": ["src/a.py", "/etc"]}, "/allowed_paths/1"),
    ({"allowed_paths": ["**"]}, "/allowed_paths/0"),
    ({"allowed_paths": ["src", "src/"]}, "/allowed_paths/1"),
    ({"allowed_paths": [".env"]}, "/allowed_paths/0"),
    ({"allowed_paths": ["app/.env"]}, "/allowed_paths/0"),
    ({"allowed_paths": [".ENV.local"]}, "/allowed_paths/0"),
    ({"allowed_paths": [".runtime-cache/cortexpilot/runs"]}, "/allowed_paths/0"),
    ({"allowed_paths": [f"a{index}" for index in range(201)]}, "/allowed_paths"),
    ({"binary_paths": ["img/x.png"]}, "/binary_paths/0"),
    ({"binary_paths": ["src/*.png"]}, "/binary_paths/0"),
    ({"locks": ["other"]}, "/locks/0"),
    ({"owner_agent/agent_id": "nobody"}, "/owner_agent"),
    ({"owner_agent": {"role": "WORKER", "agent_id": "pm"}}, "/owner_agent"),
    ({"assigned_agent/agent_id": "pm"}, "/assigned_agent"),
    ({"tool_permissions/shell": "on-request"}, "/tool_permissions/shell"),
    ({"tool_permissions/network": "allow"}, "/tool_permissions/network"),
    ({"tool_permissions/network": "on-request"}, "/tool_permissions/network"),
    (
        {"mcp_tool_set": ["coilclaw", "search"], "tool_permissions/mcp_tools": ["search"]},
        "/tool_permissions/mcp_tools/0",
    ),
    ({"tool_permissions/mcp_tools": ["codex"]}, "/tool_permissions/mcp_tools/0"),
    ({"mcp_tool_set": ["coilclaw", "unheard-of"]}, "/mcp_tool_set/1"),
    (
        {"inputs/artifacts": [{"name": "n", "uri": "gone.md", "sha256": "0" * 64}]},
        "/inputs/artifacts/0/uri",
    ),
    (
        {"inputs/artifacts": [{"name": "n", "uri": "../x", "sha256": "0" * 64}]},
        "/inputs/artifacts/0/uri",
    ),
    (
        {"inputs/artifacts": [{"name": "n", "uri": "https://a.b/c", "sha256": "0" * 64}]},
        "/inputs/artifacts/0/uri",
    ),
    (
        {"inputs/artifacts": [{"name": "n", "uri": "notes.md", "sha256": "0" * 64}]},
        "/inputs/artifacts/0/sha256",
    ),
    ({"acceptance_tests/0/must_pass": False}, "/acceptance_tests"),
    ({"acceptance_tests/0/cmd": "  "}, "/acceptance_tests/0/cmd"),
    ({"acceptance_tests/0/timeout_sec": 14401}, "/acceptance_tests/0/timeout_sec"),
    ({"timeout_retry/timeout_sec": 14401}, "/timeout_retry/timeout_sec"),
    ({"rollback/baseline_ref": "--upload-pack=x"}, "/rollback/baseline_ref"),
    ({"rollback/baseline_ref": "a..b"}, "/rollback/baseline_ref"),
    ({"rollback/baseline_ref": "HEAD:x"}, "/rollback/baseline_ref"),
    ({"rollback/baseline_ref": "a b"}, "/rollback/baseline_ref"),
    ({"rollback/strategy": "git_revert_commit"}, "/rollback/target_ref"),
    (
        {"rollback/strategy": "git_revert_commit", "rollback/target_ref": "HEAD"},
        "/rollback/target_ref",
    ),
    ({"rollback/target_ref": "HEAD~1"}, "/rollback/target_ref"),
    ({"tool_permissions/filesystem": "read-only"}, "/required_outputs/0/type"),
    ({"forbidden_actions": [" "]}, "/forbidden_actions/0"),
    ({"forbidden_actions": ["a\nb"]}, "/forbidden_actions/0"),
    ({"browser_policy": {"profile_mode": "allow_profile"}}, "/browser_policy"),
    ({"browser_policy": {"cookie_ref": {"cookie_path": "x"}}}, "/browser_policy"),
    ({"browser_policy": {"stealth_mode": "lite"}}, "/browser_policy"),
    ({"browser_policy": {"human_behavior": {"enabled": True}}}, "/browser_policy"),
]


@pytest.mark.parametrize(
    ("change", "where"), DENIED, ids=[str(index) for index in range(len(DENIED))]
)
def test_a_broken_rule_is_found(change: dict[str, Any], where: str) -> None:
    assert where in _where(change)


ALLOWED: list[dict[str, Any]] = [
    {"parent_task_id": "task-87654321"},
    {"allowed_paths": ["src/", ".github/workflows/ci.yml", "environment.py", ".env.example"]},
    {"allowed_paths": ["src"], "binary_paths": ["src/logo.png"], "locks": ["src/shared.py"]},
    {"tool_permissions/shell": ...},
    {"tool_permissions/shell": "deny"},
    {"tool_permissions/mcp_tools": []},
    {"mcp_tool_set": ["coilclaw", "codex"], "tool_permissions/mcp_tools": ["codex"]},
    {"acceptance_tests/0/timeout_sec": 14400},
    {"timeout_retry/timeout_sec": 14400, "timeout_retry/max_retries": 10},
    {"rollback/baseline_ref": "refs/heads/main"},
    {"rollback/baseline_ref": "v1.0^{commit}"},
    {"rollback/strategy": "git_revert_commit", "rollback/target_ref": "HEAD~1"},
    {"tool_permissions/filesystem": "read-only", "required_outputs/0/type": "report"},
    {"forbidden_actions": []},
    {"browser_policy": {"profile_mode": "ephemeral", "stealth_mode": "none"}},
    {"test_policy": "allow"},
    {"acceptance_tests/0/cmd": "echo ok"},
    {"policy_pack": "low"},
]


@pytest.mark.parametrize("change", ALLOWED, ids=[str(index) for index in range(len(ALLOWED))])
def test_its_neighbour_is_allowed(change: dict[str, Any]) -> None:
    assert _problems(change) == ()


def test_an_input_is_checked_by_its_hash() -> None:
    good = sha256(KNOWN["notes.md"]).hexdigest()
    for text in (good, good.upper()):
        artifact = {"name": "notes", "uri": "notes.md", "sha256": text}
        assert _problems({"inputs/artifacts": [artifact]}) == ()
    twice = [{"name": "notes", "uri": "notes.md", "sha256": good}] * 2
    assert "/inputs/artifacts/1/name" in _where({"inputs/artifacts": twice})


def test_names_are_unique() -> None:
    test = {"name": "t", "cmd": "pytest", "must_pass": True}
    assert _where({"acceptance_tests": [test, test]}) == ["/acceptance_tests/1/name"]
    output = {"name": "o", "type": "report", "acceptance": ""}
    assert _where({"required_outputs": [output, output]}) == ["/required_outputs/1/name"]


# -- output schema --------------------------------------------------------------------------------


def _bound(**changes: str) -> dict[str, Any]:
    name = "agent_task_result.v1"
    binding = {"name": "output_schema", "uri": schemas.uri(name), "sha256": schemas.sha256(name)}
    return {"inputs/artifacts": [{**binding, **changes}]}


def test_a_missing_binding_is_refused() -> None:
    assert _where({"inputs/artifacts": []}, compile_role=False) == ["/inputs/artifacts"]
    assert _problems({"inputs/artifacts": []}) == ()


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "output_schema.pm"}, "/inputs/artifacts/0/name"),
        ({"name": "output_schema."}, "/inputs/artifacts/0/name"),
        ({"uri": "schemas/review_report.v1.json"}, "/inputs/artifacts/0/uri"),
        ({"uri": "./schemas/agent_task_result.v1.json"}, "/inputs/artifacts/0/uri"),
        ({"uri": "other/agent_task_result.v1.json"}, "/inputs/artifacts/0/uri"),
        ({"sha256": "0" * 64}, "/inputs/artifacts/0/sha256"),
        ({"name": "the_schema"}, "/inputs/artifacts"),
    ],
)
def test_a_wrong_binding_is_refused(change: dict[str, str], where: str) -> None:
    assert where in _where(_bound(**change), compile_role=False)


def test_a_binding_by_either_name_is_accepted_and_two_are_not() -> None:
    assert _problems(_bound(), compile_role=False) == ()
    assert _problems(_bound(name="output_schema.worker"), compile_role=False) == ()
    (first,) = _bound()["inputs/artifacts"]
    two = {"inputs/artifacts": [first, {**first, "name": "output_schema.worker"}]}
    assert _where(two, compile_role=False) == ["/inputs/artifacts"]


# -- packs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"timeout_retry/timeout_sec": 3601}, "/timeout_retry/timeout_sec"),
        ({"timeout_retry/max_retries": 3}, "/timeout_retry/max_retries"),
        ({"binary_paths": ["src/a.py"]}, "/binary_paths"),
        ({"test_policy": "allow"}, "/test_policy"),
        ({"acceptance_tests/0/cmd": "echo ok"}, "/acceptance_tests/0/cmd"),
        ({"acceptance_tests/0/cmd": "git status"}, "/acceptance_tests/0/cmd"),
        ({"allowed_paths": [f"a{index}" for index in range(21)]}, "/allowed_paths"),
    ],
)
def test_a_strict_pack_refuses_what_a_loose_one_allows(change: dict[str, Any], where: str) -> None:
    assert _problems(change, pack="low") == ()
    assert _where(change, pack="high") == [where]


def test_the_ceilings_of_a_pack_hold_for_every_role() -> None:
    searcher = draft_contract(
        "Find it.", ["notes/"], ["pytest"], policies=POLICIES, role="SEARCHER"
    )
    assert rules.find_rule_problems(searcher, POLICIES, known_files=KNOWN.get) == ()
    found = rules.find_rule_problems(searcher, POLICIES.under("high"), known_files=KNOWN.get)
    assert [problem.path for problem in found] == ["/tool_permissions/network"]


def test_a_run_may_be_stricter_than_its_contract_and_never_looser() -> None:
    assert _where({"policy_pack": "high"}, pack="medium") == ["/policy_pack"]
    assert _where({"policy_pack": ...}, pack="low") == []
    assert _problems({"policy_pack": "medium"}, pack="high") == ()


def test_strict_acceptance_of_the_contract_refuses_trivial_commands() -> None:
    strict = {"runtime_options": {"strict_acceptance": True}}
    assert _problems(strict) == ()
    assert _where({**strict, "acceptance_tests/0/cmd": "true"}) == ["/acceptance_tests/0/cmd"]


@pytest.mark.parametrize(
    "command",
    ["", "echo ok", "/bin/echo ok", "true", ":", "'unbalanced", "pytest --version", "pytest --co"],
)
def test_a_command_that_cannot_fail(command: str) -> None:
    assert is_trivial(command)


@pytest.mark.parametrize(
    "command",
    ["pytest --collect-only -q", "make -n test", "ls", "test -e x", "cargo test --no-run"],
)
def test_a_command_that_tests_nothing(command: str) -> None:
    assert is_trivial(command)


@pytest.mark.parametrize(
    "command",
    [
        *("pytest --coll", "pytest --collect-onl", "python3 -m pytest --coll", "pytest --setup-o"),
        *("pytest --ignore=tests", "pytest --ignore tests", "python -m pytest --deselect x::y"),
        *("pytest -qh", "python3 -m pytest -V", "py.test -h", "python3 -m unittest -h"),
        *("python -m unittest --help", "python -m unittest --he", "python3 -m unittest --version"),
        *("python3 -V", "python3 -h -m pytest", "python3 -mpytest --co", "python3 -m nose2 -h"),
        *("python3 -m coverage run -m pytest --coll", "go test -c", "go test --c ./...", "go -h"),
        *("go test -list=. ./...", "npm test --if-present", "npm run x --ignore-scripts"),
        *("npm test --if-pres", "pnpm test --if-present", "npm -v", "cargo test -- --list"),
        *("cargo -V", "make -sn", "make --just", "ctest -N", "tox -l", "node -v"),
    ],
)
def test_a_runner_that_runs_nothing(command: str) -> None:
    assert is_trivial(command)


@pytest.mark.parametrize(
    "command",
    [
        *("pytest -khV", "pytest -m 'not slow' -x", "pytest --cov --lf", "pytest -n4 --maxfail=1"),
        *("python3 -m pytest -q tests", "python3 -m unittest discover -s tests -v"),
        *("python3 -m unittest -v tests.test_help", "python3 -m unittest -khelp", "python3 t.py"),
        *("python3 -m coverage run -m pytest -q", "go test ./... -count=1", "go test -cover ./..."),
        *("npm run lint --silent", "ruff check --fix", "eslint --fix", "cargo test --lib"),
        *("make -j4 test", "make -C sub check", "ctest -V", "node --test", "git grep -h -q x"),
    ],
)
def test_a_runner_that_runs_something(command: str) -> None:
    assert not is_trivial(command)


@pytest.mark.parametrize("command", ["git status", "git diff", "git log", "git", "npm --help"])
def test_a_trivial_command(command: str) -> None:
    assert is_trivial(command)


@pytest.mark.parametrize(
    "command",
    ["pytest -n 4", "npm test", "echo-test", "make test", "git diff --check", "git grep -q x"],
)
def test_a_command_that_tests(command: str) -> None:
    assert not is_trivial(command)


# -- role contract --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"identity/role": "PM"}, "identity/role"),
        ({"identity/agent_id": "other"}, "identity/agent_id"),
        ({"tool_permissions/network": "allow"}, "tool_permissions/network"),
        ({"tool_permissions/shell": "deny"}, "tool_permissions/shell"),
        ({"tool_permissions/filesystem": "read-only"}, "tool_permissions/filesystem"),
        ({"resolved_mcp_tool_set": ["coilclaw", "codex"]}, "resolved_mcp_tool_set"),
        ({"resolved_mcp_tool_set": []}, "resolved_mcp_tool_set"),
        ({"runtime_binding/runner": "codex"}, "runtime_binding/runner"),
        ({"runtime_binding/provider": "x"}, "runtime_binding/provider"),
        ({"runtime_binding/model": "x"}, "runtime_binding/model"),
        ({"handoff/chain_roles": ["PM"]}, "handoff/chain_roles"),
        ({"handoff/max_handoffs": 2}, "handoff/max_handoffs"),
        ({"handoff/eligible": False}, "handoff/eligible"),
        ({"handoff/required_downstream_roles": []}, "handoff/required_downstream_roles"),
        ({"system_prompt_ref": "/etc/passwd"}, "system_prompt_ref"),
        ({"system_prompt_ref": "../x.md"}, "system_prompt_ref"),
        ({"system_prompt_ref": "policies/prompts/gone.md"}, "system_prompt_ref"),
        ({"system_prompt_ref": "docs/"}, "system_prompt_ref"),
        ({"system_prompt_ref": "docs/prompt.md#x"}, "system_prompt_ref"),
        (
            {"skills_bundle_ref": "policies/skills_bundle_registry.json#bundles.x"},
            "skills_bundle_ref",
        ),
        ({"mcp_bundle_ref": "docs/prompt.md#/x"}, "mcp_bundle_ref"),
        ({"mcp_bundle_ref": "policies/agent_registry.json#/agents/99"}, "mcp_bundle_ref"),
        ({"mcp_bundle_ref": "policies/agent_registry.json#/agents/0"}, "mcp_bundle_ref"),
        (
            {"mcp_bundle_ref": "policies/agent_registry.json#agents(role=NOBODY).x"},
            "mcp_bundle_ref",
        ),
        (
            {"mcp_bundle_ref": "policies/agent_registry.json#/agents/0/capabilities/mcp_tools"},
            "mcp_bundle_ref",
        ),
        ({"mcp_bundle_ref": "policies/mcp_allowlist.json#allow"}, "mcp_bundle_ref"),
        ({"mcp_bundle_ref": "policies/agent_registry.json#"}, "mcp_bundle_ref"),
    ],
)
def test_a_role_contract_that_differs_is_refused(change: dict[str, Any], where: str) -> None:
    named = {f"role_contract/{key}": value for key, value in change.items()}
    assert _where(named, compile_role=False) == [f"/role_contract/{where}"]


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": "in other words"},
        {"fail_closed_conditions": ["one more"]},
        {"system_prompt_ref": None},
        {"system_prompt_ref": "docs/prompt.md"},
        {"mcp_bundle_ref": "policies/agent_registry.json"},
        {"mcp_bundle_ref": "policies/agent_registry.json#/agents/2/capabilities/mcp_tools"},
        {"mcp_bundle_ref": "policies/agent_registry.json#agents(role=AI).capabilities.mcp_tools"},
    ],
)
def test_what_the_contract_does_not_decide_may_differ(change: dict[str, Any]) -> None:
    named = {f"role_contract/{key}": value for key, value in change.items()}
    assert _problems(named, compile_role=False) == ()


def test_a_skills_bundle_must_have_skills() -> None:
    name = "skills_bundle_registry.json"
    registry = {"bundles": {"full": {"skills": ["a"]}, "empty": {"skills": []}, "list": ["a"]}}
    policies = PolicySet.of({**shipped_files(), name: json.dumps(registry).encode()})
    for key, fine in (("full", True), ("empty", False), ("list", False)):
        change = {"role_contract/skills_bundle_ref": f"policies/{name}#bundles.{key}"}
        assert (_problems(change, compile_role=False, policies=policies) == ()) is fine


def test_what_is_referred_to_is_bounded() -> None:
    change = {"role_contract/system_prompt_ref": "docs/large.md"}
    contract = TaskContract.of(_set(GOOD.json(), change))
    for size, fine in (
        (role_contract.MAX_REFERENCED_BYTES, True),
        (role_contract.MAX_REFERENCED_BYTES + 1, False),
    ):
        files = {"docs/large.md": b"x" * size}
        found = rules.find_rule_problems(contract, POLICIES, known_files=files.get)
        assert (found == ()) is fine


def test_the_policies_are_those_that_were_read_not_those_of_the_tree() -> None:
    change = {"role_contract/system_prompt_ref": "policies/prompts/planted.md"}
    contract = TaskContract.of(_set(GOOD.json(), change))
    planted = {"policies/prompts/planted.md": b"x"}
    found = rules.find_rule_problems(contract, POLICIES, known_files=planted.get)
    assert [problem.path for problem in found] == ["/role_contract/system_prompt_ref"]


# -- handoff --------------------------------------------------------------------------------------


def _chain(roles: list[str], **more: Any) -> dict[str, Any]:
    return {"handoff_chain": {"enabled": True, "roles": roles, **more}}


@pytest.mark.parametrize(
    ("roles", "where"),
    [
        ([], "/handoff_chain/roles"),
        (["WORKER", "PM"], "/handoff_chain/roles/1"),
        (["PM", "PM", "TECH_LEAD", "WORKER"], "/handoff_chain/roles/1"),
        (["PM", "WORKER"], "/handoff_chain/roles"),
        (["TECH_LEAD", "WORKER"], "/handoff_chain/roles/0"),
        (["PM", "TECH_LEAD"], "/handoff_chain/roles/1"),
        (["PM", "TECH_LEAD", "WORKER", "REVIEWER"], "/handoff_chain/roles/3"),
    ],
)
def test_a_chain_out_of_order_is_refused(roles: list[str], where: str) -> None:
    assert where in _where(_chain(roles))


def test_a_chain_in_order_is_accepted() -> None:
    assert _problems(_chain(["PM", "TECH_LEAD", "WORKER"], max_handoffs=2)) == ()
    assert _problems(_chain(["PM", "TECH_LEAD", "BACKEND", "WORKER"])) == ()
    assert _problems({"handoff_chain": {"enabled": False, "roles": ["WORKER", "PM"]}}) == ()
    few = _chain(["PM", "TECH_LEAD", "WORKER"], max_handoffs=1)
    assert _where(few) == ["/handoff_chain/max_handoffs"]


def test_the_order_has_every_role_once() -> None:
    assert sorted(HANDOFF_ORDER) == sorted(ROLES)


# -- all together ---------------------------------------------------------------------------------


def test_everything_is_found_in_one_pass() -> None:
    everything: dict[str, Any] = {}
    for change, _ in (DENIED[0], DENIED[2], DENIED[3], DENIED[4], DENIED[16], DENIED[19]):
        everything.update(change)
    wanted = {DENIED[index][1] for index in (0, 3, 4, 16, 19)}
    assert wanted <= set(_where(everything))


def test_problems_are_bounded() -> None:
    change = {"allowed_paths": [f"a{index}*" for index in range(1000)]}
    assert len(_problems(change)) == MAX_SCHEMA_PROBLEMS


def _setup(**changes: Any) -> dict[str, Any]:
    return {"setup": [{"name": "install", "cmd": "npm ci", "network": "allow", **changes}]}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"cmd": "  "}, "/setup/0/cmd"),
        ({"timeout_sec": 14401}, "/setup/0/timeout_sec"),
    ],
)
def test_a_setup_that_is_wrong(change: dict[str, Any], where: str) -> None:
    assert _problems(_setup(timeout_sec=14400)) == ()
    assert _where(_setup(**change)) == [where]


def test_each_command_of_a_setup_has_a_name_of_its_own() -> None:
    (one,) = _setup()["setup"]
    assert _where({"setup": [one, one]}) == ["/setup/1/name"]
    assert _problems({"setup": [one, {**one, "name": "more"}]}) == ()


def test_the_pack_decides_about_the_network_of_a_setup() -> None:
    strict = {"policy_pack": "high"}
    assert _where({**strict, **_setup()}, pack="high") == ["/setup/0/network"]
    assert _problems({**strict, **_setup(network="deny")}, pack="high") == ()
    assert _problems(_setup(), pack="low") == ()
    asking = json.loads(shipped_files()["packs/low.json"])
    asking["ceilings"]["network"] = "on-request"
    files = {**shipped_files(), "packs/low.json": json.dumps(asking).encode()}
    assert _where(_setup(), policies=PolicySet.of(files)) == ["/setup/0/network"]


def test_the_setup_of_the_policies_is_held_to_the_same() -> None:
    allowlist = json.loads(shipped_files()["command_allowlist.json"])
    files = {
        **shipped_files(),
        "command_allowlist.json": json.dumps({**allowlist, **_setup()}).encode(),
    }
    policies = PolicySet.of(files)
    strict = {"policy_pack": "high"}
    assert _where(strict, policies=policies, pack="high") == ["/setup/0/network"]
    assert _problems({**strict, "setup": []}, policies=policies, pack="high") == ()
