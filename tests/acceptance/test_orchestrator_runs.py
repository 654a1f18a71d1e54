"""Whole runs with real git and scripted agents: what a good one leaves, and how others end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.evidence.progress import RunState
from tests.support.children import given_time
from tests.support.runs import ADDS, CALC, NAMES, TEXT, World, opened

WRONG = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def moves(world: World, run_id: str) -> list[str]:
    return [str(payload["to"]) for payload in world.of(run_id, "STATE_TRANSITION")]


def test_a_good_run_is_merged_sealed_and_leaves_nothing_behind(world: World) -> None:
    outcome = world.ended(world.run(merge=True))
    assert (outcome.status, outcome.state, outcome.merge) == ("passed", RunState.DONE, "merged")
    assert moves(world, outcome.run_id) == [
        "S1_TECH_LEAD",
        "S2_WORKER",
        "S3_REVIEWER",
        "S4_TEST",
        "S6_DONE",
    ]
    gates = world.gates(outcome.run_id)
    assert gates == dict.fromkeys(
        (
            "schema_gate",
            "human_approval_gate",
            "policy_gate",
            "network_gate",
            "mcp_gate",
            "integrated_gate",
            "sampling_gate",
            "tool_gate",
            "lock_gate",
            "diff_gate",
            "output_schema_gate",
            "reviewer_gate",
            "tests_gate",
            "merge_gate",
        ),
        True,
    )
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    assert world.git("status", "--short") == ""
    assert world.git("log", "--format=%s", "-1") == "task-0001: Make add add."
    manifest = outcome.manifest
    assert manifest is not None
    assert manifest.repo.final_ref == world.git("rev-parse", "HEAD")
    bundle = world.bundle(outcome.run_id)
    for path in ("patch.diff", "git/patch.diff", "patches/task-0001.diff"):
        assert (bundle / path).read_bytes() == (
            bundle / "results/task-0001/patch.diff"
        ).read_bytes()
    assert (bundle / "diff_name_only.txt").read_text() == "pkg/calc.py\n"


def test_without_merge_the_branch_stays_and_the_commit_is_kept(world: World) -> None:
    before = world.git("rev-parse", "HEAD")
    outcome = world.ended(world.run())
    assert (outcome.status, outcome.merge) == ("passed", "pending")
    assert world.git("rev-parse", "HEAD") == before
    assert world.git("status", "--short") == ""
    (pending,) = world.of(outcome.run_id, "MERGE_PENDING")
    kept = world.git("rev-parse", f"refs/coilclaw/runs/{outcome.run_id}/candidate")
    assert pending["commit"] == kept
    assert world.git("show", f"{kept}:pkg/calc.py") == ADDS["pkg/calc.py"].strip()


def test_red_tests_are_repaired_under_a_child_contract(world: World) -> None:
    runner = world.script([{"write": WRONG}], [{"write": ADDS}])
    outcome = world.ended(world.run(runner=runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert moves(world, outcome.run_id) == [
        "S1_TECH_LEAD",
        "S2_WORKER",
        "S3_REVIEWER",
        "S4_TEST",
        "S5_FIX",
        "S2_WORKER",
        "S3_REVIEWER",
        "S4_TEST",
        "S6_DONE",
    ]
    (told,) = world.of(outcome.run_id, "FIX_LOOP_TRIGGERED")
    assert (told["child_task_id"], told["replaces"]) == ("task-0001-fix-1", ["task-0001"])
    _check_child(world, outcome.run_id, "ci/candidate-0/report.json")
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    # Both attempts are in the evidence; the patch of the run is that of the repair.
    bundle = world.bundle(outcome.run_id)
    assert world.read(outcome.run_id, "ci/candidate-0/report.json")["status"] == "FAIL"
    assert world.read(outcome.run_id, "ci/candidate-1/report.json")["status"] == "PASS"
    assert (bundle / "patch.diff").read_bytes() == (
        bundle / "patches/task-0001-fix-1.diff"
    ).read_bytes()


def test_a_blocking_review_is_repaired_under_a_child_contract(world: World) -> None:
    debugged = {"pkg/calc.py": "def add(a, b):\n    breakpoint()\n    return a + b\n"}
    runner = world.script([{"write": debugged}], [{"write": ADDS}])
    outcome = world.ended(world.run(runner=runner))
    assert outcome.status == "passed"
    assert moves(world, outcome.run_id)[2:5] == ["S3_REVIEWER", "S5_FIX", "S2_WORKER"]
    _check_child(world, outcome.run_id, "reviews/task-0001.json")
    # What was blocked in the review was never tested.
    assert len(world.of(outcome.run_id, "TEST_RESULT")) == 1


def _check_child(world: World, run_id: str, path: str) -> None:
    """The child is a contract of its own, and names what failed by its hash."""
    parent = world.read(run_id, "tasks/task-0001.json")
    child = world.read(run_id, "tasks/task-0001-fix-1.json")
    assert child["parent_task_id"] == "task-0001"
    assert child["task_id"] == "task-0001-fix-1"
    for key in ("allowed_paths", "acceptance_tests", "tool_permissions", "forbidden_actions"):
        assert child[key] == parent[key]
    assert child["inputs"]["spec"] == parent["inputs"]["spec"]
    evidence = {each["uri"]: each["sha256"] for each in child["inputs"]["artifacts"]}
    wanted = f"runs/{run_id}/{path}"
    assert wanted in evidence
    manifest = world.read(run_id, "manifest.json")
    for uri, sha256 in evidence.items():
        if uri.startswith(f"runs/{run_id}/"):
            assert manifest["evidence_hashes"][uri.removeprefix(f"runs/{run_id}/")] == sha256


@pytest.mark.parametrize("retries", [0, 1])
def test_when_no_retry_is_left_the_run_fails(world: World, retries: int) -> None:
    runner = world.script(*([{"write": WRONG}] for _ in range(5)))
    outcome = world.ended(world.run(world.contract(max_retries=retries), runner, merge=True))
    assert (outcome.status, outcome.state) == ("failed", RunState.FAILED)
    assert len(world.of(outcome.run_id, "FIX_LOOP_TRIGGERED")) == retries
    assert len(world.of(outcome.run_id, "FIX_LOOP_EXHAUSTED")) == 1
    assert len(world.of(outcome.run_id, "TEST_RESULT")) == retries + 1
    assert "exit code 1" in outcome.reason
    assert (world.repo / "pkg/calc.py").read_text() != WRONG["pkg/calc.py"]


def test_a_repair_begins_where_the_refused_work_ended(world: World) -> None:
    """What passed the diff gate is kept for the repair; what did not is taken back."""
    shell = "cp pkg/calc.py seen.txt; cat seen.txt; rm seen.txt"
    runner = world.script([{"write": WRONG}], [{"shell": shell}, {"write": ADDS}])
    outcome = world.ended(world.run(runner=runner))
    assert outcome.status == "passed"
    told = (world.bundle(outcome.run_id) / "codex/task-0001-fix-1/events.jsonl").read_text()
    assert "return a * b" in told
    outside = {**WRONG, "README.md": "mine\n"}
    runner = world.script([{"write": outside}], [{"shell": shell}, {"write": ADDS}])
    outcome = world.ended(world.run(runner=runner))
    assert outcome.status == "passed"
    told = (world.bundle(outcome.run_id) / "codex/task-0001-fix-1/events.jsonl").read_text()
    assert "return a - b" in told
    assert "return a * b" not in told


def test_a_weakened_test_fails_though_it_is_green(world: World) -> None:
    weak = {"tests/check_calc.py": "import sys\n"}
    contract = world.contract(["pkg/calc.py", "tests/check_calc.py"], max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"write": {**ADDS, **weak}}])))
    assert outcome.status == "failed"
    assert "MERGE_PENDING" not in world.kinds(outcome.run_id)


def test_a_contract_may_allow_tests_to_change(world: World) -> None:
    def allowing(contract: TaskContract) -> TaskContract:
        return replace(contract, test_policy="allow")

    weak = {"tests/check_calc.py": "import sys\n"}
    contract = world.contract(["pkg/calc.py", "tests/check_calc.py"], change=allowing)
    outcome = world.ended(world.run(contract, world.script([{"write": {**ADDS, **weak}}])))
    assert outcome.status == "passed", outcome.reason


def test_only_the_acceptance_tests_run_and_all_of_them(world: World) -> None:
    contract = world.contract(tests=(CALC, TEXT, NAMES), max_retries=0)
    outcome = world.ended(world.run(contract))
    assert outcome.status == "failed"
    started = [event["argv"] for event in world.of(outcome.run_id, "COMMAND_STARTED")]
    # After the first that has to pass and does not, no other is run.
    assert started == [["python3", "tests/check_calc.py"], ["python3", "tests/check_text.py"]]
    report = world.read(outcome.run_id, "reports/test_report.json")
    assert report["summary"] == {"passed": 1, "failed": 1, "skipped": 1}
    logs = world.bundle(outcome.run_id) / "tests"
    assert "nobody shouts" in (logs / "stderr.log").read_text()
    assert (logs / "command.txt").read_text() == f"{CALC}\n{TEXT}\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", ""),
        (b"[]", ""),
        (b'{"task_id": "x"}', "owner_agent"),
        (b'{"task_id": "x", "task_id": "y"}', ""),
        (b"\xff\xfe", ""),
    ],
    ids=["nothing", "half", "list", "fields", "twice", "bytes"],
)
def test_an_invalid_contract_leaves_a_sealed_bundle_that_says_why(
    world: World, data: bytes, said: str
) -> None:
    outcome = world.ended(world.run(data))
    assert (outcome.status, outcome.state) == ("invalid", RunState.FAILED)
    assert said in outcome.reason
    (failed,) = world.of(outcome.run_id, "gate_failed")
    assert failed["gate"] == "schema_gate"
    assert (world.bundle(outcome.run_id) / "artifacts/contract.given.json").read_bytes() == data
    assert outcome.manifest is not None
    assert outcome.manifest.status == "FAILURE"
    assert outcome.manifest.failure_reason
    assert not {"TASK_STARTED", "LOCKS_ACQUIRED"} & set(world.kinds(outcome.run_id))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"allowed_paths": ["../x"]}, "allowed_paths"),
        ({"allowed_paths": ["/etc"]}, "allowed_paths"),
        ({"allowed_paths": ["pkg/*.py"]}, "allowed_paths"),
        ({"allowed_paths": [".git/config"]}, "allowed_paths"),
        ({"assigned_agent": {"role": "WORKER", "agent_id": "nobody"}}, "nobody"),
        ({"acceptance_tests": []}, "acceptance_tests"),
        ({"surplus": 1}, "surplus"),
    ],
    ids=["parent", "absolute", "glob", "git", "agent", "tests", "surplus"],
)
def test_a_contract_against_the_rules_is_invalid(
    world: World, change: dict[str, object], said: str
) -> None:
    value = {**json.loads(world.contract()), **change}
    outcome = world.ended(world.run(json.dumps(value).encode()))
    assert outcome.status == "invalid", outcome.reason
    assert said in json.dumps(world.recorded(outcome.run_id))
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import os'",
        "git push origin main",
        "curl https://example.invalid",
        "python3 tests/check_calc.py; rm -rf .",
        "python3 tests/check_calc.py > out.txt",
        "python3 tests/not_there.py",
        "sudo python3 tests/check_calc.py",
    ],
)
def test_a_command_that_the_policy_refuses_never_runs(world: World, command: str) -> None:
    outcome = world.ended(world.run(world.contract(tests=(command,))))
    assert outcome.status in {"failed", "invalid"}
    assert not {"TASK_STARTED", "COMMAND_STARTED"} & set(world.kinds(outcome.run_id))


def test_a_test_that_takes_too_long_is_red(world: World) -> None:
    slow = {**ADDS, "tests/check_slow.py": "import time\n\ntime.sleep(600)\n"}

    def attempt(seconds: float) -> RunOutcome:
        contract = world.contract(
            ["pkg/calc.py", "tests/check_slow.py"],
            ["python3 tests/check_slow.py"],
            max_retries=0,
            timeout_sec=int(seconds),
        )
        outcome = world.ended(world.run(contract, world.script([{"write": slow}])))
        assert outcome.status == "failed"
        return outcome

    # On a busy machine the agent may need more time than the test is to have.
    outcome = given_time(2, attempt, lambda it: "COMMAND_STARTED" in world.kinds(it.run_id))
    report = world.read(outcome.run_id, "reports/test_report.json")
    assert (report["status"], report["commands"][0]["exit_code"]) == ("ERROR", 124)


def test_a_task_that_is_called_like_a_repair_is_repaired_all_the_same(world: World) -> None:
    runner = world.script_for({"*": [[{"write": WRONG}], [{"write": WRONG}], [{"write": ADDS}]]})
    contract = world.contract(task_id="task-fix-the-sum", max_retries=2)
    outcome = world.ended(world.run(contract, runner))
    assert outcome.status == "passed", outcome.reason
    assert outcome.manifest is not None
    assert [task.task_id for task in outcome.manifest.tasks] == [
        "task-fix-the-sum",
        "task-fix-the-sum-fix-1",
        "task-fix-the-sum-fix-2",
    ]


def test_a_commit_that_cannot_be_reverted_does_not_keep_the_work(world: World) -> None:
    """The contract names a commit that was made before: nothing of the sort is undone."""

    def reverting(contract: TaskContract) -> TaskContract:
        rollback = replace(contract.rollback, strategy="git_revert_commit", target_ref="0" * 40)
        return replace(contract, rollback=rollback)

    contract = world.contract(change=reverting)
    runner = world.script([{"write": {"README.md": "mine\n"}}], [{"write": ADDS}])
    outcome = world.ended(world.run(contract, runner, merge=True))
    assert outcome.status == "passed", outcome.reason
    (rolled,) = world.of(outcome.run_id, "ROLLBACK_APPLIED")
    assert rolled["refused"]
    assert (world.repo / "README.md").read_text() == "# Sums\n"
