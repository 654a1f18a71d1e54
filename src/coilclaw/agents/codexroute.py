"""The way of a confined Codex to its model, and to nothing else.

Where the contract denies the network, the sandbox around Codex has none. Codex, and whatever it
starts with or without its own sandbox, finds one door in there: a relay on loopback. The relay
leads to a socket in the file system, and there we connect to the addresses of the model only.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from coilclaw.agents.codexdoor import Door, Target
from coilclaw.errors import DeniedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PROXY_VARIABLES: Final = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SOCKET: Final = "model.sock"

_OWN_HOSTS: Final = tuple(
    Target(name, 443) for name in ("api.openai.com", "auth.openai.com", "chatgpt.com")
)
_OWN_PROVIDER: Final = "openai"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_FIRST_FREE_PORT: Final = 1024
"""The relay listens where the model does, and has no rights to listen below."""

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
"""What is started in the sandbox: it forks the relay and becomes Codex."""


@dataclass(frozen=True, slots=True)
class Route:
    """How Codex is started so that it finds its way."""

    targets: tuple[Target, ...]
    place: Path

    def argv(self, argv: list[str]) -> list[str]:
        plain = json.dumps([[target.host, target.port] for target in self.targets if target.plain])
        python = os.path.realpath(sys.executable)
        return [python, "-I", "-S", "-c", _RELAY, str(self.place), plain, *argv]

    def environment(self, env: Mapping[str, str], directory: Path) -> dict[str, str]:
        kept = {name: value for name, value in env.items() if name not in PROXY_VARIABLES}
        return {**kept, "COILCLAW_DIRECTORY": str(directory)}

    @property
    def note(self) -> str:
        names = ", ".join(f"{target.host}:{target.port}" for target in self.targets)
        return f"Of the network only the model could be reached: {names}."


@contextmanager
def opened(settings: Mapping[str, Any], place: Path) -> Iterator[Route]:
    """Open the door in a directory of the sandbox."""
    targets = targets_of(settings)
    with Door(place, SOCKET, targets):
        yield Route(targets, place)


def targets_of(settings: Mapping[str, Any]) -> tuple[Target, ...]:
    """Return where the model of these settings is."""
    name = settings.get("model_provider", _OWN_PROVIDER)
    providers = settings.get("model_providers")
    provider = providers.get(name) if isinstance(providers, dict) else None
    given = provider if isinstance(provider, dict) else {}
    addresses = [given.get("base_url")]
    found: list[Target] = []
    if name == _OWN_PROVIDER or given.get("requires_openai_auth") is True:
        addresses += [settings.get("openai_base_url"), settings.get("chatgpt_base_url")]
        found += _OWN_HOSTS
    found += [_target(address) for address in addresses if address is not None]
    if not found:
        raise UsageError(
            f"The Codex home does not say where the model provider {name!r} is.",
            rule="codex.home",
            hint="Give it a base_url in config.toml of the template.",
        )
    return tuple(dict.fromkeys(found))


def _target(address: object) -> Target:
    try:
        parts = urlsplit(str(address))
        port = parts.port
    except ValueError as problem:
        raise UsageError(
            f"The address of the model is none: {problem}.", rule="codex.home"
        ) from None
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return Target(host, port or 443)
    if parts.scheme == "http" and host in _LOOPBACK and (port or 80) >= _FIRST_FREE_PORT:
        return Target(host, port or 80, plain=True)
    raise DeniedError(
        "Where the network is denied, a model without TLS is reached on this machine only, "
        f"and from port {_FIRST_FREE_PORT} on.",
        rule="codex.route",
        hint="Use https, or allow the task the network.",
    )
