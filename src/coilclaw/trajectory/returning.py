"""``rebuild``: a trajectory's directory, made anew from what a store of artifacts holds of it.

The journal is the truth here as everywhere: its chain is followed, and it counts as far as the code
and the results that it names are there. What is behind that point was recorded, but did not reach
the store. Nobody here has the key of its anchor, so that the journal gets one of our own.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from coilclaw.domain.canonical import digest
from coilclaw.errors import CoilClawError, EnvironmentFault, UsageError
from coilclaw.storage import verify as journals
from coilclaw.storage.journal import Journal
from coilclaw.trajectory import bundles, plan, trace, workspaces
from coilclaw.trajectory.document import Document, line_of, parse
from coilclaw.trajectory.history import HASH_FIELD, History, part_of
from coilclaw.trajectory.opening import rebuild as write_document
from coilclaw.trajectory.places import Places
from coilclaw.trajectory.replaying import Recording, gather
from coilclaw.trajectory.verifying import differences
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.trajectory.plan import Plan
    from coilclaw.workspace.git import Git

UNUSABLE: Final = "trajectory.store"
"""The rule of what a store holds, and what cannot be gone on from."""
BATCH: Final = 64
AHEAD: Final = "parts.jsonl.ahead"
"""The journal as the store has it, where some of it could not be gone on from."""
_UNANCHORED: Final = "anchor missing"
_COMMITS: Final = ("initial_commit", "git_commit", "final_git_commit")
_FIXED: Final = frozenset(
    {
        "schema_version",
        "trajectory_id",
        "agent",
        "agent_model",
        "started_at",
        "environment",
        "environment_version",
        "artifacts",
        "initial_commit",
    }
)
"""What a trace says from its beginning to its end."""
_ADDED: Final = frozenset({"previous_hash", HASH_FIELD})


@dataclass(frozen=True, slots=True)
class Returned:
    """A trajectory that is back."""

    plan: Plan
    history: History
    """Up to where it goes on."""
    left_out: int
    """Parts that were recorded, but whose code or results are not in the store."""


@dataclass(slots=True)
class _Read:
    """What a journal needs to be true, record by record."""

    needs: list[tuple[tuple[str, ...], dict[str, str]]] = field(default_factory=list)
    """Commits, and results by their names."""
    told: list[str] = field(default_factory=list)
    """A digest of each part as the trace has it, in order."""
    parts: int = 0

    def take(self, number: int, record: dict[str, Any]) -> None:
        if number == 1:
            self.needs.clear()
            self.told.clear()
            self.parts = 0
        commits = tuple(str(record[name]) for name in _COMMITS if name in record)
        results = {
            f"{call['call_id']}.json": str(call["result_sha256"])
            for call in record.get("envoi_calls", ())
            if call.get("result_sha256") is not None
        }
        self.needs.append((commits, results))
        if record.get("type") == "part":
            self.parts += 1
            self.told.append(_told(part_of(record)))


def rebuild(brought: Path, home: Path, trajectory_id: str, key: Path) -> Returned:
    """Make ``home/trajectories/ID`` of files that lie as they do in a store; nothing is trusted.

    ``home`` is any directory; ``key`` is that of the journals of this machine.
    """
    source, places = Places(brought, trajectory_id), Places(home, trajectory_id)
    wanted = plan.load(source.session)
    if wanted.trajectory_id != trajectory_id:
        raise _unusable(trajectory_id, f"its session.json is that of {wanted.trajectory_id}")
    read = _followed(source)
    places.directory.mkdir(mode=0o700, parents=True)
    git = _assembled(source, places)
    present = bundles.commits(git)
    count = _usable(read, present, source)
    if count == 0:
        raise _unusable(trajectory_id, "the files it began with are not in its bundles")
    history, kept = _copied(source, places, key, count)
    _compare(source, read)
    _files(source, places, history.parts, kept)
    if history.end is not None and source.bundle.is_file():
        os.replace(source.bundle, places.bundle)
    wanted.save(places.session)
    _workspace(places, history, git)
    left_out = read.parts - history.parts
    if count < len(read.needs):
        shutil.copyfile(source.journal, places.directory / AHEAD)
    return Returned(wanted, history, left_out)


def _followed(source: Places) -> _Read:
    """Follow the chain of a journal whose anchor cannot be checked."""
    read = _Read()
    try:
        report = journals.verify(
            source.journal, hash_field=HASH_FIELD, key_path=source.key, observe=read.take
        )
    except (CoilClawError, KeyError, TypeError, AttributeError) as problem:
        raise _unusable(source.trajectory_id, f"its journal cannot be read: {problem}") from problem
    if report.break_ is not None and report.break_.reason != _UNANCHORED:
        raise _unusable(source.trajectory_id, f"journal: {report.break_.sentence}")
    return read


def _assembled(source: Places, places: Places) -> Git:
    """The repository, of the pieces; the whole bundle has the branches beside them, if any."""
    pieces = bundles.pieces(source.bundles)
    whole = (source.bundle,) if source.bundle.is_file() else ()
    try:
        return gather((*pieces, *whole), places.repository)
    except CoilClawError as problem:
        raise _unusable(
            source.trajectory_id, f"its bundles do not fit together: {problem.message}"
        ) from problem


def _usable(read: _Read, present: frozenset[str], source: Places) -> int:
    """How many records can be gone on from: with all their code and results."""
    for number, (commits, results) in enumerate(read.needs):
        if not present.issuperset(commits):
            return number
        for name, expected in results.items():
            found = _result(source, name)
            if found is None:
                return number
            if digest(found) != expected:
                raise _unusable(
                    source.trajectory_id, f"the result {name} is not the one that was recorded"
                )
    return len(read.needs)


def _result(source: Places, name: str) -> bytes | None:
    # A name comes from a journal that somebody else wrote: only what lies there counts.
    path = source.results / name
    if path.parent != source.results or not path.is_file():
        return None
    return path.read_bytes()


def _copied(source: Places, places: Places, key: Path, count: int) -> tuple[History, set[str]]:
    """Write the journal again, with an anchor of ours; the lines come out the same."""
    history, results = History(), set[str]()
    key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal(places.journal, hash_field=HASH_FIELD, key_path=key)
    unread = Journal(source.journal, hash_field=HASH_FIELD, key_path=key)
    batch: list[dict[str, object]] = []
    with journal:
        for record in _first(unread.read(), count):
            history.apply(record)
            results.update(f"{call['call_id']}.json" for call in _calls(record))
            batch.append({name: record[name] for name in record if name not in _ADDED})
            if len(batch) == BATCH:
                journal.append_all(batch)
                batch.clear()
        journal.append_all(batch)
        written = places.journal.read_bytes()
        if not source.journal.read_bytes().startswith(written):
            raise _unusable(source.trajectory_id, "its journal is not written as ours are")
        write_document(Document(places.document), history, journal)
    return history, results


def _first(records: Iterator[dict[str, object]], count: int) -> Iterator[dict[str, Any]]:
    for _, record in zip(range(count), records, strict=False):
        yield record


def _calls(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for call in record.get("envoi_calls", ()) if call.get("result_sha256")]


def _compare(source: Places, read: _Read) -> None:
    """The trace that is there tells the same parts, as far as both go."""
    if not source.document.is_file():
        return
    try:
        found = parse(source.document.read_bytes(), source.document.name)
    except UsageError as problem:
        raise _unusable(source.trajectory_id, problem.message) from problem
    parts = found.get("parts")
    told = [_told(part) for part in parts] if isinstance(parts, list) else []
    common = min(len(told), len(read.told))
    same = isinstance(parts, list) and told[:common] == read.told[:common]
    if found.get("trajectory_id") != source.trajectory_id or not same:
        raise _unusable(source.trajectory_id, "its trace does not tell what its journal does")


def _told(part: object) -> str:
    return digest(line_of(part)) if isinstance(part, dict) else ""


def unlike(source: Path, places: Places, returned: Returned) -> tuple[str, ...]:
    """Say in what the trace of a store is not the one that its journal tells.

    Documents go to a store one after the other: those of a run that goes on, or was killed, may be
    of different moments, so that only what never changes has to be the same.
    """
    rebuilt = parse(places.document.read_bytes(), source.name)
    found = parse(source.read_bytes(), source.name)
    ended = rebuilt["session_end"] is not None or found.get("session_end") is not None
    if ended and not returned.left_out:
        return tuple(differences(source, rebuilt))
    names = [name for name in sorted(_FIXED) if found.get(name) != rebuilt[name]]
    return (f"document: {', '.join(names)} differ from the journal",) if names else ()


def _files(source: Places, places: Places, parts: int, results: set[str]) -> None:
    """Pieces and results, as far as they belong to what was kept."""
    places.bundles.mkdir(mode=0o700)
    places.results.mkdir(mode=0o700)
    for piece in bundles.pieces(source.bundles):
        if bundles.part_of(piece.name)[0] <= parts:
            os.replace(piece, places.bundles / piece.name)
    for name in results:
        os.replace(source.results / name, places.results / name)


def _workspace(places: Places, history: History, git: Git) -> None:
    """The files at the last commit, in a repository of the agent's own that begins with them."""
    recording = Recording.of(trace.load(places.document), git)
    files = places.directory / "files"
    recording.checkout(history.commit, files)
    workspaces.prepare(places.workspace, files)
    remove_tree(files)


def _unusable(trajectory_id: str, why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"trajectory {trajectory_id} cannot be gone on with from the store: {why}",
        rule=UNUSABLE,
    )
