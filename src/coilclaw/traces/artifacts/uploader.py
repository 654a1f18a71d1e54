"""``Uploader``: artifacts go to their store in the background."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, EnvironmentFault, explain_os_errors
from coilclaw.traces.artifacts import store as keys
from coilclaw.traces.artifacts.store import CONFLICT, DENIED, LARGE, NO_BUCKET, UNREADABLE, UNTAGGED

if TYPE_CHECKING:
    from coilclaw.traces.artifacts.store import ArtifactStore, ArtifactVersion

_log = logging.getLogger(__name__)

_PIECES: Final = ""
"""The lane of the pieces; the others are named after their document, and no key is empty."""


Source = bytes | Path | Callable[[], bytes]
"""The bytes, a file that is read when its turn comes, or a function that makes them then."""

LASTING: Final = frozenset({CONFLICT, DENIED, LARGE, NO_BUCKET, UNTAGGED, "artifact.key"})
"""Rules of troubles that trying again does not end."""


@dataclass(frozen=True, slots=True)
class UploaderLimits:
    """The bounds of an uploader."""

    backlog: int = 100_000
    """Most pieces that wait."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    """How long a failed upload waits: twice as long each time, up to the longest."""
    document_interval_s: float = 1.0
    document_bytes_per_s: int = 2 * 2**20
    """A document that changes all the time is sent no oftener, and takes no more, than this."""


@dataclass(frozen=True, slots=True)
class UploadJob:
    """One artifact on its way."""

    key: str
    source: Source


@dataclass(slots=True)
class Lane:
    """Jobs that wait for each other; a document has a lane of its own, of one job."""

    waiting: deque[UploadJob] = field(default_factory=deque)
    failures: int = 0
    due: float = 0.0
    stopped: bool = False

    def put_off(self, limits: UploaderLimits) -> None:
        """Postpone the next try, with some jitter that keeps many clients apart."""
        wait = limits.first_wait_s * 2 ** min(self.failures, 30)
        self.failures += 1
        chance = 0.5 + os.urandom(1)[0] / 510
        self.due = time.monotonic() + min(wait, limits.longest_wait_s) * chance


@dataclass(frozen=True, slots=True)
class UploadTrouble:
    """Why an artifact is not in the store; ``lasting`` says that trying again is useless."""

    key: str
    rule: str
    message: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class UploadReport:
    """The state of the uploads."""

    uploaded: int
    retries: int
    waiting: int
    troubles: tuple[UploadTrouble, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that was handed over is in the store."""
        return self.waiting == 0 and not self.troubles


class Uploader:
    """Accepts artifacts at once, uploads them in a thread, and retries what may pass.

    Of a document only the newest state goes up, when its turn comes. Pieces go up one after the
    other, each once, so that those in the store are always a beginning of all. Pieces come before
    documents. Every upload is conditional on the version of the one before; with ``adopt`` the
    first one continues from what the store has, otherwise there must be nothing yet. ``report``
    receives each new trouble, in the thread of the uploads.
    """

    def __init__(
        self,
        store: ArtifactStore,
        *,
        adopt: bool = False,
        known: Mapping[str, ArtifactVersion] | None = None,
        limits: UploaderLimits | None = None,
        report: Callable[[UploadTrouble], None] | None = None,
    ) -> None:
        self.store = store
        self._adopt = adopt
        self._versions: dict[str, ArtifactVersion] = dict(known or {})
        self._limits = limits or UploaderLimits()
        self._tell = report
        self._changed = threading.Condition()
        self._lanes: dict[str, Lane] = {_PIECES: Lane()}
        self._troubles: dict[str, UploadTrouble] = {}
        self._uploaded = 0
        self._retries = 0
        self._busy: str | None = None
        self._flushing = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def document(self, key: str, source: Source) -> None:
        """Upload what a document is by now; what waited under the key is forgotten."""
        keys.check_key(key)
        with self._changed:
            lane = self._lanes.setdefault(key, Lane())
            if lane.stopped:
                return  # its trouble lasts, and was reported
            lane.waiting.clear()
            lane.waiting.append(UploadJob(key, source))
            self._wake()

    def piece(self, key: str, source: bytes | Path) -> None:
        """Upload a piece after all that were handed over before it."""
        keys.check_key(key)
        with self._changed:
            lane = self._lanes[_PIECES]
            if lane.stopped:
                return  # likewise
            if len(lane.waiting) >= self._limits.backlog:
                message = f"{len(lane.waiting)} artifacts wait for {self.store.uri(key)}"
                raise EnvironmentFault(message, rule="artifact.backlog")
            lane.waiting.append(UploadJob(key, source))
            self._wake()

    def status(self) -> UploadReport:
        """Return the state of the uploads now."""
        with self._changed:
            return self._report()

    def versions(self) -> dict[str, ArtifactVersion]:
        """Return the versions of the documents, for ``known`` of the next uploader."""
        with self._changed:
            return dict(self._versions)

    def flush(self, timeout_s: float) -> UploadReport:
        """Wait until everything is in the store, cannot get there, or the time is over."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._flushing += 1
            for lane in self._lanes.values():
                lane.due = 0.0
            self._changed.notify_all()
            try:
                while self._moving() and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
            finally:
                self._flushing -= 1
            return self._report()

    def close(self, timeout_s: float) -> UploadReport:
        """Flush, and end the thread; what did not get through by then stays behind."""
        report = self.flush(timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread if self._busy is None else None
        if thread is not None:
            thread.join(timeout_s)
        return report

    def _wake(self) -> None:
        if self._closed:
            raise EnvironmentFault("the uploader is closed", rule="artifact.closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="artifacts", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _moving(self) -> bool:
        """Return whether an upload is under way or will be."""
        if self._thread is None or not self._thread.is_alive():
            return False
        waits = any(lane.waiting and not lane.stopped for lane in self._lanes.values())
        return waits or self._busy is not None

    def _report(self) -> UploadReport:
        waiting = sum(len(lane.waiting) for lane in self._lanes.values())
        busy = self._busy is not None and not self._lanes[self._busy].waiting
        troubles = tuple(self._troubles[key] for key in sorted(self._troubles))
        return UploadReport(self._uploaded, self._retries, waiting + busy, troubles)

    def _work(self) -> None:
        try:
            while (name := self._take()) is not None:
                self._perform(name)
        except Exception as problem:
            # A bug here or in the maker of a document would otherwise go unnoticed.
            message = f"the uploads ended: {type(problem).__name__}"
            trouble = UploadTrouble(
                self._busy or "pieces", "artifact.uploader", message, lasting=True
            )
            with self._changed:
                self._troubles[trouble.key] = trouble
            self._say(trouble)
            raise
        finally:
            with self._changed:
                self._busy = None
                self._changed.notify_all()

    def _take(self) -> str | None:
        """Wait for a lane that is due, and return its name; ``None`` is the end."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                ready = {n: x for n, x in self._lanes.items() if x.waiting and not x.stopped}
                due = [name for name, lane in ready.items() if self._due(lane) <= now]
                if due:
                    first = min(due, key=lambda name: self._lanes[name].due)
                    self._busy = _PIECES if _PIECES in due else first
                    return self._busy
                soonest = min((self._due(lane) for lane in ready.values()), default=None)
                self._changed.wait(None if soonest is None else soonest - now)
        return None

    def _due(self, lane: Lane) -> float:
        # A flush does not wait for the pause between two states of a document.
        return 0.0 if self._flushing and not lane.failures else lane.due

    def _perform(self, name: str) -> None:
        with self._changed:
            lane = self._lanes[name]
            # A document leaves its lane, so that a newer state can take its place meanwhile.
            job = lane.waiting[0] if name == _PIECES else lane.waiting.popleft()
        try:
            source = job.source
            if not isinstance(source, bytes | Path):
                with explain_os_errors(f"read what {job.key} is made of", rule=UNREADABLE):
                    source = source()
            previous = self._versions.get(job.key)
            if previous is None and self._adopt:
                previous = self.store.head(job.key)
            version = self.store.put(job.key, source, previous=previous)
        except CoilClawError as problem:
            lasting = problem.rule in LASTING
            trouble = UploadTrouble(job.key, problem.rule, problem.message, lasting)
            with self._changed:
                begins = self._note_failure(name, job, trouble)
            if begins:
                self._say(trouble)
            return
        pause_s = max(
            self._limits.document_interval_s, version.size / self._limits.document_bytes_per_s
        )
        with self._changed:
            self._uploaded += 1
            self._troubles.pop(job.key, None)
            if name == _PIECES:
                lane.waiting.popleft()
                pause_s = 0.0
            else:
                self._versions[job.key] = version
            lane.failures, lane.due = 0, time.monotonic() + pause_s
            self._busy = None
            self._changed.notify_all()

    def _note_failure(self, name: str, job: UploadJob, trouble: UploadTrouble) -> bool:
        """Postpone the job or give it up; return whether the trouble is new."""
        lane = self._lanes[name]
        news = lane.failures == 0 or trouble.lasting
        if trouble.lasting:
            lane.stopped = True
        else:
            self._retries += 1
            if name != _PIECES and not lane.waiting:
                lane.waiting.append(job)
        if lane.stopped and name != _PIECES:
            lane.waiting.clear()
        lane.put_off(self._limits)
        self._troubles[job.key] = trouble
        self._busy = None
        self._changed.notify_all()
        return news

    def _say(self, trouble: UploadTrouble) -> None:
        _log.warning(
            "artifact not uploaded: %s",
            trouble.message,
            extra={
                "event": "artifact_not_uploaded",
                "fields": {"key": trouble.key, "rule": trouble.rule, "lasting": trouble.lasting},
            },
        )
        if self._tell is not None:
            self._tell(trouble)
