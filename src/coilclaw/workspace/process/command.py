"""The only way to start a process: ``run`` collects its output, ``open`` hands out live pipes.

argv only, a time limit always, a minimal environment, no input unless given, no file descriptor but
0, 1 and 2. Nothing of it outlives the call: the process group and everything that carries its tag
is ended on time-out, on cancellation, on an exception, and after the leader ended by itself.
"""

from __future__ import annotations

import io
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from coilclaw.kernel import Stopped, UsageError
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.capture import DEFAULT_LIMIT, Capture, Captured
from coilclaw.workspace.process.confinement import NO_SANDBOX, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import ProcessResult, attend, prepare, start
from coilclaw.workspace.process.live_process import LiveProcess
from coilclaw.workspace.process.supervision import ProcessBounds, ProcessEnding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from _typeshed import SupportsRead


__all__ = [
    "DEFAULT_LIMIT",
    "NO_SANDBOX",
    "Cancellation",
    "Captured",
    "LiveProcess",
    "ProcessResult",
]


def run(
    argv: Sequence[str | bytes],
    *,
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | SupportsRead[bytes] | None = None,
    limit_bytes: int = DEFAULT_LIMIT,
    sandbox: Sandbox = NO_SANDBOX,
    support: SandboxSupport | None = None,
    cancel: Cancellation | None = None,
    observe: Callable[[bytes], None] | None = None,
    observe_errors: Callable[[bytes], None] | None = None,
    bounds: ProcessBounds | None = None,
) -> ProcessResult:
    """Run a program to its end and collect what it writes, ``limit_bytes`` of each stream.

    ``env`` replaces the minimal environment. ``stdin`` that is a real file becomes the child's own;
    anything else that can be read is fed to it. ``support`` is what ``sandbox.probe`` gave earlier.
    ``observe`` is shown all output as it comes, in this thread; the error output is shown to
    ``observe_errors`` instead, where that is given. ``bounds`` end it with everything it started:
    reading stops there, and the outcome says which.
    """
    command = prepare(argv, cwd, timeout_s, env, sandbox, support)
    stdout, stderr = Capture(limit_bytes, observe), Capture(limit_bytes, observe_errors or observe)
    if isinstance(stdin, str | io.TextIOBase):
        raise UsageError("The input of a process is bytes, not text.", rule="process.stdin")
    if cancel is not None and cancel.cancelled:
        return command.describe_end(ProcessEnding("cancelled"), stdout, stderr)
    with ExitStack() as ours, ExitStack() as childs:
        with command.starting():
            given, feed_fd = _open_input(stdin, ours, childs)
            out, out_child = _pipe(ours, childs)
            err, err_child = _pipe(ours, childs)
        started = start(command, given, out_child, err_child)
        # From here on they belong to the one who attends.
        ours.pop_all()
        childs.close()
        return attend(
            started,
            {out: stdout, err: stderr},
            stdout,
            stderr,
            feed=None if feed_fd is None or stdin is None else (feed_fd, stdin),
            cancel=cancel,
            bounds=bounds,
        )


def open(  # noqa: A001 - always called as process.open, beside process.run
    argv: Sequence[str | bytes],
    *,
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    limit_bytes: int = DEFAULT_LIMIT,
    sandbox: Sandbox = NO_SANDBOX,
    support: SandboxSupport | None = None,
    cancel: Cancellation | None = None,
) -> LiveProcess:
    """Start a program to speak with over its input and output; a context manager."""
    command = prepare(argv, cwd, timeout_s, env, sandbox, support)
    if cancel is not None and cancel.cancelled:
        raise Stopped(
            f"{command.program!r} was not started: {cancel.reason}.", rule="process.cancelled"
        )
    return LiveProcess(command, limit_bytes=limit_bytes, cancel=cancel)


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    readers.callback(os.close, read_fd)
    writers.callback(os.close, write_fd)
    return read_fd, write_fd


def _open_input(
    stdin: bytes | SupportsRead[bytes] | None, ours: ExitStack, childs: ExitStack
) -> tuple[int, int | None]:
    """Return the child's input, and where to write what is to be fed to it."""
    if stdin is None:
        null = os.open(os.devnull, os.O_RDONLY)
        childs.callback(os.close, null)
        return null, None
    if isinstance(stdin, io.IOBase):
        with suppress(OSError):  # nothing of the kernel's: it is read here and fed
            fd = stdin.fileno()
            if stdin.seekable():
                # What was read ahead into a buffer is the child's to read.
                os.lseek(fd, stdin.tell(), os.SEEK_SET)
            return fd, None
    return _pipe(childs, ours)
