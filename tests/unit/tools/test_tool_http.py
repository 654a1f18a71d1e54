"""``http``: real servers on loopback, a resolver that lies, and the network attacks on it."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from coilclaw.agent.tools import web_client
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.web_tools import Http
from coilclaw.kernel.errors import DeniedError
from coilclaw.kernel.messages import ToolResult
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.certificates import make_certificate
from tests.support.children import PATIENCE_S
from tests.support.rawserver import RawServer, drip, response, serving
from tests.support.toolworld import World, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def port_of(server: RawServer) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


def release(server: RawServer) -> None:
    """Let a server end that still waits for somebody."""
    socket.create_connection(("127.0.0.1", port_of(server))).close()


def allowing(here: World, server: RawServer, *more: str) -> World:
    return here.using(allowed_domains=(f"127.0.0.1:{port_of(server)}", *more))


def resolving(*addresses: str) -> Any:
    """A resolver that gives each host these addresses, one answer per question, and counts."""
    asked: list[str] = []

    def resolve(host: str, port: int, *, type: int) -> list[tuple[Any, ...]]:  # noqa: A002 - as in socket
        asked.append(host)
        ips = addresses[min(len(asked), len(addresses)) - 1].split()
        return [(socket.AF_INET, type, 6, "", (ip, port)) for ip in ips]

    resolve.asked = asked  # type: ignore[attr-defined] # for the test to look at
    return resolve


def failed(told: ToolResult, rule: str) -> bool:
    return not told.success and told.output == "" and told.metadata == {"rule": rule}


def test_a_page_is_told_with_status_and_type(here: World) -> None:
    with serving(response(b"<p>hi</p>", "200 OK", "content-type: text/html")) as server:
        told = allowing(here, server).call(Http(), url=f"{server.url}/a?b=c#d")
    assert told == ToolResult(
        True,
        "HTTP 200, text/html, 9 bytes\n\n<p>hi</p>",
        None,
        {
            "status": 200,
            "url": f"{server.url}/a?b=c",
            "address": "127.0.0.1",
            "content_type": "text/html",
            "bytes": 9,
            "cut": False,
            "redirects": 0,
        },
    )
    head = server.received[0].decode().lower()
    assert head.startswith("get /a?b=c http/1.1\r\n")
    assert f"host: 127.0.0.1:{port_of(server)}\r\n" in head
    assert "user-agent: coilclaw\r\n" in head
    assert "cookie" not in head
    assert "authorization" not in head


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://example.com/", "http.domain"),
        ("http://user:word@allowed.example/", "http.credentials"),
        ("http://allowed.example/\r\nX: y", "http.url"),
        ("ftp://allowed.example/", "http.scheme"),
        ("http://2130706433/", "http.host"),
        ("http://[::ffff:127.0.0.1]/", "http.domain"),
    ],
)
def test_what_policy_forbids_is_not_even_prepared(here: World, url: str, rule: str) -> None:
    with pytest.raises(DeniedError) as denied:
        Http().prepare({"url": url}, here.using(allowed_domains=("allowed.example",)).context)
    assert denied.value.rule == rule


def test_what_is_shown_is_what_is_asked(here: World) -> None:
    allowed = here.using(allowed_domains=("a.example",))
    assert Http().prepare(
        {"url": "HTTP://A.Example./x y".replace(" ", "%20")}, allowed.context
    ).detail == ("GET http://a.example/x%20y",)


def test_an_error_of_the_server_is_a_failure_with_its_page(here: World) -> None:
    with serving(response(b"no such page", "404 Not Found", "content-type: text/plain")) as server:
        told = allowing(here, server).call(Http(), url=server.url)
    assert (told.success, told.error) == (False, "HTTP 404")
    assert told.output.endswith("no such page")


@pytest.mark.parametrize(
    "addresses",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "::1",
            "::ffff:8.8.8.8",
            "fe80::1%lo",
        ),
        *("64:ff9b::a00:1", "224.0.0.1", "93.184.215.14 127.0.0.1", "127.0.0.1 93.184.215.14"),
    ],
)
def test_a_name_that_resolves_to_a_private_address_is_refused(here: World, addresses: str) -> None:
    resolve = resolving(addresses)
    allowed = here.using(allowed_domains=("evil.example", "*"))
    with pytest.raises(DeniedError, match="neither public nor allowed") as denied:
        allowed.call(Http(resolve), url="http://evil.example/")
    assert denied.value.rule == "http.address"


def test_dns_rebinding_gets_no_second_question(here: World) -> None:
    """The first answer is checked and connected to; a second one would lead elsewhere."""
    with serving(
        response(b"", "302 Found", "location: /again"), response(b"pinned", "200 OK")
    ) as server:
        port = port_of(server)
        allowed = allowing(here, server, f"evil.example:{port}")
        resolve = resolving("127.0.0.1", "10.255.255.1")
        told = allowed.call(Http(resolve), url=f"http://evil.example:{port}/")
    assert told.output.endswith("pinned")
    assert resolve.asked == ["evil.example"]
    assert (told.metadata["address"], told.metadata["redirects"]) == ("127.0.0.1", 1)
    assert f"host: evil.example:{port}\r\n" in server.received[0].decode().lower()


def test_an_address_that_refuses_gives_way_to_the_next(here: World) -> None:
    with serving(response(b"second")) as server:
        port = port_of(server)
        allowed = here.using(allowed_domains=("127.0.0.0/8", f"two.example:{port}"))
        told = allowed.call(
            Http(resolving("127.9.9.9 127.0.0.1")), url=f"http://two.example:{port}/"
        )
    assert told.metadata["address"] == "127.0.0.1"


def test_a_name_that_cannot_be_resolved_is_a_failure(here: World) -> None:
    def nothing(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    allowed = here.using(allowed_domains=("a.example",))
    assert failed(allowed.call(Http(nothing), url="http://a.example/"), "http.resolve")
    empty = resolving("")
    assert failed(allowed.call(Http(empty), url="http://a.example/"), "http.resolve")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/",
        "http://localhost/",
        "//elsewhere.example/x",
        "https://127.0.0.1/",
        "http://127.0.0.1:1/",
        "http://127.1/",
        "ftp://127.0.0.1/",
        "http://user@127.0.0.1/",
        "http://[::1",
        "http://x y/",
    ],
)
def test_a_redirect_to_elsewhere_is_told_and_not_followed(here: World, location: str) -> None:
    redirect = response(b"", "302 Found", f"location: {location}")
    with serving(redirect, response(b"never")) as server:
        told = allowing(here, server, "elsewhere.example", "*").call(Http(), url=server.url)
        assert failed(told, "http.redirect")
        assert f"redirects to '{location}'" in str(told.error)
        assert len(server.received) == 1
        release(server)


def test_redirects_at_the_same_place_are_followed_to_a_bound(here: World) -> None:
    hops = [response(b"", "301 Moved", f"location: /{n}") for n in range(6)]
    with serving(*hops[:5], response(b"there")) as server:
        told = allowing(here, server).call(Http(), url=server.url)
    assert (told.success, told.metadata["redirects"]) == (True, 5)
    with serving(*hops) as server:
        assert failed(allowing(here, server).call(Http(), url=server.url), "http.redirect")


def test_a_cookie_is_not_carried_on(here: World) -> None:
    first = response(b"", "302 Found", "location: /next", "set-cookie: a=b")
    with serving(first, response(b"ok")) as server:
        assert allowing(here, server).call(Http(), url=server.url).success
    assert b"cookie" not in server.received[1].lower()


def test_a_decompression_bomb_is_cut(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b"A" * 64 * 2**20, 9, mtime=0)
    grown: list[int] = []
    real = zlib.decompressobj

    class Counting:
        def __init__(self, window: int) -> None:
            self._inner = real(window)

        def decompress(self, data: bytes, room: int) -> bytes:
            piece = self._inner.decompress(data, room)
            grown.append(len(piece))
            return piece

        @property
        def eof(self) -> bool:
            return self._inner.eof

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    answer = response(bomb, "200 OK", "content-encoding: gzip", "content-type: text/plain")
    with serving(answer) as server:
        small = allowing(here, server).using(limits=ToolLimits(output_bytes=10_000))
        told = small.call(Http(), url=server.url)
    assert told.success
    assert len(told.output.encode()) <= 10_000
    assert told.output.endswith("[… the rest is cut]")
    assert sum(grown) <= 10_001


def test_a_bomb_in_small_pieces_is_cut_too() -> None:
    bomb = gzip.compress(b"A" * 10**6, 9, mtime=0)
    pieces = (bomb[start : start + 50] for start in range(0, len(bomb), 50))
    assert web_client.take_body(pieces, "gzip", 1000) == web_client.Body(b"A" * 1000, cut=True)
    assert web_client.take_body([bomb], "gzip", 10**6) == web_client.Body(b"A" * 10**6, cut=False)


@pytest.mark.parametrize(
    ("body", "coding", "text"),
    [
        (gzip.compress(b"hello", mtime=0), "gzip", "hello"),
        (gzip.compress(b"hello", mtime=0), "X-GZIP", "hello"),
        (zlib.compress(b"hello"), "deflate", "hello"),
        (b"hello", "identity", "hello"),
    ],
)
def test_what_is_compressed_is_decoded(here: World, body: bytes, coding: str, text: str) -> None:
    answer = response(body, "200 OK", f"content-encoding: {coding}")
    with serving(answer) as server:
        told = allowing(here, server).call(Http(), url=server.url)
    assert (told.success, told.output.endswith(f"\n\n{text}")) == (True, True)


@pytest.mark.parametrize(
    ("body", "coding"), [(b"not gzip", "gzip"), (b"x", "br"), (b"x", "zstd"), (b"x", "gzip, gzip")]
)
def test_an_encoding_that_was_not_asked_for_is_a_failure(
    here: World, body: bytes, coding: str
) -> None:
    with serving(response(body, "200 OK", f"content-encoding: {coding}")) as server:
        assert failed(allowing(here, server).call(Http(), url=server.url), "http.encoding")


def test_a_stream_that_decodes_to_nothing_ends_at_a_bound() -> None:
    empty = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = empty.compress(b"") + empty.flush(zlib.Z_FULL_FLUSH)
    pieces = (piece if n == 0 else b"\x00\x00\x00\xff\xff" * 2**18 for n in range(1000))
    assert web_client.take_body(pieces, "gzip", 100) == web_client.Body(b"", cut=True)
    assert next(pieces, None) is not None


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def test_an_endless_body_is_cut(here: World) -> None:
    with serving(endless) as server:
        began = time.monotonic()
        told = allowing(here, server).call(Http(), url=server.url)
        assert time.monotonic() - began < PATIENCE_S
    assert told.success
    assert len(told.output.encode()) <= 64 * 2**10
    assert "more than 65536 bytes" in told.output
    assert told.metadata["cut"] is True


def slow_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(12_000):
        connection.sendall(b"x: y\r\n")
        time.sleep(0.05)


def silent(connection: socket.socket) -> None:
    connection.recv(1)


@pytest.mark.parametrize("answer", [drip, slow_head, silent])
def test_a_slow_answer_ends_at_the_time_limit(
    here: World, answer: Callable[[socket.socket], None]
) -> None:
    with serving(answer) as server:
        hasty = allowing(here, server).using(limits=ToolLimits(http_timeout_s=0.4))
        began = time.monotonic()
        told = hasty.call(Http(), url=server.url)
        assert time.monotonic() - began < PATIENCE_S
        assert failed(told, "http.timeout")
        assert told.error == "no complete answer within 0.4 s"
        assert_no_thread()


def test_a_slow_resolver_ends_at_the_time_limit_and_nobody_is_asked_later(here: World) -> None:
    over = threading.Event()
    answer = resolving("127.0.0.1")

    def resolve(*args: Any, **more: Any) -> Any:
        over.wait(10 * PATIENCE_S)
        return answer(*args, **more)

    with serving(response(b"too late")) as server:
        port = port_of(server)
        allowed = allowing(here, server, f"a.example:{port}")
        hasty = allowed.using(limits=ToolLimits(http_timeout_s=0.3))
        began = time.monotonic()
        try:
            told = hasty.call(Http(resolve), url=f"http://a.example:{port}/")
            assert time.monotonic() - began < PATIENCE_S
        finally:
            over.set()
        assert failed(told, "http.timeout")
        assert_no_thread()
        assert server.received == []
        release(server)


@pytest.mark.parametrize("answer", [drip, silent])
def test_a_cancellation_is_noticed(here: World, answer: Callable[[socket.socket], None]) -> None:
    cancel = Cancellation()
    reached = threading.Event()

    def answering(connection: socket.socket) -> None:
        reached.set()
        answer(connection)

    stopped: list[float] = []

    def stop() -> None:
        reached.wait(PATIENCE_S)
        stopped.append(time.monotonic())
        cancel.cancel("the emergency stop is on")

    with serving(answering) as server:
        thread = threading.Thread(target=stop)
        thread.start()
        told = allowing(here, server).using(cancel=cancel).call(Http(), url=server.url)
        assert time.monotonic() - stopped[0] < PATIENCE_S
        thread.join()
        assert (told.error, told.metadata) == (
            "stopped: the emergency stop is on",
            {"rule": "stopped"},
        )
        assert_no_thread()


def assert_no_thread() -> None:
    """The thread of the exchange ends soon after nobody waits for it any more."""
    until = time.monotonic() + PATIENCE_S
    while any(thread.name.startswith("get ") for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_broken_answer_is_a_failure(here: World) -> None:
    for raw in (b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"):
        with serving(raw) as server:
            assert failed(allowing(here, server).call(Http(), url=server.url), "http.connection")


def test_a_server_that_is_not_there_is_a_failure(here: World) -> None:
    with serving() as server:
        pass
    assert failed(allowing(here, server).call(Http(), url=server.url), "http.connection")


def test_text_is_decoded_by_its_charset_and_binary_is_only_named(here: World) -> None:
    cases = {
        "text/plain; charset=ISO-8859-1": ("é".encode("latin-1"), "é"),
        'text/plain; charset="utf-8"': ("é".encode(), "é"),
        "text/plain; charset=no-such": ("é".encode(), "é"),
        "text/plain; charset=rot13": (b"abc", "abc"),
        "application/problem+json": (b"{}", "{}"),
        "": ("é".encode(), "é"),
        "image/png": (b"PNG", "[binary content is not shown]"),
        "text/plain": (b"a\0b", "[binary content is not shown]"),
    }
    for kind, (body, text) in cases.items():
        with serving(response(body, "200 OK", f"content-type: {kind}")) as server:
            told = allowing(here, server).call(Http(), url=server.url)
        shown = kind or "unknown type"
        assert told.output == f"HTTP 200, {shown}, {len(body)} bytes\n\n{text}"


def test_proxies_of_the_environment_are_not_used(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(response(b"direct")) as server:
        assert allowing(here, server).call(Http(), url=server.url).output.endswith("direct")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "good.example")


def test_tls_asks_for_and_checks_the_name_at_the_pinned_address(
    here: World, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    trust = ssl.create_default_context(cafile=str(cert))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(65536)
                    tls.sendall(response(b"safe"))
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    hosts = tuple(f"{name}.example:{port}" for name in ("good", "other"))
    allowed = here.using(allowed_domains=(*hosts, f"127.0.0.1:{port}"))
    tool = Http(resolving("127.0.0.1"), verify=trust)
    told = allowed.call(tool, url=f"https://good.example:{port}/")
    assert told.output.endswith("safe")
    wrong = allowed.call(tool, url=f"https://other.example:{port}/")
    assert failed(wrong, "http.connection")
    assert "certificate" in str(wrong.error).lower()
    untrusted = allowed.call(Http(resolving("127.0.0.1")), url=f"https://good.example:{port}/")
    assert failed(untrusted, "http.connection")
    thread.join(PATIENCE_S)
    listener.close()
    assert names == ["good.example", "other.example", "good.example"]
