"""Why a run failed: what gates refused, and the end of what failed commands wrote.

Everything comes from the bundle, where it was redacted before it was written. Escape sequences of
terminals are removed; the caller makes the rest visible when it prints.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.engine.ready_worktree import REMOVED, UNNAMED
from coilclaw.runs.evidence import bundle, layout, patch_names
from coilclaw.runs.evidence.bundle import MAX_PATCH_BYTES
from coilclaw.runs.evidence.event_index import get_part, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

TAIL_LINES: Final = 20
MAX_LINE_CHARS: Final = 300
MAX_COMMANDS: Final = 10
"""The failed commands of one run that are listed: the last ones."""
MAX_VIOLATIONS: Final = 200
MAX_LOG_BYTES: Final = 64 * 2**20
REPORTS: Final = ("ci/", layout.PLAN_SETUPS)
"""Where a bundle keeps the reports of commands."""
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]{0,40}[ -/]{0,10}[@-~]"
    r"|\x1b\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)"
    r"|\x1b[ -/]?[0-~]"
)


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """One thing that a gate refused."""

    gate: str
    task_id: str
    attempt: int
    rule: str
    path: str
    reason: str

    def json(self) -> dict[str, Json]:
        return {**asdict(self), "task_id": self.task_id or None}


@dataclass(frozen=True, slots=True)
class Log:
    """What a command wrote on one stream: the file that keeps it, and its last lines."""

    path: str
    lines: tuple[str, ...]


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
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Failures:
    """Everything that was refused or failed in a run, the oldest first."""

    refusals: tuple[RunRefusal, ...]
    commands: tuple[FailedCommand, ...]

    def json(self) -> dict[str, Json]:
        return {
            "violations": [each.json() for each in self.refusals],
            "failed_commands": [each.json() for each in self.commands],
        }


def read_failures(directory: Path, events: Iterable[Mapping[str, object]]) -> Failures:
    """Read why a run failed; leave out what cannot be read, which verification reports."""
    refusals: list[RunRefusal] = []
    commands: list[FailedCommand] = []
    for event in events:
        refusals += read_refusals(event)
        commands += read_failed_commands(directory, event)
    return Failures(tuple(refusals[-MAX_VIOLATIONS:]), tuple(commands[-MAX_COMMANDS:]))


def read_refusals(event: Mapping[str, object]) -> list[RunRefusal]:
    """Return what a gate's event refuses."""
    payload = _read_payload(event)
    said, paths = payload.get("violations"), payload.get("paths")
    if payload.get("passed") is not False or not isinstance(said, list):
        return []
    places = [str(path) for path in paths] if isinstance(paths, list) else []
    places += [""] * (len(said) - len(places))
    attempt = event.get("attempt")
    gate, task_id = str(payload.get("gate", "")), str(event.get("task_id") or "")
    number = attempt if isinstance(attempt, int) else 0
    found = []
    for text, path in zip(map(str, said), places, strict=False):
        rule, colon, reason = text.partition(": ")
        refused = (rule, path, reason) if colon else ("", path, text)
        found.append(RunRefusal(gate, task_id, number, *refused))
    return found


def read_dropped(event: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what was left out of a change although it may be work: each path with the reason."""
    try:
        rows = json.loads(str(_read_payload(event).get("facts", "{}"))).get("dropped", [])
        found = [(str(row["path"]), str(row["reason"])) for row in rows]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []  # an event of another version
    return [(path, reason) for path, reason in found if reason in {UNNAMED, REMOVED}]


def read_failed_commands(directory: Path, event: Mapping[str, object]) -> list[FailedCommand]:
    """Return the commands that failed by the report that an event names, or an agent's program."""
    payload = _read_payload(event)
    path = str(payload.get("path", ""))
    if event["event_type"] == EventType.RUNNER_FAILED:
        return _read_agent(directory, str(event.get("task_id") or ""), str(payload.get("reason")))
    if not path.startswith(REPORTS) or payload.get("status") == "PASS":
        return []
    if event["event_type"] == EventType.BASELINE_RESULT and not payload.get("fault"):
        return []  # Red tests are where a repair begins.
    where = str(payload.get("where", ""))
    rows = get_part(parse_json(_read(directory, path)), "commands")
    return [
        _read_command(directory, row, where)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and row.get("exit_code") != 0
    ]


def _read_command(directory: Path, row: Mapping[str, Json], where: str) -> FailedCommand:
    argv, code, name = row.get("cmd_argv"), row.get("exit_code"), str(row.get("name", ""))
    paths = [str(get_part(row, stream, "path") or "") for stream in ("stdout", "stderr")]
    logs = [Log(path, tail_lines(_read(directory, path))) for path in paths]
    return FailedCommand(
        name,
        where,
        tuple(map(str, argv)) if isinstance(argv, list) else (),
        code if isinstance(code, int) else None,
        f"{name} ended with exit code {code}",
        tuple(log for log in logs if log.lines),
    )


def _read_agent(directory: Path, task_id: str, reason: str) -> list[FailedCommand]:
    """Return what an agent's program wrote besides its result, which says why it failed."""
    folder = f"codex/{layout.make_segment(task_id)}"
    parts = map(parse_json, _read(directory, f"{folder}/events.jsonl").splitlines())
    said = [get_part(part, "text") for part in parts if get_part(part, "item_type") == "stderr"]
    lines = tail_lines(str(said[-1] or "").encode("utf-8", "replace")) if said else ()
    log = Log(f"{folder}/transcript.md", lines)
    return [FailedCommand(task_id, "agent", (), None, reason, (log,))] if lines else []


def tail_lines(data: bytes) -> tuple[str, ...]:
    """Return the last lines of an output, each bounded and without escape sequences."""
    # What a line of a progress display was overwritten with is what a person saw.
    text = data[-4 * TAIL_LINES * 2**10 :].decode("utf-8", "replace").rstrip()
    lines = [clean_line(line) for line in text.split("\n")[-TAIL_LINES:]]
    return tuple(lines) if any(lines) else ()


def clean_line(line: str) -> str:
    """Return one line as a terminal would show it in the end, bounded."""
    shown = _ESCAPES.sub("", line[-100_000:].rstrip("\r").rpartition("\r")[2]).rstrip()
    return shown if len(shown) <= MAX_LINE_CHARS else f"{shown[:MAX_LINE_CHARS]}…"


def read_changed_files(directory: Path, task_id: str) -> tuple[tuple[str, int, int], ...]:
    """Return each file that a task's kept patch changes, with the lines added and removed."""
    path = f"patches/{layout.make_segment(task_id)}.diff"
    try:
        data = bundle.find_file(directory, path, limit=MAX_PATCH_BYTES)
        counted = patch_names.line_counts(data or b"")
    except CoilClawError:
        return ()
    return tuple((name.decode("utf-8", "replace"), plus, minus) for name, plus, minus in counted)


def read_log(directory: Path, log: Log) -> str:
    """Return everything that is kept of a log."""
    return _ESCAPES.sub("", _read(directory, log.path).decode("utf-8", "replace"))


def _read_payload(event: Mapping[str, object]) -> Mapping[str, object]:
    payload = event["payload"]
    return payload if isinstance(payload, dict) else {}


def _read(directory: Path, path: str) -> bytes:
    try:
        path = layout.check_bundle_path(path)
        return bundle.find_file(directory, path, limit=MAX_LOG_BYTES) or b""
    except CoilClawError:
        return b""
