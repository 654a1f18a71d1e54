"""The parts of a report as HTML: one pure function a part, from its values to a string.

A browser console can use them one by one, together with the style sheet of ``report_style``. Every
text passes ``escape_html``; no part has a script, an address of elsewhere or a style of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.visible_text import escape_html as text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.orchestrator.run_report import (
        ActivityEntry,
        ApprovalView,
        AuditView,
        ContractView,
        Excerpt,
        GateView,
        LabelledText,
        OutcomeView,
        ReviewView,
        TaskView,
        TestCommandView,
        TestRoundView,
        TimelineEntry,
        TokenUse,
        VerificationFinding,
        VerificationView,
    )

FAILED_TAIL_LINES: Final = 20
BANNER_FINDINGS: Final = 8


def render_outcome(view: OutcomeView) -> str:
    """What came out, and why."""
    reasons = "".join(f"<li>{text(reason)}</li>" for reason in view.reasons)
    failed = view.failed_command
    return "".join(
        (
            f'<div class="verdict {view.tone}"><p class="headline">{text(view.headline)}</p>',
            f'<ul class="why">{reasons}</ul>' if reasons else "",
            "</div>",
            _failed_tail(failed) if failed else "",
            f"<h3>Request</h3>{render_excerpt(view.request, 'prose')}" if view.request.text else "",
            _commands("Next", (("", command) for command in view.next_commands)),
            render_facts(view.facts),
        )
    )


def render_warning(view: VerificationView) -> str:
    """The banner above everything, where the evidence does not hold; else nothing."""
    if view.state != "broken":
        return ""
    return (
        f'<div class="banner bad" role="alert"><p class="headline">{text(view.summary)}</p>'
        f"{_findings(view.findings[:BANNER_FINDINGS])}"
        '<p><a href="#verification">All that was found</a></p></div>'
    )


def render_verification(view: VerificationView) -> str:
    """Whether the evidence holds, and how to find out again."""
    tone = {"holds": "good", "broken": "bad", "unfinished": "warn"}[view.state]
    checks = " ".join(
        _pill(f"✓ {name}", "good") if fine else _pill(f"✗ {name}", "bad")
        for name, fine in view.checks
    )
    root = f"<p>Root hash <code>{text(view.root_hash)}</code></p>" if view.root_hash else ""
    return "".join(
        (
            f'<p class="{tone}">{text(view.summary)}</p>',
            _findings(view.findings),
            f"<h3>Warnings</h3>{_findings(view.warnings)}" if view.warnings else "",
            f"<p>Checked: {checks}</p>" if checks else "",
            root,
            _commands("Repeat it", ((each.label, each.text) for each in view.commands)),
        )
    )


def render_timeline(entries: Sequence[TimelineEntry]) -> str:
    """States and attempts in order."""
    rows = "".join(_timeline_row(entry) for entry in entries)
    return f'<ol class="timeline">{rows}</ol>' if rows else _nothing("Nothing happened yet.")


def render_contract(view: ContractView | None) -> str:
    """What was agreed."""
    if view is None:
        return _nothing("There is no contract that can be read.")
    tests = [
        (
            text(one.name),
            f"<code>{text(one.command)}</code>",
            "must pass" if one.must_pass else "may fail",
        )
        for one in view.acceptance
    ]
    return "".join(
        (
            render_excerpt(view.spec, "prose"),
            render_facts(view.facts),
            f"<h3>May change</h3>{_codes(view.allowed_paths)}",
            f"<h3>Decided by</h3>{render_table(('test', 'command', ''), tests)}",
            f"<h3>Forbidden</h3>{_codes(view.forbidden_actions)}" if view.forbidden_actions else "",
            _folded("The whole contract", render_excerpt(view.document)),
        )
    )


def render_tasks(tasks: Sequence[TaskView]) -> str:
    """Every task, with what its agent did."""
    return "".join(map(render_task, tasks)) or _nothing("There is no task yet.")


def render_task(task: TaskView) -> str:
    """One task."""
    said = [
        _pill(task.status, task.tone),
        f"of {text(task.parent)}" if task.parent else "",
        _attempt(task.attempt),
        text(task.role),
        f"runner {text(task.runner)}" if task.runner else "",
        f"review {text(task.verdict)}" if task.verdict else "",
    ]
    entries = "".join(map(_activity_row, task.activity))
    note = f'<p class="note">{text(task.activity_note)}</p>' if task.activity_note else ""
    activity = f'<ol class="activity">{entries}</ol>{note}' if entries else ""
    return "".join(
        (
            f'<article><h3>{text(task.task_id)}</h3><p class="meta">{_joined(said)}</p>',
            f'<p class="bad">{text(task.reason)}</p>' if task.reason else "",
            render_excerpt(task.summary, "prose"),
            _folded("Its instruction", render_excerpt(task.spec, "prose"))
            if task.spec.text
            else "",
            _folded(f"What the agent did ({len(task.activity)} parts)", activity)
            if activity
            else "",
            "</article>",
        )
    )


def render_gates(gates: Sequence[GateView]) -> str:
    """What every gate said; the red ones first, with their reasons."""
    if not gates:
        return _nothing("No gate has judged yet.")
    red = [gate for gate in gates if not gate.passed]
    green = [gate for gate in gates if gate.passed]
    counts = (
        _pill(f"{len(red)} red", "bad" if red else "plain"),
        _pill(f"{len(green)} green", "good"),
    )
    return "".join(
        (
            f"<p>{' '.join(counts)}</p>",
            _gate_table(red) if red else "",
            _folded("Green", _gate_table(green)) if red and green else _gate_table(green),
        )
    )


def render_tests(rounds: Sequence[TestRoundView]) -> str:
    """Every round of tests, the last one first."""
    return "".join(map(render_test_round, reversed(rounds))) or _nothing("No test has run yet.")


def render_test_round(view: TestRoundView) -> str:
    """One round: its commands, with what they printed."""
    said = _joined([_pill(view.status, view.tone), _attempt(view.attempt)])
    commands = "".join(map(render_command, view.commands))
    return (
        f'<article><h3>On the {text(view.where or "candidate")}</h3><p class="meta">{said}</p>'
        f"{f'<p>{text(view.reason)}</p>' if view.reason else ''}{commands}</article>"
    )


def render_command(view: TestCommandView) -> str:
    """One command with its output."""
    passed = view.exit_code == 0
    tone = "good" if passed else "bad" if view.must_pass else "warn"
    said = [
        _pill(f"exit {'?' if view.exit_code is None else view.exit_code}", tone),
        f"<code>{text(view.command)}</code>",
        text(view.name),
        "" if view.duration_s is None else f"{view.duration_s:.1f} s",
        "" if view.must_pass else "may fail",
    ]
    printed = "".join(
        f"<h4>{label}</h4>{render_excerpt(excerpt)}"
        for label, excerpt in (("standard output", view.stdout), ("standard error", view.stderr))
        if excerpt.text
    )
    shown = printed or _nothing("It printed nothing.")
    return f'<p class="meta">{_joined(said)}</p>' + (
        _folded("Output", shown) if passed and printed else shown
    )


def render_reviews(reviews: Sequence[ReviewView]) -> str:
    """Every review with its findings, the last one first."""
    return "".join(map(_review, reversed(reviews))) or _nothing("Nothing was reviewed yet.")


def render_approvals(approvals: Sequence[ApprovalView]) -> str:
    """Every question to a person."""
    rows = [
        (
            _pill(one.answer, one.tone),
            f"{text(one.reason)}{_codes(one.detail)}",
            text(one.kind),
            text(_joined([one.decided_by, one.decided_at])),
            f"<code>{text(one.approval_id)}</code>",
        )
        for one in approvals
    ]
    if not rows:
        return _nothing("No approval was needed.")
    return render_table(("answer", "question", "kind", "by", "approval"), rows)


def render_tokens(uses: Sequence[TokenUse]) -> str:
    """What models took, and the sum."""
    if not uses:
        return _nothing("No model told how many tokens it took.")
    rows = [
        (
            text(one.who),
            text(one.model),
            *map(_count, (one.calls, one.input_tokens, one.output_tokens)),
        )
        for one in uses
    ]
    read = [one.input_tokens for one in uses if one.input_tokens is not None]
    written = [one.output_tokens for one in uses if one.output_tokens is not None]
    total = (
        sum(one.calls for one in uses),
        sum(read) if read else None,
        sum(written) if written else None,
    )
    rows.append(("<b>all</b>", "", *(f"<b>{_count(one)}</b>" for one in total)))
    return render_table(("who", "model", "answers", "tokens in", "tokens out"), rows)


def render_audits(audits: Sequence[AuditView]) -> str:
    """What was done with the run later."""
    rows = [
        (
            f"<code>{text(one.name)}</code>",
            _pill("belongs to another run", "bad") if one.foreign else text(one.status),
            text(one.detail),
        )
        for one in audits
    ]
    if not rows:
        return _nothing("Nothing was done with the run later.")
    return (
        '<p class="note">The seal does not cover what was added later.</p>'
        f"{render_table(('audit', 'result', ''), rows)}"
    )


def render_excerpt(excerpt: Excerpt, kind: str = "output") -> str:
    """A text that may have several lines, with a note where it was cut."""
    if not excerpt.text:
        return ""
    note = f'<p class="note">{text(excerpt.note)}</p>' if excerpt.note else ""
    return f'<pre class="{kind}">{text(excerpt.text)}</pre>{note}'


def render_facts(facts: Sequence[LabelledText]) -> str:
    """Facts beside their labels."""
    rows = "".join(f"<dt>{text(one.label)}</dt><dd>{text(one.text)}</dd>" for one in facts)
    return f'<dl class="facts">{rows}</dl>' if rows else ""


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML already."""
    titles = "".join(f"<th>{text(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _timeline_row(entry: TimelineEntry) -> str:
    elapsed = "" if entry.elapsed_s is None else f"+{entry.elapsed_s:.1f} s"
    state = f'<b class="state">{text(entry.state)}</b> ' if entry.state else ""
    who = _joined([text(entry.task_id), _attempt(entry.attempt) if entry.task_id else ""])
    return (
        f'<li class="{entry.tone}{" move" if entry.state else ""}">'
        f'<span class="when" title="{text(entry.ts)}, event {entry.event}">{elapsed}</span>'
        f"<span>{state}{text(entry.text)}{f' <small>{who}</small>' if who else ''}</span></li>"
    )


def _activity_row(entry: ActivityEntry) -> str:
    code = entry.exit_code
    said = [
        f"<b>{text(entry.kind)}</b>",
        f"<code>{text(entry.title)}</code>" if entry.title else "",
        "" if code is None else _pill(f"exit {code}", "bad" if code else "good"),
        ", ".join(f"<code>{text(name)}</code>" for name in entry.files),
    ]
    return f'<li><p class="meta">{_joined(said)}</p>{render_excerpt(entry.text)}</li>'


def _gate_table(gates: Sequence[GateView]) -> str:
    rows = [
        (
            _pill("green" if gate.passed else "red", "good" if gate.passed else "bad"),
            f"<code>{text(gate.gate)}</code>",
            _joined([text(gate.task_id or "the run"), _attempt(gate.attempt)]),
            "".join(f"<p>{text(each)}</p>" for each in gate.violations),
        )
        for gate in gates
    ]
    return render_table(("result", "gate", "judged", "reasons"), rows)


def _review(view: ReviewView) -> str:
    rows = [
        (
            _pill("blocking", "bad") if one.blocking else _pill("remark", "plain"),
            text(one.message),
            f"<code>{text(one.place)}</code>" if one.place else "",
        )
        for one in view.findings
    ]
    said = _joined(
        [_pill(view.verdict, view.tone), f"by {text(view.reviewer)}", _attempt(view.attempt)]
    )
    findings = render_table(("", "finding", "place"), rows) if rows else _nothing("No finding.")
    return (
        f'<article><h3>{text(view.task_id or "The run")}</h3><p class="meta">{said}</p>'
        f"<p>{text(view.summary)}</p>{findings}</article>"
    )


def _failed_tail(view: TestCommandView) -> str:
    printed = (view.stderr.text or view.stdout.text).split("\n")[-FAILED_TAIL_LINES:]
    tail = text("\n".join(printed))
    return (
        f'<p class="meta">{_pill(f"exit {view.exit_code}", "bad")} · '
        f"<code>{text(view.command)}</code> · the end of its output:</p>"
        f'<pre class="output">{tail}</pre>'
    )


def _findings(found: Sequence[VerificationFinding]) -> str:
    rows = "".join(
        f"<li><code>{text(one.code)}</code> {text(one.message)}"
        f"{f' <small>{text(one.path)}</small>' if one.path else ''}</li>"
        for one in found
    )
    return f"<ul>{rows}</ul>" if rows else ""


def _commands(title: str, commands: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f"<li>{f'{text(label)}: ' if label else ''}<code>{text(command)}</code></li>"
        for label, command in commands
    )
    return f'<h3>{title}</h3><ul class="commands">{rows}</ul>' if rows else ""


def _codes(names: Sequence[str]) -> str:
    rows = "".join(f"<li><code>{text(name)}</code></li>" for name in names)
    return f'<ul class="codes">{rows}</ul>' if rows else ""


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{text(title)}</summary>{inside}</details>"


def _pill(word: str, tone: str) -> str:
    return f'<span class="pill {tone}">{text(word)}</span>'


def _attempt(number: int | None) -> str:
    return "" if number is None else f"attempt {number + 1}"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _joined(parts: Iterable[str]) -> str:
    return " · ".join(part for part in parts if part)


def _nothing(sentence: str) -> str:
    return f'<p class="nothing">{sentence}</p>'
