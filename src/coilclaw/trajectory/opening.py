"""Opening a trajectory: a new one is made, one that was interrupted or killed is gone on with."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.storage.journal import Journal
from coilclaw.storage.lock import FileLock
from coilclaw.trajectory import bundles, plan, presence, workspaces
from coilclaw.trajectory.checkpoints import UNKEEPABLE, Checkpoints
from coilclaw.trajectory.document import Document
from coilclaw.trajectory.history import HASH_FIELD, History, part_of
from coilclaw.trajectory.ignoring import Ignored
from coilclaw.trajectory.trace import VERSION, Trace
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from coilclaw.trajectory.places import Places
    from coilclaw.trajectory.plan import Plan
    from coilclaw.trajectory.trace import EnvoiCall

_log = logging.getLogger(__name__)

LOCK_S: Final = 0.5
"""How long somebody else who records the same trajectory is waited for."""


@dataclass(slots=True)
class Opened:
    """A trajectory that can be recorded to."""

    plan: Plan
    history: History
    journal: Journal
    document: Document
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class Opening:
    """How a trajectory is opened."""

    places: Places
    stamp: Callable[[], str]
    seconds: Callable[[], int]
    on_call: Callable[[EnvoiCall], None] | None = None
    """Told of every call of the tests that was recorded before."""
    redact: Callable[[str], str] = str
    """Of what is asked for, the name of an agent is a whole command line."""

    @contextmanager
    def begin(self, wanted: Plan) -> Iterator[Opened]:
        """Make a new trajectory; one that is there already is not written over."""
        directory = self.places.directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.places.key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {directory}: {problem.strerror}", rule="trajectory.create"
            ) from problem
        with self.locked(), self._journal() as journal:
            if next(journal.read(), None) is not None:
                raise UsageError(
                    f"there is a trajectory {wanted.trajectory_id} already",
                    rule="trajectory.exists",
                    hint="go on with it by --resume, or give another id",
                )
            yield from self._shown(self._made(wanted, journal))

    @contextmanager
    def resume(self, change: Callable[[Plan], Plan] = lambda same: same) -> Iterator[Opened]:
        """Go on with a trajectory where its record ends; ``change`` gives it another budget."""
        kept = plan.load(self.places.session)
        wanted = change(kept)
        with self.locked(), self._journal() as journal:
            journal.open()
            history = History(on_call=self.on_call)
            for record in journal.read():
                history.apply(record)
            history.on_call = None
            if not history.begun:
                # Killed while it was being made: nothing was recorded, so it begins anew.
                yield from self._shown(self._made(wanted, journal))
                return
            if history.end is not None and history.end.reason == "solved":
                raise UsageError(
                    f"trajectory {wanted.trajectory_id} is solved", rule="trajectory.solved"
                )
            self._require_same(wanted, history)
            wanted.save(self.places.session)
            yield from self._shown(self._continued(wanted, history, journal))

    def _require_same(self, wanted: Plan, history: History) -> None:
        """Refuse to go on with another agent under the name of the one that is recorded."""
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
                f"{self.places.session} does not say what the journal of trajectory "
                f"{self.places.trajectory_id} does: {', '.join(wrong)}",
                rule="trajectory.session",
            )

    def _made(self, wanted: Plan, journal: Journal) -> Opened:
        places = self.places
        for path in (places.workspace, places.repository, places.bundles, places.results):
            remove_tree(path)
        for path in (places.bundles, places.results):
            path.mkdir(mode=0o700)
        wanted.save(places.session)
        template = Path(wanted.template) if wanted.template else None
        workspaces.prepare(places.workspace, template)
        checkpoints = self._checkpoints(wanted)
        first = checkpoints.begin()
        bundles.write_piece(checkpoints.git, places.bundles / bundles.piece_name(0), None)
        history = History()
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
        journal.append(record)
        history.apply(record)
        return Opened(wanted, history, journal, Document(places.document), checkpoints)

    def _continued(self, wanted: Plan, history: History, journal: Journal) -> Opened:
        places = self.places
        if not places.workspace.is_dir():
            workspaces.prepare(places.workspace, None)
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
        record = {
            "type": "resumed",
            "timestamp": self.stamp(),
            "elapsed_ms": history.elapsed_ms,
            "leftover": commit,
            "leftover_ref": ref,
            "limits": limits_of(wanted),
        }
        journal.append(record)
        history.apply(record)
        if history.thread_id and not places.agent_home.is_dir():
            # It is gone on with where the agent has no memory of it: on another machine, mostly.
            forgotten = {
                "type": "agent_session",
                "timestamp": self.stamp(),
                "elapsed_ms": history.elapsed_ms,
                "thread_id": "",
            }
            journal.append(forgotten)
            history.apply(forgotten)
        if ref is not None:
            _log.info(
                "what was not recorded is kept as %s",
                ref,
                extra={"event": "leftover_kept", "fields": {"commit": commit, "ref": ref}},
            )
        return Opened(wanted, history, journal, Document(places.document), checkpoints)

    def _put_back(self, checkpoints: Checkpoints, parts: int) -> tuple[str, str] | None:
        """Make the workspace what was recorded; what stands there beside it is kept."""
        try:
            left = checkpoints.leave(parts)
            checkpoints.restore()
        except EnvironmentFault as problem:
            if problem.rule not in UNKEEPABLE:
                raise
            aside = self._aside(parts)
            _log.warning(
                "the workspace cannot be put back, so it is kept as %s: %s",
                aside,
                problem.message,
                extra={"event": "workspace_aside", "fields": {"path": str(aside)}},
            )
            workspaces.prepare(self.places.workspace, None)
            checkpoints.restore()
            return None
        return left

    def _aside(self, parts: int) -> Path:
        """Move a workspace away that an agent made so that no commit can hold it."""
        taken = 0
        while os.path.lexists(
            aside := self.places.directory / f"unkept-after-part-{parts}-{taken}"
        ):
            taken += 1
        try:
            os.rename(self.places.workspace, aside)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot move {self.places.workspace} away: {problem.strerror}",
                rule="trajectory.workspace",
            ) from problem
        return aside

    def _shown(self, opened: Opened) -> Iterator[Opened]:
        """Write the document from the journal, whatever a crash made of it, and hand out."""
        presence.note(self.places)
        rebuild(opened.document, opened.history, opened.journal)
        try:
            yield opened
        finally:
            opened.document.close()
            opened.checkpoints.forget_files()

    def _checkpoints(self, wanted: Plan) -> Checkpoints:
        return Checkpoints(
            self.places.repository,
            self.places.workspace,
            ignored=Ignored(wanted.ignore),
            seconds=self.seconds,
        )

    def _journal(self) -> Journal:
        return open_journal(self.places)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who records the trajectory."""
        lock = FileLock(self.places.lock, timeout_s=LOCK_S)
        try:
            lock.acquire()
        except LockTimeout as problem:
            raise busy(self.places) from problem
        try:
            yield
        finally:
            lock.release()


def busy(places: Places) -> EnvironmentFault:
    """Somebody on this machine records it."""
    there = presence.of(places)
    who = f"process {there.pid}" if there is not None and there.pid else "another process"
    return EnvironmentFault(
        f"trajectory {places.trajectory_id} is being recorded by {who}",
        rule="trajectory.busy",
        hint=f"'coilclaw trace show {places.trajectory_id}' says how far it is; SIGTERM ends it",
    )


def repair(places: Places) -> bool:
    """Write the document of a trajectory that nobody records anew from its journal.

    Whether there was anything to mend: a kill leaves it torn, or a part behind.
    """
    before = places.document.read_bytes() if places.document.exists() else b""
    opening = Opening(places, stamp=str, seconds=int)
    with opening.locked(), open_journal(places) as journal:
        journal.open()
        history = History()
        for record in journal.read():
            history.apply(record)
        if not history.begun:
            raise UsageError(
                f"trajectory {places.trajectory_id} was killed before it began",
                rule="trajectory.empty",
                hint="resume it, or remove it",
            )
        document = Document(places.document)
        rebuild(document, history, journal)
        document.close()
    return before != places.document.read_bytes()


def told(places: Places) -> Trace:
    """The trace as the journal tells it; nothing is written."""
    history, parts = History(), []
    with open_journal(places) as journal:
        for record in journal.read():
            history.apply(record)
            if record["type"] == "part":
                parts.append(part_of(record))
    if not history.begun:
        raise UsageError(
            f"trajectory {places.trajectory_id} was killed before it began",
            rule="trajectory.empty",
            hint="resume it, or remove it",
        )
    try:
        return Trace.of({**history.head().json(), "parts": list(parts)})
    except UsageError as problem:
        raise EnvironmentFault(
            f"the journal of trajectory {places.trajectory_id} does not tell a trace",
            rule="trajectory.record",
            hint=f"'coilclaw trace verify {places.trajectory_id}' says what is wrong with it",
        ) from problem


def open_journal(places: Places) -> Journal:
    """The journal of a trajectory."""
    return Journal(places.journal, hash_field=HASH_FIELD, key_path=places.key)


def rebuild(document: Document, history: History, journal: Journal) -> None:
    """Write a document anew from the journal."""
    parts = (part_of(record) for record in journal.read() if record["type"] == "part")
    document.rebuild(history.head().json(), parts)


def limits_of(wanted: Plan) -> dict[str, int | None]:
    timeout = wanted.timeout_s
    return {
        "max_parts": wanted.max_parts,
        "max_turns": wanted.max_turns,
        "timeout_ms": None if timeout is None else round(timeout * 1000),
    }
