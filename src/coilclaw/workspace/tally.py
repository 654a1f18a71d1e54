"""How large a tree may be, and how much of it a scan has met."""

from __future__ import annotations

from dataclasses import dataclass

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault


@dataclass(frozen=True, slots=True)
class Bounds:
    """Beyond any of these a scan gives up, loudly."""

    entries: int = 2_000_000
    special: int = 200_000
    """Empty directories and opaque entries."""
    depth: int = 200
    """Each level holds one descriptor open while the levels below it are walked."""
    file_bytes: int = 4 * 2**30
    read_bytes: int = 64 * 2**30
    """Most that one scan reads of new and changed files."""


class Tally:
    """Counts, and raises when a bound is passed."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.entries = 0
        self.special = 0
        self.files = 0
        self.read_files = 0
        self.read_bytes = 0

    @property
    def room(self) -> int:
        """How many more entries there may be."""
        return self._bounds.entries - self.entries

    def enter(self, path: str, depth: int, more: int = 1) -> None:
        """Count entries; ``path`` is where they were met."""
        self.entries += more
        self.expect(path, 0)
        if depth > self._bounds.depth:
            raise EnvironmentFault(
                f"{shown(path)} is more than {self._bounds.depth} directories deep",
                rule="snapshot.depth",
            )

    def expect(self, path: str, more: int) -> None:
        """Say how many entries are about to be counted, before they take up room."""
        if more > self.room:
            raise EnvironmentFault(
                f"the tree has more than {self._bounds.entries} entries, up to {shown(path)}",
                rule="snapshot.entries",
                hint="exclude directories that need not be kept",
            )

    def enter_special(self, path: str) -> None:
        """Count an empty directory or an opaque entry."""
        self.special += 1
        if self.special > self._bounds.special:
            raise EnvironmentFault(
                f"the tree has more than {self._bounds.special} empty directories and special "
                f"files; the last was {shown(path)}",
                rule="snapshot.special",
            )

    def read(self, path: str, size: int) -> None:
        """Count the bytes of a file that is about to be read."""
        self.read_bytes += size
        if size > self._bounds.file_bytes:
            raise EnvironmentFault(
                f"{shown(path)} holds {size} bytes, more than {self._bounds.file_bytes}",
                rule="snapshot.file_bytes",
                hint="exclude it",
            )
        if self.read_bytes > self._bounds.read_bytes:
            raise EnvironmentFault(
                f"more than {self._bounds.read_bytes} bytes have to be read; "
                f"the last file was {shown(path)}",
                rule="snapshot.read_bytes",
                hint="exclude directories that need not be kept",
            )
