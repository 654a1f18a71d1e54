"""The end of a run: its result, everything it left lying about removed, and the seal."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from coilclaw import __version__
from coilclaw.contracts import rolecontract, schemas
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.results import (
    Failure,
    GitState,
    NextActions,
    ProducedBy,
    TaskResult,
)
from coilclaw.orchestrator import gatesummary, layout
from coilclaw.orchestrator.run_checkpoint import make_checkpoint
from coilclaw.orchestrator.seal import seal
from coilclaw.orchestrator.states import State
from coilclaw.workspace.removal import remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.contracts.manifest import RunManifest
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.run import Run

ORCHESTRATOR = "orchestrator"


def finish(run: Run, equipment: Equipment, reason: str) -> RunManifest:
    """Say how the run ended, let everything go that it held, and seal it. It can be repeated."""
    passed = run.progress.state is State.DONE
    if not run.progress.finished:
        # A kill may have come between the event that moved the baseline and the file.
        run.bundle.write_text(layout.GIT_BASELINE, f"{run.option('baseline_commit')}\n")
        _result(run, reason, passed=passed)
        run.emit(
            EventType.RUN_FINISHED,
            {
                "status": "SUCCESS" if passed else "FAILURE",
                "reason": reason,
                "merge": run.progress.merge,
            },
            level="INFO" if passed else "ERROR",
        )
    _let_go(run, equipment)
    _keep_contract(run)
    manifest = seal(run.bundle, run.log, _facts(run), signing_key=equipment.signing_key)
    checkpoint = make_checkpoint(manifest)
    if checkpoint is not None:
        equipment.keep_checkpoint(checkpoint)
    return manifest


def _keep_contract(run: Run) -> None:
    """A run that never had a valid contract keeps what it was given instead, or nothing."""
    if not run.bundle.has(layout.CONTRACT):
        given = run.bundle.find(layout.GIVEN)
        run.bundle.write_bytes(layout.CONTRACT, b"{}\n" if given is None else given)


def _let_go(run: Run, equipment: Equipment) -> None:
    """Locks, homes and the active contract; worktrees went with the work in them."""
    paths: tuple[str, ...] = ()
    if run.held is not None:
        paths = equipment.locks.release(run.held)
        run.held = None
    elif not run.progress.sealed:
        # A run that was killed after its end does not lock again, only to let go.
        paths = tuple(lock.path for lock in equipment.locks.reclaim(run.id, owned=True))
    equipment.locks.leave(run.id)
    if paths:
        run.emit(EventType.LOCKS_RELEASED, {"paths": list(paths)})
    for place in (run.places.homes / run.id, run.places.active(run.id).parent):
        remove_tree(place)
        sweep_remainders(place.parent)
    remove_tree(run.places.worktrees / run.id)


def _result(run: Run, reason: str, *, passed: bool) -> None:
    """``reports/task_result.json``: the result of the run's own contract."""
    root = run.progress.root
    if root is None or run.bundle.has(layout.TASK_RESULT):
        return
    contract = run.root_contract
    bundle, progress = run.bundle, run.progress
    for path in (layout.PATCH, layout.NAMES):
        if not bundle.has(path):
            bundle.write_bytes(path, b"", redact=False)
    candidate = str(progress.candidate.get("commit") or progress.created["baseline_commit"])
    head = str(progress.merging.get("commit") or candidate) if passed else candidate
    events = list(run.log.read())
    result = TaskResult(
        run_id=run.id,
        task_id=contract.task_id,
        producer=ProducedBy(role="ORCHESTRATOR", agent_id=ORCHESTRATOR),
        status="SUCCESS" if passed else "FAILED",
        started_at=str(events[0]["ts"]),
        finished_at=str(events[-1]["ts"]),
        summary=_summary(run, reason, passed=passed),
        artifacts=tuple(bundle.artifact(path) for path in (layout.PATCH, layout.NAMES)),
        git=GitState(
            baseline_ref=str(progress.created["baseline_commit"]),
            head_ref=head,
            changed_files=bundle.artifact(layout.NAMES),
            patch=bundle.artifact(layout.PATCH),
        ),
        gates=gatesummary.summed(map(_told, events)),
        next_actions=NextActions(suggested_action=_next(run, passed=passed), notes=reason),
        attempt=progress.attempt,
        failure=None if passed else Failure(message=reason or "the run failed"),
    )
    bundle.write_json(layout.TASK_RESULT, result.json())


def _told(event: Mapping[str, object]) -> tuple[str, str | None, Mapping[str, object]]:
    payload, task_id = event["payload"], event["task_id"]
    assert isinstance(payload, dict)
    return str(event["event_type"]), None if task_id is None else str(task_id), payload


def _summary(run: Run, reason: str, *, passed: bool) -> str:
    tasks = len(run.progress.working)
    said = f"{tasks} tasks, {run.progress.attempt} repairs, merge: {run.progress.merge}."
    return said if passed else f"{said} {reason}"


def _next(run: Run, *, passed: bool) -> str:
    if not passed:
        return f"look at what failed: coilclaw runs show {run.id}"
    if run.progress.merge == "pending":
        return f"merge it: coilclaw runs apply {run.id}"
    return "nothing is left to do"


def _facts(run: Run) -> Mapping[str, Json]:
    """The manifest, but for what the seal computes."""
    progress, created = run.progress, run.progress.created
    contract = None if progress.root is None else run.root_contract
    passed = progress.finished["status"] == "SUCCESS"
    merging = progress.merging
    merge: dict[str, Json] = {"status": progress.merge}
    for name in ("branch", "commit"):
        if isinstance(merging.get(name), str) and merging[name]:
            merge[name] = str(merging[name])
    facts: dict[str, Json] = {
        "run_id": run.id,
        "created_at": str(created["created_at"]),
        "status": "SUCCESS" if passed else "FAILURE",
        "user_request": str(created["request"]) or "no request was recorded",
        "trace_id": run.log.trace_id,
        "repo": {
            "root": str(run.places.repository),
            "baseline_ref": str(created["baseline_commit"]),
            **({"branch": str(created["branch"])} if created.get("branch") else {}),
            **({"final_ref": merge["commit"]} if merge["status"] == "merged" else {}),
        },
        "versions": {
            "contracts_schema": schemas.registry_sha256(),
            "orchestrator": __version__,
            "python": platform.python_version(),
        },
        "tasks": [_task(run, name) for name in progress.tasks],
        "merge": merge,
        "runner": {"name": str(created["runner"])},
    }
    if contract is not None:
        facts["task_id"] = contract.task_id
        facts["role_binding_summary"] = rolecontract.binding_summary(contract)
        if contract.policy_pack:
            facts["policy_pack"] = contract.policy_pack
    if not passed:
        facts["failure_reason"] = str(progress.finished["reason"])
    return facts


_STATES = {
    "pending": "PENDING",
    "started": "BLOCKED",
    "accepted": "SUCCESS",
    "rejected": "FAILED",
    "superseded": "FAILED",
}


def _task(run: Run, task_id: str) -> dict[str, Json]:
    from coilclaw.orchestrator.places import segment

    task, contract = run.progress.tasks[task_id], run.contract(task_id)
    value: dict[str, Json] = {
        "task_id": task_id,
        "role": contract.assigned_agent.role,
        "assigned_agent_id": contract.assigned_agent.agent_id,
        "status": _STATES[task.state],
        "contract": run.bundle.artifact(task.path).json(),
    }
    name = segment(task_id)
    for key, path in (
        ("result", f"results/{name}/result.json"),
        ("review_report", f"reviews/{name}.json"),
    ):
        if run.bundle.has(path):
            value[key] = run.bundle.artifact(path).json()
    return value
