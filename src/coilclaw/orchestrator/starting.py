"""Making a run, and opening one again: from then on its bundle is the only memory of it."""

from __future__ import annotations

import logging
import os
import platform
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw import __version__
from coilclaw.contracts import schemas
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.domain.canonical import digest
from coilclaw.domain.freeform import hashed
from coilclaw.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.bundle import Bundle, sealed_manifest
from coilclaw.orchestrator.eventlog import EventLog
from coilclaw.orchestrator.places import checked
from coilclaw.orchestrator.planning import Request
from coilclaw.orchestrator.run import Run
from coilclaw.runtime.estop import Estop
from coilclaw.runtime.identity import stamp, this_process
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.equipment import Equipment

MAX_CONTRACT_BYTES: Final = 2**20
MAX_RUN_S: Final = 30 * 24 * 3600.0
STOP_LOOK_S: Final = 0.5
STOP_TIMEOUT_S: Final = 120.0
WATCH_NOTHING: Final = lambda _: None  # noqa: E731 - a value, not a definition


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is carried out; the same for all of it, also after a kill."""

    runner: str = "builtin"
    reviewer: str = "rules"
    merge: bool = False
    diagnostic: bool = False
    baseline: bool = True
    """Whether set-up and tests are tried on the baseline before an agent starts."""


def new_id(equipment: Equipment) -> str:
    """A name for a run that sorts by time and that nobody else has."""
    moment = stamp(equipment.clock())
    digits = "".join(char for char in moment if char.isdigit())
    return f"run_{digits[:8]}_{digits[8:14]}_{os.urandom(8).hex()}"


@contextmanager
def created(
    equipment: Equipment,
    request: Request,
    options: Options,
    watch: Callable[[Mapping[str, object]], None] = WATCH_NOTHING,
) -> Iterator[tuple[Run, Request]]:
    """Make a run; from its first moment on there is a bundle that says what became of it."""
    run_id = new_id(equipment)
    baseline, branch = _baseline(equipment, request)
    policies = equipment.policies(baseline)
    bundle = Bundle(equipment.places.bundle(run_id), equipment.secrets.redact)
    with owned(equipment, run_id):
        bundle.create()
        trace = os.urandom(16).hex()
        bundle.write_text(layout.TRACE_ID, f"{trace}\n")
        bundle.write_text(layout.GIT_BASELINE, f"{baseline}\n")
        bundle.write_text(layout.WORKTREE_REF, f"{equipment.places.worktrees / checked(run_id)}\n")
        bundle.write_json(layout.META, _meta(equipment, options))
        given = ""
        if request.contract is not None:
            given = bundle.write_bytes(layout.GIVEN, request.contract).sha256
        with _log(equipment, bundle, trace) as log:
            run = Run(equipment.places, bundle, log, watch)
            run.emit(
                EventType.RUN_CREATED,
                {
                    "contract_sha256": given,
                    "source": "request" if request.contract is None else "contract",
                    "request": request.sentence or _spec(request.contract),
                    "sentence": request.sentence,
                    "answers": list(request.answers),
                    "baseline_commit": baseline,
                    "branch": branch or "",
                    "runner": options.runner,
                    "reviewer": options.reviewer,
                    "merge": options.merge,
                    "diagnostic": options.diagnostic,
                    **({} if options.baseline else {"no_baseline": True}),
                    **({"asker": equipment.desk.asker} if equipment.desk.asker else {}),
                    "policy_sha256": policies.sha256,
                    "created_at": stamp(equipment.clock()),
                    "process": this_process(),
                },
            )
            run.emit(
                EventType.RUNNER_SELECTED,
                {"runner": options.runner, "reviewer": options.reviewer},
            )
            yield run, request


@contextmanager
def reopened(
    equipment: Equipment,
    run_id: str,
    watch: Callable[[Mapping[str, object]], None] = WATCH_NOTHING,
    *,
    resume: bool = True,
) -> Iterator[tuple[Run, Request]]:
    """Open a run that was paused, stopped or killed, to resume it or to give it up."""
    directory = equipment.places.bundle(run_id)
    bundle = Bundle(directory, equipment.secrets.redact)
    if not bundle.exists:
        raise unknown(run_id)
    with owned(equipment, run_id):
        if sealed_manifest(directory) is not None:
            raise UsageError(
                f"run {run_id} has ended, and is sealed",
                rule="run.sealed",
                hint=f"see 'coilclaw runs show {run_id}'",
            )
        trace = (bundle.find(layout.TRACE_ID) or b"").decode("ascii", "replace").strip()
        with _log(equipment, bundle, trace) as log:
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
            yield run, Request(given, str(run.option("sentence") or ""), told)


def unknown(run_id: str) -> UsageError:
    """There is no such run."""
    return UsageError(
        f"there is no run {run_id}", rule="run.unknown", hint="see 'coilclaw runs list'"
    )


@contextmanager
def owned(equipment: Equipment, run_id: str) -> Iterator[None]:
    """One process works on a run at a time; the lock goes with the process."""
    place = _owner(equipment.places.runtime, run_id)
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
        with stop.watched(equipment.cancel, MAX_RUN_S):
            yield
    finally:
        stop.clear()
        if sealed_manifest(equipment.places.bundle(run_id)) is not None:
            place.unlink(missing_ok=True)
        lock.release()


def worked_on(runtime: Path, run_id: str) -> bool:
    """Whether somebody works on a run at this moment, also in another thread of this process."""
    # Shared, so that two who look do not see each other.
    return not FileLock(_owner(runtime, run_id), shared=True, timeout_s=0).is_free()


def stop_switch(runtime: Path, run_id: str) -> Estop:
    """The file that asks the process that works on a run to stop it."""
    place = _owner(runtime, run_id).with_suffix(".stop")
    return Estop(place, "'coilclaw runs stop' asked for it", STOP_LOOK_S)


def request_stop(runtime: Path, run_id: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Have a run stopped, whoever works on it, and return once that has happened."""
    if not worked_on(runtime, run_id):
        raise UsageError(
            f"no process works on run {run_id}",
            rule="run.idle",
            hint=f"see 'coilclaw runs show {run_id}'",
        )
    stop_switch(runtime, run_id).trigger(f"run {run_id}", log_level=logging.INFO)
    until = time.monotonic() + timeout_s
    while worked_on(runtime, run_id):
        if time.monotonic() > until:
            raise EnvironmentFault(
                f"run {run_id} has been asked to stop, and did not within {timeout_s:g} s",
                rule="run.stopping",
                hint=f"look at it again with 'coilclaw runs show {run_id}'",
            )
        time.sleep(STOP_LOOK_S)
    # The run may have ended by itself before it saw the request.
    stop_switch(runtime, run_id).clear()


def _owner(runtime: Path, run_id: str) -> Path:
    return runtime / "owners" / f"{checked(run_id)}.lock"


def _log(equipment: Equipment, bundle: Bundle, trace: str) -> EventLog:
    equipment.key_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return EventLog(
        bundle.directory / layout.EVENTS,
        bundle.run_id,
        equipment.key_path,
        equipment.secrets.redact,
        equipment.clock,
        trace_id=trace,
    )


def _meta(equipment: Equipment, options: Options) -> dict[str, Json]:
    """The environment of a run: enough to tell two of them apart, and nothing of its secrets."""
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
    return {**facts, "env_sha256": hashed({**facts, "path": digest(os.fsencode(path))})}


def _baseline(equipment: Equipment, request: Request) -> tuple[str, str | None]:
    """The commit that the contract starts from; one that cannot be read starts from HEAD."""
    branch, head = equipment.repository.head()
    wanted = _field(request.contract, "rollback", "baseline_ref")
    if not wanted or wanted == "HEAD":
        return head, branch
    try:
        return equipment.repository.resolve(wanted), branch
    except UsageError:
        # The gate says what is wrong with it, in the bundle.
        return head, branch


def _spec(contract: bytes | None) -> str:
    return _field(contract, "inputs", "spec")


def _field(contract: bytes | None, *names: str) -> str:
    try:
        value: Json = parse(contract or b"{}")
    except UsageError:
        return ""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
