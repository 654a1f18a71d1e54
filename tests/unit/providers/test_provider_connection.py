"""Connections: kept from one request to the next, given up in time, and never mixed up."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import (
    ProviderMalformed,
    ProviderNetwork,
    ProviderRejected,
    ProviderTimeout,
)
from coilclaw.kernel.secret import Secret
from coilclaw.models.connection import KEPT_CONNECTIONS
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.http import ModelClient
from tests.support.certificates import make_certificate
from tests.support.children import PATIENCE_S
from tests.support.rawserver import RawServer, drip, read_request, response, serving

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def client(server: RawServer, **options: float) -> ModelClient:
    return ModelClient(ModelEndpoint("m", server.url, **options))  # type: ignore[arg-type]  # all are numbers


def ask(asking: ModelClient, server: RawServer) -> bytes:
    return asking.post(f"{server.url}/v1/x", {}, {"a": 1})


def each(*answers: bytes) -> Callable[[socket.socket], None]:
    """Answer one request after another on one connection."""

    def work(connection: socket.socket) -> None:
        for number, answer in enumerate(answers):
            if number and not read_request(connection):
                return
            connection.sendall(answer)
        connection.recv(65536)

    return work


def test_requests_share_a_connection() -> None:
    with serving(each(GOOD, GOOD, GOOD)) as server:
        asking = client(server)
        assert [ask(asking, server) for _ in range(3)] == [b"{}"] * 3
        assert len(server.received) == 1
        asking.close()


def test_a_chunked_answer_and_an_error_leave_the_connection_for_the_next() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    refused = b"HTTP/1.1 400 X\r\ncontent-length: 2\r\n\r\n{}"
    with serving(each(chunked, refused, GOOD)) as server:
        asking = client(server)
        assert ask(asking, server) == b"{}"
        with pytest.raises(ProviderRejected):
            ask(asking, server)
        assert ask(asking, server) == b"{}"
        assert len(server.received) == 1
        asking.close()


@pytest.mark.parametrize(
    "first",
    [
        response(b"{}"),  # says that it closes
        GOOD,  # and closes without a word
        GOOD + b"HTTP/1.1 200 OK\r\n",  # says more than it was asked
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n{}",  # ends with the connection
    ],
)
def test_a_connection_that_cannot_go_on_is_replaced(first: bytes) -> None:
    def and_close(connection: socket.socket) -> None:
        connection.sendall(first)

    with serving(and_close, GOOD) as server:
        asking = client(server)
        assert ask(asking, server) == b"{}"
        time.sleep(0.05)  # for the end of the stream to arrive
        assert ask(asking, server) == b"{}"
        assert len(server.received) == 2


def test_an_answer_that_was_not_read_to_its_end_is_not_what_the_next_request_gets() -> None:
    large = b"HTTP/1.1 200 OK\r\ncontent-length: 5000000\r\n\r\n" + b"x" * 200_000
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"
    with serving(each(large), cut, GOOD) as server:
        asking = client(server, max_response_bytes=1000)
        with pytest.raises(ProviderMalformed, match="larger than 1,000 bytes"):
            ask(asking, server)
        with pytest.raises(ProviderNetwork, match="received 1 bytes, expected 100"):
            ask(asking, server)
        assert ask(asking, server) == b"{}"


def test_the_time_limit_holds_on_a_kept_connection() -> None:
    def then_drip(connection: socket.socket) -> None:
        connection.sendall(GOOD)
        read_request(connection)
        drip(connection)

    with serving(then_drip) as server:
        asking = client(server)
        assert ask(asking, server) == b"{}"
        asking._endpoint = replace(asking._endpoint, timeout_s=0.4)
        began = time.monotonic()
        with pytest.raises(ProviderTimeout, match=r"within 0\.4 s"):
            ask(asking, server)
        assert time.monotonic() - began < PATIENCE_S


def test_an_interrupt_gets_through_at_once_and_breaks_nothing() -> None:
    def silent(connection: socket.socket) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        connection.recv(1)

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    with serving(each(GOOD), silent, GOOD) as server:
        asking = client(server)
        ask(asking, server)
        asking.close()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                ask(asking, server)
            assert time.monotonic() - began < PATIENCE_S
        finally:
            signal.signal(signal.SIGALRM, before)
        assert ask(asking, server) == b"{}"


def test_many_threads_share_a_client() -> None:
    said: list[str] = []

    def work(asking: ModelClient, url: str, number: int) -> None:
        for turn in range(10):
            body = {"model": "m", "messages": [{"role": "user", "content": f"{number} {turn}"}]}
            raw = asking.post(f"{url}/v1/chat/completions", {}, body)  # type: ignore[arg-type]  # JSON
            said.append(json.loads(raw)["choices"][0]["message"]["content"])

    with ModelServer([{"text": "hello"}]) as server:
        asking = ModelClient(ModelEndpoint("m", server.url))
        threads = [
            threading.Thread(target=work, args=(asking, server.url, number)) for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert said == ["hello"] * 80
        assert len(asking.connections) <= KEPT_CONNECTIONS
        asking.close()


def test_a_forked_child_does_not_speak_on_its_parents_connection() -> None:
    with ModelServer([{"text": "hello"}]) as server:
        asking = ModelClient(ModelEndpoint("m", server.url, timeout_s=PATIENCE_S))
        url, body = f"{server.url}/v1/chat/completions", {"model": "m", "messages": [{}]}
        asking.post(url, {}, body)  # type: ignore[arg-type]  # JSON
        (kept,) = asking.connections
        child = os.fork()
        if child == 0:
            asking.post(url, {}, body)  # type: ignore[arg-type]  # JSON
            os._exit(1 if asking.connections[0] is kept else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        asking.post(url, {}, body)  # type: ignore[arg-type]  # JSON
        assert asking.connections == [kept]
        asking.close()


def test_a_name_that_is_not_resolved_in_time_is_a_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: waiting.wait(10 * PATIENCE_S))
    monkeypatch.setenv("NO_PROXY", "*")
    place = ModelEndpoint("m", "https://model.example", timeout_s=0.3)
    began = time.monotonic()
    try:
        with pytest.raises(ProviderTimeout, match="could not be reached"):
            ModelClient(place).post("https://model.example/v1/x", {}, {})
        assert time.monotonic() - began < PATIENCE_S
    finally:
        waiting.set()


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(GOOD) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", 0)) as listener:
            closed = listener.getsockname()[1]
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", closed)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        url = f"http://localhost:{port}"
        assert ModelClient(ModelEndpoint("m", url)).post(f"{url}/v1/x", {}, {}) == b"{}"


@pytest.mark.parametrize("url", ["/v1/ä", "/v1/a b", "/v1/\x00"])
def test_an_address_that_would_break_the_head_is_refused(url: str) -> None:
    place = ModelEndpoint("m", "http://127.0.0.1:9")
    with pytest.raises(ProviderRejected, match="malformed"):
        ModelClient(place).post(f"http://127.0.0.1:9{url}", {}, {})


def test_a_header_that_would_break_the_head_is_refused() -> None:
    place = ModelEndpoint("m", "http://127.0.0.1:9")
    with pytest.raises(ProviderRejected, match="malformed"):
        ModelClient(place).post("http://127.0.0.1:9/v1/x", {"a": "b\r\nc: d"}, {})


def test_a_proxy_is_asked_for_addresses_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(GOOD) as server:
        monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://me:pass%20word@"))
        place = ModelEndpoint("m", "http://model.example/p")
        assert ModelClient(place).post("http://model.example/p/v1/x", {}, {}) == b"{}"
        head = server.received[0].partition(b"\r\n\r\n")[0]
        assert head.startswith(b"POST http://model.example/p/v1/x HTTP/1.1\r\n")
        assert b"proxy-authorization: Basic bWU6cGFzcyB3b3Jk" in head


def test_a_host_that_needs_no_proxy_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "model.example")
    with serving(GOOD) as server:
        port = int(server.url.rpartition(":")[2])
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        url = f"http://model.example:{port}"
        assert ModelClient(ModelEndpoint("m", url)).post(f"{url}/v1/x", {}, {}) == b"{}"


@pytest.mark.parametrize("proxy", ["socks5://me:canary@h:1", "https://me:canary@h", "http://:0"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    place = ModelEndpoint("m", "https://model.example")
    with pytest.raises(ProviderNetwork, match="proxy") as caught:
        ModelClient(place).post("https://model.example/v1/x", {}, {})
    assert "canary" not in caught.value.message


def test_a_proxy_that_refuses_to_connect_is_a_network_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(response(b"", "407 Proxy Authentication Required")) as server:
        monkeypatch.setenv("https_proxy", server.url)
        place = ModelEndpoint("m", "https://model.example", Secret("key-canary"))
        with pytest.raises(ProviderNetwork, match="the proxy answered HTTP 407"):
            ModelClient(place).post(
                "https://model.example/v1/x", {"authorization": "key-canary"}, {}
            )
        assert server.received[0].startswith(b"CONNECT model.example:443 HTTP/1.1\r\n")
        assert b"key-canary" not in server.received[0]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for ``localhost`` that nobody trusts, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder)
    path = folder / "server.pem"
    path.write_bytes(key.read_bytes() + certificate.read_bytes())
    return path


def secured(certificate: Path, *answers: bytes) -> Callable[[socket.socket], None]:
    """Answer over TLS; one request after another."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def work(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as safe:
            for answer in answers:
                read_request(safe)
                safe.sendall(answer)
            safe.recv(65536)

    return work


def tls_server(certificate: Path, *answers: bytes) -> tuple[socket.socket, threading.Thread]:
    listener = socket.create_server(("127.0.0.1", 0))
    handle = secured(certificate, *answers)

    def work() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                handle(connection)
            except OSError:
                return  # a client that does not trust us says so and goes

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return listener, thread


def test_a_certificate_that_is_trusted_is_taken_and_the_connection_kept(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    listener, thread = tls_server(certificate, GOOD, GOOD)
    with listener:
        url = f"https://localhost:{listener.getsockname()[1]}"
        asking = ModelClient(ModelEndpoint("m", url, Secret("key-1")))
        assert [asking.post(f"{url}/v1/x", {}, {}) for _ in range(2)] == [b"{}"] * 2
        asking.close()
        thread.join(PATIENCE_S)


def test_a_certificate_that_is_not_trusted_is_a_network_error(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    listener, thread = tls_server(certificate, GOOD)
    with listener:
        url = f"https://localhost:{listener.getsockname()[1]}"
        with pytest.raises(ProviderNetwork, match="certificate"):
            ModelClient(ModelEndpoint("m", url)).post(f"{url}/v1/x", {"authorization": "key"}, {})
        thread.join(PATIENCE_S)


def test_a_server_that_does_not_speak_tls_is_a_network_error() -> None:
    def work(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 X\r\n\r\n")
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=work, args=(listener,), daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ProviderNetwork):
            ModelClient(ModelEndpoint("m", url, timeout_s=PATIENCE_S)).post(f"{url}/v1/x", {}, {})
        thread.join(PATIENCE_S)


def test_building_a_provider_without_a_network_imports_no_http() -> None:
    code = (
        "import sys, coilclaw.app.providers as p\n"
        "from coilclaw.models.endpoint import ProviderSettings as S\n"
        "from coilclaw.models import event_stream as streaming\n"
        "from coilclaw.kernel.messages import ChatRequest, Message\n"
        "s = {'m': S('m', 'mock')}\n"
        "m = p.build_provider('m', s, environ={}, max_response_bytes=2**20, redact=str)\n"
        "streaming.ask(m, ChatRequest('', (Message('user', 'hi'),), 'm'), print)\n"
        "heavy = {'http.client', 'ssl', 'socket', 'email', 'urllib.request', 'difflib'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
