"""A server on loopback that answers each connection with the next of some raw bytes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Answer = bytes | Callable[[socket.socket], None]


@dataclass
class RawServer:
    """Where it listens, and what it was sent."""

    url: str
    received: list[bytes] = field(default_factory=list)


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def serving(*answers: Answer) -> Iterator[RawServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = RawServer(f"http://127.0.0.1:{listener.getsockname()[1]}")

    def work() -> None:
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                server.received.append(read_request(connection))
                try:
                    if callable(answer):
                        answer(connection)
                    else:
                        connection.sendall(answer)
                except OSError:
                    continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.close()
        thread.join(5)


def drip(connection: socket.socket) -> None:
    """Go on for ten minutes, or until nobody listens."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    for _ in range(12_000):
        connection.sendall(b" ")
        time.sleep(0.05)


def read_request(connection: socket.socket) -> bytes:
    """Read a whole request: its head and its body may arrive apart."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        if not (piece := connection.recv(65536)):
            break
        body += piece
    return head + b"\r\n\r\n" + body
