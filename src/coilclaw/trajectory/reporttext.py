"""A ``Graph`` as a table of text, and figures as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.trajectory.graphdata import Graph, Point

MAX_ERROR: Final = 120


def table(graph: Graph) -> list[tuple[str, bool]]:
    """Lines for the terminal, each with whether something broke there."""
    head = ["part", "turn", "commit", "time", "in", "out", *graph.suites, "all", ""]
    rows = [_cells(graph, point) for point in graph.rows]
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head) - 1)]
    lines = [(_line(head, widths), False)]
    lines.append(("  ".join("─" * width for width in widths), False))
    for row, point in zip(rows, graph.rows, strict=True):
        lines.append((_line(row, widths), bool(point.change.newly_broken)))
    return lines


def grouped(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def clock(milliseconds: int) -> str:
    """A duration: 12.3 s, 4:05 or 1:02:03."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    seconds = milliseconds // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _cells(graph: Graph, point: Point) -> list[str]:
    notes = []
    if point.change.newly_broken:
        notes.append(f"▼ {len(point.change.newly_broken)} broken")
    if point.change.newly_fixed:
        notes.append(f"▲ {len(point.change.newly_fixed)} fixed")
    if point.error:
        notes.append(" ".join(point.error.split())[:MAX_ERROR])
    return [
        str(point.part),
        str(point.turn),
        point.commit[:10],
        clock(point.elapsed_ms),
        grouped(point.input_tokens),
        grouped(point.output_tokens),
        *(str(point.suites.get(name, "–")) for name in graph.suites),
        str(point.score or "–"),
        ", ".join(notes),
    ]


def _line(cells: list[str], widths: list[int]) -> str:
    *columns, note = cells
    shown = [cell.rjust(width) for cell, width in zip(columns, widths, strict=True)]
    return "  ".join((*shown, note)).rstrip()
