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
# What git would run or ask on the word of a repository's own configuration, whatever its name.
_GIT_SETTINGS: Final = (
    ("core.alternateRefsCommand", ""),
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.sshCommand", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("gpg.openpgp.program", "false"),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.diffMerges", "separate"),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
)
_COPYING: Final = {
    ("diff", "textconv"): "cat",
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("merge", "driver"): "false",
}
_COMPARING: Final = ("diff", "show", "log", "stash", "whatchanged", "blame", "annotate")
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
    ours: Mapping[str, str],
    *,
    kept_out: Iterable[str],
    only_reading: bool,
    trusted: Iterable[str] = (),
) -> dict[str, str]:
    """Return the environment of a command.

    Programs are not found below ``kept_out``, unless below one of the ``trusted`` places in it.
    """
    kept = {name: ours[name] for name in _KEPT if ours.get(name)}
    path = search_path(
        ours.get("PATH", ""),
        kept_out=tuple(kept_out),
        system_only=only_reading,
        trusted=tuple(trusted),
    )
    return {"PATH": path, **kept, **_QUIET, **(_ONLY_READING if only_reading else {})}


def quiet_drivers(names: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return further variables that replace each driver a repository names by one that copies."""
    count = int(env.get("GIT_CONFIG_COUNT", "0"))
    added = {}
    for name in dict.fromkeys(names):
        value = _COPYING.get((name.partition(".")[0], name.rpartition(".")[2]))
        if value is not None and name.count(".") > 1:
            added[f"GIT_CONFIG_KEY_{count}"] = name
            added[f"GIT_CONFIG_VALUE_{count}"] = value
            count += 1
    return {**added, "GIT_CONFIG_COUNT": str(count)}


def external_diff(names: Iterable[str], argv: Iterable[str]) -> str | None:
    """Say why git may not compare: the repository names a program for it, which has no stand-in."""
    if not any(word in text for text in argv for word in _COMPARING):
        return None
    for name in names:
        if name == "diff.external" or (name.startswith("diff.") and name.endswith(".command")):
            return (
                f"the repository sets {name}, so that git would run a program of its choice "
                "without anybody having been asked"
            )
    return None


def search_path(
    path: str, *, kept_out: tuple[str, ...], system_only: bool, trusted: tuple[str, ...] = ()
) -> str:
    """Return the entries of a PATH in which nobody but their owner can put a program."""
    barred = tuple(os.path.realpath(place) for place in kept_out)
    entries = []
    for entry in dict.fromkeys(path.split(":")):
        if not entry.startswith("/"):
            continue
        real = os.path.realpath(entry)
        inside = any(_below(real, place) or _below(entry, place) for place in barred)
        if inside and not any(_below(real, place) for place in trusted):
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
