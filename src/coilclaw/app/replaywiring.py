"""Replays, wired: where a recording comes from, and the court that judges it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw import artifacts
from coilclaw.errors import (
    CoilClawError,
    EnvironmentFault,
    GitFailed,
    JournalDamaged,
    UsageError,
)
from coilclaw.fleet import pool
from coilclaw.trajectory import bundles, trace
from coilclaw.trajectory.document import is_whole
from coilclaw.trajectory.evalcache import EvaluationCache
from coilclaw.trajectory.evaluation import Court
from coilclaw.trajectory.opening import told
from coilclaw.trajectory.places import FOLDER, Places, checked
from coilclaw.trajectory.replaying import Recording, gather
from coilclaw.workspace.git import Git
from coilclaw.workspace.owner import exists
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.artifacts.store import Store
    from coilclaw.trajectory.trace import Trace

EVALUATIONS: Final = "evaluations"
"""Below our home: what tests found, by tree, environment and path."""
REPLAYS: Final = "replays"
LAST: Final = "last"
TRACE: Final = "agent_trace.json"
BUNDLE: Final = "repo.bundle"


@dataclass(frozen=True, slots=True)
class Archive:
    """Finds trajectories: those recorded here, those in a store, and files given by name."""

    home: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    store_at: str = ""
    """Look there, and nowhere else; empty: here first, then in the usual store."""

    @property
    def store(self) -> Store:
        place = self.store_at or artifacts.default_place(self.environ, self.home)
        return artifacts.open_store(place, self.environ)

    def here(self) -> tuple[Places, ...]:
        """The trajectories that were recorded here, in the order of their ids."""
        try:
            names = sorted(os.listdir(self.home / FOLDER))
        except FileNotFoundError:
            return ()
        found = []
        for name in names:
            try:
                places = Places(self.home, name)
            except UsageError:
                continue  # nothing of ours
            if _recorded(places):
                found.append(places)
        return tuple(found)

    def find(self, wanted: str) -> str:
        """The id that is meant: an id, the beginning of one that is here, or 'last'.

        The last is the one that was written to most recently.
        """
        names = [places.trajectory_id for places in self.here()]
        if wanted == LAST and not self.store_at:
            if not names:
                raise UsageError("no trajectory was recorded here", rule="trajectory.unknown")
            newest = max(self.here(), key=_written)
            return newest.trajectory_id
        if self.store_at or wanted in names:
            return checked(wanted)
        begun = [name for name in names if wanted and name.startswith(wanted)]
        if len(begun) > 1:
            raise UsageError(
                f"{len(begun)} trajectories begin with {wanted}",
                rule="trajectory.ambiguous",
                hint=", ".join(begun[:5]),
            )
        return begun[0] if begun else checked(wanted)

    def is_here(self, trajectory_id: str) -> bool:
        return not self.store_at and _recorded(Places(self.home, trajectory_id))

    def trace(self, wanted: str) -> Trace:
        """Only the trace of a trajectory."""
        trajectory_id = self.find(wanted)
        if self.is_here(trajectory_id):
            return read(Places(self.home, trajectory_id))
        self._require(self.store, trajectory_id)
        return trace.load(self.store.get(_key(trajectory_id, TRACE), limit=trace.MAX_TRACE_BYTES))

    def places(self, wanted: str) -> Places:
        """Where a trajectory is that was recorded here."""
        found = Places(self.home, self.find(wanted))
        if not _recorded(found):
            raise UsageError(
                f"no trajectory {found.trajectory_id} was recorded here", rule="trajectory.unknown"
            )
        return found

    @contextmanager
    def open(self, wanted: str) -> Iterator[Recording]:
        """A trajectory with its code, by its id."""
        trajectory_id = self.find(wanted)
        if self.is_here(trajectory_id):
            with self._here(Places(self.home, trajectory_id)) as recording:
                yield recording
            return
        with self.scratch() as folder:
            yield self._downloaded(trajectory_id, folder)

    @contextmanager
    def _here(self, places: Places) -> Iterator[Recording]:
        """What was recorded here; the bundles stand in for a repository that lost something."""
        found = read(places)
        try:
            recording = Recording.of(found, Git(places.repository))
        except CoilClawError:
            recording = None
        if recording is not None:
            yield recording
            return
        whole = (places.bundle,) if places.bundle.is_file() else ()
        with self.scratch() as folder:
            pieces = (*bundles.pieces(places.bundles), *whole)
            yield Recording.of(found, gather(pieces, folder / "repo.git"))

    @contextmanager
    def open_files(self, trace_at: str, bundle_at: str) -> Iterator[Recording]:
        """A trajectory with its code, by its files: paths or addresses.

        The bundle may be a directory of pieces; without one it stands beside the trace.
        """
        with self.scratch() as folder:
            artifacts.fetch(trace_at, self.environ, folder / TRACE)
            beside, slash, _ = trace_at.rpartition("/")
            bundle_at = bundle_at or f"{beside}{slash}{BUNDLE}"
            if os.path.isdir(bundle_at):
                given = bundles.pieces(Path(bundle_at))
            else:
                artifacts.fetch(bundle_at, self.environ, folder / BUNDLE)
                given = (folder / BUNDLE,)
            yield Recording.of(
                _loaded(folder / TRACE, trace_at), _gathered(given, folder, bundle_at)
            )

    def court(
        self,
        recording: Recording,
        environment: str = "",
        *,
        jobs: int | None = None,
        fresh: bool = False,
        scratch: Path,
    ) -> Court:
        """Who judges a recording: the environment it was made with, unless another is named.

        ``jobs`` are shared out: trees at once, and what is left over to the cases of each.
        """
        from coilclaw.app.environments import ground_of, judge_of
        from coilclaw.environments import catalogue

        place = catalogue.find(environment or self._named_by(recording.trace))
        together = pool.processors() if jobs is None else jobs
        if together < 1:
            raise UsageError(f"{together} jobs are not possible", rule="replay.jobs")
        trees = max(1, min(together, len(set(recording.trees.values()))))
        judge = judge_of(str(place.file), self.home, jobs=max(1, together // trees))
        cache = EvaluationCache(self.home / EVALUATIONS)
        version = ground_of(place, self.home).version
        return Court(place.name, version, judge, cache, scratch, trees, fresh)

    def _named_by(self, found: Trace) -> str:
        """The environment of a trace; its code is run, and a trace that was sent can name any."""
        from coilclaw.environments import catalogue

        name = found.environment
        if not name or name in catalogue.names():
            return name
        places = Places(self.home, found.trajectory_id)
        if _recorded(places) and read(places).environment == name:
            return name
        raise UsageError(
            f"trajectory {found.trajectory_id} was not recorded here, and names the file {name!r} "
            "as its environment, whose code would be run",
            rule="replay.environment",
            hint="if you trust it, name it by --environment",
        )

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory that is gone afterwards; what killed replays left goes as well."""
        top = self.home / REPLAYS
        try:
            top.mkdir(mode=0o700, parents=True, exist_ok=True)
            for entry in list(top.iterdir()):
                pid = entry.name.partition("-")[0]
                if pid.isdigit() and not exists(int(pid)):
                    remove_tree(entry)
            folder = top / f"{os.getpid()}-{os.urandom(8).hex()}"
            folder.mkdir(mode=0o700)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot use {top}: {problem.strerror}", rule="replay.scratch"
            ) from problem
        try:
            yield folder
        finally:
            remove_tree(folder)

    def _require(self, store: Store, trajectory_id: str) -> None:
        key = _key(trajectory_id, TRACE)
        if not store.exists(key):
            where = "" if self.store_at else "neither here nor "
            raise UsageError(
                f"there is no trajectory {trajectory_id}, {where}at {store.uri(key)}",
                rule="trajectory.unknown",
                hint="'coilclaw trace list' says which there are; --store names another store",
            )

    def _downloaded(self, trajectory_id: str, folder: Path) -> Recording:
        store = self.store
        self._require(store, trajectory_id)
        store.download(_key(trajectory_id, TRACE), folder / TRACE)
        found = trace.load(folder / TRACE)
        whole = _key(trajectory_id, BUNDLE)
        if store.exists(whole):
            store.download(whole, folder / BUNDLE)
            try:
                return Recording.of(found, gather([folder / BUNDLE], folder / "whole.git"))
            except CoilClawError as problem:
                if problem.rule != "replay.commit":
                    raise
                # It went on after the bundle was made; the pieces hold the rest.
        for entry in store.list(_key(trajectory_id, "bundles")):
            target = folder / "bundles" / entry.key.rpartition("/")[2]
            target.parent.mkdir(exist_ok=True)
            store.download(entry.key, target)
        return Recording.of(found, gather(bundles.pieces(folder / "bundles"), folder / "repo.git"))


def _loaded(path: Path, where: str) -> Trace:
    """Read a copy, and speak of what it was copied from."""
    try:
        return trace.load(path)
    except UsageError as problem:
        told = problem.message.replace(str(path), where)
        raise UsageError(told, rule=problem.rule, hint=problem.hint) from problem


def _gathered(given: tuple[Path, ...], folder: Path, where: str) -> Git:
    if not given:
        raise UsageError(
            f"there are no pieces of a bundle in {where}",
            rule="replay.bundle",
            hint="they are called 0.bundle, 1.bundle and so on",
        )
    try:
        return gather(given, folder / "repo.git")
    except GitFailed as problem:
        raise UsageError(
            f"{where} is no bundle that can be unpacked", rule="replay.bundle"
        ) from problem


def read(places: Places) -> Trace:
    """The trace of what was recorded here; of the journal, where a kill tore the document."""
    try:
        whole = is_whole(places.document.read_bytes())
    except OSError:
        whole = False
    if whole or not places.journal.is_file():
        return trace.load(places.document)
    try:
        return told(places)
    except JournalDamaged:
        return trace.load(places.document)


def _recorded(places: Places) -> bool:
    if places.document.is_file():
        return True
    return places.journal.is_file() and places.journal.stat().st_size > 0


def _written(places: Places) -> int:
    path = places.document if places.document.is_file() else places.journal
    return path.stat().st_mtime_ns


def _key(trajectory_id: str, name: str) -> str:
    return f"{FOLDER}/{checked(trajectory_id)}/{name}"
