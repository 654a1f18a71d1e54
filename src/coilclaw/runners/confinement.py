"""What an agent is held to: the sandbox and the environment of everything that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.agent import command_environment
from coilclaw.kernel import explain_os_errors
from coilclaw.workspace import SCRATCH, Sandbox, SandboxView, fill_home, find_tool_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coilclaw.runners.runner import Filesystem, Network
    from coilclaw.workspace import Kind, Mount

_NOTHING_MORE: Final = SandboxView()


def sandbox_of(
    worktree: Sequence[Path],
    home: Path,
    *,
    filesystem: Filesystem,
    network: Network,
    hidden: Iterable[Path] = (),
    kind: Kind = "auto",
    shown: Sequence[Path] = (),
    mounts: tuple[Mount, ...] = (),
    view: SandboxView = _NOTHING_MORE,
) -> Sandbox:
    """Return what an agent is confined to.

    ``worktree`` are the directories that it may write, if it may write at all: the worktree first,
    then what git needs beside it. ``shown`` are places that it reads wherever they lie, such as the
    git directory of the repository. ``hidden`` are our own places: keys, the run store, locks. A
    network ``on-request`` is none until the user agreed, which is then ``allow``. Without any
    sandbox on this machine nothing starts, unless the user chose the kind ``none``.
    """
    writable = [home, *(worktree if filesystem == "workspace-write" else ())]
    held = Sandbox(
        kind,
        writable=tuple(writable),
        hidden=tuple(_there(hidden, writable)),
        network=network == "allow" or kind == "none",
        required=kind != "none",
        shown=(*worktree, *shown),
        # Some of what an agent is given runs in our own interpreter.
        programs=(Path(os.path.realpath(sys.executable)),),
        mounts=mounts,
    )
    return view.widen(held, writable=filesystem == "workspace-write")


def environ_of(
    home: Path,
    ours: Mapping[str, str],
    *,
    kept_out: Iterable[Path] = (),
    trusted: Iterable[Path] = (),
) -> dict[str, str]:
    """Return the whole environment of an agent: made from nothing, and at home in ``home``.

    Programs are not found below ``kept_out``, where an agent may have put them, but for the places
    in it that are ``trusted``.
    """
    scratch = home / SCRATCH
    given = {**ours, "HOME": str(home)}
    made = command_environment.command_environment(
        given,
        kept_out=map(str, (home, *kept_out)),
        trusted=map(str, trusted),
        only_reading=False,
    )
    tools = find_tool_variables(ours, made["PATH"])
    return {**made, **tools, "TMPDIR": str(scratch)}


def make_home(home: Path, environ: Mapping[str, str]) -> None:
    """Make the private home of an agent, for its owner alone."""
    with explain_os_errors(f"create the agent's home {home}", rule="agent.home"):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    fill_home(home, environ)


def _there(places: Iterable[Path], writable: Sequence[Path]) -> Iterator[Path]:
    """Yield each place that exists, once; what has to be written cannot be hidden."""
    shown = {os.path.realpath(path) for path in writable}
    seen: set[str] = set()
    for place in places:
        real = os.path.realpath(place)
        if real not in seen and real not in shown and os.path.lexists(real):
            seen.add(real)
            yield Path(real)
