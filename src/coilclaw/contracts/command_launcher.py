"""Programs that start another one in a project's environment, such as ``uv run`` and ``npx``.

What such a command does is what the program behind it does, so that this one is judged. Of the
launcher's own options only those are accepted that neither load anything nor lead elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Launcher:
    """How a launcher is called: its subcommand, then its own options, then the program."""

    subcommand: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    """Options without a value."""
    values: frozenset[str] = frozenset()
    """Options with one."""
    module: frozenset[str] = frozenset()
    """Options after which a module of Python stands instead of a program."""
    python_files: bool = False
    """Whether it gives a ``.py`` file to Python."""
    names_only: bool = False
    """Whether a word with a slash is not a program to it, but something to install."""


@dataclass(frozen=True, slots=True)
class LaunchedCommand:
    """A command that a launcher starts; ``argv`` is empty where ``refused`` is not."""

    launcher: str
    argv: tuple[str, ...]
    at: int
    """Where the program stands in the whole command."""
    refused: str = ""
    """The first word for the launcher that is not accepted."""


_RUN: Final = Launcher(("run",))
LAUNCHERS: Final[Mapping[str, Launcher]] = {
    "uv": Launcher(
        ("run",),
        frozenset(
            {"--frozen", "--locked", "--no-sync", "--offline", "--all-extras", "--all-groups"}
            | {"--dev", "--no-dev", "--exact", "--isolated", "--all-packages", "-q", "--quiet"}
        ),
        frozenset({"--extra", "--no-extra", "--group", "--no-group", "--only-group"}),
        frozenset({"-m", "--module"}),
        python_files=True,
    ),
    "poetry": _RUN,
    "pdm": _RUN,
    "hatch": _RUN,
    "pipenv": _RUN,
    # Without --yes, npx asks before it fetches, and nobody is there to answer.
    "npx": Launcher((), frozenset({"--no-install", "--offline"}), names_only=True),
    "pnpm": Launcher(("exec",)),
}


def read_launched(argv: Sequence[str]) -> LaunchedCommand | None:
    """Return what a launcher starts; ``None`` where the command is not one of a launcher."""
    known = LAUNCHERS.get(argv[0]) if argv else None
    start = 1 + len(known.subcommand) if known else 0
    if known is None or tuple(argv[1:start]) != known.subcommand:
        return None
    name = " ".join(argv[:start])
    at = start
    while at < len(argv) and argv[at].startswith("-"):
        word, _, value = argv[at].partition("=")
        at += 1
        if word == "--" and not value:
            break
        if word in known.module:
            return LaunchedCommand(name, ("python", "-m", *argv[at:]), at)
        if word in known.values:
            at += 0 if value else 1
        elif word not in known.flags or value:
            return LaunchedCommand(name, (), at - 1, argv[at - 1])
    inner = tuple(argv[at:])
    if known.names_only and inner and "/" in inner[0]:
        return LaunchedCommand(name, (), at, inner[0])
    if known.python_files and inner[:1] and inner[0].endswith(".py"):
        inner = ("python", *inner)
    return LaunchedCommand(name, inner, at)
