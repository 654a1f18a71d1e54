"""SOPs and their runs as JSON, for the command line and the gateway alike."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.app.sopwiring import Examined
    from coilclaw.domain.messages import Json
    from coilclaw.sop.outcome import Outcome
    from coilclaw.sop.runfile import Run


def sop_record(one: Examined) -> dict[str, Json]:
    """Return what is known of a SOP."""
    return {
        "name": one.name,
        "path": str(one.path),
        "ok": not one.problems,
        "description": one.description,
        "inputs": [
            {
                "name": spec.name,
                "type": spec.type,
                "required": spec.required,
                "default": spec.default,
                "choices": list(spec.choices),
                "description": spec.description,
            }
            for spec in one.inputs
        ],
        "stages": [{"id": name, "kind": kind} for name, kind in one.stages],
        "problems": [
            {"key": problem.key, "line": problem.line, "message": problem.message}
            for problem in one.problems
        ],
    }


def run_record(run: Run, *, output_chars: int | None = None) -> dict[str, Json]:
    """Return what is known of a run; ``output_chars`` cuts what stages put out."""
    return {
        "id": run.id,
        "sop": run.sop,
        "status": run.status,
        "sop_hash": run.sop_hash,
        "workspace": run.workspace,
        "begun": run.begun,
        "ended": run.ended,
        "reason": run.reason,
        "inputs": dict(run.inputs),
        "approval": run.approval,
        "approvals": list(run.waits.values()),
        "stage": "" if run.attempt is None else run.attempt.stage,
        "under_way": [
            {"id": one.stage, "attempt": one.number, "approval": run.waits.get(one.stage, "")}
            for one in run.attempts.values()
        ],
        "settlements": [asdict(one) for one in run.settlements],
        "stages": [_outcome_record(one, output_chars) for one in run.outcomes.values()],
    }


def _outcome_record(outcome: Outcome, output_chars: int | None) -> dict[str, Json]:
    return {
        "id": outcome.stage,
        "status": outcome.status,
        "attempt": outcome.attempt,
        "output": outcome.output[:output_chars],
        "output_known": outcome.output_known,
        "error": outcome.error,
        "rule": outcome.rule,
        "receipt": outcome.receipt,
        "approval": outcome.approval,
    }
