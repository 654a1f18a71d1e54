"""Choose the OS sandbox of a child: bubblewrap, Landlock, or none at all, loudly."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import bubblewrap, landlock, seccomp
from coilclaw.workspace.confinement import (
    NO_SANDBOX,
    SYSTEM_PATHS,
    Confinement,
    Enforced,
    Kind,
    Mount,
    Sandbox,
    SandboxSupport,
    resolve,
)
from coilclaw.workspace.toolchain import is_below

__all__ = [
    "NO_SANDBOX",
    "SYSTEM_PATHS",
    "Choice",
    "Enforced",
    "Kind",
    "Mount",
    "Sandbox",
    "SandboxSupport",
    "choose",
    "landlock_can_hide",
    "probe",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """The sandbox that will be used, resolved on this machine."""

    confinement: Confinement
    support: SandboxSupport
    enforced: Enforced
    scoped: bool = False
    """Whether Landlock keeps abstract sockets away from what bubblewrap runs."""


def probe() -> SandboxSupport:
    """See what works on this machine; it starts a process, so the caller may keep the answer."""
    program, proc, reason = bubblewrap.probe()
    abi = landlock.abi()
    notes = [reason] if reason else []
    if not abi:
        notes.append("This kernel has no Landlock.")
    layers = program is not None and bubblewrap.can_layer(program)
    return SandboxSupport(program, proc, abi, tuple(notes), seccomp.available(), layers)


def choose(sandbox: Sandbox, support: SandboxSupport, *, path: str = "", cwd: str = "") -> Choice:
    """Pick what ``sandbox`` asks for, and refuse what ``support`` cannot give.

    ``path`` and ``cwd`` are the PATH and the directory of what shall run, as for ``resolve``.
    """
    if sandbox.kind == "none":
        return Choice(Confinement(), support, Enforced())
    support = _trust(support, sandbox)
    mounting = sandbox.kind != "landlock" and bool(support.bubblewrap)
    confinement = resolve(sandbox, path, cwd, mounting=mounting)
    if mounting:
        scoped = landlock.scopes_sockets(support.landlock_abi) and not bubblewrap.is_setuid(
            str(support.bubblewrap)
        )
        held = bubblewrap.enforced(confinement, proc=support.bubblewrap_proc, scoped=scoped)
        return Choice(confinement, support, held, scoped)
    if sandbox.kind != "bubblewrap" and support.landlock_abi:
        if sandbox.nested:
            raise EnvironmentFault(
                "Under Landlock no other sandbox can be put up, and what shall run needs one.",
                rule="sandbox.nested",
                hint="Install bubblewrap.",
            )
        held = landlock.enforced(confinement, support.landlock_abi, seccomp=support.seccomp)
        _refuse_weaker(sandbox, held)
        return Choice(confinement, support, held)
    if sandbox.kind != "auto" or sandbox.required:
        wanted = "A sandbox" if sandbox.kind == "auto" else f"The sandbox {sandbox.kind}"
        raise EnvironmentFault(
            f"{wanted} is required and this machine has none: {' '.join(support.notes)}",
            rule="sandbox.unavailable",
            hint="Install bubblewrap, or use a kernel with Landlock.",
        )
    note = "No sandbox is available: the process ran unconfined."
    _log.warning("%s %s", note, " ".join(support.notes))
    return Choice(confinement, support, replace(Enforced(), notes=(note, *support.notes)))


def _trust(support: SandboxSupport, sandbox: Sandbox) -> SandboxSupport:
    """Leave out a bubblewrap that what runs in the sandbox could replace."""
    program = support.bubblewrap
    places = map(os.path.realpath, sandbox.writable)
    if program is None or not any(is_below(os.path.realpath(program), place) for place in places):
        return support
    note = f"{program} is not used: it lies where the process may write."
    return replace(support, bubblewrap=None, notes=(*support.notes, note))


def landlock_can_hide(sandbox: Sandbox) -> None:
    """Raise the fault that starting a child with Landlock would raise, if it cannot hide it all."""
    landlock.grants(resolve(sandbox, mounting=False))


def _refuse_weaker(sandbox: Sandbox, held: Enforced) -> None:
    """An old Landlock may not stand in for what was asked by name, or required."""
    weaker = not held.filesystem or (held.network == "open" and not sandbox.network)
    if not weaker:
        return
    if sandbox.kind != "auto" or sandbox.required:
        raise EnvironmentFault(
            f"The sandbox asked for cannot be enforced here: {' '.join(held.notes)}",
            rule="sandbox.unavailable",
            hint="Install bubblewrap, or use a newer kernel.",
        )
    _log.warning("the sandbox is weaker than asked for: %s", " ".join(held.notes))
