"""``Trace``: one trajectory as a document; ``parts`` are the source of truth, ``turns`` group them.

The fields are those of ``schemas/agent_trace.v1.json``, which is the authority.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

from coilclaw.kernel import EnvironmentFault, Record, UsageError
from coilclaw.traces.trajectory import trace_document

MAX_SUMMARY: Final = 240
_BLANKS: Final = re.compile(r"\s+")
_GROWTH: Final = 6
"""The most bytes that one character takes in JSON."""


def replace_surrogates(text: str) -> str:
    """Return text that has a form in UTF-8; half a surrogate pair becomes a mark."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def bound_text(text: str, limit: int) -> str:
    """Return text of at most so many bytes in JSON; a mark shows what was cut out."""
    text = replace_surrogates(text)
    if len(text) * _GROWTH <= limit or _size(text) <= limit:
        return text
    # Twice as long as what fits, at most: halved until it does.
    keep = min(len(text), limit)
    while True:
        half = keep // 2
        told = f"\n… {len(text) - 2 * half} characters left out …\n"
        cut = text[:half] + told + (text[-half:] if half else "")
        if _size(cut) <= limit or not half:
            return cut
        keep = half


def take_within_bytes(texts: Iterable[str], limit: int) -> list[str]:
    """Return the first texts that together take at most so many bytes in JSON."""
    found: list[str] = []
    for text in texts:
        limit -= _size(text) + 1
        if limit < 0:
            break
        found.append(text)
    return found


def summarize(text: str) -> str:
    """Return the beginning of a text in one line."""
    line = _BLANKS.sub(" ", replace_surrogates(text[: 8 * MAX_SUMMARY])).strip()
    return line if len(line) <= MAX_SUMMARY else f"{line[: MAX_SUMMARY - 1]}…"


def _size(text: str) -> int:
    import json

    return len(json.dumps(text, ensure_ascii=False).encode("utf-8"))


VERSION: Final = "agent_trace.v1"
MAX_TRACE_BYTES: Final = 2**32

StopReason: TypeAlias = Literal[
    "solved",
    "part_limit",
    "turn_limit",
    "timeout",
    "agent_error",
    "envoi_error",
    "interrupted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange(Record):
    """Lines that came and went in one file; ``None`` where it is binary."""

    SCHEMA: ClassVar[str] = f"{VERSION}#FileChange"

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoCheckpoint(Record):
    """What a part did to the files; ``commit_after`` is the commit made for it."""

    SCHEMA: ClassVar[str] = f"{VERSION}#RepoCheckpoint"

    commit_before: str
    commit_after: str
    committed: bool
    changed_files: tuple[str, ...]
    numstat: tuple[FileChange, ...]
    more_files: int | None = None
    """How many further files changed than are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStatus(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#CaseStatus"

    id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#CallResult"

    passed: int
    failed: int
    total: int
    tests: tuple[CaseStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoiCall(Record):
    """One call of the environment's tests; the whole result is in ``results/<call_id>.json``."""

    SCHEMA: ClassVar[str] = f"{VERSION}#EnvoiCall"

    path: str
    timestamp: str
    duration_ms: int
    status_code: int
    error: str | None
    result: CallResult | None
    call_id: str
    tree: str
    """The git tree that was tested."""
    newly_broken: tuple[str, ...]
    newly_fixed: tuple[str, ...]
    result_sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestingState(Record):
    """How far the tests are; ``solved_paths`` are green now, ``ever_solved_paths`` once were."""

    SCHEMA: ClassVar[str] = f"{VERSION}#TestingState"

    solved_paths: int
    total_paths: int
    ever_solved_paths: int
    latest_path: str | None
    latest_passed: int | None
    latest_total: int | None
    latest_status_code: int | None
    latest_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#TokenUsage"

    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#PartRecord"

    trajectory_id: str
    session_id: str
    agent: str
    agent_model: str
    part: int
    turn: int
    timestamp: str
    duration_ms: int
    elapsed_ms: int
    role: Literal["assistant", "user"]
    part_type: str
    item_type: str
    summary: str
    git_commit: str
    repo_checkpoint: RepoCheckpoint | None
    envoi_calls: tuple[EnvoiCall, ...]
    testing_state: TestingState | None
    content: str
    files: tuple[str, ...]
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_input: str | None = None
    tool_output: str | None = None
    tool_exit_code: int | None = None
    token_usage: TokenUsage | None = None
    agent_commit: str | None = None
    """Where the agent's own repository stands, if it moved with this part."""
    raw: str | None = None
    part_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#SessionEnd"

    reason: StopReason
    total_parts: int
    total_turns: int
    final_git_commit: str
    timestamp: str
    elapsed_ms: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn(Record):
    """Parts ``part_start`` to ``part_end``; an open turn, or one that was killed, has no end."""

    SCHEMA: ClassVar[str] = f"{VERSION}#TurnRecord"

    trajectory_id: str
    session_id: str
    agent: str
    agent_model: str
    turn: int
    part_start: int
    part_end: int | None
    timestamp: str
    prompt: str
    git_commit: str
    repo_checkpoint: RepoCheckpoint | None
    """What changed after its last part."""
    envoi_calls: tuple[EnvoiCall, ...]
    """The calls of the tests at its end."""
    session_end: SessionEnd | None
    status: str | None = None
    reason: str | None = None
    duration_ms: int | None = None
    token_usage: TokenUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption(Record):
    """The run was continued after this part; ``leftover`` holds what was not recorded."""

    SCHEMA: ClassVar[str] = f"{VERSION}#Resumption"

    timestamp: str
    after_part: int
    elapsed_ms: int
    leftover: str | None
    leftover_ref: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLimits(Record):
    SCHEMA: ClassVar[str] = f"{VERSION}#Limits"

    max_parts: int
    max_turns: int | None
    timeout_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceArtifacts(Record):
    """Where the two artifacts are kept."""

    SCHEMA: ClassVar[str] = f"{VERSION}#Artifacts"

    agent_trace: str
    repo_bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Record):
    """Everything of a trace but its parts."""

    SCHEMA: ClassVar[str] = f"{VERSION}#Head"

    schema_version: str
    trajectory_id: str
    session_id: str
    agent: str
    agent_model: str
    started_at: str
    environment: str
    environment_version: str
    versions: Mapping[str, str]
    limits: TraceLimits
    artifacts: TraceArtifacts
    initial_commit: str
    resumptions: tuple[Resumption, ...]
    turns: tuple[RecordedTurn, ...]
    session_end: SessionEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Head):
    """A whole document."""

    SCHEMA: ClassVar[str] = VERSION

    parts: tuple[PartRecord, ...]

    def part(self, number: int) -> PartRecord:
        """Return the part with a number, counted from 1."""
        if not 1 <= number <= len(self.parts):
            raise UsageError(
                f"trajectory {self.trajectory_id} has no part {number}; it has {len(self.parts)}",
                rule="trajectory.part",
            )
        return self.parts[number - 1]


def load_trace(source: Path | bytes) -> Trace:
    """Read a document; of one that a crash left torn, every part that is whole."""
    where = "the trace"
    if not isinstance(source, bytes):
        where = str(source)
        try:
            if os.stat(source).st_size > MAX_TRACE_BYTES:
                raise UsageError(f"{where} is too large for a trace", rule="trace.large")
            source = Path(source).read_bytes()
        except OSError as problem:
            message = f"cannot read {where}: {problem.strerror}"
            raise EnvironmentFault(message, rule="trace.read") from problem
    value = trace_document.parse_trace(source, where)
    found = value.get("schema_version")
    if found != VERSION:
        message = f"{where} is not a trace of this version: its schema_version is {found!r}"
        raise UsageError(message, rule="trace.version", hint=f"this program reads {VERSION}")
    trace = Trace.of(value)
    numbers = [part.part for part in trace.parts]
    if numbers != list(range(1, len(numbers) + 1)):
        raise UsageError(f"{where}: its parts are not numbered from 1 on", rule="trace.numbers")
    return trace
