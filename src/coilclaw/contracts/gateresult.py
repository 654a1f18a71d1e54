"""``GateResultRecord``: what a gate said, as it is kept in a bundle."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from coilclaw.contracts.record import Record
from coilclaw.domain.messages import Json

Gate: TypeAlias = Literal[
    "schema_gate",
    "output_schema_gate",
    "policy_gate",
    "lock_gate",
    "diff_gate",
    "tool_gate",
    "network_gate",
    "mcp_gate",
    "integrated_gate",
    "sampling_gate",
    "reviewer_gate",
    "tests_gate",
    "human_approval_gate",
    "merge_gate",
]
GATES: tuple[Gate, ...] = get_args(Gate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationRecord(Record):
    SCHEMA: ClassVar[str] = "gate_result.v1#ViolationRecord"

    rule: str
    message: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResultRecord(Record):
    SCHEMA: ClassVar[str] = "gate_result.v1"

    run_id: str
    task_id: str | None
    attempt: int | None
    ts: str
    gate: Gate
    passed: bool
    violations: tuple[ViolationRecord, ...]
    facts: Mapping[str, Json]
