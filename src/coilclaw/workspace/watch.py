"""Wait for a child while its output is collected and its input is fed, in the calling thread."""

from __future__ import annotations

import os
import selectors
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.workspace.procfs import pidfd_open

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from coilclaw.workspace.capture import Capture

_CHUNK: Final = 1 << 16
_MAX_WAIT_S: Final = 3600.0
_POLL_S: Final = 0.01
"""How often a child is looked at where the kernel cannot tell us that it ended."""


class Watch:
    """The pipes of one child and its end. It owns the file descriptors that it is given."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._selector = selectors.PollSelector()
        self._open: set[int] = set()
        self._stdin: int | None = None
        self._pidfd = pidfd_open(pid)
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ, self._look)
        self.status: os.waitid_result | None = None
        self.ended = False

    @property
    def output_open(self) -> bool:
        """Whether somebody still holds the other end of an output pipe."""
        return bool(self._open)

    def collect(self, fd: int, capture: Capture) -> None:
        """Read everything that comes from ``fd`` into ``capture``."""
        os.set_blocking(fd, False)
        self._open.add(fd)
        self._selector.register(fd, selectors.EVENT_READ, lambda: self._collect(fd, capture))

    def feed(self, fd: int, source: bytes | BinaryIO) -> None:
        """Write ``source`` to ``fd`` as fast as the child reads it, then close it."""
        os.set_blocking(fd, False)
        self._stdin = fd
        feed = _Feed(fd, source)
        self._selector.register(fd, selectors.EVENT_WRITE, lambda: self._feed(feed))

    def on_wake(self, fd: int, action: Callable[[], None]) -> None:
        """Call ``action`` once when ``fd`` becomes readable; the fd stays the caller's."""

        def woken() -> None:
            self._selector.unregister(fd)
            action()

        self._selector.register(fd, selectors.EVENT_READ, woken)

    def pump(self, until: float, done: Callable[[], bool]) -> bool:
        """Keep everything moving until ``done`` or the clock says ``until``; return ``done``."""
        while not done():
            remaining = until - time.monotonic()
            if remaining <= 0:
                return False
            wait = min(remaining, _MAX_WAIT_S if self._pidfd is not None else _POLL_S)
            for key, _ in self._selector.select(wait):
                # An earlier one of the same batch may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            if self._pidfd is None and not self.ended:
                self._look()
        return True

    def end_feed(self) -> None:
        """Close the child's input, whatever is left to be written."""
        if self._stdin is not None:
            self._selector.unregister(self._stdin)
            os.close(self._stdin)
            self._stdin = None

    def close(self) -> None:
        """Give back every file descriptor."""
        for fd in (*self._open, self._stdin, self._pidfd):
            if fd is not None:
                os.close(fd)
        self._open.clear()
        self._stdin = self._pidfd = None
        self._selector.close()

    def _look(self) -> None:
        # The child stays a zombie, so that its process id stays its own until all is swept.
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        try:
            self.status = os.waitid(os.P_PID, self._pid, flags)
            self.ended = self.status is not None
        except ChildProcessError:
            # Somebody else in this program waited for it: it ended, but we cannot say how.
            self.ended = True
        if self.ended:
            if self._pidfd is not None:
                self._selector.unregister(self._pidfd)
            self.end_feed()

    def _collect(self, fd: int, capture: Capture) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if data:
            capture.feed(data)
            return
        self._selector.unregister(fd)
        self._open.discard(fd)
        os.close(fd)

    def _feed(self, feed: _Feed) -> None:
        if not feed.advance():
            self.end_feed()


class _Feed:
    """What is still to be written to a child's input."""

    __slots__ = ("_fd", "_pending", "_source")

    def __init__(self, fd: int, source: bytes | BinaryIO) -> None:
        self._fd = fd
        self._pending = memoryview(source if isinstance(source, bytes) else b"")
        self._source = None if isinstance(source, bytes) else source

    def advance(self) -> bool:
        """Write what fits; return whether anything may be left."""
        if not self._pending and self._source is not None:
            self._pending = memoryview(self._source.read(_CHUNK))
        if not self._pending:
            return False
        # A child that does not read its input to the end is no error.
        with suppress(BlockingIOError):
            try:
                written = os.write(self._fd, self._pending[:_CHUNK])
            except BrokenPipeError:
                return False
            self._pending = self._pending[written:]
        return bool(self._pending) or self._source is not None
