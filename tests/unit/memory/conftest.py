"""A memory in a temporary directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.agent.memory.store import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "memory.sqlite")
