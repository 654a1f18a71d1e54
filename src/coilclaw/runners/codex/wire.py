"""The line protocol of a Codex app-server: JSON-RPC without its version, one message a line."""

from __future__ import annotations

import json
import os
import select
import time
from typing import TYPE_CHECKING, Final

from coilclaw.workspace import Waker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from coilclaw.kernel import Json
    from coilclaw.workspace import Cancellation, LiveProcess

MAX_LINE_BYTES: Final = 16 * 2**20
MAX_BYTES: Final = 2 * 2**30
"""Most that one performance may write."""

_READ_BYTES: Final = 1 << 16
_LOOK_EVERY_S: Final = 1.0
METHOD_NOT_FOUND: Final = -32601


class WireProblem(Exception):
    """The other side broke the protocol, or ended."""


class TimeUp(Exception):
    """Nothing came until the deadline."""


class Cancelled(Exception):
    """The work was cancelled while we waited."""


class CodexWire:
    """Both directions of one conversation; a context manager."""

    def __init__(self, process: LiveProcess, cancel: Cancellation) -> None:
        self._process = process
        self._cancel = cancel
        self._waker = Waker()
        self._buffer = bytearray()
        self._searched = 0
        self._received = 0
        self._next_id = 0

    def __enter__(self) -> Self:
        self._cancel.attach(self._waker)
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.detach(self._waker)
        self._waker.close()

    def request(self, method: str, params: Mapping[str, Json]) -> int:
        """Send a request, and return the id that its answer will carry."""
        self._next_id += 1
        self._send({"id": self._next_id, "method": method, "params": dict(params)})
        return self._next_id

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._send({"method": method})

    def answer(self, request_id: Json, result: Mapping[str, Json]) -> None:
        """Answer a request of the other side."""
        self._send({"id": request_id, "result": dict(result)})

    def refuse(self, request_id: Json, message: str) -> None:
        """Answer a request with an error: it is not supported."""
        error: dict[str, Json] = {"code": METHOD_NOT_FOUND, "message": message}
        self._send({"id": request_id, "error": error})

    def receive(self, deadline: float, *, heed_cancel: bool) -> tuple[dict[str, Json], str]:
        """Wait for the next message; return it and its text."""
        while (line := self._line()) is None:
            self._read_more(deadline, heed_cancel=heed_cancel)
        return _parse_line(line)

    def _send(self, message: dict[str, Json]) -> None:
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        except BrokenPipeError as problem:
            raise WireProblem("it ended in the middle of its work") from problem

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > MAX_LINE_BYTES:
                raise WireProblem(f"it wrote a line of more than {MAX_LINE_BYTES} bytes")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def _read_more(self, deadline: float, *, heed_cancel: bool) -> None:
        fd = self._process.stdout.fileno()
        for ready in self._wait(fd, deadline, heed_cancel=heed_cancel):
            if ready == self._waker.fd:
                raise Cancelled
            data = os.read(fd, _READ_BYTES)
            self._received += len(data)
            if not data:
                raise WireProblem("it ended in the middle of its work")
            if self._received > MAX_BYTES:
                raise WireProblem(f"it wrote more than {MAX_BYTES} bytes")
            self._buffer += data

    def _wait(self, fd: int, deadline: float, *, heed_cancel: bool) -> Iterator[int]:
        """Wait until something can be read; the cancellation comes first."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if heed_cancel:
            poll.register(self._waker.fd, select.POLLIN)
        while True:
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise TimeUp
            found = [ready for ready, _ in poll.poll(min(rest, _LOOK_EVERY_S) * 1000)]
            if found:
                yield from sorted(found, key=lambda ready: ready != self._waker.fd)
                return
            # An unknown process may hold the pipe open after the end.
            if self._process.result is not None:
                raise WireProblem("it ended in the middle of its work")


def _parse_line(line: bytes) -> tuple[dict[str, Json], str]:
    try:
        text = line.decode("utf-8")
        value = json.loads(text, parse_constant=_no_number)
        if "\\u" in text:
            # Half a surrogate pair cannot be encoded as UTF-8.
            text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
            value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise WireProblem("it wrote a line that is not JSON") from problem
    if not isinstance(value, dict):
        raise WireProblem("it wrote a line that is not a message")
    return value, text


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")
