"""``ToolCallRecord``: one call of a tool, a line of ``artifacts/tool_calls.jsonl``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from coilclaw.contracts.record import Record
from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord(Record):
    SCHEMA: ClassVar[str] = "tool_call.v1"

    ts: str
    run_id: str
    tool: str
    status: str
    args: Mapping[str, Json]
    task_id: str | None = None
    config: Mapping[str, Json] | None = None
    mode: str | None = None
    duration_ms: int | None = None
    error: str | None = None
    artifacts: tuple[str, ...] | None = None
    thread_id: str | None = None
    session_id: str | None = None
    output_sha256: str | None = None
