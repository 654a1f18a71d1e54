"""SOPs behind the gateway: each run in a thread and a runtime of its own, stopped with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from coilclaw.app.agentwiring import People
from coilclaw.app.mcpwiring import DeskPeople
from coilclaw.app.run_workers import RunWorkers
from coilclaw.app.sop_records import run_record, sop_record
from coilclaw.app.sopwiring import list_sops, open_desk, open_runs, open_sops
from coilclaw.errors import UsageError
from coilclaw.runtime.estop import Estop
from coilclaw.runtime.identity import this_process
from coilclaw.sop.interruption import Resolution
from coilclaw.sop.runfile import stored_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.app.agentwiring import Runtime
    from coilclaw.app.run_workers import Working
    from coilclaw.app.sopwiring import Sops
    from coilclaw.domain.messages import Json
    from coilclaw.domain.redacting import Redacting
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.gateway.sop_keeper import SopResume, SopStart
    from coilclaw.sop.runfile import Decision, Run

MAX_OUTPUT_CHARS: Final = 64 * 2**10
"""Of what one stage put out, where a run is described."""
MAX_EVENT_CHARS: Final = 4096
"""Of any text of one event."""
_OWN: Final = frozenset({"event", "text"})


class ServedSops:
    """The SOPs of one home, as the gateway offers them."""

    def __init__(
        self,
        runtime: Runtime,
        environ: Mapping[str, str],
        redactor: Redacting,
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        self._runtime = runtime
        self._environ = environ
        self._redactor = redactor
        self._runs = open_runs(runtime.home)
        self._workers = RunWorkers(
            settings.max_runs, lambda status: metrics.count_as("sop_runs_total", status)
        )

    @property
    def active(self) -> int:
        return self._workers.active

    def sops(self) -> list[Json]:
        return [sop_record(one) for one in list_sops(self._runtime)]

    def start(self, wanted: SopStart) -> str:
        return self._carry_out(
            lambda sops, begun: sops.run(wanted.name, begun, inputs=wanted.inputs),
            asker=wanted.asker,
        )

    def resume(self, wanted: SopResume) -> None:
        run = self._find(wanted.run_id)
        said = None
        if wanted.interrupted:
            how = cast("Decision", wanted.interrupted)
            said = Resolution(how, wanted.by, wanted.note, wanted.stage)
        # Whoever began it stays the one who asks, whoever resumes it.
        asker = run.asker or wanted.by
        self._carry_out(lambda sops, begun: sops.resume(run.id, said, begun), run.id, asker=asker)

    def listed(self, limit: int) -> list[Json]:
        newest = self._runs.list()[: -limit - 1 : -1]
        return [self._told(run, MAX_EVENT_CHARS) for run in newest]

    def described(self, run_id: str) -> dict[str, Json]:
        return self._told(self._find(run_id), MAX_OUTPUT_CHARS)

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        self._find(run_id)
        found: list[Json] = []
        for record in self._runs.events(run_id, since):
            found.append(_event(record))
            if len(found) == limit:
                break
        return found

    def size(self, run_id: str) -> int:
        try:
            return self._runs.path(run_id).stat().st_size
        except OSError:
            return 0

    def goes_on(self, run_id: str) -> bool:
        return self._goes_on(self._find(run_id))

    def halt(self, reason: str) -> None:
        self._workers.halt(reason)

    def drained(self, timeout_s: float) -> bool:
        return self._workers.drained(timeout_s)

    def _carry_out(
        self,
        carry: Callable[[Sops, Callable[[str], None]], Run],
        run_id: str = "",
        *,
        asker: str,
    ) -> str:
        home = self._runtime.home

        def work(working: Working) -> str:
            people = DeskPeople(open_desk(home, asker), Estop.of(home), who="a SOP")
            with open_sops(
                home,
                self._environ,
                People(people.approve, people.ask),
                config=self._runtime.config,
                redactor=self._redactor,
                cancel=working.cancel,
                around=people.during,
                asker=asker,
            ) as sops:
                return carry(sops, lambda name: self._workers.begin(working, name)).status

        return self._workers.carry_out(work, run_id)

    def _find(self, run_id: str) -> Run:
        """A run by its whole id: nobody's slip of the finger reaches another."""
        run = self._runs.find(run_id)
        if run.id != run_id:
            raise UsageError(f"there is no run {run_id!r}", rule="sop.unknown_run")
        return run

    def _goes_on(self, run: Run) -> bool:
        """Whether a process works on it: here there is a worker, or nobody does."""
        if run.process == this_process():
            return bool(self._workers.find(run.id))
        return run.status == "running"

    def _told(self, run: Run, output_chars: int) -> dict[str, Json]:
        told = run_record(run, output_chars=output_chars)
        if run.status == "running" and not self._goes_on(run):
            reason = self._workers.why_broken_off(run.id) or ""
            return {**told, "status": "interrupted", "reason": reason}
        return told


def _event(record: Mapping[str, object]) -> Json:
    """An event as it is told: without the SOP itself, and with bounded texts."""
    told: dict[str, object] = {"event_type": record["event"]}
    for name, value in record.items():
        if name == "inputs":
            told[name] = stored_inputs(record)
        elif name not in _OWN:
            told[name] = value[:MAX_EVENT_CHARS] if isinstance(value, str) else value
    return cast("Json", told)
