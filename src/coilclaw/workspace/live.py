"""A child that is spoken with while it runs."""

from __future__ import annotations

import io
import os
import select
import threading
import time
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError, UsageError
from coilclaw.workspace.cancel import Cancellation, Waker
from coilclaw.workspace.capture import Capture, Captured
from coilclaw.workspace.launch import attend, start, starting
from coilclaw.workspace.result import ProcessResult
from coilclaw.workspace.supervise import DRAIN_S, KILL_BOUND_S, LINGER_S, TERMINATE_GRACE_S

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from _typeshed import ReadableBuffer, WriteableBuffer

    from coilclaw.workspace.launch import Command
    from coilclaw.workspace.sandbox import Choice

CLOSE_GRACE_S: Final = 0.5
"""How long a child may take to end by itself once its input is closed."""

_ABANDON_BOUND_S: Final = LINGER_S + TERMINATE_GRACE_S + KILL_BOUND_S + DRAIN_S + 1.0


class PipeReader(io.RawIOBase):
    """What a child writes. It ends when the child has, whoever else may hold the pipe."""

    def __init__(self, fd: int, ended: Waker) -> None:
        super().__init__()
        self._fd = fd
        self._ended = ended

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: WriteableBuffer) -> int:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(self._ended.fd, select.POLLIN)
        if self._fd in dict(poll.poll()):
            return os.readv(self._fd, [buffer])
        return 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)


class PipeWriter(io.RawIOBase):
    """What a child reads: unbuffered, and each write is whole or raises ``BrokenPipeError``."""

    def __init__(self, fd: int, ended: Waker) -> None:
        super().__init__()
        os.set_blocking(fd, False)
        self._fd = fd
        self._ended = ended

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: ReadableBuffer) -> int:
        if self.closed:
            raise ValueError("write to a closed pipe")
        rest = memoryview(data).cast("B")
        size = len(rest)
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        poll.register(self._ended.fd, select.POLLIN)
        while rest:
            if self._ended.fd in dict(poll.poll()):
                raise BrokenPipeError("the process has ended")
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                continue
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._fd)


@dataclass(slots=True)
class _Session:
    """What the watching thread and the caller share."""

    command: Command
    choice: Choice
    child_ends: tuple[int, int, int]
    stderr_fd: int
    errors: Capture
    timeout_s: float
    cancel: Cancellation | None
    began: float = field(default_factory=time.monotonic)
    closing: Waker = field(default_factory=Waker)
    ended: Waker = field(default_factory=Waker)
    started: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    pid: int | None = None
    failure: BaseException | None = None
    result: ProcessResult | None = None

    def watch(self) -> None:
        """Start the child and see it through.

        In the same thread, because a child that dies with its parent dies with the thread that
        started it.
        """
        try:
            child = start(self.command, self.choice, *self.child_ends)
            self.pid = child.popen.pid
            self._close_child_ends()
            self.started.set()
            ending = attend(
                child,
                deadline=self.began + self.timeout_s,
                outputs={self.stderr_fd: self.errors},
                errors=self.errors,
                cancel=self.cancel,
                closing=self.closing,
            )
            self.result = ProcessResult.of(
                self.command.argv,
                ending,
                stdout=Captured(),
                stderr=self.errors.captured(),
                duration_s=time.monotonic() - self.began,
                enforced=self.choice.enforced,
            )
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
            self.failure = error
        finally:
            if self.pid is None:
                self._close_child_ends()
                os.close(self.stderr_fd)
            self.over.set()
            self.started.set()
            self.ended.wake()

    def _close_child_ends(self) -> None:
        for fd in self.child_ends:
            os.close(fd)


class LiveProcess:
    """A running child with its input and output; leaving the ``with`` block ends it.

    ``stderr`` is collected in the background with a bound; ``result.stdout`` is empty, since the
    caller read it. When time runs out, on cancellation, and when the child ends, a read returns
    what is left and then end of file.
    """

    def __init__(
        self,
        command: Command,
        choice: Choice,
        *,
        timeout_s: float,
        limit_bytes: int,
        cancel: Cancellation | None,
    ) -> None:
        errors = Capture(limit_bytes)
        with starting(command), ExitStack() as on_failure:
            stdin_child, stdin = _pipe(on_failure)
            stdout, stdout_child = _pipe(on_failure)
            stderr, stderr_child = _pipe(on_failure)
            on_failure.pop_all()
        self._session = _Session(
            command=command,
            choice=choice,
            child_ends=(stdin_child, stdout_child, stderr_child),
            stderr_fd=stderr,
            errors=errors,
            timeout_s=timeout_s,
            cancel=cancel,
        )
        session = self._session
        self.stdin = PipeWriter(stdin, session.ended)
        self.stdout = io.BufferedReader(PipeReader(stdout, session.ended))
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
        """How it ended; ``None`` while it runs."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close(CLOSE_GRACE_S if error is None else 0.0)
        except CoilClawError:
            # That the child never ran explains an error of the protocol, but not an interrupt.
            if error is None or isinstance(error, Exception):
                raise


def _pipe(on_failure: ExitStack) -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    on_failure.callback(os.close, read_fd)
    on_failure.callback(os.close, write_fd)
    return read_fd, write_fd


def _abandon(session: _Session, thread: threading.Thread) -> None:
    """End a child whose owner is gone."""
    session.closing.wake()
    thread.join(_ABANDON_BOUND_S)
