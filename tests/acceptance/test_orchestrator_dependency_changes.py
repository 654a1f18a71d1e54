"""Work in what a set-up made, or the checkout holds, is part of the change or listed as dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.runs.run_narrator import Narrator
from coilclaw.runs.contracts.task_contract import SetupCommand
from coilclaw.runs.engine.ready_worktree import CACHE, IGNORED, REMOVED, UNNAMED
from coilclaw.runs.engine.reexecution import reexecute
from tests.support.runs import ADDS, CALC, World, opened
from tests.support.sandboxes import supported
from tests.support.snapshot_trees import Program, build, git

_MAKES = Program(
    b"#!/bin/sh\nset -e\nmkdir -p deps/sub\necho ready > deps/marker\necho X = 1 > deps/data.py\n"
    b"echo old > deps/sub/old\n"
)
_NEEDS = (
    b"assert open('deps/marker').read() == 'ready\\n'\n"
    b"assert open('deps/sub/old').read() == 'old\\n'\n"
    b"assert open('deps/data.py').read() == 'X = 2\\n', 'as it was'\n"
)
MAKE = SetupCommand(name="make", cmd="./scripts/setup.sh")
WORK = {**ADDS, "deps/data.py": "X = 2\n"}
NEEDS = "python3 tests/check_deps.py"


@pytest.fixture
def world() -> Iterator[World]:
    supported("bubblewrap")
    with opened() as made:
        build(made.repo, {"scripts/setup.sh": _MAKES, "tests/check_deps.py": _NEEDS})
        commit(made)
        yield made


def commit(world: World) -> None:
    git(world.repo, "add", "-A")
    git(world.repo, "commit", "-q", "-m", "more")


def run(world: World, paths: tuple[str, ...], *parts: dict[str, Any], **options: Any) -> Any:
    setup = options.pop("setup", (MAKE,))
    contract = world.contract(
        paths=("pkg/calc.py", *paths),
        **{"max_retries": 0, "tests": (CALC,), **options},
        change=lambda one: replace(one, setup=setup),
    )
    return world.ended(world.run(contract, world.script(list(parts)), merge=True, baseline=False))


def dropped(world: World, run_id: str) -> list[tuple[str, str]]:
    gate = world.of(run_id, "DIFF_GATE_RESULT")[0]
    rows = json.loads(gate["facts"]).get("dropped", [])
    return [(row["path"], row["reason"]) for row in rows]


def narrated(world: World) -> str:
    out = StringIO()
    console = Console(out, out, colour_out=False, colour_err=False)
    with Narrator(console, world.bundle) as narrator:
        for event in world.events:
            narrator.watch(event)
    return out.getvalue()


def merged(world: World) -> list[str]:
    listed = git(world.repo, "show", "--name-only", "--format=", "-m", "--first-parent", "main")
    return listed.decode().split()


@pytest.mark.parametrize("named", ["deps", "deps/", "deps/data.py"])
def test_work_that_the_contract_names_is_judged_and_merged(world: World, named: str) -> None:
    outcome = run(world, (named,), {"write": WORK}, tests=(CALC, NEEDS))
    assert (outcome.status, outcome.reason, outcome.merge) == ("passed", "", "merged")
    assert merged(world) == ["deps/data.py", "pkg/calc.py"]
    assert (world.repo / "deps/data.py").read_text() == "X = 2\n"
    assert dropped(world, outcome.run_id) == []
    assert "left out" not in narrated(world)
    assert reexecute(world.orchestrator().equipment, outcome.run_id).report.status == "pass"


def test_what_the_set_up_made_is_no_work_where_nobody_changed_it(world: World) -> None:
    outcome = run(world, ("deps/",), {"write": dict(ADDS)})
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert merged(world) == ["pkg/calc.py"]
    assert dropped(world, outcome.run_id) == []


@pytest.mark.parametrize("paths", [(), ("deps/other.py",), ("README.md",)])
def test_other_work_in_it_is_listed_and_told(world: World, paths: tuple[str, ...]) -> None:
    more = {"deps/new/x.py": "x = 1\n", "deps/__pycache__/x.pyc": "x\n"}
    outcome = run(world, paths, {"write": {**WORK, **more}}, {"delete": ["deps/sub/old"]})
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert merged(world) == ["pkg/calc.py"]
    assert dropped(world, outcome.run_id) == [
        ("deps/data.py", UNNAMED),
        ("deps/new/x.py", UNNAMED),
        ("deps/sub/old", REMOVED),
        ("deps/__pycache__/x.pyc", CACHE),
    ]
    told = narrated(world)
    assert f"left out of the change: deps/data.py, deps/new/x.py: {UNNAMED}" in told
    assert f"left out of the change: deps/sub/old: {REMOVED}" in told
    assert CACHE not in told
    # Tests find what the set-up makes, and not what was dropped.
    outcome = run(world, paths, {"write": WORK}, tests=(CALC, NEEDS))
    assert (outcome.status, outcome.merge) == ("failed", "none")


def test_what_the_baseline_ignores_is_dropped_although_it_is_named(world: World) -> None:
    build(world.repo, {".gitignore": b"deps/\n"})
    commit(world)
    outcome = run(world, ("deps/data.py",), {"write": WORK})
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert merged(world) == ["pkg/calc.py"]
    assert dropped(world, outcome.run_id) == [("deps/data.py", IGNORED)]


def test_a_link_in_the_place_of_a_named_set_up_is_refused(world: World) -> None:
    links = """import json, os, shutil, sys
task = json.load(sys.stdin)["task_id"]
shutil.rmtree("deps")
os.symlink("/etc", "deps")
print(json.dumps({"task_id": task, "status": "SUCCESS", "summary": "done",
                  "evidence_refs": {}, "failure": None}))
"""
    contract = world.contract(
        paths=("deps/",), max_retries=0, change=lambda one: replace(one, setup=(MAKE,))
    )
    outcome = world.ended(world.run(contract, world.program(links), merge=True))
    assert (outcome.status, outcome.merge) == ("failed", "none")
    (gate,) = world.of(outcome.run_id, "DIFF_GATE_RESULT")
    assert "diff.symlink" in str(gate["violations"])


def test_a_repair_finds_the_work_and_the_rest_of_the_set_up(world: World) -> None:
    wrong = {**ADDS, "deps/data.py": "X = 3\n"}
    contract = world.contract(
        paths=("pkg/calc.py", "deps/"),
        tests=(NEEDS,),
        max_retries=1,
        change=lambda one: replace(one, setup=(MAKE,)),
    )
    # The second time it changes one file that is tracked by then, and one that is not.
    repairs = {"deps/data.py": "X = 2\n", "deps/sub/more": "more\n"}
    agent = world.script([{"write": wrong}], [{"write": repairs}])
    outcome = world.ended(world.run(contract, agent, merge=True))
    assert (outcome.status, outcome.reason, outcome.merge) == ("passed", "", "merged")
    assert merged(world) == ["deps/data.py", "deps/sub/more", "pkg/calc.py"]


@pytest.fixture
def generated(world: World) -> World:
    """A build wrote a version into the checkout, which git does not track."""
    check = b"from pkg._version import V\nassert V == 2, V\n"
    build(world.repo, {"tests/check_version.py": b"import sys\nsys.path[:0] = ['.']\n" + check})
    commit(world)
    (world.repo / "pkg/_version.py").write_text("V = 1\n")
    return world


VERSION = {**ADDS, "pkg/_version.py": "V = 2\n"}


def test_a_generated_file_that_the_contract_names_is_work(generated: World) -> None:
    outcome = run(
        generated,
        ("pkg/_version.py",),
        {"write": VERSION},
        setup=(),
        tests=(CALC, "python3 tests/check_version.py"),
    )
    assert (outcome.status, outcome.merge) == ("passed", "pending")
    # The user's own file is not overwritten.
    assert "'pkg/_version.py' (commit or stash them" in outcome.reason
    assert (generated.repo / "pkg/_version.py").read_text() == "V = 1\n"
    patch = (generated.bundle(outcome.run_id) / "patch.diff").read_text()
    assert "+++ b/pkg/_version.py\n" in patch
    assert "+V = 2\n" in patch


def test_a_generated_file_that_nobody_names_cannot_be_written(generated: World) -> None:
    outcome = run(generated, (), {"write": VERSION}, setup=())
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert merged(generated) == ["pkg/calc.py"]
    kept = (generated.bundle(outcome.run_id) / "events.jsonl").parent.rglob("*.jsonl")
    assert any("pkg/_version.py: Read-only file system" in each.read_text() for each in kept)


def test_a_generated_file_that_the_baseline_ignores_is_no_work(generated: World) -> None:
    build(generated.repo, {".gitignore": b"_version.py\n"})
    commit(generated)
    outcome = run(generated, ("pkg/_version.py",), {"write": VERSION}, setup=())
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert merged(generated) == ["pkg/calc.py"]
