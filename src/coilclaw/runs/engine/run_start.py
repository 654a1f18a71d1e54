"""Create a run, or open it again; its bundle is the only memory of it."""

from __future__ import annotations

import logging
import os
import platform
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw import __version__
from coilclaw.agent import Estop
from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    LockTimeout,
    UsageError,
    VerificationFailed,
    digest_bytes,
    hash_json,
    schemas,
)
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run import Run, RunDependencies
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import Bundle, sealed_manifest
from coilclaw.runs.evidence.event_index import get_part
from coilclaw.runs.evidence.event_log import EventLog
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.workspace import remove_tree, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json


MAX_CONTRACT_BYTES: Final = 2**20
MAX_RUN_S: Final = 30 * 24 * 3600.0
STOP_LOOK_S: Final = 0.5
STOP_TIMEOUT_S: Final = 120.0
WATCH_NOTHING: Final = lambda _: None  # noqa: E731 - a value, not a definition


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out; the same for all of it, also after a kill."""

    runner: str = "builtin"
    reviewer: str = "rules"
    merge: bool = False
    diagnostic: bool = False
    baseline: bool = True
    """Whether set-up and tests are tried on the baseline before an agent starts."""


WITH_ARGUMENT: Final = ("scripted", "process")
"""Runners that need an argument after their names."""


def make_run_options(
    request: RunRequest,
    *,
    runner: str | None,
    reviewer: str | None,
    merge: bool,
    diagnostic: bool,
    baseline: bool,
    hint: str,
) -> RunOptions:
    """Return the options of a run; ``hint`` says how a runner is named with its argument."""
    named = "" if runner else _read_option(request, "runner")
    if named in WITH_ARGUMENT:
        raise UsageError(
            f"the contract names the runner {named}, which needs something behind its name",
            rule="runner.argument",
            hint=hint,
        )
    return RunOptions(
        runner=runner or named or "builtin",
        reviewer=reviewer or _read_option(request, "reviewer") or "rules",
        merge=merge,
        diagnostic=diagnostic,
        baseline=baseline,
    )


def _read_option(request: RunRequest, name: str) -> str:
    """Return what a contract says in ``runtime_options``; a gate judges whether it is valid."""
    if request.contract is None:
        return ""
    try:
        value = parse_document(request.contract).get("runtime_options")
    except UsageError:
        return ""
    text = value.get(name) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


@contextmanager
def create_run(
    equipment: RunDependencies,
    request: RunRequest,
    options: RunOptions,
    watch: Callable[[Mapping[str, object]], None] = WATCH_NOTHING,
) -> Iterator[tuple[Run, RunRequest]]:
    """Create a run with its bundle, which records everything from the first moment on."""
    now = equipment.now()
    digits = "".join(char for char in now if char.isdigit())
    # It sorts by time, and no other run has it.
    run_id = f"run_{digits[:8]}_{digits[8:14]}_{os.urandom(8).hex()}"
    try:
        given: Json = parse_document(request.contract or b"{}")
    except UsageError:
        given = {}
    branch, baseline = equipment.repository.head()
    wanted = get_part(given, "rollback", "baseline_ref")
    if isinstance(wanted, str) and wanted not in {"", "HEAD"}:
        # Where there is no such commit, the gate says so, in the bundle.
        with suppress(UsageError):
            baseline = equipment.repository.resolve(wanted)
    policies = equipment.policies(baseline)
    bundle = Bundle(equipment.places.bundle(run_id), equipment.secrets.redact)
    with own_run(equipment, run_id):
        bundle.create()
        trace = os.urandom(16).hex()
        bundle.write_text(layout.TRACE_ID, f"{trace}\n")
        bundle.write_text(layout.GIT_BASELINE, f"{baseline}\n")
        worktrees = equipment.places.worktrees / layout.check_run_id(run_id)
        bundle.write_text(layout.WORKTREE_REF, f"{worktrees}\n")
        bundle.write_json(layout.META, _describe_environment(equipment, options))
        hashed_contract = ""
        if request.contract is not None:
            hashed_contract = bundle.write_bytes(layout.GIVEN, request.contract).sha256
        with _open_log(equipment, bundle, trace) as log:
            run = Run(equipment.places, bundle, log, watch)
            spec, asker = get_part(given, "inputs", "spec"), equipment.desk.asker
            runners = {"runner": options.runner, "reviewer": options.reviewer}
            run.emit(
                EventType.RUN_CREATED,
                {
                    "contract_sha256": hashed_contract,
                    "source": "request" if request.contract is None else "contract",
                    "request": request.sentence or (spec if isinstance(spec, str) else ""),
                    "sentence": request.sentence,
                    "answers": list(request.answers),
                    "baseline_commit": baseline,
                    "branch": branch or "",
                    **runners,
                    "merge": options.merge,
                    "diagnostic": options.diagnostic,
                    **({} if options.baseline else {"no_baseline": True}),
                    **({"asker": asker} if asker else {}),
                    "policy_sha256": policies.sha256,
                    "created_at": now,
                    "process": this_process(),
                },
            )
            run.emit(EventType.RUNNER_SELECTED, runners)
            yield run, request


@contextmanager
def reopen_run(
    equipment: RunDependencies,
    run_id: str,
    watch: Callable[[Mapping[str, object]], None] = WATCH_NOTHING,
    *,
    resume: bool = True,
) -> Iterator[tuple[Run, RunRequest]]:
    """Open a run that was paused, stopped or killed, to resume it or to abandon it."""
    directory = equipment.places.bundle(run_id)
    bundle = Bundle(directory, equipment.secrets.redact)
    if not bundle.exists:
        raise make_unknown_run(run_id)
    with own_run(equipment, run_id):
        if sealed_manifest(directory) is not None:
            raise UsageError(
                f"run {run_id} has ended, and is sealed",
                rule="run.sealed",
                hint=f"see 'coilclaw runs show {run_id}'",
            )
        trace = (bundle.find(layout.TRACE_ID) or b"").decode("ascii", "replace").strip()
        with _open_log(equipment, bundle, trace) as log:
            run = Run(equipment.places, bundle, log, watch)
            if not run.progress.created:
                raise UsageError(
                    f"run {run_id} was killed before it had begun",
                    rule="run.empty",
                    hint="start it again; 'coilclaw runs gc' removes what is left of it",
                )
            if resume and not run.progress.sealed:
                run.emit(EventType.RUN_RESUMED, {"process": this_process()})
            given = bundle.find(layout.GIVEN, limit=MAX_CONTRACT_BYTES)
            answers = run.option("answers")
            told = tuple(map(str, answers)) if isinstance(answers, list) else ()
            yield run, RunRequest(given, str(run.option("sentence") or ""), told)


def make_unknown_run(run_id: str) -> UsageError:
    """Make the error for a run that does not exist."""
    return UsageError(
        f"run {run_id} does not exist", rule="run.unknown", hint="see 'coilclaw runs list'"
    )


@contextmanager
def own_run(equipment: RunDependencies, run_id: str) -> Iterator[None]:
    """One process works on a run at a time; the lock goes with the process."""
    place = locate_owner(equipment.places.runtime, run_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place, timeout_s=0.2)
    try:
        lock.acquire()
    except LockTimeout:
        raise UsageError(
            f"another process works on run {run_id}",
            rule="run.busy",
            hint=f"stop it with 'coilclaw runs stop {run_id}', or let it end",
        ) from None
    stop = stop_switch(equipment.places.runtime, run_id)
    stop.clear()
    try:
        with stop.watch_call(equipment.cancel, MAX_RUN_S):
            yield
    finally:
        stop.clear()
        if sealed_manifest(equipment.places.bundle(run_id)) is not None:
            place.unlink(missing_ok=True)
        lock.release()


def is_worked_on(runtime: Path, run_id: str) -> bool:
    """Return whether a process works on a run now, also in another thread of this process."""
    # Shared, so that two who look do not see each other.
    return not FileLock(locate_owner(runtime, run_id), shared=True, timeout_s=0).is_free()


def stop_switch(runtime: Path, run_id: str) -> Estop:
    """Return the switch that asks the process which works on a run to stop."""
    place = locate_owner(runtime, run_id).with_suffix(".stop")
    return Estop(place, "'coilclaw runs stop' asked for it", STOP_LOOK_S)


def request_stop(runtime: Path, run_id: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Have a run stopped by the process that works on it; return once it has stopped."""
    if not is_worked_on(runtime, run_id):
        raise UsageError(
            f"no process works on run {run_id}",
            rule="run.idle",
            hint=f"see 'coilclaw runs show {run_id}'",
        )
    stop_switch(runtime, run_id).trigger(f"run {run_id}", log_level=logging.INFO)
    until = time.monotonic() + timeout_s
    while is_worked_on(runtime, run_id):
        if time.monotonic() > until:
            raise EnvironmentFault(
                f"run {run_id} has been asked to stop, and did not within {timeout_s:g} s",
                rule="run.stopping",
                hint=f"look at it again with 'coilclaw runs show {run_id}'",
            )
        time.sleep(STOP_LOOK_S)
    # The run may have ended by itself before it saw the request.
    stop_switch(runtime, run_id).clear()


def locate_owner(runtime: Path, run_id: str) -> Path:
    """Return the file that the process which works on a run holds locked."""
    return runtime / "owners" / f"{layout.check_run_id(run_id)}.lock"


def _open_log(equipment: RunDependencies, bundle: Bundle, trace: str = "") -> EventLog:
    equipment.key_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return EventLog(
        bundle.directory / layout.EVENTS,
        bundle.run_id,
        equipment.key_path,
        equipment.secrets.redact,
        equipment.clock,
        trace_id=trace,
    )


def _describe_environment(equipment: RunDependencies, options: RunOptions) -> dict[str, Json]:
    """Describe the environment of a run, without secrets, to tell two of them apart."""
    support = equipment.support
    facts: dict[str, Json] = {
        "coilclaw": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "runner": options.runner,
        "reviewer": options.reviewer,
        "sandbox": {
            "kind": equipment.sandbox,
            "bubblewrap": support.bubblewrap is not None,
            "landlock_abi": support.landlock_abi,
        },
        "schemas_sha256": schemas.registry_sha256(),
    }
    # Names and lengths only would still tell; a hash tells whether it is the same environment.
    path = equipment.environ.get("PATH", "")
    return {**facts, "env_sha256": hash_json({**facts, "path": digest_bytes(os.fsencode(path))})}


@contextmanager
def open_sealed(equipment: RunDependencies, run_id: str) -> Iterator[Run]:
    """Open a run that has ended and verifies; nothing can be recorded in it."""
    directory = equipment.places.bundle(run_id)
    if not directory.is_dir():
        raise make_unknown_run(run_id)
    with own_run(equipment, run_id):
        if sealed_manifest(directory) is None:
            raise UsageError(
                f"run {run_id} has not ended",
                rule="run.open",
                hint=f"resume it: coilclaw runs resume {run_id}",
            )
        report = verify_run(directory, key_path=equipment.key_path)
        if report.errors:
            first = report.errors[0]
            raise VerificationFailed(
                f"run {run_id} does not verify ({first.code}: {first.message})",
                rule="run.unverified",
                hint=f"see all of it: coilclaw runs verify {run_id}",
            )
        bundle = Bundle(directory, equipment.secrets.redact)
        try:
            yield Run(equipment.places, bundle, _open_log(equipment, bundle))
        finally:
            home = equipment.places.homes / run_id
            if home.exists():
                remove_tree(home)
