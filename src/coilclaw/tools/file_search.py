"""``file_search``: where a text stands in the files of the workspace."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Reads
from coilclaw.domain.files import Obstacle, RegularFile
from coilclaw.domain.treepath import TreePath, fold, shown
from coilclaw.errors import CoilClawError, EnvironmentFault
from coilclaw.tools import output, spot
from coilclaw.tools.basis import Basis, Ready, closed, failure, flag, success, text
from coilclaw.tools.filelist import visible_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.spot import Spot
    from coilclaw.workspace.resolve import Root

MAX_QUERY: Final = 200
MAX_MATCHES: Final = 200
MAX_LINE_CHARS: Final = 300
MAX_FILE_BYTES: Final = 2 * 2**20
"""Larger files are left out, and counted."""
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 64
MAX_READ_BYTES: Final = 128 * 2**20
"""Of all files together."""


class FileSearch(Basis):
    """Searches text files for a literal text."""

    name: Final = "file_search"
    description: Final = (
        "Search the text files below a directory of the workspace, or one file, for a literal text "
        "(no patterns). Answers with PATH:LINE: TEXT. Links are not followed."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY,
                "description": "the text to look for, within one line",
            },
            "path": {
                "type": "string",
                "minLength": 1,
                "maxLength": spot.MAX_PATH,
                "description": "directory or file, relative to the workspace (default '.')",
            },
            "ignore_case": {"type": "boolean", "description": "take 'A' for 'a'"},
        },
        "query",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text(args, "path", ".")),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        where = spot.find(text(args, "path", "."), context)
        if where.parts:
            where.to_read()
        query = _Query(text(args, "query"), flag(args, "ignore_case"))
        return Ready((f"search {where}",), lambda: _search(where, query, context))


@dataclass(frozen=True, slots=True)
class _Query:
    words: str
    ignore_case: bool

    def matches(self, line: str) -> bool:
        if self.ignore_case:
            return self.words.casefold() in line.casefold()
        return self.words in line


def _search(where: Spot, query: _Query, context: ToolContext) -> ToolResult:
    with spot.tree(where, context) as (root, _):
        search = _Search(root, query, context)
        if not where.parts:
            search.walk((), 0)
            return search.result()
        sighting = spot.sight(root, where.to_read(), limit=MAX_FILE_BYTES)
        if isinstance(sighting, str):
            return failure(sighting, rule="file.unfit")
        if sighting.real_found is None:
            return failure(f"there is no {shown(str(where))}", rule="file.missing")
        if sighting.real_found == Obstacle("directory"):
            search.walk(sighting.real.parts, 0)
        else:
            search.read_file(sighting.real.parts)
        return search.result()


class _Search:
    """One walk down from a directory, in the order of names, until a bound is reached."""

    def __init__(self, root: Root, query: _Query, context: ToolContext) -> None:
        self._root = root
        self._query = query
        self._context = context
        self._lines: list[str] = []
        self._files = 0
        self._bytes = 0
        self._left_out = 0
        self._secret = 0
        self._cut = False

    def walk(self, parts: tuple[str, ...], level: int) -> None:
        """Search everything below a directory."""
        spot.refuse_off_limits(self._context, self._root, parts)
        for name, is_directory in self._entries(parts):
            if self._cut or self._context.cancel.cancelled:
                self._cut = True
                return
            below = (*parts, name)
            try:
                if not is_directory and self._context.security.secrets.covers(name):
                    self._secret += 1
                elif not is_directory:
                    self.read_file(below)
                elif fold(name) != ".git" and level < MAX_DEPTH:
                    self.walk(below, level + 1)
            except (CoilClawError, FileNotFoundError):
                # It is gone, changed, or kept from us: the rest is searched, and this is counted.
                self._left_out += 1

    def read_file(self, parts: tuple[str, ...]) -> None:
        """Search one file; one that is no text, or too large, is left out."""
        spot.refuse_off_limits(self._context, self._root, parts)
        if self._files >= MAX_FILES or self._bytes >= MAX_READ_BYTES:
            self._cut = True
            return
        self._files += 1
        found = self._root.read(TreePath(parts), limit=MAX_FILE_BYTES)
        if not isinstance(found, RegularFile):
            return
        self._bytes += len(found.content)
        try:
            content = found.content.decode("utf-8")
        except UnicodeDecodeError:
            return
        if "\0" in content:
            return
        path = visible_name("/".join(parts))
        for number, line in self._matches(content):
            if len(self._lines) >= MAX_MATCHES:
                self._cut = True
                return
            self._lines.append(f"{path}:{number}: {line[:MAX_LINE_CHARS]}")

    def _matches(self, content: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(content.split("\n"), 1):
            if self._query.matches(line):
                yield number, line.rstrip("\r")

    def _entries(self, parts: tuple[str, ...]) -> list[tuple[str, bool]]:
        found = []
        with self._root.directory(parts, TreePath(parts or (".",))) as fd:
            try:
                with os.scandir(fd) as entries:
                    for entry in entries:
                        mode = entry.stat(follow_symlinks=False).st_mode
                        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                            found.append((entry.name, stat.S_ISDIR(mode)))
            except OSError as problem:
                raise EnvironmentFault(
                    f"the directory cannot be listed: {problem.strerror}", rule="file.list"
                ) from problem
        return sorted(found, key=lambda item: os.fsencode(item[0]))

    def result(self) -> ToolResult:
        notes = []
        if self._cut:
            notes.append(f"[cut: the search ended after {len(self._lines)} matches]")
        if self._left_out:
            notes.append(f"[left out: {self._left_out} files that are too large or changed]")
        if self._secret:
            notes.append(
                f"[left out: {self._secret} files that hold secrets, by their names; name one as "
                "'path' to ask for it]"
            )
        told = "\n".join([*self._lines, *notes]) or "nothing was found"
        metadata: dict[str, Json] = {
            "matches": len(self._lines),
            "files": self._files,
            "cut": self._cut,
        }
        return success(output.middle_cut(told, self._context.limits.output_bytes), metadata)
