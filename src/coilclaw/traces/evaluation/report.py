"""``html_report``: one page about a trajectory that needs nothing else: no network, no scripts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import escape_html
from coilclaw.traces.evaluation.graph_pictures import PICTURES, Picture, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.traces.evaluation.graph import Graph, Point


MAX_TABLE_ERROR: Final = 120


def render_table(graph: Graph) -> list[tuple[str, bool]]:
    """Return lines for the terminal, each with whether a case broke there."""
    head = ["part", "turn", "commit", "time", "in", "out", *graph.suites, "all", ""]
    rows = [_make_cells(graph, point) for point in graph.rows]
    widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head) - 1)]
    return [
        (_format_line(head, widths), False),
        ("  ".join("─" * width for width in widths), False),
        *(
            (_format_line(row, widths), bool(point.change.newly_broken))
            for row, point in zip(rows, graph.rows, strict=True)
        ),
    ]


def format_number(number: int) -> str:
    """Format a number with separated thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def format_duration(milliseconds: int) -> str:
    """Format a duration as 12.3 s, 4:05 or 1:02:03."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _make_cells(graph: Graph, point: Point) -> list[str]:
    change = point.change
    notes = [
        f"▼ {len(change.newly_broken)} broken" if change.newly_broken else "",
        f"▲ {len(change.newly_fixed)} fixed" if change.newly_fixed else "",
        " ".join((point.error or "").split())[:MAX_TABLE_ERROR],
    ]
    part, turn, *figures = _format_figures(graph, point)
    return [part, turn, point.commit[:10], *figures, ", ".join(filter(None, notes))]


def _format_figures(graph: Graph, point: Point) -> list[str]:
    """Return part, turn, time, tokens in and out, the score of each suite, and that of all."""
    return [
        str(point.part),
        str(point.turn),
        format_duration(point.elapsed_ms),
        format_number(point.input_tokens),
        format_number(point.output_tokens),
        *(str(point.suites.get(name, "–")) for name in graph.suites),
        str(point.score or "–"),
    ]


def _format_line(cells: list[str], widths: list[int]) -> str:
    *columns, note = cells
    shown = [cell.rjust(width) for cell, width in zip(columns, widths, strict=True)]
    return "  ".join((*shown, note)).rstrip()


MAX_ROWS: Final = 2000
MAX_LISTED: Final = 20
MAX_SUMMARY: Final = 100
MAX_ERROR: Final = 300
_ALT: Final = {
    "progress": "cases passed after each part, with regressions marked",
    "suites": "share of cases passed after each part, one small picture a suite",
    "cases": "status of every case after every part",
    "cost": "tokens and time over the parts",
}
_FOOTER: Final = (
    "Every distinct state of the files was judged once, from its commit. "
    "A part without a change has the result of the part before it."
)
_STYLE: Final = """
:root{color-scheme:light;--ink:#1d2733;--soft:#5b6775;--line:#dde3ea;--bad:#b34700;--good:#00764f}
*{box-sizing:border-box}
body{margin:0;background:#f4f6f8;color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:1.5rem;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:32px 0 10px}
.sub{color:var(--soft);margin:0 0 20px;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:10px}
.card{background:#fff;border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.card b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:.85rem}
figure{margin:14px 0;background:#fff;border:1px solid var(--line);border-radius:8px;padding:10px}
figure img{display:block;width:100%;height:auto}
.wide{overflow-x:auto;background:#fff;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:.87rem}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;white-space:nowrap}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.c{white-space:nowrap}
td.t{min-width:220px;overflow-wrap:anywhere}
code{font:.92em ui-monospace,monospace;overflow-wrap:anywhere}
.bad{color:var(--bad)}.good{color:var(--good)}tr.down{background:#fdf1ea}
footer{margin-top:36px;color:var(--soft);font-size:.85rem}
"""
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"


def html_report(graph: Graph) -> bytes:
    """Return the report as one HTML page."""
    title = escape_html(f"Trajectory {graph.trajectory_id}")
    body = "\n".join(
        (
            f"<h1>{title}</h1>",
            f'<p class="sub">{_render_subtitle(graph)}</p>',
            _render_cards(graph),
            *(_render_figure(graph, picture) for picture in PICTURES),
            _render_regressions(graph),
            _render_points(graph),
            f"<footer>{_FOOTER}</footer>",
        )
    )
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    return page.encode("utf-8")


def _render_subtitle(graph: Graph) -> str:
    said = (
        f"agent {graph.agent}",
        f"model {graph.agent_model}" if graph.agent_model else "",
        f"environment {graph.environment}",
        f"started {graph.started_at}",
        f"ended: {graph.end}",
    )
    return " · ".join(escape_html(one) for one in said if one)


def _render_cards(graph: Graph) -> str:
    last = graph.points[-1] if graph.points else None
    best = graph.best
    facts: list[tuple[str, object]] = [
        ("cases passed at the end", last.score if last and last.score else "–"),
        ("best", f"{best.score} at part {best.part}" if best and best.score else "–"),
        ("regressions", len(graph.regressions)),
        ("parts", len(graph.points)),
        ("turns", last.turn if last else 0),
        ("tokens in", format_number(last.input_tokens) if last else 0),
        ("tokens out", format_number(last.output_tokens) if last else 0),
        ("time", format_duration(last.elapsed_ms) if last else "–"),
    ]
    cards = "".join(
        f'<div class="card"><b>{escape_html(value)}</b><span>{escape_html(name)}</span></div>'
        for name, value in facts
    )
    return f'<div class="cards">{cards}</div>'


def _render_figure(graph: Graph, picture: Picture) -> str:
    data = base64.b64encode(draw(graph, picture, "svg")).decode("ascii")
    alt = escape_html(_ALT[picture])
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{alt}"></figure>'


def _render_regressions(graph: Graph) -> str:
    rows = [
        _render_row(
            ("n", str(point.part)),
            ("c", _render_commit(point)),
            ("t", _render_names(point.change.newly_broken)),
            ("t", escape_html(_describe_repair(graph, point))),
            ("t", escape_html(_shorten(point.summary))),
        )
        for point in graph.regressions[:MAX_ROWS]
    ]
    if not rows:
        return '<h2>Regressions</h2>\n<p class="good">No case that passed broke later.</p>'
    head = ("part", "commit", "newly broken", "fixed again", "what the part was")
    return f"<h2>Regressions</h2>\n{_render_grid(head, rows, len(graph.regressions))}"


def _describe_repair(graph: Graph, point: Point) -> str:
    """Describe where the cases that broke at a point passed again."""
    open_ones = set(point.change.newly_broken)
    for later in graph.points[point.part :]:
        open_ones -= set(later.change.newly_fixed)
        if not open_ones:
            return f"all by part {later.part}"
    fixed = len(point.change.newly_broken) - len(open_ones)
    return "never" if not fixed else f"{fixed} of {len(point.change.newly_broken)}"


def _render_points(graph: Graph) -> str:
    rows = []
    for point in graph.rows[:MAX_ROWS]:
        part, turn, *figures, score = map(escape_html, _format_figures(graph, point))
        cells = [
            ("n", part),
            ("n", turn),
            ("c", _render_commit(point)),
            *(("n", one) for one in figures),
        ]
        cells += [("n", f"<b>{score}</b>"), ("t", _render_notes(point))]
        rows.append(_render_row(*cells, down=bool(point.change.newly_broken)))
    head = ("part", "turn", "commit", "time", "tokens in", "out", *graph.suites, "all", "")
    return f"<h2>Parts that changed files</h2>\n{_render_grid(head, rows, len(graph.rows))}"


def _render_commit(point: Point) -> str:
    return f"<code>{escape_html(point.commit[:12])}</code>"


def _render_notes(point: Point) -> str:
    change, said = point.change, []
    if change.newly_broken:
        said.append(f'<span class="bad">−{len(change.newly_broken)}</span>')
    if change.newly_fixed:
        said.append(f'<span class="good">+{len(change.newly_fixed)}</span>')
    if point.error:
        error = " ".join(point.error.split())[:MAX_ERROR]
        said.append(f'<span class="bad">{escape_html(error)}</span>')
    return " ".join((*said, escape_html(_shorten(point.summary))))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"


def _render_names(names: Sequence[str]) -> str:
    shown = ", ".join(f"<code>{escape_html(name)}</code>" for name in names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _render_row(*cells: tuple[str, str], down: bool = False) -> str:
    inside = "".join(f'<td class="{kind}">{content}</td>' for kind, content in cells)
    return f'<tr class="down">{inside}</tr>' if down else f"<tr>{inside}</tr>"


def _render_grid(head: Sequence[str], rows: Sequence[str], count: int) -> str:
    titles = "".join(f"<th>{escape_html(name)}</th>" for name in head)
    more = f"<p>{count - len(rows)} more rows are left out.</p>" if count > len(rows) else ""
    return (
        f'<div class="wide"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )
