"""The environment of a command: made from nothing, with nothing of ours but where things are."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from coilclaw.workspace.sandbox import SYSTEM_PATHS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIXED_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_KEPT: Final = ("HOME", "USER", "LOGNAME", "TZ")
_QUIET: Final = {
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}
# What git would run or ask on the word of a repository's own configuration. A diff driver cannot
# be switched off from here, for an empty one makes every diff fail: the sandbox holds that.
_GIT_SETTINGS: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("log.showSignature", "false"),
)
_ONLY_READING: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_CONFIG_COUNT": str(len(_GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _) in enumerate(_GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{index}": value for index, (_, value) in enumerate(_GIT_SETTINGS)},
}


def environment(
    ours: Mapping[str, str], *, kept_out: Iterable[str], only_reading: bool
) -> dict[str, str]:
    """Return the environment of a command; programs are not found below ``kept_out``."""
    kept = {name: ours[name] for name in _KEPT if ours.get(name)}
    path = search_path(ours.get("PATH", ""), kept_out=tuple(kept_out), system_only=only_reading)
    return {"PATH": path, **kept, **_QUIET, **(_ONLY_READING if only_reading else {})}


def search_path(path: str, *, kept_out: tuple[str, ...], system_only: bool) -> str:
    """Return the entries of a PATH in which nobody but their owner can put a program."""
    barred = tuple(os.path.realpath(place) for place in kept_out)
    entries = []
    for entry in dict.fromkeys(path.split(":")):
        if not entry.startswith("/"):
            continue
        real = os.path.realpath(entry)
        if any(_below(real, place) or _below(entry, place) for place in barred):
            continue
        if system_only and not any(_below(real, str(place)) for place in SYSTEM_PATHS):
            continue
        if _guarded(real):
            entries.append(entry)
    return ":".join(entries) or FIXED_PATH


def _guarded(directory: str) -> bool:
    """Whether a directory is there, and neither it nor one above it is open to everybody."""
    try:
        mode = os.stat(directory).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWOTH:
            return False
        above = os.path.dirname(directory)
        while above != "/":
            mode = os.stat(above).st_mode
            # With the sticky bit nobody can take away what belongs to another.
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return False
            above = os.path.dirname(above)
    except OSError:
        return False
    return True


def _below(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor.rstrip("/") + "/")
