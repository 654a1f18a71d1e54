"""``SandboxSocket``: listens on a socket in a directory of the sandbox, one thread a client."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SandboxSocket:
    """Listens while the ``with`` block lasts; leaving it cuts every connection."""

    directory: Path
    name: str
    serve: Callable[[socket.socket], None]
    """Talks to one client, in a thread of its own; the socket is closed afterwards."""
    most: int
    """How many clients may be there at once; more are closed at once."""
    leave_s: float = 0.0
    """How long clients that are still served are waited for at the end."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: dict[socket.socket, threading.Thread] = field(default_factory=dict)
    _kept: set[socket.socket] = field(default_factory=set)
    _closed: bool = False
    _listener: socket.socket = field(init=False)

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        with ExitStack() as on_failure:
            on_failure.callback(self._listener.close)
            here = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                with suppress(FileNotFoundError):
                    os.unlink(self.name, dir_fd=here)
                # A socket's name is short, and paths are not.
                self._listener.bind(f"/proc/self/fd/{here}/{self.name}")
            finally:
                os.close(here)
            self._listener.listen(self.most)
            on_failure.pop_all()
        threading.Thread(target=self._accept, name=f"coilclaw-{self.name}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            left, kept = dict(self._clients), set(self._kept)
        for each in (self._listener, *left, *kept):
            # Closing alone would not wake who waits on it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self.leave_s:
            for thread in left.values():
                thread.join(self.leave_s)
                if thread.is_alive():
                    _log.warning("what the agent asked for at %s still runs", self.name)

    def keep(self, end: socket.socket) -> bool:
        """Have another socket cut at the end as well; return whether it is not over yet."""
        with self._lock:
            self._kept.add(end)
            return not self._closed

    def forget(self, end: socket.socket) -> None:
        """Do not cut a socket any more."""
        with self._lock:
            self._kept.discard(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._run, args=(client,), daemon=True)
            with self._lock:
                refused = self._closed or len(self._clients) >= self.most
                if not refused:
                    self._clients[client] = thread
            if refused:
                client.close()
            else:
                thread.start()

    def _run(self, client: socket.socket) -> None:
        try:
            with client:
                self.serve(client)
        except OSError as problem:
            _log.info("a connection to %s ended: %s", self.name, problem)
        finally:
            with self._lock:
                self._clients.pop(client, None)
