"""Runs behind the gateway: each in a thread of its own, stopped with it, resumed after it."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.app.next_command import after_listing
from coilclaw.app.run_failures import read_failures
from coilclaw.app.run_workers import RunWorkers
from coilclaw.app.runarchive import archived
from coilclaw.app.runlisting import RunStore, described, events, listed, patch
from coilclaw.app.runoptions import WITH_ARGUMENT, options_of
from coilclaw.app.runwiring import Orchestrator, Terms
from coilclaw.errors import CoilClawError, DeniedError, UsageError
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.places import checked
from coilclaw.orchestrator.plan_dialogue import asks_nothing
from coilclaw.orchestrator.planning import Request
from coilclaw.orchestrator.progress import folded
from coilclaw.orchestrator.starting import MAX_CONTRACT_BYTES, unknown, worked_on
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.app.run_workers import Working
    from coilclaw.config.values import Config
    from coilclaw.domain.messages import Json
    from coilclaw.domain.redacting import Redacting
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runkeeper import Archive, Wanted
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.orchestrator.engine import Outcome
    from coilclaw.orchestrator.starting import Options

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], Outcome]

_log = logging.getLogger(__name__)

WAIT_S: Final = 30 * 24 * 3600.0
"""How long a run waits for a person: longer than any question stays on the desk."""
CANCELLED: Final = "POST /runs/{run_id}/cancel"


@dataclass(frozen=True, slots=True)
class Carrying:
    """On what terms a run is carried out here."""

    cancel: Cancellation = field(default_factory=Cancellation)
    wait: bool = False
    """Whether it waits for the paths that other runs hold."""
    asker: str = ""
    """Who asked for it, or wants it resumed."""


class ServedRuns:
    """The runs of one repository, as the gateway offers them."""

    def __init__(
        self,
        open_orchestrator: Callable[[Carrying], Orchestrator],
        settings: GatewaySettings,
        metrics: Metrics,
    ) -> None:
        self._open = open_orchestrator
        self._idle = open_orchestrator(Carrying())
        """For everything that only looks."""
        self._store = RunStore(self._idle.places)
        self._programs = settings.allow_run_programs
        self._workers = RunWorkers(
            settings.max_runs, lambda status: metrics.count_as("runs_total", status)
        )

    @property
    def active(self) -> int:
        return self._workers.active

    def start(self, wanted: Wanted) -> str:
        request = _request(wanted)
        options = _options(wanted, request)
        self._check_programs(options.runner, options.reviewer)
        return self._carry_out(
            lambda runs, watch: runs.start(request, options, watch),
            wait=wanted.wait,
            asker=wanted.asker,
        )

    def resume(self, run_id: str, answer: str = "", *, asker: str = "") -> None:
        directory = self._directory(run_id)
        found = list(events(directory))
        if answer and not (found and folded(found).question):
            raise asks_nothing(run_id)
        said = found[0]["payload"] if found else None
        if isinstance(said, dict):
            self._check_programs(str(said.get("runner")), str(said.get("reviewer")))
        self._carry_out(
            lambda runs, watch: runs.resume(run_id, watch, answer=answer), run_id, asker=asker
        )

    def cancel(self, run_id: str) -> None:
        directory = self._directory(run_id)
        found = self._workers.find(run_id)
        for each in found:
            each.cancel.cancel(CANCELLED)
        if found:
            return
        if worked_on(self._idle.places.runtime, run_id):
            raise UsageError(
                f"another process works on run {run_id}",
                rule="run.elsewhere",
                hint="stop it there",
            )
        standing = listed(directory).standing
        raise UsageError(f"nobody works on run {run_id}: it is {standing}", rule="run.idle")

    def listed(self, limit: int) -> list[Json]:
        newest = self._store.ids()[: -limit - 1 : -1]
        return [self._told(listed(self._store.places.runs / name).json()) for name in newest]

    def described(self, run_id: str) -> dict[str, Json]:
        directory = self._directory(run_id)
        if not any(True for _ in events(directory)):
            raise UsageError(f"run {run_id} was killed before it had begun", rule="run.empty")
        one, failures = listed(directory), read_failures(directory, events(directory))
        repository = str(self._store.places.repository)
        then = after_listing(one, failures, self._idle.equipment.home, repo=repository)
        return self._told({**described(directory, one, failures), "next": then})

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        found: list[Json] = []
        for event in events(self._directory(run_id), since):
            found.append(_plain(event))
            if len(found) == limit:
                break
        return found

    def size(self, run_id: str) -> int:
        try:
            return (self._store.places.bundle(run_id) / layout.EVENTS).stat().st_size
        except OSError:
            return 0

    def goes_on(self, run_id: str) -> bool:
        self._directory(run_id)
        return worked_on(self._idle.places.runtime, run_id)

    def patch(self, run_id: str, *, task: str | None, rejected: bool) -> bytes:
        return patch(self._directory(run_id), task=task, rejected=rejected)

    def verify(self, run_id: str, *, strict: bool, root: str | None) -> dict[str, Json]:
        from coilclaw.app.runaudits import verify

        report, _ = verify(self._idle, self._directory(run_id), strict=strict, root=root)
        return report.json()

    def bundle(self, run_id: str) -> Archive:
        return archived(self._directory(run_id))

    def halt(self, reason: str) -> None:
        self._workers.halt(reason)

    def drained(self, timeout_s: float) -> bool:
        return self._workers.drained(timeout_s)

    def _carry_out(
        self, carry: Carry, run_id: str = "", *, wait: bool = True, asker: str = ""
    ) -> str:
        """Carry a run out in a thread, and return its id once it is on the disk."""

        def work(working: Working) -> str:
            def watch(event: Mapping[str, object]) -> None:
                self._workers.begin(working, str(event["run_id"]))

            outcome = carry(self._open(Carrying(working.cancel, wait, asker)), watch)
            working.run_id = outcome.run_id
            return outcome.status

        return self._workers.carry_out(work, run_id)

    def _told(self, value: dict[str, Json]) -> dict[str, Json]:
        """Say why a run broke off here, which its own events cannot."""
        reason = self._workers.why_broken_off(str(value["run_id"]))
        if value["status"] == "interrupted" and reason is not None:
            return {**value, "reason": reason}
        return value

    def _directory(self, run_id: str) -> Path:
        """The bundle of a run by its whole id: nobody's slip of the finger reaches another."""
        if checked(run_id) not in self._store.ids():
            raise unknown(run_id)
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
    redactor: Redacting,
) -> ServedRuns | None:
    """Offer the runs of the repository that is named, or of the one around, if there is one."""
    start = Path(".") if settings.repo is None else Path(settings.repo)

    def orchestrator(carrying: Carrying) -> Orchestrator:
        return Orchestrator(
            start,
            home,
            environ,
            cancel=carrying.cancel,
            terms=Terms(
                wait_s=WAIT_S,
                lock_wait_s=math.inf if carrying.wait else 0.0,
                asker=carrying.asker,
            ),
            config=config,
            redactor=redactor,
        )

    try:
        start = start.resolve(strict=True)
        return ServedRuns(orchestrator, settings, metrics)
    except (CoilClawError, OSError) as problem:
        if settings.repo is not None:
            raise _no_repository(start, problem) from problem
        # The agent is served as ever: whoever asks for a run is told that there are none.
        _log.debug("no runs are offered: %s", problem, extra={"event": "runs_unavailable"})
        return None


def _no_repository(start: Path, problem: CoilClawError | OSError) -> CoilClawError:
    if isinstance(problem, CoilClawError):
        return problem
    return UsageError(f"there is no {start}: {problem.strerror}", rule="repository.missing")


def _request(wanted: Wanted) -> Request:
    if wanted.contract is None:
        return Request(None, " ".join(wanted.request.split()) or wanted.request)
    data = json.dumps(wanted.contract, ensure_ascii=False, indent=2)
    contract = data.encode("utf-8", "backslashreplace")
    if len(contract) > MAX_CONTRACT_BYTES:
        raise UsageError(
            f"the contract is larger than the {MAX_CONTRACT_BYTES} bytes of the largest",
            rule="contract.large",
        )
    return Request(contract)


def _options(wanted: Wanted, request: Request) -> Options:
    return options_of(
        request,
        runner=wanted.runner,
        reviewer=wanted.reviewer,
        merge=wanted.merge,
        diagnostic=wanted.diagnostic,
        baseline=not wanted.no_baseline,
        hint='say which: "runner": "scripted:…" or "process:…"',
    )


def _plain(event: dict[str, object]) -> Json:
    """A record of a journal holds nothing that JSON does not."""
    return event  # type: ignore[return-value]
