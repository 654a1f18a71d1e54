"""``file_read``: the text of a file, or some of its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Reads
from coilclaw.domain.files import Obstacle, RegularFile
from coilclaw.domain.treepath import shown
from coilclaw.tools import output, spot
from coilclaw.tools.basis import Basis, Ready, closed, failure, success, text, whole

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.spot import Spot

FILE_BYTES: Final = 16 * 2**20
MAX_LINES: Final = 1_000_000
_ARTICLES: Final = {
    "directory": "a directory",
    "fifo": "a FIFO",
    "socket": "a socket",
    "device": "a device",
}


class FileRead(Basis):
    """Reads a UTF-8 text file."""

    name: Final = "file_read"
    description: Final = (
        "Read a UTF-8 text file of the workspace. 'offset' is the first line (from 1) and 'limit' "
        "the number of lines; without them the whole file, as far as it fits."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "path": {
                "type": "string",
                "minLength": 1,
                "maxLength": spot.MAX_PATH,
                "description": "path of the file, relative to the workspace",
            },
            "offset": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LINES,
                "description": "first line to read, from 1",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LINES,
                "description": "how many lines to read",
            },
        },
        "path",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Reads(text(args, "path")),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        where = spot.find(text(args, "path"), context)
        where.to_read()
        offset, limit = max(whole(args, "offset", 1), 1), max(whole(args, "limit", MAX_LINES), 1)
        return Ready((f"read {where}",), lambda: _read(where, offset, limit, context))


def _read(where: Spot, offset: int, limit: int, context: ToolContext) -> ToolResult:
    with spot.tree(where, context) as (root, _):
        sighting = spot.sight(root, where.to_read(), limit=FILE_BYTES)
        if isinstance(sighting, str):
            return failure(sighting, rule="file.unfit")
        spot.refuse_off_limits(context, root, sighting.real.parts)
    found = sighting.real_found
    name = shown(str(where))
    if found is None:
        return failure(f"there is no file {name}", rule="file.missing")
    if isinstance(found, Obstacle):
        return failure(f"{name} is {_ARTICLES[found.kind]}, not a file", rule="file.kind")
    if not isinstance(found, RegularFile):
        return failure(f"{name} is a symbolic link that changed", rule="file.kind")
    try:
        content = found.content.decode("utf-8")
    except UnicodeDecodeError as problem:
        return failure(
            f"{name} is not UTF-8 text: byte {problem.start} of {len(found.content)}",
            rule="file.binary",
        )
    if "\0" in content:
        return failure(f"{name} is binary: it holds a NUL byte", rule="file.binary")
    return _shown(name, content, found, offset, limit, context.limits.output_bytes)


def _shown(
    name: str, content: str, found: RegularFile, offset: int, limit: int, bound: int
) -> ToolResult:
    lines = content.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    if offset > max(len(lines), 1):
        return failure(f"{name} has {len(lines)} lines, and none from {offset}", rule="file.lines")
    wanted = lines[offset - 1 : offset - 1 + limit]
    chosen = "".join(wanted)
    metadata: dict[str, Json] = {
        "bytes": len(found.content),
        "lines": len(lines),
        "sha256": found.digest,
    }
    if len(wanted) == len(lines) and output.size(chosen) <= bound:
        return success(chosen, metadata)
    room = max(bound - 2 * output.NOTICE_BYTES, 0)
    fitting = _fitting(wanted, room)
    if not fitting and wanted:
        kept, lost = output.end_cut(wanted[0], room)
        note = f"[line {offset} of {len(lines)}, less {lost} bytes at its end]"
        return success(f"{kept}\n{note}\n", {**metadata, "first": offset, "last": offset})
    last = offset + fitting - 1
    kept = "".join(wanted[:fitting])
    kept += "" if kept.endswith("\n") or not kept else "\n"
    more = f"; go on with offset {last + 1}" if last < len(lines) else ""
    note = f"[lines {offset} to {last} of {len(lines)}{more}]"
    return success(f"{kept}{note}\n", {**metadata, "first": offset, "last": last})


def _fitting(lines: list[str], room: int) -> int:
    """Return how many of the lines have their place in so many bytes."""
    for index, line in enumerate(lines):
        room -= output.size(line)
        if room < 0:
            return index
    return len(lines)
