"""``WorkspacePath``: the place that a path argument names, and the open tree that holds it."""

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
"""Flaws of a name that matter only on other systems: they do not prevent reading."""

UNFIT: Final = frozenset({"path.dangling", "path.directory", "path.changed", "path.unreadable"})
"""Refusals that describe the tree and not a permission."""


@dataclass(frozen=True, slots=True)
class WorkspacePath:
    """A path below the workspace or, if the policy allows it, below ``/``."""

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
        """Return the path of a file to write, which must be valid on every system."""
        return TreePath.parse("/".join(self.parts) or ".")


def find_path(given: str, context: ToolContext) -> WorkspacePath:
    """Return the place that a path leads to; raise ``PathRefused`` if it may not be used.

    A path that ends in the workspace is always reached through the workspace.
    """
    place = context.locate(given)
    base = str(context.root.path)
    lexical, real = _names_below(place.lexical, base), _names_below(place.real, base)
    if real is not None:
        return WorkspacePath(given, real if lexical is None else lexical, inside=True)
    if context.security.workspace_only:
        if lexical is None:
            message = f"path {quote_text(given)} is outside the workspace"
            raise PathRefused(message, path=given, rule="path.outside")
        # A link leads outside, or the target is unknown: the walk itself reports the reason.
        return WorkspacePath(given, lexical, inside=True)
    outside = _names_below(place.real, "/")
    if outside is None:
        message = f"the target of path {quote_text(given)} is unknown"
        raise PathRefused(message, path=given, rule="path.unknown")
    return WorkspacePath(given, outside, inside=False)


def find_to_read(given: str, context: ToolContext) -> WorkspacePath:
    """Return the readable place that a path leads to, which may be the workspace itself."""
    where = find_path(given, context)
    if where.parts:
        where.to_read()
    return where


@contextmanager
def open_tree(where: WorkspacePath, context: ToolContext) -> Iterator[tuple[Root, TreeState]]:
    """Open the tree that holds a path."""
    from coilclaw.workspace import Root, TreeState

    if where.inside:
        yield context.root, context.state
        return
    with Root(Path("/")) as root:
        yield root, TreeState.of(context.home, root.path)


def look_up(root: Root, path: TreePath, *, limit: int) -> PathState | str:
    """Return the state of a path to read, or a text about why it cannot be read."""
    try:
        return root.sight(path, limit=limit)
    except PlanRefused as refused:  # larger than the limit
        return refused.message
    except PathRefused as refused:
        if refused.rule in UNFIT:
            return refused.message
        raise
    except FileNotFoundError:  # removed during the lookup
        return f"path {quote_text(str(path))} changed during the lookup"


def refuse_off_limits(context: ToolContext, root: Root, parts: tuple[str, ...]) -> None:
    """Raise ``PathRefused`` for a real path that the policy denies to every tool."""
    path = str(root.path.joinpath(*parts))
    for rule, reason, places in (
        ("path.own", "is state of CoilClaw", (*context.security.own_paths, str(context.home))),
        ("path.forbidden", "is forbidden", context.security.forbidden_paths),
    ):
        if any(_names_below(path, place) is not None for place in places):
            raise PathRefused(f"{quote_text(path)} {reason}", path=path, rule=rule)


def _names_below(path: str | None, ancestor: str) -> tuple[str, ...] | None:
    """Return the parts of a path relative to an ancestor, or ``None`` if it is not below it."""
    if path is None:
        return None
    if path == ancestor:
        return ()
    base = ancestor.rstrip("/") + "/"
    return tuple(path[len(base) :].split("/")) if path.startswith(base) else None
