"""``coilclaw contract`` through the executable: made, checked and explained."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coilclaw.runs.contracts.task_contract import SetupCommand, TaskContract
from tests.support.children import PATIENCE_S
from tests.support.runcommands import Coilclaw, Done
from tests.support.runs import CALC, FILES, World, opened
from tests.support.snapshot_trees import Link, Program, build, git

SHIPPED = Path(__file__).parents[2] / "policies"
ASKED = ("--spec", "Make add add.", "--path", "pkg/calc.py", "--test", CALC)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with opened({**FILES, "docs/guide.md": b"# Guide\n"}) as made:
        yield made


@pytest.fixture(scope="module")
def coilclaw(world: World) -> Coilclaw:
    return Coilclaw(world)


@pytest.fixture
def place(world: World, tmp_path: Path) -> Path:
    return tmp_path / "contract.json"


def changed(world: World, *path: str | int, to: object) -> bytes:
    """The usual contract with one thing in it that is otherwise."""
    value: Any = json.loads(world.contract())
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("path", "to", "where"),
    [
        (("allowed_paths",), ["../up"], "/allowed_paths/0"),
        (("allowed_paths",), [], "/allowed_paths"),
        (("allowed_paths",), ["pkg/*"], "/allowed_paths/0"),
        (("acceptance_tests", 0, "cmd"), "rm -rf pkg", "/acceptance_tests/0/cmd"),
        (("acceptance_tests", 0, "cmd"), f"{CALC} && true", "/acceptance_tests/0/cmd"),
        (("acceptance_tests", 0, "must_pass"), False, "/acceptance_tests"),
        (("tool_permissions", "filesystem"), "danger-full-access", "/tool_permissions/filesystem"),
        (("tool_permissions", "network"), "allow", "/tool_permissions/network"),
        (("rollback", "baseline_ref"), "nowhere", "/rollback/baseline_ref"),
        (("assigned_agent", "agent_id"), "nobody", "/assigned_agent"),
        (("extra",), 1, "/"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    coilclaw: Coilclaw, path: tuple[str | int, ...], to: object, where: str
) -> None:
    data = changed(coilclaw.world, *path, to=to)
    done = coilclaw("contract", "validate", "-", "--json", stdin=data)
    (found,) = done.json
    assert (done.code, found["ok"]) == (2, False)
    assert where in {each["path"] for each in found["problems"]}, found


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "policies": ({"allowed_paths": ["policies/packs/low.json"]}, (), "/allowed_paths/0"),
    "broad": ({"allowed_paths": ["docs"], "policy_pack": "high"}, (), "policy.broad"),
    "mcp": ({"mcp_tool_set": ["nowhere"]}, (), "/mcp_tool_set/0"),
    "locks": ({"locks": ["other"]}, (), "/locks/0"),
    "command": ({"forbidden_actions": ["python3"]}, (), "tool.forbidden_action"),
    "scripted": ({"runtime_options": {"runner": "scripted"}}, (), "/runtime_options/runner"),
    "process": ({"runtime_options": {"runner": "process"}}, (), "/runtime_options/runner"),
    "model": ({"runtime_options": {"reviewer": "model"}}, (), "no model is configured"),
    "diagnosis": ({}, ("--runner", "codex-exec"), "for diagnosis only"),
    "script": ({}, ("--runner", "scripted:nowhere.json"), "cannot read the script"),
    "runner": ({}, ("--runner", "nobody"), "the runner 'nobody' is not known"),
    "reviewer": ({}, ("--reviewer", "nobody"), "the runner 'nobody' is not known"),
}


def without_role_contract(world: World) -> dict[str, Any]:
    """The usual contract, whose other parts can be changed without contradicting that one."""
    value: dict[str, Any] = json.loads(world.contract())
    del value["role_contract"]
    return value


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_run_refuses_is_refused_here_too(coilclaw: Coilclaw, name: str) -> None:
    changes, options, said = REFUSED[name]
    value = {**without_role_contract(coilclaw.world), **changes}
    kept = coilclaw.keep(json.dumps(value).encode(), "refused.json")
    started = coilclaw("run", kept, "--json", *options)
    assert started.code != 0
    assert "TASK_STARTED" not in started.out, started.out
    checked = coilclaw("contract", "validate", kept, *options)
    assert checked.code == 2, (started.out, started.err)
    assert said in checked.out


def test_an_agent_that_the_policies_do_not_know_is_refused_by_both(coilclaw: Coilclaw) -> None:
    kept = coilclaw.keep(coilclaw.world.contract(), "usual.json")
    folder = coilclaw.world.repo / "policies"
    shutil.copytree(SHIPPED, folder)
    try:
        assert coilclaw("contract", "validate", kept).code == 0
        registry = json.loads((folder / "tool_registry.json").read_text())
        registry["integrated"].remove("builtin")
        (folder / "tool_registry.json").write_text(json.dumps(registry))
        assert coilclaw("run", kept).code != 0
        checked = coilclaw("contract", "validate", kept)
        assert (checked.code, "integrated.missing" in checked.out) == (2, True), checked.out
        runner = coilclaw.world.script([{"text": "Bye."}])
        assert coilclaw("contract", "validate", kept, "--runner", runner).code == 0
    finally:
        shutil.rmtree(folder)


def test_a_contract_that_says_nothing_of_its_agents_gets_them_named(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    value = {**without_role_contract(world), "runtime_options": {"runner": "scripted"}}
    kept = coilclaw.keep(json.dumps(value).encode(), "named.json")
    runner = world.script([{"write": {"pkg/calc.py": "def add(a, b):\n    return a+b\n"}}])
    assert coilclaw("contract", "validate", kept, "--runner", runner).code == 0
    assert coilclaw("run", kept, "--runner", runner).code == 0


def test_the_neighbour_of_all_that_is_valid(coilclaw: Coilclaw) -> None:
    done = coilclaw("contract", "validate", "-", "--json", stdin=coilclaw.world.contract())
    (found,) = done.json
    assert (done.code, found["ok"], found["problems"]) == (0, True, [])
    assert found["sha256"] == TaskContract.of(json.loads(coilclaw.world.contract())).sha256


def test_all_files_and_all_problems_in_one_pass(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    value = json.loads(world.contract())
    value["allowed_paths"] = ["../a", "b/**"]
    value["assigned_agent"]["agent_id"] = "nobody"
    bad = coilclaw.keep(json.dumps(value).encode(), "bad.json")
    good = coilclaw.keep(world.contract(), "good.json")
    none = str(world.root / "none.json")
    done = coilclaw("contract", "validate", bad, good, none)
    assert done.code == 2
    lines = done.out.splitlines()
    assert f"{good} is valid" in lines
    for word in ("/allowed_paths/0", "/allowed_paths/1", "/assigned_agent"):
        assert any(line.startswith(f"{bad}: {word}") for line in lines), (word, lines)
    assert any(line.startswith(f"{none}: ") for line in lines)
    assert "\x1b" not in done.out


def test_what_needs_an_approval_is_a_note(coilclaw: Coilclaw) -> None:
    data = coilclaw.world.contract(("pkg/calc.py", "docs"))
    (found,) = coilclaw("contract", "validate", "-", "--json", stdin=data).json
    assert (found["ok"], len(found["notes"])) == (True, 1)
    assert "docs" in found["notes"][0]


def test_outside_of_a_repository_the_rules_still_hold(coilclaw: Coilclaw, tmp_path: Path) -> None:
    good = coilclaw("contract", "validate", "-", stdin=coilclaw.world.contract(), cwd=tmp_path)
    assert good.code == 2  # the test is a file that nobody has
    data = coilclaw.world.contract(tests=("python3 -m pytest -q",))
    good = coilclaw("contract", "validate", "-", "--json", stdin=data, cwd=tmp_path)
    assert (good.code, len(good.json[0]["notes"])) == (0, 1), good.out
    bad = coilclaw("contract", "validate", "-", stdin=b"{}", cwd=tmp_path)
    assert bad.code == 2
    named = coilclaw("contract", "validate", "-", "--repo", str(tmp_path), "--json", cwd=tmp_path)
    assert (named.code, named.json["rule"]) == (2, "repository.none")


def test_init_writes_a_contract_that_is_valid_and_runs(coilclaw: Coilclaw, place: Path) -> None:
    done = coilclaw("contract", "init", str(place), *ASKED, "--timeout", "60")
    assert done.code == 0, done.err
    contract = TaskContract.of(json.loads(place.read_text()))
    assert contract.allowed_paths == ("pkg/calc.py",)
    assert contract.timeout_retry.timeout_sec == 60
    assert coilclaw("contract", "validate", str(place)).code == 0
    runner = coilclaw.world.script([{"write": {"pkg/calc.py": "def add(a, b):\n    return a+b\n"}}])
    assert coilclaw("run", str(place), "--runner", runner).code == 0


@pytest.fixture
def project(coilclaw: Coilclaw, tmp_path: Path) -> Path:
    """A project of Python and JavaScript, with lock files, continuous integration and tests."""
    root = tmp_path / "project"
    tools = build(tmp_path / "tools", {"uv": Program(b"#!/bin/sh\n")})
    coilclaw.world.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
    build(
        root,
        {
            "pyproject.toml": b"[tool.pytest.ini_options]\n",
            "uv.lock": b"",
            "package.json": b'{"scripts": {"test": "jest"}}',
            "package-lock.json": b"{}",
            ".github/workflows/ci.yml": b"",
            "src/app.py": b"",
            "tests/test_app.py": b"",
            "setup.cfg": Link("/etc/passwd"),
        },
    )
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


PROPOSED = ("--spec", "Fix it.", "--path", "src/app.py")


def test_init_proposes_what_the_project_says(coilclaw: Coilclaw, project: Path) -> None:
    done = coilclaw("contract", "init", "-", *PROPOSED, "--json", cwd=project)
    assert done.code == 0, done.err
    made = TaskContract.of(done.json["contract"])
    assert [test.cmd for test in made.acceptance_tests] == ["uv run pytest", "npm test"]
    assert made.setup == (
        SetupCommand(name="install-python", cmd="uv sync --frozen", network="allow"),
        SetupCommand(name="install-node", cmd="npm ci", network="allow"),
    )
    assert made.expected_baseline is None
    assert {"edit ./uv.lock", "edit ./package-lock.json", "edit ./.github/workflows"} <= {
        *made.forbidden_actions
    }
    assert "edit ./tests" not in made.forbidden_actions
    assert any("uv.lock" in said for said in done.json["recognised"])
    text = coilclaw("contract", "init", "-", *PROPOSED, cwd=project)
    assert "recognised uv.lock: the environment is that of uv" in text.err
    assert "set-up: npm ci (with the network)" in text.err


def test_what_the_user_names_goes_before_what_is_proposed(
    coilclaw: Coilclaw, project: Path
) -> None:
    def made(*more: str) -> TaskContract:
        done = coilclaw("contract", "init", "-", *PROPOSED, *more, "--json", cwd=project)
        assert done.code == 0, done.err
        return TaskContract.of(done.json["contract"])

    own = made("--test", "pytest -q tests/test_app.py", "--expect", "red", "--no-setup")
    assert [test.cmd for test in own.acceptance_tests] == ["pytest -q tests/test_app.py"]
    assert (own.setup, own.expected_baseline) == ((), "red")
    # A command that names the tests could not be run if they were forbidden.
    assert "edit ./tests" not in own.forbidden_actions
    red = made("--expect", "red", "--setup", "make generate", "--path", "uv.lock")
    assert red.setup == (SetupCommand(name="setup-1", cmd="make generate"),)
    assert "edit ./tests" in red.forbidden_actions
    assert "edit ./uv.lock" not in red.forbidden_actions
    online = made("--setup", "uv sync", "--setup-network")
    assert online.setup == (SetupCommand(name="setup-1", cmd="uv sync", network="allow"),)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--setup", "uv sync"), "tool.network"),
        (("--setup", "sh -c ls", "--setup-network"), "tool.inline_code"),
        (("--setup", "make x", "--no-setup"), "contract.setup"),
        (("--setup-network",), "contract.setup"),
        (("--setup", "uv sync", "--setup-network", "--pack", "high"), "/setup/0/network"),
    ],
)
def test_a_setup_that_may_not_run_is_refused(
    coilclaw: Coilclaw, project: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = coilclaw("contract", "init", "-", *PROPOSED, *arguments, cwd=project)
    assert done.code == 2
    assert said in done.err


def test_what_the_pack_refuses_is_not_proposed(coilclaw: Coilclaw, project: Path) -> None:
    done = coilclaw("contract", "init", "-", *PROPOSED, "--pack", "high", "--json", cwd=project)
    assert done.code == 0, done.err
    assert "setup" not in done.json["contract"]
    assert any("denies the network" in said for said in done.json["recognised"])


def test_what_a_contract_forbids_to_edit_is_not_changed_by_its_work(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    files = {"pkg/calc.py": "def add(a, b):\n    return a + b\n", "pkg/uv.lock": "x\n"}
    runner = world.script([{"write": files}], name="editor")

    def done(*actions: str) -> Done:
        data = world.contract(
            ("pkg/calc.py", "pkg/uv.lock"), max_retries=0, forbidden_actions=actions
        )
        return coilclaw("run", coilclaw.keep(data, "edits.json"), "--runner", runner)

    assert done("edit ./pkg/other").code == 0
    refused = done("edit ./pkg/uv.lock")
    assert refused.code != 0
    assert "pkg/uv.lock" in refused.out + refused.err


def test_init_never_overwrites_unless_it_is_told_to(coilclaw: Coilclaw, place: Path) -> None:
    place.write_text("mine")
    done = coilclaw("contract", "init", str(place), *ASKED, "--json")
    assert (done.code, done.json["rule"]) == (2, "contract.exists")
    assert place.read_text() == "mine"
    assert coilclaw("contract", "init", str(place), *ASKED, "--force").code == 0
    assert json.loads(place.read_text())["inputs"]["spec"] == "Make add add."


def test_init_writes_nothing_that_is_wrong(coilclaw: Coilclaw, place: Path) -> None:
    for arguments, rule in (
        (ASKED[:4], "contract.incomplete"),
        ((*ASKED, "--role", "KING"), "contract.role"),
        ((*ASKED, "--path", "../up"), "contract."),
        ((*ASKED, "--test", "rm -rf pkg"), "contract."),
        ((*ASKED, "--runner", "nobody"), "contract."),
        ((*ASKED, "--baseline", "nowhere"), "contract."),
        ((*ASKED, "--timeout", "0"), "contract."),
    ):
        done = coilclaw("contract", "init", str(place), *arguments)
        assert done.code == 2, arguments
        assert f"[{rule}" in done.err, (arguments, done.err)
        assert not place.exists()


@pytest.mark.parametrize("more", [("--read-only",), ("--role", "tech_lead"), ("--pack", "high")])
def test_init_makes_every_kind_of_contract_valid(coilclaw: Coilclaw, more: tuple[str, ...]) -> None:
    done = coilclaw("contract", "init", "-", *ASKED, *more)
    assert done.code == 0, done.err
    assert coilclaw("contract", "validate", "-", stdin=done.out.encode()).code == 0


def test_init_asks_at_a_terminal(coilclaw: Coilclaw, place: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        coilclaw.argv("contract", "init", str(place)),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=coilclaw.world.repo,
        env=coilclaw.env(),
    ) as process:
        os.write(ours, f"Make add add.\npkg/calc.py\n{CALC}\n".encode())
        _, err = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert b"What should be done?" in err
    assert json.loads(place.read_text())["acceptance_tests"][0]["cmd"] == CALC


def test_explain_prints_the_summary_of_the_role_contract(coilclaw: Coilclaw) -> None:
    data = coilclaw.world.contract()
    summary = coilclaw("contract", "explain", "-", "--json", stdin=data).json
    assert (summary["role"], summary["execution_authority"]) == ("WORKER", "task_contract")
    assert summary["tool_permissions"]["network"] == "deny"
    value = json.loads(data)
    del value["role_contract"]
    bare = coilclaw("contract", "explain", "-", "--json", stdin=json.dumps(value).encode()).json
    assert bare == summary
    text = coilclaw("contract", "explain", "-", stdin=data).out
    assert "allowed_paths            pkg/calc.py\n" in text
    broken = coilclaw("contract", "explain", "-", "--json", stdin=b"{}")
    assert (broken.code, broken.json["rule"]) == (2, "contract.schema")
