"""``Handoff``: what one role tells the next; advice, never an instruction."""

from dataclasses import dataclass
from typing import ClassVar

from coilclaw.contracts.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(Record):
    """``instruction_sha256`` names the contract that goes on to be the instruction."""

    SCHEMA: ClassVar[str] = "handoff.v1"

    instruction_sha256: str
    summary: str
    risks: tuple[str, ...]
