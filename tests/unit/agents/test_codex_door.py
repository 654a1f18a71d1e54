"""The way to the model: who may be reached through it, and that nobody else can be."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import DeniedError, UsageError
from coilclaw.runners.codex.home import targets_of
from coilclaw.runners.model_route import MAX_HEAD_BYTES, SOCKET, ModelProxy, RouteTarget
from coilclaw.workspace.process import command
from coilclaw.workspace.process.confinement import Sandbox, SandboxSupport
from tests.support.children import PATIENCE_S, open_fds
from tests.support.sandboxes import supported

OWN = tuple(RouteTarget(name, 443) for name in ("api.openai.com", "auth.openai.com", "chatgpt.com"))


# --- where the model is --------------------------------------------------------------------------


def provider(**fields: Any) -> dict[str, Any]:
    return {"model_provider": "p", "model_providers": {"p": fields, "q": {"base_url": "https://q"}}}


@pytest.mark.parametrize(
    ("settings", "targets"),
    [
        ({}, OWN),
        (
            {"openai_base_url": "https://eu.example:8443/v1"},
            (*OWN, RouteTarget("eu.example", 8443)),
        ),
        (provider(base_url="https://models.example/v1"), (RouteTarget("models.example", 443),)),
        (
            provider(base_url="http://127.0.0.1:1234/v1"),
            (RouteTarget("127.0.0.1", 1234, plain=True),),
        ),
        (
            provider(base_url="https://m.example", requires_openai_auth=True),
            (*OWN, RouteTarget("m.example", 443)),
        ),
    ],
)
def test_the_addresses_are_those_of_the_settings(
    settings: dict[str, Any], targets: tuple[RouteTarget, ...]
) -> None:
    assert targets_of(settings) == targets


@pytest.mark.parametrize(
    "address",
    ["http://models.example/v1", "http://10.0.0.1:1234", "http://127.0.0.1/v1", "ftp://x", "x", 7],
)
def test_a_model_without_tls_is_on_this_machine(address: object) -> None:
    with pytest.raises(DeniedError) as caught:
        targets_of(provider(base_url=address))
    assert caught.value.rule == "codex.route"


@pytest.mark.parametrize(
    "settings", [provider(), {"model_provider": "x"}, provider(base_url="https://a:b")]
)
def test_settings_that_do_not_say_where_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        targets_of(settings)
    assert caught.value.rule == "codex.home"


# --- the door ------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends everything back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=back, args=(client,), daemon=True).start()

    def back(client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                client.sendall(data)

    threading.Thread(target=work, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@contextmanager
def unvisited() -> Iterator[int]:
    """The port of a server that nobody may come to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def ask(place: Path, head: bytes, rest: bytes = b"") -> tuple[bytes, bytes]:
    """Knock; return the first line of the answer, and what came back of ``rest``."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(place / SOCKET))
        client.sendall(head + rest)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while data := client.recv(65536):
            answer += data
    first, _, body = answer.partition(b"\r\n")
    return first, body.partition(b"\r\n\r\n" if b"\r\n\r\n" in body else b"\r\n")[2]


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_only_what_is_named_can_be_reached(
    tmp_path: Path, echo: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    host, port = echo
    with unvisited() as elsewhere, ModelProxy(tmp_path, (RouteTarget(host, port),)):
        for head in (
            connect(host, elsewhere),
            connect("localhost", port),
            connect("example.org", 443),
            f"GET http://{host}:{port}/ HTTP/1.1\r\n\r\n".encode(),
            f"CONNECT {host}:{port}\r\n\r\n".encode(),
            f"CONNECT {host}:{port} HTTP/1.1\r\n".encode().ljust(MAX_HEAD_BYTES, b"x"),
            connect(f"{host}:{port}@example.org", 443),
            b"",
            b"\0\xff\r\n\r\n",
        ):
            assert ask(tmp_path, head)[0] == b"HTTP/1.1 403 Forbidden"
        # A person who reads that something was refused wants to know what.
        assert "the agent asked for 'example.org:443', which is not" in caplog.text
        assert "the agent asked for something, which is not" in caplog.text
        assert ask(tmp_path, connect(host, port), b"hello" * 50_000) == (
            b"HTTP/1.1 200 OK",
            b"hello" * 50_000,
        )


def test_a_model_that_is_down_is_a_bad_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ModelProxy(tmp_path, (RouteTarget("127.0.0.1", port),)):
        assert ask(tmp_path, connect("127.0.0.1", port))[0] == b"HTTP/1.1 502 Bad Gateway"


def test_closing_it_cuts_every_connection_and_leaves_nothing_open(
    tmp_path: Path, echo: tuple[str, int]
) -> None:
    before, running = open_fds(), set(threading.enumerate())
    host, port = echo
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE_S)
    with client:
        with ModelProxy(tmp_path, (RouteTarget(host, port),)):
            client.connect(str(tmp_path / SOCKET))
            client.sendall(connect(host, port) + b"x")
            answer = b""
            while not answer.endswith(b"x"):
                answer += client.recv(100)
        assert client.recv(100) == b""
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as late:
        late.connect(str(tmp_path / SOCKET))
    for thread in set(threading.enumerate()) - running:
        thread.join(PATIENCE_S)
    ours = {line for line in open_fds() - before if "socket" in line}
    # The echo server's own end may take a moment; ours are the client's, the door's and the one
    # to the server.
    assert len(ours) <= 1


def test_a_link_in_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"), ModelProxy(tmp_path / "link", ()):
        pass
    assert list((tmp_path / "real").iterdir()) == []


# --- from inside a sandbox without network -------------------------------------------------------

CLIENT = """
import os, socket, sys
def said(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"hello")
            client.shutdown(socket.SHUT_WR)
            return client.recv(100)
    except OSError as problem:
        return problem.errno
print(os.getcwd(), said(int(sys.argv[1])), said(int(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


def test_the_relay_leads_out_of_the_sandbox_to_the_model_only(
    tmp_path: Path, echo: tuple[str, int], support: SandboxSupport
) -> None:
    host, port = echo
    place = tmp_path / ("long" * 30)
    place.mkdir()
    settings = provider(base_url=f"http://{host}:{port}/v1")
    python = str(Path(sys.executable).resolve())
    with unvisited() as elsewhere, ModelProxy(place, targets_of(settings)) as proxy:
        argv = proxy.wrap_command([python, "-I", "-S", "-c", CLIENT, str(port), str(elsewhere)])
        result = command.run(
            argv,
            cwd=tmp_path,
            timeout_s=PATIENCE_S,
            env=proxy.make_environment({"PATH": "/usr/bin:/bin"}, tmp_path),
            sandbox=Sandbox(
                "bubblewrap",
                writable=(place,),
                private_tmp=False,
                nested=True,
                programs=(Path(python),),
            ),
            support=support,
        )
    assert result.stdout.text() == f"{tmp_path} b'hello' 111\n", result.stderr.text()
    assert result.leftovers == ()
    assert proxy.targets == (RouteTarget(host, port, plain=True),)
    assert proxy.note == f"Of the network only the model could be reached: {host}:{port}."
