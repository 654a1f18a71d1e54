"""Defects that an orchestrator of this kind was found to have, each made impossible here.

They are numbered as in the list of what was found. Those that a rule of one module prevents are
tested there as well: 6 in the tests of the command gate, 10 in those of the commands, 14 in those
of the contracts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.contracts.policy_set import REQUIRED, PolicySet
from coilclaw.runs.contracts.task_contract import Rollback, TaskContract
from coilclaw.runs.engine.reexecution import reexecute
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.evidence.verification import VerifyReport, verify_run
from tests.support.children import given_time
from tests.support.runs import ADDS, FILES, World, opened
from tests.support.snapshot_trees import build, witness

SHIPPED = Path(__file__).parents[2] / "policies"


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def verified(world: World, run_id: str) -> VerifyReport:
    return verify_run(world.bundle(run_id), key_path=world.home / "keys/journal.key")


def test_defect_01_names_are_compared_as_they_are(world: World) -> None:
    """``.github`` is not ``github``; what only looks like git's or a secret's is neither."""
    scope = ["github", "envelope.txt", "git/x.txt", "pkg/calc.py"]
    fine = {**ADDS, "github/a.txt": "a\n", "envelope.txt": "e\n", "git/x.txt": "x\n"}
    outcome = world.ended(world.run(world.contract(scope), world.script([{"write": fine}])))
    assert outcome.status == "passed", outcome.reason
    for bad in (".github/a.txt", "pkg/.env", "../github/a.txt"):
        contract = world.contract(scope, max_retries=0)
        runner = world.script([{"write": {**ADDS, bad: "x\n"}}])
        outcome = world.run(contract, runner)
        world.ended(outcome)
        if bad.startswith(".."):
            # The sandbox does not even let it write there.
            assert not (world.runtime / "worktrees" / "github").exists()
        else:
            assert outcome.status == "failed", bad


def test_defect_02_and_03_and_04_what_git_does_not_show_is_seen(world: World) -> None:
    for shell, rule in (
        ("printf 'a\\000b' > pkg/calc.py", "diff.binary"),
        ("ln -s /etc/passwd pkg/calc/link", "diff.symlink"),
        ("git init -q pkg/calc/sub", "diff.nested"),
        ("git init -q --bare pkg/calc/sub", "diff.nested"),
        ("mkdir elsewhere && echo x > elsewhere/x", "diff.out_of_scope"),
    ):
        contract = world.contract(["pkg/calc.py", "pkg/calc"], max_retries=0)
        runner = world.script([{"shell": f"mkdir -p pkg/calc; {shell}"}])
        outcome = world.ended(world.run(contract, runner))
        assert outcome.status == "failed"
        assert rule in {each["rule"] for each in world.of(outcome.run_id, "policy_violation")}


@pytest.mark.parametrize("how", ["git add -A", "git add -A && git commit -q -m mine"])
def test_defect_05_staged_and_committed_work_is_in_the_patch(world: World, how: str) -> None:
    identity = "git config user.name A; git config user.email a@example.invalid"
    named = "GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@b"
    runner = world.script([{"write": ADDS}, {"shell": f"{identity}; export {named}; {how}"}])
    outcome = world.ended(world.run(runner=runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    assert b"+    return a + b" in (world.bundle(outcome.run_id) / "patch.diff").read_bytes()
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]


def test_defect_07_work_cannot_loosen_its_own_judge() -> None:
    """Policies come from the control root; a task cannot be given them, or change them."""
    own = {f"policies/{p.relative_to(SHIPPED)}": p.read_bytes() for p in SHIPPED.rglob("*.*")}
    loose = json.loads(own["policies/command_allowlist.json"])
    loose["allow"].append({"exec": "curl", "kind": "test", "prefixes": [[]], "forbidden_flags": []})
    written = {**ADDS, "policies/command_allowlist.json": json.dumps(loose)}
    with opened({**FILES, **own}) as world:
        scope = ["pkg/calc.py", "policies/command_allowlist.json"]
        contract = world.contract(scope, max_retries=0)
        outcome = world.ended(world.run(contract, world.script([{"write": written}])))
        assert outcome.status in {"failed", "invalid"}
        assert "TEST_RESULT" not in world.kinds(outcome.run_id)
        # Broken policies are an error, and not the absence of policies.
        (world.repo / "policies/mcp_allowlist.json").write_text("{")
        with pytest.raises(UsageError):
            world.run()


@pytest.mark.parametrize("missing", REQUIRED)
@pytest.mark.parametrize("committed", [False, True], ids=["directory", "baseline"])
def test_defect_07_policies_of_which_a_file_is_missing_stop_the_run(
    world: World, missing: str, committed: bool
) -> None:
    """Above all the registry: without it the built-in set was used, and nothing was said."""
    folder = world.repo / "policies"
    shutil.copytree(SHIPPED, folder)
    (folder / missing).unlink()
    if committed:
        world.git("add", "-A")
        world.git("commit", "-q", "-m", "policies of our own")
        shutil.rmtree(folder)
    with pytest.raises(UsageError) as caught:
        world.run()
    assert caught.value.rule == "policy.missing"
    assert f"policies/{missing} is missing" in caught.value.message
    assert "coilclaw init --repo" in str(caught.value.hint)
    assert not (world.runtime / "runs").exists() or not os.listdir(world.runtime / "runs")


def test_defect_07_a_folder_of_that_name_with_other_files_holds_no_policies(world: World) -> None:
    folder = world.repo / "policies"
    folder.mkdir()
    (folder / "travel.md").write_text("# Second class\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "how we travel")
    outcome = world.ended(world.run())
    assert outcome.status == "passed"
    (created,) = world.of(outcome.run_id, "RUN_CREATED")
    assert created["policy_sha256"] == PolicySet.read_shipped().sha256


def test_defect_07_a_repository_without_policies_is_judged_by_the_shipped_ones(
    world: World,
) -> None:
    outcome = world.ended(world.run())
    assert outcome.status == "passed"
    (created,) = world.of(outcome.run_id, "RUN_CREATED")
    assert created["policy_sha256"] == PolicySet.read_shipped().sha256


def test_defect_08_no_event_can_be_rewritten_and_verifying_changes_nothing(world: World) -> None:
    outcome = world.ended(world.run())
    bundle = world.bundle(outcome.run_id)
    before = witness(bundle)
    assert [verified(world, outcome.run_id).status for _ in range(3)] == ["pass"] * 3
    assert witness(bundle) == before
    events = bundle / "events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    os.chmod(bundle, 0o755)
    os.chmod(events, 0o644)
    for forged in (
        [*lines[:-2], lines[-1]],
        [*lines[:5], lines[6], lines[5], *lines[7:]],
        [line.replace(b'"passed":true', b'"passed":false') for line in lines],
        lines[:-1],
        [*lines, lines[-1]],
    ):
        events.write_bytes(b"".join(forged))
        assert verified(world, outcome.run_id).status == "fail"
    events.write_bytes(b"".join(lines))
    os.chmod(events, 0o444)
    assert verified(world, outcome.run_id).status == "pass"


def test_defect_09_a_run_is_carried_out_again_on_its_own_tree(world: World) -> None:
    """Not on whatever is checked out now: neither the branch nor the user's files count."""
    outcome = world.ended(world.run(merge=True))
    build(world.repo, {"tests/check_calc.py": b"raise SystemExit(1)\n", "pkg/calc.py": b"("})
    world.git("commit", "-q", "-am", "everything is broken now")
    again = reexecute(world.orchestrator().equipment, outcome.run_id)
    assert again.report.status == "pass", again.report
    assert (again.report.hard_diffs, again.report.errors) == ((), ())


def test_defect_10_a_failed_run_is_told_apart_from_a_good_one(world: World) -> None:
    contract = world.contract(max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"crash": True}])))
    assert outcome.status == "failed"
    assert outcome.manifest is not None
    assert outcome.manifest.status == "FAILURE"


def test_defect_11_time_is_limited_and_no_environment_is_inherited(world: World) -> None:
    world.environ["SOME_TOKEN"] = "canary"
    check = world.repo / "tests/check_calc.py"
    check.write_text("import os\nimport time\n\nprint(sorted(os.environ))\ntime.sleep(600)\n")
    world.git("commit", "-q", "-am", "slow")

    def attempt(seconds: float) -> RunOutcome:
        contract = world.contract(max_retries=0, timeout_sec=int(seconds))
        outcome = world.ended(world.run(contract))
        assert outcome.status == "failed"
        return outcome

    # On a busy machine the agent may need more time than the test is to have.
    outcome = given_time(3, attempt, lambda it: "COMMAND_STARTED" in world.kinds(it.run_id))
    report = world.read(outcome.run_id, "reports/test_report.json")
    assert (report["status"], report["commands"][0]["exit_code"]) == ("ERROR", 124)
    printed = (world.bundle(outcome.run_id) / "tests/stdout.log").read_text()
    assert "SOME_TOKEN" not in printed


def test_defect_12_what_is_missing_or_unknown_is_refused(world: World) -> None:
    value = json.loads(world.contract())
    unbound = {**value, "inputs": {**value["inputs"], "artifacts": []}}
    unknown = {**value, "policy_pack": "none"}
    wrong = json.loads(json.dumps(value))
    wrong["inputs"]["artifacts"][0]["sha256"] = "0" * 64
    for contract in (unbound, unknown, wrong):
        outcome = world.ended(world.run(json.dumps(contract).encode()))
        assert outcome.status == "invalid", outcome.reason
        assert "TASK_STARTED" not in world.kinds(outcome.run_id)


def test_defect_13_no_verdict_is_made_up(world: World) -> None:
    contract = world.contract(max_retries=0)
    outcome = world.ended(world.run(contract, world.script([{"write": {"README.md": "x\n"}}])))
    assert outcome.status == "failed"
    review = world.read(outcome.run_id, "reports/review_report.json")
    assert (review["verdict"], review["reviewer"]["agent_id"]) == ("BLOCKED", "none")
    tests = world.read(outcome.run_id, "reports/test_report.json")
    assert (tests["status"], tests["commands"]) == ("SKIPPED", [])
    evidence = world.read(outcome.run_id, "reports/evidence_report.json")
    assert evidence["status"] == "fail"
    assert "reports/review_report.json" in evidence["missing"]


def test_defect_15_a_repair_is_a_contract_of_its_own(world: World) -> None:
    wrong = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}
    outcome = world.ended(world.run(runner=world.script([{"write": wrong}], [{"write": ADDS}])))
    assert outcome.status == "passed"
    parent = world.read(outcome.run_id, "tasks/task-0001.json")
    child = world.read(outcome.run_id, "tasks/task-0001-fix-1.json")
    # The specification stays what it was: no log is written into it.
    assert child["inputs"]["spec"] == parent["inputs"]["spec"]
    assert child["parent_task_id"] == parent["task_id"]
    named = [each for each in child["inputs"]["artifacts"] if each["name"].startswith("failed.")]
    assert named
    assert all(len(each["sha256"]) == 64 for each in named)


@pytest.mark.parametrize("strategy", ["git_reset_hard", "git_revert_commit", "worktree_drop"])
def test_defect_16_after_a_rollback_nothing_is_left(world: World, strategy: str) -> None:
    """Neither untracked nor ignored files, nor commits; and no other commit is taken back."""

    baseline = world.git("rev-parse", "HEAD")
    target = {"target_ref": "HEAD"} if strategy == "git_revert_commit" else {}

    def with_strategy(contract: TaskContract) -> TaskContract:
        rollback = Rollback.of({"strategy": strategy, "baseline_ref": baseline, **target})
        return replace(contract, rollback=rollback)

    litter = {"other/new.txt": "x\n", "build/x.txt": "x\n", "other/outside.txt": "x\n"}
    look = "git status --short --ignored; git log --format=%s; cat other/outside.txt | head -1"
    runner = world.script(
        [{"write": litter}, {"commit": "litter"}, {"write": {"other/more.txt": "x\n"}}],
        [{"shell": look}, {"write": ADDS}],
    )
    outcome = world.ended(world.run(world.contract(change=with_strategy), runner, merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    told = (world.bundle(outcome.run_id) / "codex/task-0001-fix-1/events.jsonl").read_text()
    assert "first" in told
    assert "not yours" in told
    assert not {"litter", "new.txt", "more.txt", "build/"} & set(told.replace("\\n", " ").split())
    assert world.git("log", "--format=%s").splitlines() == [
        "task-0001-fix-1: Make add add.",
        "first",
    ]


def test_defect_17_an_approval_is_good_for_one_request_of_one_run(world: World) -> None:
    from datetime import UTC, datetime

    from coilclaw.agent.approvals import ApprovalStore

    desk = ApprovalStore(world.home, lambda: datetime.now(UTC))
    contract = world.contract(["docs", "pkg/calc.py"])
    first, second = world.run(contract), world.run(contract)
    assert (first.status, second.status) == ("paused", "paused")
    desk.answer(first.waiting[0], approved=True, by="somebody")
    assert world.resume(second.run_id).status == "paused"
    outcome = world.resume(first.run_id)
    assert outcome.status == "passed", outcome.reason
    world.sealed(outcome)
    again = world.run(contract)
    assert (again.status, again.waiting != first.waiting) == ("paused", True)


def test_a_copy_of_a_bundle_verifies_and_a_tampered_one_does_not(world: World) -> None:
    outcome = world.ended(world.run())
    copy = world.root / "copy" / outcome.run_id
    shutil.copytree(world.bundle(outcome.run_id), copy)
    key = world.home / "keys/journal.key"
    assert verify_run(copy, key_path=key).status == "pass"
    patch = copy / "patch.diff"
    os.chmod(patch, 0o644)
    patch.write_bytes(patch.read_bytes().replace(b"a + b", b"a +  b"))
    assert verify_run(copy, key_path=key).status == "fail"
