"""The names of the files beside a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def anchor_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.anchor")


def torn_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.torn-{number}")
