"""What a scan leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LEFT_OUT: Final = (".runtime-cache/cortexpilot",)
"""Never part of a snapshot: the runtime root. The tree's own ``.git`` is fingerprinted."""


class Exclusion:
    """Paths that are left out with everything below them, or whatever a function says."""

    def __init__(self, rule: tuple[str, ...] | Callable[[str], bool]) -> None:
        self.named: tuple[str, ...] = ()
        if not callable(rule):
            self.named = tuple(sorted({_checked(path) for path in rule}))
        paths = (*LEFT_OUT, *self.named)
        self._paths = frozenset(paths)
        self._parents = frozenset(_parent(path) for path in self._paths)
        self._says = rule if callable(rule) else None

    def covers(self, path: str) -> bool:
        """Whether a path is left out; its parents were asked about before."""
        return path in self._paths or (self._says is not None and self._says(path))

    def touches(self, prefix: str) -> bool:
        """Whether anything directly in this directory (a path with a slash) may be left out."""
        return self._says is not None or prefix in self._parents


def _checked(path: str) -> str:
    """Return a path of the tree as a scan spells it."""
    trimmed = path.removeprefix("./").rstrip("/")
    if path.startswith("/") or not trimmed or {"", ".", ".."} & set(trimmed.split("/")):
        raise UsageError(
            f"{shown(path)} is no path inside the tree that could be left out",
            rule="snapshot.exclude",
        )
    return trimmed


def _parent(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head + slash
