"""``read_report``: a bundle as a ``RunReport``, whatever state the run or its evidence is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from coilclaw.kernel import CoilClawError
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.engine.run_start import is_worked_on
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.event_index import EventIndex, EvidenceFinding, RecordedEvent, get_part
from coilclaw.runs.evidence.progress import START
from coilclaw.runs.evidence.rehydration import read_events
from coilclaw.runs.evidence.verification_codes import Code
from coilclaw.runs.report import page_elements as page
from coilclaw.runs.report.report_sections import EvidenceSections
from coilclaw.runs.report.report_source import MAX_ITEMS, ReportSource
from coilclaw.runs.report.timeline import MAX_ENTRIES, STATE_NAMES, read_timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.runs.evidence.verification import VerifyReport
    from coilclaw.runs.report.page_elements import Node, ReportTone

BANNER_FINDINGS: Final = 8
Verification: TypeAlias = Literal["holds", "broken", "unfinished"]
_SUMMARIES: Final[Mapping[Verification, tuple[ReportTone, str]]] = {
    "holds": (
        "good",
        "The evidence holds: every byte is what the run left, and the key vouches for it.",
    ),
    "broken": ("bad", "The evidence does not hold: {count}. Do not rely on this report."),
    "unfinished": ("warn", "The run is not sealed yet. What is recorded so far is consistent."),
}
MAX_GATES: Final = 2000
_UNFINISHED: Final = frozenset(
    {
        Code.MANIFEST_MISSING,
        Code.MANIFEST_UNSEALED,
        Code.EVENTS_NOT_SEALED,
        Code.EVIDENCE_MISSING,
        Code.PATCH_MISSING,
        Code.DIFF_NAME_ONLY_MISSING,
        Code.CONTRACT_MISSING,
        Code.TASK_RESULT_MISSING,
        Code.REVIEW_MISSING,
        Code.TEST_MISSING,
    }
)
"""What a run that has not ended may lack; any other finding is an error."""
_HEADLINES: Final[Mapping[str, tuple[str, ReportTone]]] = {
    "passed": ("Passed", "good"),
    "failed": ("Failed", "bad"),
    "denied": ("Denied", "bad"),
    "invalid": ("Refused: the contract is not valid", "bad"),
    "provider": ("Failed: a model could not be asked", "bad"),
    "fault": ("Failed: trouble of our own", "bad"),
    "paused": ("Paused", "warn"),
    "running": ("Running", "warn"),
    "interrupted": ("Interrupted", "warn"),
    "sealing": ("Ended, but not sealed", "warn"),
    "empty": ("Nothing was recorded", "warn"),
}
_MERGES: Final[Mapping[str, str]] = {
    "merged": "merged into {branch}",
    "merged later": "merged later by runs apply",
    "pending": "the merge is pending",
}


@dataclass(frozen=True, slots=True)
class RunReport:
    """A whole report."""

    run_id: str
    standing: str
    """``passed``, ``failed``, ``denied``, ``paused``, ``running``, ``interrupted``, …"""
    headline: str
    verification: Verification
    summary: str
    """What the verification means."""
    next_commands: tuple[str, ...]
    """What the user can type to bring the run further."""
    banner: Node
    """What stands above everything where the evidence does not hold."""
    notes: tuple[str, ...]
    """What was left out of lists."""
    sections: Mapping[str, Node]


def read_report(
    directory: Path, verification: VerifyReport, redact: Callable[[str], str]
) -> RunReport:
    """Read a bundle; ``verification`` is the result of a strict verification of it."""
    source = ReportSource(directory, redact)
    try:
        events = read_events(directory)[0]
    except CoilClawError:
        events = EventIndex()  # verification has said why
    evidence, audits = EvidenceSections(source, events), [*_read_audits(source)]
    timeline = read_timeline(events, source)
    gates = [_list_gate(event, source) for event in events if event.passed is not None]
    notes = []
    if len(timeline) > MAX_ENTRIES:
        notes.append(f"the timeline shows the last {MAX_ENTRIES} of {len(timeline)} entries")
    if len(gates) > MAX_GATES:
        notes.append(f"the last {MAX_GATES} of {len(gates)} results of gates are shown")
    sealed = events.last(EventType.RUN_SEALED) is not None or bool(source.load_manifest())
    errors = [each for each in verification.errors if sealed or each.code not in _UNFINISHED]
    state: Verification = "broken" if errors else "holds" if sealed else "unfinished"
    count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
    tone, form = _SUMMARIES[state]
    summary, outcome = form.format(count=count), _OutcomeReader(evidence, audits)
    standing, headline = outcome.standing, outcome.headline
    claim = f"Claimed, and not proven: {headline}" if errors else headline
    return RunReport(
        run_id=directory.name,
        standing=standing,
        headline=claim,
        verification=state,
        summary=summary,
        next_commands=outcome.next_commands,
        banner=_show_banner(source, summary, errors) if errors else "",
        notes=tuple(notes),
        sections={
            "Outcome": outcome.show(claim, "warn" if errors else _HEADLINES[standing][1]),
            "Verification": page.join_nodes(
                page.tag("p", summary, kind=tone),
                _show_verification(source, events, verification, errors, sealed=sealed),
            ),
            "Timeline": page.tag("ol", *timeline[-MAX_ENTRIES:], kind="timeline")
            if timeline
            else page.say_nothing("Nothing happened yet."),
            "Contract": evidence.show_contract(),
            "Tasks": evidence.show_tasks(),
            "Changes": evidence.show_changes(),
            "Gates": _show_gates(gates[-MAX_GATES:]),
            "Tests": evidence.show_tests(),
            "Reviews": evidence.show_reviews(),
            "Approvals": evidence.show_approvals(),
            "Tokens": evidence.show_tokens(),
            "Done later": _show_audits(audits),
        },
    )


class _OutcomeReader:
    """Reads the outcome of a run from its manifest and its events."""

    def __init__(self, evidence: EvidenceSections, audits: Sequence[_Audit]) -> None:
        self._evidence = evidence
        self._source = evidence.source
        self._clean = evidence.source.sentence
        self._events = evidence.events
        self._manifest = self._source.load_manifest()
        created = self._events.of(EventType.RUN_CREATED)
        self._created: Mapping[str, Json] = created[0].payload if created else {}
        finished = self._events.last(EventType.RUN_FINISHED)
        recorded = get_part(self._manifest, "merge", "status")
        self._merge = str(recorded or (finished.text("merge") if finished else ""))
        own = (audit for audit in audits if "-apply" in audit.name and not audit.foreign)
        if any(audit.status == "merged" for audit in own):
            self._merge = "merged later"
        self.standing = self._judge_standing()
        self.headline = _HEADLINES[self.standing][0]
        if self.standing == "passed" and self._merge in _MERGES:
            branch = self._clean(get_part(self._manifest, "merge", "branch")) or "its branch"
            self.headline += f", {_MERGES[self._merge].format(branch=branch)}"
        self.next_commands = tuple(self._find_next_commands())

    def show(self, headline: str, tone: ReportTone) -> Node:
        """Show the outcome and its reasons."""
        passed = self.standing == "passed"
        reasons = () if passed and self._merge != "pending" else self._find_reasons(passed)
        request = self._manifest.get("user_request") or self._created.get("request")
        last, failed = self._events.last(EventType.TEST_RESULT), None
        if not passed and last is not None and last.text("status") != "PASS":
            commands = self._evidence.read_commands(last)
            failed = next((each for each in commands if each.exit_code and each.must_pass), None)
        return page.join_nodes(
            page.tag(
                "div",
                page.tag("p", headline, kind="headline"),
                page.make_list("why", reasons),
                kind=f"verdict {tone}",
            ),
            failed.show_end() if failed else "",
            page.add_heading("Request", page.show_excerpt(self._source.excerpt(request), "prose")),
            page.add_heading(
                "Next", page.make_list("commands", map(page.make_code, self.next_commands))
            ),
            page.show_facts(
                (label, self._clean(text)) for label, text in self._list_facts() if text
            ),
        )

    def _judge_standing(self) -> str:
        directory, events = self._source.directory, self._events
        if self._manifest.get("status") == "SUCCESS":
            return "passed"
        if self._manifest:
            moves = events.of(EventType.STATE_TRANSITION)
            outcome = next((o for each in reversed(moves) if (o := each.text("outcome"))), "")
            return outcome if outcome in _HEADLINES and outcome != "passed" else "failed"
        if not len(events):
            return "empty"
        if events.last(EventType.RUN_SEALED):
            return "sealing"
        if [*events][-1].kind == EventType.RUN_PAUSED:
            return "paused"
        return "running" if is_worked_on(directory.parent.parent, directory.name) else "interrupted"

    def _find_reasons(self, ended_well: bool) -> Iterator[str]:
        """Yield why, most telling first; what another sentence holds is not said again."""
        said: list[str] = []
        for text in self._list_reasons(ended_well):
            clean = self._clean(text)
            if clean and not any(clean in other or other in clean for other in said):
                said.append(clean)
                yield clean
            if len(said) >= 20:
                return

    def _list_reasons(self, ended_well: bool) -> Iterator[str]:
        yield str(self._manifest.get("failure_reason") or "")
        told = self._events.last(
            EventType.RUN_FINISHED, EventType.RUN_PAUSED, EventType.MERGE_PENDING
        )
        if told is not None:
            yield told.text("reason")
        if ended_well:
            return
        asked = self._events.last(EventType.HUMAN_APPROVAL_REQUIRED)
        if asked is not None and told is not None and told.kind == EventType.RUN_PAUSED:
            yield asked.text("reason")
        moved = self._events.last(EventType.STATE_TRANSITION)
        failures = moved.payload.get("failures") if moved else None
        yield from map(str, failures if isinstance(failures, list) else ())
        found = self._events.gates
        for gate, outcome in found.items():
            for violation in () if outcome.passed else outcome.violations[:MAX_ITEMS]:
                yield f"{gate}: {violation.partition(': ')[2] or violation}"

    def _list_facts(self) -> Iterator[tuple[str, str]]:
        events = list(self._events)
        manifest, merge = self._manifest, get_part(self._manifest, "merge")
        moves = self._events.last(EventType.STATE_TRANSITION)
        state = moves.text("to") if moves else START.value
        meta = self._source.load(layout.META)
        yield "run", self._source.directory.name
        yield "state", f"{STATE_NAMES.get(state, state)} ({state})"
        yield "began", events[0].ts if events else ""
        yield "ended", str(manifest.get("finished_at") or "")
        yield "merge", self._merge
        yield "branch", str(get_part(merge, "branch") or self._created.get("branch") or "")
        yield "commit", str(get_part(merge, "commit") or "")
        yield "baseline", self._events.baseline
        yield "runner", str(self._created.get("runner") or "")
        yield "reviewer", str(self._created.get("reviewer") or "")
        yield "repairs", str(len(self._events.of(EventType.FIX_LOOP_TRIGGERED)))
        yield "events", str(len(events))
        yield "CoilClaw", str(get_part(meta, "coilclaw") or "")
        yield "platform", str(get_part(meta, "platform") or "")
        yield "bundle", str(self._source.directory)

    def _find_next_commands(self) -> Iterator[str]:
        run_id, standing = self._source.directory.name, self.standing
        if standing == "paused":
            yield "coilclaw approvals list"
        if standing in {"paused", "interrupted", "sealing"}:
            yield f"coilclaw runs resume {run_id}"
        if standing == "running":
            yield f"coilclaw runs events {run_id} --follow"
        if standing == "passed" and self._merge == "pending":
            yield f"coilclaw runs apply {run_id}"
        if self._source.names("artifacts/rejected"):
            yield f"coilclaw runs diff {run_id} --rejected"


def _show_banner(source: ReportSource, summary: str, errors: Sequence[EvidenceFinding]) -> Node:
    return page.tag(
        "div",
        page.tag("p", summary, kind="headline"),
        _list_findings(source, errors[:BANNER_FINDINGS]),
        page.tag("p", page.tag("a", "All that was found", href="#verification")),
        kind="banner bad",
        role="alert",
    )


def _list_findings(source: ReportSource, found: Sequence[EvidenceFinding]) -> Node:
    rows = []
    for one in found[:MAX_ITEMS]:
        path = page.make_optional("small", source.sentence(one.path))
        message = f" {source.sentence(one.message)}"
        rows.append(
            page.join_nodes(page.make_code(one.code.value), message, " " if path else "", path)
        )
    return page.make_list("", rows)


def _show_verification(
    source: ReportSource,
    events: EventIndex,
    report: VerifyReport,
    errors: Sequence[EvidenceFinding],
    *,
    sealed: bool,
) -> Node:
    """Show what verification found, and how to repeat it."""
    checks: list[Node] = []
    for name, passed in report.checks.items() if sealed else ():
        checks += (
            " ",
            page.make_pill(f"✓ {name}", "good") if passed else page.make_pill(f"✗ {name}", "bad"),
        )
    root_hash = source.sentence(report.root_hash, 64)
    root = page.join_nodes("Root hash ", page.make_code(root_hash)) if root_hash else ""
    commands = (
        page.join_nodes(f"{label}: ", page.make_code(command))
        for label, command in _list_repetitions(events, report, sealed=sealed)
    )
    return page.join_nodes(
        _list_findings(source, errors),
        page.add_heading("Warnings", _list_findings(source, report.warnings)),
        page.tag("p", "Checked:", *checks) if checks else "",
        page.make_optional("p", root),
        page.add_heading("Repeat it", page.make_list("commands", commands)),
    )


def _list_repetitions(
    events: EventIndex, report: VerifyReport, *, sealed: bool
) -> Iterator[tuple[str, str]]:
    """Yield what a command repeats, and the command."""
    run_id, root = report.run_id, report.root_hash
    verify = f"coilclaw runs verify {run_id}"
    if sealed:
        yield "verify every byte again", verify
    if sealed and len(root) == 64 and root.isalnum():
        yield "verify against the root hash that you noted", f"{verify} --root {root}"
    yield "tell the run again from its events", f"coilclaw runs replay {run_id}"
    if sealed and events.last(EventType.CANDIDATE_PREPARED):
        yield "apply the patch, and run gates and tests again", f"coilclaw runs reexec {run_id}"


def _list_gate(event: RecordedEvent, source: ReportSource) -> tuple[bool, tuple[Node, ...]]:
    clean, passed = source.sentence, bool(event.passed)
    violations = source.sentences(event.payload.get("violations"))
    return passed, (
        page.make_pill("green", "good") if passed else page.make_pill("red", "bad"),
        page.make_code(clean(event.text("gate"))),
        page.join_dots(clean(event.task_id) or "the run", page.name_attempt(event.attempt)),
        page.join_nodes(*(page.tag("p", each) for each in violations)),
    )


def _show_gates(gates: Sequence[tuple[bool, tuple[Node, ...]]]) -> Node:
    """Show what every gate said; the red ones first, with their reasons."""
    if not gates:
        return page.say_nothing("No gate has judged yet.")
    red, green = ([row for passed, row in gates if passed is wanted] for wanted in (False, True))
    head = ("result", "gate", "judged", "reasons")
    passed = page.make_table(head, green)
    counts = page.make_pill(f"{len(red)} red", "bad" if red else "plain")
    return page.join_nodes(
        page.tag("p", counts, " ", page.make_pill(f"{len(green)} green", "good")),
        page.make_table(head, red) if red else "",
        page.make_details("Green", passed) if red and green else passed,
    )


class _Audit(NamedTuple):
    """What was done with the run after it was sealed; the seal does not cover it."""

    name: str
    status: str
    detail: str
    foreign: bool


def _read_audits(source: ReportSource) -> Iterator[_Audit]:
    for name in source.names(layout.AUDITS):
        folder = f"{layout.AUDITS}/{name}"
        files = [each for each in source.names(folder) if each.endswith(".json")]
        report = source.load(f"{folder}/{files[0]}") if files else None
        keys = ("branch", "commit", "reason")
        detail = " ".join(str(get_part(report, key) or "") for key in keys)
        yield _Audit(
            source.sentence(name),
            source.sentence(get_part(report, "status")),
            source.sentence(detail.strip()),
            foreign=get_part(report, "run_id") not in {None, source.directory.name},
        )


def _show_audits(audits: Sequence[_Audit]) -> Node:
    if not audits:
        return page.say_nothing("Nothing was done with the run later.")
    foreign = page.make_pill("belongs to another run", "bad")
    rows = [
        (page.make_code(one.name), foreign if one.foreign else one.status, one.detail)
        for one in audits
    ]
    return page.join_nodes(
        page.make_note("The seal does not cover what was added later."),
        page.make_table(("audit", "result", ""), rows),
    )
