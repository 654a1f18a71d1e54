"""Open a trajectory: make a new one, or resume one that was interrupted or killed."""

from __future__ import annotations

import itertools
import logging
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    Journal,
    LockTimeout,
    UsageError,
    explain_os_errors,
)
from coilclaw.traces.trajectory import agent_workspace, bundles, plan
from coilclaw.traces.trajectory.agent_workspace import Ignored
from coilclaw.traces.trajectory.checkpoints import UNKEEPABLE, Checkpoints
from coilclaw.traces.trajectory.history import HASH_FIELD, History, part_of
from coilclaw.traces.trajectory.trace import VERSION, EnvoiCall, Trace
from coilclaw.traces.trajectory.trace_document import TraceDocument
from coilclaw.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan

_log = logging.getLogger(__name__)

LOCK_S: Final = 0.5
"""How long another recording of the same trajectory is waited for."""


@dataclass(slots=True)
class Opened:
    """A trajectory that can be recorded to."""

    plan: TrajectoryPlan
    history: History
    journal: Journal
    document: TraceDocument
    checkpoints: Checkpoints

    def append(self, record: dict[str, Any]) -> None:
        self.journal.append(record)
        self.history.apply(record)


@dataclass(frozen=True, slots=True)
class TrajectoryOpening:
    """How a trajectory is opened."""

    places: TracePlaces
    stamp: Callable[[], str]
    seconds: Callable[[], int]
    on_call: Callable[[EnvoiCall], None] | None = None
    """Receives every call of the tests that was recorded before."""
    redact: Callable[[str], str] = str
    """Of what is asked for, the name of an agent is a whole command line."""

    @contextmanager
    def begin(self, wanted: TrajectoryPlan) -> Iterator[Opened]:
        """Make a new trajectory; one that is there already is not written over."""
        directory = self.places.directory
        with explain_os_errors(f"create {directory}", rule="trajectory.create"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.places.key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.lock_trajectory(), open_journal(self.places) as journal:
            if next(journal.read(), None) is not None:
                raise refuse_existing(wanted.trajectory_id)
            yield from self._show(self._make(wanted, journal))

    @contextmanager
    def resume(
        self, change: Callable[[TrajectoryPlan], TrajectoryPlan] = lambda same: same
    ) -> Iterator[Opened]:
        """Resume a trajectory where its record ends; ``change`` gives it another budget."""
        wanted = change(plan.load_plan(self.places.session))
        with self.lock_trajectory(), open_journal(self.places) as journal:
            journal.open()
            history = _read_history(journal, History(on_call=self.on_call))
            history.on_call = None
            if not history.begun:
                # Killed while it was being made: nothing was recorded, so it starts again.
                yield from self._show(self._make(wanted, journal))
                return
            history.require_unsolved()
            # Refuse to resume with another agent under the name of the recorded one.
            recorded = history.session
            asked = {
                "trajectory_id": wanted.trajectory_id,
                "agent": self.redact(wanted.agent),
                "agent_model": wanted.model,
                "environment_version": wanted.environment_version,
            }
            wrong = [name for name, value in asked.items() if recorded[name] != value]
            if wrong:
                raise EnvironmentFault(
                    f"{self.places.session} disagrees with the journal of trajectory "
                    f"{self.places.trajectory_id} on: {', '.join(wrong)}",
                    rule="trajectory.session",
                    hint="check it with 'coilclaw trace verify'",
                )
            wanted.save(self.places.session)
            yield from self._show(self._continue(wanted, history, journal))

    def _make(self, wanted: TrajectoryPlan, journal: Journal) -> Opened:
        places = self.places
        for path in (places.workspace, places.repository, places.bundles, places.results):
            remove_tree(path)
        for path in (places.bundles, places.results):
            path.mkdir(mode=0o700)
        wanted.save(places.session)
        template = Path(wanted.template) if wanted.template else None
        agent_workspace.prepare_workspace(places.workspace, template)
        checkpoints = self._checkpoints(wanted)
        first = checkpoints.begin()
        bundles.write_piece(checkpoints.git, places.bundles / bundles.piece_name(0), None)
        record: dict[str, Any] = {
            "type": "session",
            "schema_version": VERSION,
            "trajectory_id": wanted.trajectory_id,
            "agent": self.redact(wanted.agent),
            "agent_model": wanted.model,
            "started_at": self.stamp(),
            "environment": wanted.environment,
            "environment_version": wanted.environment_version,
            "versions": dict(wanted.versions),
            "limits": limits_of(wanted),
            "artifacts": {"agent_trace": wanted.trace_uri, "repo_bundle": wanted.bundle_uri},
            "initial_commit": first.commit,
        }
        opened = Opened(wanted, History(), journal, TraceDocument(places.document), checkpoints)
        opened.append(record)
        return opened

    def _continue(self, wanted: TrajectoryPlan, history: History, journal: Journal) -> Opened:
        places = self.places
        if not places.workspace.is_dir():
            agent_workspace.prepare_workspace(places.workspace, None)
        checkpoints = self._checkpoints(wanted)
        try:
            checkpoints.open(history.commit)
        except EnvironmentFault as problem:
            if problem.rule != "checkpoint.missing":
                raise
            # A power cut took objects that were not synced; the bundles were.
            bundles.assemble(bundles.pieces(places.bundles), places.repository)
            checkpoints.open(history.commit)
        left = self._put_back(checkpoints, history.parts)
        for piece in bundles.pieces(places.bundles):
            if bundles.part_of(piece.name)[0] > history.parts:
                piece.unlink()  # of a checkpoint whose part was not recorded
        commit, ref = left or (None, None)
        opened = Opened(wanted, history, journal, TraceDocument(places.document), checkpoints)
        now = {"timestamp": self.stamp(), "elapsed_ms": history.elapsed_ms}
        kept = {"leftover": commit, "leftover_ref": ref, "limits": limits_of(wanted)}
        opened.append({"type": "resumed", **now, **kept})
        if history.thread_id and not places.agent_home.is_dir():
            # It is resumed where the agent has no memory of it: on another machine, mostly.
            opened.append({"type": "agent_session", **now, "thread_id": ""})
        if ref is not None:
            extra = {"event": "leftover_kept", "fields": {"commit": commit, "ref": ref}}
            _log.info("what was not recorded is kept as %s", ref, extra=extra)
        return opened

    def _put_back(self, checkpoints: Checkpoints, parts: int) -> tuple[str, str] | None:
        """Make the workspace what was recorded; what stands there beside it is kept."""
        try:
            left = checkpoints.leave(parts)
            checkpoints.restore()
        except EnvironmentFault as problem:
            if problem.rule not in UNKEEPABLE:
                raise
            name = f"unkept-after-part-{parts}"
            places = (self.places.directory / f"{name}-{taken}" for taken in itertools.count())
            aside = next(place for place in places if not os.path.lexists(place))
            with explain_os_errors(f"move {self.places.workspace}", rule="trajectory.workspace"):
                os.rename(self.places.workspace, aside)
            _log.warning(
                "the workspace cannot be put back, so it is kept as %s: %s",
                aside,
                problem.message,
                extra={"event": "workspace_aside", "fields": {"path": str(aside)}},
            )
            agent_workspace.prepare_workspace(self.places.workspace, None)
            checkpoints.restore()
            return None
        return left

    def _show(self, opened: Opened) -> Iterator[Opened]:
        """Write the document from the journal, whatever a crash made of it, and hand out."""
        plan.note_recorder(self.places)
        rebuild(opened.document, opened.history, opened.journal)
        try:
            yield opened
        finally:
            opened.document.close()
            opened.checkpoints.forget_files()

    def _checkpoints(self, wanted: TrajectoryPlan) -> Checkpoints:
        where, ignored = self.places, Ignored(wanted.ignore)
        return Checkpoints(where.repository, where.workspace, ignored=ignored, seconds=self.seconds)

    @contextmanager
    def lock_trajectory(self) -> Iterator[None]:
        """Hold the lock of the trajectory; raise if another process records it."""
        with ExitStack() as held:
            try:
                held.enter_context(FileLock(self.places.lock, timeout_s=LOCK_S))
            except LockTimeout as problem:
                raise busy_fault(self.places) from problem
            yield


def refuse_existing(trajectory_id: str, where: str = "") -> UsageError:
    """Return the error for an id that is taken."""
    message = f"trajectory {trajectory_id} already exists{where}"
    hint = "resume it with --resume, or give another id"
    return UsageError(message, rule="trajectory.exists", hint=hint)


def busy_fault(places: TracePlaces) -> EnvironmentFault:
    """Return the error for a trajectory that a process of this machine records."""
    pid = plan.find_recorder(places)
    who = f"process {pid}" if pid else "another process"
    message = f"trajectory {places.trajectory_id} is being recorded by {who}"
    hint = f"'coilclaw trace show {places.trajectory_id}' says how far it is; SIGTERM ends it"
    return EnvironmentFault(message, rule="trajectory.busy", hint=hint)


def repair_document(places: TracePlaces) -> bool:
    """Rebuild the document of a trajectory that is not being recorded from its journal.

    Return whether it changed: a kill leaves it torn, or a part behind.
    """
    before = places.document.read_bytes() if places.document.exists() else b""
    opening = TrajectoryOpening(places, stamp=str, seconds=int)
    with opening.lock_trajectory(), open_journal(places) as journal:
        journal.open()
        history = _require_begun(places, _read_history(journal, History()))
        document = TraceDocument(places.document)
        rebuild(document, history, journal)
        document.close()
    return before != places.document.read_bytes()


def read_journal_trace(places: TracePlaces) -> Trace:
    """Return the trace that the journal gives; write nothing."""
    with open_journal(places) as journal:
        history = _require_begun(places, _read_history(journal, History()))
        parts = [part_of(record) for record in journal.read() if record["type"] == "part"]
    try:
        return Trace.of({**history.head().json(), "parts": list(parts)})
    except UsageError as problem:
        message = f"the journal of trajectory {places.trajectory_id} does not give a valid trace"
        hint = f"'coilclaw trace verify {places.trajectory_id}' says what is wrong with it"
        raise EnvironmentFault(message, rule="trajectory.record", hint=hint) from problem


def _read_history(journal: Journal, history: History) -> History:
    for record in journal.read():
        history.apply(record)
    return history


def _require_begun(places: TracePlaces, history: History) -> History:
    if not history.begun:
        message = f"trajectory {places.trajectory_id} was killed before it began"
        raise UsageError(message, rule="trajectory.empty", hint="resume it, or remove it")
    return history


def open_journal(places: TracePlaces) -> Journal:
    """Return the journal of a trajectory."""
    return Journal(places.journal, hash_field=HASH_FIELD, key_path=places.key)


def rebuild(document: TraceDocument, history: History, journal: Journal) -> None:
    """Rebuild a document from the journal."""
    parts = (part_of(record) for record in journal.read() if record["type"] == "part")
    document.rebuild(history.head().json(), parts)


def limits_of(wanted: TrajectoryPlan) -> dict[str, int | None]:
    timeout = wanted.timeout_s
    return {
        "max_parts": wanted.max_parts,
        "max_turns": wanted.max_turns,
        "timeout_ms": None if timeout is None else round(timeout * 1000),
    }
