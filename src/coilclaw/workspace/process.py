"""The only way to start a process: ``run`` collects its output, ``open`` hands out live pipes.

argv only, a time limit always, a minimal environment, no input unless given, no file descriptor but
0, 1 and 2. Nothing of it outlives the call: the process group and everything that carries its tag
is ended on time-out, on cancellation, on an exception, and after the leader ended by itself.
"""

from __future__ import annotations

import io
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from coilclaw.errors import Stopped, UsageError
from coilclaw.workspace import environment
from coilclaw.workspace.cancel import Cancellation
from coilclaw.workspace.capture import DEFAULT_LIMIT, Capture, Captured
from coilclaw.workspace.launch import Command, attend, check, start, starting
from coilclaw.workspace.live import LiveProcess
from coilclaw.workspace.result import ProcessResult
from coilclaw.workspace.sandbox import (
    NO_SANDBOX,
    Choice,
    Sandbox,
    SandboxSupport,
    choose,
    probe,
)
from coilclaw.workspace.supervise import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from coilclaw.workspace.process_bounds import ProcessBounds


__all__ = [
    "DEFAULT_LIMIT",
    "NO_SANDBOX",
    "Cancellation",
    "Captured",
    "LiveProcess",
    "ProcessResult",
    "open",
    "run",
]


def run(
    argv: Sequence[str | bytes],
    *,
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes | BinaryIO | None = None,
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
    began = time.monotonic()
    command, choice = _prepare(argv, cwd, timeout_s, env, sandbox, support)
    stdout, stderr = Capture(limit_bytes, observe), Capture(limit_bytes, observe_errors or observe)
    if isinstance(stdin, str | io.TextIOBase):
        raise UsageError("The input of a process is bytes, not text.", rule="process.stdin")
    if cancel is not None and cancel.cancelled:
        ending = Ending("cancelled", None, None, (), (), held_open=False)
    else:
        ending = _run(command, choice, began + timeout_s, stdin, stdout, stderr, cancel, bounds)
    return ProcessResult.of(
        command.argv,
        ending,
        stdout=stdout.captured(),
        stderr=stderr.captured(),
        duration_s=time.monotonic() - began,
        enforced=choice.enforced,
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
    command, choice = _prepare(argv, cwd, timeout_s, env, sandbox, support)
    if cancel is not None and cancel.cancelled:
        raise Stopped(
            f"{command.program!r} was not started: {cancel.reason}.", rule="process.cancelled"
        )
    return LiveProcess(command, choice, timeout_s=timeout_s, limit_bytes=limit_bytes, cancel=cancel)


def _prepare(
    argv: Sequence[str | bytes],
    cwd: str | Path,
    timeout_s: float,
    env: Mapping[str, str] | None,
    sandbox: Sandbox,
    support: SandboxSupport | None,
) -> tuple[Command, Choice]:
    if support is None:
        support = SandboxSupport() if sandbox.kind == "none" else probe()
    path = environment.search_path() if env is None else env.get("PATH", "")
    choice = choose(sandbox, support, path=path, cwd=str(cwd) if os.path.isabs(cwd) else "")
    private_tmp = choice.enforced.kind == "bubblewrap" and sandbox.private_tmp
    given = environment.minimal(private_tmp=private_tmp) if env is None else env
    command = check(argv, cwd, timeout_s, given, choice.confinement)
    return command, choice


def _run(
    command: Command,
    choice: Choice,
    deadline: float,
    stdin: bytes | BinaryIO | None,
    stdout: Capture,
    stderr: Capture,
    cancel: Cancellation | None,
    bounds: ProcessBounds | None,
) -> Ending:
    with ExitStack() as ours, ExitStack() as childs:
        with starting(command):
            given, feed_fd = _input(stdin, ours, childs)
            out, err = _pipe(ours, childs), _pipe(ours, childs)
        started = start(command, choice, given, out[1], err[1])
        # From here on they belong to the one who attends.
        ours.pop_all()
        childs.close()
        return attend(
            started,
            deadline=deadline,
            outputs={out[0]: stdout, err[0]: stderr},
            errors=stderr,
            feed=None if feed_fd is None or stdin is None else (feed_fd, stdin),
            cancel=cancel,
            bounds=bounds,
        )


def _pipe(ours: ExitStack, childs: ExitStack) -> tuple[int, int]:
    """A pipe from the child to us."""
    read_fd, write_fd = os.pipe()
    ours.callback(os.close, read_fd)
    childs.callback(os.close, write_fd)
    return read_fd, write_fd


def _input(
    stdin: bytes | BinaryIO | None, ours: ExitStack, childs: ExitStack
) -> tuple[int, int | None]:
    """The child's input, and where to write what is to be fed to it."""
    if stdin is None:
        null = os.open(os.devnull, os.O_RDONLY)
        childs.callback(os.close, null)
        return null, None
    if not isinstance(stdin, bytes):
        try:
            fd = stdin.fileno()
        except (OSError, AttributeError):
            pass  # Nothing of the kernel's: it is read here and fed.
        else:
            if stdin.seekable():
                # What was read ahead into a buffer is the child's to read.
                os.lseek(fd, stdin.tell(), os.SEEK_SET)
            return fd, None
    read_fd, write_fd = os.pipe()
    childs.callback(os.close, read_fd)
    ours.callback(os.close, write_fd)
    return read_fd, write_fd
