"""S1: a contract becomes several, none of which has more than it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.runs.contracts import rules
from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.records import Handoff
from coilclaw.runs.contracts.task_contract import SetupCommand, TaskContract
from coilclaw.runs.engine.contract_checks import Baseline
from coilclaw.runs.roles.tech_lead import Divided, needs_split, split
from tests.unit.orchestrator.planning import plane

FILES = {
    "src/app/main.py": b"print('hello')\n",
    "src/app/other.py": b"",
    "src/lib/core.py": b"",
    "tests/test_app.py": b"",
}
BASELINE = Baseline.of("a" * 40, FILES, FILES.get)
POLICIES = PolicySet.read_shipped("low")
LEAST: dict[str, Json] = {
    "filesystem": "workspace-write",
    "shell": "deny",
    "network": "deny",
    "mcp_tools": [],
}


def parent(**changes: Any) -> TaskContract:
    made = draft_contract(
        "Make everything friendlier.",
        ["src/app", "src/lib/", "tests/test_app.py"],
        ["pytest tests/test_app.py"],
        policies=POLICIES,
        task_id="task-00000001",
        role="TECH_LEAD",
    )
    return replace(made, **changes)


def task(name: str, *allowed: str, **changes: Json) -> dict[str, Json]:
    return {
        "name": name,
        "role": "WORKER",
        "spec": f"Do {name}.",
        "allowed_paths": list(allowed),
        "acceptance_tests": [],
        "tool_permissions": LEAST,
        "locks": [],
        **changes,
    }


def answer(*tasks: Json) -> dict[str, Json]:
    return {"tasks": list(tasks), "summary": "By folder.", "risks": ["imports"]}


def divided(*tasks: Json, of: TaskContract | None = None) -> Divided:
    asked, _ = plane(answer(*tasks))
    return split(asked, of or parent(), baseline=BASELINE, policies=POLICIES)


def problems(*tasks: Json, of: TaskContract | None = None) -> list[str]:
    outcome = divided(*tasks, of=of)
    assert outcome.contracts == ()
    assert outcome.handoffs == ()
    return [str(problem) for problem in outcome.problems]


def contracts(*tasks: Json, of: TaskContract | None = None) -> tuple[TaskContract, ...]:
    outcome = divided(*tasks, of=of)
    assert outcome.problems == ()
    return outcome.contracts


APP = task("app", "src/app/main.py")
LIB = task("lib", "src/lib/core.py")

# ---- what goes too far ----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Split it by folder.", f"```\n{json.dumps(answer(APP))}\n```"])
def test_prose_is_no_split(text: str) -> None:
    asked, _ = plane({"text": text})
    outcome = split(asked, parent(), baseline=BASELINE, policies=POLICIES)
    assert (outcome.contracts, len(outcome.problems)) == ((), 1)


@pytest.mark.parametrize(
    "path",
    ["setup.py", "src", "src/application", "src/libs/x", "tests", "policies/x.json", "docs/a.md"],
)
def test_a_task_stays_within_the_contract(path: str) -> None:
    said = problems(task("app", path))
    assert any(
        each.startswith("/tasks/0/allowed_paths/0") and "not in the allowed_paths" in each
        for each in said
    )


@pytest.mark.parametrize("path", ["src/app/*", "**", "src/app/../lib", "/src/app", ".", "src//app"])
def test_a_path_of_a_task_is_a_path(path: str) -> None:
    assert any(each.startswith("/tasks/0/allowed_paths/0") for each in problems(task("app", path)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("filesystem", "danger-full-access"),
        ("shell", "allow"),
        ("network", "everything"),
    ],
)
def test_dangerous_permissions_are_blocked_by_the_schema(kind: str, value: str) -> None:
    said = problems(task("app", "src/app", tool_permissions=LEAST | {kind: value}))
    assert [each.partition(":")[0] for each in said] == [f"/tasks/0/tool_permissions/{kind}"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("shell", "on-request"),
        ("shell", "untrusted"),
        ("network", "allow"),
        ("network", "on-request"),
        ("mcp_tools", ["codex"]),
        ("mcp_tools", ["nobody-knows-it"]),
    ],
)
def test_more_than_the_contract_or_the_role_has_is_refused_not_lowered(
    kind: str, value: Json
) -> None:
    said = problems(task("app", "src/app", tool_permissions=LEAST | {kind: value}))
    assert said
    assert all(each.startswith(f"/tasks/0/tool_permissions/{kind}") for each in said)


def test_a_contract_that_only_audits_has_only_readers() -> None:
    audit = parent(audit_only=True)
    assert any("workspace-write" in each for each in problems(APP, of=audit))
    reading = cast("Json", LEAST | {"filesystem": "read-only"})
    (child,) = contracts(task("look", "src/app", tool_permissions=reading), of=audit)
    assert (child.audit_only, child.required_outputs[0].type) == (True, "report")


OVERLAPS = [
    ("src/app", "src/app"),
    ("src/app", "src/app/main.py"),
    ("src/app/main.py", "src/app"),
    ("src/lib/", "src/lib/core.py"),
    ("src/app/Main.py", "src/app/main.py"),
]


@pytest.mark.parametrize(("one", "other"), OVERLAPS)
def test_two_tasks_share_nothing(one: str, other: str) -> None:
    said = problems(task("a", one), task("b", other))
    assert any("do not both declare a lock" in each for each in said)


@pytest.mark.parametrize(
    ("first", "second"),
    [(["src/app/main.py"], []), ([], ["src/app/main.py"]), (["src/app/main.py"], ["src/lib"])],
)
def test_one_lock_is_none(first: list[Json], second: list[Json]) -> None:
    said = problems(
        task("a", "src/app", locks=first), task("b", "src/app/main.py", "src/lib", locks=second)
    )
    assert any("do not both declare a lock" in each for each in said)


def test_a_lock_on_something_else_is_refused() -> None:
    assert problems(task("a", "src/app", locks=["src/lib/core.py"]))


@pytest.mark.parametrize("cmd", ["sudo pytest", "pytest; id", "python -c 1", "curl example.com"])
def test_tests_of_a_task_pass_the_command_gate(cmd: str) -> None:
    own: list[Json] = [{"name": "own", "cmd": cmd, "must_pass": True, "timeout_sec": 60}]
    said = problems(task("app", "src/app", acceptance_tests=own))
    assert all(each.startswith("/tasks/0/acceptance_tests/0/cmd") for each in said)


@pytest.mark.parametrize("name", ["fix-1", "app-fix-2"])
def test_a_task_is_not_called_like_a_repair(name: str) -> None:
    assert problems(task(name, "src/app")) == [
        f"/tasks/0/name: '{name}' looks like a repair of another task"
    ]


@pytest.mark.parametrize("name", ["", "App", "a b", "../x", "a--b", "-a", "a" * 41])
def test_a_name_is_part_of_an_id(name: str) -> None:
    assert all(each.startswith("/tasks/0/name") for each in problems(task(name, "src/app")))


def test_a_name_is_there_once() -> None:
    said = problems(task("app", "src/app"), task("app", "src/lib"))
    assert said == ["/tasks/1/name: 'app' is there twice"]


@pytest.mark.parametrize("role", ["PM", "TECH_LEAD", "REVIEWER", "TEST_RUNNER", "ORCHESTRATOR"])
def test_work_is_for_those_who_work(role: str) -> None:
    assert problems(task("app", "src/app", role=role))[0].startswith("/tasks/0/role")


def test_no_task_and_too_many_are_none() -> None:
    assert problems()[0].startswith("/tasks:")
    assert problems(*(task(f"t{n}", f"src/app/{n}.py") for n in range(17)))[0].startswith("/tasks:")
    assert len(contracts(*(task(f"t{n}", f"src/app/{n}.py") for n in range(16)))) == 16


def test_everything_that_goes_too_far_is_told_at_once() -> None:
    wide = LEAST | {"network": "allow"}
    said = problems(
        task("a", "setup.py", tool_permissions=wide), task("b", "src/app"), task("c", "src/app")
    )
    where = {each.partition(":")[0] for each in said}
    assert where == {"/tasks/0/allowed_paths/0", "/tasks/0/tool_permissions/network", "/tasks"}


# ---- what is fine ---------------------------------------------------------------------------


def test_each_task_becomes_a_contract_that_rules_accept() -> None:
    own: list[Json] = [
        {"name": "own", "cmd": "pytest src/app", "must_pass": True, "timeout_sec": 60}
    ]
    app, lib = contracts(task("app", "src/app", acceptance_tests=own, role="BACKEND"), LIB)
    assert (app.task_id, lib.task_id) == ("task-00000001-app", "task-00000001-lib")
    assert (app.parent_task_id, lib.parent_task_id) == ("task-00000001", "task-00000001")
    assert (app.assigned_agent.role, lib.assigned_agent.role) == ("BACKEND", "WORKER")
    assert (app.owner_agent.role, app.inputs.spec) == ("TECH_LEAD", "Do app.")
    assert [test.cmd for test in app.acceptance_tests] == ["pytest src/app"]
    assert lib.acceptance_tests == parent().acceptance_tests
    assert [each.name for each in app.inputs.artifacts] == ["output_schema.backend"]
    assert (app.tool_permissions.shell, app.policy_pack) == ("deny", parent().policy_pack)
    assert app.role_contract is not None
    assert app.role_contract.identity.role == "BACKEND"
    for child in (app, lib):
        assert rules.find_rule_problems(child, POLICIES, known_files=FILES.get) == ()
        assert TaskContract.of(child.json()) == child


def test_a_part_inherits_the_setup_and_not_what_the_baseline_is_expected_to_say() -> None:
    setup = (SetupCommand(name="install", cmd="make generate"),)
    whole = parent(setup=setup, expected_baseline="red")
    for child in contracts(task("app", "src/app"), LIB, of=whole):
        assert (child.setup, child.expected_baseline) == (setup, None)


def test_two_tasks_may_share_what_both_lock() -> None:
    one, other = contracts(
        task("a", "src/app", locks=["src/app/main.py"]),
        task("b", "src/app/main.py", "src/lib", locks=["src/app/main.py"]),
    )
    assert one.locks == other.locks == ("src/app/main.py",)


def test_a_split_is_never_under_a_looser_pack() -> None:
    strict = parent(policy_pack="high", runtime_options=None)
    asked, _ = plane(answer(LIB))
    outcome = split(asked, strict, baseline=BASELINE, policies=POLICIES)
    assert [child.policy_pack for child in outcome.contracts] == ["high"]
    unsaid = parent(policy_pack=None)
    asked, _ = plane(answer(LIB))
    outcome = split(asked, unsaid, baseline=BASELINE, policies=POLICIES)
    assert [child.policy_pack for child in outcome.contracts] == ["high"]


def test_a_contract_for_somebody_else_is_one_task_and_no_model_is_asked() -> None:
    own = draft_contract("Do it.", ["src/app"], ["pytest"], policies=POLICIES, role="WORKER")
    asked, heard = plane(answer(APP))
    assert not needs_split(own)
    assert split(asked, own, baseline=BASELINE, policies=POLICIES) == Divided((own,), (), ())
    assert heard.exchanges == []
    assert needs_split(parent())


def test_advice_names_each_contract() -> None:
    outcome = divided(APP, LIB)
    assert outcome.handoffs == tuple(
        Handoff(instruction_sha256=each.sha256, summary="By folder.", risks=("imports",))
        for each in outcome.contracts
    )


def test_the_model_is_told_the_contract_and_the_baseline_as_data() -> None:
    asked, heard = plane(answer(APP))
    whole = parent()
    split(asked, whole, baseline=BASELINE, policies=POLICIES)
    request = json.loads(heard.exchanges[0].request)
    told = json.loads(request["payload"])
    assert told["contract"] == whole.json()
    assert told["baseline_commit"] == "a" * 40
    assert request["output_schema"] == "split.v1"
