"""Choose the OS sandbox of a child: bubblewrap, Landlock, or none, with a warning."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace

from coilclaw.kernel import EnvironmentFault, is_below_any
from coilclaw.workspace.process import bubblewrap, landlock
from coilclaw.workspace.process.confinement import (
    Confinement,
    Enforced,
    Sandbox,
    SandboxSupport,
    resolve,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """The sandbox that will be used, resolved on this machine."""

    confinement: Confinement
    support: SandboxSupport
    enforced: Enforced
    scoped: bool = False
    """Whether Landlock keeps abstract sockets away from what bubblewrap runs."""


def probe_sandboxes() -> SandboxSupport:
    """Return what works on this machine; the caller may cache it, as it starts processes."""
    program, proc, reason = bubblewrap.probe()
    abi = landlock.abi()
    notes = [reason] if reason else []
    if not abi:
        notes.append("This kernel has no Landlock.")
    layers = program is not None and bubblewrap.can_layer(program)
    return SandboxSupport(program, proc, abi, tuple(notes), landlock.available(), layers)


def choose_sandbox(
    sandbox: Sandbox, support: SandboxSupport, *, path: str = "", cwd: str = ""
) -> Choice:
    """Choose what ``sandbox`` asks for; raise if ``support`` cannot provide it.

    ``path`` and ``cwd`` are the PATH and the directory of what shall run, as for ``resolve``.
    """
    if sandbox.kind == "none":
        return Choice(Confinement(), support, Enforced())
    program = support.bubblewrap or ""
    if program and is_below_any(os.path.realpath(program), map(os.path.realpath, sandbox.writable)):
        # What runs in the sandbox could replace it.
        note = f"{program} is not used: it lies where the process may write."
        support = replace(support, bubblewrap=None, notes=(*support.notes, note))
    must = sandbox.kind != "auto" or sandbox.required
    mounting = sandbox.kind != "landlock" and bool(support.bubblewrap)
    confinement = resolve(sandbox, path, cwd, mounting=mounting)
    if mounting:
        setuid = bubblewrap.is_setuid(str(support.bubblewrap))
        scoped = support.landlock_abi >= landlock.ABI_SCOPE and not setuid
        held = bubblewrap.describe_enforced(
            confinement, proc=support.bubblewrap_proc, scoped=scoped
        )
        return Choice(confinement, support, held, scoped)
    if sandbox.kind != "bubblewrap" and support.landlock_abi:
        if sandbox.nested:
            raise EnvironmentFault(
                "The program needs a sandbox of its own, which Landlock does not allow.",
                rule="sandbox.nested",
                hint="Install bubblewrap.",
            )
        held = landlock.describe_enforced(
            confinement, support.landlock_abi, seccomp=support.seccomp
        )
        # An old Landlock may not stand in for what was asked by name, or required.
        if not held.filesystem or (held.network == "open" and not sandbox.network):
            notes = " ".join(held.notes)
            if must:
                raise EnvironmentFault(
                    f"The sandbox asked for cannot be enforced here: {notes}",
                    rule="sandbox.unavailable",
                    hint="Install bubblewrap, or use a newer kernel.",
                )
            _log.warning("the sandbox is weaker than asked for: %s", notes)
        return Choice(confinement, support, held)
    if must:
        wanted = "A sandbox" if sandbox.kind == "auto" else f"The sandbox {sandbox.kind}"
        raise EnvironmentFault(
            f"{wanted} is required and this machine has none: {' '.join(support.notes)}",
            rule="sandbox.unavailable",
            hint="Install bubblewrap, or use a kernel with Landlock.",
        )
    note = "No sandbox is available: the process ran unconfined."
    _log.warning("%s %s", note, " ".join(support.notes))
    return Choice(confinement, support, replace(Enforced(), notes=(note, *support.notes)))


def landlock_can_hide(sandbox: Sandbox) -> None:
    """Raise the fault that starting a child with Landlock would raise, if it cannot hide it all."""
    landlock.grants(resolve(sandbox, mounting=False))
