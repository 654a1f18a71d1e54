"""``Sessions``: submissions that were uploaded, each built and tested in a process of its own.

A session ends when it is closed, when it was not used for its time, or with the server; then its
teardown runs, its process ends and its directory is removed. What a killed server left behind is
removed by the next one.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from coilclaw.kernel import CoilClawError, Json, Stopped, UsageError
from coilclaw.traces.environments.archives import UploadBounds, unpack_upload
from coilclaw.traces.environments.case_run import Request
from coilclaw.traces.environments.session_process import WORK, ServerPlace, SessionProcess
from coilclaw.workspace import Cancellation, SandboxSupport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.traces.environments.catalogue import EnvironmentPlace
    from coilclaw.traces.environments.results import Result

_log = logging.getLogger(__name__)

DEFAULT_IDLE_S: Final = 300
MAX_IDLE_S: Final = 24 * 3600
CLOSE_S: Final = 600.0
"""How long the end of a session may take, its teardown included."""
_ENDED: Final = frozenset({"session.lost", "session.timeout", "session.protocol"})
_SWEEP_S: Final = 60.0
_LOOK_S: Final = 5.0
"""How often idle processes are looked at."""
_MAX_LOST: Final = 256
"""Sessions that were lost between two calls; the next call of each reports it."""
_HALT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions there may be, and how much each may take."""

    sessions: int = 16
    """At once, those that are being uploaded, built or closed included."""
    waiting: int = 16
    """Calls of one session that run or wait."""
    call_s: float = 3600.0
    """For the tests of one call."""
    bounds: UploadBounds = field(default_factory=UploadBounds)


@dataclass(slots=True, eq=False)
class _Session:
    id: str
    directory: Path
    process: SessionProcess
    idle_s: float
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)
    busy: int = 0
    """Calls that run or wait."""

    @property
    def expires(self) -> float:
        if self.busy:
            return float("inf")
        return min(self.used + self.idle_s, self.began + MAX_IDLE_S)


class Sessions:
    """The sessions of one server; any number of threads may use them."""

    def __init__(
        self,
        place: EnvironmentPlace,
        *,
        support: SandboxSupport,
        home: Path,
        environ: Mapping[str, str],
        jobs: int = 1,
        limits: SessionLimits | None = None,
        fixed: Mapping[str, Json] | None = None,
        hidden: tuple[Path, ...] = (),
    ) -> None:
        """``fixed`` are parameters of every session, which no client may give.

        ``hidden`` is kept from programs that are tested, wherever it lies: sessions hide one
        another and the environment themselves.
        """
        self.place = place
        self.limits = limits or SessionLimits()
        self._support = support
        self._environ = environ
        self._jobs = jobs
        self._fixed = dict(fixed or {})
        self._hidden = (place.directory, home, *hidden)
        self._places = ServerPlace(home)
        self._changed = threading.Condition()
        self._sessions: dict[str, _Session] = {}
        self._lost: dict[str, CoilClawError] = {}
        self._ending: set[_Session] = set()
        self._starting: set[Cancellation] = set()
        self._taken = 0
        self._stopping = False
        self._watching = threading.Thread(target=self._watch, name="sessions", daemon=True)

    def __enter__(self) -> Self:
        self._places.make()
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(CLOSE_S)
        with self._changed:
            # Something may just be being unpacked.
            self._changed.wait_for(lambda: not self._taken, _HALT_S)
        self._watching.join()
        self._places.remove()

    @property
    def fixed(self) -> frozenset[str]:
        """The parameters that no client may give."""
        return frozenset(self._fixed)

    def begin(self) -> SessionOpening:
        """Take a place for a session before its upload comes; it has to be opened or discarded."""
        with self._changed:
            if self._stopping:
                raise _stopping()
            if self._taken >= self.limits.sessions:
                message = f"there are {self.limits.sessions} sessions already"
                hint = "close one, or wait until one expires"
                raise UsageError(message, rule="session.many", hint=hint)
            self._taken += 1
        try:
            return SessionOpening(self, self._places.session())
        except BaseException:
            self.give_back(None)
            raise

    def test(self, session_id: str, path: str, params: Mapping[str, Json]) -> Result:
        """Run the tests at a path against what a session holds."""
        self._refuse_fixed(params)
        with self._changed:
            session = self._sessions.get(session_id)
            if session is None:
                raise self._lost.pop(session_id, None) or _unknown()
            if session.busy >= self.limits.waiting:
                message = f"{session.busy} calls of this session run or wait already"
                raise UsageError(message, rule="session.waiting")
            session.busy += 1
        try:
            return session.process.call(path, params, self.limits.call_s)
        except CoilClawError as problem:
            if problem.rule in _ENDED and self._drop(session_id) is not None:
                self._end(session, 0.0)
            raise
        finally:
            with self._changed:
                session.busy -= 1
                session.used = time.monotonic()
                self._changed.notify_all()

    def close(self, session_id: str) -> str | None:
        """End a session; return what went wrong with its teardown."""
        session = self._drop(session_id)
        if session is not None:
            return self._end(session, CLOSE_S)
        with self._changed:
            lost = self._lost.pop(session_id, None)
        if lost is None:
            raise _unknown()
        return lost.message

    def stop(self, grace_s: float) -> None:
        """End all sessions, side by side; none begins any more."""
        with self._changed:
            self._stopping = True
            ending = list(self._sessions.values())
            self._sessions.clear()
            self._ending.update(ending)
            starting = tuple(self._starting)
            self._changed.notify_all()
        for cancel in starting:
            cancel.cancel("the server is being stopped")
        for session in ending:
            self._end_beside(session, grace_s)
        with self._changed:
            self._changed.wait_for(lambda: not self._ending and not self._starting, grace_s)
        self.halt()

    def halt(self) -> None:
        """End what is still ending at once, without its teardown."""
        with self._changed:
            ending = tuple(self._ending)
        for session in ending:
            session.process.kill("the server is being stopped")
        with self._changed:
            self._changed.wait_for(lambda: not self._ending, _HALT_S)

    def count(self) -> int:
        """Return how many sessions are open."""
        return len(self._sessions)

    def start(
        self, directory: Path, params: Mapping[str, Json], bounds: UploadBounds
    ) -> SessionProcess:
        """Unpack what was uploaded into a directory, and build it in a process of its own."""
        self._refuse_fixed(params)
        upload, tree, work = directory / "upload", directory / "tree", directory / WORK
        work.mkdir(mode=0o700)
        if upload.exists():
            unpack_upload(upload, tree, bounds)
            upload.unlink()
        else:
            tree.mkdir(mode=0o700)
        request = Request(
            task="test",
            file=self.place.file,
            session=Path(os.path.realpath(tree)),
            scratch=Path(os.path.realpath(work)),
            path="",
            params={**params, **self._fixed},
            jobs=self._jobs,
            built=False,
            support=self._support,
            hidden=self._hidden,
        )
        cancel = Cancellation()
        with self._changed:
            if self._stopping:
                raise _stopping()
            self._starting.add(cancel)
        try:
            return SessionProcess.start(request, cancel, self._environ)
        except Stopped:
            raise _stopping() from None
        finally:
            with self._changed:
                self._starting.discard(cancel)
                self._changed.notify_all()

    def admit(self, process: SessionProcess, directory: Path, idle_s: float) -> str:
        """Keep a session that was built, under a name that cannot be guessed."""
        session = _Session(secrets.token_hex(16), directory, process, idle_s)
        with self._changed:
            if self._stopping:
                raise _stopping()
            self._sessions[session.id] = session
            self._changed.notify_all()
        return session.id

    def _refuse_fixed(self, params: Mapping[str, Json]) -> None:
        for name in sorted(params.keys() & self._fixed.keys()):
            raise UsageError(f"the parameter {name} is set by the server", rule="session.parameter")

    def _drop(self, session_id: str) -> _Session | None:
        with self._changed:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                self._ending.add(session)
            return session

    def _end_beside(self, session: _Session, grace_s: float) -> None:
        threading.Thread(target=self._end, args=(session, grace_s), daemon=True).start()

    def _end(self, session: _Session, grace_s: float) -> str | None:
        trouble = None
        try:
            if grace_s > 0:
                trouble = session.process.close(grace_s)
            else:
                session.process.kill("the session is over")
        finally:
            self.give_back(session.directory)
            with self._changed:
                self._ending.discard(session)
                self._changed.notify_all()
        if trouble is not None:
            extra = {"event": "session_trouble"}
            _log.warning("the end of a session went wrong: %s", trouble, extra=extra)
        return trouble

    def give_back(self, directory: Path | None) -> None:
        """Remove a directory, and let another session have the place."""
        try:
            if directory is not None:
                self._places.discard(directory)
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def _watch(self) -> None:
        """End sessions that were not used for their time; look for what others left behind."""
        swept = time.monotonic()
        while True:
            with self._changed:
                if self._stopping:
                    return
                now = time.monotonic()
                late = [one for one in self._sessions.values() if one.expires <= now]
                for session in late:
                    self._drop(session.id)
                if not late:
                    expiring = (one.expires for one in self._sessions.values())
                    next_look = now + _LOOK_S if self._sessions else swept + _SWEEP_S
                    first = min((*expiring, next_look, swept + _SWEEP_S))
                    self._changed.wait(max(first - now, 0.0))
            for session in late:
                _log.info("a session expired", extra={"event": "session_expired"})
                self._end_beside(session, CLOSE_S)
            self._look()
            if time.monotonic() >= swept + _SWEEP_S:
                self._places.sweep()
                swept = time.monotonic()

    def _look(self) -> None:
        """End sessions whose process has ended, so that they take no place."""
        with self._changed:
            gone = [one for one in self._sessions.values() if not one.busy and one.process.ended]
            for session in gone:
                self._drop(session.id)
                self._lost[session.id] = session.process.lost()
            while len(self._lost) > _MAX_LOST:
                del self._lost[next(iter(self._lost))]
        for session in gone:
            _log.warning("the process of a session is gone", extra={"event": "session_lost"})
            self._end_beside(session, 0.0)


@dataclass(slots=True)
class SessionOpening:
    """A session that is about to be: its upload is written to ``upload``, then it is opened."""

    sessions: Sessions
    directory: Path
    _over: bool = False

    @property
    def upload(self) -> Path:
        return self.directory / "upload"

    def open(self, params: Mapping[str, Json], idle_s: float) -> str:
        """Build it and keep it; return its id. If that fails, nothing is left of it."""
        try:
            process = self.sessions.start(self.directory, params, self.sessions.limits.bounds)
            try:
                made = self.sessions.admit(process, self.directory, idle_s)
            except BaseException:
                process.kill("it was not kept")
                raise
        except BaseException:
            self.discard()
            raise
        self._over = True
        return made

    def once(self, path: str, params: Mapping[str, Json]) -> tuple[Result, str | None]:
        """Build it, run tests once, and end it; with what went wrong with its teardown."""
        sessions = self.sessions
        made = self.open(params, MAX_IDLE_S)
        try:
            result = sessions.test(made, path, {})
        finally:
            try:
                trouble = sessions.close(made)
            except UsageError:
                trouble = None  # it is gone already
        return result, trouble

    def discard(self) -> None:
        """Give the place back unless the session was opened."""
        if not self._over:
            self._over = True
            self.sessions.give_back(self.directory)


def _unknown() -> UsageError:
    return UsageError("Unknown session", rule="session.unknown")


def _stopping() -> Stopped:
    return Stopped("the server is being stopped", rule="gateway.stopping")
