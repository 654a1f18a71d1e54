"""Runs and SOPs behind the gateway: each run in a thread of its own, stopped with it."""

from __future__ import annotations

import json
import logging
import math
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from coilclaw.agent import Estop, Resolution, SopRuns, stored_inputs
from coilclaw.app.agent_runtime import People
from coilclaw.app.home import now
from coilclaw.app.mcp_clients import DeskPeople
from coilclaw.app.run_orchestrator import Orchestrator, WaitTerms
from coilclaw.app.sop_runner import list_sops, open_desk, open_sops, run_record, sop_record
from coilclaw.gateway import RunWorkers, archive_run
from coilclaw.kernel import CoilClawError, DeniedError, UsageError
from coilclaw.runs import (
    MAX_CONTRACT_BYTES,
    WITH_ARGUMENT,
    RunRequest,
    RunStore,
    after_listing,
    asks_nothing,
    check_run_id,
    describe_run,
    fold_events,
    is_worked_on,
    layout,
    make_run_options,
    make_unknown_run,
    read_events,
    read_failures,
    read_patch,
    read_run,
)
from coilclaw.workspace import Cancellation, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.agent import Decision, SopRun
    from coilclaw.app.agent_runtime import Runtime
    from coilclaw.app.config.values import Config
    from coilclaw.app.sop_runner import Sops
    from coilclaw.gateway import Archive, GatewaySettings, Metrics, RunStart, Working
    from coilclaw.kernel import Json, Redactor
    from coilclaw.runs import RunOutcome

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], RunOutcome]

_log = logging.getLogger(__name__)

WAIT_S: Final = 30 * 24 * 3600.0
"""How long a run waits for a person: longer than any question stays on the desk."""
CANCELLED: Final = "POST /runs/{run_id}/cancel"


class ServedRuns(RunWorkers):
    """The runs of one repository, as the gateway offers them."""

    def __init__(
        self,
        open_orchestrator: Callable[[Cancellation, WaitTerms], Orchestrator],
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(settings.max_runs, metrics, "runs_total")
        self._open = open_orchestrator
        self._idle = open_orchestrator(Cancellation(), WaitTerms())
        """For everything that only looks."""
        self._store = RunStore(self._idle.places)
        self._programs = settings.allow_run_programs

    def start(self, wanted: RunStart) -> str:
        request = _request(wanted)
        options = make_run_options(
            request,
            runner=wanted.runner,
            reviewer=wanted.reviewer,
            merge=wanted.merge,
            diagnostic=wanted.diagnostic,
            baseline=not wanted.no_baseline,
            hint='say which: "runner": "scripted:…" or "process:…"',
        )
        self._check_programs(options.runner, options.reviewer)
        return self._carry_out(
            lambda runs, watch: runs.start(request, options, watch),
            wait=wanted.wait,
            asker=wanted.asker,
        )

    def resume(self, run_id: str, answer: str = "", *, asker: str = "") -> None:
        directory = self._directory(run_id)
        found = list(read_events(directory))
        if answer and not (found and fold_events(found).question):
            raise asks_nothing(run_id)
        said = found[0]["payload"] if found else None
        if isinstance(said, dict):
            self._check_programs(str(said.get("runner")), str(said.get("reviewer")))
        self._carry_out(
            lambda runs, watch: runs.resume(run_id, watch, answer=answer), run_id, asker=asker
        )

    def cancel(self, run_id: str) -> None:
        directory = self._directory(run_id)
        found = self.find(run_id)
        for each in found:
            each.cancel.cancel(CANCELLED)
        if found:
            return
        if is_worked_on(self._idle.places.runtime, run_id):
            raise UsageError(
                f"another process works on run {run_id}",
                rule="run.elsewhere",
                hint="stop it there",
            )
        standing = read_run(directory).standing
        raise UsageError(f"no process works on run {run_id}: it is {standing}", rule="run.idle")

    def listed(self, limit: int) -> list[Json]:
        newest = self._store.ids()[: -limit - 1 : -1]
        return [self._told(read_run(self._store.places.runs / name).json()) for name in newest]

    def described(self, run_id: str) -> dict[str, Json]:
        directory = self._directory(run_id)
        if not any(True for _ in read_events(directory)):
            raise UsageError(f"run {run_id} was killed before it had begun", rule="run.empty")
        one, failures = read_run(directory), read_failures(directory, read_events(directory))
        repository = str(self._store.places.repository)
        then = after_listing(one, failures, self._idle.equipment.home, repo=repository)
        return self._told({**describe_run(directory, one, failures), "next": then})

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        # A record of a journal holds nothing that JSON does not.
        return cast("list[Json]", [*islice(read_events(self._directory(run_id), since), limit)])

    def size(self, run_id: str) -> int:
        try:
            return (self._store.places.bundle(run_id) / layout.EVENTS).stat().st_size
        except OSError:
            return 0

    def goes_on(self, run_id: str) -> bool:
        self._directory(run_id)
        return is_worked_on(self._idle.places.runtime, run_id)

    def patch(self, run_id: str, *, task: str | None, rejected: bool) -> bytes:
        return read_patch(self._directory(run_id), task=task, rejected=rejected)

    def verify(self, run_id: str, *, strict: bool, root: str | None) -> dict[str, Json]:
        from coilclaw.app.run_audits import verify

        report, _ = verify(self._idle, self._directory(run_id), strict=strict, root=root)
        return report.json()

    def bundle(self, run_id: str) -> Archive:
        return archive_run(self._directory(run_id))

    def _carry_out(
        self, carry: Carry, run_id: str = "", *, wait: bool = True, asker: str = ""
    ) -> str:
        """Carry a run out in a thread, and return its id once it is on the disk."""

        def work(working: Working) -> str:
            def watch(event: Mapping[str, object]) -> None:
                self.begin(working, str(event["run_id"]))

            terms = WaitTerms(WAIT_S, math.inf if wait else 0.0, asker=asker)
            outcome = carry(self._open(working.cancel, terms), watch)
            working.run_id = outcome.run_id
            return outcome.status

        return self.run_action(work, run_id)

    def _told(self, value: dict[str, Json]) -> dict[str, Json]:
        """Say why a run broke off here, which its own events cannot."""
        reason = self.why_broken_off(str(value["run_id"]))
        if value["status"] == "interrupted" and reason is not None:
            return {**value, "reason": reason}
        return value

    def _directory(self, run_id: str) -> Path:
        """The bundle of a run by its whole id: an abbreviation could reach another run."""
        if check_run_id(run_id) not in self._store.ids():
            raise make_unknown_run(run_id)
        return self._store.places.bundle(run_id)

    def _check_programs(self, *names: str) -> None:
        """Refuse names that make the user's programs start, unless the user allowed it."""
        for name in names:
            if name.partition(":")[0] in WITH_ARGUMENT and not self._programs:
                raise DeniedError(
                    f"clients may not have {name.partition(':')[0]}: perform or review, which "
                    "starts programs or reads files of the user",
                    rule="run.programs",
                    hint="start the gateway with 'coilclaw serve --allow-run-programs', or the run "
                    "with 'coilclaw run'",
                )


def open_runs(
    settings: GatewaySettings,
    metrics: Metrics,
    home: Path,
    environ: Mapping[str, str],
    *,
    config: Config,
    redactor: Redactor,
) -> ServedRuns | None:
    """Offer the runs of the repository that is named, or of the one around, if there is one."""
    start = Path(".") if settings.repo is None else Path(settings.repo)

    def orchestrator(cancel: Cancellation, terms: WaitTerms) -> Orchestrator:
        return Orchestrator(
            *(start, home, environ), cancel=cancel, terms=terms, config=config, redactor=redactor
        )

    try:
        start = start.resolve(strict=True)
        return ServedRuns(orchestrator, settings, metrics)
    except (CoilClawError, OSError) as problem:
        if settings.repo is None:
            # The agent is served as ever: a client that asks for a run is told that there are none.
            _log.debug("no runs are offered: %s", problem, extra={"event": "runs_unavailable"})
            return None
        if isinstance(problem, CoilClawError):
            raise
        message = f"there is no {start}: {problem.strerror}"
        raise UsageError(message, rule="repository.missing") from problem


def _request(wanted: RunStart) -> RunRequest:
    if wanted.contract is None:
        return RunRequest(None, " ".join(wanted.request.split()) or wanted.request)
    data = json.dumps(wanted.contract, ensure_ascii=False, indent=2)
    contract = data.encode("utf-8", "backslashreplace")
    if len(contract) > MAX_CONTRACT_BYTES:
        raise UsageError(
            f"the contract is larger than the {MAX_CONTRACT_BYTES} bytes of the largest",
            rule="contract.large",
        )
    return RunRequest(contract)


MAX_OUTPUT_CHARS: Final = 64 * 2**10
"""Of what one stage put out, where a run is described."""
MAX_EVENT_CHARS: Final = 4096
"""Of any text of one event."""
_OWN: Final = frozenset({"event", "text"})


class ServedSops(RunWorkers):
    """The SOPs of one home, as the gateway offers them."""

    def __init__(
        self,
        runtime: Runtime,
        environ: Mapping[str, str],
        redactor: Redactor,
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(settings.max_runs, metrics, "sop_runs_total")
        self._runtime = runtime
        self._environ = environ
        self._redactor = redactor
        self._runs = SopRuns(runtime.home, now)

    def sops(self) -> list[Json]:
        return [sop_record(one) for one in list_sops(self._runtime)]

    def start(self, name: str, inputs: Mapping[str, Json], asker: str) -> str:
        return self._carry_out(
            lambda sops, begun: sops.run(name, begun, inputs=inputs), asker=asker
        )

    def resume(self, run_id: str, by: str, interrupted: str, stage: str, note: str) -> None:
        run = self._find(run_id)
        said = Resolution(cast("Decision", interrupted), by, note, stage) if interrupted else None
        # The client that began the run stays the one who asks, whichever client resumes it.
        asker = run.asker or by
        self._carry_out(lambda sops, begun: sops.resume(run.id, said, begun), run.id, asker=asker)

    def listed(self, limit: int) -> list[Json]:
        newest = self._runs.list()[: -limit - 1 : -1]
        return [self._told(run, MAX_EVENT_CHARS) for run in newest]

    def described(self, run_id: str) -> dict[str, Json]:
        return self._told(self._find(run_id), MAX_OUTPUT_CHARS)

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
                return carry(sops, lambda name: self.begin(working, name)).status

        return self.run_action(work, run_id)

    def _find(self, run_id: str) -> SopRun:
        """A run by its whole id: an abbreviation could reach another run."""
        run = self._runs.find(run_id)
        if run.id != run_id:
            raise UsageError(f"there is no run {run_id!r}", rule="sop.unknown_run")
        return run

    def _goes_on(self, run: SopRun) -> bool:
        """Whether a process works on it: in this process, a worker does."""
        if run.process == this_process():
            return bool(self.find(run.id))
        return run.status == "running"

    def _told(self, run: SopRun, output_chars: int) -> dict[str, Json]:
        told = run_record(run, output_chars=output_chars)
        if run.status == "running" and not self._goes_on(run):
            reason = self.why_broken_off(run.id) or ""
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
