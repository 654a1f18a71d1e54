"""``html_report``: one page about a trajectory that needs nothing else: no network, no scripts."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from coilclaw.domain.visible_text import escape_html
from coilclaw.trajectory.graphdrawing import PICTURES, draw
from coilclaw.trajectory.reporttext import clock, grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.trajectory.graphdata import Graph, Point
    from coilclaw.trajectory.graphdrawing import Picture

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
    """The whole page."""
    title = escape_html(f"Trajectory {graph.trajectory_id}")
    body = "\n".join(
        (
            f"<h1>{title}</h1>",
            f'<p class="sub">{_subtitle(graph)}</p>',
            _cards(graph),
            *(_figure(graph, picture) for picture in PICTURES),
            _regressions(graph),
            _table(graph),
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


def _subtitle(graph: Graph) -> str:
    said = (
        f"agent {graph.agent}",
        f"model {graph.agent_model}" if graph.agent_model else "",
        f"environment {graph.environment}",
        f"started {graph.started_at}",
        f"ended: {graph.end}",
    )
    return " · ".join(escape_html(one) for one in said if one)


def _cards(graph: Graph) -> str:
    last = graph.points[-1] if graph.points else None
    best = graph.best
    facts: list[tuple[str, object]] = [
        ("cases passed at the end", last.score if last and last.score else "–"),
        ("best", f"{best.score} at part {best.part}" if best and best.score else "–"),
        ("regressions", len(graph.regressions)),
        ("parts", len(graph.points)),
        ("turns", last.turn if last else 0),
        ("tokens in", grouped(last.input_tokens) if last else 0),
        ("tokens out", grouped(last.output_tokens) if last else 0),
        ("time", clock(last.elapsed_ms) if last else "–"),
    ]
    cards = "".join(
        f'<div class="card"><b>{escape_html(value)}</b><span>{escape_html(name)}</span></div>'
        for name, value in facts
    )
    return f'<div class="cards">{cards}</div>'


def _figure(graph: Graph, picture: Picture) -> str:
    data = base64.b64encode(draw(graph, picture, "svg")).decode("ascii")
    alt = escape_html(_ALT[picture])
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{alt}"></figure>'


def _regressions(graph: Graph) -> str:
    rows = []
    for point in graph.regressions[:MAX_ROWS]:
        broken = point.change.newly_broken
        rows.append(
            _row(
                [
                    ("n", str(point.part)),
                    ("c", f"<code>{escape_html(point.commit[:12])}</code>"),
                    ("t", _names(broken)),
                    ("t", escape_html(_repair(graph, point))),
                    ("t", escape_html(_short(point.summary))),
                ]
            )
        )
    if not rows:
        return '<h2>Regressions</h2>\n<p class="good">No case that passed broke later.</p>'
    head = ("part", "commit", "newly broken", "fixed again", "what the part was")
    return f"<h2>Regressions</h2>\n{_grid(head, rows, len(graph.regressions))}"


def _repair(graph: Graph, point: Point) -> str:
    """Where what broke at a point passed again."""
    open_ones = set(point.change.newly_broken)
    for later in graph.points[point.part :]:
        open_ones -= set(later.change.newly_fixed)
        if not open_ones:
            return f"all by part {later.part}"
    fixed = len(point.change.newly_broken) - len(open_ones)
    return "never" if not fixed else f"{fixed} of {len(point.change.newly_broken)}"


def _table(graph: Graph) -> str:
    rows = []
    for point in graph.rows[:MAX_ROWS]:
        cells = [
            ("n", str(point.part)),
            ("n", str(point.turn)),
            ("c", f"<code>{escape_html(point.commit[:12])}</code>"),
            ("n", clock(point.elapsed_ms)),
            ("n", grouped(point.input_tokens)),
            ("n", grouped(point.output_tokens)),
            *(("n", escape_html(point.suites.get(name, "–"))) for name in graph.suites),
            ("n", f"<b>{escape_html(point.score or '–')}</b>"),
            ("t", _said(point)),
        ]
        rows.append(_row(cells, down=bool(point.change.newly_broken)))
    head = ("part", "turn", "commit", "time", "tokens in", "out", *graph.suites, "all", "")
    return f"<h2>Parts that changed files</h2>\n{_grid(head, rows, len(graph.rows))}"


def _said(point: Point) -> str:
    said = []
    if point.change.newly_broken:
        said.append(f'<span class="bad">−{len(point.change.newly_broken)}</span>')
    if point.change.newly_fixed:
        said.append(f'<span class="good">+{len(point.change.newly_fixed)}</span>')
    if point.error:
        said.append(
            f'<span class="bad">{escape_html(" ".join(point.error.split())[:MAX_ERROR])}</span>'
        )
    said.append(escape_html(_short(point.summary)))
    return " ".join(said)


def _short(text: str) -> str:
    return text if len(text) <= MAX_SUMMARY else f"{text[: MAX_SUMMARY - 1]}…"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(f"<code>{escape_html(name)}</code>" for name in names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _row(cells: Iterable[tuple[str, str]], *, down: bool = False) -> str:
    inside = "".join(
        f'<td class="{kind}">{content}</td>' if kind else f"<td>{content}</td>"
        for kind, content in cells
    )
    return f'<tr class="down">{inside}</tr>' if down else f"<tr>{inside}</tr>"


def _grid(head: Sequence[str], rows: Sequence[str], count: int) -> str:
    titles = "".join(f"<th>{escape_html(name)}</th>" for name in head)
    more = f"<p>{count - len(rows)} more rows are left out.</p>" if count > len(rows) else ""
    return (
        f'<div class="wide"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )
