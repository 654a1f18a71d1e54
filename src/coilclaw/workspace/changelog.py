"""The record of all changes of one tree: a journal, and a folder with the contents of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, JournalDamaged, UsageError
from coilclaw.storage.journal import Journal
from coilclaw.storage.paths import anchor_path
from coilclaw.storage.verify import verify
from coilclaw.workspace import changefile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.changes.plan import Plan
    from coilclaw.storage.verify import JournalReport
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.state import TreeState

ID: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{1,32}")
"""What the id of a change looks like; it also names a folder."""

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
    record_sha256: str = ""
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
            entry = self._entry(record)
            found[entry.id] = entry
            for undone in entry.undoes:
                _let_stand(found, undone, stands=False, by=entry.id)
        return tuple(found.values())

    def holds(self, change_id: str) -> bool:
        return any(record.get("id") == change_id for record in self._records())

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

    def load(self, entry: Entry) -> Change:
        """Return a change as it was kept; one that is not what was recorded is damaged."""
        folder = self.folder(entry.id)
        change = changefile.read(folder)
        if changefile.digest(folder) != entry.record_sha256:
            raise EnvironmentFault(
                f"the record of change {entry.id} is not the one that was kept",
                rule="change.damaged",
                hint=f"'coilclaw changes verify' says more; it is kept in {folder}",
            )
        return change

    def plan(self, change: Change) -> Plan:
        return changefile.plan_of(self.folder(change.id), change)

    def verify(self) -> JournalReport | None:
        """Check the journal against its chain and its anchor; ``None`` if nothing was ever done."""
        journal = self._state.journal
        if not journal.exists() and not anchor_path(journal).exists():
            return None
        return verify(journal, hash_field=HASH_FIELD, id_field=ID_FIELD, key_path=self._state.key)

    def _records(self) -> Iterator[dict[str, object]]:
        """Read the journal, but never one that was tampered with."""
        report = self.verify()
        if report is None:
            return
        if report.break_ is not None:
            raise JournalDamaged(
                f"{self._state.journal} is damaged: {report.break_.sentence}",
                hint="'coilclaw changes verify' says more; keep the file as evidence",
            )
        yield from self._journal().read()

    def _entry(self, record: Mapping[str, object]) -> Entry:
        try:
            return Entry(
                str(record["id"]),
                str(record["time"]),
                str(record["origin"]),
                str(record["group"]),
                _ids(record["undoes"]),
                int(str(record["files"])),
                str(record["record_sha256"]),
            )
        except (KeyError, ValueError) as problem:
            raise JournalDamaged(
                f"{self._state.journal} holds a record that is none of a change: {problem}"
            ) from problem

    def _journal(self) -> Journal:
        return Journal(
            self._state.journal,
            hash_field=HASH_FIELD,
            id_field=ID_FIELD,
            key_path=self._state.key,
        )


def _ids(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _let_stand(found: dict[str, Entry], change_id: str, *, stands: bool, by: str) -> None:
    """A change that no longer stands has no effect, so what it took back stands again."""
    entry = found.get(change_id)
    if entry is None:
        return
    found[change_id] = replace(entry, undone_by="" if stands else by)
    for undone in entry.undoes:
        _let_stand(found, undone, stands=not stands, by=change_id)
