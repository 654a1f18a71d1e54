"""The record of all changes of one tree: a journal, and a folder with the contents of each.

In the folder of a change ``change.json`` says what each path was and is, and ``contents`` has the
bytes. Both are synced before the tree is touched: a crash is repaired from them, and an ``undo``
takes the old contents from them.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

from coilclaw.changes import PathChange, Plan
from coilclaw.kernel import (
    EnvironmentFault,
    FileState,
    Journal,
    JournalDamaged,
    RegularFile,
    Symlink,
    TreePath,
    UsageError,
    anchor_path,
    sync_directory,
    verify_journal,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import JournalReport
    from coilclaw.workspace.tree.state import TreeState

FORMAT: Final = "coilclaw.change/1"
MAX_JSON_BYTES: Final = 256 * 2**20
_TEXTS: Final = ("id", "time", "origin", "group", "record_sha256")


@dataclass(frozen=True, slots=True)
class StoredState:
    """A file or link as it is kept: its digest, and where its bytes stand in ``contents``."""

    kind: Literal["file", "link"]
    sha256: str
    size: int
    offset: int
    mode: int | None
    """All permission bits, where the file was there already; ``None`` for one that was made."""
    executable: bool

    def matches(self, state: object) -> bool:
        """Tell whether a state found in the tree is this one."""
        if isinstance(state, RegularFile):
            found = ("file", state.executable, state.digest)
        elif isinstance(state, Symlink):
            found = ("link", self.executable, state.digest)
        else:
            return False
        return (self.kind, self.executable, self.sha256) == found


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One path of a change."""

    path: TreePath
    before: StoredState | None
    after: StoredState | None


@dataclass(frozen=True, slots=True)
class Change:
    """One applied plan, as it is kept."""

    id: str
    time: str
    origin: str
    """Who asked for it, for example ``apply``, ``undo`` or ``restore``."""
    group: str
    """What belongs together for an undo of more than one change; may be empty."""
    undoes: tuple[str, ...]
    """The changes this one takes back; empty for any other."""
    files: tuple[StoredFile, ...]
    directories: tuple[tuple[str, ...], ...]
    """Directories the change makes, outermost first."""
    emptied: tuple[tuple[tuple[str, ...], int], ...]
    """Directories the change removes, outermost first, each with its permission bits."""


def write_change(
    folder: Path,
    change: Change,
    plan: Plan,
    old_modes: Mapping[TreePath, int | None],
    new_modes: Mapping[TreePath, int],
) -> Change:
    """Keep a change, with the bits of the files that are there, and of new ones where known."""
    folder.mkdir(mode=0o700)
    files: list[StoredFile] = []
    with (folder / "contents").open("xb") as out:
        for item in plan.changes:
            sides = []
            for state, modes in ((item.before, old_modes), (item.after, new_modes)):
                stored, data = _store(state, out.tell(), modes.get(item.path))
                out.write(data)
                sides.append(stored)
            files.append(StoredFile(item.path, *sides))
        out.flush()
        os.fsync(out.fileno())
    kept = replace(change, files=tuple(files))
    fields = ("id", "time", "origin", "group", "undoes", "directories", "emptied")
    record = {"format": FORMAT, **{name: getattr(kept, name) for name in fields}}
    record["files"] = [{**asdict(item), "path": item.path.parts} for item in files]
    data = json.dumps(record, separators=(",", ":")).encode("ascii")
    write_atomic(folder / "change.json", data + b"\n")
    sync_directory(folder.parent)
    return kept


def read_change(folder: Path) -> Change:
    """Load a change by its folder."""
    try:
        with (folder / "change.json").open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError as problem:
        raise UsageError(
            f"the change {folder.name} does not exist", rule="change.unknown"
        ) from problem
    try:
        record = json.loads(raw)
        if record["format"] != FORMAT:
            raise EnvironmentFault(
                f"change {folder.name} has the format {record['format']!r}, not {FORMAT!r}",
                rule="change.format",
            )
        return _decode(record)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        what = f"the record of change {folder.name} is damaged: {problem}"
        raise EnvironmentFault(what, rule="change.damaged") from problem


def digest_change(folder: Path) -> str:
    """Return the SHA-256 of a change's record, for the journal."""
    return sha256((folder / "change.json").read_bytes()).hexdigest()


def read_content(folder: Path, stored: StoredState | None) -> FileState:
    """Load the bytes of one state; damaged bytes are an error, never a silent wrong restore."""
    if stored is None:
        return None
    with (folder / "contents").open("rb") as file:
        rest = os.fstat(file.fileno()).st_size - stored.offset
        file.seek(stored.offset)
        data = file.read(stored.size) if 0 <= stored.size <= rest else b""
    if sha256(data).hexdigest() != stored.sha256:
        what = f"the kept contents of change {folder.name} are damaged"
        raise EnvironmentFault(what, rule="change.damaged")
    return Symlink(data) if stored.kind == "link" else RegularFile(data, stored.executable)


def load_plan(folder: Path, change: Change) -> Plan:
    """Return the plan that was applied, with all its bytes."""

    def load(item: StoredFile) -> PathChange:
        before, after = (read_content(folder, side) for side in (item.before, item.after))
        return PathChange(item.path, before, after)

    return Plan(tuple(map(load, change.files)))


def _store(state: FileState, offset: int, mode: int | None) -> tuple[StoredState | None, bytes]:
    if state is None:
        return None, b""
    if isinstance(state, Symlink):
        data = state.target
        return StoredState("link", state.digest, len(data), offset, None, False), data
    data = state.content
    return StoredState("file", state.digest, len(data), offset, mode, state.executable), data


def _decode(record: dict[str, Any]) -> Change:
    lists = ("files", "directories", "emptied", "undoes")
    if not all(isinstance(record[name], list) for name in lists):
        raise TypeError("files, directories and undone changes must be lists")
    return Change(
        **{name: str(record[name]) for name in _TEXTS[:-1]},
        undoes=tuple(map(str, record["undoes"])),
        files=tuple(
            StoredFile(
                TreePath(_parts(item["path"])),
                *(_decode_state(item[side]) for side in ("before", "after")),
            )
            for item in record["files"]
        ),
        directories=tuple(map(_parts, record["directories"])),
        emptied=tuple((_parts(parts), int(mode)) for parts, mode in record["emptied"]),
    )


def _parts(value: object) -> tuple[str, ...]:
    """Names of a path as a file system may have them, but none that leads elsewhere."""
    if not isinstance(value, list) or not value:
        raise TypeError("a path must be a list of names")
    for name in value:
        if not isinstance(name, str) or name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be a name in a path")
        os.fsencode(name)
    return tuple(value)


def _decode_state(record: dict[str, Any] | None) -> StoredState | None:
    if record is None:
        return None
    size, offset, mode = record["size"], record["offset"], record["mode"]
    if not isinstance(size, int) or not isinstance(offset, int) or offset < 0:
        raise TypeError("a state needs a size and an offset")
    if record["kind"] not in {"file", "link"} or not isinstance(mode, int | None):
        raise TypeError("the kind of a state is 'file' or 'link', and its mode an integer or null")
    return StoredState(**record)


CHANGE_ID: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{1,32}")
"""What the id of a change looks like; it also names a folder."""

HASH_FIELD: Final = "change_hash"
ID_FIELD: Final = "id"


@dataclass(frozen=True, slots=True)
class ChangeEntry:
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
        self._journal = Journal(
            state.journal, hash_field=HASH_FIELD, id_field=ID_FIELD, key_path=state.key
        )

    def ready(self) -> None:
        """Make sure that a change can be recorded, before anything is done to the tree."""
        self._journal.open()
        self._journal.close()

    def append(self, change: Change) -> None:
        """Record a change that is wholly in the tree."""
        facts = {name: getattr(change, name) for name in _TEXTS[:-1]}
        counts = {"undoes": list(change.undoes), "files": len(change.files)}
        kept = digest_change(self._state.changes / change.id)
        self._journal.append({**facts, **counts, "record_sha256": kept})
        self._journal.close()

    def entries(self) -> tuple[ChangeEntry, ...]:
        """Return all changes, oldest first, each knowing whether it was taken back."""
        found: dict[str, ChangeEntry] = {}
        for record in self._records():
            entry = self._entry(record)
            found[entry.id] = entry
            for undone in entry.undoes:
                _let_stand(found, undone, stands=False, by=entry.id)
        return tuple(found.values())

    def holds(self, change_id: str) -> bool:
        return any(record.get("id") == change_id for record in self._records())

    def find(self, prefix: str) -> ChangeEntry:
        """Return the change whose id is, or uniquely begins with, the given text."""
        entries = self.entries()
        matches = [entry for entry in entries if entry.id == prefix]
        matches = matches or [one for one in entries if prefix and one.id.startswith(prefix)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise UsageError(
                f"{prefix!r} fits {len(matches)} changes",
                rule="change.ambiguous",
                hint=", ".join(entry.id for entry in matches[:5]),
            )
        raise UsageError(
            f"{prefix!r} is not a change of {self._state.tree}",
            rule="change.unknown",
            hint="'coilclaw changes list' shows them",
        )

    def last(self) -> ChangeEntry:
        """Return the newest change that still stands and is not an undo itself."""
        standing = self._standing()
        if not standing:
            what = f"{self._state.tree} has no change to take back"
            raise UsageError(what, rule="undo.nothing")
        return standing[-1]

    def group(self, name: str) -> tuple[ChangeEntry, ...]:
        """Return the changes of a group that stand, oldest first."""
        return tuple(entry for entry in self._standing() if entry.group == name)

    def _standing(self) -> list[ChangeEntry]:
        return [one for one in self.entries() if not one.undone_by and not one.undoes]

    def load(self, entry: ChangeEntry) -> Change:
        """Return a change as it was kept; one that is not what was recorded is damaged."""
        folder = self._state.changes / entry.id
        change = read_change(folder)
        if digest_change(folder) != entry.record_sha256:
            raise EnvironmentFault(
                f"the record of change {entry.id} is not the one that was kept",
                rule="change.damaged",
                hint=f"'coilclaw changes verify' says more; it is kept in {folder}",
            )
        return change

    def plan(self, change: Change) -> Plan:
        return load_plan(self._state.changes / change.id, change)

    def verify(self) -> JournalReport | None:
        """Check the journal against its chain and its anchor; ``None`` if nothing was ever done."""
        journal = self._state.journal
        if not journal.exists() and not anchor_path(journal).exists():
            return None
        return verify_journal(
            journal, hash_field=HASH_FIELD, id_field=ID_FIELD, key_path=self._state.key
        )

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
        yield from self._journal.read()

    def _entry(self, record: Mapping[str, object]) -> ChangeEntry:
        try:
            undoes = record["undoes"]
            return ChangeEntry(
                **{name: str(record[name]) for name in _TEXTS},
                undoes=tuple(map(str, undoes)) if isinstance(undoes, list) else (),
                files=int(str(record["files"])),
            )
        except (KeyError, ValueError) as problem:
            what = f"{self._state.journal} holds a record that is not a change: {problem}"
            raise JournalDamaged(what) from problem


def _let_stand(found: dict[str, ChangeEntry], change_id: str, *, stands: bool, by: str) -> None:
    """A change that no longer stands has no effect, so what it took back stands again."""
    entry = found.get(change_id)
    if entry is None:
        return
    found[change_id] = replace(entry, undone_by="" if stands else by)
    for undone in entry.undoes:
        _let_stand(found, undone, stands=not stands, by=change_id)
