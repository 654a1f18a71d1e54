"""The baseline is tried before an agent starts, and every worktree is set up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from coilclaw.kernel.errors import Stopped
from coilclaw.runs.contracts.task_contract import SetupCommand
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.reexecution import reexecute
from coilclaw.runs.engine.run_start import RunOptions
from coilclaw.runs.engine.worktree_setup import setup_key
from tests.support.runs import ADDS, CALC, World, opened
from tests.support.sandboxes import supported
from tests.support.snapshot_trees import Program, build, git


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def test_red_tests_at_the_baseline_are_recorded_and_the_work_begins(world: World) -> None:
    outcome = world.ended(world.run(merge=True, baseline=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    (baseline,) = world.of(outcome.run_id, "BASELINE_RESULT")
    assert baseline["status"] == "FAIL"
    report = json.loads((world.bundle(outcome.run_id) / str(baseline["path"])).read_text())
    assert [one["exit_code"] for one in report["commands"]] == [1]
    happened = world.kinds(outcome.run_id)
    assert happened.index("BASELINE_RESULT") < happened.index("TASK_STARTED")
    assert reexecute(world.orchestrator().equipment, outcome.run_id).report.status == "pass"


def test_without_a_baseline_nothing_is_tried(world: World) -> None:
    outcome = world.ended(world.run(merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert "BASELINE_RESULT" not in world.kinds(outcome.run_id)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python3 -m pytest -q", "no module named pytest"),
        ("make missing", "exit code 127"),
        ("make broken", "exit code 126"),
        ("cargo test", "was not found"),
    ],
)
def test_a_fault_of_the_environment_ends_the_run_before_an_agent_starts(
    world: World, command: str, said: str
) -> None:
    tree = {
        "Makefile": b"missing:\n\tno-such-program\nbroken:\n\tsh -c ./data.txt\n",
        "data.txt": b"x",
    }
    build(world.repo, tree)
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "make")
    if command.startswith("make") and shutil.which("make") is None:
        pytest.skip("make is not installed")
    python = os.path.realpath(sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", str(world.root / "venv")], check=True)
    world.environ["PATH"] = f"{world.root}/venv/bin:/usr/bin:/bin"
    contract = world.contract(tests=(command,), change=lambda one: one)
    outcome = world.ended(world.run(contract, baseline=True))
    assert (outcome.status, outcome.merge) == ("failed", "none")
    assert said in outcome.reason
    assert "name a 'setup' in the contract" in outcome.reason
    happened = world.kinds(outcome.run_id)
    assert "BASELINE_RESULT" in happened
    assert "TASK_STARTED" not in happened
    assert "FIX_LOOP_TRIGGERED" not in happened


@pytest.mark.parametrize(
    ("expected", "files", "status"),
    [
        ("red", {}, "passed"),
        ("red", ADDS, "failed"),
        ("green", ADDS, "passed"),
        ("green", {}, "failed"),
    ],
)
def test_a_contract_says_what_the_baseline_is_expected_to_be(
    world: World, expected: Any, files: dict[str, str], status: str
) -> None:
    build(world.repo, {name: text.encode() for name, text in files.items()})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "--allow-empty", "-m", "more")
    contract = world.contract(change=lambda one: replace(one, expected_baseline=expected))
    more = {"pkg/calc.py": ADDS["pkg/calc.py"] + "# more\n"}
    agent = world.script([{"write": more}])
    outcome = world.ended(world.run(contract, agent, baseline=True))
    assert outcome.status == status
    if status == "failed":
        assert f"expects {expected} tests at the baseline" in outcome.reason
        assert "TASK_STARTED" not in world.kinds(outcome.run_id)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="unittest itself fails without tests")
def test_a_command_that_runs_no_test_is_not_told_as_green(world: World) -> None:
    contract = world.contract(
        tests=("python3 -m unittest discover -s pkg",),
        change=lambda one: replace(one, expected_baseline="red"),
    )
    outcome = world.ended(world.run(contract, world.script([{"write": ADDS}]), baseline=True))
    assert outcome.status == "failed"
    assert "expects red tests at the baseline, and acceptance-1 runs no test" in outcome.reason


_MAKES = Program(
    b"#!/bin/sh\nset -e\nmkdir -p deps\necho ready > deps/marker\nmkdir -p $HOME/.tool\n"
    b"echo home > $HOME/.tool/x\n"
)
_NEEDS = b"""import os
assert open('deps/marker').read() == 'ready\\n'
assert open(os.path.expanduser('~/.tool/x')).read() == 'home\\n'
print('1 passed')
"""


@pytest.fixture
def needy(world: World) -> World:
    build(
        world.repo,
        {
            "scripts/setup.sh": _MAKES,
            "scripts/fail.sh": Program(b"#!/bin/sh\nexit 3\n"),
            "tests/check_deps.py": _NEEDS,
            "requirements.txt": b"x\n",
        },
    )
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "needy")
    return world


def contract_of(world: World, *setup: SetupCommand, paths: tuple[str, ...] = ()) -> bytes:
    return world.contract(
        paths=("pkg/calc.py", *paths),
        tests=(CALC, "python3 tests/check_deps.py"),
        max_retries=0,
        change=lambda one: replace(one, setup=setup),
    )


MAKE = SetupCommand(name="make", cmd="./scripts/setup.sh")


def test_a_set_up_is_there_for_agents_and_tests_and_is_made_once(needy: World) -> None:
    contract = contract_of(needy, MAKE)
    source = """import json, subprocess, sys
contract = json.load(sys.stdin)
done = subprocess.run([sys.executable, "tests/check_deps.py"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
open("pkg/calc.py", "w").write("def add(a, b):\\n    return a + b\\n")
print(json.dumps({"task_id": contract["task_id"], "status": "SUCCESS", "summary": "done",
                  "evidence_refs": {}, "failure": None}))
"""
    outcome = needy.ended(needy.run(contract, needy.program(source), merge=True, baseline=True))
    assert (outcome.status, outcome.reason) == ("passed", "")
    # Once on the baseline, for agents and tests; a script may build, so once on the candidate.
    assert needy.kinds(outcome.run_id).count("SETUP_RESULT") == 2
    assert not (needy.repo / "deps").exists()
    assert reexecute(needy.orchestrator().equipment, outcome.run_id).report.status == "pass"
    git(needy.repo, "revert", "--no-edit", "-m", "1", "HEAD")
    again = needy.ended(needy.run(contract, needy.program(source), baseline=True))
    assert again.status == "passed"
    assert needy.kinds(again.run_id).count("SETUP_RESULT") == 1


def test_a_candidate_that_changes_what_decides_is_set_up_anew(needy: World) -> None:
    contract = contract_of(needy, MAKE, paths=("requirements.txt",))
    agent = needy.script([{"write": {**ADDS, "requirements.txt": "y\n"}}])
    outcome = needy.ended(needy.run(contract, agent, baseline=True))
    assert outcome.status == "passed"
    assert needy.kinds(outcome.run_id).count("SETUP_RESULT") == 2
    setups = needy.runtime / "setups"
    assert len([entry for entry in os.listdir(setups) if not entry.endswith(".lock")]) == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_that_ended_after_a_set_up_is_resumed(needy: World, number: int) -> None:
    contract = contract_of(needy, MAKE, paths=("requirements.txt",))
    agent = needy.script([{"write": {**ADDS, "requirements.txt": "y\n"}}])
    orchestrator = needy.orchestrator()
    left = number

    def stop(event: Mapping[str, object]) -> None:
        nonlocal left
        left -= event["event_type"] == "SETUP_RESULT"
        if not left:
            orchestrator.cancel.cancel("enough")

    options = RunOptions(agent, "rules", merge=True, baseline=True)
    with pytest.raises(Stopped):
        orchestrator.start(RunRequest(contract, ""), options, stop)
    (run_id,) = os.listdir(needy.runtime / "runs")
    if number == 1:
        # As after a kill before all of it was kept.
        for record in (needy.runtime / "setups").glob("*/setup.json"):
            record.unlink()
    outcome = needy.ended(needy.resume(run_id))
    assert (outcome.status, outcome.reason, outcome.merge) == ("passed", "", "merged")
    assert needy.kinds(outcome.run_id).count("SETUP_RESULT") == 3


@pytest.mark.parametrize(
    ("command", "installs"),
    [
        ("npm ci", True),
        ("uv sync --frozen", True),
        ("cargo fetch", True),
        ("pip install -r requirements.txt", True),
        ("pip install -e . --no-deps", True),
        ("python -m pip install -e .", True),
        ("pip install .", False),
        ("npm run build", False),
        ("make", False),
        ("./scripts/setup.sh", False),
    ],
)
def test_only_installers_are_kept_by_lock_files_alone(
    needy: World, command: str, installs: bool
) -> None:
    equipment = needy.orchestrator().equipment
    commands = (SetupCommand(name="one", cmd=command),)

    def key() -> str:
        return setup_key(equipment, equipment.repository.resolve("HEAD"), commands)

    first = key()
    build(needy.repo, {"pkg/other.py": b"x = 1\n"})
    git(needy.repo, "add", "-A")
    git(needy.repo, "commit", "-q", "-m", "source")
    second = key()
    assert (first == second) is installs
    build(needy.repo, {"requirements.txt": b"y\n"})
    git(needy.repo, "commit", "-qam", "lock")
    assert key() != second


_GREEN = {name: text.encode() for name, text in ADDS.items()}
_BUILDS = Program(b"#!/bin/sh\nset -e\nmkdir -p dist\ncp pkg/calc.py dist/built.py\n")
_TESTS_BUILD = (
    b"import sys\nsys.path[:0] = ['dist']\nimport built\n"
    b"assert built.add(2, 3) == 5\nprint('1 passed')\n"
)


def test_a_build_is_made_from_the_sources_that_are_judged(world: World) -> None:
    """A set-up that does more than install packages depends on all of the tree."""
    build(
        world.repo,
        {"scripts/build.sh": _BUILDS, "tests/check_built.py": _TESTS_BUILD, **_GREEN},
    )
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "build")
    contract = world.contract(
        tests=("python3 tests/check_built.py",),
        max_retries=0,
        change=lambda one: replace(
            one, setup=(SetupCommand(name="build", cmd="./scripts/build.sh"),)
        ),
    )
    wrong = world.script([{"write": {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}}])
    outcome = world.ended(world.run(contract, wrong, merge=True))
    assert (outcome.status, outcome.merge) == ("failed", "none")
    right = world.script([{"write": {"pkg/calc.py": ADDS["pkg/calc.py"] + "# more\n"}}])
    outcome = world.ended(world.run(contract, right, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged")


def test_a_candidates_set_up_makes_nothing_that_the_baselines_does_not(world: World) -> None:
    """An agent that may change the lock files does not get to place what tests import."""
    sources = Program(b"#!/bin/sh\nset -e\nmkdir -p deps\n. ./requirements.txt\n")
    check = b"import helper\nhelper.judge()\nprint('1 passed')\n"
    build(
        world.repo,
        {"scripts/setup.sh": sources, "requirements.txt": b":\n", "tests/check_it.py": check},
    )
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "sourced")
    contract = world.contract(
        paths=("requirements.txt", "pkg/calc.py"),
        tests=("python3 tests/check_it.py",),
        max_retries=0,
        change=lambda one: replace(one, setup=(MAKE,)),
    )
    plants = "echo 'def judge(): pass' > tests/helper.py; echo x > deps/x\n"
    agent = world.script([{"write": {**ADDS, "requirements.txt": plants}}])
    outcome = world.ended(world.run(contract, agent, merge=True))
    assert (outcome.status, outcome.merge) == ("failed", "none")
    (result,) = world.of(outcome.run_id, "TEST_RESULT")
    assert result["status"] == "FAIL"


def test_a_set_up_that_fails_ends_the_run(needy: World) -> None:
    fails = replace(MAKE, cmd="./scripts/fail.sh")
    outcome = needy.ended(needy.run(contract_of(needy, fails), baseline=True))
    assert outcome.status == "failed"
    assert "the set-up failed" in outcome.reason
    happened = needy.kinds(outcome.run_id)
    assert "SETUP_RESULT" in happened
    assert "TASK_STARTED" not in happened


def test_without_mounts_a_set_up_is_refused_with_the_reason(needy: World) -> None:
    supported("landlock")
    needy.changes["sandbox"] = "landlock"
    outcome = needy.ended(needy.run(contract_of(needy, MAKE), baseline=True))
    assert outcome.status == "failed"
    assert "cannot show what it makes" in outcome.reason


def test_a_link_that_a_candidates_set_up_leaves_leads_nowhere(world: World) -> None:
    reads = b"import os\nassert not os.path.lexists('loot')\nprint('1 passed')\n"
    made = Program(b"#!/bin/sh\n. ./requirements.txt\n")
    build(world.repo, {"scripts/setup.sh": made, "requirements.txt": b"true\n"})
    build(world.repo, {"tests/check_deps.py": reads})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "sourced")
    world.ended(world.run())
    assert os.listdir(world.home / "keys")
    sets_up = f"ln -s {world.home}/keys loot\n"
    agent = world.script([{"write": {**ADDS, "requirements.txt": sets_up}}])
    contract = contract_of(world, MAKE, paths=("requirements.txt",))
    outcome = world.ended(world.run(contract, agent, baseline=True))
    assert (outcome.status, outcome.reason) == ("passed", "")


_MOVES = """import json, os, sys
task = json.load(sys.stdin)["task_id"]
# The mount point goes with its parent, and what comes in its place is the worktree's own.
os.mkdir("build")
os.rename("other", "build/other")
os.mkdir("other")
for name in ("outside.txt", "tool.sh"):
    os.rename(f"build/other/{name}", f"other/{name}")
os.mkdir("other/made")
open("other/made/data.py", "w").write("X = 'wrong'\\n")
print(json.dumps({"task_id": task, "status": "SUCCESS", "summary": "done",
                  "evidence_refs": {}, "failure": None}))
"""


def test_what_a_set_up_made_does_not_hide_a_file_of_the_candidate(world: World) -> None:
    made = Program(b"#!/bin/sh\nset -e\nmkdir -p other/made\necho X = 1 > other/made/data.py\n")
    check = b"import sys\nsys.path[:0] = ['other']\nfrom made.data import X\nassert X == 1\n"
    build(world.repo, {"scripts/setup.sh": made, "tests/check_made.py": check})
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "made")
    contract = world.contract(
        paths=("other/made/data.py",),
        tests=("python3 tests/check_made.py",),
        max_retries=0,
        change=lambda one: replace(one, setup=(MAKE,)),
    )
    outcome = world.ended(world.run(contract, world.program(_MOVES), merge=True))
    assert (outcome.status, outcome.merge) == ("failed", "none")
    (result,) = world.of(outcome.run_id, "TEST_RESULT")
    assert result["status"] == "FAIL"
