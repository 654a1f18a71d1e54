"""``ServedRuns``: the runs of one repository, as the gateway offers them."""

from __future__ import annotations

import json
import logging
import math
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from coilclaw.gateway.runs.run_workers import RunWorkers, archive_run
from coilclaw.kernel import CoilClawError, DeniedError, UsageError
from coilclaw.runs import (
    MAX_CONTRACT_BYTES,
    WITH_ARGUMENT,
    RunRequest,
    RunStore,
    WaitTerms,
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
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runs.run_workers import Archive, RunStart, Working
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json
    from coilclaw.runs import Orchestrator, RunOutcome

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], RunOutcome]
    OpenRuns: TypeAlias = Callable[[Path, Cancellation, WaitTerms], Orchestrator]

_log = logging.getLogger(__name__)

WAIT_S: Final = 30 * 24 * 3600.0
"""How long a run waits for a person: longer than any question stays on the desk."""
CANCELLED: Final = "POST /runs/{run_id}/cancel"


class ServedRuns(RunWorkers):
    """The runs of the repository around a path."""

    def __init__(
        self,
        open_runs: OpenRuns,
        start: Path,
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        super().__init__(settings.max_runs, metrics, "runs_total")
        self._open = partial(open_runs, start)
        self._idle = self._open(Cancellation(), WaitTerms())
        """For everything that only looks."""
        self._store = RunStore(self._idle.places)
        self._programs = settings.allow_run_programs

    def start(self, wanted: RunStart) -> str:
        """Begin a run and return its id once it is on the disk; it continues by itself."""
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
        """Resume a run on which no process works; return once it continues.

        ``answer`` is to the question of its planner; without a question it is ``run.answer``.
        """
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
        """Stop a run that is carried out here; it can be resumed."""
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

    def list_runs(self, limit: int) -> list[Json]:
        newest = self._store.ids()[: -limit - 1 : -1]
        return [
            self._with_reason(read_run(self._store.places.runs / name).json()) for name in newest
        ]

    def show_run(self, run_id: str) -> dict[str, Json]:
        directory = self._directory(run_id)
        if not any(True for _ in read_events(directory)):
            raise UsageError(f"run {run_id} was killed before it had begun", rule="run.empty")
        one, failures = read_run(directory), read_failures(directory, read_events(directory))
        repository = str(self._store.places.repository)
        then = after_listing(one, failures, self._idle.equipment.home, repo=repository)
        return self._with_reason({**describe_run(directory, one, failures), "next": then})

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
        return self._idle.verify(self._directory(run_id), strict=strict, root=root).json()

    def bundle(self, run_id: str) -> Archive:
        """Return the evidence of a sealed run as a tar."""
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

    def _with_reason(self, value: dict[str, Json]) -> dict[str, Json]:
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


def open_served_runs(
    open_runs: OpenRuns, settings: GatewaySettings, metrics: Metrics
) -> ServedRuns | None:
    """Offer the runs of the repository that the settings name, or of the current one, if any."""
    start = Path(".") if settings.repo is None else Path(settings.repo)
    try:
        return ServedRuns(open_runs, start.resolve(strict=True), settings, metrics)
    except (CoilClawError, OSError) as problem:
        if settings.repo is None:
            # The agent is served as ever: a client that asks for a run is told that there are none.
            _log.debug("no runs are offered: %s", problem, extra={"event": "runs_unavailable"})
            return None
        if isinstance(problem, CoilClawError):
            raise
        message = f"{start} cannot be opened: {problem.strerror}"
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
