"""The bounded output of a process: its beginning and its end, with the middle counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_LIMIT: Final = 1 << 20
"""Bytes kept of each stream unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of a stream; ``dropped`` bytes stood between ``head`` and ``tail``.

    A stream that was kept whole is all ``head``.
    """

    head: bytes = b""
    tail: bytes = b""
    dropped: int = 0

    @property
    def data(self) -> bytes:
        """The kept bytes joined: the whole stream exactly when nothing was dropped."""
        return self.head + self.tail

    @property
    def total(self) -> int:
        """How many bytes the process wrote."""
        return len(self.head) + self.dropped + len(self.tail)

    def text(self) -> str:
        """Return the kept bytes as text, with a marker where bytes were dropped."""
        if not self.dropped:
            return self.data.decode("utf-8", errors="replace")
        head = self.head.decode("utf-8", errors="replace")
        tail = self.tail.decode("utf-8", errors="replace")
        return f"{head}\n[… {self.dropped} bytes dropped …]\n{tail}"


class Capture:
    """Collects a stream of any length in a bounded amount of memory."""

    __slots__ = ("_head", "_head_limit", "_observe", "_tail", "_tail_limit", "total")

    def __init__(self, limit_bytes: int, observe: Callable[[bytes], None] | None = None) -> None:
        if limit_bytes < 0:
            raise UsageError(
                f"The output limit is {limit_bytes} bytes, which is negative.", rule="process.limit"
            )
        self._tail_limit = limit_bytes // 2
        self._head_limit = limit_bytes - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """How many bytes were fed."""
        self._observe = observe

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._observe is not None:
            self._observe(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not self._tail_limit or not data:
            return
        self._tail += data[-self._tail_limit :]
        # Trimming at twice the limit keeps the cost per byte constant.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def read_captured(self) -> Captured:
        """Return what has been kept so far."""
        head = bytes(self._head)
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        dropped = self.total - len(head) - len(tail)
        return Captured(head, tail, dropped) if dropped else Captured(head + tail)
