"""``ServerPlace``: the directories of one server's sessions, and what killed servers left."""

from __future__ import annotations

import itertools
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace.owner import Owner
from coilclaw.workspace.removal import remove_tree, sweep_remainders

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)
_BOOT_CHARS: Final = 8


class ServerPlace:
    """A directory that is named after this very process; its names are short on purpose.

    Programs that are tested may want to make sockets below them.
    """

    def __init__(self, home: Path) -> None:
        owner = Owner.here()
        self._home = home
        self._directory = home / f"{owner.pid}-{owner.started:x}-{owner.boot[:_BOOT_CHARS]}"
        self._numbers = itertools.count(1)

    def make(self) -> None:
        """Make the directory, and remove those of servers that are gone."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot make {self._directory}: {problem.strerror}", rule="session.directory"
            ) from problem
        self.sweep()

    def session(self) -> Path:
        """Make a directory for a new session."""
        for number in self._numbers:
            directory = self._directory / f"s{number}"
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                continue  # of another server in this process
            except OSError as problem:
                raise EnvironmentFault(
                    f"cannot make {directory}: {problem.strerror}", rule="session.directory"
                ) from problem
            return directory
        raise AssertionError

    def discard(self, directory: Path) -> None:
        """Remove a session's directory; what resists is left to the next server."""
        try:
            remove_tree(directory)
        except EnvironmentFault as problem:
            _log.warning("%s", problem.message, extra={"event": "session_left_behind"})

    def remove(self) -> None:
        """Remove the directory, if nothing is left in it."""
        with suppress(OSError):
            self._directory.rmdir()

    def sweep(self) -> None:
        """Remove what servers left that were killed."""
        sweep_remainders(self._home)
        here = Owner.here()
        for name in os.listdir(self._home):
            owner = _owner(name, here)
            if owner is not None and not owner.runs():
                self.discard(self._home / name)


def _owner(name: str, here: Owner) -> Owner | None:
    """Return whose directory it is; one of an earlier boot belongs to nobody who runs."""
    pid, _, rest = name.partition("-")
    started, _, boot = rest.partition("-")
    try:
        number, ticks = int(pid), int(started, 16)
    except ValueError:
        return None
    same = boot == here.boot[:_BOOT_CHARS]
    return Owner(number, ticks, here.boot if same else boot)
