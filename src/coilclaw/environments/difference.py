"""Where two texts first differ, in a few words."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 120
"""Characters shown of each side."""
_BEFORE: Final = 20


def first_difference(expected: str, actual: str) -> str | None:
    """Say where two texts first differ, with both sides; ``None`` if they do not."""
    if expected == actual:
        return None
    old, new = expected.split("\n"), actual.split("\n")
    for number, (one, other) in enumerate(zip(old, new, strict=False), 1):
        if one != other:
            return _said(number, one, other)
    if len(old) < len(new):
        more = len(new) - len(old)
        first = _around(new[len(old)], 0)
        return f"{_lines(more)} more than expected from line {len(old) + 1}: {first}"
    missing = len(old) - len(new)
    return f"{_lines(missing)} missing from line {len(new) + 1}: {_around(old[len(new)], 0)}"


def _said(number: int, expected: str, actual: str) -> str:
    at = next(
        (index for index, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b),
        min(len(expected), len(actual)),
    )
    return (
        f"line {number}, column {at + 1}:\n"
        f"expected {_around(expected, at)}\n"
        f"actual   {_around(actual, at)}"
    )


def _around(line: str, at: int) -> str:
    """A line as a literal, cut around a place so that the place is seen."""
    start = max(0, at - _BEFORE) if len(line) > WIDTH else 0
    piece = line[start : start + WIDTH]
    # A literal of control characters is up to ten times as long.
    text = repr(piece)[: 2 * WIDTH]
    return f"{'…' if start else ''}{text}{'…' if start + WIDTH < len(line) else ''}"


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"
