"""``render_page``: a report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import escape_html
from coilclaw.runs.report.page_elements import join_nodes, make_note, render_element, tag

if TYPE_CHECKING:
    from coilclaw.runs.report.report_reader import RunReport

_FOOTER: Final = (
    "Made by coilclaw runs report from the evidence of the run. This file is a picture of it, "
    "not evidence: anyone can change it. What counts is the bundle, and what verification says."
)
STYLE: Final = """
:root{color-scheme:light dark;--page:#f4f6f8;--card:#fff;--ink:#1b2430;--soft:#5a6675;
--line:#d9e0e7;--code:#f0f3f6;--good:#046b46;--good-bg:#e3f4ec;--bad:#a8201a;--bad-bg:#fdebe9;--warn:#8a5300;
--warn-bg:#fdf2de;--plain-bg:#e9edf1;--ins:#b4e6ca;--del:#f7c6c1;--link:#0b5cad}
@media (prefers-color-scheme:dark){:root{--page:#11161c;--card:#1a2129;--ink:#e3e8ee;--soft:#9aa7b5;
--line:#323c47;--code:#141a21;--good:#62d3a0;--good-bg:#133226;--bad:#ff8f85;--bad-bg:#3d1c1b;
--warn:#f0b95b;--warn-bg:#3a2b10;--plain-bg:#2a333d;--ins:#1f6a47;--del:#85302b;--link:#7ab8ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1240px;margin:0 auto;padding:24px 20px 60px}
header p{margin:0;color:var(--soft)}
h1{font-size:1.4rem;margin:0 0 14px;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 12px}
h3{font-size:1rem;margin:16px 0 6px;overflow-wrap:anywhere}
h4{font-size:.82rem;margin:8px 0 4px;color:var(--soft);font-weight:600}
p{margin:6px 0;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin:0 0 16px}
a{color:var(--link);text-decoration:none}a:hover,a:focus{text-decoration:underline}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;
margin:0 0 16px}
article{border-top:1px solid var(--line);padding:4px 0 10px}
article:first-of-type{border-top:0;padding-top:0}article:first-of-type>h3{margin-top:0}
.headline{font-size:1.15rem;font-weight:650;margin:0}
.verdict,.banner{border-left:5px solid var(--line);border-radius:6px;padding:10px 14px;
margin:0 0 12px;background:var(--plain-bg)}
.banner{border:2px solid var(--bad);margin-bottom:16px}
.verdict.good{background:var(--good-bg);border-color:var(--good)}
.verdict.bad,.banner.bad{background:var(--bad-bg);border-color:var(--bad)}
.verdict.warn{background:var(--warn-bg);border-color:var(--warn)}
.why{margin:6px 0 0;padding-left:20px}.why li{overflow-wrap:anywhere}
.pill{display:inline-block;border-radius:99px;padding:0 9px;font-size:.82rem;font-weight:600;
background:var(--plain-bg);white-space:nowrap;max-width:100%;overflow:hidden;text-overflow:ellipsis;
vertical-align:bottom}
.pill.good{color:var(--good);background:var(--good-bg)}
.pill.bad{color:var(--bad);background:var(--bad-bg)}
.pill.warn{color:var(--warn);background:var(--warn-bg)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.verdict,.banner,article.change{color:var(--ink)}
.verdict .headline{color:var(--ink)}
.meta,.note,.nothing,small{color:var(--soft)}.note,small{font-size:.86rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88em}
code{overflow-wrap:anywhere}
pre{margin:6px 0;padding:9px 11px;background:var(--code);border:1px solid var(--line);
border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4}
pre.output{max-height:34rem;overflow:auto}
pre.prose{font-family:inherit;font-size:1em}
.facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 16px;margin:12px 0}
.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
.commands,.codes{margin:6px 0;padding-left:20px}
.codes{column-width:20rem}
.commands code{background:var(--code);border:1px solid var(--line);border-radius:4px;
padding:1px 6px;user-select:all}
.timeline,.activity{list-style:none;margin:0;padding:0}
.timeline li{display:grid;grid-template-columns:4.2rem minmax(0,1fr);gap:0 12px;
padding:2px 0 2px 10px;border-left:3px solid var(--line);color:var(--ink);overflow-wrap:anywhere}
.timeline li.good{border-color:var(--good)}.timeline li.bad{border-color:var(--bad)}
.timeline li.warn{border-color:var(--warn)}
.timeline li.move{padding-top:10px}
.when{color:var(--soft);font-variant-numeric:tabular-nums;text-align:right}
.state{display:inline-block;margin-right:4px}
.activity li{border-top:1px solid var(--line);padding:4px 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600;white-space:nowrap}td p{margin:0}
details{margin:6px 0}summary{cursor:pointer;overflow-wrap:anywhere}
details.file{border:1px solid var(--line);border-radius:6px;overflow:hidden}
details.file>summary{padding:6px 10px;background:var(--code)}
details.file>.note{padding:0 10px}
.diff{table-layout:fixed;font:.8rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.diff td{border:0;padding:0 8px;white-space:pre-wrap;tab-size:4}
.diff col.n{width:3.6rem}
.diff td.n{color:var(--soft);text-align:right;user-select:none;border-left:1px solid var(--line)}
.diff td.gone{background:var(--bad-bg);color:var(--ink)}
.diff td.came{background:var(--good-bg);color:var(--ink)}
.diff td.none{background:var(--code)}
.diff del{background:var(--del);text-decoration:none;border-radius:2px}
.diff ins{background:var(--ins);text-decoration:none;border-radius:2px}
.diff .hunk td{background:var(--plain-bg);color:var(--soft);padding:2px 10px}
footer{color:var(--soft);font-size:.85rem}
@media (max-width:700px){main{padding:14px 8px 40px}section{padding:12px 10px}
.facts{grid-template-columns:minmax(0,1fr)}.facts dd{margin-bottom:6px}
.timeline li{grid-template-columns:4rem minmax(0,1fr)}
.diff{font-size:.68rem}.diff td{padding:0 3px}.diff col.n{width:2.1rem}}
@media print{:root{color-scheme:light;--page:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;
--code:#f6f6f6;--good:#046b46;--good-bg:#e3f4ec;--bad:#a8201a;--bad-bg:#fdebe9;--warn:#8a5300;
--warn-bg:#fdf2de;--plain-bg:#eee;--ins:#b4e6ca;--del:#f7c6c1}
*{print-color-adjust:exact}body{font-size:10pt}main{max-width:none;padding:0}nav{display:none}
section{border:0;border-top:1px solid var(--line);border-radius:0;padding:10px 0}
pre.output{max-height:none;overflow:visible}.wide{overflow:visible}
h2,h3,summary{break-after:avoid}tr,.timeline li{break-inside:avoid}
details::details-content{content-visibility:visible;block-size:auto}}
"""


def render_page(report: RunReport) -> bytes:
    """Render the whole page."""
    names = {
        label: "audits" if label == "Done later" else label.lower() for label in report.sections
    }
    links = [tag("a", label, href=f"#{name}") for label, name in names.items()]
    sections = "\n".join(
        render_element(tag("section", tag("h2", label), inside, id=names[label]))
        for label, inside in report.sections.items()
    )
    run_id = escape_html(report.run_id)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{style_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>Run {run_id}: {escape_html(report.headline)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><p>CoilClaw run report</p><h1>{run_id}</h1></header>\n"
        f"{render_element(report.banner)}\n{render_element(tag('nav', *links))}\n"
        f"{render_element(join_nodes(*map(make_note, report.notes)))}{sections}\n"
        f"<footer>{_FOOTER}</footer>\n</main>\n</body>\n</html>\n"
    )
    return page.encode("utf-8")


def style_policy() -> str:
    """Return the Content-Security-Policy: the one style sheet by its hash, and nothing else."""
    style = base64.b64encode(sha256(STYLE.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
