"""Lines broken into rows by us, so that no terminal breaks one where we did not say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.channels.visible import LONGEST_RUN, atoms

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAST_WIDTH: Final = 24
LINE: Final = "| "
"""Begins the first row of every line that is not ours."""
MORE: Final = "|>"
"""Begins every row that goes on with the line above."""


def rows(text: str, width: int, *, first: str = LINE, ascii_only: bool = False) -> Iterator[str]:
    """Yield the visible form of a line in rows of at most ``width`` cells, the last one left free.

    No row that goes on ends in a space: it would not be seen.
    """
    width = max(width, LEAST_WIDTH) - 1
    run = min(LONGEST_RUN, (width - max(len(first), len(MORE))) // 2)
    row: list[str] = []
    prefix, used = first, len(first)
    for atom in atoms(text, longest_run=run, ascii_only=ascii_only):
        if (row or prefix is first) and used + _cells(atom) > width:
            kept = _without_spaces(row)
            yield prefix + "".join(row[:kept])
            row = row[kept:]
            prefix, used = MORE, len(MORE) + len(row)
        row.append(atom)
        used += _cells(atom)
    yield prefix + "".join(row)


def _without_spaces(row: list[str]) -> int:
    """Return how many atoms of a row are left without the spaces at its end; never none."""
    kept = len(row)
    while kept > 1 and row[kept - 1] == " ":
        kept -= 1
    return kept


def _cells(atom: str) -> int:
    """Return how many cells an atom takes at most: terminals do not agree about non-ASCII."""
    return len(atom) if atom.isascii() else 2
