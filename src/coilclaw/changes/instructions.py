"""The texts that tell a model how to answer, by name."""

from __future__ import annotations

from importlib import resources
from typing import Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

NAMES: Final = (
    "aptix",
    "aptix-bundle",
    "aptix-patch",
    "aptix-git",
    "fence",
    "envelope",
    "blocks",
)


def text(name: str) -> str:
    """Return the instruction text of a mode."""
    if name not in NAMES:
        raise UsageError(
            f"there is no instruction text {shown(name)}",
            rule="instructions.unknown",
            hint=f"the texts are {', '.join(NAMES)}",
        )
    place = resources.files("coilclaw.changes") / "texts" / f"{name}.txt"
    return place.read_text(encoding="utf-8")
