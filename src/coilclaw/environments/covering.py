"""``Cover``: files that a program must not use, each behind a stand-in that tells of being opened.

The stand-ins lie in a directory that no program sees. The sandbox shows each in the place of its
original, and a watch of the kernel's on the directory tells which of them was opened or executed,
from whatever namespace. Nothing in the sandbox can take that back.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from coilclaw.environments.scope import Scope
    from coilclaw.workspace.sandbox import SandboxSupport

MAX_COVERED: Final = 1000
REFUSED: Final = 126
"""The exit code of a stand-in, as of a program that may not be executed."""
_OPENED: Final = 0x20
_OVERFLOW: Final = 0x4000
_HEAD: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16
_TEXT: Final = "#!/bin/sh\necho {said} >&2\nexit {code}\n"


class Cover:
    """Stand-ins for some files, and the watch on them; ``directory`` is made for it."""

    __slots__ = ("_names", "_watch", "pairs")

    def __init__(self, directory: Path | None, originals: Iterable[Path]) -> None:
        self._watch: int | None = None
        self._names: dict[bytes, str] = {}
        self.pairs: tuple[tuple[Path, Path], ...] = ()
        if directory is not None:
            directory.mkdir(mode=0o755, parents=True)
            self._make(directory, originals)

    def _make(self, directory: Path, originals: Iterable[Path]) -> None:
        pairs = []
        for number, original in enumerate(originals):
            if number >= MAX_COVERED:
                raise EnvironmentFault(
                    f"more than {MAX_COVERED} files are to be covered", rule="environment.cover"
                )
            stand_in = directory / str(number)
            said = shlex.quote(f"{original}: not to be used while this is judged")
            stand_in.write_text(_TEXT.format(said=said, code=REFUSED), encoding="utf-8")
            stand_in.chmod(0o555)
            self._names[str(number).encode()] = str(original)
            pairs.append((original, stand_in))
        self.pairs = tuple(pairs)
        # Only now, because we have just opened them ourselves.
        self._watch = _watch(directory)

    @classmethod
    def of_nothing(cls) -> Self:
        """A cover that keeps nothing from anybody."""
        return cls(None, ())

    def touched(self) -> tuple[str, ...]:
        """Name the originals that were opened or executed since this was last asked."""
        found: set[str] = set()
        while self._watch is not None:
            try:
                data = os.read(self._watch, _READ_BYTES)
            except BlockingIOError:
                break
            found.update(self._read(data))
        return tuple(sorted(found))

    def close(self) -> None:
        """Stop watching; the stand-ins go with the directory that they are in."""
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None

    def _read(self, data: bytes) -> Iterable[str]:
        at = 0
        while at < len(data):
            _, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = data[at : at + size].rstrip(b"\0")
            at += size
            if mask & _OVERFLOW:
                yield "(too many to be told apart)"
            elif name in self._names:
                yield self._names[name]


def coverable(scope: Scope, without: Iterable[Path], shown: Iterable[Path]) -> tuple[Path, ...]:
    """Return the real files among these that a program would see at all."""
    places = [os.path.realpath(place) for place in shown]
    hidden = [os.path.realpath(place) for place in scope.hidden]
    found: dict[Path, None] = {}
    for path in without:
        real = os.path.realpath(path)
        if os.path.isfile(real) and _below(real, places) and not _below(real, hidden):
            found[Path(real)] = None
    return tuple(found)


def directories(without: Iterable[Path]) -> tuple[Path, ...]:
    """Return the directories among these: they are hidden as a whole, and nothing tells of it."""
    return tuple(path for path in without if path.is_dir())


def possible(support: SandboxSupport) -> bool:
    """Whether files can be covered here so that using them shows."""
    return bool(support.bubblewrap) and _can_watch()


def _below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


@cache
def _can_watch() -> bool:
    try:
        os.close(_watch(Path("/")))
    except EnvironmentFault:
        return False
    return True


def _watch(directory: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise _unwatched(ctypes.get_errno())
    if libc.inotify_add_watch(fd, os.fsencode(directory), ctypes.c_uint32(_OPENED)) < 0:
        problem = ctypes.get_errno()
        os.close(fd)
        raise _unwatched(problem)
    return fd


def _unwatched(number: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"the kernel does not watch files for us: {os.strerror(number)}",
        rule="environment.cover",
        hint="raise fs.inotify.max_user_instances",
    )
