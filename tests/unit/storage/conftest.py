"""A journal's world in a temporary directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storage.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
