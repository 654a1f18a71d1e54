"""Replays, wired: where a recording comes from, and the court that judges it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, GitFailed, JournalDamaged, UsageError
from coilclaw.traces.artifacts import place as artifacts
from coilclaw.traces.environments.builds import scratch_directory
from coilclaw.traces.evaluation.evaluation import EvaluationCache, Evaluator, processors
from coilclaw.traces.evaluation.recorded_trace import Recording, gather_bundles
from coilclaw.traces.trajectory import bundles, trace
from coilclaw.traces.trajectory.opened_trajectory import read_journal_trace
from coilclaw.traces.trajectory.plan import (
    FOLDER,
    TracePlaces,
    check_trajectory_id,
    is_trajectory_id,
)
from coilclaw.traces.trajectory.recorder import BUNDLE, TRACE
from coilclaw.traces.trajectory.trace_document import is_whole
from coilclaw.workspace import Git

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.traces.artifacts.store import ArtifactStore
    from coilclaw.traces.trajectory.trace import Trace

EVALUATIONS: Final = "evaluations"
"""Below our home: what tests found, by tree, environment and path."""
REPLAYS: Final = "replays"
LAST: Final = "last"


@dataclass(frozen=True, slots=True)
class TrajectoryArchive:
    """Finds trajectories: those recorded here, those in a store, and files given by name."""

    home: Path
    environ: Mapping[str, str]
    store_at: str = ""
    """Look there, and nowhere else; empty: here first, then in the usual store."""

    @property
    def store(self) -> ArtifactStore:
        place = self.store_at or artifacts.default_place(self.environ, self.home)
        return artifacts.open_store(place, self.environ)

    def here(self) -> tuple[TracePlaces, ...]:
        """Return the trajectories that were recorded here, sorted by id."""
        try:
            names = sorted(os.listdir(self.home / FOLDER))
        except FileNotFoundError:
            return ()
        found = [TracePlaces(self.home, name) for name in names if is_trajectory_id(name)]
        return tuple(filter(_is_recorded, found))

    def find(self, wanted: str) -> str:
        """Return the id for an id, the unique beginning of a local one, or 'last'.

        The last is the one that was written to most recently.
        """
        names = [places.trajectory_id for places in self.here()]
        if wanted == LAST and not self.store_at:
            if not names:
                raise UsageError("no trajectory was recorded here", rule="trajectory.unknown")
            return max(self.here(), key=_written_at).trajectory_id
        if self.store_at or wanted in names:
            return check_trajectory_id(wanted)
        begun = [name for name in names if wanted and name.startswith(wanted)]
        if len(begun) > 1:
            message = f"{len(begun)} trajectories begin with {wanted}"
            raise UsageError(message, rule="trajectory.ambiguous", hint=", ".join(begun[:5]))
        return begun[0] if begun else check_trajectory_id(wanted)

    def is_here(self, trajectory_id: str) -> bool:
        return not self.store_at and _is_recorded(TracePlaces(self.home, trajectory_id))

    def trace(self, wanted: str) -> Trace:
        """Return the trace of a trajectory, without its code."""
        trajectory_id = self.find(wanted)
        if self.is_here(trajectory_id):
            return read_trace(TracePlaces(self.home, trajectory_id))
        self._require(self.store, trajectory_id)
        key = _make_key(trajectory_id, TRACE)
        return trace.load_trace(self.store.get(key, limit=trace.MAX_TRACE_BYTES))

    def places(self, wanted: str) -> TracePlaces:
        """Return the places of a trajectory that was recorded here, or raise."""
        found = TracePlaces(self.home, self.find(wanted))
        if not _is_recorded(found):
            message = f"no trajectory {found.trajectory_id} was recorded here"
            raise UsageError(message, rule="trajectory.unknown")
        return found

    @contextmanager
    def open(self, wanted: str) -> Iterator[Recording]:
        """Yield a trajectory with its code, found by its id."""
        trajectory_id = self.find(wanted)
        if self.is_here(trajectory_id):
            with self._open_local(TracePlaces(self.home, trajectory_id)) as recording:
                yield recording
            return
        with self.scratch() as folder:
            yield self._download(trajectory_id, folder)

    @contextmanager
    def _open_local(self, places: TracePlaces) -> Iterator[Recording]:
        """Yield a local recording, from its bundles if its repository is damaged."""
        found, recording = read_trace(places), None
        with suppress(CoilClawError):
            recording = Recording.of(found, Git(places.repository))
        if recording is not None:
            yield recording
            return
        whole = (places.bundle,) if places.bundle.is_file() else ()
        with self.scratch() as folder:
            pieces = (*bundles.pieces(places.bundles), *whole)
            yield Recording.of(found, gather_bundles(pieces, folder / "repo.git"))

    @contextmanager
    def open_files(self, trace_at: str, bundle_at: str) -> Iterator[Recording]:
        """Yield a trajectory with its code, given by its files: paths or addresses.

        The bundle may be a directory of pieces; without one it stands beside the trace.
        """
        with self.scratch() as folder:
            artifacts.fetch_artifact(trace_at, self.environ, folder / TRACE)
            beside, slash, _ = trace_at.rpartition("/")
            bundle_at = bundle_at or f"{beside}{slash}{BUNDLE}"
            if os.path.isdir(bundle_at):
                given = bundles.pieces(Path(bundle_at))
            else:
                artifacts.fetch_artifact(bundle_at, self.environ, folder / BUNDLE)
                given = (folder / BUNDLE,)
            try:
                found = trace.load_trace(folder / TRACE)
            except UsageError as problem:
                # A copy was read: the message names what it was copied from.
                problem.message = problem.message.replace(str(folder / TRACE), trace_at)
                raise
            if not given:
                message = f"no pieces of a bundle are in {bundle_at}"
                hint = "they are called 0.bundle, 1.bundle and so on"
                raise UsageError(message, rule="replay.bundle", hint=hint)
            try:
                repository = gather_bundles(given, folder / "repo.git")
            except GitFailed as problem:
                message = f"{bundle_at} is not a bundle that can be unpacked"
                raise UsageError(message, rule="replay.bundle") from problem
            yield Recording.of(found, repository)

    def court(
        self,
        recording: Recording,
        environment: str = "",
        *,
        jobs: int | None = None,
        fresh: bool = False,
        scratch: Path,
    ) -> Evaluator:
        """Return the evaluator of a recording, by its own environment unless one is named.

        ``jobs`` are shared out: trees at once, and what is left over to the cases of each.
        """
        from coilclaw.traces.environments import catalogue
        from coilclaw.traces.environments.judge import open_judge, read_environment

        place = catalogue.find_environment(environment or self._find_environment(recording.trace))
        together = processors() if jobs is None else jobs
        if together < 1:
            raise UsageError(f"{together} jobs are not possible", rule="replay.jobs")
        trees = max(1, min(together, len(set(recording.trees.values()))))
        judge = open_judge(str(place.file), self.home, self.environ, jobs=max(1, together // trees))
        cache = EvaluationCache(self.home / EVALUATIONS)
        version = read_environment(place, self.home).version
        return Evaluator(place.name, version, judge, cache, scratch, trees, fresh)

    def _find_environment(self, found: Trace) -> str:
        """Return the environment of a trace, or refuse one whose code must not be run."""
        from coilclaw.traces.environments import catalogue

        name = found.environment
        if not name or name in catalogue.names():
            return name
        places = TracePlaces(self.home, found.trajectory_id)
        if _is_recorded(places) and read_trace(places).environment == name:
            return name
        raise UsageError(
            f"trajectory {found.trajectory_id} was not recorded here, and names the file {name!r} "
            "as its environment, whose code would be run",
            rule="replay.environment",
            hint="if you trust it, name it by --environment",
        )

    def scratch(self) -> AbstractContextManager[Path]:
        """Make a directory that is gone afterwards; what killed replays left goes as well."""
        return scratch_directory(self.home / REPLAYS, rule="replay.scratch")

    def _require(self, store: ArtifactStore, trajectory_id: str) -> None:
        key = _make_key(trajectory_id, TRACE)
        if not store.exists(key):
            found = "not found" if self.store_at else "found neither here nor"
            message = f"trajectory {trajectory_id} was {found} at {store.uri(key)}"
            hint = "'coilclaw trace list' says which there are; --store names another store"
            raise UsageError(message, rule="trajectory.unknown", hint=hint)

    def _download(self, trajectory_id: str, folder: Path) -> Recording:
        store = self.store
        self._require(store, trajectory_id)
        store.download(_make_key(trajectory_id, TRACE), folder / TRACE)
        found = trace.load_trace(folder / TRACE)
        whole = _make_key(trajectory_id, BUNDLE)
        if store.exists(whole):
            store.download(whole, folder / BUNDLE)
            try:
                return Recording.of(found, gather_bundles([folder / BUNDLE], folder / "whole.git"))
            except CoilClawError as problem:
                if problem.rule != "replay.commit":
                    raise
                # It was resumed after the bundle was made; the pieces hold the rest.
        for entry in store.list(_make_key(trajectory_id, "bundles")):
            target = folder / "bundles" / entry.key.rpartition("/")[2]
            target.parent.mkdir(exist_ok=True)
            store.download(entry.key, target)
        pieces = bundles.pieces(folder / "bundles")
        return Recording.of(found, gather_bundles(pieces, folder / "repo.git"))


def read_trace(places: TracePlaces) -> Trace:
    """Return a local trace, read from the journal if a kill tore the document."""
    try:
        whole = is_whole(places.document.read_bytes())
    except OSError:
        whole = False
    if whole or not places.journal.is_file():
        return trace.load_trace(places.document)
    try:
        return read_journal_trace(places)
    except JournalDamaged:
        return trace.load_trace(places.document)


def _is_recorded(places: TracePlaces) -> bool:
    if places.document.is_file():
        return True
    return places.journal.is_file() and places.journal.stat().st_size > 0


def _written_at(places: TracePlaces) -> int:
    path = places.document if places.document.is_file() else places.journal
    return path.stat().st_mtime_ns


def _make_key(trajectory_id: str, name: str) -> str:
    return f"{FOLDER}/{check_trajectory_id(trajectory_id)}/{name}"
