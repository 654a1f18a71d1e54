"""A trajectory in a store of artifacts: check the store, resume there, or restore from there."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import (
    CoilClawError,
    EnvironmentFault,
    Journal,
    UsageError,
    anchor_path,
    digest_bytes,
    explain_os_errors,
)
from coilclaw.kernel import journal_verification as journals
from coilclaw.traces.artifacts.store import CONFLICT, NETWORK, ArtifactStore, ArtifactVersion
from coilclaw.traces.evaluation.recorded_trace import Recording, gather_bundles
from coilclaw.traces.trajectory import agent_workspace, bundles, plan, trace
from coilclaw.traces.trajectory.history import COMMITS, HASH_FIELD, History, part_of
from coilclaw.traces.trajectory.opened_trajectory import rebuild as write_document
from coilclaw.traces.trajectory.opened_trajectory import refuse_existing
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan
from coilclaw.traces.trajectory.recorder import BUNDLE, SESSION, TRACE
from coilclaw.traces.trajectory.trace_document import TraceDocument, encode_part, parse_trace
from coilclaw.traces.trajectory.verification import differences
from coilclaw.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.traces.archive import TrajectoryArchive
    from coilclaw.traces.trajectory.verification import TraceVerification

CHUNK_BYTES: Final = 2**20
BROUGHT: Final = "brought"
_PROBE: Final = "probe"
_PROBE_BYTES: Final = 2**16
"""Enough for a disk without room to be noticed."""
_NEVER: Final = ArtifactVersion("never", 0)
"""A version that no artifact ever has."""


@dataclass(frozen=True, slots=True)
class StoredTrajectory:
    """Where a store keeps one trajectory."""

    store: ArtifactStore
    places: TracePlaces

    @property
    def documents(self) -> tuple[str, ...]:
        """The names of what is written again and again."""
        journal = self.places.journal
        return (SESSION, TRACE, journal.name, anchor_path(journal).name, BUNDLE)

    def uri(self, name: str = TRACE) -> str:
        return self.store.uri(self.places.key_of(name))

    def names(self) -> tuple[str, ...]:
        """Return the names below the trajectory of all its artifacts."""
        prefix = self.places.key_of("")
        return tuple(
            entry.key.removeprefix(prefix) for entry in self.store.list(prefix.removesuffix("/"))
        )

    def require_usable(self) -> tuple[str, ...]:
        """Refuse a store that cannot be reached, read or written; what it has of the trajectory.

        To learn whether we may write, a write is asked for that no store carries out.
        """
        try:
            names = self.names()
        except EnvironmentFault as problem:
            if problem.rule != NETWORK:
                raise
            message = f"{problem.message}; nothing was begun"
            hint = "check the way to it and AWS_ENDPOINT_URL; --store names another store"
            raise EnvironmentFault(message, rule=problem.rule, hint=hint) from problem
        try:
            self.store.put(self.places.key_of(_PROBE), bytes(_PROBE_BYTES), previous=_NEVER)
        except EnvironmentFault as problem:
            if problem.rule == CONFLICT:
                return names
            raise
        message = f"the artifact store at {self.uri(_PROBE)} does not honour conditional writes"
        hint = "two recordings would overwrite each other there unnoticed: use another store"
        raise EnvironmentFault(message, rule="artifact.conditions", hint=hint)

    def require_free(self) -> None:
        """Refuse a store that cannot be used, or that has a trajectory of this id."""
        if TRACE in self.require_usable():
            raise refuse_existing(self.places.trajectory_id, f", at {self.uri()}")

    def versions(self, parts: int) -> dict[str, ArtifactVersion]:
        """Return the versions to resume a trajectory with so many parts from.

        Besides the documents: pieces of checkpoints whose parts were never recorded.
        """
        keys = [self.places.key_of(name) for name in self.names() if self._is_live(name, parts)]
        return {key: version for key in keys if (version := self.store.head(key)) is not None}

    def _is_live(self, name: str, parts: int) -> bool:
        """Return whether an artifact may still be written: a document, or a later piece."""
        folder, _, leaf = name.rpartition("/")
        piece = folder == "bundles" and bundles.is_piece(leaf)
        return name in self.documents or (piece and bundles.part_of(leaf)[0] > parts)

    def require_ours(self, folder: Path, parts: int) -> dict[str, ArtifactVersion]:
        """Return the versions to resume from; refuse a store with a different record."""
        # Versions first: what another writer does after this is noticed when we write.
        versions = self.versions(parts)
        key = self.places.key_of(self.places.journal.name)
        if key not in versions:
            return versions
        versions[key] = self.store.download(key, folder / "journal")
        if not _is_beginning(self.places.journal, folder / "journal"):
            raise EnvironmentFault(
                f"trajectory {self.places.trajectory_id} was resumed elsewhere: "
                f"{self.uri(self.places.journal.name)} has records that are not here",
                rule="trajectory.elsewhere",
                hint=f"to resume it from there, move {self.places.directory} away and resume again",
            )
        return versions

    def bring(
        self, folder: Path, key: Path
    ) -> tuple[RestoredTrajectory, dict[str, ArtifactVersion]]:
        """Rebuild the trajectory below ``folder``, and touch nothing else."""
        names = self.names()
        missing = {SESSION, TRACE, self.places.journal.name} - set(names)
        if TRACE in missing and self.places.journal.name in missing:
            raise UsageError(
                f"trajectory {self.places.trajectory_id} was found neither here nor at "
                f"{self.uri()}",
                rule="trajectory.unknown",
                hint="'coilclaw trace list' says which there are; --store names another store",
            )
        if missing:
            raise _refuse(self.places.trajectory_id, f"{self.uri(min(missing))} is missing")
        brought = TracePlaces(folder / BROUGHT, self.places.trajectory_id)
        versions, anchor = {}, anchor_path(self.places.journal).name
        for name in names:
            above = name.rpartition("/")[0]
            known = name in self.documents or above in {"bundles", "results"}
            if not known or name == anchor:
                continue  # the key of the anchor is elsewhere
            target = brought.directory / name
            os.makedirs(target.parent, mode=0o700, exist_ok=True)
            versions[name] = self.store.download(self.places.key_of(name), target)
        returned = restore_trajectory(folder / BROUGHT, folder, self.places.trajectory_id, key)
        parts = returned.history.parts
        kept = {name: one for name, one in versions.items() if self._is_live(name, parts)}
        if (version := self.store.head(self.places.key_of(anchor))) is not None:
            kept[anchor] = version
        return returned, {self.places.key_of(name): one for name, one in kept.items()}


def _is_beginning(path: Path, other: Path) -> bool:
    """Return whether a file begins with all of another."""
    with (
        explain_os_errors(f"compare {path} with {other}", rule=UNUSABLE),
        path.open("rb") as whole,
        other.open("rb") as start,
    ):
        while piece := start.read(CHUNK_BYTES):
            if whole.read(len(piece)) != piece:
                return False
    return True


def verify_stored(archive: TrajectoryArchive, wanted: str) -> TraceVerification:
    """Verify what a store holds of a trajectory.

    That its journal ends where it ended cannot be proved: the key of its anchor is elsewhere.
    """
    from coilclaw.traces.trajectory.verification import TraceVerification, verify_trajectory

    trajectory_id = archive.find(wanted)
    with archive.scratch() as folder:
        places = TracePlaces(folder, trajectory_id)
        try:
            returned, _ = StoredTrajectory(archive.store, places).bring(folder, places.key)
        except EnvironmentFault as problem:
            if problem.rule != UNUSABLE:
                raise
            return TraceVerification(
                trajectory_id, 0, 0, 0, ended=False, problems=(problem.message,)
            )
        found = verify_trajectory(places)
        # The restored document was rebuilt from the journal; compare the one in the store.
        given = TracePlaces(folder / BROUGHT, trajectory_id).document
        problems = [*list_trace_differences(given, places, returned), *found.problems]
    if returned.left_out:
        problems.append(f"store: the code of {returned.left_out} parts is not in it")
    return replace(found, problems=tuple(problems))


UNUSABLE: Final = "trajectory.store"
"""The rule of a stored trajectory that cannot be resumed."""
BATCH: Final = 64
AHEAD: Final = "parts.jsonl.ahead"
"""The journal as the store has it, if only a part of it could be resumed from."""
_UNANCHORED: Final = "anchor missing"
_FIXED: Final = frozenset(
    (
        *("schema_version", "trajectory_id", "agent", "agent_model", "started_at"),
        *("environment", "environment_version", "artifacts", "initial_commit"),
    )
)
"""What a trace says from its beginning to its end."""
_ADDED: Final = frozenset({"previous_hash", HASH_FIELD})


@dataclass(frozen=True, slots=True)
class RestoredTrajectory:
    """A trajectory that was restored."""

    plan: TrajectoryPlan
    history: History
    """Up to where it resumes."""
    left_out: int
    """Parts that were recorded, but whose code or results are not in the store."""


@dataclass(slots=True)
class _Read:
    """What a journal needs to be true, record by record."""

    needs: list[tuple[tuple[str, ...], dict[str, str]]] = field(default_factory=list)
    """Commits, and results by their names."""
    parts: list[str] = field(default_factory=list)
    """A digest of each part as the trace has it, in order."""

    def take(self, number: int, record: dict[str, Any]) -> None:
        if number == 1:
            self.needs.clear()
            self.parts.clear()
        commits = tuple(str(record[name]) for name in COMMITS if name in record)
        self.needs.append((commits, _list_results(record)))
        if record.get("type") == "part":
            self.parts.append(_digest_part(part_of(record)))


def restore_trajectory(
    brought: Path, home: Path, trajectory_id: str, key: Path
) -> RestoredTrajectory:
    """Make ``home/trajectories/ID`` of files that lie as they do in a store; nothing is trusted.

    The journal is the truth here as everywhere: its chain is followed, and it counts as far as the
    code and the results that it names are there. What is behind that point was recorded, but did
    not reach the store. The key of its anchor is elsewhere, so the journal gets a new anchor.
    ``home`` is any directory; ``key`` is that of the journals of this machine.
    """
    source, places = TracePlaces(brought, trajectory_id), TracePlaces(home, trajectory_id)
    wanted = plan.load_plan(source.session)
    if wanted.trajectory_id != trajectory_id:
        raise _refuse(trajectory_id, f"its session.json is that of {wanted.trajectory_id}")
    read = _read_journal(source)
    places.directory.mkdir(mode=0o700, parents=True)
    pieces = bundles.pieces(source.bundles)
    # The whole bundle has the branches beside the pieces, if any.
    whole = (source.bundle,) if source.bundle.is_file() else ()
    try:
        git = gather_bundles((*pieces, *whole), places.repository)
    except CoilClawError as problem:
        why = f"its bundles do not fit together: {problem.message}"
        raise _refuse(trajectory_id, why) from problem
    count = _count_leading_usable(read, bundles.commits(git), source)
    if count == 0:
        raise _refuse(trajectory_id, "the files it began with are not in its bundles")
    history, results = _copy_journal(source, places, key, count)
    _compare_parts(source, read.parts)
    for folder in (places.bundles, places.results):
        folder.mkdir(mode=0o700)
    for piece in pieces:
        if bundles.part_of(piece.name)[0] <= history.parts:
            os.replace(piece, places.bundles / piece.name)
    for name in results:
        os.replace(source.results / name, places.results / name)
    if history.end is not None and whole:
        os.replace(source.bundle, places.bundle)
    wanted.save(places.session)
    # The files at the last commit, in a repository of the agent's own that begins with them.
    files = places.directory / "files"
    Recording.of(trace.load_trace(places.document), git).checkout(history.commit, files)
    agent_workspace.prepare_workspace(places.workspace, files)
    remove_tree(files)
    if count < len(read.needs):
        shutil.copyfile(source.journal, places.directory / AHEAD)
    return RestoredTrajectory(wanted, history, len(read.parts) - history.parts)


def _read_journal(source: TracePlaces) -> _Read:
    """Follow the chain of a journal whose anchor cannot be checked."""
    read = _Read()
    try:
        report = journals.verify_journal(
            source.journal, hash_field=HASH_FIELD, key_path=source.key, observe=read.take
        )
    except (CoilClawError, KeyError, TypeError, AttributeError) as problem:
        raise _refuse(source.trajectory_id, f"its journal cannot be read: {problem}") from problem
    if report.break_ is not None and report.break_.reason != _UNANCHORED:
        raise _refuse(source.trajectory_id, f"journal: {report.break_.sentence}")
    return read


def _count_leading_usable(read: _Read, present: frozenset[str], source: TracePlaces) -> int:
    """Count the records before the first one with missing code or results.

    A stored result that does not match its recorded hash raises.
    """
    for number, (commits, results) in enumerate(read.needs):
        if not present.issuperset(commits):
            return number
        for name, expected in results.items():
            # A name comes from a journal of unknown origin: only what lies there counts.
            path = source.results / name
            if path.parent != source.results or not path.is_file():
                return number
            if digest_bytes(path.read_bytes()) != expected:
                why = f"the result {name} is not the one that was recorded"
                raise _refuse(source.trajectory_id, why)
    return len(read.needs)


def _copy_journal(
    source: TracePlaces, places: TracePlaces, key: Path, count: int
) -> tuple[History, set[str]]:
    """Write the journal again, with a new anchor; its lines stay the same."""
    history, results = History(), set[str]()
    key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unread = Journal(source.journal, hash_field=HASH_FIELD, key_path=key)
    batch: list[dict[str, object]] = []
    with Journal(places.journal, hash_field=HASH_FIELD, key_path=key) as journal:
        for record in islice(unread.read(), count):
            history.apply(record)
            results.update(_list_results(record))
            batch.append({name: record[name] for name in record if name not in _ADDED})
            if len(batch) == BATCH:
                journal.append_all(batch)
                batch.clear()
        journal.append_all(batch)
        if not source.journal.read_bytes().startswith(places.journal.read_bytes()):
            raise _refuse(source.trajectory_id, "its journal is not in canonical form")
        write_document(TraceDocument(places.document), history, journal)
    return history, results


def _list_results(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the results that a record names, by the names of their files."""
    return {
        f"{call['call_id']}.json": str(call["result_sha256"])
        for call in record.get("envoi_calls", ())
        if call.get("result_sha256") is not None
    }


def _compare_parts(source: TracePlaces, recorded: list[str]) -> None:
    """Refuse a trace that does not tell the same parts, as far as both go."""
    if not source.document.is_file():
        return
    try:
        found = parse_trace(source.document.read_bytes(), source.document.name)
    except UsageError as problem:
        raise _refuse(source.trajectory_id, problem.message) from problem
    parts = found.get("parts")
    same = isinstance(parts, list) and all(
        _digest_part(part) == digest for part, digest in zip(parts, recorded, strict=False)
    )
    if found.get("trajectory_id") != source.trajectory_id or not same:
        raise _refuse(source.trajectory_id, "its trace differs from its journal")


def _digest_part(part: object) -> str:
    return digest_bytes(encode_part(part)) if isinstance(part, dict) else ""


def list_trace_differences(
    source: Path, places: TracePlaces, returned: RestoredTrajectory
) -> tuple[str, ...]:
    """Return how the trace in a store differs from its journal.

    Documents go to a store one after the other: those of a run that goes on, or was killed, may be
    of different moments, so that only what never changes has to be the same.
    """
    rebuilt = parse_trace(places.document.read_bytes(), source.name)
    found = parse_trace(source.read_bytes(), source.name)
    ended = rebuilt["session_end"] is not None or found.get("session_end") is not None
    if ended and not returned.left_out:
        return tuple(differences(source, rebuilt))
    names = [name for name in sorted(_FIXED) if found.get(name) != rebuilt[name]]
    return (f"document: {', '.join(names)} differ from the journal",) if names else ()


def _refuse(trajectory_id: str, why: str) -> EnvironmentFault:
    message = f"trajectory {trajectory_id} cannot be resumed from the store: {why}"
    return EnvironmentFault(message, rule=UNUSABLE)
