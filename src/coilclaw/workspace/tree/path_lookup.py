"""``PathLookup``: where a path that a model gave leads, for policy to judge.

It only looks. A file is opened through ``Root``, which trusts nothing found here.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Place, is_below
from coilclaw.workspace.process.toolchain import follow

if TYPE_CHECKING:
    from pathlib import Path

MAX_PATH_BYTES: Final = 4096


class PathLookup:
    """Looks paths up, relative ones from the workspace."""

    def __init__(
        self, workspace: Path, *, home: str | None = None, seen_at: Path | None = None
    ) -> None:
        """``home`` is what ``~`` means; without one it leads nowhere that is known.

        ``seen_at`` is the path that the workspace is known by to the agent that gives the paths.
        """
        self._workspace = os.path.abspath(workspace)
        self._seen_at = None if seen_at is None else os.path.abspath(seen_at)
        self._home = home

    def locate(self, given: str) -> Place:
        """Return where a path leads; ``$VAR`` is a name like any other."""
        start, known = self._expand_tilde(given)
        lexical = os.path.normpath(os.path.join(self._workspace, start))
        # POSIX gives two leading slashes a meaning of their own, which no system here uses.
        lexical = "/" + lexical.lstrip("/")
        seen_at = self._seen_at
        if seen_at and not is_below(lexical, self._workspace) and is_below(lexical, seen_at):
            lexical = self._workspace + lexical[len(seen_at) :]
        if not known or not _can_be_told(given):
            return Place(given, lexical, None)
        found = follow(lexical, missing=True)
        if found is None:
            return Place(given, lexical, None)
        try:
            mode = os.lstat(found.real).st_mode
        except OSError:
            return Place(given, lexical, found.real)
        if stat.S_ISREG(mode):
            return Place(given, lexical, found.real, "file")
        return Place(given, lexical, found.real, "directory" if stat.S_ISDIR(mode) else "other")

    def _expand_tilde(self, given: str) -> tuple[str, bool]:
        """Return a path without its tilde, and whether it was known what that means."""
        if not given.startswith("~"):
            return given, True
        user, slash, rest = given[1:].partition("/")
        home = _home_of(user) if user else self._home
        if not home or not home.startswith("/"):
            return f"./{given}", False
        return f"{home}/{rest}" if slash else home, True


def _home_of(user: str) -> str | None:
    import pwd

    try:
        return pwd.getpwnam(user).pw_dir
    except (KeyError, ValueError, UnicodeEncodeError):
        return None


def _can_be_told(given: str) -> bool:
    if not given or "\0" in given or "\n" in given:
        return False
    try:
        return len(given.encode("utf-8")) <= MAX_PATH_BYTES
    except UnicodeEncodeError:
        return False
