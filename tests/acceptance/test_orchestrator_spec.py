"""Sentences of the specification of runs that are about a run as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from coilclaw.kernel import schemas
from coilclaw.runs.contracts.task_contract import Shell, TaskContract
from coilclaw.runs.evidence.verification import verify_run
from tests.support.runs import ADDS, Answering, World, opened


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


@pytest.mark.parametrize("sentence", ["", "Make add add."], ids=["contract", "request"])
def test_drifted_schemas_stop_a_run_before_anybody_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    drifted = schemas.Drift("mismatch", ("task_contract.v1.json",))
    monkeypatch.setattr(schemas, "find_drift", lambda: drifted)
    world.models["PM"] = Answering("nobody asks")
    outcome = world.ended(world.run(sentence=sentence))
    assert (outcome.status, outcome.reason) == ("invalid", "the schemas: mismatch")
    (failed,) = world.of(outcome.run_id, "gate_failed")
    assert (failed["gate"], failed["rule"]) == ("schema_gate", "schema.drift")
    assert not {"MODEL_ASKED", "TASK_STARTED"} & set(world.kinds(outcome.run_id))


@pytest.mark.parametrize(
    ("shell", "violations"),
    [(None, 1), ("deny", 1), ("never", 0)],
    ids=["omitted", "deny", "never"],
)
def test_a_shell_request_under_deny_is_rejected_and_recorded_as_a_policy_violation(
    world: World, shell: Shell | None, violations: int
) -> None:
    def with_shell(contract: TaskContract) -> TaskContract:
        return replace(contract, tool_permissions=replace(contract.tool_permissions, shell=shell))

    runner = world.script([{"shell": "echo hello > hello.log"}, {"write": ADDS}])
    outcome = world.ended(world.run(world.contract(change=with_shell), runner))
    found = world.of(outcome.run_id, "policy_violation")
    assert [each["rule"] for each in found if each["rule"] == "tool.denied"] == [
        "tool.denied"
    ] * violations
    told = (world.bundle(outcome.run_id) / "codex/task-0001/events.jsonl").read_text()
    assert ("denied by tool_permissions.shell" in told) is bool(violations)


def test_the_runtime_root_can_be_moved_out_of_the_repository(world: World) -> None:
    elsewhere = world.root / "elsewhere"
    world.environ["CORTEXPILOT_RUNTIME_ROOT"] = str(elsewhere)
    outcome = world.run(merge=True)
    assert (outcome.status, outcome.merge) == ("passed", "merged")
    assert not world.runtime.exists()
    report = verify_run(
        elsewhere / "runs" / outcome.run_id, key_path=world.home / "keys/journal.key"
    )
    assert report.errors == ()
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
