"""How much a test repeats: the counts that the issues name hold at full scale."""

from __future__ import annotations

import os


def scaled(*, full: int, default: int) -> int:
    """Return ``full`` when ``COILCLAW_TEST_SCALE=full`` is set, else ``default``."""
    return full if os.environ.get("COILCLAW_TEST_SCALE") == "full" else default
