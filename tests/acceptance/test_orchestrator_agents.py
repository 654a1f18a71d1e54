"""Agents and reviewers that misbehave, in whole runs: nothing of what they do gets through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.runners import confinement
from coilclaw.runs.engine import ready_worktree
from coilclaw.runs.engine.run_engine import RunOutcome
from tests.support.children import marker, running
from tests.support.runs import ADDS, Answering, Part, World, opened

SECRET = "sk-canary-0123456789abcdef0123456789abcdef"
GOOD: dict[str, Json] = {
    "verdict": "PASS",
    "summary": "It adds.",
    "scope_check": {"passed": True, "violations": []},
    "findings": [],
}
BLOCKING: dict[str, Json] = {
    "severity": "blocking",
    "message": "it does not add",
    "path": "pkg/calc.py",
    "line": 1,
}
OUT_OF_SCOPE: dict[str, Json] = {"passed": False, "violations": ["x"]}
ANSWER = (
    "import json, sys\n"
    "contract = json.load(sys.stdin)\n"
    "result = {'task_id': contract['task_id'], 'status': 'SUCCESS', 'summary': 'done',"
    " 'evidence_refs': {}, 'failure': None}\n"
    "open('pkg/calc.py', 'w').write('def add(a, b):\\n    return a + b\\n')\n"
)


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def once(world: World, runner: str, **options: Any) -> RunOutcome:
    return world.ended(world.run(world.contract(max_retries=0), runner, **options))


def refused(world: World, outcome: RunOutcome, said: str) -> None:
    assert outcome.status == "failed"
    assert said in outcome.reason
    assert not {"REVIEW_RESULT", "TEST_RESULT"} & set(world.kinds(outcome.run_id))


def test_an_agent_that_crashes_has_done_nothing(world: World) -> None:
    outcome = once(world, world.script([{"write": ADDS}, {"crash": True}]))
    refused(world, outcome, "crashed")
    (failed,) = world.of(outcome.run_id, "RUNNER_FAILED")
    assert failed["status"] == "aborted"


def test_an_agent_that_takes_too_long_is_stopped(world: World) -> None:
    contract = world.contract(max_retries=0, timeout_sec=1)
    runner = world.script([{"write": ADDS}, {"sleep_s": 600}])
    outcome = world.ended(world.run(contract, runner))
    refused(world, outcome, "")
    (failed,) = world.of(outcome.run_id, "RUNNER_FAILED")
    assert failed["status"] == "exhausted"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ANSWER + "print('All done!')\n", "not valid JSON"),
        (ANSWER + "print(json.dumps(result)); print('bye')\n", ""),
        (ANSWER + "result['task_id'] = 'task-0002'; print(json.dumps(result))\n", "task-0002"),
        (ANSWER + "result['surplus'] = 1; print(json.dumps(result))\n", "surplus"),
        (ANSWER + "del result['summary']; print(json.dumps(result))\n", "summary"),
        (ANSWER + "result['status'] = 'DONE'; print(json.dumps(result))\n", "/status"),
        (ANSWER, ""),
        (ANSWER + "print(json.dumps(result)); sys.exit(3)\n", "exit code 3"),
        (ANSWER + "import os; os.kill(os.getpid(), 9)\n", "signal 9"),
    ],
    ids=["prose", "more", "other-task", "surplus", "lacking", "status", "silent", "exit", "signal"],
)
def test_an_answer_that_does_not_fit_is_none(world: World, source: str, said: str) -> None:
    outcome = once(world, world.program(source))
    refused(world, outcome, said)
    assert world.gates(outcome.run_id)["output_schema_gate"] is False


def test_an_agent_that_says_it_failed_is_believed(world: World) -> None:
    result: dict[str, Json] = {
        "status": "FAILED",
        "summary": "no",
        "evidence_refs": {},
        "failure": None,
    }
    outcome = once(world, world.script([{"write": ADDS}, {"result": result}]))
    refused(world, outcome, "FAILED")


def test_a_program_that_answers_as_it_should_is_accepted(world: World) -> None:
    outcome = once(world, world.program(ANSWER + "print(json.dumps(result))\n"), merge=True)
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason


def test_success_without_any_change_is_no_success(world: World) -> None:
    outcome = once(world, world.script([{"text": "All done, trust me."}]))
    assert outcome.status == "failed"
    assert world.gates(outcome.run_id)["reviewer_gate"] is False


def test_what_an_agent_starts_ends_with_it(world: World) -> None:
    mark = world.root / "later.txt"
    number = marker()
    late = f"(sleep {number}; touch {mark}) >/dev/null 2>&1 & echo started"
    outcome = once(world, world.script([{"shell": late}, {"write": ADDS}]))
    assert outcome.status == "passed"
    assert running(number) == []
    assert not mark.exists()


def test_an_agent_sees_neither_keys_nor_evidence_nor_the_branch(world: World) -> None:
    places = [world.home / "keys", world.runtime / "runs", world.runtime / "locks"]
    looks = "; ".join(f"ls {place} 2>&1 | sed 's/^/{place.name}:/'" for place in places)
    writes = f"echo mine > {world.root}/mine.txt; echo x > {world.repo}/.git/refs/heads/evil"
    outcome = once(world, world.script([{"shell": f"{looks}; {writes}"}, {"write": ADDS}]))
    assert outcome.status == "passed", outcome.reason
    told = (world.bundle(outcome.run_id) / "codex/task-0001/events.jsonl").read_text()
    assert "journal.key" not in told
    assert outcome.run_id not in told.replace(f"worktrees/{outcome.run_id}", "").replace(
        f"homes/{outcome.run_id}", ""
    )
    assert not (world.root / "mine.txt").exists()
    assert not (world.repo / ".git/refs/heads/evil").exists()


def keep_secret(world: World) -> None:
    """The configuration names the variable that holds it."""
    world.environ["MY_KEY"] = SECRET
    (world.home / "config.toml").write_text(
        'default_provider = "real"\n[providers.models.real]\nkind = "openai-compatible"\n'
        'model = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\napi_key_env = "MY_KEY"\n'
    )


def contents(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file())


def test_secrets_reach_no_evidence_no_agent_and_no_test(world: World) -> None:
    keep_secret(world)
    peek = "import os\n\nassert not [k for k, v in os.environ.items() if 'canary' in v]\n"
    parts: list[Part] = [
        {"text": f"The key is {SECRET}."},
        {"shell": f"echo {SECRET}; env"},
        {"write": {**ADDS, "pkg/peek.py": peek}},
    ]
    # The tests print what their environment is.
    check = world.repo / "tests/check_calc.py"
    check.write_text(check.read_text() + "import os\nprint(dict(os.environ))\nimport pkg.peek\n")
    world.git("commit", "-q", "-am", "look")
    contract = world.contract(["pkg/calc.py", "pkg/peek.py"], max_retries=0)
    outcome = world.ended(world.run(contract, world.script(parts)))
    assert outcome.status == "passed", outcome.reason
    evidence = contents(world.bundle(outcome.run_id))
    assert SECRET.encode() not in evidence
    assert b"MY_KEY" not in evidence
    logs = (world.bundle(outcome.run_id) / "tests/stdout.log").read_text()
    assert "PATH" in logs


def test_a_secret_in_the_work_itself_is_refused(world: World) -> None:
    keep_secret(world)
    leak = {"pkg/calc.py": f"KEY = '{SECRET}'\n\n\ndef add(a, b):\n    return a + b\n"}
    outcome = once(world, world.script([{"write": leak}]))
    refused(world, outcome, "secret")
    assert SECRET.encode() not in contents(world.bundle(outcome.run_id))


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({**GOOD, "findings": [BLOCKING]}, "BLOCKED"),
        ({**GOOD, "verdict": "FAIL", "findings": [BLOCKING]}, "FAIL"),
        ({**GOOD, "scope_check": OUT_OF_SCOPE}, "BLOCKED"),
        ({**GOOD, "verdict": "MAYBE"}, "BLOCKED"),
        ("LGTM", "BLOCKED"),
        ("", "BLOCKED"),
    ],
    ids=["denied-by-itself", "blocking", "scope", "verdict", "prose", "silence"],
)
def test_a_review_that_does_not_plainly_pass_blocks(
    world: World, answer: Json, verdict: str
) -> None:
    world.models["REVIEWER"] = Answering(answer)
    outcome = once(world, world.script([{"write": ADDS}]), reviewer="model")
    assert outcome.status == "failed"
    (review,) = world.of(outcome.run_id, "REVIEW_RESULT")
    assert review["verdict"] == verdict
    assert world.gates(outcome.run_id)["reviewer_gate"] is False
    assert "TEST_RESULT" not in world.kinds(outcome.run_id)


def test_a_model_that_passes_the_work_is_named_as_its_reviewer(world: World) -> None:
    world.models["REVIEWER"] = Answering(GOOD)
    outcome = once(world, world.script([{"write": ADDS}]), reviewer="model")
    assert outcome.status == "passed", outcome.reason
    report = world.read(outcome.run_id, "reports/review_report.json")
    worker = world.read(outcome.run_id, "contract.json")["assigned_agent"]["agent_id"]
    assert report["reviewer"]["role"] == "REVIEWER"
    assert report["reviewer"]["agent_id"] != worker


def reviewer(world: World, work: str) -> str:
    answer = json.dumps(GOOD)
    return world.program(
        f"import sys, os\nsys.stdin.read()\n{work}\nprint({answer!r})\n", "reviewer"
    )


def test_a_reviewing_agent_cannot_write(world: World) -> None:
    """It tries; its sandbox says no, and the tree is proven to be the same."""
    work = (
        "try:\n    open('pkg/calc.py', 'w').write('x')\n"
        "except OSError as e:\n    print(type(e).__name__, file=sys.stderr)\n"
    )
    outcome = once(world, world.script([{"write": ADDS}]), reviewer=reviewer(world, work))
    assert outcome.status == "passed", outcome.reason


def test_a_reviewer_that_writes_is_a_fault_of_the_system(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the sandbox to fail, the snapshots would still tell, and nothing goes on."""
    honest = confinement.sandbox_of

    def broken(*args: Any, **more: Any) -> Any:
        return honest((world.root,), *args[1:], **{**more, "filesystem": "workspace-write"})

    monkeypatch.setattr(ready_worktree, "sandbox_of", broken)
    work = "open('pkg/calc.py', 'w').write('def add(a, b):\\n    return 3\\n')"
    contract = world.contract(max_retries=2)
    outcome = world.run(contract, world.script([{"write": ADDS}]), reviewer=reviewer(world, work))
    world.ended(outcome)
    assert (outcome.status, outcome.state.value) == ("failed", "FAILED")
    assert "changed the tree" in outcome.reason
    moved = world.of(outcome.run_id, "STATE_TRANSITION")[-1]
    assert moved["trigger"] == "fault"
    assert "FIX_LOOP_TRIGGERED" not in world.kinds(outcome.run_id)
    assert "TEST_RESULT" not in world.kinds(outcome.run_id)


def test_tests_that_write_into_the_tree_test_another_one(world: World) -> None:
    check = world.repo / "tests/check_calc.py"
    check.write_text(check.read_text() + "open('pkg/text.py', 'w').write('broken')\n")
    world.git("commit", "-q", "-am", "a test that writes")
    outcome = once(world, world.script([{"write": ADDS}]), merge=True)
    assert outcome.status == "failed"
    assert "'pkg/text.py' was modified by the test" in outcome.reason
    assert "broken" not in (world.repo / "pkg/text.py").read_text()


def test_what_a_test_leaves_beside_the_tree_is_nobodys_business(world: World) -> None:
    check = world.repo / "tests/check_calc.py"
    check.write_text(check.read_text() + "open('report.xml', 'w').write('fine')\n")
    world.git("commit", "-q", "-am", "a test that leaves a report")
    outcome = once(world, world.script([{"write": ADDS}]), merge=True)
    assert outcome.status == "passed", outcome.reason
    assert (world.bundle(outcome.run_id) / "diff_name_only.txt").read_text() == "pkg/calc.py\n"


def test_very_many_very_long_names_are_told_in_bounds(world: World) -> None:
    shell = (
        "d=$(printf 'n%.0s' $(seq 200)); mkdir -p other/$d/$d/$d;"
        " for i in $(seq 700); do : > other/$d/$d/$d/$i; done"
    )
    outcome = once(world, world.script([{"shell": shell}]))
    refused(world, outcome, "diff_gate")
