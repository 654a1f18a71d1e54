"""``Budget``: how much a run may use. Each driver fills the fields that its work has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one run; ``None`` means that the driver does not count it."""

    parts: int | None = None
    tool_rounds: int | None = None
    attempts: int | None = None
    retries: int | None = None
    wall_s: float | None = None
    tokens: int | None = None
    bytes: int | None = None
