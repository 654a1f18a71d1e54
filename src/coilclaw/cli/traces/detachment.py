"""``detach``: go on behind the terminal, with what is said in a file.

The caller is parted in two at once, while there is one thread. The process that goes on keeps the
terminal's output until it is under way, so that what keeps it from that is said there; the other
waits for exactly that, and for the exit code.
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
    """What became of the process that goes on: under way, or ended with an exit code."""

    pid: int
    code: int | None = None
    """``None``: it is under way."""


@dataclass(slots=True)
class DetachedProcess:
    """Held by the process that goes on, until it is under way."""

    _pipe: int

    @property
    def waited_for(self) -> bool:
        """Whether it was not said yet that it is under way."""
        return self._pipe >= 0

    def under_way(self, log: Path) -> None:
        """Let go of the terminal, and let the one who waits there return."""
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
            pass  # nobody waits any more, and nothing depends on that
        finally:
            os.close(pipe)


def detach() -> DetachedProcess | DetachOutcome:
    """Part in two: the one that goes on gets ``Behind``; the other what became of it."""
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
            # Not under way yet: what was asked for is taken back.
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
    if said:
        return DetachOutcome(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return DetachOutcome(child, code if code >= 0 else _SIGNALLED - code)
