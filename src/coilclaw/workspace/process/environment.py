"""The environment of a child, and where its program is found."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ProcessFault, UsageError
from coilclaw.workspace.process import process_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAG_VARIABLE: Final = "COILCLAW_PROCESS"
"""Carries the ids of the runs a process belongs to, outermost first, so that it can be found."""

MAX_NESTED_TAGS: Final = 8
_TAG_PARTS: Final = 4
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT: Final = ("HOME", "TZ", "TMPDIR")


def read_own(name: str) -> str:
    """Return a variable of this process, which starts the child; empty where it is not set."""
    return os.environ.get(name, "")


def search_path() -> str:
    """Return the PATH of this process if every entry of it is absolute, else a fixed one."""
    path = read_own("PATH")
    if path and all(entry.startswith("/") for entry in path.split(":")):
        return path
    return DEFAULT_PATH


def minimal(*, private_tmp: bool = False) -> dict[str, str]:
    """Return the environment of a child whose caller names none."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if private_tmp:
        # It names a directory that is not writable in there; /tmp is.
        kept.pop("TMPDIR", None)
    return {"PATH": search_path(), "LANG": "C.UTF-8", **kept}


def new_tag() -> str:
    """Return an id that no other process on this machine carries, with the process that made it."""
    try:
        own = process_table.member(os.getpid())
    except OSError:
        own = None  # the caller is told what the matter is, not who asks
    started = 0 if own is None else own.started
    return f"{_namespace()}.{os.getpid()}.{started}.{secrets.token_hex(16)}"


def owner_of(environ: bytes) -> tuple[int, int] | None:
    """Return id and start of the process that gave the innermost tag of an environment.

    ``None`` without a tag, if it does not say, or if the process that gave it lives in another
    process namespace, where ids mean others.
    """
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == TAG_VARIABLE.encode():
            parts = value.rpartition(b":")[2].decode("ascii", "replace").split(".")
            known = len(parts) == _TAG_PARTS and parts[0] == _namespace()
            if known and parts[1].isdigit() and parts[2].isdigit() and int(parts[2]):
                return int(parts[1]), int(parts[2])
    return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def can_be_passed(text: str | bytes) -> bool:
    """Whether the kernel can hand ``text`` to a process."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def add_tag(env: Mapping[str, str], tag: str) -> dict[str, str]:
    """Return ``env`` with the tag of this run, after those of the enclosing runs."""
    for name, value in env.items():
        if not name or "=" in name or not can_be_passed(name) or not can_be_passed(value):
            raise UsageError(
                f"The environment variable {name!r} cannot be passed to a process.",
                rule="process.env",
            )
    outer = [part for part in read_own(TAG_VARIABLE).split(":") if part]
    return {**env, TAG_VARIABLE: ":".join([*outer[-(MAX_NESTED_TAGS - 1) :], tag])}


def find_program(
    name: str | bytes,
    env: Mapping[str, str],
    cwd: str,
    outside: Callable[[str], str] = lambda path: path,
) -> str:
    """Return the absolute path of the program that ``name`` means in ``env``; raise if missing.

    Without a slash it is looked up in the absolute entries of PATH only, never in ``cwd``.
    ``outside`` says where a path lies on this machine, for a child that sees it elsewhere.
    """
    program = os.fsdecode(name)
    entries = [item for item in env.get("PATH", DEFAULT_PATH).split(":") if item.startswith("/")]
    named = "/" in program
    candidates = [os.path.join(place, program) for place in ([cwd] if named else entries)]
    present = [candidate for candidate in candidates if os.path.isfile(outside(candidate))]
    for candidate in present:
        if os.access(outside(candidate), os.X_OK):
            return candidate
    if present:
        raise ProcessFault(
            f"The program {present[0]!r} is not executable.", rule="process.not_executable"
        )
    raise ProcessFault(
        f"The program {program!r} was not found.",
        rule="process.not_found",
        hint=None if named else f"Looked in {':'.join(entries)}.",
    )
