"""``detach``: go on behind the terminal, with what is said in a file."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_LOG: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def detach(log: Path) -> int | None:
    """Part in two: the caller's terminal gets the id of a process that it cannot end.

    That process gets ``None`` and goes on, with the file for its output. To be called while there
    is one thread.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with open(reading, "rb") as pipe:
            said = pipe.read(32)
        os.waitpid(child, 0)
        return int(said)
    os.close(reading)
    os.setsid()
    grandchild = os.fork()
    if grandchild:
        os.write(writing, str(grandchild).encode("ascii"))
        os._exit(0)
    os.close(writing)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _redirect(log)
    return None


def _redirect(log: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    descriptor = os.open(log, _LOG, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
