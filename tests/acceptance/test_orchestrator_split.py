"""Planning in whole runs: the Tech Lead's split, the PM's contract, and models that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coilclaw.kernel.errors import ProviderError, UsageError
from coilclaw.kernel.messages import Json
from coilclaw.runs.engine.run_engine import RunOutcome
from tests.support.runs import (
    ADDS,
    CALC,
    FIRST,
    NAMES,
    SHOUTS,
    TEXT,
    Answering,
    World,
    opened,
    split,
    task,
)

CALC_TASK = task("calc", ["pkg/calc.py"], [CALC])
TEXT_TASK = task("text", ["pkg/text.py"], [TEXT])
NAMES_TASK = task("names", ["pkg/names.py"], [NAMES])
PATHS = ["pkg/calc.py", "pkg/text.py", "pkg/names.py"]
TESTS = [CALC, TEXT, NAMES]
PLAN: dict[str, Json] = {
    "spec": "Make add add.",
    "allowed_paths": ["pkg/calc.py"],
    "acceptance_tests": [{"name": "sums", "cmd": CALC, "must_pass": True, "timeout_sec": 60}],
    "required_outputs": [{"name": "patch", "type": "patch", "acceptance": "the test is green"}],
    "forbidden_actions": [],
    "policy_pack": "low",
    "split": False,
    "timeout_sec": 60,
    "max_retries": 0,
    "summary": "One line.",
    "risks": [],
}


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def led(
    world: World, answer: Json | ProviderError, *, merge: bool = False, tests: int = 3
) -> RunOutcome:
    """A run whose contract a Tech Lead splits as told."""
    world.models["TECH_LEAD"] = Answering(answer)
    contract = world.contract(PATHS, TESTS[:tests], role="TECH_LEAD", max_retries=1)
    runner = world.script_for(
        {
            "task-0001-calc": [[{"write": ADDS}]],
            "task-0001-text": [[{"write": SHOUTS}]],
            "task-0001-names": [[{"write": FIRST}]],
        }
    )
    return world.run(contract, runner, merge=merge)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (split(CALC_TASK, task("again", ["pkg"], [TEXT])), "pkg"),
        (split(CALC_TASK, task("same", ["pkg/calc.py"], [TEXT])), "pkg/calc.py"),
        (split(task("out", ["other"], [CALC])), "not in the allowed_paths"),
        (split(CALC_TASK, {**CALC_TASK, "allowed_paths": ["pkg/text.py"]}), "twice"),
        (split(task("x", ["pkg/calc.py"], ["curl example.invalid"])), "curl"),
        (split({**CALC_TASK, "tool_permissions": {"filesystem": "workspace-write"}}), "shell"),
        (
            split(
                task(
                    "net",
                    ["pkg/calc.py"],
                    [CALC],
                    tool_permissions={
                        "filesystem": "workspace-write",
                        "shell": "never",
                        "network": "allow",
                        "mcp_tools": [],
                    },
                )
            ),
            "network",
        ),
        ("Sure! I would split it in two.", "not valid JSON"),
        ({"tasks": [], "summary": "", "risks": []}, "tasks"),
    ],
    ids=["below", "same", "outside", "twice", "command", "form", "network", "prose", "none"],
)
def test_a_split_that_goes_too_far_ends_the_run_before_any_work(
    world: World, answer: Json, said: str
) -> None:
    outcome = world.ended(led(world, answer))
    assert outcome.status == "failed"
    assert said in outcome.reason
    assert world.gates(outcome.run_id)["output_schema_gate"] is False
    assert not {"TASK_STARTED", "LOCKS_ACQUIRED"} & set(world.kinds(outcome.run_id))


def test_two_tasks_work_at_the_same_time_in_their_own_worktrees(world: World) -> None:
    outcome = world.ended(led(world, split(CALC_TASK, TEXT_TASK), merge=True, tests=2))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    created = world.of(outcome.run_id, "WORKTREE_CREATED")
    paths = {each["path"] for each in created}
    assert len(paths) == 2
    events = [(e["event_type"], e["task_id"]) for e in world.recorded(outcome.run_id)]
    ends = [events.index(("TASK_RESULT_RECORDED", f"task-0001-{n}")) for n in ("calc", "text")]
    begins = [events.index(("TASK_STARTED", f"task-0001-{n}")) for n in ("calc", "text")]
    assert max(begins) < min(ends)
    assert world.git("log", "--format=%s", "-2").splitlines() == [
        "task-0001-text: Do text.",
        "task-0001-calc: Do calc.",
    ]
    for name in ("calc", "text"):
        child = world.read(outcome.run_id, f"tasks/task-0001-{name}.json")
        assert child["parent_task_id"] == "task-0001"
        names = world.bundle(outcome.run_id) / f"results/task-0001-{name}/diff_name_only.txt"
        assert names.read_text() == f"pkg/{name}.py\n"
    # Asked once; what was handed on is in the evidence, bound to the contract by its hash.
    assert len(world.models["TECH_LEAD"].asked) == 1
    assert len(world.of(outcome.run_id, "HANDOFF_RECORDED")) == 2


def test_three_tasks_are_one_candidate(world: World) -> None:
    outcome = world.ended(led(world, split(CALC_TASK, TEXT_TASK, NAMES_TASK)))
    assert outcome.status == "passed", outcome.reason
    names = (world.bundle(outcome.run_id) / "diff_name_only.txt").read_text()
    assert names.splitlines() == ["pkg/calc.py", "pkg/names.py", "pkg/text.py"]
    (prepared,) = world.of(outcome.run_id, "CANDIDATE_PREPARED")
    assert prepared["tasks"] == ["task-0001-calc", "task-0001-text", "task-0001-names"]


def test_tasks_that_share_a_path_under_a_lock_take_turns(world: World) -> None:
    shared = {"locks": ["pkg/calc.py"]}
    first = task("calc", ["pkg/calc.py"], [CALC], **shared)
    second = task("second", ["pkg/calc.py", "pkg/text.py"], [CALC], **shared)
    world.models["TECH_LEAD"] = Answering(split(first, second))
    contract = world.contract(PATHS, [CALC], role="TECH_LEAD")
    doc = "def add(a, b):\n    return a + b\n\n\ndef twice(a):\n    return add(a, a)\n"
    runner = world.script_for(
        {
            "task-0001-calc": [[{"sleep_s": 0.2}, {"write": ADDS}]],
            "task-0001-second": [[{"shell": "cat pkg/calc.py"}, {"write": {"pkg/calc.py": doc}}]],
        }
    )
    outcome = world.ended(world.run(contract, runner, merge=True))
    assert outcome.status == "passed", outcome.reason
    events = [(e["event_type"], e["task_id"]) for e in world.recorded(outcome.run_id)]
    assert events.index(("TASK_RESULT_RECORDED", "task-0001-calc")) < events.index(
        ("TASK_STARTED", "task-0001-second")
    )
    # The second began on the work of the first.
    told = (world.bundle(outcome.run_id) / "codex/task-0001-second/events.jsonl").read_text()
    assert "return a + b" in told
    assert (world.repo / "pkg/calc.py").read_text() == doc


def test_one_of_two_is_rolled_back_and_repaired_while_the_other_stays(world: World) -> None:
    world.models["TECH_LEAD"] = Answering(split(CALC_TASK, TEXT_TASK))
    contract = world.contract(PATHS, [CALC, TEXT], role="TECH_LEAD", max_retries=2)
    outside = {**SHOUTS, "README.md": "mine\n"}
    runner = world.script_for(
        {
            "task-0001-calc": [[{"write": ADDS}]],
            "task-0001-text": [[{"write": outside}], [{"write": SHOUTS}]],
        }
    )
    outcome = world.ended(world.run(contract, runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    (told,) = world.of(outcome.run_id, "FIX_LOOP_TRIGGERED")
    assert told["replaces"] == ["task-0001-text"]
    started = [
        event["task_id"]
        for event in world.recorded(outcome.run_id)
        if event["event_type"] == "TASK_STARTED"
    ]
    # Accepted work is not done again.
    assert sorted(started) == ["task-0001-calc", "task-0001-text", "task-0001-text-fix-1"]


def test_where_no_task_is_to_blame_one_contract_repairs_them_all(world: World) -> None:
    """The tests of the whole fail, and each task's own are green."""
    both = task("calc", ["pkg/calc.py"], [CALC]), task("text", ["pkg/text.py"], [CALC])
    world.models["TECH_LEAD"] = Answering(split(*both))
    contract = world.contract(PATHS[:2], [CALC, TEXT], role="TECH_LEAD", max_retries=1)
    quiet = {"pkg/text.py": "def shout(words):\n    return words.lower()\n"}
    runner = world.script_for(
        {
            "task-0001-calc": [[{"write": ADDS}]],
            "task-0001-text": [[{"write": quiet}]],
            "task-0001": [[{"text": "never"}], [{"write": SHOUTS}]],
        }
    )
    outcome = world.ended(world.run(contract, runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    child = world.read(outcome.run_id, "tasks/task-0001-fix-1.json")
    assert child["parent_task_id"] == "task-0001"
    assert child["allowed_paths"] == PATHS[:2]
    names = (world.bundle(outcome.run_id) / "diff_name_only.txt").read_text()
    assert names.splitlines() == ["pkg/calc.py", "pkg/text.py"]


def test_a_sentence_becomes_a_contract_and_a_run(world: World) -> None:
    world.models["PM"] = Answering(PLAN)
    outcome = world.run(sentence="Please make add add.", merge=True)
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    world.ended(outcome)
    contract = world.read(outcome.run_id, "contract.json")
    assert (contract["inputs"]["spec"], contract["allowed_paths"]) == (
        "Make add add.",
        ["pkg/calc.py"],
    )
    assert outcome.manifest is not None
    assert outcome.manifest.user_request == "Please make add add."
    (request,) = world.models["PM"].asked
    assert request.output_schema is not None
    assert request.tools == ()


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot do that.",
        {**PLAN, "allowed_paths": ["../etc"]},
        {**PLAN, "surplus": True},
        {**PLAN, "acceptance_tests": [{**PLAN, "cmd": "rm -rf /"}]},
    ],
    ids=["prose", "paths", "surplus", "tests"],
)
def test_a_plan_that_is_not_valid_leaves_a_sealed_bundle(world: World, answer: Json) -> None:
    world.models["PM"] = Answering(answer)
    outcome = world.ended(world.run(sentence="Please make add add."))
    assert outcome.status == "failed"
    assert outcome.reason
    assert world.gates(outcome.run_id)["output_schema_gate"] is False


@pytest.mark.parametrize("role", ["PM", "TECH_LEAD"])
def test_a_provider_that_fails_is_told_apart(world: World, role: str) -> None:
    broken = ProviderError("the model is not there", provider="answering")
    if role == "PM":
        world.models["PM"] = Answering(broken)
        outcome = world.run(sentence="Please make add add.")
    else:
        outcome = led(world, broken)
    world.ended(outcome)
    assert outcome.status == "provider"
    assert "not there" in outcome.reason
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)


def test_without_a_model_nothing_is_made_up(world: World) -> None:
    with pytest.raises(UsageError, match="no model") as caught:
        world.run(sentence="Please make add add.")
    assert caught.value.rule == "run.model"
