"""``AgentRecorder``: keeps what any agent does, as it does it, in ``codex/<task_id>/``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.changes import PathChange, Plan, unified_diff
from coilclaw.kernel import CoilClawError, Obstacle, RegularFile, TreePath, canonical_json
from coilclaw.runners import (
    MAX_SUMMARY_CHARS,
    BuiltinRunner,
    Denial,
    Ending,
    Timed,
    find_denials,
    summarize_part,
    transcript,
)
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import (
    Failure,
    GateOutcome,
    GitState,
    NextActions,
    ProducedBy,
    TaskResult,
    WorkEvidence,
    WorkGates,
    WorkReport,
    WorkTimes,
)
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.workspace import Root, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from datetime import datetime
    from pathlib import Path

    from coilclaw.kernel import Json, Part, Usage
    from coilclaw.runners import Assignment, Runner
    from coilclaw.runs.contracts.records import ArtifactRef
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.engine.ready_worktree import DependencyChanges
    from coilclaw.runs.engine.run import Run
    from coilclaw.runs.gates.result import GateResult
    from coilclaw.workspace import Repository


MAX_FILE_BYTES: Final = 2**18
"""Lines of a larger file are not counted while an agent waits."""


def count_lines(
    directory: Path, repository: Repository, commit: str, path: str
) -> tuple[int, int] | None:
    """Return the lines of a file added and removed since a commit; ``None`` if they are unknown.

    The path is an agent's word, and the agent may be at work: whatever is odd about the file is
    the diff gate's matter, and here only leaves the numbers out.
    """
    try:
        place = TreePath.parse(path)
        before = repository.read(commit, str(place), MAX_FILE_BYTES)
        with Root(directory) as root:
            after = root.read(place, limit=MAX_FILE_BYTES)
    except (CoilClawError, OSError):
        return None
    old = None if before is None else RegularFile(before)
    if isinstance(after, Obstacle) or (old is None and after is None):
        return None
    (row,) = unified_diff.summarise_plan(Plan((PathChange(place, old, after),)))
    return None if row.binary else (row.added, row.removed)


MAX_DENIALS: Final = 100
"""Refusals of one task that get an event each."""
MAX_TOLD_CHARS: Final = 300
"""Of what was refused, and of why."""
MAX_SCANNED_CHARS: Final = 64 * 2**10
"""Of each text of a part: its beginning, and of an output also its end."""


class AgentRecorder:
    """Keeps what an agent does, shows it to the watcher, and records what it was refused."""

    def __init__(
        self,
        run: Run,
        task_id: str,
        runner: str,
        clock: Callable[[], datetime],
        count_lines: Callable[[str], tuple[int, int] | None] = lambda _: None,
        *,
        plans: bool = False,
    ) -> None:
        """``plans`` is whether the agent works before there is a task."""
        self._run = run
        self._task_id = task_id
        self._runner = runner
        self._clock = clock
        self._count_lines = count_lines
        self._told_of = None if plans else task_id
        self._began = clock()
        self._tokens = 0
        self._denials = 0
        self._denied_calls: set[str] = set()
        self._folder = f"codex/{make_segment(task_id)}"
        self.parts: list[Timed] = []

    def take(self, part: Part) -> None:
        """Keep a part, show it, and record what it shows to have been refused."""
        timed = Timed(format_time(self._clock()), part)
        line = transcript.event(timed, len(self.parts))
        self._run.bundle.append(f"{self._folder}/{transcript.EVENTS}", line)
        self.parts.append(timed)
        clean = self._clean_part(part)
        summary = summarize_part(clean, self._count_lines)
        if summary is not None:
            self._show(summary)
        for denial in find_denials(clean):
            if not denial.call_id or denial.call_id not in self._denied_calls:
                self._emit_denial(denial)

    def hear(self, line: str) -> None:
        """Show a line of output; all of it is kept once the program has ended."""
        if line.strip():
            text = self._redact(line[:MAX_SCANNED_CHARS])[:MAX_SUMMARY_CHARS]
            self._show({"kind": "output", "text": text})

    def count(self, usage: Usage) -> None:
        """Take note of the tokens so far."""
        self._tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def deny(self, denial: Denial) -> None:
        """Record a refusal now; the part that shows it later is not told again."""
        if denial.call_id:
            self._denied_calls.add(denial.call_id)
        self._emit_denial(denial)

    def end(self, ending: Ending) -> None:
        """Write the records of the whole performance."""
        bundle, folder = self._run.bundle, self._folder
        if not self.parts:
            bundle.append(f"{folder}/{transcript.EVENTS}", "")
        told = transcript.markdown(self._task_id, self._runner, self.parts, ending)
        bundle.write_text(f"{folder}/{transcript.TRANSCRIPT}", told)
        bundle.write_text(f"{folder}/{transcript.THREAD_ID}", transcript.thread_id(ending))
        calls = transcript.tool_calls(self._run.id, self._task_id, self.parts)
        lines = "".join(f"{canonical_json.render_json(call)}\n" for call in calls)
        bundle.write_text(f"{folder}/tool_calls.jsonl", lines)
        if ending.usage is not None:
            self.count(ending.usage)
        self._show({"kind": "end", "text": ending.reason, "status": ending.status})

    def _show(self, summary: dict[str, Json]) -> None:
        elapsed = max((self._clock() - self._began).total_seconds(), 0.0)
        self._run.show(
            {**summary, "elapsed_s": round(elapsed, 3), "tokens": self._tokens},
            task_id=self._task_id,
        )

    def _clean_part(self, part: Part) -> Part:
        """Return what is looked at of a part: its texts bounded, and without secrets."""
        begun, ended = part.output[:MAX_SCANNED_CHARS], part.output[MAX_SCANNED_CHARS:]
        # The line that the cut goes through may begin with half a secret.
        tail = ended[-MAX_SCANNED_CHARS:].partition("\n")[2]
        return replace(
            part,
            text=self._redact(part.text[:MAX_SCANNED_CHARS]),
            input=self._redact(part.input[:MAX_SCANNED_CHARS]),
            output=self._redact(f"{begun}\n{tail}" if tail else begun),
        )

    def _redact(self, text: str) -> str:
        return str(self._run.log.clean(text))

    def _emit_denial(self, denial: Denial) -> None:
        self._denials += 1
        if self._denials > MAX_DENIALS:
            return
        what, why = (self._redact(text)[:MAX_TOLD_CHARS] for text in (denial.what, denial.reason))
        reason = f"the agent was refused {what!r}: {why}"
        if self._denials == MAX_DENIALS:
            reason += "; what it is refused from now on is only in its transcript"
        self._run.emit(
            EventType.POLICY_VIOLATION,
            {
                "reason": reason,
                "rule": denial.rule,
                "path": "",
                "what": what,
                "why": why,
                "denied_by": denial.denied_by,
            },
            task_id=self._told_of,
            level="WARN",
        )


def keep_receipts(run: Run, runner: Runner, assignment: Assignment) -> None:
    """Keep the receipts of an agent of our own: those of its tool calls are evidence too."""
    if not isinstance(runner, BuiltinRunner):
        return
    folder = f"artifacts/receipts/{make_segment(assignment.task_id)}"
    place = runner.receipts(assignment)
    for path in sorted(place.parent.glob(f"{place.stem}*")):
        if path.is_file() and not path.name.endswith(".lock"):
            run.bundle.write_bytes(f"{folder}/{path.name}", path.read_bytes())


def follow_performance(
    performance: Generator[Part, None, Ending], take: Callable[[Part], None]
) -> Ending:
    """Follow a performance to its end; what it started ends with it."""
    try:
        while True:
            take(next(performance))
    except StopIteration as stop:
        ending = stop.value
        assert isinstance(ending, Ending)
        return ending
    finally:
        performance.close()


@dataclass(frozen=True, slots=True)
class Performed:
    """What an agent did, as it told it."""

    ending: Ending
    parts: int
    started: str
    finished: str
    changes: DependencyChanges
    """Of what is not tracked and was there for it."""


def write_reports(
    run: Run,
    contract: TaskContract,
    performed: Performed,
    gates: Sequence[GateResult],
    baseline: str,
    *,
    accepted: bool,
) -> tuple[ArtifactRef, str]:
    """Write the result of a task and its short form; return where the result is, and why it failed.

    The reason is empty where the work was accepted.
    """
    name, bundle, ending = make_segment(contract.task_id), run.bundle, performed.ending
    agent, attempt = contract.assigned_agent, run.progress.attempt
    patch = bundle.artifact(f"results/{name}/patch.diff")
    names = bundle.artifact(f"results/{name}/diff_name_only.txt")
    reason = "" if accepted else _describe_failure(performed, gates)
    told = (ending.result or {}).get("summary")
    outcomes: dict[str, GateOutcome] = {
        gate.gate: GateOutcome(passed=gate.passed, violations=tuple(map(str, gate.violations)))
        for gate in gates
    }
    result = TaskResult(
        run_id=run.id,
        task_id=contract.task_id,
        producer=ProducedBy(
            role=agent.role, agent_id=agent.agent_id, codex_thread_id=ending.thread_id or None
        ),
        status="SUCCESS" if accepted else "FAILED",
        started_at=performed.started,
        finished_at=performed.finished,
        summary=str(told or ending.text or reason or "The agent said nothing."),
        artifacts=(patch, names),
        git=GitState(baseline_ref=baseline, head_ref=baseline, changed_files=names, patch=patch),
        gates=outcomes,
        next_actions=NextActions(suggested_action="review" if accepted else "repair", notes=reason),
        attempt=attempt,
        failure=None if accepted else Failure(message=reason),
    )
    work = _make_work_report(run, performed, result, agent.role, reason)
    bundle.write_json(f"results/{name}/work_report.json", work.json())
    return bundle.write_json(f"results/{name}/result.json", result.json()), reason


def _make_work_report(
    run: Run, performed: Performed, result: TaskResult, role: Role, reason: str
) -> WorkReport:
    """Make the short form of a result."""
    bundle, folder = run.bundle, f"codex/{make_segment(result.task_id)}"
    names, baseline = result.git.changed_files, result.git.baseline_ref
    aborted = performed.ending.status in {"aborted", "exhausted"}
    failed: Literal["aborted", "fail"] = "aborted" if aborted else "fail"
    return WorkReport(
        task_id=result.task_id,
        status="success" if result.status == "SUCCESS" else failed,
        patch_ref=result.git.patch.path,
        diff_summary=f"{len(bundle.read(names.path).splitlines())} files changed",
        evidence_refs={},
        failure_reason=reason,
        run_id=run.id,
        attempt=result.attempt,
        role=role if role in {"PM", "TECH_LEAD", "REVIEWER", "TEST_RUNNER"} else "WORKER",
        baseline_ref=baseline,
        head_ref=baseline,
        patch=result.git.patch,
        changed_files=names,
        gates=WorkGates(diff_gate=result.gates.get("diff_gate")),
        evidence=WorkEvidence(
            codex_events_jsonl=bundle.artifact(f"{folder}/events.jsonl"),
            transcript_md=bundle.artifact(f"{folder}/transcript.md"),
            thread_id_txt=bundle.artifact(f"{folder}/thread_id.txt"),
        ),
        timestamps=WorkTimes(started_at=performed.started, finished_at=performed.finished),
        metrics={"parts": performed.parts},
    )


def _describe_failure(performed: Performed, gates: Sequence[GateResult]) -> str:
    for gate in gates:
        if not gate.passed:
            return f"{gate.gate}: {gate.violations[0].message}"
    ending = performed.ending
    if ending.status != "done":
        return ending.reason or f"the agent {ending.status}"
    result = ending.result or {}
    told = result.get("failure")
    if isinstance(told, dict) and told.get("message"):
        return str(told["message"])
    return f"the agent says {result.get('status', 'nothing')}"
