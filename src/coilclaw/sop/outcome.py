"""What became of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["done", "failed", "denied", "rejected", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a stage, or of one attempt at it."""

    stage: str
    status: Status
    attempt: int = 1
    output: str = ""
    output_known: bool = True
    """False when the program died after the effect and before what came of it was kept."""
    error: str = ""
    rule: str = ""
    receipt: str = ""
    approval: str = ""

    @property
    def success(self) -> bool:
        return self.status == "done"

    @property
    def failure(self) -> bool:
        return self.status in {"failed", "denied", "rejected"}
