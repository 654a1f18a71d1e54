"""``read_report``: a bundle as a ``RunReport``, whatever state the run or its evidence is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import CoilClawError
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.chronicle import Chronicle
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.examination import part
from coilclaw.orchestrator.gatesummary import summed
from coilclaw.orchestrator.rehydrate import read_events
from coilclaw.orchestrator.report_evidence import EvidenceReader
from coilclaw.orchestrator.report_source import MAX_ITEMS, ReportSource
from coilclaw.orchestrator.report_timeline import MAX_ENTRIES, STATE_NAMES, read_timeline
from coilclaw.orchestrator.run_report import (
    AuditView,
    GateView,
    LabelledText,
    OutcomeView,
    RunReport,
    VerificationFinding,
    VerificationView,
)
from coilclaw.orchestrator.starting import worked_on
from coilclaw.orchestrator.states import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.examination import Finding
    from coilclaw.orchestrator.run_report import ReportTone, TestCommandView, TestRoundView
    from coilclaw.orchestrator.verifying import VerifyReport

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
"""What a run that has not ended lacks of course; anything else is wrong also then."""
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


def read_report(
    directory: Path, verification: VerifyReport, redact: Callable[[str], str]
) -> RunReport:
    """Read a bundle; ``verification`` is what a strict look at it found."""
    source = ReportSource(directory, redact)
    try:
        chronicle = read_events(directory)
    except CoilClawError:
        chronicle = Chronicle()  # verification has said why
    evidence = EvidenceReader(source, chronicle)
    tests = evidence.tests()
    audits = tuple(_audits(source))
    timeline = read_timeline(chronicle, source)
    gates = tuple(_gates(chronicle, source))
    notes = []
    if len(timeline) > MAX_ENTRIES:
        notes.append(f"the timeline shows the last {MAX_ENTRIES} of {len(timeline)} entries")
    if len(gates) > MAX_GATES:
        notes.append(f"the last {MAX_GATES} of {len(gates)} results of gates are shown")
    outcome = _OutcomeReader(source, chronicle, tests, audits).read()
    verified = _view_verification(source, chronicle, verification)
    if verified.state == "broken":
        claim = f"Claimed, and not proven: {outcome.headline}"
        outcome = replace(outcome, headline=claim, tone="warn")
    return RunReport(
        outcome=outcome,
        verification=verified,
        timeline=timeline[-MAX_ENTRIES:],
        contract=evidence.contract(),
        tasks=evidence.tasks(),
        changes=evidence.changes(),
        gates=gates[-MAX_GATES:],
        tests=tests,
        reviews=evidence.reviews(),
        approvals=evidence.approvals(),
        tokens=evidence.tokens(),
        audits=audits,
        notes=tuple(notes),
    )


class _OutcomeReader:
    """Says what came out of a run, by its manifest and its events."""

    def __init__(
        self,
        source: ReportSource,
        chronicle: Chronicle,
        tests: tuple[TestRoundView, ...],
        audits: tuple[AuditView, ...],
    ) -> None:
        self._source = source
        self._clean = source.sentence
        self._chronicle = chronicle
        self._tests = tests
        self._audits = audits
        self._manifest = source.load_manifest()
        created = chronicle.of(EventType.RUN_CREATED)
        self._created: Mapping[str, Json] = created[0].payload if created else {}
        self._finished = chronicle.last(EventType.RUN_FINISHED)

    def read(self) -> OutcomeView:
        standing = self._standing()
        headline, tone = _HEADLINES[standing]
        merge = self._merge()
        if standing == "passed" and merge in _MERGES:
            branch = self._clean(part(self._manifest, "merge", "branch")) or "its branch"
            headline = f"{headline}, {_MERGES[merge].format(branch=branch)}"
        request = self._manifest.get("user_request") or self._created.get("request")
        ended_well = standing == "passed"
        return OutcomeView(
            run_id=self._source.directory.name,
            standing=standing,
            headline=headline,
            tone=tone,
            request=self._source.excerpt(request),
            reasons=() if ended_well and merge != "pending" else tuple(self._reasons(ended_well)),
            facts=tuple(
                LabelledText(label, self._clean(text)) for label, text in self._facts() if text
            ),
            next_commands=tuple(self._next_commands(standing, merge)),
            failed_command=None if ended_well else self._failed_command(),
        )

    def _standing(self) -> str:
        directory, told = self._source.directory, self._chronicle
        if self._manifest.get("status") == "SUCCESS":
            return "passed"
        if self._manifest:
            outcome = next(
                (
                    each.text("outcome")
                    for each in reversed(list(told))
                    if each.kind == EventType.STATE_TRANSITION and each.text("outcome")
                ),
                "",
            )
            return outcome if outcome in _HEADLINES and outcome != "passed" else "failed"
        if not len(told):
            return "empty"
        if told.last(EventType.RUN_SEALED):
            return "sealing"
        last = list(told)[-1].kind
        if last == EventType.RUN_PAUSED:
            return "paused"
        return "running" if worked_on(directory.parent.parent, directory.name) else "interrupted"

    def _merge(self) -> str:
        recorded = part(self._manifest, "merge", "status")
        if any(_is_apply(audit) and audit.status == "merged" for audit in self._audits):
            return "merged later"
        return str(recorded or (self._finished.text("merge") if self._finished else ""))

    def _reasons(self, ended_well: bool) -> Iterator[str]:
        """Yield why, most telling first; what another sentence holds is not said again."""
        said: list[str] = []
        for text in self._all_reasons(ended_well):
            clean = self._clean(text)
            if clean and not any(clean in other or other in clean for other in said):
                said.append(clean)
                yield clean
            if len(said) >= 20:
                return

    def _all_reasons(self, ended_well: bool) -> Iterator[str]:
        yield str(self._manifest.get("failure_reason") or "")
        told = self._chronicle.last(
            EventType.RUN_FINISHED, EventType.RUN_PAUSED, EventType.MERGE_PENDING
        )
        if told is not None:
            yield told.text("reason")
        if ended_well:
            return
        asked = self._chronicle.last(EventType.HUMAN_APPROVAL_REQUIRED)
        if asked is not None and told is not None and told.kind == EventType.RUN_PAUSED:
            yield asked.text("reason")
        moved = self._chronicle.last(EventType.STATE_TRANSITION)
        failures = moved.payload.get("failures") if moved else None
        yield from map(str, failures if isinstance(failures, list) else ())
        found = summed((each.kind, each.task_id, each.payload) for each in self._chronicle)
        for gate, outcome in found.items():
            for violation in () if outcome.passed else outcome.violations[:MAX_ITEMS]:
                yield f"{gate}: {violation.partition(': ')[2] or violation}"

    def _facts(self) -> Iterator[tuple[str, str]]:
        events = list(self._chronicle)
        manifest, merge = self._manifest, part(self._manifest, "merge")
        moves = self._chronicle.last(EventType.STATE_TRANSITION)
        state = moves.text("to") if moves else START.value
        meta = self._source.load(layout.META)
        yield "run", self._source.directory.name
        yield "state", f"{STATE_NAMES.get(state, state)} ({state})"
        yield "began", events[0].ts if events else ""
        yield "ended", str(manifest.get("finished_at") or "")
        yield "merge", self._merge()
        yield "branch", str(part(merge, "branch") or self._created.get("branch") or "")
        yield "commit", str(part(merge, "commit") or "")
        yield "baseline", self._chronicle.baseline
        yield "runner", str(self._created.get("runner") or "")
        yield "reviewer", str(self._created.get("reviewer") or "")
        yield "repairs", str(len(self._chronicle.of(EventType.FIX_LOOP_TRIGGERED)))
        yield "events", str(len(events))
        yield "CoilClaw", str(part(meta, "coilclaw") or "")
        yield "platform", str(part(meta, "platform") or "")
        yield "bundle", str(self._source.directory)

    def _next_commands(self, standing: str, merge: str) -> Iterator[str]:
        run_id = self._source.directory.name
        if standing == "paused":
            yield "coilclaw approvals list"
        if standing in {"paused", "interrupted", "sealing"}:
            yield f"coilclaw runs resume {run_id}"
        if standing == "running":
            yield f"coilclaw runs events {run_id} --follow"
        if standing == "passed" and merge == "pending":
            yield f"coilclaw runs apply {run_id}"
        if self._source.names("artifacts/rejected"):
            yield f"coilclaw runs diff {run_id} --rejected"

    def _failed_command(self) -> TestCommandView | None:
        last = self._tests[-1] if self._tests else None
        if last is None or last.status == "PASS":
            return None
        return next((each for each in last.commands if each.exit_code and each.must_pass), None)


def _view_verification(
    source: ReportSource, chronicle: Chronicle, report: VerifyReport
) -> VerificationView:
    ended = chronicle.last(EventType.RUN_SEALED)
    sealed = ended is not None or bool(source.load_manifest())
    errors = [each for each in report.errors if sealed or each.code not in _UNFINISHED]
    if errors:
        count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
        summary = f"The evidence does not hold: {count}. Do not rely on this report."
    elif sealed:
        summary = "The evidence holds: every byte is what the run left, and the key vouches for it."
    else:
        summary = "The run is not sealed yet. What is recorded so far is consistent."
    return VerificationView(
        state="broken" if errors else "holds" if sealed else "unfinished",
        summary=summary,
        findings=tuple(_findings(source, errors)),
        warnings=tuple(_findings(source, report.warnings)),
        checks=tuple(report.checks.items()) if sealed else (),
        root_hash=source.sentence(report.root_hash, 64),
        commands=tuple(_repetitions(chronicle, report, sealed=sealed)),
    )


def _findings(source: ReportSource, found: Iterable[Finding]) -> Iterator[VerificationFinding]:
    for each in list(found)[:MAX_ITEMS]:
        yield VerificationFinding(
            each.code.value, source.sentence(each.path), source.sentence(each.message)
        )


def _repetitions(
    chronicle: Chronicle, report: VerifyReport, *, sealed: bool
) -> Iterator[LabelledText]:
    run_id = report.run_id
    if sealed:
        yield LabelledText("verify every byte again", f"coilclaw runs verify {run_id}")
    if sealed and len(report.root_hash) == 64 and report.root_hash.isalnum():
        yield LabelledText(
            "verify against the root hash that you noted",
            f"coilclaw runs verify {run_id} --root {report.root_hash}",
        )
    yield LabelledText("tell the run again from its events", f"coilclaw runs replay {run_id}")
    if sealed and chronicle.last(EventType.CANDIDATE_PREPARED):
        yield LabelledText(
            "apply the patch, and run gates and tests again", f"coilclaw runs reexec {run_id}"
        )


def _gates(chronicle: Chronicle, source: ReportSource) -> Iterator[GateView]:
    for told in chronicle:
        passed = told.payload.get("passed")
        if isinstance(passed, bool):
            yield GateView(
                told.number,
                source.sentence(told.text("gate")),
                passed,
                source.sentence(told.task_id or ""),
                told.attempt,
                source.sentences(told.payload.get("violations")),
            )


def _audits(source: ReportSource) -> Iterator[AuditView]:
    for name in source.names(layout.AUDITS):
        folder = f"{layout.AUDITS}/{name}"
        files = [each for each in source.names(folder) if each.endswith(".json")]
        report = source.load(f"{folder}/{files[0]}") if files else None
        detail = " ".join(str(part(report, key) or "") for key in ("branch", "commit", "reason"))
        yield AuditView(
            source.sentence(name),
            source.sentence(part(report, "status")),
            source.sentence(detail.strip()),
            foreign=part(report, "run_id") not in {None, source.directory.name},
        )


def _is_apply(audit: AuditView) -> bool:
    return "-apply" in audit.name and not audit.foreign
