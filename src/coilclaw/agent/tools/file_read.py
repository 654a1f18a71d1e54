"""``file_read``, ``file_list`` and ``file_search``: read the workspace, in the order of names."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import output, workspace_path
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    count_schema,
    failure,
    flag_argument,
    integer_argument,
    object_schema,
    success,
    text_argument,
    text_schema,
)
from coilclaw.kernel import (
    CoilClawError,
    EnvironmentFault,
    Obstacle,
    Reads,
    RegularFile,
    TreePath,
    fold_name,
    quote_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.agent.tools.workspace_path import WorkspacePath
    from coilclaw.kernel import Effect, Json, ToolResult
    from coilclaw.workspace import Root


MAX_QUERY: Final = 200
MAX_MATCHES: Final = 200
MAX_LINE_CHARS: Final = 300
MAX_FILE_BYTES: Final = 2 * 2**20
"""Larger files are skipped and counted."""
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 64
MAX_READ_BYTES: Final = 128 * 2**20
"""Bytes of all files together."""

MAX_LIST_DEPTH: Final = 16
DEFAULT_DEPTH: Final = 4
MAX_ENTRIES: Final = 5000
DEFAULT_ENTRIES: Final = 1000
MAX_SCANNED: Final = 100_000
"""Names that are examined in total, so that a huge directory takes bounded time."""


class FileSearch(Tool):
    """Searches text files for a literal text."""

    name = "file_search"
    description = (
        "Search the text files below a directory of the workspace, or one file, for a literal text "
        "(no patterns). Answers with PATH:LINE: TEXT. Links are not followed."
    )
    parameters_schema = object_schema(
        {
            "query": text_schema(MAX_QUERY, "the text to look for, within one line"),
            "path": text_schema(
                workspace_path.MAX_PATH,
                "directory or file, relative to the workspace (default '.')",
            ),
            "ignore_case": {"type": "boolean", "description": "ignore upper and lower case"},
        },
        "query",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text_argument(args, "path", ".")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        where = workspace_path.find_to_read(text_argument(args, "path", "."), context)
        query, ignore_case = text_argument(args, "query"), flag_argument(args, "ignore_case")
        folded = query.casefold()

        def matches(line: str) -> bool:
            return folded in line.casefold() if ignore_case else query in line

        return ReadyCall((f"search {where}",), lambda: _search(where, matches, context))


def _search(
    where: WorkspacePath, matches: Callable[[str], bool], context: ToolContext
) -> ToolResult:
    with workspace_path.open_tree(where, context) as (root, _):
        search = _Search(root, matches, context)
        if not where.parts:
            search.walk((), 0)
            return search.result()
        state = workspace_path.look_up(root, where.to_read(), limit=MAX_FILE_BYTES)
        if isinstance(state, str):
            return failure(state, rule="file.unfit")
        if state.real_found is None:
            return failure(f"{quote_text(str(where))} does not exist", rule="file.missing")
        if state.real_found == Obstacle("directory"):
            search.walk(state.real.parts, 0)
        else:
            search.read_file(state.real.parts)
        return search.result()


class _Search:
    """One search, until a bound is reached."""

    def __init__(self, root: Root, matches: Callable[[str], bool], context: ToolContext) -> None:
        self._root = root
        self._matches = matches
        self._context = context
        self._lines: list[str] = []
        self._files = 0
        self._bytes = 0
        self._left_out = 0
        self._secret = 0
        self._cut = False

    def walk(self, parts: tuple[str, ...], level: int) -> None:
        """Search everything below a directory."""
        workspace_path.refuse_off_limits(self._context, self._root, parts)
        with self._root.directory(parts, TreePath(parts or (".",))) as fd:
            entries = _scan(fd)
        for name, info in entries:
            if self._cut or self._context.cancel.cancelled:
                self._cut = True
                return
            below = (*parts, name)
            try:
                if stat.S_ISDIR(info.st_mode):
                    if fold_name(name) != ".git" and level < MAX_DEPTH:
                        self.walk(below, level + 1)
                elif stat.S_ISREG(info.st_mode) and self._context.security.secrets.covers(name):
                    self._secret += 1
                elif stat.S_ISREG(info.st_mode):
                    self.read_file(below)
            except (CoilClawError, FileNotFoundError):
                # It was removed, changed or is denied: count it and search the rest.
                self._left_out += 1

    def read_file(self, parts: tuple[str, ...]) -> None:
        """Search one file; skip it if it is binary or too large."""
        workspace_path.refuse_off_limits(self._context, self._root, parts)
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
        for number, line in enumerate(content.split("\n"), 1):
            if self._matches(line):
                if len(self._lines) >= MAX_MATCHES:
                    self._cut = True
                    return
                text_line = line.rstrip("\r")[:MAX_LINE_CHARS]
                self._lines.append(f"{path}:{number}: {text_line}")

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
        return success(
            output.middle_cut(told, self._context.limits.output_bytes),
            {"matches": len(self._lines), "files": self._files, "cut": self._cut},
        )


class FileList(Tool):
    """Lists a directory."""

    name = "file_list"
    description = (
        "List the files below a directory of the workspace, with kind and size. Links are shown "
        "and not followed."
    )
    parameters_schema = object_schema(
        {
            "path": text_schema(
                workspace_path.MAX_PATH, "directory, relative to the workspace (default '.')"
            ),
            "recursive": {"type": "boolean", "description": "list what is below as well"},
            "depth": count_schema(
                MAX_LIST_DEPTH, f"how many levels, when recursive (default {DEFAULT_DEPTH})"
            ),
            "hidden": {"type": "boolean", "description": "show names that begin with a dot"},
            "max_entries": count_schema(
                MAX_ENTRIES, f"how many entries at most (default {DEFAULT_ENTRIES})"
            ),
        }
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text_argument(args, "path", ".")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        where = workspace_path.find_to_read(text_argument(args, "path", "."), context)
        levels = min(integer_argument(args, "depth", DEFAULT_DEPTH), MAX_LIST_DEPTH)
        levels = levels if flag_argument(args, "recursive") else 1
        most = min(integer_argument(args, "max_entries", DEFAULT_ENTRIES), MAX_ENTRIES)
        hidden = flag_argument(args, "hidden")
        return ReadyCall(
            (f"list {where}",),
            lambda: _list(where, _Listing(context, levels, most, hidden=hidden), context),
        )


def _list(where: WorkspacePath, listing: _Listing, context: ToolContext) -> ToolResult:
    with workspace_path.open_tree(where, context) as (root, _):
        parts: tuple[str, ...] = ()
        if where.parts:
            # With the limit 0 no content is read.
            state = workspace_path.look_up(root, where.to_read(), limit=0)
            if not isinstance(state, str) and state.real_found is None:
                return failure(f"{quote_text(str(where))} does not exist", rule="file.missing")
            if isinstance(state, str) or state.real_found != Obstacle("directory"):
                return failure(f"{quote_text(str(where))} is not a directory", rule="file.kind")
            parts = state.real.parts
        listing.walk(root, parts, "", 1)
    return listing.result()


class _Listing:
    """One listing, until a bound is reached."""

    def __init__(self, context: ToolContext, levels: int, most: int, *, hidden: bool) -> None:
        self._context = context
        self._levels = levels
        self._most = most
        self._hidden = hidden
        self._lines: list[str] = []
        self._left_out: list[str] = []
        self._scanned = 0
        self._cut = False

    def walk(self, root: Root, parts: tuple[str, ...], prefix: str, level: int) -> None:
        workspace_path.refuse_off_limits(self._context, root, parts)
        directories = []
        with root.directory(parts, TreePath(parts or (".",))) as fd:
            for name, info in _scan(fd, self._takes):
                if len(self._lines) >= self._most:
                    self._cut = True
                    return
                self._lines.append(_line(fd, prefix, name, info))
                if stat.S_ISDIR(info.st_mode):
                    directories.append(name)
        for name in directories:
            if self._cut:
                return
            if level < self._levels and fold_name(name) != ".git":
                below = f"{prefix}{name}/"
                try:
                    self.walk(root, (*parts, name), below, level + 1)
                except (CoilClawError, FileNotFoundError) as problem:
                    # It was removed, changed or is denied: list the rest.
                    self._left_out.append(f"{visible_name(below)}: {problem}")

    def _takes(self, name: str) -> bool | None:
        """Return whether a name is listed; ``None`` ends the scan."""
        self._scanned += 1
        if self._scanned > MAX_SCANNED:
            self._cut = True
            return None
        return self._hidden or not name.startswith(".")

    def result(self) -> ToolResult:
        notes = []
        if self._cut:
            notes.append(f"[cut: only the first {len(self._lines)} entries are shown]")
        if self._left_out:
            notes.append(f"[left out: {'; '.join(self._left_out[:5])}]")
        bound = self._context.limits.output_bytes
        told = "\n".join([*self._lines, *notes]) or "the directory is empty"
        cut = self._cut or output.text_size(told) > bound
        return success(output.middle_cut(told, bound), {"entries": len(self._lines), "cut": cut})


def _scan(
    fd: int, takes: Callable[[str], bool | None] = lambda _: True
) -> list[tuple[str, os.stat_result]]:
    """Return the entries of a directory that ``takes`` accepts, sorted by name."""
    found = []
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                taken = takes(entry.name)
                if taken is None:
                    break
                if taken:
                    with suppress(FileNotFoundError):  # removed since
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
    except OSError as problem:
        message = f"the directory cannot be listed: {problem.strerror}"
        raise EnvironmentFault(message, rule="file.list") from problem
    return sorted(found, key=lambda item: os.fsencode(item[0]))


def _line(fd: int, prefix: str, name: str, info: os.stat_result) -> str:
    path = visible_name(prefix + name)
    if stat.S_ISDIR(info.st_mode):
        return f"directory           {path}/"
    if stat.S_ISREG(info.st_mode):
        return f"file     {info.st_size:>10} {path}"
    if not stat.S_ISLNK(info.st_mode):
        return f"other               {path}"
    try:
        target = visible_name(os.readlink(name, dir_fd=fd))
    except OSError:
        target = "?"
    return f"link                {path} -> {target}"


def visible_name(name: str) -> str:
    """Return a name on one line, with invisible characters escaped."""
    return "".join(quote_text(name[i : i + 200])[1:-1] for i in range(0, len(name), 200))


FILE_BYTES: Final = 16 * 2**20
MAX_LINES: Final = 1_000_000
_ARTICLES: Final = {
    "directory": "a directory",
    "fifo": "a FIFO",
    "socket": "a socket",
    "device": "a device",
}


class FileRead(Tool):
    """Reads a UTF-8 text file."""

    name = "file_read"
    description = (
        "Read a UTF-8 text file of the workspace. 'offset' is the first line (from 1) and 'limit' "
        "the number of lines; without them the whole file, as far as it fits."
    )
    parameters_schema = object_schema(
        {
            "path": workspace_path.FILE_SCHEMA,
            "offset": count_schema(MAX_LINES, "first line to read, from 1"),
            "limit": count_schema(MAX_LINES, "how many lines to read"),
        },
        "path",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text_argument(args, "path")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        where = workspace_path.find_path(text_argument(args, "path"), context)
        where.to_read()
        offset, limit = (
            max(integer_argument(args, "offset", 1), 1),
            max(integer_argument(args, "limit", MAX_LINES), 1),
        )

        def read() -> ToolResult:
            found = read_file(where, FILE_BYTES, context)
            if not isinstance(found, RegularFile):
                return found
            return _show(quote_text(str(where)), found, offset, limit, context.limits.output_bytes)

        return ReadyCall((f"read {where}",), read)


def read_file(where: WorkspacePath, limit: int, context: ToolContext) -> RegularFile | ToolResult:
    """Return the file at a path, or the failure if it cannot be read."""
    name = quote_text(str(where))
    with workspace_path.open_tree(where, context) as (root, _):
        state = workspace_path.look_up(root, where.to_read(), limit=limit)
        if isinstance(state, str):
            return failure(state, rule="file.unfit")
        workspace_path.refuse_off_limits(context, root, state.real.parts)
    found = state.real_found
    if found is None:
        return failure(f"{name} does not exist", rule="file.missing")
    if isinstance(found, Obstacle):
        return failure(f"{name} is {_ARTICLES[found.kind]}, not a file", rule="file.kind")
    if not isinstance(found, RegularFile):
        return failure(f"{name} is a symbolic link that changed", rule="file.kind")
    return found


def _show(name: str, found: RegularFile, offset: int, limit: int, bound: int) -> ToolResult:
    try:
        content = found.content.decode("utf-8")
    except UnicodeDecodeError as problem:
        what = f"is not UTF-8 text: byte {problem.start} of {len(found.content)}"
        return failure(f"{name} {what}", rule="file.binary")
    if "\0" in content:
        return failure(f"{name} is binary: it holds a NUL byte", rule="file.binary")
    *full, last_line = content.split("\n")
    lines = [*(f"{line}\n" for line in full), *([last_line] if last_line else [])]
    if offset > max(len(lines), 1):
        message = f"{name} has only {len(lines)} lines; offset is {offset}"
        return failure(message, rule="file.lines")
    wanted = lines[offset - 1 : offset - 1 + limit]
    metadata: dict[str, Json] = {
        "bytes": len(found.content),
        "lines": len(lines),
        "sha256": found.digest,
    }
    if len(wanted) == len(lines) and output.text_size("".join(wanted)) <= bound:
        return success("".join(wanted), metadata)
    room = max(bound - 2 * output.NOTICE_BYTES, 0)
    fitting = _count_fitting(wanted, room)
    if not fitting and wanted:
        kept, lost = output.end_cut(wanted[0], room)
        note = f"[line {offset} of {len(lines)}, without the last {lost} bytes]"
        return success(f"{kept}\n{note}\n", {**metadata, "first": offset, "last": offset})
    last = offset + fitting - 1
    kept = "".join(wanted[:fitting])
    kept += "" if kept.endswith("\n") or not kept else "\n"
    more = f"; continue with offset {last + 1}" if last < len(lines) else ""
    note = f"[lines {offset} to {last} of {len(lines)}{more}]"
    return success(f"{kept}{note}\n", {**metadata, "first": offset, "last": last})


def _count_fitting(lines: list[str], room: int) -> int:
    """Return how many of the lines fit into ``room`` bytes."""
    for index, line in enumerate(lines):
        room -= output.text_size(line)
        if room < 0:
            return index
    return len(lines)
