"""How much a test repeats: the counts that the issues name hold at full scale."""

from __future__ import annotations

import os

_FAST_SHARE = 10


def _scale() -> str:
    return os.environ.get("COILCLAW_TEST_SCALE", "")


def is_full() -> bool:
    """Whether the tests run as continuous integration runs them."""
    return _scale() == "full"


def is_fast() -> bool:
    """Whether the tests run as after an edit, where few examples have to do."""
    return _scale() == "fast"


def scaled(*, full: int, default: int) -> int:
    """Return how often to repeat at the scale that ``COILCLAW_TEST_SCALE`` names."""
    if is_fast():
        return max(1, default // _FAST_SHARE)
    return full if is_full() else default
