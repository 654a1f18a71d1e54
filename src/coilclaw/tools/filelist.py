"""``file_list``: what lies in a directory."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Reads
from coilclaw.domain.files import Obstacle
from coilclaw.domain.treepath import TreePath, fold, shown
from coilclaw.errors import CoilClawError, EnvironmentFault
from coilclaw.tools import output, spot
from coilclaw.tools.basis import Basis, Ready, closed, failure, flag, success, text, whole

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.spot import Spot
    from coilclaw.workspace.resolve import Root

MAX_DEPTH: Final = 16
DEFAULT_DEPTH: Final = 4
MAX_ENTRIES: Final = 5000
DEFAULT_ENTRIES: Final = 1000
MAX_SCANNED: Final = 100_000
"""Names looked at in all, so that a directory without end does not take for ever."""


class FileList(Basis):
    """Lists a directory."""

    name: Final = "file_list"
    description: Final = (
        "List the files below a directory of the workspace, with kind and size. Links are shown "
        "and not followed."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "path": {
                "type": "string",
                "minLength": 1,
                "maxLength": spot.MAX_PATH,
                "description": "directory, relative to the workspace (default '.')",
            },
            "recursive": {"type": "boolean", "description": "list what is below as well"},
            "depth": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_DEPTH,
                "description": f"how many levels, when recursive (default {DEFAULT_DEPTH})",
            },
            "hidden": {"type": "boolean", "description": "show names that begin with a dot"},
            "max_entries": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_ENTRIES,
                "description": f"how many entries at most (default {DEFAULT_ENTRIES})",
            },
        }
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text(args, "path", ".")),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        where = spot.find(text(args, "path", "."), context)
        if where.parts:
            where.to_read()
        levels = min(whole(args, "depth", DEFAULT_DEPTH), MAX_DEPTH)
        request = _Request(
            where,
            levels if flag(args, "recursive") else 1,
            flag(args, "hidden"),
            min(whole(args, "max_entries", DEFAULT_ENTRIES), MAX_ENTRIES),
        )
        return Ready((f"list {where}",), lambda: _listed(request, context))


@dataclass(frozen=True, slots=True)
class _Request:
    where: Spot
    levels: int
    hidden: bool
    entries: int


def _listed(request: _Request, context: ToolContext) -> ToolResult:
    where = request.where
    with spot.tree(where, context) as (root, _):
        parts: tuple[str, ...] = ()
        if where.parts:
            # A file that holds anything is larger than this, and need not be read.
            sighting = spot.sight(root, where.to_read(), limit=0)
            if isinstance(sighting, str):
                return failure(f"{shown(str(where))} is no directory", rule="file.kind")
            if sighting.real_found is None:
                return failure(f"there is no directory {shown(str(where))}", rule="file.missing")
            if sighting.real_found != Obstacle("directory"):
                return failure(f"{shown(str(where))} is no directory", rule="file.kind")
            parts = sighting.real.parts
        listing = _Listing(root, request, context)
        listing.walk(parts, "", 1)
    return listing.result()


class _Listing:
    """One walk down from a directory, in the order of names, until a bound is reached."""

    def __init__(self, root: Root, request: _Request, context: ToolContext) -> None:
        self._root = root
        self._request = request
        self._context = context
        self._lines: list[str] = []
        self._left_out: list[str] = []
        self._scanned = 0
        self._cut = False

    def walk(self, parts: tuple[str, ...], prefix: str, level: int) -> None:
        spot.refuse_off_limits(self._context, self._root, parts)
        directories = []
        with self._root.directory(parts, TreePath(parts or (".",))) as fd:
            for name, info in self._entries(fd):
                if len(self._lines) >= self._request.entries:
                    self._cut = True
                    return
                self._lines.append(_line(fd, prefix, name, info))
                if stat.S_ISDIR(info.st_mode):
                    directories.append(name)
        for name in directories:
            if self._cut:
                return
            if level < self._request.levels and fold(name) != ".git":
                self._descend((*parts, name), f"{prefix}{name}/", level + 1)

    def _descend(self, parts: tuple[str, ...], prefix: str, level: int) -> None:
        try:
            self.walk(parts, prefix, level)
        except (CoilClawError, FileNotFoundError) as problem:
            # It is gone, changed, or kept from us: that is no reason not to show the rest.
            self._left_out.append(f"{visible_name(prefix)}: {problem}")

    def _entries(self, fd: int) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._scanned += 1
                    if self._scanned > MAX_SCANNED:
                        self._cut = True
                        break
                    if self._request.hidden or not entry.name.startswith("."):
                        with suppress(FileNotFoundError):  # gone since; then it is not there
                            found.append((entry.name, entry.stat(follow_symlinks=False)))
        except OSError as problem:
            raise EnvironmentFault(
                f"the directory cannot be listed: {problem.strerror}", rule="file.list"
            ) from problem
        return sorted(found, key=lambda item: os.fsencode(item[0]))

    def result(self) -> ToolResult:
        notes = []
        if self._cut:
            notes.append(f"[cut: only the first {len(self._lines)} entries are shown]")
        if self._left_out:
            notes.append(f"[left out: {'; '.join(self._left_out[:5])}]")
        bound = self._context.limits.output_bytes
        told = "\n".join([*self._lines, *notes]) or "the directory is empty"
        metadata: dict[str, Json] = {
            "entries": len(self._lines),
            "cut": self._cut or output.size(told) > bound,
        }
        return success(output.middle_cut(told, bound), metadata)


def _line(fd: int, prefix: str, name: str, info: os.stat_result) -> str:
    path = visible_name(prefix + name)
    if stat.S_ISDIR(info.st_mode):
        return f"directory           {path}/"
    if stat.S_ISREG(info.st_mode):
        return f"file     {info.st_size:>10} {path}"
    if stat.S_ISLNK(info.st_mode):
        return f"link                {path} -> {_target(fd, name)}"
    return f"other               {path}"


def _target(fd: int, name: str) -> str:
    try:
        return visible_name(os.readlink(name, dir_fd=fd))
    except OSError:
        return "?"


def visible_name(name: str) -> str:
    """Return a name on one line, with nothing in it that hides what it is."""
    return "".join(shown(name[i : i + 200])[1:-1] for i in range(0, len(name), 200))
