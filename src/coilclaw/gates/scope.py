"""``Scope``: what a contract lets a worker change, compared name by name and never normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.paths import flaw
from coilclaw.domain.treepath import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

RUNTIME_ROOT: Final = ".runtime-cache/cortexpilot"
CONTROL_PATHS: Final = ("policies", "schemas")
"""Where a control root keeps what judges the work."""
_STRAY: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of one task."""

    allowed_paths: tuple[str, ...]
    """Files, or directories with all that is below; a slash at the end means a directory only."""
    binary_paths: tuple[str, ...] = ()
    """Where contents that are no text may change; they have to be allowed as well."""
    protected: tuple[str, ...] = ()
    """More paths that may not change, whatever is allowed."""
    control: tuple[str, ...] = CONTROL_PATHS
    """What judges the work; no contract can allow it."""
    runtime_root: str = RUNTIME_ROOT
    """Relative to the tree; the usual place is guarded as well."""
    read_only: bool = False
    """Whether nothing at all may change."""
    max_changes: int | None = None
    """How many paths may change, where a pack limits it."""
    max_patch_bytes: int | None = None
    """The longest patch; whoever makes the patch compares."""


@dataclass(frozen=True, slots=True)
class Places:
    """Entries such as ``allowed_paths``; those that are malformed cover nothing."""

    _entries: tuple[tuple[list[str], bool], ...]

    @classmethod
    def of(cls, entries: Iterable[str]) -> Places:
        sound = (entry for entry in entries if flaw(entry) is None)
        return cls(tuple((entry.rstrip("/").split("/"), entry.endswith("/")) for entry in sound))

    def cover(self, path: str, *, directory: bool = False) -> bool:
        """Whether an entry is the path or a directory above it, segment by segment.

        ``directory`` says that a directory stands there: one above an entry is covered as well.
        """
        names = path.split("/")
        if not _STRAY.isdisjoint(names):
            return False
        for entry, below_only in self._entries:
            if names[: len(entry)] == entry and (
                directory or not below_only or len(names) > len(entry)
            ):
                return True
            if directory and entry[: len(names)] == names:
                return True
        return False


def covers(entry: str, path: str) -> bool:
    """Whether one entry covers a path."""
    return Places.of((entry,)).cover(path)


def lies_at(place: str, path: str) -> bool:
    """Whether the path is the place or below it for the least discerning file system."""
    above = [folded(name) for name in place.strip("/").split("/")]
    return [folded(name) for name in path.split("/")[: len(above)]] == above


def folded(name: str) -> str:
    """Fold a name as ``TreePath`` does, quickly where it is ASCII."""
    return (name.lower().rstrip(". ") or name) if name.isascii() else fold(name)


def legible(path: str) -> str:
    """Return a path as valid Unicode: what is not is written as escapes."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")
