"""``ServerPlace``: the directories of one server's sessions, and what killed servers left.

A server holds its directory, and the process of a session its own: what somebody holds is left
alone, even if its server is gone, or cannot be seen because it runs in another container.
"""

from __future__ import annotations

import fcntl
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
WORK: Final = "work"
"""The directory that the process of a session holds, in the session's own."""
_BOOT_CHARS: Final = 8
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ServerPlace:
    """A directory that is named after this very process; its names are short on purpose.

    Programs that are tested may want to make sockets below them.
    """

    def __init__(self, home: Path) -> None:
        owner = Owner.here()
        self._home = home
        self._directory = home / f"{owner.pid}-{owner.started:x}-{owner.boot[:_BOOT_CHARS]}"
        self._numbers = itertools.count(1)
        self._held: int | None = None

    def make(self) -> None:
        """Make the directory, and remove those of servers that are gone."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot make {self._directory}: {problem.strerror}", rule="session.directory"
            ) from problem
        self._held = hold(self._directory)
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
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def sweep(self) -> None:
        """Remove what servers left that were killed; what cannot be removed hinders nobody."""
        here = Owner.here()
        try:
            sweep_remainders(self._home)
            names = os.listdir(self._home)
        except (EnvironmentFault, OSError) as problem:
            _log.warning("%s", problem, extra={"event": "session_left_behind"})
            return
        for name in names:
            owner, place = _owner(name, here), self._home / name
            if owner is not None and not owner.runs() and not is_held(place):
                self._sweep_server(place)

    def _sweep_server(self, place: Path) -> None:
        """Remove the sessions of a server that is gone, but for those that just tear down."""
        with suppress(OSError):  # another server may sweep as well
            for name in os.listdir(place):
                if not is_held(place / name / WORK):
                    self.discard(place / name)
            place.rmdir()


def hold(directory: Path) -> int | None:
    """Hold a directory until the file that is returned is closed, or this process ends."""
    try:
        file = os.open(directory, _DIRECTORY)
    except OSError:
        return None
    with suppress(OSError):  # on a file system without locks, the name has to do
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return file


def is_held(directory: Path) -> bool:
    """Whether some process holds a directory."""
    try:
        file = os.open(directory, _DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


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
