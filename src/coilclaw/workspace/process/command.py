"""The only way to start a process: ``run`` collects its output, ``open`` hands out live pipes.

argv only, a time limit always, a minimal environment, no input unless given, no file descriptor but
0, 1 and 2. Nothing outlives the call: a time-out, a cancellation, an exception and the end of the
leader all end the process group and everything that carries its tag.
"""

from __future__ import annotations

import io
import os
import select
import threading
import weakref
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, Stopped, UsageError
from coilclaw.workspace.process.cancellation import Cancellation, Waker
from coilclaw.workspace.process.capture import DEFAULT_LIMIT, Capture
from coilclaw.workspace.process.confinement import NO_SANDBOX, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import Command, ProcessResult, attend, prepare, start
from coilclaw.workspace.process.supervision import (
    DRAIN_S,
    KILL_BOUND_S,
    LINGER_S,
    TERMINATE_GRACE_S,
    ProcessBounds,
    ProcessEnding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from _typeshed import ReadableBuffer, SupportsRead, WriteableBuffer

__all__ = ["NO_SANDBOX", "Cancellation", "LiveProcess", "open", "run"]

CLOSE_GRACE_S: Final = 0.5
"""How long a child may take to end by itself once its input is closed."""

_ABANDON_BOUND_S: Final = LINGER_S + TERMINATE_GRACE_S + KILL_BOUND_S + DRAIN_S + 1.0


class _Pipe(io.RawIOBase):
    """Our end of a pipe to a child, which ends when the child has, whatever else holds it."""

    def __init__(self, fd: int, ended: Waker, event: int) -> None:
        super().__init__()
        self._fd = fd
        self._ended = ended.fd
        self._poll = select.poll()
        self._poll.register(fd, event)
        self._poll.register(ended.fd, select.POLLIN)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)


class PipeReader(_Pipe):
    """What a child writes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        ready = dict(self._poll.poll())
        return os.readv(self._fd, [buffer]) if self._fd in ready else 0


class PipeWriter(_Pipe):
    """What a child reads: unbuffered, and each write is whole or raises ``BrokenPipeError``."""

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        if self.closed:
            raise ValueError("write to a closed pipe")
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            if self._ended in dict(self._poll.poll()):
                raise BrokenPipeError("the process has ended")
            with suppress(BlockingIOError):
                rest = rest[os.write(self._fd, rest) :]
        return size


@dataclass(slots=True)
class _LiveState:
    """What the watching thread and the caller share."""

    command: Command
    child_ends: tuple[int, int, int]
    stderr_fd: int
    errors: Capture
    cancel: Cancellation | None
    closing: Waker = field(default_factory=Waker)
    ended: Waker = field(default_factory=Waker)
    started: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    pid: int | None = None
    failure: BaseException | None = None
    result: ProcessResult | None = None

    def watch(self) -> None:
        """Start the child and attend it to its end.

        In one thread, because a child that dies with its parent dies with the thread that started
        it.
        """
        try:
            try:
                child = start(self.command, *self.child_ends)
                self.pid = child.popen.pid
            finally:
                for fd in self.child_ends:
                    os.close(fd)
                if self.pid is None:
                    os.close(self.stderr_fd)
            self.started.set()
            self.result = attend(
                child,
                {self.stderr_fd: self.errors},
                Capture(0),
                self.errors,
                cancel=self.cancel,
                closing=self.closing,
            )
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            self.failure = error
        finally:
            self.over.set()
            self.started.set()
            self.ended.wake()


class LiveProcess:
    """A running child with live input and output; leaving the ``with`` block ends it.

    ``stderr`` is collected in the background with a bound; ``result.stdout`` is empty, since the
    caller read it. When time runs out, on cancellation, and when the child ends, a read returns
    what is left and then end of file.
    """

    def __init__(self, command: Command, *, limit_bytes: int, cancel: Cancellation | None) -> None:
        errors = Capture(limit_bytes)
        with command.starting(), ExitStack() as on_failure:
            stdin_child, stdin = _pipe(on_failure, on_failure)
            stdout, stdout_child = _pipe(on_failure, on_failure)
            stderr, stderr_child = _pipe(on_failure, on_failure)
            on_failure.pop_all()
        os.set_blocking(stdin, False)
        child_ends = (stdin_child, stdout_child, stderr_child)
        self._session = _LiveState(command, child_ends, stderr, errors, cancel)
        session = self._session
        self.stdin = PipeWriter(stdin, session.ended, select.POLLOUT)
        self.stdout = io.BufferedReader(PipeReader(stdout, session.ended, select.POLLIN))
        # A daemon, so that a program which forgot to close this can still exit; see the finalizer.
        self._thread = threading.Thread(target=session.watch, name="coilclaw-process", daemon=True)
        self._thread.start()
        self._abandoned = weakref.finalize(self, _abandon, session, self._thread)
        session.started.wait()
        if session.pid is None:
            self._release()
            assert session.failure is not None
            raise session.failure
        self.pid = session.pid

    @property
    def result(self) -> ProcessResult | None:
        """The result of the child; ``None`` while it runs."""
        session = self._session
        if session.over.is_set() and session.failure is not None:
            raise session.failure
        return session.result

    def wait(self, timeout_s: float) -> ProcessResult | None:
        """Wait for the child to end by itself; ``None`` if it did not in time."""
        self._session.over.wait(timeout_s)
        return self.result

    def close(self, grace_s: float = CLOSE_GRACE_S) -> ProcessResult:
        """Close its input, give it ``grace_s`` to end, and then end it with all that it started."""
        if grace_s < 0:
            raise UsageError(f"The grace of {grace_s} seconds is negative.", rule="process.grace")
        session = self._session
        self.stdin.close()
        if not session.over.wait(grace_s):
            session.closing.wake()
        session.over.wait()
        self._release()
        result = self.result
        assert result is not None
        return result

    def _release(self) -> None:
        self._abandoned.detach()
        self._thread.join()
        self.stdin.close()
        self.stdout.close()
        self._session.closing.close()
        self._session.ended.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self.close(CLOSE_GRACE_S if error is None else 0.0)
        except CoilClawError:
            # That the child never ran explains an error of the protocol, but not an interrupt.
            if error is None or isinstance(error, Exception):
                raise


def _abandon(session: _LiveState, thread: threading.Thread) -> None:
    """End a child whose owner is gone."""
    session.closing.wake()
    thread.join(_ABANDON_BOUND_S)


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
        # ``attend`` closes them from here on.
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
    """Start a program with live pipes and return it; a context manager."""
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
        with suppress(OSError):  # not a file of the kernel: it is read here and fed
            fd = stdin.fileno()
            if stdin.seekable():
                # What was read ahead into a buffer is the child's to read.
                os.lseek(fd, stdin.tell(), os.SEEK_SET)
            return fd, None
    return _pipe(childs, ours)
