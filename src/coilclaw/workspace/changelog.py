"""The record of all changes of one tree: a journal, and a folder with the contents of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.storage.journal import Journal
from coilclaw.workspace import changefile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.changes.plan import Plan
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.state import TreeState

HASH_FIELD: Final = "change_hash"
ID_FIELD: Final = "id"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal."""

    id: str
    time: str
    origin: str
    group: str
    undoes: tuple[str, ...]
    files: int
    undone_by: str = ""


class Changelog:
    """Reads and extends the record of a tree's changes."""

    def __init__(self, state: TreeState) -> None:
        self._state = state

    def folder(self, change_id: str) -> Path:
        return self._state.changes / change_id

    def ready(self) -> None:
        """Make sure that a change can be recorded, before anything is done to the tree."""
        with self._journal() as journal:
            journal.open()

    def append(self, change: Change) -> None:
        """Record a change that is wholly in the tree."""
        with self._journal() as journal:
            journal.append(
                {
                    "id": change.id,
                    "time": change.time,
                    "origin": change.origin,
                    "group": change.group,
                    "undoes": list(change.undoes),
                    "files": len(change.files),
                    "record_sha256": changefile.digest(self.folder(change.id)),
                }
            )

    def entries(self) -> tuple[Entry, ...]:
        """Return all changes, oldest first, each knowing whether it was taken back."""
        found: dict[str, Entry] = {}
        for record in self._records():
            entry = Entry(
                str(record["id"]),
                str(record["time"]),
                str(record["origin"]),
                str(record["group"]),
                _ids(record["undoes"]),
                int(str(record["files"])),
            )
            found[entry.id] = entry
            _follow_undo(found, entry)
        return tuple(found.values())

    def holds(self, change_id: str) -> bool:
        return any(record["id"] == change_id for record in self._records())

    def find(self, prefix: str) -> Entry:
        """Return the change whose id is, or uniquely begins with, the given text."""
        entries = self.entries()
        matches = [entry for entry in entries if entry.id == prefix] or [
            entry for entry in entries if prefix and entry.id.startswith(prefix)
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(
                f"{prefix!r} fits {len(matches)} changes",
                rule="change.ambiguous",
                hint=", ".join(entry.id for entry in matches[:5]),
            )
        raise UsageError(
            f"there is no change {prefix!r} of {self._state.tree}",
            rule="change.unknown",
            hint="'coilclaw changes list' shows them",
        )

    def last(self) -> Entry:
        """Return the newest change that still stands and is no undo itself."""
        for entry in reversed(self.entries()):
            if not entry.undone_by and not entry.undoes:
                return entry
        raise UsageError(
            f"there is no change of {self._state.tree} to take back", rule="undo.nothing"
        )

    def group(self, name: str) -> tuple[Entry, ...]:
        """Return the changes of a group that stand, oldest first."""
        return tuple(
            entry
            for entry in self.entries()
            if entry.group == name and not entry.undone_by and not entry.undoes
        )

    def load(self, change_id: str) -> Change:
        return changefile.read(self.folder(change_id))

    def plan(self, change: Change) -> Plan:
        return changefile.plan_of(self.folder(change.id), change)

    def _records(self) -> Iterator[dict[str, object]]:
        if self._state.journal.exists():
            yield from self._journal().read()

    def _journal(self) -> Journal:
        return Journal(
            self._state.journal,
            hash_field=HASH_FIELD,
            id_field=ID_FIELD,
            key_path=self._state.key,
        )


def _ids(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _follow_undo(found: dict[str, Entry], entry: Entry) -> None:
    """An undo marks its changes as taken back; an undo of an undo makes them stand again."""
    for undone in entry.undoes:
        target = found.get(undone)
        if target is None:
            continue
        found[undone] = replace(target, undone_by=entry.id)
        for restored in target.undoes:
            if restored in found:
                found[restored] = replace(found[restored], undone_by="")
