"""Reads one table of a SOP, and notes what is wrong with it instead of stopping there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.sop.problem import Noted, closest

if TYPE_CHECKING:
    from coilclaw.sop.problem import Place


class TableReader:
    """Takes values out of tables; ``noted`` is everything that can be said against them."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []

    def note(self, place: Place, message: str) -> None:
        """Remember a problem."""
        self.noted.append(Noted(place, message))

    def take_text(
        self, place: Place, table: dict[str, object], key: str, *, required: bool = True
    ) -> str:
        """Return a text, or an empty one with a problem noted."""
        value = table.get(key, "")
        if not isinstance(value, str):
            self.note((*place, key), "is no text")
        elif required and not value.strip():
            self.note((*place, key), "is missing" if key not in table else "is empty")
        else:
            return value
        return ""

    def take_flag(
        self, place: Place, table: dict[str, object], key: str, *, default: bool = False
    ) -> bool:
        """Return true or false; anything else is a problem."""
        value = table.get(key, default)
        if isinstance(value, bool):
            return value
        self.note((*place, key), "is neither true nor false")
        return default

    def take_number(
        self, place: Place, table: dict[str, object], key: str, *, least: float, most: float
    ) -> float:
        """Return a number within bounds, 0 where there is none."""
        value = table.get(key, 0)
        if key not in table:
            return 0
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not least <= value <= most
        ):
            self.note((*place, key), f"is no number from {least:g} to {most:g}")
            return 0
        return value

    def refuse_unknown(
        self,
        place: Place,
        table: dict[str, object],
        allowed: tuple[str, ...],
        known: tuple[str, ...],
    ) -> None:
        """Note every key that does not belong there."""
        for key in table:
            if key in allowed:
                continue
            if key in known:
                self.note((*place, key), f"does not belong to the kind {table.get('kind')!r}")
            else:
                self.note((*place, key), f"there is no such key{closest(key, allowed)}")
