"""``detach``: continue in the background, with the output in a file.

The caller forks at once, while it has one thread. The background process writes to the terminal
until it has begun its work, so that early errors appear there; the foreground process waits until
then, or for the exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LOG: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True)
class DetachOutcome:
    """The state of the background process: it has begun, or ended with an exit code."""

    pid: int
    code: int | None = None
    """``None``: it has begun its work."""


@dataclass(slots=True)
class DetachedProcess:
    """Held by the background process until it has begun its work."""

    _pipe: int

    @property
    def waited_for(self) -> bool:
        """Whether the foreground process still waits."""
        return self._pipe >= 0

    def under_way(self, log: Path) -> None:
        """Release the terminal: write to the log, and let the foreground process return."""
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        descriptor = os.open(log, _LOG, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        pipe, self._pipe = self._pipe, -1
        try:
            os.write(pipe, b"1")
        except BrokenPipeError:
            pass  # the foreground process is gone, and nothing depends on it
        finally:
            os.close(pipe)


def detach() -> DetachedProcess | DetachOutcome:
    """Fork: return ``DetachedProcess`` in the background process, its outcome in the foreground."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return _wait(child, reading)
    os.close(reading)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return DetachedProcess(writing)


def _wait(child: int, reading: int) -> DetachOutcome:
    with open(reading, "rb", buffering=0) as pipe:
        try:
            said = pipe.read(1)
        except KeyboardInterrupt:
            # It has not begun its work: cancel it.
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
    if said:
        return DetachOutcome(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return DetachOutcome(child, code if code >= 0 else _SIGNALLED - code)
