"""``render_page``: a report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib import resources
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import escape_html
from coilclaw.runs.report.page_elements import join_nodes, make_note, render_element, tag

if TYPE_CHECKING:
    from coilclaw.runs.report.report_reader import RunReport

_FOOTER: Final = (
    "Made by coilclaw runs report from the evidence of the run. This file is a picture of it, "
    "not evidence: anyone can change it. What counts is the bundle, and what verification says."
)


def render_page(report: RunReport) -> bytes:
    """Render the whole page."""
    style = (resources.files("coilclaw.runs.report") / "report.css").read_text(encoding="utf-8")
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
        f'<meta http-equiv="Content-Security-Policy" content="{make_style_policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>Run {run_id}: {escape_html(report.headline)}</title>\n"
        f"<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><p>CoilClaw run report</p><h1>{run_id}</h1></header>\n"
        f"{render_element(report.banner)}\n{render_element(tag('nav', *links))}\n"
        f"{render_element(join_nodes(*map(make_note, report.notes)))}{sections}\n"
        f"<footer>{_FOOTER}</footer>\n</main>\n</body>\n</html>\n"
    )
    return page.encode("utf-8")


def make_style_policy(style: str) -> str:
    """Return the Content-Security-Policy: the one style sheet by its hash, and nothing else."""
    digest = base64.b64encode(sha256(style.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
