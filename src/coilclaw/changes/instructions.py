"""The texts that tell a model how to answer, by name."""

from __future__ import annotations

from importlib import resources
from typing import Final

from coilclaw.kernel import UsageError, quote_text

NAMES: Final = ("aptix", "aptix-bundle", "aptix-patch", "aptix-git", "fence", "envelope", "blocks")


def instruction_text(name: str) -> str:
    """Return the instruction text of a mode."""
    if name not in NAMES:
        raise UsageError(
            f"no instruction text is named {quote_text(name)}",
            rule="instructions.unknown",
            hint=f"the texts are {', '.join(NAMES)}",
        )
    place = resources.files("coilclaw.changes") / "texts" / f"{name}.txt"
    return place.read_text(encoding="utf-8")
