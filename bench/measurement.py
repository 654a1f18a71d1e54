"""What a benchmark found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """A ratio against a raw floor measured in the same run, and the target it is held to."""

    name: str
    value: float
    target: str
    ok: bool
    detail: str
