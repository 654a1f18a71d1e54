"""What an agent is held to: the sandbox and the environment of everything that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.tools import shellenv
from coilclaw.workspace.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coilclaw.agents.runner import Filesystem, Network
    from coilclaw.workspace.sandbox import Kind, Mount

SECRET_PLACES: Final = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".codex",
    ".claude",
    ".claude.json",
    ".gemini",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet",
    ".vault-token",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/opencode",
    ".config/opencode",
    ".config/hub",
    ".config/git/credentials",
    ".config/rclone",
    ".terraform.d",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".node_repl_history",
    ".pgpass",
    ".my.cnf",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".coilclaw",
)
"""Below the user's home: what opens doors in a person's name, which no agent needs."""
SCRATCH: Final = "tmp"
"""Below the agent's own home: where its temporary files go."""


def sandbox_of(
    worktree: Sequence[Path],
    home: Path,
    *,
    filesystem: Filesystem,
    network: Network,
    hidden: Iterable[Path] = (),
    kind: Kind = "auto",
    user_home: Path | None = None,
    shown: Sequence[Path] = (),
    mounts: tuple[Mount, ...] = (),
) -> Sandbox:
    """Return what an agent is confined to.

    ``worktree`` are the directories that it may write, if it may write at all: the worktree first,
    then what git needs beside it. ``shown`` are places that it reads wherever they lie, such as the
    git directory of the repository. ``hidden`` are our own places: keys, the run store, locks. A
    network ``on-request`` is none until somebody said yes, which is then ``allow``. Without any
    sandbox on this machine nothing starts, unless the user chose the kind ``none``.
    """
    writable = [home, *(worktree if filesystem == "workspace-write" else ())]
    people = Path.home() if user_home is None else user_home
    secret = [people / place for place in SECRET_PLACES]
    return Sandbox(
        kind,
        writable=tuple(writable),
        hidden=tuple(_there([*hidden, *secret], writable)),
        network=network == "allow" or kind == "none",
        required=kind != "none",
        shown=(*worktree, *shown),
        # Some of what an agent is given runs in our own interpreter.
        programs=(Path(os.path.realpath(sys.executable)),),
        mounts=mounts,
    )


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
    made = shellenv.environment(
        given,
        kept_out=map(str, (home, *kept_out)),
        trusted=map(str, trusted),
        only_reading=False,
    )
    return {**made, "TMPDIR": str(scratch)}


def make_home(home: Path) -> None:
    """Make the private home of an agent, for its owner alone."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (home / SCRATCH).mkdir(exist_ok=True, mode=0o700)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot create the agent's home {home}: {problem.strerror}", rule="agent.home"
        ) from problem


def _there(places: Iterable[Path], writable: Sequence[Path]) -> Iterator[Path]:
    """Yield each place that exists, once; what has to be written cannot be hidden."""
    shown = {os.path.realpath(path) for path in writable}
    seen: set[str] = set()
    for place in places:
        real = os.path.realpath(place)
        if real not in seen and real not in shown and os.path.lexists(real):
            seen.add(real)
            yield Path(real)
