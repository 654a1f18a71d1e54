"""What a hostile reading found: each way to get wrong or unapproved work through is shut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coilclaw.app.drivers import open_orchestrator
from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts.policy_set import shipped_files
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run_start import RunOptions
from tests.support.runs import ADDS, CALC, FILES, World, opened

WRONG = {"pkg/calc.py": "def add(a, b):\n    return 999\n"}


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def test_a_parent_that_a_contract_names_is_no_approval() -> None:
    many = {f"pkg/more_{number}.py": b"x = 1\n" for number in range(30)}
    with opened({**FILES, **many}) as world:
        contract = world.contract(
            ("pkg/",), change=lambda made: replace(made, parent_task_id="task-of-nobody")
        )
        for given in (contract, world.contract(("pkg/",))):
            outcome = world.run(given)
            assert (outcome.status, len(outcome.waiting)) == ("paused", 1)


def test_what_judges_the_work_is_nobodys_work(world: World) -> None:
    for path in ("policies/", "policies/packs/low.json", "policies/agent_registry.json"):
        outcome = world.ended(world.run(world.contract(("pkg/calc.py", path))))
        assert outcome.status == "invalid", path
        assert "policies are read from" in str(world.of(outcome.run_id, "gate_failed"))
    outcome = world.ended(world.run(world.contract(("pkg/calc.py", "policies/of_ours.txt"))))
    assert outcome.status == "passed", outcome.reason


def test_policies_that_an_agent_writes_are_refused_wherever_none_are(world: World) -> None:
    files = {f"policies/{name}": data.decode() for name, data in shipped_files().items()}
    outcome = world.ended(
        world.run(
            world.contract(("pkg/calc.py", "policies/of_ours.txt"), max_retries=0),
            world.script([{"write": {**ADDS, **files}}]),
        )
    )
    assert outcome.status == "failed"
    rules = {each["rule"] for each in world.of(outcome.run_id, "policy_violation")}
    assert {"diff.protected", "diff.out_of_scope"} <= rules


def test_what_a_test_left_at_home_does_not_help_the_next(world: World) -> None:
    poison = (
        "import os, pathlib\nplace = pathlib.Path.home() / 'poison'\n"
        "if place.exists():\n    os._exit(0)\nplace.write_text('x')\n"
    )
    check = world.repo / "tests/check_calc.py"
    check.write_text(poison + check.read_text())
    world.git("commit", "-q", "-am", "a test that remembers")
    contract = world.contract(tests=(CALC, "python3 tests/check_calc.py --again"), max_retries=1)
    outcome = world.ended(world.run(contract, world.script([{"write": WRONG}], [{"write": WRONG}])))
    assert outcome.status == "failed"


@pytest.mark.parametrize(
    ("paths", "files", "said"),
    [
        (
            ("pkg/calc.py", "tests/"),
            {"tests/check_calc/__init__.py": "def add(a, b):\n    return 3\n"},
            "would be imported for 'tests/check_calc.py'",
        ),
        (
            ("pkg/calc.py",),
            {
                "pkg/calc.py": "import unittest\n\nunittest.TestCase.assertEqual = print\n\n\n"
                "def add(a, b):\n    return a + b\n"
            },
            "unittest.TestCase.assertEqual is patched",
        ),
    ],
)
def test_what_would_judge_in_the_place_of_the_tests_is_refused(
    world: World, paths: tuple[str, ...], files: dict[str, str], said: str
) -> None:
    contract = world.contract(paths, max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"write": {**ADDS, **files}}])))
    assert outcome.status == "failed"
    assert said in json.dumps(world.recorded(outcome.run_id)) + outcome.reason


@pytest.mark.parametrize("name", ["candidate", "candidate.tests", "baseline", "merged-tests"])
def test_no_task_gets_the_places_of_the_orchestrator(world: World, name: str) -> None:
    outcome = world.ended(world.run(world.contract(task_id=name)))
    assert outcome.status == "passed", outcome.reason


def test_a_test_that_rewrites_the_next_one_fails(world: World) -> None:
    work = (
        "import pathlib\n\npathlib.Path('tests/check_calc.py').write_text('')\n\n\n"
        "def add(a, b):\n    return 999\n"
    )
    check = "import sys\n\nsys.path.insert(0, '.')\nimport pkg.calc\n\nassert pkg.calc\n"
    (world.repo / "tests/check_smoke.py").write_text(check)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "smoke")
    contract = world.contract(tests=("python3 tests/check_smoke.py", CALC), max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"write": {"pkg/calc.py": work}}])))
    assert outcome.status == "failed"
    assert "'tests/check_calc.py' was modified by the test" in outcome.reason


@pytest.mark.parametrize(
    "shell",
    [
        "truncate -s 1T pkg/huge",
        "python3 -c \"import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\"",
    ],
    ids=["huge", "deep"],
)
def test_a_tree_that_cannot_be_kept_is_a_violation(world: World, shell: str) -> None:
    contract = world.contract(("pkg/calc.py",), max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"shell": shell}])))
    assert outcome.status == "failed"
    assert world.of(outcome.run_id, "gate_failed")[0]["rule"] == "diff.unkeepable"
    again = world.ended(world.run())
    assert again.status == "passed", again.reason


def test_a_run_that_is_given_up_lets_go(world: World) -> None:
    made = world.orchestrator()
    script = world.script([{"sleep_s": 30}])

    def watch(event: object) -> None:
        if isinstance(event, dict) and event["event_type"] == "TASK_STARTED":
            made.cancel.cancel("enough")

    with pytest.raises(Exception, match="stopped"):
        made.start(RunRequest(world.contract()), RunOptions(runner=script), watch)
    (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
    outcome = world.ended(world.orchestrator().abandon(run_id))
    assert (outcome.status, outcome.reason) == ("denied", "the user gave the run up")
    assert world.run().status == "passed"
    with pytest.raises(UsageError, match="sealed"):
        world.orchestrator().abandon(run_id)


def test_without_a_model_nothing_is_begun(world: World) -> None:
    bare = open_orchestrator(world.repo, world.home, world.environ)
    for request, options in (
        (RunRequest(None, "do it"), RunOptions(runner=world.script([]))),
        (RunRequest(world.contract()), RunOptions(runner=world.script([]), reviewer="model")),
    ):
        with pytest.raises(UsageError, match="no model is configured"):
            bare.start(request, options)
    assert not (world.runtime / "runs").exists()
    # A contract is looked at first, and the run can be resumed once there is a model.
    with pytest.raises(UsageError, match="no model is configured"):
        bare.start(RunRequest(world.contract()), RunOptions(runner="builtin"))
    (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
    assert "TASK_STARTED" not in world.kinds(run_id)
    world.ended(world.orchestrator().abandon(run_id))


def test_what_a_model_plans_must_test_something(world: World) -> None:
    from tests.support.runs import Answering

    plan = {
        "spec": "Make add add.",
        "allowed_paths": ["pkg/calc.py"],
        "forbidden_actions": [],
        "acceptance_tests": [
            {
                "name": "help",
                "cmd": "python3 -m unittest --help",
                "must_pass": True,
                "timeout_sec": 60,
            }
        ],
        "required_outputs": [{"name": "patch.diff", "type": "patch", "acceptance": "it adds"}],
        "policy_pack": "low",
        "timeout_sec": 60,
        "max_retries": 0,
        "split": False,
        "summary": "",
        "risks": [],
    }
    world.models["PM"] = Answering(json.loads(json.dumps(plan)))
    outcome = world.ended(world.run(None, world.script([{"write": WRONG}]), sentence="Fix add."))
    assert outcome.status in {"failed", "invalid"}
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)
