"""An event of a run as one line for people; what others wrote in it cannot act on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CHARS: Final = 160
"""Of one value of a payload that a line shows."""
_TOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "RUN_CREATED": ("runner", "reviewer", "baseline_commit"),
    "CONTRACT_WRITTEN": ("path",),
    "STATE_TRANSITION": ("from", "to", "trigger"),
    "TASK_STARTED": ("runner",),
    "TASK_RESULT_RECORDED": ("status",),
    "RUNNER_FAILED": ("status", "reason"),
    "COMMAND_STARTED": ("name", "argv"),
    "COMMAND_FINISHED": ("name", "exit_code", "outcome"),
    "SETUP_RESULT": ("status", "key"),
    "BASELINE_RESULT": ("status", "fault"),
    "TEST_RESULT": ("status", "where"),
    "REVIEW_RESULT": ("verdict", "reviewer"),
    "FIX_LOOP_TRIGGERED": ("child_task_id", "reason", "retries_left"),
    "HUMAN_APPROVAL_REQUIRED": ("approval_id", "kind", "reason"),
    "HUMAN_APPROVAL_COMPLETED": ("approval_id", "approved", "by"),
    "LOCKS_ACQUIRED": ("paths",),
    "LOCKS_RELEASED": ("paths",),
    "MODEL_ASKED": ("role", "provider", "model"),
    "PLAN_REFUSED": ("number", "problems"),
    "USER_ASKED": ("question",),
    "USER_ANSWERED": ("answer",),
    "CANDIDATE_PREPARED": ("commit", "tasks"),
    "policy_violation": ("rule", "reason"),
    "gate_failed": ("gate", "reason"),
}
"""What is told of an event; of others, whatever is short."""
_FEW: Final = 4


def line(event: Mapping[str, object]) -> str:
    """Say what happened."""
    kind = str(event["event_type"])
    payload = event["payload"]
    facts = payload if isinstance(payload, dict) else {}
    task = f" {event['task_id']}" if event.get("task_id") else ""
    when = f"{str(event['ts'])[11:19]} " if event.get("ts") else ""
    if kind == "STATE_TRANSITION":
        said = f"== {facts.get('from')} -> {facts.get('to')} ({facts.get('trigger')})"
        return visible(f"{when}{said}")
    if kind == "LOCKS_AWAITED":
        return visible(f"{when}{facts.get('reason')}"[: 10 * MAX_CHARS])
    if isinstance(facts.get("passed"), bool):
        said = "passed" if facts["passed"] else "FAILED: " + "; ".join(_texts(facts))
        return visible(f"{when}{kind}{task} {said}"[: 10 * MAX_CHARS])
    names = _TOLD.get(kind) or tuple(
        name for name, value in facts.items() if isinstance(value, str | int)
    )
    told = " ".join(f"{name}={_short(facts[name])}" for name in names[:_FEW] if name in facts)
    return visible(f"{when}{kind}{task} {told}".rstrip())


def style(event: Mapping[str, object]) -> str | None:
    """How the line looks: states stand out, and so does trouble."""
    if event["event_type"] == "STATE_TRANSITION":
        return "bold"
    return {"ERROR": "red", "WARN": "yellow"}.get(str(event.get("level")))


def _texts(facts: Mapping[str, object]) -> list[str]:
    found = facts.get("violations")
    return [str(each) for each in found[:_FEW]] if isinstance(found, list) else []


def _short(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
