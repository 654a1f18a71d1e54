"""Why a run failed: what gates refused, and the end of what failed commands wrote.

Everything comes from the bundle, where it was redacted before it was written. Escape sequences of
terminals are taken out; whoever prints the rest makes it visible.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import CoilClawError
from coilclaw.orchestrator import bundletree, layout, patchnames
from coilclaw.orchestrator.bundletree import MAX_PATCH_BYTES
from coilclaw.orchestrator.dependency_changes import REMOVED, UNNAMED
from coilclaw.orchestrator.places import segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

TAIL_LINES: Final = 20
MAX_LINE_CHARS: Final = 300
MAX_COMMANDS: Final = 10
"""Failed commands that are told of one run: the last ones."""
MAX_VIOLATIONS: Final = 200
MAX_LOG_BYTES: Final = 64 * 2**20
REPORTS: Final = ("ci/", layout.PLAN_SETUPS)
"""Where the reports of commands stand in a bundle."""
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]{0,40}[ -/]{0,10}[@-~]"
    r"|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]?[0-~]"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that a gate refused."""

    gate: str
    task_id: str
    attempt: int
    rule: str
    path: str
    reason: str

    def json(self) -> dict[str, Json]:
        return {
            "gate": self.gate,
            "task_id": self.task_id or None,
            "attempt": self.attempt,
            "rule": self.rule,
            "path": self.path,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Log:
    """What a command wrote on one stream: the file that keeps it, and its last lines."""

    path: str
    lines: tuple[str, ...]

    def json(self) -> dict[str, Json]:
        return {"path": self.path, "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A command of a run, or an agent's program, that failed."""

    name: str
    where: str
    """What it was run on: the candidate, the merged tree, …; ``agent`` for an agent's program."""
    argv: tuple[str, ...]
    exit_code: int | None
    reason: str
    logs: tuple[Log, ...]

    def json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "where": self.where,
            "argv": list(self.argv),
            "exit_code": self.exit_code,
            "reason": self.reason,
            "logs": [log.json() for log in self.logs],
        }


@dataclass(frozen=True, slots=True)
class Failures:
    """Everything that was refused or failed in a run, the oldest first."""

    refusals: tuple[Refusal, ...]
    commands: tuple[FailedCommand, ...]

    def json(self) -> dict[str, Json]:
        return {
            "violations": [each.json() for each in self.refusals],
            "failed_commands": [each.json() for each in self.commands],
        }


def read_failures(directory: Path, events: Iterable[Mapping[str, object]]) -> Failures:
    """Read why a run failed; what cannot be read is left out, and verification's matter."""
    refusals: list[Refusal] = []
    commands: list[FailedCommand] = []
    for event in events:
        refusals += read_refusals(event)
        commands += read_failed_commands(directory, event)
    return Failures(tuple(refusals[-MAX_VIOLATIONS:]), tuple(commands[-MAX_COMMANDS:]))


def read_refusals(event: Mapping[str, object]) -> list[Refusal]:
    """Return what a gate's event refuses."""
    payload = _payload(event)
    said, paths = payload.get("violations"), payload.get("paths")
    if payload.get("passed") is not False or not isinstance(said, list):
        return []
    places = [str(path) for path in paths] if isinstance(paths, list) else []
    places += [""] * (len(said) - len(places))
    attempt = event.get("attempt")
    found = []
    for text, path in zip(map(str, said), places, strict=False):
        rule, colon, reason = text.partition(": ")
        found.append(
            Refusal(
                gate=str(payload.get("gate", "")),
                task_id=str(event.get("task_id") or ""),
                attempt=attempt if isinstance(attempt, int) else 0,
                rule=rule if colon else "",
                path=path,
                reason=reason if colon else text,
            )
        )
    return found


def read_dropped(event: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what was left out of a change although it may be work: each path with the reason."""
    try:
        rows = json.loads(str(_payload(event).get("facts", "{}"))).get("dropped", [])
        found = [(str(row["path"]), str(row["reason"])) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []  # an event of another version
    return [(path, reason) for path, reason in found if reason in {UNNAMED, REMOVED}]


def read_failed_commands(directory: Path, event: Mapping[str, object]) -> list[FailedCommand]:
    """Return the commands that failed by the report that an event names, or an agent's program."""
    payload = _payload(event)
    path = str(payload.get("path", ""))
    if event["event_type"] == EventType.RUNNER_FAILED:
        agent = _read_agent(directory, str(event.get("task_id") or ""), str(payload.get("reason")))
        return [] if agent is None else [agent]
    if not path.startswith(REPORTS) or payload.get("status") == "PASS":
        return []
    if event["event_type"] == EventType.BASELINE_RESULT and not payload.get("fault"):
        return []  # Red tests are where a repair begins.
    where = str(payload.get("where", ""))
    rows = _read_json(directory, path).get("commands")
    return [
        _read_command(directory, row, where)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and row.get("exit_code") != 0
    ]


def _read_command(directory: Path, row: Mapping[str, Json], where: str) -> FailedCommand:
    argv, code, name = row.get("cmd_argv"), row.get("exit_code"), str(row.get("name", ""))
    logs = []
    for stream in ("stdout", "stderr"):
        kept = row.get(stream)
        path = str(kept.get("path", "")) if isinstance(kept, dict) else ""
        if lines := tail_lines(_read(directory, path)):
            logs.append(Log(path, lines))
    return FailedCommand(
        name,
        where,
        tuple(map(str, argv)) if isinstance(argv, list) else (),
        code if isinstance(code, int) else None,
        f"{name} ended with exit code {code}",
        tuple(logs),
    )


def _read_agent(directory: Path, task_id: str, reason: str) -> FailedCommand | None:
    """What an agent's program wrote besides its result, which says why it failed."""
    folder = f"codex/{segment(task_id)}"
    said = ""
    for line in _read(directory, f"{folder}/events.jsonl").splitlines():
        try:
            part = json.loads(line)
        except ValueError:
            continue
        if isinstance(part, dict) and part.get("item_type") == "stderr":
            said = str(part.get("text", ""))
    lines = tail_lines(said.encode("utf-8", "replace"))
    if not lines:
        return None
    log = Log(f"{folder}/transcript.md", lines)
    return FailedCommand(task_id, "agent", (), None, reason, (log,))


def tail_lines(data: bytes, count: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of an output, each bounded and without escape sequences."""
    # What a line of a progress display was overwritten with is what a person saw.
    text = data[-4 * count * 2**10 :].decode("utf-8", "replace").rstrip()
    lines = [clean_line(line) for line in text.split("\n")[-count:]]
    return tuple(lines) if any(lines) else ()


def clean_line(line: str) -> str:
    """Return one line as a terminal would show it in the end, bounded."""
    shown = _ESCAPES.sub("", line[-100_000:].rstrip("\r").rpartition("\r")[2]).rstrip()
    return shown if len(shown) <= MAX_LINE_CHARS else f"{shown[:MAX_LINE_CHARS]}…"


def read_changed_files(directory: Path, task_id: str) -> tuple[tuple[str, int, int], ...]:
    """Return each file that a task's kept patch changes, with the lines added and removed."""
    try:
        data = bundletree.find(directory, f"patches/{segment(task_id)}.diff", limit=MAX_PATCH_BYTES)
        counted = patchnames.line_counts(data or b"")
    except CoilClawError:
        return ()
    return tuple((name.decode("utf-8", "replace"), plus, minus) for name, plus, minus in counted)


def read_log(directory: Path, log: Log) -> str:
    """Return everything that is kept of a log."""
    return _ESCAPES.sub("", _read(directory, log.path).decode("utf-8", "replace"))


def _payload(event: Mapping[str, object]) -> Mapping[str, object]:
    payload = event["payload"]
    return payload if isinstance(payload, dict) else {}


def _read_json(directory: Path, path: str) -> dict[str, Json]:
    try:
        value = json.loads(_read(directory, path) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read(directory: Path, path: str) -> bytes:
    try:
        return bundletree.find(directory, layout.checked(path), limit=MAX_LOG_BYTES) or b""
    except CoilClawError:
        return b""
