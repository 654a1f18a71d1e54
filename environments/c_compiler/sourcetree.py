"""Reading the trees of programs that others wrote: names, regular files, headers."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from programs import Program

MAX_FILES: Final = 20_000
MAX_SOURCE_BYTES: Final = 4 * 2**20
MAX_JSON_BYTES: Final = 16 * 2**20
MAX_HEADERS: Final = 64
"""Files that one program may include, all told."""
MAX_NAME: Final = 100

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]{1,400})"', re.MULTILINE)


def refused(what: str, where: Path, hint: str | None = None) -> UsageError:
    """The error for a tree that is not as it has to be."""
    problem = UsageError(f"{where}: {what}", rule="fixtures.malformed", hint=hint)
    problem.where = str(where)
    return problem


def files(folder: Path) -> list[str]:
    """The names of everything below a folder that is no directory, in order; no link is followed.

    A link counts as a file: whoever reads it is told that it is none.
    """
    found: list[str] = []

    def give_up(problem: OSError) -> None:
        raise refused(f"cannot be read: {problem.strerror}", Path(problem.filename or folder))

    for place, folders, names in os.walk(folder, onerror=give_up):
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        folders[:] = sorted(set(folders).difference(linked, (".git",)))
        below = os.path.relpath(place, folder)
        found.extend(os.path.normpath(os.path.join(below, name)) for name in (*names, *linked))
        if len(found) > MAX_FILES:
            raise refused(f"has more than {MAX_FILES} files", folder)
    return sorted(found)


def read(file: Path, limit: int = MAX_SOURCE_BYTES) -> bytes:
    """Read a regular file; a link, a directory, a device or a file too large is refused."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise refused(f"cannot be read: {problem.strerror}", file) from problem
    except ValueError as problem:
        raise refused("is no name of a file", Path(str(file).replace("\0", "\\0"))) from problem
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise refused("is no regular file", file)
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise refused(f"is larger than {limit} bytes", file)
    return data


def read_object(file: Path) -> dict[str, object]:
    """Read a JSON object."""
    try:
        value = json.loads(read(file, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as problem:
        raise refused("is no JSON", file) from problem
    if not isinstance(value, dict):
        raise refused("is no JSON object", file)
    return value


def inside(root: Path, name: object, said_by: Path) -> Path:
    """Return the file that a tree names, which has to lie in it by every name."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise refused(f"{name!r} is no name of a file", said_by)
    if name.startswith("/") or ".." in name.split("/"):
        raise refused(f"{name!r} is no name of a file below {root}", said_by)
    return root / name


def headers(sources: Iterable[Path], root: Path, *, optional: bool = False) -> tuple[Path, ...]:
    """The files that sources include by a quoted name, and those that these include.

    What is not there is an error, unless it is ``optional``: a preprocessor may never get to it.
    """
    given = list(sources)
    found: dict[Path, None] = {}
    left = list(given)
    while left:
        file = left.pop()
        text = read(file)
        for name in _INCLUDE.findall(text) if file.suffix in (".c", ".h") else ():
            wanted = Path(os.path.normpath(file.parent / os.fsdecode(name)))
            if root not in wanted.parents:
                raise refused(f"includes {os.fsdecode(name)!r}, which is outside {root}", file)
            if wanted in found or wanted in given:
                continue
            if not wanted.is_file():
                if optional:
                    continue
                raise refused(f"includes {os.fsdecode(name)!r}, which is not there", file)
            found[wanted] = None
            left.append(wanted)
            if len(found) > MAX_HEADERS:
                raise refused(f"includes more than {MAX_HEADERS} files", given[0])
    return tuple(sorted(found))


def case_name(name: str, file: Path) -> str:
    """The name of a case made from the name of a file: without its end, ``/`` as ``.``."""
    made = name.removesuffix(".c").replace("/", ".")
    if not _NAME.fullmatch(made) or len(made) > MAX_NAME:
        raise refused(
            f"{made[:MAX_NAME]!r} cannot be the name of a case",
            file,
            hint=f"1 to {MAX_NAME} letters, digits and _ . + -, not beginning with . + or -",
        )
    return made


def checked(programs: Iterable[Program], folder: Path) -> tuple[Program, ...]:
    """Programs in the order of their names, each name once, at least one."""
    ordered = sorted(programs, key=lambda program: program.name)
    for one, other in itertools.pairwise(ordered):
        if one.name == other.name:
            raise refused(
                f"{one.sources[0]} and {other.sources[0]} would both be the case {one.name}",
                folder,
            )
    if not ordered:
        raise refused("holds no program", folder)
    return tuple(ordered)
