"""Paths of the tree as locks compare them: in the eyes of the least discerning file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import TreePath, fold
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PATHS: Final = 10_000
"""Most paths that one task may lock."""


def fold_path(path: str) -> tuple[str, ...]:
    """Return the segments of a path, folded; those of the whole tree are none."""
    return tuple(fold(part) for part in TreePath.parse_directory(path))


def overlap(first: str, second: str) -> bool:
    """Whether two paths of the tree cannot be changed independently."""
    return PathIndex((first,)).find(fold_path(second)) is not None


class PathIndex:
    """Paths to be compared with many others, at a cost that does not grow with their number."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._exact: dict[tuple[str, ...], str] = {}
        self._above: dict[tuple[str, ...], str] = {}
        for path in paths:
            parts = fold_path(path)
            self._exact.setdefault(parts, path)
            for depth in range(len(parts)):
                self._above.setdefault(parts[:depth], path)

    def find(self, parts: tuple[str, ...]) -> str | None:
        """Return a path that is the folded one, lies below it or above it."""
        for depth in range(len(parts) + 1):
            if parts[:depth] in self._exact:
                return self._exact[parts[:depth]]
        return self._above.get(parts)


def normalize_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Spell each path in one way only; a plain dot is the whole tree."""
    if not paths or len(paths) > MAX_PATHS:
        raise UsageError(
            f"a task locks between 1 and {MAX_PATHS} paths, not {len(paths)}", rule="lock.paths"
        )
    spelled = ("/".join(TreePath.parse_directory(path)) or "." for path in paths)
    return tuple(dict.fromkeys(spelled))
