"""``render_page``: a report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.domain.visible_text import escape_html as text
from coilclaw.orchestrator import report_parts as parts
from coilclaw.orchestrator.report_diff import render_changes
from coilclaw.orchestrator.report_style import STYLE

if TYPE_CHECKING:
    from coilclaw.orchestrator.run_report import RunReport

_FOOTER: Final = (
    "Made by coilclaw runs report from the evidence of the run. This file is a picture of it, "
    "not evidence: anybody can change it. What counts is the bundle, and what verification says."
)


def style_policy() -> str:
    """The Content-Security-Policy: the one style sheet by its hash, and nothing else at all."""
    style = base64.b64encode(sha256(STYLE.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


def render_page(report: RunReport) -> bytes:
    """Render the whole page."""
    title = text(f"Run {report.outcome.run_id}: {report.outcome.headline}")
    sections = _sections(report)
    links = "".join(f'<a href="#{name}">{label}</a>' for name, label, _ in sections)
    body = "\n".join(
        f'<section id="{name}"><h2>{label}</h2>{inside}</section>'
        for name, label, inside in sections
    )
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in report.notes)
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{style_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><p>CoilClaw run report</p><h1>{text(report.outcome.run_id)}</h1></header>\n"
        f"{parts.render_warning(report.verification)}\n<nav>{links}</nav>\n{notes}{body}\n"
        f"<footer>{_FOOTER}</footer>\n</main>\n</body>\n</html>\n"
    )
    return page.encode("utf-8")


def _sections(report: RunReport) -> tuple[tuple[str, str, str], ...]:
    """Name, title and content of each section, in order."""
    return (
        ("outcome", "Outcome", parts.render_outcome(report.outcome)),
        ("verification", "Verification", parts.render_verification(report.verification)),
        ("timeline", "Timeline", parts.render_timeline(report.timeline)),
        ("contract", "Contract", parts.render_contract(report.contract)),
        ("tasks", "Tasks", parts.render_tasks(report.tasks)),
        ("changes", "Changes", render_changes(report.changes)),
        ("gates", "Gates", parts.render_gates(report.gates)),
        ("tests", "Tests", parts.render_tests(report.tests)),
        ("reviews", "Reviews", parts.render_reviews(report.reviews)),
        ("approvals", "Approvals", parts.render_approvals(report.approvals)),
        ("tokens", "Tokens", parts.render_tokens(report.tokens)),
        ("audits", "Done later", parts.render_audits(report.audits)),
    )
