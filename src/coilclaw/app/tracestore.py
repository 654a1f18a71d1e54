"""A trajectory and its store of artifacts: whether it can go there, go on there, or come back."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.artifacts.store import CONFLICT, NETWORK, Version
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.paths import anchor_path
from coilclaw.trajectory import bundles
from coilclaw.trajectory.places import Places
from coilclaw.trajectory.publishing import BUNDLE, SESSION, TRACE
from coilclaw.trajectory.returning import UNUSABLE, Returned, rebuild, unlike

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.app.replaywiring import Archive
    from coilclaw.artifacts.store import Store
    from coilclaw.trajectory.verifying import Verification

CHUNK_BYTES: Final = 2**20
BROUGHT: Final = "brought"
_PROBE: Final = "probe"
_PROBE_BYTES: Final = 2**16
"""Enough for a disk without room to be noticed."""
_NEVER: Final = Version("never", 0)
"""A version that no artifact ever has."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a store keeps one trajectory."""

    store: Store
    places: Places

    @property
    def documents(self) -> tuple[str, ...]:
        """The names of what is written again and again."""
        journal = self.places.journal
        return (SESSION, TRACE, journal.name, anchor_path(journal).name, BUNDLE)

    def uri(self, name: str = TRACE) -> str:
        return self.store.uri(self.places.key_of(name))

    def names(self) -> tuple[str, ...]:
        """Everything that is there, by its name below the trajectory."""
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
            raise EnvironmentFault(
                f"{problem.message}; nothing was begun",
                rule=problem.rule,
                hint="check the way to it and AWS_ENDPOINT_URL; --store names another store",
            ) from problem
        try:
            self.store.put(self.places.key_of(_PROBE), bytes(_PROBE_BYTES), previous=_NEVER)
        except EnvironmentFault as problem:
            if problem.rule == CONFLICT:
                return names
            raise
        raise EnvironmentFault(
            f"the artifact store at {self.uri(_PROBE)} does not honour conditional writes",
            rule="artifact.conditions",
            hint="two recordings would overwrite each other there unnoticed: use another store",
        )

    def require_free(self) -> None:
        """Refuse a store that cannot be used, or that has a trajectory of this id."""
        if TRACE in self.require_usable():
            raise UsageError(
                f"there is a trajectory {self.places.trajectory_id} already, at {self.uri()}",
                rule="trajectory.exists",
                hint="go on with it by --resume, or give another id",
            )

    def versions(self, parts: int) -> dict[str, Version]:
        """The versions that a trajectory with so many parts goes on from.

        Besides the documents: pieces of checkpoints whose parts were never recorded.
        """
        names = [name for name in self.names() if name in self.documents or _beyond(name, parts)]
        found = {}
        for key in map(self.places.key_of, names):
            version = self.store.head(key)
            if version is not None:
                found[key] = version
        return found

    def require_ours(self, folder: Path, parts: int) -> dict[str, Version]:
        """The versions to go on from; refuse a store whose record is not a beginning of ours."""
        # Versions first: what somebody else writes after this is noticed when we write.
        versions = self.versions(parts)
        key = self.places.key_of(self.places.journal.name)
        if key not in versions:
            return versions
        versions[key] = self.store.download(key, folder / "journal")
        if not _begins(self.places.journal, folder / "journal"):
            raise EnvironmentFault(
                f"trajectory {self.places.trajectory_id} was gone on with elsewhere: "
                f"{self.uri(self.places.journal.name)} has records that are not here",
                rule="trajectory.elsewhere",
                hint=f"to go on from there, move {self.places.directory} away and resume again",
            )
        return versions

    def bring(self, folder: Path, key: Path) -> tuple[Returned, dict[str, Version]]:
        """Rebuild the trajectory below ``folder``; nothing of ours is touched."""
        names = self.names()
        missing = {SESSION, TRACE, self.places.journal.name} - set(names)
        if TRACE in missing and self.places.journal.name in missing:
            raise UsageError(
                f"there is no trajectory {self.places.trajectory_id}, neither here nor at "
                f"{self.uri()}",
                rule="trajectory.unknown",
                hint="'coilclaw trace list' says which there are; --store names another store",
            )
        if missing:
            raise EnvironmentFault(
                f"trajectory {self.places.trajectory_id} cannot be gone on with from the store: "
                f"there is no {self.uri(min(missing))}",
                rule=UNUSABLE,
            )
        brought = Places(folder / BROUGHT, self.places.trajectory_id)
        versions = {}
        for name in names:
            above, _, leaf = name.rpartition("/")
            if name not in self.documents and above not in {"bundles", "results"}:
                continue
            if name == anchor_path(self.places.journal).name:
                continue  # nobody here has its key
            target = brought.directory / above / leaf if above else brought.directory / leaf
            os.makedirs(target.parent, mode=0o700, exist_ok=True)
            versions[self.places.key_of(name)] = self.store.download(
                self.places.key_of(name), target
            )
        returned = rebuild(folder / BROUGHT, folder, self.places.trajectory_id, key)
        parts = returned.history.parts
        kept = {
            at: version
            for at, version in versions.items()
            if (name := at.removeprefix(self.places.key_of(""))) in self.documents
            or _beyond(name, parts)
        }
        anchor = self.places.key_of(anchor_path(self.places.journal).name)
        version = self.store.head(anchor)
        return returned, kept if version is None else {**kept, anchor: version}


def _beyond(name: str, parts: int) -> bool:
    folder, _, leaf = name.rpartition("/")
    return folder == "bundles" and bundles.is_piece(leaf) and bundles.part_of(leaf)[0] > parts


def _begins(path: Path, other: Path) -> bool:
    """Whether a file begins with all of another."""
    try:
        with path.open("rb") as whole, other.open("rb") as start:
            while piece := start.read(CHUNK_BYTES):
                if whole.read(len(piece)) != piece:
                    return False
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {problem.filename}: {problem.strerror}", rule="trajectory.store"
        ) from problem
    return True


def verified(archive: Archive, wanted: str) -> Verification:
    """Verify what a store holds of a trajectory.

    That its journal ends where it ended cannot be proved: the key of its anchor is elsewhere.
    """
    from coilclaw.trajectory.verifying import Verification, verify

    trajectory_id = archive.find(wanted)
    with archive.scratch() as folder:
        places = Places(folder, trajectory_id)
        try:
            returned, _ = Shelf(archive.store, places).bring(folder, places.key)
        except EnvironmentFault as problem:
            if problem.rule != UNUSABLE:
                raise
            return Verification(trajectory_id, 0, 0, 0, ended=False, problems=(problem.message,))
        found = verify(places)
        # What was brought was written anew from the journal; what people read is the store's own.
        given = Places(folder / BROUGHT, trajectory_id).document
        problems = [*unlike(given, places, returned), *found.problems]
    if returned.left_out:
        problems.append(f"store: the code of {returned.left_out} parts is not in it")
    return replace(found, problems=tuple(problems))
