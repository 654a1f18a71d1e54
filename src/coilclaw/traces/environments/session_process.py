"""The server's side of a session: its process, everything said with it, and its directory.

A server holds its directory, and the process of a session its own: what a process holds is left
alone, even if its server is gone, or cannot be seen because it runs in another container.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from coilclaw.kernel import CoilClawError, EnvironmentFault, Stopped, UsageError, explain_os_errors
from coilclaw.traces.environments.case_run import GRACE_S, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from coilclaw.traces.environments.judge import problem_of, start_worker
from coilclaw.traces.environments.results import Case, Result
from coilclaw.workspace import Cancellation, LiveProcess, Owner, remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.traces.environments.case_run import Request

_log = logging.getLogger(__name__)
LIFETIME_S: Final = 25 * 3600.0
"""No process lives longer, whatever it is doing; its session is to end an hour earlier."""
LOAD_S: Final = 120.0
_MARGIN_S: Final = 10.0
"""How much longer than its own limit something may take to say so."""
_END_S: Final = 5.0
_TOLD: Final = 2000
_LATE: Final = "its time is up"
WORK: Final = "work"
"""The directory that the process of a session holds, in the session's own."""
_BOOT_CHARS: Final = 8
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SessionProcess:
    """One session; calls come one after the other, from any thread."""

    def __init__(self, live: LiveProcess, cancel: Cancellation) -> None:
        self._live = live
        self._cancel = cancel
        self._turn = threading.Lock()
        """Held by who reads the answers."""
        self._writing = threading.Lock()
        self._number = 0
        self._closing = False
        self._teardown_s = 0.0

    @classmethod
    def start(cls, request: Request, cancel: Cancellation, environ: Mapping[str, str]) -> Self:
        """Start the process and have it build what was submitted.

        A setup that fails is an ``EnvironmentFault`` with the rule ``session.setup``.
        """
        live = start_worker(request.scratch, LIFETIME_S, cancel, environ, "session")
        made = cls(live, cancel)
        try:
            made._build(request)
        except BaseException:
            made.kill("it could not be set up")
            raise
        return made

    @property
    def pid(self) -> int:
        return self._live.pid

    def call(self, path: str, params: Mapping[str, Json], timeout_s: float) -> Result:
        """Run the tests at a path, after the calls that came before."""
        with self._turn:
            if self._closing:
                raise closed_error()
            if self._cancel.cancelled:
                raise self.lost()
            self._number += 1
            with self._limit_time(timeout_s):
                with self._writing:
                    if self._closing:
                        raise closed_error()
                    self._write({"call": self._number, "path": path, "params": dict(params)})
                return self._read_result()

    def close(self, grace_s: float) -> str | None:
        """Stop what runs, have it torn down and end it; return what went wrong with that."""
        trouble: str | None = "it did not end in time"
        with self._writing:
            # No call may follow this one: it would not be answered.
            self._closing = True
            with suppress(CoilClawError):  # then it is gone already
                self._write({"close": True})
        if self._turn.acquire(timeout=grace_s):
            try:
                trouble = self._await_closed(min(grace_s, self._teardown_s + GRACE_S + _MARGIN_S))
            finally:
                self._turn.release()
        self.kill("the session is over")
        return trouble

    def kill(self, reason: str) -> None:
        """End it at once, with all that it started."""
        self._cancel.cancel(reason)
        with self._turn, self._writing:
            self._live.close(0.0)

    def _build(self, request: Request) -> None:
        with self._turn:
            with self._limit_time(LOAD_S):
                with self._writing:
                    self._send(request.encode())
                loaded = self._hear()
            match loaded:
                case {"kind": "loaded", "setup_s": float(setup_s), "teardown_s": float(seconds)}:
                    self._teardown_s = seconds
                case _:
                    raise _refuse_message()
            with self._limit_time(LOAD_S + setup_s + GRACE_S + _MARGIN_S):
                built = self._hear()
            match built:
                case {"kind": "built", "error": str(error)}:
                    raise EnvironmentFault(f"the setup failed: {error}", rule="session.setup")
                case {"kind": "built", "error": None}:
                    return
            raise _refuse_message()

    def _read_result(self) -> Result:
        base, cases = "", dict[str, Case | None]()
        while True:
            match self._hear():
                case {"kind": "selected", "base": str(base), "ids": list(ids)}:
                    cases = dict.fromkeys(map(str, ids))
                case {"kind": "case", "case": dict(value)}:
                    case = Case.of(value)
                    cases[case.id] = case
                case {"kind": "called", "stopped": True}:
                    raise closed_error()
                case {"kind": "called"}:
                    break
                case _:
                    raise _refuse_message()
        return Result.build([case for case in cases.values() if case is not None], base)

    def _await_closed(self, seconds: float) -> str | None:
        try:
            with self._limit_time(seconds):
                while True:
                    match self._hear():
                        case {"kind": "closed", "trouble": str() | None as trouble}:
                            return trouble
        except CoilClawError as problem:
            return problem.message

    @contextmanager
    def _limit_time(self, seconds: float) -> Iterator[None]:
        """End the process unless what is done with it ends in time."""
        timer = threading.Timer(seconds, self._cancel.cancel, [_LATE])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _write(self, message: dict[str, Json]) -> None:
        self._send(json.dumps(message).encode() + b"\n")

    def _send(self, data: bytes) -> None:
        if len(data) > MAX_REQUEST_BYTES:
            # What is short as it came may be long as it is passed on.
            message = f"the parameters have more than {MAX_REQUEST_BYTES} bytes, written in ASCII"
            raise UsageError(message, rule="session.parameter")
        try:
            self._live.stdin.write(data)
        except (BrokenPipeError, ValueError):
            raise self.lost() from None

    def _hear(self) -> dict[str, Json]:
        try:
            line = self._live.stdout.readline(MAX_MESSAGE_BYTES)
        except ValueError:
            line = b""  # closed meanwhile
        if not line.endswith(b"\n"):
            raise self.lost()
        said: dict[str, Json] = json.loads(line)
        if said["kind"] == "problem":
            raise problem_of(said)
        return said

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        try:
            return self._live.result is not None
        except CoilClawError:
            return True

    def lost(self) -> CoilClawError:
        """Return the error that says why the process has ended."""
        if self._cancel.reason == _LATE:
            message = "the session took too long and was ended"
            return EnvironmentFault(message, rule="session.timeout")
        if self._cancel.cancelled:
            return closed_error()
        ending = self._live.wait(_END_S)
        how = "without a word"
        if ending is not None:
            code, signal = ending.exit_code, ending.signal
            said = ending.stderr.text().strip()[-_TOLD:]
            how = f"with exit code {code}" if signal is None else f"with signal {signal}"
            how += f": {said}" if said else ""
        message = f"Session worker unavailable: its process ended {how}"
        return EnvironmentFault(message, rule="session.lost")


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
        with explain_os_errors(f"make {self._directory}", rule="session.directory"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held = hold(self._directory)
        self.sweep()

    def session(self) -> Path:
        """Make a directory for a new session."""
        while True:
            directory = self._directory / f"s{next(self._numbers)}"
            with (
                explain_os_errors(f"make {directory}", rule="session.directory"),
                suppress(FileExistsError),  # of another server in this process
            ):
                directory.mkdir(mode=0o700)
                return directory

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
        """Remove what servers left that were killed; what cannot be removed is left."""
        here = Owner.here()
        try:
            sweep_remainders(self._home)
            names = os.listdir(self._home)
        except (EnvironmentFault, OSError) as problem:
            _log.warning("%s", problem, extra={"event": "session_left_behind"})
            return
        for server in names:
            owner, place = _owner_of(server, here), self._home / server
            if owner is None or owner.runs() or is_held(place):
                continue
            with suppress(OSError):  # another server may sweep as well
                for name in os.listdir(place):
                    if not is_held(place / name / WORK):  # else it just tears down
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
    """Return whether a process holds a directory."""
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


def _owner_of(name: str, here: Owner) -> Owner | None:
    """Return whose directory it is; one of an earlier boot belongs to a process that is gone."""
    pid, _, rest = name.partition("-")
    started, _, boot = rest.partition("-")
    try:
        number, ticks = int(pid), int(started, 16)
    except ValueError:
        return None
    same = boot == here.boot[:_BOOT_CHARS]
    return Owner(number, ticks, here.boot if same else boot)


def closed_error() -> Stopped:
    """Return the error for a call whose session ended before its tests did."""
    return Stopped("the session was closed before its tests were over", rule="session.closed")


def _refuse_message() -> EnvironmentFault:
    message = "the process of a session sent a message that is not understood"
    return EnvironmentFault(message, rule="session.protocol")
