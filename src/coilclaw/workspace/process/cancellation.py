"""A request to stop, made by one thread and seen at once by the threads that wait."""

from __future__ import annotations

import os
import select
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Wakes(Protocol):
    """Anything that a cancellation wakes."""

    def wake(self) -> None: ...


class Waker:
    """A pipe that becomes readable when ``wake`` is called, from any thread or signal handler."""

    __slots__ = ("_closed", "_lock", "_write_fd", "fd")

    def __init__(self) -> None:
        # Reentrant, because a signal handler may call ``wake`` while its thread holds the lock.
        self._lock = threading.RLock()
        self._closed = True
        self.fd, self._write_fd = os.pipe()
        self._closed = False
        os.set_blocking(self._write_fd, False)

    def wake(self) -> None:
        """Make ``fd`` readable; after ``close`` this does nothing."""
        with self._lock:
            if not self._closed:
                # A full pipe is readable already.
                with suppress(BlockingIOError):
                    os.write(self._write_fd, b"!")

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self.fd)
                os.close(self._write_fd)

    def __del__(self) -> None:
        self.close()


class Cancellation:
    """A one-way switch: once cancelled it stays so, and the first reason stands."""

    __slots__ = ("_lock", "_reason", "_wakers")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._reason: str | None = None
        self._wakers: set[Wakes] = set()

    @property
    def cancelled(self) -> bool:
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        return self._reason

    def cancel(self, reason: str) -> None:
        """Stop everything that waits with this, now and later."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
            wakers = tuple(self._wakers)
        for waker in wakers:
            waker.wake()

    def attach(self, waker: Wakes) -> None:
        """Wake ``waker`` on cancellation, at once if it has already happened."""
        with self._lock:
            # Added before the look: a signal handler may cancel between the two.
            self._wakers.add(waker)
            if self._reason is not None:
                waker.wake()

    def detach(self, waker: Wakes) -> None:
        """Forget ``waker``."""
        with self._lock:
            self._wakers.discard(waker)

    @contextmanager
    def waking(self) -> Iterator[Waker]:
        """Yield a waker of its own, attached for as long as the block lasts."""
        waker = Waker()
        self.attach(waker)
        try:
            yield waker
        finally:
            self.detach(waker)
            waker.close()

    def wait_for_input(self, fd: int) -> bool:
        """Wait until ``fd`` can be read, and return true; false if this is cancelled first."""
        with self.waking() as waker:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.register(waker.fd, select.POLLIN)
            poll.poll()
        return not self.cancelled


class _Relay:
    """Cancels one thing when another is cancelled."""

    def __init__(self, parent: Cancellation, child: Cancellation) -> None:
        self._parent = parent
        self._child = child

    def wake(self) -> None:
        self._child.cancel(self._parent.reason or "")


@contextmanager
def link_cancellation(parent: Cancellation) -> Iterator[Cancellation]:
    """Yield a cancellation that follows ``parent``; cancelling it leaves ``parent`` alone."""
    child = Cancellation()
    relay = _Relay(parent, child)
    parent.attach(relay)
    try:
        yield child
    finally:
        parent.detach(relay)
