"""An open tree with its state: what every command on a root works with."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.workspace import recovery
from coilclaw.workspace.changelog import Changelog
from coilclaw.workspace.resolve import Root
from coilclaw.workspace.state import TreeState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.workspace.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that is open, repaired, and ready to be worked on."""

    root: Root
    state: TreeState
    changelog: Changelog
    repaired: Recovery | None


@contextmanager
def open_tree(path: Path, home: Path) -> Iterator[Tree]:
    """Open a tree and first finish or take back a change that was interrupted in it."""
    with Root(path) as root:
        state = TreeState.of(home, root.path)
        repaired = recovery.repair(root, state)
        yield Tree(root, state, Changelog(state), repaired)
