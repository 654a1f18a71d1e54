"""Tests judge the candidate, and what work leaves behind is no part of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.runs import ADDS, World, opened
from tests.support.sandboxes import supported
from tests.support.snapshot_trees import git

_WRONG = "def add(a, b):\n    return a * b\n"
_CHECK = "python3 tests/check_installed.py"
_CHECK_TEXT = """\
import pkg.calc
assert pkg.calc.add(2, 3) == 5, pkg.calc.__file__
print("1 passed", pkg.calc.__file__)
"""


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


@pytest.fixture
def installed(world: World) -> World:
    """The checkout is installed in an environment on PATH, as ``pip install -e`` does it."""
    place = world.root / "environment"
    subprocess.run(
        [os.path.realpath(sys.executable), "-m", "venv", "--without-pip", str(place)], check=True
    )
    (packages,) = (place / "lib").glob("python*/site-packages")
    (packages / "editable.pth").write_text(f"{world.repo}\n")
    world.environ["PATH"] = f"{place}/bin:{os.environ['PATH']}"
    commit(world, {"tests/check_installed.py": _CHECK_TEXT})
    return world


def commit(world: World, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = world.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "more")


def run(world: World, files: dict[str, str], **options: Any) -> Any:
    agent = world.script([{"write": files}])
    return world.ended(world.run(runner=agent, merge=True, **options))


def test_an_editable_install_leads_to_the_candidate(installed: World) -> None:
    contract = installed.contract(tests=(_CHECK,), max_retries=0)
    outcome = run(installed, {"pkg/calc.py": _WRONG}, contract=contract)
    assert (outcome.status, outcome.merge) == ("failed", "none")
    outcome = run(installed, {"pkg/calc.py": ADDS["pkg/calc.py"]}, contract=contract)
    assert (outcome.status, outcome.merge) == ("passed", "merged")


def test_a_checkout_that_is_right_does_not_hide_a_wrong_candidate(installed: World) -> None:
    contract = installed.contract(tests=(_CHECK,), max_retries=0)
    (installed.repo / "pkg/calc.py").write_text(ADDS["pkg/calc.py"])
    outcome = run(installed, {"pkg/calc.py": _WRONG}, contract=contract)
    assert (outcome.status, outcome.merge) == ("failed", "none")


def test_with_landlock_alone_nothing_is_judged_on_the_checkout(installed: World) -> None:
    supported("landlock")
    installed.changes["sandbox"] = "landlock"
    (installed.repo / "pkg/calc.py").write_text(ADDS["pkg/calc.py"])
    contract = installed.contract(tests=(_CHECK,), max_retries=0)
    outcome = run(installed, {"pkg/calc.py": _WRONG}, contract=contract)
    assert (outcome.status, outcome.merge) == ("failed", "none")
    (log,) = (installed.runtime / "runs" / outcome.run_id / "ci").rglob("*.stderr.log")
    assert f"the checkout {installed.repo} cannot be read" in log.read_text()
    assert "Install bubblewrap" in log.read_text()


def test_an_agent_that_lies_in_the_checkout_beside_its_files_is_found(world: World) -> None:
    agent = world.repo / "tools/agent.py"
    agent.parent.mkdir()
    agent.write_text(
        "import json, sys\n"
        "task = json.load(sys.stdin)['task_id']\n"
        f"open('pkg/calc.py', 'w').write({ADDS['pkg/calc.py']!r})\n"
        "print(json.dumps({'task_id': task, 'status': 'SUCCESS', 'summary': 'done',\n"
        "                  'evidence_refs': {}, 'failure': None}))\n"
    )
    runner = f"process:{os.path.realpath(sys.executable)} -I {agent}"
    outcome = world.ended(world.run(runner=runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert agent.is_file()


_CACHES = {
    ".pytest_cache/.gitignore": "*\n",
    ".pytest_cache/v/x": "x\n",
    "pkg/__pycache__/calc.cpython-311.pyc": "x\n",
    ".hypothesis/examples/x": "x\n",
    ".coverage": "x\n",
    "calc.egg-info/PKG-INFO": "x\n",
}


def test_caches_are_dropped_wherever_they_are_and_listed(world: World) -> None:
    outcome = run(world, {**ADDS, **_CACHES})
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    (gate,) = world.of(outcome.run_id, "DIFF_GATE_RESULT")
    for name in (".pytest_cache", "pkg/__pycache__", ".hypothesis", ".coverage", "calc.egg-info"):
        assert f'"{name}"' in str(gate["facts"])
    listed = git(world.repo, "show", "--name-only", "--format=", "-m", "--first-parent", "main")
    assert listed.split() == [b"pkg/calc.py"]


@pytest.mark.parametrize("rules", ["build/\n*.log\n", "/build\n*.log\n"])
def test_what_the_baseline_ignores_is_dropped(world: World, rules: str) -> None:
    commit(world, {".gitignore": rules})
    extra = {"build/deep/out.js": "x\n", "build/conftest.py": "x\n", "pkg/trace.log": "x\n"}
    outcome = run(world, {**ADDS, **extra})
    assert (outcome.status, outcome.merge) == ("passed", "merged")


def test_rules_of_the_agent_hide_nothing(world: World) -> None:
    outcome = run(
        world,
        {**ADDS, "pkg/hidden/.gitignore": "*\n", "pkg/hidden/x.py": "x = 1\n"},
        contract=world.contract(max_retries=0),
    )
    assert (outcome.status, outcome.merge) == ("failed", "none")
    (gate,) = world.of(outcome.run_id, "DIFF_GATE_RESULT")
    assert "pkg/hidden/x.py" in str(gate["violations"])


def test_a_tracked_cache_is_a_part_of_the_repository(world: World) -> None:
    commit(world, {".tox/keep.txt": "kept\n"})
    outcome = run(
        world, {**ADDS, ".tox/keep.txt": "changed\n"}, contract=world.contract(max_retries=0)
    )
    assert (outcome.status, outcome.merge) == ("failed", "none")
    outcome = run(world, {**ADDS, ".tox/new.txt": "new\n"}, contract=world.contract(max_retries=0))
    assert (outcome.status, outcome.merge) == ("failed", "none")


def test_a_cache_that_the_contract_names_is_work(world: World) -> None:
    contract = world.contract(paths=("pkg/calc.py", "calc.egg-info/PKG-INFO"))
    files = {**ADDS, "calc.egg-info/PKG-INFO": "Name: calc\n"}
    outcome = run(world, files, contract=contract)
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert (world.repo / "calc.egg-info/PKG-INFO").read_text() == "Name: calc\n"


@pytest.mark.parametrize("ignored", [True, False])
def test_an_ignored_file_that_tests_could_import_is_gone_before_they_run(
    world: World, ignored: bool
) -> None:
    reads = "import sys\nsys.path[:0] = ['local']\nimport cheat\nprint('1 passed')\n"
    commit(world, {"tests/check_local.py": reads, ".gitignore": "local/\n" if ignored else ""})
    contract = world.contract(
        paths=("pkg/calc.py", "local/cheat.py"),
        tests=("python3 tests/check_local.py",),
        max_retries=0,
    )
    outcome = run(world, {**ADDS, "local/cheat.py": "HERE = True\n"}, contract=contract)
    expected = ("failed", "none") if ignored else ("passed", "merged")
    assert (outcome.status, outcome.merge) == expected
    (result,) = world.of(outcome.run_id, "TEST_RESULT")
    assert result["status"] == ("FAIL" if ignored else "PASS")


@pytest.fixture
def judged(world: World) -> World:
    """A test asks something in node_modules, which says no."""
    asks = "import sys\nsys.path[:0] = ['node_modules']\nimport judge\njudge.ask()\n"
    commit(world, {"tests/ask.py": asks, "package.json": "{}\n", ".gitignore": "node_modules/\n"})
    (world.repo / "node_modules").mkdir()
    (world.repo / "node_modules/judge.py").write_text("def ask():\n    raise SystemExit(1)\n")
    return world


def test_no_test_changes_what_the_next_one_depends_on(judged: World) -> None:
    bribes = "open('node_modules/judge.py', 'w').write('def ask(): pass')\n"
    contract = judged.contract(
        tests=("python3 tests/check_calc.py", "python3 tests/ask.py"), max_retries=0
    )
    outcome = run(judged, {"pkg/calc.py": bribes + ADDS["pkg/calc.py"]}, contract=contract)
    assert (outcome.status, outcome.merge) == ("failed", "none")


def test_a_reviewing_agent_cannot_change_what_tests_depend_on(judged: World) -> None:
    bribes = """import json, sys
try:
    open("node_modules/judge.py", "w").write("def ask(): pass")
    said = "bribed"
except OSError as problem:
    said = problem.strerror
print(json.dumps({"verdict": "PASS", "summary": said, "findings": [],
                  "scope_check": {"passed": True, "violations": []}}))
"""
    contract = judged.contract(tests=("python3 tests/ask.py",), max_retries=0)
    reviewer = judged.program(bribes, "reviewer")
    outcome = run(judged, dict(ADDS), contract=contract, reviewer=reviewer)
    assert "Read-only file system" in str(judged.read(outcome.run_id, "reviews/task-0001.json"))
    assert (outcome.status, outcome.merge) == ("failed", "none")


def test_an_agent_sees_nothing_of_other_runs_where_they_lie_outside(world: World) -> None:
    runtime = world.root / "runtime"
    for place in ("homes/run_x/task", "setups/key/home"):
        (runtime / place).mkdir(parents=True)
        (runtime / place / "secret").touch()
    world.environ["CORTEXPILOT_RUNTIME_ROOT"] = str(runtime)
    agent = f"""import json, os, sys
task = json.load(sys.stdin)["task_id"]
found = [name for _, _, names in os.walk({str(runtime)!r}) for name in names if name == "secret"]
assert not found and os.access(os.environ["HOME"], os.W_OK)
open("pkg/calc.py", "w").write({ADDS["pkg/calc.py"]!r})
print(json.dumps({{"task_id": task, "status": "SUCCESS", "summary": "done",
                  "evidence_refs": {{}}, "failure": None}}))
"""
    outcome = world.run(runner=world.program(agent), merge=True)
    assert (outcome.status, outcome.merge) == ("passed", "merged")
