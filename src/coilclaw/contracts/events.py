"""``OrchestratorEvent``: one line of a run's event stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.record import Record
from coilclaw.domain.messages import Json

Level: TypeAlias = Literal["INFO", "WARN", "ERROR"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorEvent(Record):
    SCHEMA: ClassVar[str] = "orchestrator_event.v1"

    ts: str
    level: Level
    event_type: EventType
    run_id: str
    task_id: str | None
    attempt: int | None
    payload: Mapping[str, Json]
    trace_id: str
    previous_hash: str
    event_hash: str
    model_id: str | None = None
    agent_id: str | None = None
    role: str | None = None
    tool_name: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
