"""``Places``: where a path that a model gave leads, for policy to judge.

It only looks. Whoever opens the file goes through ``resolve``, which trusts nothing found here.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.domain.effects import Place
from coilclaw.workspace.toolchain import is_below

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINKS: Final = 40
MAX_PATH_BYTES: Final = 4096

_Kind = Literal["file", "directory", "other", "missing"]


class Places:
    """Looks paths up, relative ones from the workspace."""

    def __init__(
        self, workspace: Path, *, home: str | None = None, seen_at: Path | None = None
    ) -> None:
        """``home`` is what ``~`` means; without one it is ``$HOME``.

        ``seen_at`` is the path that the workspace is known by to whoever gives the paths.
        """
        self._workspace = os.path.abspath(workspace)
        self._seen_at = None if seen_at is None else os.path.abspath(seen_at)
        self._home = os.environ.get("HOME") if home is None else home

    def locate(self, given: str) -> Place:
        """Return where a path leads; ``$VAR`` is a name like any other."""
        start, known = self._expanded(given)
        lexical = os.path.normpath(os.path.join(self._workspace, start))
        # POSIX gives two leading slashes a meaning of their own, which no system here uses.
        lexical = self._on_this_machine("/" + lexical.lstrip("/"))
        if not known or not _can_be_told(given):
            return Place(given, lexical, None)
        real, kind = _follow(lexical)
        return Place(given, lexical, real, kind)

    def _on_this_machine(self, lexical: str) -> str:
        seen_at = self._seen_at
        if seen_at is None or is_below(lexical, self._workspace) or not is_below(lexical, seen_at):
            return lexical
        return self._workspace + lexical[len(seen_at) :]

    def _expanded(self, given: str) -> tuple[str, bool]:
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


def _follow(lexical: str) -> tuple[str | None, _Kind]:
    """Follow all links of an absolute path; what is missing ends it, the rest is as given."""
    current = "/"
    ahead = [name for name in lexical.split("/") if name][::-1]
    links = 0
    while ahead:
        name = ahead.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            current = os.path.dirname(current)
            continue
        path = os.path.join(current, name)
        try:
            mode = os.lstat(path).st_mode
            target = os.readlink(path) if stat.S_ISLNK(mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return _missing(path, ahead), "missing"
        except OSError:
            return None, "missing"
        if target is None:
            current = path
            continue
        links += 1
        # Links of /proc mean something else to every process that follows them.
        if links > MAX_LINKS or path.startswith("/proc/"):
            return None, "missing"
        current = "/" if target.startswith("/") else current
        ahead += target.split("/")[::-1]
    return current, _kind(current)


def _missing(path: str, ahead: list[str]) -> str | None:
    """What lies behind a name that is not there; nobody can say where ``..`` of it would lead."""
    return None if ".." in ahead else os.path.normpath(os.path.join(path, *ahead[::-1]))


def _kind(path: str) -> _Kind:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "missing"
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "other"
