"""Runs that the gateway carries out: each in a thread of its own, bounded, and stoppable."""

from __future__ import annotations

import logging
import os
import tarfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, EnvironmentFault, Stopped, UsageError
from coilclaw.runs import bundle, layout, sealed_manifest
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.gateway.metrics import Metrics
    from coilclaw.kernel import Json

_log = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 1000
"""Runs that broke off here whose reason is still known."""
_LOOK_EVERY_S: Final = 0.02


@dataclass(slots=True)
class Working:
    """One run while it is carried out here."""

    cancel: Cancellation = field(default_factory=Cancellation)
    begun: Future[str] = field(default_factory=Future)
    """Its id, as soon as it goes on; or why it does not."""
    run_id: str = ""


class RunWorkers:
    """The threads that carry runs out; the metric ``counter`` counts how each was left.

    Many threads may use it. A run that does not exist is ``run.unknown`` or ``sop.unknown_run``.
    """

    def __init__(self, most: int, metrics: Metrics, counter: str) -> None:
        self._most = most
        self._metrics, self._counter = metrics, counter
        self._mutex = threading.Lock()
        self._working: list[Working] = []
        self._broken_off: dict[str, str] = {}
        self._halted: str | None = None

    @property
    def active(self) -> int:
        return len(self._working)

    def find(self, run_id: str) -> tuple[Working, ...]:
        """Return those who work on a run here: one, or none."""
        with self._mutex:
            return tuple(each for each in self._working if each.run_id == run_id)

    def why_broken_off(self, run_id: str) -> str | None:
        """Say why a run broke off here, which its own events cannot."""
        return self._broken_off.get(run_id)

    def halt(self, reason: str) -> None:
        """Stop all of them, and let none begin."""
        with self._mutex:
            self._halted = reason
            found = tuple(self._working)
        for each in found:
            each.cancel.cancel(reason)

    def wait_drained(self, timeout_s: float) -> bool:
        """Wait until none is carried out, and say whether that is so."""
        deadline = time.monotonic() + timeout_s
        while self._working and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return not self._working

    def run_action(self, work: Callable[[Working], str], run_id: str = "") -> str:
        """Carry a run out in a thread, and return its id once it goes on.

        ``work`` calls ``begin`` when it does, and returns how the run was left.
        """
        working = Working(run_id=run_id)
        with self._mutex:
            if self._halted is not None:
                raise UsageError("the gateway is being stopped", rule="gateway.stopping")
            if len(self._working) >= self._most:
                raise UsageError(
                    f"{self._most} runs are carried out already, and no more at once",
                    rule="runs.busy",
                    hint="wait for one, or cancel one",
                )
            self._working.append(working)
        # A daemon, so that a run that does not stop in time cannot keep the process from ending.
        threading.Thread(target=self._work, args=(working, work), name="run", daemon=True).start()
        return working.begun.result()

    def begin(self, working: Working, run_id: str) -> None:
        """Say that a run goes on, whose id is known now."""
        if not working.begun.done():
            working.run_id = run_id
            self._broken_off.pop(run_id, None)
            working.begun.set_result(run_id)

    def _work(self, working: Working, work: Callable[[Working], str]) -> None:
        problem: CoilClawError | None = None
        status = "fault"
        try:
            status = work(working)
        except CoilClawError as caught:
            problem = caught
            status = "stopped" if isinstance(caught, Stopped) else "fault"
        except Exception:  # noqa: BLE001 - whatever nobody thought of must not go unnoticed
            _log.exception("a run failed", extra={"event": "run_fault"})
            problem = CoilClawError("this should not happen; the log says more", rule="internal")
        finally:
            self._finish(working, status, problem)

    def _finish(self, working: Working, status: str, problem: CoilClawError | None) -> None:
        """Tell how it ended; only then is there room for another."""
        begun = working.begun.done()
        if begun or problem is None:
            self._metrics.count_as(self._counter, status)
            fields = {"run_id": working.run_id, "status": status}
            extra = {"event": "run_left", "fields": fields}
            _log.info("run %s: %s", working.run_id, status, extra=extra)
        with self._mutex:
            if begun and problem is not None:
                while len(self._broken_off) >= MAX_REMEMBERED:
                    del self._broken_off[next(iter(self._broken_off))]
                self._broken_off[working.run_id] = problem.message
            self._working.remove(working)
        if begun and problem is not None and status == "fault":
            _log.error("a run broke off: %s", problem.message, extra={"event": "run_fault"})
        if not begun and problem is None:
            working.begun.set_result(working.run_id)
        elif not begun:
            working.begun.set_exception(problem)


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run that a client asks for; what is ``None`` is the contract's to say."""

    contract: Mapping[str, Json] | None = None
    request: str = ""
    runner: str | None = None
    reviewer: str | None = None
    merge: bool = False
    diagnostic: bool = False
    no_baseline: bool = False
    wait: bool = True
    """Whether it waits for the paths that other runs hold."""
    asker: str = ""
    """Who asks for it, as approvals name a client."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A file on its way; ``pieces`` are exactly ``size`` bytes, or an error."""

    name: str
    size: int
    pieces: Iterator[bytes]


PIECE_BYTES: Final = 2**18
_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)


def archive_run(directory: Path) -> Archive:
    """Return a sealed run as a tar, in a folder of its name, without what was audited since."""
    manifest = sealed_manifest(directory)
    if manifest is None:
        raise UsageError(
            f"run {directory.name} is not sealed yet",
            rule="run.unsealed",
            hint=f"follow it at /runs/{directory.name}/events",
        )
    hashes, told = manifest.get("evidence_hashes"), manifest.get("directories")
    files = (layout.MANIFEST, *sorted(hashes if isinstance(hashes, dict) else ()))
    inner = [f"{directory.name}/{path}" for path in (told if isinstance(told, list) else ())]
    folders, sizes = sorted([directory.name, *inner]), {}
    for path in files:
        with bundle.open_file(directory, path) as file:
            sizes[path] = os.fstat(file.fileno()).st_size
    heads = sum(len(_head(name, None)) for name in folders)
    bodies = sum(
        len(_head(f"{directory.name}/{path}", size)) + size + _padding(size)
        for path, size in sizes.items()
    )
    pieces = _pieces(directory, folders, sizes)
    return Archive(f"{directory.name}.tar", heads + bodies + len(_END), pieces)


def _pieces(directory: Path, folders: list[str], sizes: Mapping[str, int]) -> Iterator[bytes]:
    for name in folders:
        yield _head(name, None)
    for path, size in sizes.items():
        yield _head(f"{directory.name}/{path}", size)
        left = size
        with bundle.open_file(directory, path) as file:
            while left:
                piece = file.read(min(left, PIECE_BYTES))
                if not piece:
                    raise EnvironmentFault(
                        f"{directory / path} became shorter while it was sent", rule="bundle.io"
                    )
                left -= len(piece)
                yield piece
        yield bytes(_padding(size))
    yield _END


def _padding(size: int) -> int:
    return -size % _BLOCK


def _head(name: str, size: int | None) -> bytes:
    """The head of a member whose time, owner and mode are always the same; no size: a folder."""
    info = tarfile.TarInfo(name)
    info.mtime = 0
    info.mode = 0o755 if size is None else 0o644
    info.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
    info.size = size or 0
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
