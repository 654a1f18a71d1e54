"""``Spot``: the place that a path argument means, and the open tree it is reached through."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools.contract import text_schema
from coilclaw.kernel import PathRefused, PlanRefused, TreePath, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.changes import PathState
    from coilclaw.kernel import Json
    from coilclaw.workspace import Root, TreeState

MAX_PATH: Final = 4096
FILE_SCHEMA: Final[Json] = text_schema(MAX_PATH, "path of the file, relative to the workspace")

_ELSEWHERE: Final = frozenset({"path.device", "path.trailing", "path.drive", "path.backslash"})
"""What is wrong with a name on other systems only: no reason not to read what is there."""

UNFIT: Final = frozenset({"path.dangling", "path.directory", "path.changed", "path.unreadable"})
"""Refusals that say what the tree is like, and nothing about what may be done."""


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A place below the workspace or, where policy lets tools out of it, below ``/``."""

    given: str
    parts: tuple[str, ...]
    inside: bool

    def __str__(self) -> str:
        path = "/".join(self.parts) or "."
        return path if self.inside else f"/{path}"

    def to_read(self) -> TreePath:
        """Return the path of a file to read."""
        if not self.parts:
            raise PathRefused(f"path {quote_text(self.given)} is a directory", path=self.given)
        try:
            return TreePath.parse("/".join(self.parts))
        except PathRefused as refused:
            if refused.rule in _ELSEWHERE:
                return TreePath(self.parts)
            raise

    def to_write(self) -> TreePath:
        """Return the path of a file to write, which obeys the rules of every system."""
        return TreePath.parse("/".join(self.parts) or ".")


def find_path(given: str, context: ToolContext) -> WorkspacePath:
    """Say where a path leads: always through the workspace if that is where it ends."""
    place = context.locate(given)
    base = str(context.root.path)
    lexical, real = _below(place.lexical, base), _below(place.real, base)
    if real is not None:
        return WorkspacePath(given, real if lexical is None else lexical, inside=True)
    if context.security.workspace_only:
        if lexical is None:
            message = f"path {quote_text(given)} is outside the workspace"
            raise PathRefused(message, path=given, rule="path.outside")
        # A link leads out, or nobody knows: the walk itself says what is wrong with it.
        return WorkspacePath(given, lexical, inside=True)
    outside = _below(place.real, "/")
    if outside is None:
        message = f"nobody can say where path {quote_text(given)} leads"
        raise PathRefused(message, path=given, rule="path.unknown")
    return WorkspacePath(given, outside, inside=False)


def find_to_read(given: str, context: ToolContext) -> WorkspacePath:
    """Say where a path leads, the workspace itself included; it must be one that can be read."""
    spot = find_path(given, context)
    if spot.parts:
        spot.to_read()
    return spot


@contextmanager
def open_tree(spot: WorkspacePath, context: ToolContext) -> Iterator[tuple[Root, TreeState]]:
    """Open the tree that a spot lies in."""
    from coilclaw.workspace import Root, TreeState

    if spot.inside:
        yield context.root, context.state
        return
    with Root(Path("/")) as root:
        yield root, TreeState.of(context.home, root.path)


def look_up(root: Root, path: TreePath, *, limit: int) -> PathState | str:
    """Look a path up to read it; the text says why there is nothing to read."""
    try:
        return root.sight(path, limit=limit)
    except PlanRefused as refused:  # larger than the limit
        return refused.message
    except PathRefused as refused:
        if refused.rule in UNFIT:
            return refused.message
        raise
    except FileNotFoundError:  # between two looks at it
        return f"path {quote_text(str(path))} changed while it was looked at"


def refuse_off_limits(context: ToolContext, root: Root, parts: tuple[str, ...]) -> None:
    """Refuse a real place that policy keeps from every tool, however one came there."""
    path = str(root.path.joinpath(*parts))
    for rule, reason, places in (
        ("path.own", "is state of CoilClaw", (*context.security.own_paths, str(context.home))),
        ("path.forbidden", "is forbidden", context.security.forbidden_paths),
    ):
        if any(_below(path, place) is not None for place in places):
            raise PathRefused(f"{quote_text(path)} {reason}", path=path, rule=rule)


def _below(path: str | None, ancestor: str) -> tuple[str, ...] | None:
    """Return the names on the way down to a path, or ``None`` if it is not below."""
    if path is None:
        return None
    if path == ancestor:
        return ()
    base = ancestor.rstrip("/") + "/"
    return tuple(path[len(base) :].split("/")) if path.startswith(base) else None
