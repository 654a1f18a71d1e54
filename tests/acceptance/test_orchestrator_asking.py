"""Approvals, permissions and locks in whole runs: who may say yes, and what nobody may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from coilclaw.agent.approvals import Approval, ApprovalStore
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.file_lock import FileLock
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.engine.locks import Held, Locks
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.workspace.process.owner import Owner
from tests.support.runs import World, opened

BROAD = ["docs", "pkg/calc.py"]


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def desk(world: World) -> ApprovalStore:
    return ApprovalStore(world.home, lambda: datetime.now(UTC))


def asked(world: World) -> Approval:
    (found,) = desk(world).list()
    return found


def paused(world: World, outcome: RunOutcome) -> Approval:
    assert (outcome.status, outcome.manifest) == ("paused", None)
    assert not {"TASK_STARTED", "WORKTREE_CREATED"} & set(world.kinds(outcome.run_id))
    assert world.kinds(outcome.run_id)[-1] == "RUN_PAUSED"
    approval = asked(world)
    assert outcome.waiting == (approval.id,)
    return approval


def online(contract: TaskContract) -> TaskContract:
    """What a searcher may have, and a worker may not."""
    permissions = replace(contract.tool_permissions, network="on-request")
    return replace(contract, tool_permissions=permissions)


def test_a_rejected_scope_is_denied(world: World) -> None:
    outcome = world.run(world.contract(BROAD))
    approval = paused(world, outcome)
    assert approval.question.kind == "override"
    assert "docs" in approval.question.title
    desk(world).answer(approval.id, approved=False, by="somebody")
    outcome = world.ended(world.resume(outcome.run_id))
    assert (outcome.status, outcome.state.value) == ("denied", "FAILED")
    assert world.gates(outcome.run_id)["human_approval_gate"] is False
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)
    record = world.read(outcome.run_id, f"artifacts/approvals/{approval.id}.json")
    assert (record["state"], record["decided_by"]) == ("rejected", "somebody")


def test_an_approved_scope_goes_on_and_the_yes_is_used_up(world: World) -> None:
    outcome = world.run(world.contract(BROAD), merge=True)
    approval = paused(world, outcome)
    desk(world).answer(approval.id, approved=True, by="somebody")
    outcome = world.ended(world.resume(outcome.run_id))
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    record = world.read(outcome.run_id, f"artifacts/approvals/{approval.id}.json")
    assert (record["state"], record["decided_by"]) == ("used", "somebody")
    assert desk(world).find(approval.id).state == "used"
    # The same contract once more has to ask once more.
    again = world.run(world.contract(BROAD))
    assert paused(world, again).id != approval.id


def test_a_run_that_is_resumed_before_an_answer_goes_on_waiting(world: World) -> None:
    outcome = world.run(world.contract(BROAD))
    approval = paused(world, outcome)
    for _ in range(2):
        outcome = world.resume(outcome.run_id)
        assert (outcome.status, outcome.waiting) == ("paused", (approval.id,))
    assert len(world.of(outcome.run_id, "HUMAN_APPROVAL_REQUIRED")) == 1


def test_an_approval_that_ran_out_is_none(world: World) -> None:
    world.changes["approval_expires_s"] = 0.0
    outcome = world.run(world.contract(BROAD))
    if outcome.status == "paused":
        outcome = world.resume(outcome.run_id)
    world.ended(outcome)
    assert outcome.status == "denied"
    assert world.kinds(outcome.run_id).count("HUMAN_APPROVAL_TIMEOUT") == 1
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)


def test_no_approval_gets_round_a_pack_without_overrides(world: World) -> None:
    outcome = world.ended(world.run(world.contract(BROAD, policy_pack="high")))
    assert outcome.status in {"failed", "invalid"}
    assert desk(world).list(pending_only=False) == ()
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)


def test_a_worker_may_not_ask_for_the_network_at_all(world: World) -> None:
    outcome = world.run(world.contract(change=online))
    assert outcome.status in {"failed", "invalid"}, outcome.reason
    world.ended(outcome)
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)


@pytest.mark.parametrize(
    "permissions",
    [
        {"network": "allow"},
        {"shell": "on-request"},
        {"shell": "untrusted"},
        {"mcp_tools": ["01-filesystem"]},
    ],
    ids=str,
)
def test_more_than_the_role_may_have_is_refused(
    world: World, permissions: dict[str, object]
) -> None:
    value = json.loads(world.contract())
    value["tool_permissions"].update(permissions)
    value.pop("role_contract", None)
    outcome = world.ended(world.run(json.dumps(value).encode()))
    assert outcome.status in {"failed", "invalid"}, outcome.reason
    # Nothing is lowered to fit: the run ends before anybody works.
    kinds = world.kinds(outcome.run_id)
    assert not {"TASK_STARTED", "LOCKS_ACQUIRED"} & set(kinds)
    assert "gate_failed" in kinds


def networked(contract: TaskContract) -> TaskContract:
    return online(contract)


def test_the_network_on_request_is_used_only_after_a_yes(world: World) -> None:
    """A researcher may ask for it: without a yes there is none, with one there is."""
    probe = (
        "import socket, json, sys\n"
        "c = json.load(sys.stdin)\n"
        "names = [n for _, n in socket.if_nameindex()]\n"
        "open('pkg/calc.py', 'w').write('def add(a, b):\\n    return a + b\\n')\n"
        "print(json.dumps({'task_id': c['task_id'], 'status': 'SUCCESS',"
        " 'summary': f'interfaces {names}', 'evidence_refs': {}, 'failure': None}))\n"
    )
    contract = world.contract(role="RESEARCHER", change=networked)
    outcome = world.run(contract, world.program(probe))
    assert outcome.status == "paused", outcome.reason
    approval = paused(world, outcome)
    assert approval.question.rule == "network.approval"
    desk(world).answer(approval.id, approved=True, by="somebody")
    outcome = world.resume(outcome.run_id)
    assert outcome.status == "passed", outcome.reason
    world.ended(outcome)
    (granted,) = world.of(outcome.run_id, "HUMAN_APPROVAL_COMPLETED")
    assert granted["approved"] is True


def test_two_runs_cannot_have_the_same_path(world: World) -> None:
    """A run that waits to be resumed keeps its locks; one that has ended does not."""
    locks = Locks(world.runtime / "locks", alive=lambda _: True)
    assert isinstance(locks.acquire("run_other_00000001", "other", ["pkg"]), Held)
    outcome = world.sealed(world.run())
    assert outcome.status == "failed"
    assert world.gates(outcome.run_id)["lock_gate"] is False
    (failed,) = world.of(outcome.run_id, "gate_failed")
    assert "run_other_00000001" in failed["reason"]
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)
    # What was never locked is never released.
    assert "LOCKS_RELEASED" not in world.kinds(outcome.run_id)
    assert [lock.path for lock in locks.list_locks()] == ["pkg"]


def test_a_lock_of_a_dead_process_whose_run_is_over_is_taken_over(world: World) -> None:
    dead = Owner(2**22 + 1, 1, Owner.here().boot)
    locks = Locks(world.runtime / "locks", alive=lambda _: True, owner=dead)
    assert isinstance(locks.acquire("run_other_00000001", "other", ["pkg"]), Held)
    outcome = world.ended(world.run())
    assert outcome.status == "passed", outcome.reason


def test_one_process_works_on_a_run_at_a_time(world: World) -> None:
    outcome = world.run(world.contract(BROAD))
    owner = world.runtime / "owners" / f"{outcome.run_id}.lock"
    with FileLock(owner), pytest.raises(UsageError, match="another process") as caught:
        world.resume(outcome.run_id)
    assert caught.value.rule == "run.busy"
    assert world.resume(outcome.run_id).status == "paused"


@pytest.mark.parametrize("run_id", ["run_20260101_000000_0000", "../../etc", "x", ""])
def test_a_run_that_is_not_there_is_not_made(world: World, run_id: str) -> None:
    world.run(world.contract(BROAD))
    before = sorted(str(path) for path in world.runtime.rglob("*"))
    with pytest.raises(UsageError):
        world.resume(run_id)
    assert sorted(str(path) for path in world.runtime.rglob("*")) == before


def test_policies_that_change_while_a_run_waits_need_a_new_yes(world: World) -> None:
    """An approval is for what was asked under the policies of that moment."""
    outcome = world.run(world.contract(BROAD))
    approval = paused(world, outcome)
    desk(world).answer(approval.id, approved=True, by="somebody")
    shipped = PolicySet.read_shipped()
    other = replace(shipped, contents={**shipped.contents, "prompts/worker.md": b"Be brief.\n"})
    world.changes["policies"] = lambda _: other
    outcome = world.resume(outcome.run_id)
    assert outcome.status == "paused", outcome.reason
    assert outcome.waiting != (approval.id,)
    assert "TASK_STARTED" not in world.kinds(outcome.run_id)
