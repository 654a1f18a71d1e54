"""Render events and failures of a run as lines without control characters."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.cli.console import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.runs import FailedCommand, RunRefusal

T = TypeVar("T")
MAX_CHARS: Final = 160
"""Of one value of a payload that a line shows."""
MAX_SENTENCE_CHARS: Final = 600
"""Of a gate's sentence, and of a command line."""
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
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
"""The values shown of each event; for other events, the short ones."""
_FEW: Final = 4


class Event:
    """One event of a run; its texts are not trusted."""

    def __init__(self, record: Mapping[str, object]) -> None:
        self.record = record
        self.kind = str(record["event_type"])
        self.task_id = str(record.get("task_id") or "")
        self.run_id = str(record.get("run_id", ""))
        payload = record["payload"]
        self.facts: dict[str, object] = payload if isinstance(payload, dict) else {}

    @property
    def line(self) -> str:
        """The event in one line."""
        when = f"{str(self.record['ts'])[11:19]} " if self.record.get("ts") else ""
        return escape_hidden(f"{when}{self._describe()}".rstrip())

    def _describe(self) -> str:
        facts, head = self.facts, f"{self.kind} {self.task_id}".rstrip()
        if self.kind == "STATE_TRANSITION":
            return f"== {facts.get('from')} -> {facts.get('to')} ({facts.get('trigger')})"
        if self.kind == "LOCKS_AWAITED":
            return str(facts.get("reason"))[: 10 * MAX_CHARS]
        if isinstance(facts.get("passed"), bool):
            found = facts.get("violations")
            violations = map(str, found[:_FEW]) if isinstance(found, list) else ()
            said = "passed" if facts["passed"] else f"FAILED: {'; '.join(violations)}"
            return f"{head} {said}"[: 10 * MAX_CHARS]
        short = (name for name, value in facts.items() if isinstance(value, str | int))
        names = _SHOWN.get(self.kind) or tuple(short)
        shown = (f"{name}={_shorten(facts[name])}" for name in names[:_FEW] if name in facts)
        return f"{head} {' '.join(shown)}"

    @property
    def style(self) -> str | None:
        """The style of the line: states, warnings and errors stand out."""
        if self.kind == "STATE_TRANSITION":
            return "bold"
        return {"ERROR": "red", "WARN": "yellow"}.get(str(self.record.get("level")))


def _shorten(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def refusal_sentence(refusal: RunRefusal) -> str:
    """Return which gate refused what, by which rule, while the run is active."""
    return _cut(f"REFUSED by the {refusal.gate.replace('_', ' ')}: {_describe_reason(refusal)}")


def refusal_line(refusal: RunRefusal) -> str:
    """Return which gate refused what of which task, by which rule, after the run."""
    return _cut(f"{refusal.gate} of {refusal.task_id or 'the run'}: {_describe_reason(refusal)}")


def _describe_reason(refusal: RunRefusal) -> str:
    named = refusal.path and refusal.path not in refusal.reason
    return f"{refusal.rule}: {refusal.reason}" + (f" ({refusal.path})" if named else "")


def _cut(text: str) -> str:
    shown = escape_hidden(text)
    return shown if len(shown) <= MAX_SENTENCE_CHARS else f"{shown[:MAX_SENTENCE_CHARS]}…"


def command_lines(command: FailedCommand, directory: Path) -> Iterator[str]:
    """Yield the last lines that a failed command wrote, with the path of its log."""
    for log in command.logs:
        yield f"the last lines of {directory / log.path}:"
        yield from (f"  | {escape_hidden(line)}" for line in log.lines)
    if not command.logs:
        yield f"no output from: {_cut(shlex.join(command.argv) or command.name)}"


def count_alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[tuple[T, str]]:
    """Return the last item of each kind, and how often it occurred if more than once.

    Each attempt is refused separately, often for the same reason.
    """
    kinds: dict[Hashable, list[T]] = {}
    for item in items:
        kinds.setdefault(key(item), []).append(item)
    return [(alike[-1], f" ({len(alike)} times)" * (len(alike) > 1)) for alike in kinds.values()]
