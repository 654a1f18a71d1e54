"""What a submission's programs are held to: the sandbox, the environment and the limits.

Files that a program must not use can be covered by stand-ins, which lie in a directory that no
program sees. The sandbox shows each in the place of its original, and a watch of the kernel's on
the directory tells which of them was opened or executed, from whatever namespace.
"""

from __future__ import annotations

import ctypes
import math
import os
import shlex
import struct
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coilclaw
from coilclaw.agent import search_path
from coilclaw.kernel import EnvironmentFault
from coilclaw.traces.environments import catalogue
from coilclaw.workspace import (
    SYSTEM_PATHS,
    KernelLimits,
    Sandbox,
    landlock_can_hide,
    limit_command,
    toolchain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coilclaw.traces.environments.programs import ProgramScope
    from coilclaw.workspace import SandboxSupport

FIXTURES: Final = Path("/opt/tests")
"""Where environments keep what is expected; no submission may read there."""
MAX_COVERED: Final = 1000
REFUSED: Final = 126
"""The exit code of a stand-in, as of a program that may not be executed."""
_CREDENTIALS: Final = ("credentials", "credentials.toml")
_INSTALLED: Final = tuple(
    f"{above}lib*/python3*/{packages}/{coilclaw.__name__}"
    for above in ("", "local/")
    for packages in ("site-packages", "dist-packages")
)
_OPENED: Final = 0x20
_OVERFLOW: Final = 0x4000
_HEAD: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16
_TEXT: Final = "#!/bin/sh\necho {said} >&2\nexit {code}\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process of a submission may use; the time on the clock is the caller's."""

    cpu_s: float | None = None
    """Processor time; without it, a second more than the time on the clock."""
    memory_bytes: int = 2 * 2**30
    """Memory that is its own and writable."""
    file_bytes: int = 512 * 2**20
    """The largest file that it may write."""
    processes: int = 512
    """Processes at once, where a sandbox of its own makes them countable."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a submission's programs may use."""

    places: tuple[Path, ...]
    """Their directories, beside the system's."""
    environ: Mapping[str, str]
    """The variables that say where they are."""


class Cover:
    """Stand-ins for some files, and the watch on them; without a directory it covers nothing."""

    __slots__ = ("_names", "_watch", "pairs")

    def __init__(self, directory: Path | None = None, originals: Sequence[Path] = ()) -> None:
        self._watch: int | None = None
        self._names = {str(number).encode(): str(path) for number, path in enumerate(originals)}
        self.pairs: tuple[tuple[Path, Path], ...] = ()
        if directory is None:
            return
        directory.mkdir(mode=0o755, parents=True)
        if len(originals) > MAX_COVERED:
            message = f"more than {MAX_COVERED} files are to be covered"
            raise EnvironmentFault(message, rule="environment.cover")
        self.pairs = tuple((path, directory / str(at)) for at, path in enumerate(originals))
        for original, stand_in in self.pairs:
            said = shlex.quote(f"{original}: not to be used while this is judged")
            stand_in.write_text(_TEXT.format(said=said, code=REFUSED), encoding="utf-8")
            stand_in.chmod(0o555)
        # Only now, because we have just opened them ourselves.
        self._watch = _watch(directory)

    def find_touched(self) -> tuple[str, ...]:
        """Name the originals that were opened or executed since this was last asked."""
        found: set[str] = set()
        while self._watch is not None:
            try:
                data = os.read(self._watch, _READ_BYTES)
            except BlockingIOError:
                break
            while data:
                _, mask, _, size = _HEAD.unpack_from(data)
                name = data[_HEAD.size : _HEAD.size + size].rstrip(b"\0")
                data = data[_HEAD.size + size :]
                if mask & _OVERFLOW:
                    found.add("(too many to be told apart)")
                elif name in self._names:
                    found.add(self._names[name])
        return tuple(sorted(found))

    def close(self) -> None:
        """Stop watching; the stand-ins go with the directory that they are in."""
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Confined:
    """The sandbox of a program, and the files that are to be covered in it."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...]
    hidden: tuple[Path, ...]
    originals: tuple[Path, ...] = ()

    def sandbox(self, cover: Cover | None = None) -> Sandbox:
        """Return the sandbox; without a cover, what would be covered is hidden if it can be."""
        plain = Sandbox(
            "auto",
            writable=self.writable,
            readable=self.readable,
            hidden=self.hidden,
            narrow=True,
        )
        if cover is not None:
            return replace(plain, replaced=cover.pairs)
        hidden = (*self.hidden, *self.originals)
        can_hide = self.originals and _can_hide(self.readable, hidden)
        return replace(plain, hidden=hidden) if can_hide else plain


def confine_program(
    scope: ProgramScope, without: Sequence[Path] = (), *, shown: tuple[Path, ...] = ()
) -> Confined:
    """Return what a program is held to: it reads the system, tools and the session, no more.

    It writes its own directory and its temporary files only. It has no network. Directories among
    ``without`` are hidden as a whole, and nothing tells of their use.
    """
    tools = scope.tools.places
    found = (*SYSTEM_PATHS, *tools)
    readable = (*found, scope.session, *shown)
    hidden = [
        *scope.hidden,
        FIXTURES,
        *(place / name for place in tools for name in _CREDENTIALS),
        *_judging(found),
        *(path for path in without if path.is_dir()),
    ]
    return Confined(
        writable=(scope.directory, scope.temporary),
        readable=readable,
        hidden=tuple(path for path in hidden if path.exists()),
        originals=_coverable(scope, without, readable),
    )


def can_cover(support: SandboxSupport) -> bool:
    """Return whether this machine can cover files and report their use."""
    return bool(support.bubblewrap) and _can_watch()


def _coverable(
    scope: ProgramScope, without: Iterable[Path], shown: Iterable[Path]
) -> tuple[Path, ...]:
    """Return the real files among these that a program would see at all."""
    places = {os.path.realpath(place) for place in shown}
    hidden = {os.path.realpath(place) for place in scope.hidden}
    real = dict.fromkeys(os.path.realpath(path) for path in without)
    return tuple(
        Path(path)
        for path in real
        if os.path.isfile(path) and _is_within(path, places) and not _is_within(path, hidden)
    )


@cache
def _can_hide(readable: tuple[Path, ...], hidden: tuple[Path, ...]) -> bool:
    """Return whether Landlock can hide so many files; finding out is slow."""
    try:
        landlock_can_hide(Sandbox("auto", readable=readable, hidden=hidden, narrow=True))
    except EnvironmentFault:
        return False
    return True


def environ(scope: ProgramScope, more: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a program, at home among its temporary files."""
    return {
        **scope.tools.environ,
        "HOME": str(scope.temporary),
        "TMPDIR": str(scope.temporary),
        "LANG": "C.UTF-8",
        **more,
    }


def find_tools(path: str) -> Tools:
    """Find the tools on a PATH; it takes longer than a small program does."""
    rust = toolchain.rustup()
    # Rust looks for it in the home directory, and programs get another one.
    more = {toolchain.RUST: rust} if rust else {}
    return Tools(tool_places(path), {"PATH": program_path(path), **more})


def program_path(path: str) -> str:
    """Return where programs are looked for: the system first, then tools of the user."""
    safe = search_path(path, kept_out=(), system_only=False).split(":")
    system = [entry for entry in safe if _is_system(entry)]
    tools = {str(place) for place in tool_places(path)}
    own = [entry for entry in safe if _is_within(entry, tools) and entry not in system]
    return ":".join([*system, *own])


def tool_places(path: str) -> tuple[Path, ...]:
    """Return the directories of tools on a PATH beside the system's: ``…/NAME/bin`` is NAME's.

    With a virtual environment, also its Python's. A home directory as a whole is none, nor is what
    only leads on to other programs.
    """
    found: dict[Path, None] = {}
    for entry in search_path(path, kept_out=(), system_only=False).split(":"):
        if _is_system(entry) or os.path.basename(entry) != "bin" or not os.path.isdir(entry):
            continue
        at = os.path.realpath(entry)
        for other in (
            toolchain.FollowedPath(at),
            *toolchain.find_needed(at),
            *toolchain.pythons(at),
        ):
            place = toolchain.find_installation(other)
            if place is not None and not _is_system(place):
                found[Path(place)] = None
    return tuple(found)


def limit_program(
    argv: Sequence[str], limits: Limits, timeout_s: float, support: SandboxSupport
) -> list[str]:
    """Return the argv that runs a program within its limits."""
    cpu_s = math.ceil(timeout_s if limits.cpu_s is None else limits.cpu_s) + 1
    processes = limits.processes if support.bubblewrap else None
    return limit_command(
        argv, KernelLimits(limits.memory_bytes, processes, cpu_s, limits.file_bytes)
    )


@cache
def _judging(places: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return CoilClaw and the shipped environments where one of these places shows them.

    That is so where we are installed: for all, or in a directory of tools on PATH.
    """
    shown = {os.path.realpath(place) for place in places}
    package = Path(coilclaw.__file__).parent
    others = (path for place in shown for glob in _INSTALLED for path in Path(place).glob(glob))
    own = {os.path.realpath(path) for path in (package, catalogue.shipped_directory(), *others)}
    return tuple(Path(path) for path in sorted(own) if _is_within(path, shown))


def _is_system(entry: str) -> bool:
    return _is_within(os.path.realpath(entry), {str(place) for place in SYSTEM_PATHS})


def _is_within(path: str, places: set[str]) -> bool:
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
    path, mask = os.fsencode(directory), ctypes.c_uint32(_OPENED)
    if fd >= 0 and libc.inotify_add_watch(fd, path, mask) >= 0:
        return fd
    problem = os.strerror(ctypes.get_errno())
    if fd >= 0:
        os.close(fd)
    message = f"the kernel cannot watch files: {problem}"
    hint = "raise fs.inotify.max_user_instances"
    raise EnvironmentFault(message, rule="environment.cover", hint=hint)
