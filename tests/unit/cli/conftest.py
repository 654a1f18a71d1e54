"""A user's home for the commands that set things up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.setting_up import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    user = tmp_path / "user"
    user.mkdir()
    return World(user, monkeypatch)
