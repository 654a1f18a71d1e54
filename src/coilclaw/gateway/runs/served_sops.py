"""``ServedSops``: the SOPs of one home, as the gateway offers them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from coilclaw.agent import (
    ApprovalStore,
    Estop,
    RemotePeople,
    Resolution,
    SopRuns,
    run_record,
    sop_record,
    stored_inputs,
)
from coilclaw.gateway.runs.run_workers import RunWorkers
from coilclaw.kernel import UsageError
from coilclaw.workspace import this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent import Decision, ExaminedSop, SopRun, Sops
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runs.run_workers import Working
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json
    from coilclaw.workspace import Cancellation

MAX_OUTPUT_CHARS: Final = 64 * 2**10
"""Of what one stage put out, where a run is described."""
MAX_EVENT_CHARS: Final = 4096
"""Of any text of one event."""
_OWN: Final = frozenset({"event", "text"})


class ServedSops(RunWorkers):
    """The SOPs of one home and their runs."""

    def __init__(
        self,
        home: Path,
        now: Callable[[], datetime],
        open_sops: Callable[[RemotePeople, Cancellation, str], AbstractContextManager[Sops]],
        examine: Callable[[], Sequence[ExaminedSop]],
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(settings.max_runs, metrics, "sop_runs_total")
        self._home, self._now = home, now
        self._open = open_sops
        self._examine = examine
        self._runs = SopRuns(home, now)

    def sops(self) -> list[Json]:
        """Return every SOP, with what is wrong with it."""
        return [sop_record(one) for one in self._examine()]

    def start(self, name: str, inputs: Mapping[str, Json], asker: str) -> str:
        """Begin a run and return its id once it is on the disk; it continues by itself."""
        return self._carry_out(
            lambda sops, begun: sops.run(name, begun, inputs=inputs), asker=asker
        )

    def resume(self, run_id: str, by: str, interrupted: str, stage: str, note: str) -> None:
        """Resume a run on which no process works; return once it continues.

        ``interrupted`` is ``redo``, ``accept`` or ``skip`` for a stage that a crash cut short, or
        empty; ``stage`` and ``note`` belong to it.
        """
        run = self._find(run_id)
        said = Resolution(cast("Decision", interrupted), by, note, stage) if interrupted else None
        # The client that began the run stays the one who asks, whichever client resumes it.
        asker = run.asker or by
        self._carry_out(lambda sops, begun: sops.resume(run.id, said, begun), run.id, asker=asker)

    def list_runs(self, limit: int) -> list[Json]:
        newest = self._runs.list()[: -limit - 1 : -1]
        return [self._describe(run, MAX_EVENT_CHARS) for run in newest]

    def show_run(self, run_id: str) -> dict[str, Json]:
        return self._describe(self._find(run_id), MAX_OUTPUT_CHARS)

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        self._find(run_id)
        return [_event(record) for record in islice(self._runs.events(run_id, since), limit)]

    def size(self, run_id: str) -> int:
        try:
            return self._runs.path(run_id).stat().st_size
        except OSError:
            return 0

    def goes_on(self, run_id: str) -> bool:
        return self._goes_on(self._find(run_id))

    def _carry_out(
        self,
        carry: Callable[[Sops, Callable[[str], None]], SopRun],
        run_id: str = "",
        *,
        asker: str,
    ) -> str:
        def work(working: Working) -> str:
            desk = ApprovalStore(self._home, self._now, asker=asker)
            people = RemotePeople(desk, Estop.of(self._home), who="a SOP")
            with self._open(people, working.cancel, asker) as sops:
                return carry(sops, lambda name: self.begin(working, name)).status

        return self.run_action(work, run_id)

    def _find(self, run_id: str) -> SopRun:
        """A run by its whole id: an abbreviation could reach another run."""
        run = self._runs.find(run_id)
        if run.id != run_id:
            raise UsageError(f"run {run_id!r} does not exist", rule="sop.unknown_run")
        return run

    def _goes_on(self, run: SopRun) -> bool:
        """Whether a process works on it: in this process, a worker does."""
        if run.process == this_process():
            return bool(self.find(run.id))
        return run.status == "running"

    def _describe(self, run: SopRun, output_chars: int) -> dict[str, Json]:
        record = run_record(run, output_chars=output_chars)
        if run.status == "running" and not self._goes_on(run):
            reason = self.why_broken_off(run.id) or ""
            return {**record, "status": "interrupted", "reason": reason}
        return record


def _event(record: Mapping[str, object]) -> Json:
    """An event as it is told: without the SOP itself, and with bounded texts."""
    told: dict[str, object] = {"event_type": record["event"]}
    for name, value in record.items():
        if name == "inputs":
            told[name] = stored_inputs(record)
        elif name not in _OWN:
            told[name] = value[:MAX_EVENT_CHARS] if isinstance(value, str) else value
    return cast("Json", told)
