"""``SessionProcess``: the server's side of one session's process, and everything said with it."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from coilclaw.environments.judging import problem_of, worker_environ
from coilclaw.environments.results import Case, Result
from coilclaw.environments.scheduling import GRACE_S
from coilclaw.environments.wire import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES
from coilclaw.errors import CoilClawError, EnvironmentFault, Stopped, UsageError
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.environments.wire import Request
    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.process import LiveProcess

LIFETIME_S: Final = 25 * 3600.0
"""No process lives longer, whatever it is doing; its session is to end an hour earlier."""
LOAD_S: Final = 120.0
_MARGIN_S: Final = 10.0
"""How much longer than its own limit something may take to say so."""
_END_S: Final = 5.0
_TOLD: Final = 2000
_LATE: Final = "its time is up"


class SessionProcess:
    """One session; calls come one after the other, whoever makes them."""

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
    def start(cls, request: Request, cancel: Cancellation) -> Self:
        """Start the process and have it build what was submitted.

        A setup that fails is an ``EnvironmentFault`` with the rule ``session.setup``.
        """
        live = process.open(
            [sys.executable, "-P", "-B", "-X", "utf8", "-m", f"{__package__}.sessionworker"],
            cwd=request.scratch,
            timeout_s=LIFETIME_S,
            env=worker_environ(),
            cancel=cancel,
        )
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
                raise closed()
            if self._cancel.cancelled:
                raise self.lost()
            self._number += 1
            with self._within(timeout_s):
                self._ask({"call": self._number, "path": path, "params": dict(params)})
                return self._result()

    def close(self, grace_s: float) -> str | None:
        """Stop what runs, have it torn down and end it; return what went wrong with that."""
        trouble: str | None = "it did not end in time"
        with self._writing:
            # No call comes behind this: nobody would answer it.
            self._closing = True
            with suppress(CoilClawError):  # then it is gone already
                self._write(_line({"close": True}))
        if self._turn.acquire(timeout=grace_s):
            try:
                trouble = self._closed(min(grace_s, self._teardown_s + GRACE_S + _MARGIN_S))
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
            with self._within(LOAD_S):
                with self._writing:
                    self._write(request.encode())
                loaded = self._hear()
            seconds = loaded.get("setup_s"), loaded.get("teardown_s")
            if loaded["kind"] != "loaded" or not all(isinstance(one, float) for one in seconds):
                raise _not_understood()
            setup_s, self._teardown_s = (float(str(one)) for one in seconds)
            with self._within(LOAD_S + setup_s + GRACE_S + _MARGIN_S):
                built = self._hear()
            match built:
                case {"kind": "built", "error": None}:
                    return
                case {"kind": "built", "error": str(error)}:
                    raise EnvironmentFault(f"the setup failed: {error}", rule="session.setup")
                case _:
                    raise _not_understood()

    def _result(self) -> Result:
        base, cases = "", dict[str, Case | None]()
        while True:
            match self._hear():
                case {"kind": "selected", "base": str(base), "ids": list(ids)}:
                    cases = dict.fromkeys(map(str, ids))
                case {"kind": "case", "case": dict(value)}:
                    case = Case.of(value)
                    cases[case.id] = case
                case {"kind": "called", "stopped": True}:
                    raise closed()
                case {"kind": "called"}:
                    break
                case _:
                    raise _not_understood()
        return Result.build([case for case in cases.values() if case is not None], base)

    def _closed(self, seconds: float) -> str | None:
        try:
            with self._within(seconds):
                while True:
                    match self._hear():
                        case {"kind": "closed", "trouble": str() | None as trouble}:
                            return trouble
        except CoilClawError as problem:
            return problem.message

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """End the process unless what is done with it ends in time."""
        timer = threading.Timer(seconds, self._cancel.cancel, [_LATE])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _ask(self, message: dict[str, Json]) -> None:
        with self._writing:
            if self._closing:
                raise closed()
            self._write(_line(message))

    def _write(self, data: bytes) -> None:
        if len(data) > MAX_REQUEST_BYTES:
            # What is short as it came may be long as it is passed on.
            raise UsageError(
                f"the parameters have more than {MAX_REQUEST_BYTES} bytes, written in ASCII",
                rule="session.parameter",
            )
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
        """Whether there is no process any more."""
        try:
            return self._live.result is not None
        except CoilClawError:
            return True

    def lost(self) -> CoilClawError:
        """Say why there is no process to speak with any more."""
        if self._cancel.reason == _LATE:
            return EnvironmentFault(
                "the session took too long and was ended", rule="session.timeout"
            )
        if self._cancel.cancelled:
            return closed()
        ending = self._live.wait(_END_S)
        how = "without a word"
        if ending is not None:
            code, signal = ending.exit_code, ending.signal
            said = ending.stderr.text().strip()[-_TOLD:]
            how = f"with exit code {code}" if signal is None else f"with signal {signal}"
            how += f": {said}" if said else ""
        return EnvironmentFault(
            f"Session worker unavailable: its process ended {how}", rule="session.lost"
        )


def closed() -> Stopped:
    """The error for a call whose session ended before its tests did."""
    return Stopped("the session was closed before its tests were over", rule="session.closed")


def _line(message: dict[str, Json]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _not_understood() -> EnvironmentFault:
    return EnvironmentFault(
        "the process of a session said something that is not understood", rule="session.protocol"
    )
