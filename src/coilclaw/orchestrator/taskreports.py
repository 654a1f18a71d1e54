"""The reports of one task: its result as the orchestrator found it, and the short form of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.contracts.results import (
    Failure,
    GateOutcome,
    GitState,
    NextActions,
    ProducedBy,
    TaskResult,
    WorkEvidence,
    WorkGates,
    WorkReport,
    WorkTimes,
)
from coilclaw.orchestrator.places import segment

if TYPE_CHECKING:
    from coilclaw.contracts.artifact import ArtifactRef
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.gates.result import GateResult
    from coilclaw.orchestrator.run import Run
    from coilclaw.orchestrator.working import Performed


@dataclass(frozen=True, slots=True)
class Facts:
    """How a task's performance ended and was judged."""

    accepted: bool
    performed: Performed
    gates: tuple[GateResult, ...]
    baseline: str


def write(run: Run, contract: TaskContract, facts: Facts) -> ArtifactRef:
    """Write both reports of a task, and return where its result is."""
    folder = f"results/{segment(contract.task_id)}"
    patch = run.bundle.artifact(f"{folder}/patch.diff")
    names = run.bundle.artifact(f"{folder}/diff_name_only.txt")
    reason = failure(facts)
    ending = facts.performed.ending
    told = ending.result or {}
    summary = str(told.get("summary") or ending.text or reason or "The agent said nothing.")
    result = TaskResult(
        run_id=run.id,
        task_id=contract.task_id,
        producer=ProducedBy(
            role=contract.assigned_agent.role,
            agent_id=contract.assigned_agent.agent_id,
            codex_thread_id=ending.thread_id or None,
        ),
        status="SUCCESS" if facts.accepted else "FAILED",
        started_at=facts.performed.started,
        finished_at=facts.performed.finished,
        summary=summary,
        artifacts=(patch, names),
        git=GitState(
            baseline_ref=facts.baseline,
            head_ref=facts.baseline,
            changed_files=names,
            patch=patch,
        ),
        gates={gate.gate: outcome(gate) for gate in facts.gates},
        next_actions=NextActions(
            suggested_action="review" if facts.accepted else "repair", notes=reason
        ),
        attempt=run.progress.attempt,
        failure=None if facts.accepted else Failure(message=reason),
    )
    run.bundle.write_json(f"{folder}/work_report.json", _work(run, contract, facts).json())
    return run.bundle.write_json(f"{folder}/result.json", result.json())


def outcome(gate: GateResult) -> GateOutcome:
    """What a gate said, as reports hold it."""
    return GateOutcome(passed=gate.passed, violations=tuple(str(each) for each in gate.violations))


def failure(facts: Facts) -> str:
    """Why the work was not accepted; empty where it was."""
    if facts.accepted:
        return ""
    for gate in facts.gates:
        if not gate.passed:
            return f"{gate.gate}: {gate.violations[0].message}"
    ending = facts.performed.ending
    if ending.status != "done":
        return ending.reason or f"the agent {ending.status}"
    told = (ending.result or {}).get("failure")
    if isinstance(told, dict) and told.get("message"):
        return str(told["message"])
    return f"the agent says {(ending.result or {}).get('status', 'nothing')}"


def _work(run: Run, contract: TaskContract, facts: Facts) -> WorkReport:
    name = segment(contract.task_id)
    bundle = run.bundle
    patch = bundle.artifact(f"results/{name}/patch.diff")
    names = bundle.artifact(f"results/{name}/diff_name_only.txt")
    count = len(bundle.read(f"results/{name}/diff_name_only.txt").splitlines())
    diff = next((gate for gate in facts.gates if gate.gate == "diff_gate"), None)
    aborted = facts.performed.ending.status in {"aborted", "exhausted"}
    role = contract.assigned_agent.role
    return WorkReport(
        task_id=contract.task_id,
        status="success" if facts.accepted else "aborted" if aborted else "fail",
        patch_ref=patch.path,
        diff_summary=f"{count} files changed",
        evidence_refs={},
        failure_reason=failure(facts),
        run_id=run.id,
        attempt=run.progress.attempt,
        role=role if role in {"PM", "TECH_LEAD", "REVIEWER", "TEST_RUNNER"} else "WORKER",
        baseline_ref=facts.baseline,
        head_ref=facts.baseline,
        patch=patch,
        changed_files=names,
        gates=WorkGates(diff_gate=None if diff is None else outcome(diff)),
        evidence=WorkEvidence(
            codex_events_jsonl=bundle.artifact(f"codex/{name}/events.jsonl"),
            transcript_md=bundle.artifact(f"codex/{name}/transcript.md"),
            thread_id_txt=bundle.artifact(f"codex/{name}/thread_id.txt"),
        ),
        timestamps=WorkTimes(
            started_at=facts.performed.started, finished_at=facts.performed.finished
        ),
        metrics={"parts": facts.performed.parts},
    )
