"""``TestTool``: how an agent in a sandbox reaches ``run_tests``.

The agent starts a program as its tool server; it is a pipe that leads to a socket in the agent's
home, where ``testserver`` listens from outside.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.testserver import SERVER, TOOL, TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

SOCKET: Final = "tests.sock"
MAX_CONNECTIONS: Final = 16
MAX_LINE_BYTES: Final = 2**20
LEAVE_S: Final = 10.0
"""How long tests that still run are waited for, once nobody listens any more."""
CALL_S: Final = 4 * 3600
"""How long an agent is told to wait for its tests; who runs them has limits of their own."""

_PIPE: Final = """
import os, socket, sys, threading
os.chdir(sys.argv[1])
end = socket.socket(socket.AF_UNIX)
end.connect("./tests.sock")
def up():
    while data := os.read(0, 65536):
        end.sendall(data)
    end.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := end.recv(65536):
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""
"""What is started in the sandbox."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TestTool:
    """How the agent starts its tool server."""

    __test__ = False

    place: Path

    @property
    def argv(self) -> list[str]:
        python = os.path.realpath(sys.executable)
        return [python, "-I", "-S", "-c", _PIPE, str(self.place)]

    @property
    def name(self) -> str:
        """The name of the server, under which agents list the tool."""
        return SERVER

    def codex_options(self) -> list[str]:
        """The options that tell Codex of the server; its calls need no approval."""
        program, *rest = self.argv
        settings = {
            "command": program,
            "args": rest,
            "tool_timeout_sec": CALL_S,
            "default_tools_approval_mode": "approve",
        }
        options: list[str] = []
        for key, value in settings.items():
            # A JSON text of these kinds is a TOML text too.
            options += ["-c", f"mcp_servers.{self.name}.{key}={json.dumps(value)}"]
        return options

    def is_call(self, title: str) -> bool:
        """Whether an agent's own name for a call means this tool."""
        return TOOL in title and SERVER in title


@contextmanager
def offered(run_tests: Callable[[str], str] | None, place: Path) -> Iterator[TestTool | None]:
    """Have the tool ready in a directory of the sandbox, if there are tests."""
    if run_tests is None:
        yield None
        return
    with _Listener(place, TestServer(run_tests)):
        yield TestTool(place)


class _Listener:
    """Listens while the ``with`` block lasts; leaving it cuts every connection."""

    def __init__(self, directory: Path, server: TestServer) -> None:
        self._directory = directory
        self._server = server
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self._listener.close)
            here = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                with suppress(FileNotFoundError):
                    os.unlink(SOCKET, dir_fd=here)
                # A socket's name is short, and paths are not.
                self._listener.bind(f"/proc/self/fd/{here}/{SOCKET}")
            finally:
                os.close(here)
            self._listener.listen(MAX_CONNECTIONS)
            on_failure.pop_all()
        threading.Thread(target=self._accept, name="coilclaw-tests", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            left = dict(self._open)
        for each in (self._listener, *left):
            # Closing alone would not wake who waits on it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in left.values():
            thread.join(LEAVE_S)
            if thread.is_alive():
                _log.warning("tests that the agent asked for still run after its end")

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(client,), name="coilclaw-tests-client", daemon=True
            )
            with self._lock:
                refused = self._closed or len(self._open) >= MAX_CONNECTIONS
                if not refused:
                    self._open[client] = thread
            if refused:
                client.close()
            else:
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, client.makefile("rb") as lines:
                while line := lines.readline(MAX_LINE_BYTES):
                    if not line.endswith(b"\n"):
                        _log.warning("a message to the tests is too long, or was cut")
                        return
                    answer = self._server.answer(line)
                    if answer is not None:
                        client.sendall(answer)
        except OSError as problem:
            _log.info("a connection to the tests ended: %s", problem)
        finally:
            with self._lock:
                self._open.pop(client, None)
