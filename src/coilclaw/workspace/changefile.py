"""A change on disk: ``change.json`` says what each path was and is, ``contents`` has the bytes.

Both are synced before the tree is touched. They are what a crash is repaired from, and what an
``undo`` takes the old contents from.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.files import FileState, RegularFile, Symlink
from coilclaw.domain.treepath import TreePath
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import sync_directory, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT: Final = "coilclaw.change/1"
MAX_JSON_BYTES: Final = 256 * 2**20


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
            return (
                self.kind == "file"
                and self.executable == state.executable
                and self.sha256 == state.digest
            )
        return isinstance(state, Symlink) and self.kind == "link" and self.sha256 == state.digest


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

    @property
    def directory_modes(self) -> dict[tuple[str, ...], int]:
        """The bits of the directories that come back when the change is taken back."""
        return dict(self.emptied)


def write(
    folder: Path,
    change: Change,
    plan: Plan,
    old_modes: Mapping[TreePath, int],
    new_modes: Mapping[TreePath, int],
) -> Change:
    """Keep a change, with the bits of the files that are there, and of new ones where known."""
    folder.mkdir(mode=0o700)
    files: list[StoredFile] = []
    offset = 0
    with (folder / "contents").open("xb") as out:
        for item in plan.changes:
            before, data = _store(item.before, offset, old_modes.get(item.path))
            out.write(data)
            offset += len(data)
            after, data = _store(item.after, offset, new_modes.get(item.path))
            out.write(data)
            offset += len(data)
            files.append(StoredFile(item.path, before, after))
        out.flush()
        os.fsync(out.fileno())
    kept = Change(
        change.id,
        change.time,
        change.origin,
        change.group,
        change.undoes,
        tuple(files),
        change.directories,
        change.emptied,
    )
    write_atomic(folder / "change.json", _encode(kept))
    sync_directory(folder.parent)
    return kept


def read(folder: Path) -> Change:
    """Load a change by its folder."""
    try:
        with (folder / "change.json").open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError as problem:
        raise UsageError(f"there is no change {folder.name}", rule="change.unknown") from problem
    try:
        record = json.loads(raw)
        if record["format"] != FORMAT:
            raise EnvironmentFault(
                f"change {folder.name} has the format {record['format']!r}, not {FORMAT!r}",
                rule="change.format",
            )
        return _decode(record)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise EnvironmentFault(
            f"the record of change {folder.name} is damaged: {problem}", rule="change.damaged"
        ) from problem


def digest(folder: Path) -> str:
    """Return the SHA-256 of a change's record, for the journal."""
    return sha256((folder / "change.json").read_bytes()).hexdigest()


def content(folder: Path, stored: StoredState | None) -> FileState:
    """Load the bytes of one state; damaged bytes are an error, never a silent wrong restore."""
    if stored is None:
        return None
    with (folder / "contents").open("rb") as file:
        rest = os.fstat(file.fileno()).st_size - stored.offset
        file.seek(stored.offset)
        data = file.read(stored.size) if 0 <= stored.size <= rest else b""
    if sha256(data).hexdigest() != stored.sha256:
        raise EnvironmentFault(
            f"the kept contents of change {folder.name} are damaged", rule="change.damaged"
        )
    return Symlink(data) if stored.kind == "link" else RegularFile(data, stored.executable)


def plan_of(folder: Path, change: Change) -> Plan:
    """Return the plan that was applied, with all its bytes."""
    return Plan(
        tuple(
            FileChange(item.path, content(folder, item.before), content(folder, item.after))
            for item in change.files
        )
    )


def _store(state: FileState, offset: int, mode: int | None) -> tuple[StoredState | None, bytes]:
    if state is None:
        return None, b""
    if isinstance(state, Symlink):
        data = state.target
        return StoredState("link", state.digest, len(data), offset, None, False), data
    data = state.content
    return StoredState("file", state.digest, len(data), offset, mode, state.executable), data


def _encode(change: Change) -> bytes:
    record = {
        "format": FORMAT,
        "id": change.id,
        "time": change.time,
        "origin": change.origin,
        "group": change.group,
        "undoes": list(change.undoes),
        "directories": [list(parts) for parts in change.directories],
        "emptied": [[list(parts), mode] for parts, mode in change.emptied],
        "files": [
            {
                "path": list(item.path.parts),
                "before": _encode_state(item.before),
                "after": _encode_state(item.after),
            }
            for item in change.files
        ],
    }
    return json.dumps(record, indent=None, separators=(",", ":")).encode("ascii") + b"\n"


def _encode_state(stored: StoredState | None) -> dict[str, object] | None:
    if stored is None:
        return None
    return {
        "kind": stored.kind,
        "sha256": stored.sha256,
        "size": stored.size,
        "offset": stored.offset,
        "mode": stored.mode,
        "executable": stored.executable,
    }


def _decode(record: dict[str, object]) -> Change:
    files = record["files"]
    directories, emptied, undoes = record["directories"], record["emptied"], record["undoes"]
    if not (
        isinstance(files, list)
        and isinstance(directories, list)
        and isinstance(emptied, list)
        and isinstance(undoes, list)
    ):
        raise TypeError("files, directories and undone changes must be lists")
    return Change(
        id=str(record["id"]),
        time=str(record["time"]),
        origin=str(record["origin"]),
        group=str(record["group"]),
        undoes=tuple(str(item) for item in undoes),
        files=tuple(
            StoredFile(
                TreePath(_parts(item["path"])),
                _decode_state(item["before"]),
                _decode_state(item["after"]),
            )
            for item in files
        ),
        directories=tuple(_parts(parts) for parts in directories),
        emptied=tuple((_parts(parts), int(mode)) for parts, mode in emptied),
    )


def _parts(value: object) -> tuple[str, ...]:
    """Names of a path as a file system may have them, but none that leads elsewhere."""
    if not isinstance(value, list) or not value:
        raise TypeError("a path must be a list of names")
    for name in value:
        if not isinstance(name, str) or name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is no name in a path")
        os.fsencode(name)
    return tuple(value)


def _decode_state(record: dict[str, object] | None) -> StoredState | None:
    if record is None:
        return None
    size, offset, mode = record["size"], record["offset"], record["mode"]
    kind = record["kind"]
    if not isinstance(size, int) or not isinstance(offset, int) or offset < 0:
        raise TypeError("a state needs a size and an offset")
    if kind not in {"file", "link"}:
        raise TypeError("a state is a file or a link")
    return StoredState(
        kind="link" if kind == "link" else "file",
        sha256=str(record["sha256"]),
        size=size,
        offset=offset,
        mode=mode if isinstance(mode, int) else None,
        executable=bool(record["executable"]),
    )
