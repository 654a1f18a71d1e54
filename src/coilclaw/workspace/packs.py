"""``Packs``: the packs of an object store, and the list by which it knows that it lost one.

The list has an id, which changes when a pack that stands in it is gone or damaged. Whoever
remembers what is stored remembers that id with it.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

from coilclaw.errors import GitFailed
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.workspace.git import Git

MAX_LIST_BYTES: Final = 2**20
MAX_PACKS: Final = 50
"""With more packs than this the small ones are joined, so that looking things up stays quick."""
TIMEOUT_S: Final = 3600.0


class Packs:
    """Everything here but ``generation`` and ``any`` needs the lock of the store."""

    def __init__(self, git: Git, list_path: Path) -> None:
        self._git = git
        self._list = list_path
        self._directory = git.git_dir / "objects" / "pack"

    def any(self) -> bool:
        return next(self._directory.glob("*.pack"), None) is not None

    def generation(self) -> str | None:
        """Return the id of the list if every pack in it is there, else ``None``."""
        try:
            with self._list.open("rb") as file:
                listed = json.loads(file.read(MAX_LIST_BYTES))
            whole = all(self._size(name) == size for name, size in listed["packs"].items())
            return str(listed["id"]) if whole else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # no list, or no list of ours: nothing is known about the store

    def renew(self) -> str:
        """Start a new list from what is there and sound; the rest is moved out of git's sight."""
        for index in self._directory.glob("*.idx"):
            if not self._sound(index):
                for path in self._directory.glob(f"{index.stem}.*"):
                    path.rename(path.with_name(f"{path.name}.damaged"))
        return self.write(secrets.token_hex(16))

    def write(self, generation: str) -> str:
        """List the packs that are there, under an id that is returned."""
        packs = {
            pack.name: pack.stat().st_size
            for pack in sorted(self._directory.glob("*.pack"))
            if pack.with_suffix(".idx").exists()
        }
        document = json.dumps({"id": generation, "packs": packs}, sort_keys=True)
        write_atomic(self._list, document.encode("ascii"), mode=0o600, sync=False)
        return generation

    def join(self) -> None:
        """Make few packs of many; a pack is only ever joined with smaller ones."""
        if sum(1 for _ in self._directory.glob("*.pack")) > MAX_PACKS:
            self._git.run("repack", "-d", "-q", "--geometric=2", "--window=0", timeout_s=TIMEOUT_S)

    def sweep(self) -> None:
        """Remove what a git process that was killed left half written."""
        for pattern in ("tmp_*", ".tmp-*"):
            for path in self._directory.glob(pattern):
                path.unlink(missing_ok=True)

    def _sound(self, index: Path) -> bool:
        try:
            self._git.run("verify-pack", str(index), timeout_s=TIMEOUT_S)
        except GitFailed as problem:
            if problem.rule != GitFailed.rule:
                raise
            return False
        return True

    def _size(self, name: str) -> int:
        """The size of a pack that has an index."""
        (self._directory / name).with_suffix(".idx").stat()
        return (self._directory / name).stat().st_size
