"""What an agent does, kept as it does it: ``codex/<task_id>/``, whoever the agent is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.agents import transcript
from coilclaw.agents.builtin import BuiltinRunner
from coilclaw.agents.runner import Ending
from coilclaw.agents.transcript import Timed
from coilclaw.contracts.eventtypes import EventType
from coilclaw.domain import freeform
from coilclaw.orchestrator.places import segment
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from datetime import datetime

    from coilclaw.agents.runner import Assignment, Runner
    from coilclaw.domain.parts import Part
    from coilclaw.orchestrator.run import Run


class Recorder:
    """Keeps what an agent does as it does it: ``codex/<task_id>/``, whoever the agent is."""

    def __init__(self, run: Run, task_id: str, runner: str, clock: Callable[[], datetime]) -> None:
        self._run = run
        self._task_id = task_id
        self._runner = runner
        self._clock = clock
        self._folder = f"codex/{segment(task_id)}"
        self.parts: list[Timed] = []

    def take(self, part: Part) -> None:
        timed = Timed(stamp(self._clock()), part)
        line = transcript.event(timed, len(self.parts))
        self._run.bundle.append(f"{self._folder}/{transcript.EVENTS}", line)
        self.parts.append(timed)

    def end(self, ending: Ending) -> None:
        bundle, folder = self._run.bundle, self._folder
        if not self.parts:
            bundle.append(f"{folder}/{transcript.EVENTS}", "")
        told = transcript.markdown(self._task_id, self._runner, self.parts, ending)
        bundle.write_text(f"{folder}/{transcript.TRANSCRIPT}", told)
        bundle.write_text(f"{folder}/{transcript.THREAD_ID}", transcript.thread_id(ending))
        calls = transcript.tool_calls(self._run.id, self._task_id, self.parts)
        lines = "".join(f"{freeform.text(call)}\n" for call in calls)
        bundle.write_text(f"{folder}/tool_calls.jsonl", lines)

    @property
    def denied(self) -> tuple[str, ...]:
        """What the agent asked for and was refused."""
        calls = transcript.tool_calls(self._run.id, self._task_id, self.parts)
        refused = [str(call["tool"]) for call in calls if call["status"] == "denied"]
        # An agent of somebody else's says so in words of ours.
        refused += [
            each.part.tool or each.part.kind
            for each in self.parts
            if each.part.text.startswith(f"{EventType.POLICY_VIOLATION}:")
        ]
        return tuple(refused)


def keep_receipts(run: Run, runner: Runner, assignment: Assignment) -> None:
    """Keep the receipts of an agent of our own: those of its tool calls are evidence too."""
    if not isinstance(runner, BuiltinRunner):
        return
    folder = f"artifacts/receipts/{segment(assignment.task_id)}"
    place = runner.receipts(assignment)
    for path in sorted(place.parent.glob(f"{place.stem}*")):
        if path.is_file() and not path.name.endswith(".lock"):
            run.bundle.write_bytes(f"{folder}/{path.name}", path.read_bytes())


def tell_refused(run: Run, denied: Iterable[str], task_id: str | None) -> None:
    """Record what an agent asked for beyond its permissions, which did not happen."""
    for what in denied:
        reason = f"the agent asked for {what}, which its permissions refuse"
        run.emit(
            EventType.POLICY_VIOLATION,
            {"reason": reason, "rule": "tool.denied", "path": ""},
            task_id=task_id,
            level="WARN",
        )


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
