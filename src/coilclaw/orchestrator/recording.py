"""What an agent does, kept as it does it: ``codex/<task_id>/``, whoever the agent is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.agents import transcript
from coilclaw.agents.builtin import BuiltinRunner
from coilclaw.agents.denial import Denial, find_denials
from coilclaw.agents.part_summary import MAX_SHOWN_CHARS, summarize_part
from coilclaw.agents.runner import Ending
from coilclaw.agents.transcript import Timed
from coilclaw.contracts.eventtypes import EventType
from coilclaw.domain import freeform
from coilclaw.orchestrator.places import segment
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from coilclaw.agents.runner import Assignment, Runner
    from coilclaw.domain.messages import Json, Usage
    from coilclaw.domain.parts import Part
    from coilclaw.orchestrator.run import Run

MAX_DENIALS: Final = 100
"""Refusals of one task that get an event each."""
MAX_TOLD_CHARS: Final = 300
"""Of what was refused, and of why."""
MAX_SCANNED_CHARS: Final = 64 * 2**10
"""Of each text of a part: its beginning, and of an output also its end."""


class Recorder:
    """Keeps what an agent does, shows it to whoever watches, and tells of what it was refused."""

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
        self._folder = f"codex/{segment(task_id)}"
        self.parts: list[Timed] = []

    def take(self, part: Part) -> None:
        """Keep a part, show it, and record what it shows to have been refused."""
        timed = Timed(stamp(self._clock()), part)
        line = transcript.event(timed, len(self.parts))
        self._run.bundle.append(f"{self._folder}/{transcript.EVENTS}", line)
        self.parts.append(timed)
        clean = self._clean_part(part)
        summary = summarize_part(clean, self._count_lines)
        if summary is not None:
            self._show(summary)
        for denial in find_denials(clean):
            self._record_denial(denial)

    def hear(self, line: str) -> None:
        """Show a line of output; all of it is kept once the program has ended."""
        if line.strip():
            text = self._redact(line[:MAX_SCANNED_CHARS])[:MAX_SHOWN_CHARS]
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
        lines = "".join(f"{freeform.text(call)}\n" for call in calls)
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

    def _record_denial(self, denial: Denial) -> None:
        if not denial.call_id or denial.call_id not in self._denied_calls:
            self._emit_denial(denial)

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
    folder = f"artifacts/receipts/{segment(assignment.task_id)}"
    place = runner.receipts(assignment)
    for path in sorted(place.parent.glob(f"{place.stem}*")):
        if path.is_file() and not path.name.endswith(".lock"):
            run.bundle.write_bytes(f"{folder}/{path.name}", path.read_bytes())


def played(performance: Generator[Part, None, Ending], take: Callable[[Part], None]) -> Ending:
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
