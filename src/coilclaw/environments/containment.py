"""What a submission's programs are held to: the sandbox, the environment and the limits."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coilclaw
from coilclaw.environments import catalogue, covering
from coilclaw.errors import EnvironmentFault
from coilclaw.tools.shellenv import search_path
from coilclaw.workspace import toolchain
from coilclaw.workspace.process_bounds import KernelLimits, limit_command
from coilclaw.workspace.sandbox import SYSTEM_PATHS, Sandbox, landlock_can_hide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.environments.covering import Cover
    from coilclaw.environments.scope import Scope
    from coilclaw.workspace.sandbox import SandboxSupport

FIXTURES: Final = Path("/opt/tests")
"""Where environments keep what is expected; no submission may read there."""
_CREDENTIALS: Final = ("credentials", "credentials.toml")
_INSTALLED: Final = tuple(
    f"{above}lib*/python3*/{packages}/{coilclaw.__name__}"
    for above in ("", "local/")
    for packages in ("site-packages", "dist-packages")
)


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
        if not self.originals or not _can_hide(self.readable, hidden):
            return plain
        return replace(plain, hidden=hidden)


def confined(
    scope: Scope,
    without: Sequence[Path] = (),
    *,
    shown: tuple[Path, ...] = (),
) -> Confined:
    """Return what a program is held to: it reads the system, tools and the session, no more.

    It writes its own directory and its temporary files only. It has no network.
    """
    tools = tool_places(os.environ.get("PATH", ""))
    away = covering.directories(without)
    found = (*SYSTEM_PATHS, *tools)
    hidden = [*scope.hidden, FIXTURES, *_credentials(tools), *_judging(found), *away]
    readable = (*found, scope.session, *shown)
    return Confined(
        writable=(scope.directory, scope.temporary),
        readable=readable,
        hidden=tuple(path for path in hidden if path.exists()),
        originals=covering.coverable(scope, without, readable) if without else (),
    )


@cache
def _can_hide(readable: tuple[Path, ...], hidden: tuple[Path, ...]) -> bool:
    """Whether so many files can be withheld by Landlock; it is slow to find out."""
    try:
        landlock_can_hide(Sandbox("auto", readable=readable, hidden=hidden, narrow=True))
    except EnvironmentFault:
        return False
    return True


def environ(scope: Scope, more: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a program, at home among its temporary files."""
    found = tool_environ() if scope.slot is None else scope.slot.environ
    return {
        **found,
        "HOME": str(scope.temporary),
        "TMPDIR": str(scope.temporary),
        "LANG": "C.UTF-8",
        **more,
    }


def tool_environ() -> dict[str, str]:
    """Return where tools are; finding out takes longer than a small program does."""
    rust = toolchain.rustup()
    return {
        "PATH": program_path(os.environ.get("PATH", "")),
        # It is looked for in the home, and that is another one here.
        **({toolchain.RUST: rust} if rust else {}),
    }


def program_path(path: str) -> str:
    """Return where programs are looked for: the system first, then tools of the user."""
    safe = search_path(path, kept_out=(), system_only=False).split(":")
    system = [entry for entry in safe if _is_system(entry)]
    tools = {str(place) for place in tool_places(path)}
    own = [entry for entry in safe if _within(entry, tools) and entry not in system]
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
        for other in (toolchain.Found(at), *toolchain.beside(at), *toolchain.pythons(at)):
            place = toolchain.place(other)
            if place is not None and not _is_system(place):
                found[Path(place)] = None
    return tuple(found)


def limited(
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
    """Ourselves and the environments that ship, wherever one of these places would show them.

    That is so where we are installed: for all, or in a directory of tools on PATH.
    """
    shown = {os.path.realpath(place) for place in places}
    package = Path(coilclaw.__file__).parent
    others = (path for place in shown for glob in _INSTALLED for path in Path(place).glob(glob))
    own = {os.path.realpath(path) for path in (package, catalogue.shipped(), *others)}
    return tuple(Path(path) for path in sorted(own) if _within(path, shown))


def _credentials(places: Sequence[Path]) -> list[Path]:
    return [place / name for place in places for name in _CREDENTIALS]


def _is_system(entry: str) -> bool:
    return _within(os.path.realpath(entry), {str(place) for place in SYSTEM_PATHS})


def _within(path: str, places: set[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
