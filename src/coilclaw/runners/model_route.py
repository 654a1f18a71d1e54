"""``ModelProxy``: the route of an agent without a network to its model, and to nothing else.

A relay in the sandbox listens on its loopback and forwards every connection to a Unix socket. The
proxy serves that socket outside: it connects to the addresses of the model and refuses others.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coilclaw.kernel import DeniedError, UsageError
from coilclaw.runners.sandbox_socket import SandboxSocket

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_CONNECTIONS: Final = 64
MAX_HEAD_BYTES: Final = 8 * 2**10
CONNECT_S: Final = 30.0
PROXY_VARIABLES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SOCKET: Final = "model.sock"

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_FIRST_FREE_PORT: Final = 1024
"""The relay listens where the model does, and has no rights to listen below."""
_MAX_TOLD: Final = 200
_CONNECT: Final = re.compile(
    rb"CONNECT ([^\s:\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5}) HTTP/1\.[01]\r\n"
)

_RELAY: Final = """
import json, os, socket, sys, threading
place, plain, argv = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]

def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end, how in ((source, socket.SHUT_RD), (target, socket.SHUT_WR)):
        try:
            end.shutdown(how)
        except OSError:
            pass

def lead(client, hello):
    with client, socket.socket(socket.AF_UNIX) as door:
        try:
            door.connect(place)
            if hello:
                door.sendall(hello)
                if not read_head(door).startswith(b"HTTP/1.1 200 "):
                    return
        except OSError:
            return
        back = threading.Thread(target=pump, args=(door, client), daemon=True)
        back.start()
        pump(client, door)
        back.join()

def read_head(door):
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        piece = door.recv(1)
        if not piece:
            break
        head += piece
    return head

def accept(listener, hello):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=lead, args=(client, hello), daemon=True).start()

os.chdir(place)
place = "./model.sock"
doors = [(socket.create_server(("127.0.0.1", 0)), b"")]
for host, port in plain:
    hello = f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n".encode()
    doors.append((socket.create_server(("127.0.0.1", port)), hello))
proxy = "http://127.0.0.1:%d" % doors[0][0].getsockname()[1]
if os.fork() == 0:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    threads = [threading.Thread(target=accept, args=door) for door in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)
for listener, _ in doors:
    listener.close()
os.chdir(os.environ.pop("COILCLAW_DIRECTORY"))
for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
    os.environ[name] = proxy
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
os.execv(argv[0], argv)
"""
"""What is started in the sandbox: it forks the relay and becomes the agent."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """An address that the proxy connects to; a ``plain`` one is reached without TLS."""

    host: str
    port: int
    plain: bool = False


def target_of(address: str) -> RouteTarget:
    """Return the target of a model's address; raise if the proxy cannot serve it."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as problem:
        raise UsageError(
            f"The address of the model is not valid: {problem}.", rule="codex.home"
        ) from None
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return RouteTarget(host, port or 443)
    if parts.scheme == "http" and host in _LOOPBACK and (port or 80) >= _FIRST_FREE_PORT:
        return RouteTarget(host, port or 80, plain=True)
    raise DeniedError(
        "Where the network is denied, a model without TLS is reached on this machine only, "
        f"and from port {_FIRST_FREE_PORT} on.",
        rule="codex.route",
        hint="Use https, or allow the task the network.",
    )


class ModelProxy(SandboxSocket):
    """Connects to the targets while the ``with`` block lasts; leaving it cuts every connection.

    ``directory`` is a directory of the sandbox.
    """

    def __init__(self, directory: Path, targets: tuple[RouteTarget, ...]) -> None:
        super().__init__(directory, SOCKET, self._connect, MAX_CONNECTIONS)
        self.targets = targets
        self._allowed = {(target.host.lower(), target.port) for target in targets}

    def wrap_command(self, argv: list[str]) -> list[str]:
        """Return the argv that starts the relay, which then becomes the agent."""
        plain = json.dumps([[target.host, target.port] for target in self.targets if target.plain])
        python = os.path.realpath(sys.executable)
        return [python, "-I", "-S", "-c", _RELAY, str(self.directory), plain, *argv]

    def make_environment(self, env: Mapping[str, str], directory: Path) -> dict[str, str]:
        """Return the environment of the relay; the agent starts in ``directory``."""
        kept = {name: value for name, value in env.items() if name not in PROXY_VARIABLES}
        return {**kept, "COILCLAW_DIRECTORY": str(directory)}

    @property
    def note(self) -> str:
        """The sentence about the network for the record of the sandbox."""
        names = ", ".join(f"{target.host}:{target.port}" for target in self.targets)
        return f"Of the network only the model could be reached: {names}."

    def _connect(self, client: socket.socket) -> None:
        client.settimeout(CONNECT_S)
        target = _read_target(client)
        if target is None or target not in self._allowed:
            what = "something" if target is None else repr("{}:{}".format(*target))[:_MAX_TOLD]
            _log.warning(
                "the agent asked for %s, which is not its model's address, and did not get it",
                what,
                extra={"event": "agent_network_denied", "fields": {"target": what}},
            )
            client.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            return
        try:
            server = socket.create_connection(target, timeout=CONNECT_S)
        except OSError as problem:
            _log.info("the model could not be reached: %s", problem)
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            return
        with server:
            try:
                if self.keep(server):
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    client.settimeout(None)
                    server.settimeout(None)
                    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                    back.start()
                    _pump(client, server)
                    back.join()
            finally:
                self.forget(server)


def _read_target(client: socket.socket) -> tuple[str, int] | None:
    """Read the head of the request and not a byte more: what follows is not ours."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        piece = client.recv(1)
        if not piece:
            break
        head += piece
    found = _CONNECT.match(head)
    if found is None or not head.endswith(b"\r\n\r\n"):
        return None
    return found[1].decode("latin-1").strip("[]").lower(), int(found[2])


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
