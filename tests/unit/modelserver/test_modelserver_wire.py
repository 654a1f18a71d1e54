"""HTTP as it should be, as it should not be, and as an attacker would have it."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

import coilclaw.cli.model_server
from coilclaw.cli.model_server import wire
from coilclaw.cli.model_server.server import ModelServer
from coilclaw.cli.model_server.wire import WireLimits
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from tests.support.children import PATIENCE_S
from tests.unit.modelserver.asking import (
    DIALECTS,
    Question,
    ask,
    connect,
    dial,
    hear,
    raw_request,
    read_all,
    send,
    silent,
)

CHAT = Question("chat")
BODY = json.dumps(CHAT.body).encode()


def raw(server: ModelServer, data: bytes) -> tuple[int, Any]:
    """Send bytes, and return the status and the JSON of the one answer that ends it."""
    with dial(server) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def refused(data: bytes, limits: WireLimits | None = None) -> tuple[int, str]:
    with ModelServer([{"text": "x"}], limits=limits) as server:
        status, body = raw(server, data)
        # Whatever came before, the next one is served.
        assert ask(server, CHAT).status == 200
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return status, body["error"]["message"]


# ---- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (b"hello\r\n\r\n", 400, "does not begin with a method, an address and a version"),
        (b"GET /\r\n\r\n", 400, "does not begin with a method, an address and a version"),
        (b"GET / x HTTP/1.1\r\n\r\n", 400, "does not begin with a method"),
        (b"\r\n\r\n", 400, "does not begin with a method"),
        (b"\x16\x03\x01\x02\x00\n\n", 400, "does not begin with a method"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/2.0 is not supported"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "has a line in its head that is not a header"),
        (b"GET / HTTP/1.1\r\na b: c\r\n\r\n", 400, "has a line in its head that is not a header"),
        (b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400, "has a line in its head that is not a hea"),
        (b"GET / HTTP/1.1\r\na: b\0c\r\n\r\n", 400, "has a line in its head that is not a header"),
        (b"GET / HTTP/1.1\r\na: b\rc\r\n\r\n", 400, "has a line in its head that is not a header"),
        (b"GET http://[x/ HTTP/1.1\r\n\r\n", 400, "the URL cannot be read"),
        (b"GET /?" + b"a&" * 200 + b" HTTP/1.1\r\n\r\n", 400, "the URL cannot be read"),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            400,
            "has the header content-length twice",
        ),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "has the header host twice"),
        (b"GET / HTTP/1.1\r\n", 400, "ends within its head"),
        (b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nshort", 400, "ends within its body"),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, "has '-1' for a length"),
        (b"POST / HTTP/1.1\r\ncontent-length: 1_0\r\n\r\n", 400, "has '1_0' for a length"),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
            400,
            "has both a length and a transfer encoding",
        ),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n", 415, "encoding 'gzip' is not"),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            400,
            "has a chunk without a size",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 3000,
            400,
            "has a chunk without a size",
        ),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
            400,
            "has a chunk that is longer than it says",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-encoding: zstd\r\n\r\nabc",
            415,
            "the content encoding 'zstd' is not supported; gzip and deflate are",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-encoding: gzip\r\n\r\nabc",
            400,
            "is not gzip",
        ),
    ],
)
def test_a_request_that_is_not_http_as_it_should_be(data: bytes, status: int, message: str) -> None:
    found, text = refused(data)
    assert found == status
    assert message in text


def test_a_body_packed_twice_or_in_half_is_refused() -> None:
    for packed in (gzip.compress(BODY)[:-9], gzip.compress(BODY) + b"rest"):
        head = f"POST / HTTP/1.1\r\ncontent-length: {len(packed)}\r\ncontent-encoding: gzip"
        status, message = refused(head.encode() + b"\r\n\r\n" + packed)
        assert (status, message) == (400, "the request is not one whole gzip body")


def test_a_head_beyond_the_bound() -> None:
    limits = WireLimits(head_bytes=1000)
    head = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\nx: " % len(BODY)
    fits = head + b"y" * (1000 - len(head)) + b"\r\n\r\n"
    with ModelServer([{"text": "x"}], limits=limits) as server:
        assert raw(server, fits + BODY)[0] == 200
    too_large = (431, "the head is larger than 1000 bytes")
    assert refused(fits.replace(b"x: ", b"x: y") + BODY, limits) == too_large
    assert refused(b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000, limits) == too_large


def _zeros(size: int) -> bytes:
    packed = zlib.compress(b"0" * size)
    head = f"POST / HTTP/1.1\r\ncontent-length: {len(packed)}\r\ncontent-encoding: deflate\r\n\r\n"
    return head.encode() + packed


def test_a_body_beyond_the_bound_however_it_comes() -> None:
    limits = WireLimits(body_bytes=1000)
    too_large = (413, "the body is larger than 1000 bytes")
    assert refused(b"POST / HTTP/1.1\r\ncontent-length: 1001\r\n\r\n", limits) == too_large
    chunks = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + b"1f4\r\n%b\r\n" % (
        b"x" * 500
    )
    assert refused(chunks + b"1f5\r\n", limits) == too_large
    assert refused(_zeros(50_000_000), limits) == too_large
    with ModelServer([], limits=limits) as server:
        fits = [
            b"POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000,
            chunks + b"1f4\r\n%b\r\n0\r\n\r\n" % (b"x" * 500),
            _zeros(1000),
        ]
        assert [raw(server, data)[0] for data in fits] == [405] * 3


def test_a_client_that_still_sends_gets_to_read_why_not() -> None:
    size = 5_000_000
    with ModelServer([], limits=WireLimits(body_bytes=1000)) as server:
        got = send(server, "POST", "/v1/chat/completions", b"x" * size)
    assert got.status == 413


def test_a_request_that_takes_too_long() -> None:
    with ModelServer([{"text": "x"}], limits=WireLimits(read_s=0.2)) as server:
        for part in (b"GET / HT", raw_request(CHAT)[:-5]):
            with dial(server) as client:
                client.sendall(part)
                data = read_all(client)
            assert data.startswith(b"HTTP/1.1 408 ")
            assert b"did not arrive within 0.2 s" in data


def test_a_request_that_drips_takes_too_long_as_well() -> None:
    with ModelServer([], limits=WireLimits(read_s=0.3)) as server, dial(server) as client:
        drops = 0
        while silent(client, 0.05) and drops < 1200:
            client.sendall(b"x")
            drops += 1
        assert 0 < drops < 1200
        assert read_all(client).startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with ModelServer([], limits=WireLimits(idle_s=0.1)) as server, dial(server) as client:
        assert read_all(client) == b""


def test_a_client_that_does_not_read_is_left() -> None:
    huge = {"malformed": "huge", "size": 2**28}
    with ModelServer([huge], limits=WireLimits(write_s=0.2)) as server, dial(server) as client:
        client.sendall(raw_request(CHAT))
        assert client.recv(4) == b"HTTP"
        end = time.monotonic() + PATIENCE_S
        while server._connections and time.monotonic() < end:
            time.sleep(0.01)
        assert server._connections == {}


def test_too_many_connections() -> None:
    with ModelServer([{"text": "x"}], limits=WireLimits(connections=2)) as server:
        with dial(server) as one, dial(server) as two:
            for client in (one, two):
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
            with dial(server) as three:
                data = read_all(three)
            assert data.startswith(b"HTTP/1.1 503 ")
            assert b"all 2 connections are in use" in data
        end = time.monotonic() + PATIENCE_S
        while server._connections and time.monotonic() < end:
            time.sleep(0.005)
        assert ask(server, CHAT).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nothing", 404, "nothing is served at /nothing"),
        ("POST", "/v1/embeddings", 404, "nothing is served at /v1/embeddings"),
        ("POST", "/messages", 404, "nothing is served at /messages"),
        ("POST", "/models/m:generateContent", 404, "nothing is served at"),
        ("POST", "/v1beta/models/m:embedContent", 404, "nothing is served at"),
        ("POST", "/v1beta/models/:generateContent", 404, "nothing is served at"),
        ("POST", "/v1beta/files/m:generateContent", 404, "nothing is served at"),
        ("GET", "/x/models", 404, "nothing is served at"),
        ("GET", "/v1/chat/completions", 405, "/v1/chat/completions takes POST, not GET"),
        ("POST", "/v1/models", 405, "/v1/models takes GET or HEAD, not POST"),
        ("DELETE", "/", 405, "/ takes GET or HEAD, not DELETE"),
    ],
)
def test_an_address_or_method_that_is_not_there(
    method: str, path: str, status: int, message: str
) -> None:
    with ModelServer([]) as server:
        got = send(server, method, path, b"{}" if method == "POST" else None)
    assert (got.status, got.headers["content-type"]) == (status, "application/json")
    assert message in got.json["error"]["message"]
    if status == 405:
        assert got.headers["allow"] in {"POST", "GET, HEAD"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON"),
        (b"{", "the body is not valid JSON"),
        (b"\xff", "the body is not valid UTF-8 at byte 0"),
        (b'{"temperature": NaN}', "the body has NaN, which is not valid JSON"),
        (b"[]", "the body is not a JSON object"),
        (b"null", "the body is not a JSON object"),
        (b"[" * 100_000, "the body is nested more than 128 levels deep"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "the body is nested more than 128 levels deep"),
        (
            b'{"a": ' + b"1" * 5000 + b"}",
            "the body has a number that is too large: Exceeds",
        ),
    ],
)
def test_a_body_that_cannot_be_used(dialect: str, body: bytes, message: str) -> None:
    question = Question(dialect)
    with ModelServer([{"text": "x"}]) as server:
        got = send(server, "POST", question.path, body, question.all_headers)
    assert got.status == 400
    assert got.json["error"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("dialect", "change", "message"),
    [
        ("chat", {"model": None}, "model: must be text that is not empty"),
        ("chat", {"messages": []}, "messages: must be a list that is not empty, not an empty list"),
        ("chat", {"messages": "x"}, "messages: must be a list that is not empty, not a string"),
        ("chat", {"messages": [1]}, "messages[0]: must be an object, not a whole number"),
        ("responses", {"input": 7}, "input: must be a list that is not empty, not a whole number"),
        (
            "responses",
            {"previous_response_id": "resp_1"},
            (
                "previous_response_id: this server keeps nothing between requests; "
                "send the history as input"
            ),
        ),
        ("messages", {"max_tokens": 0}, "max_tokens: must be a whole number above 0"),
        ("messages", {"max_tokens": True}, "max_tokens: must be a whole number above 0"),
        ("messages", {"messages": {}}, "messages: must be a list that is not empty, not a table"),
        ("gemini", {"contents": None}, "contents: must be a list that is not empty, not null"),
    ],
)
def test_a_body_that_the_real_service_would_not_take(
    dialect: str, change: dict[str, Any], message: str
) -> None:
    with ModelServer([{"text": "x"}]) as server:
        got = ask(server, Question(dialect, extra=change))
    assert (got.status, got.json["error"]["message"]) == (400, message)


@pytest.mark.parametrize(
    ("dialect", "missing"),
    [
        ("chat", "model"),
        ("chat", "messages"),
        ("responses", "input"),
        ("messages", "max_tokens"),
        ("messages", "messages"),
        ("gemini", "contents"),
    ],
)
def test_a_field_that_is_missing(dialect: str, missing: str) -> None:
    question = Question(dialect)
    body = {key: value for key, value in question.body.items() if key != missing}
    with ModelServer([{"text": "x"}]) as server:
        data = json.dumps(body).encode()
        got = send(server, "POST", question.path, data, question.all_headers)
    assert (got.status, got.json["error"]["message"]) == (400, f"{missing}: field required")


def test_messages_need_a_version() -> None:
    question = Question("messages", headers={"anthropic-version": ""})
    with ModelServer([{"text": "x"}]) as server:
        got = ask(server, question)
    assert (got.status, got.json["error"]["type"]) == (400, "invalid_request_error")
    assert got.json["error"]["message"] == "anthropic-version: header is required"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_past_the_end_of_the_script(dialect: str) -> None:
    with ModelServer([]) as server:
        got = ask(server, Question(dialect))
    assert got.status == 400
    assert got.json["error"]["message"] == (
        "the script has no answer at index 0: of its 0 answers, 0 are eligible for this request"
    )


def test_every_rule_of_a_refusal_has_a_status_and_the_other_way_round() -> None:
    folder = Path(coilclaw.cli.model_server.__file__).parent
    sources = [p.read_text(encoding="utf-8") for p in folder.glob("*.py") if p.stem != "refusal"]
    raised = {rule for source in sources for rule in re.findall(r'rule="([a-z._]+)"', source)}
    # Built from the name of the header.
    raised |= {"request.foreign_host", "request.foreign_origin"}
    ours = {"script.invalid", "script.io", "script.missing"}
    ours |= {"server.bind", "server.fault", "server.host", "server.log", "server.port"}
    assert raised - {"request.foreign_"} == set(wire.STATUSES) | ours


# ---- HTTP that is fine ----------------------------------------------------------------------


def test_one_connection_serves_many_requests() -> None:
    with ModelServer([{"text": "x"}]) as server:
        connection = connect(server)
        for dialect in DIALECTS * 2:
            for stream in (False, True):
                question = Question(dialect, stream)
                data = json.dumps(question.body)
                connection.request("POST", question.path, data, question.all_headers)
                answer = connection.getresponse()
                assert (answer.status, answer.getheader("connection")) == (200, "keep-alive")
                answer.read()
        assert len(server._connections) == 1
        connection.close()


def test_requests_sent_at_once_are_answered_in_turn() -> None:
    first, second = (
        raw_request(Question("chat", turns=CHAT.turns, model=name)) for name in ("one", "two")
    )
    with ModelServer([{"text": "x"}]) as server, dial(server) as client:
        client.sendall(first + second)
        client.shutdown(socket.SHUT_WR)
        data = read_all(client)
    assert re.findall(rb'"model":"(\w+)"', data) == [b"one", b"two"]


@pytest.mark.parametrize("header", ["connection: close\r\n", "Connection: Close\r\n"])
def test_a_connection_closes_when_the_client_says_so(header: str) -> None:
    with ModelServer([{"text": "x"}]) as server, dial(server) as client:
        client.sendall(raw_request(CHAT, headers=header))
        assert b"connection: close\r\n" in read_all(client)


@pytest.mark.parametrize("stream", [False, True])
def test_an_old_client_gets_a_body_that_ends_with_the_connection(stream: bool) -> None:
    question = Question("chat", stream)
    with ModelServer([{"text": "x"}]) as server, dial(server) as client:
        client.sendall(raw_request(question, version="1.0"))
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.endswith(b"data: [DONE]\n\n") if stream else json.loads(body)


def test_an_old_client_may_keep_its_connection() -> None:
    data = raw_request(CHAT, version="1.0", headers="connection: keep-alive\r\n")
    with ModelServer([{"text": "x"}]) as server, dial(server) as client:
        client.sendall(data * 2)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_body(encoding: str) -> None:
    packed = gzip.compress(BODY) if encoding == "gzip" else zlib.compress(BODY)
    headers = {"content-encoding": encoding}
    with ModelServer([{"text": "x"}]) as server:
        assert send(server, "POST", CHAT.path, packed, headers).status == 200
        assert server.requests[0].body == CHAT.body


def test_a_body_in_chunks() -> None:
    pieces = [BODY[:10], BODY[10:11], BODY[11:]]
    chunks = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = f"POST {CHAT.path} HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n".encode()
    with ModelServer([{"text": "x"}]) as server:
        assert raw(server, head + chunks + b"0\r\ntrailer: x\r\n\r\n")[0] == 200
        assert server.requests[0].body == CHAT.body


def test_a_client_that_asks_before_it_sends() -> None:
    request = raw_request(CHAT, headers="expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    with ModelServer([{"text": "x"}]) as server, dial(server) as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(2**16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert client.recv(2**16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_lines_may_end_in_a_bare_line_feed() -> None:
    with ModelServer([]) as server:
        assert raw(server, b"GET / HTTP/1.1\nhost: localhost\n\n")[0] == 200


def test_a_head_alone() -> None:
    with ModelServer([]) as server:
        got = send(server, "HEAD", "/v1/models")
        assert (got.status, got.body) == (200, b"")
        assert int(got.headers["content-length"]) == len(send(server, "GET", "/v1/models").body)
        assert send(server, "GET", "/").json["status"] == "ok"


def test_many_clients_at_once() -> None:
    heard: list[str] = []

    def client(number: int) -> None:
        question = Question(DIALECTS[number % 4], stream=number % 2 == 0)
        heard.append(hear(question, ask(server, question)).text)

    with ModelServer([{"text": "x", "sleep": 2}]) as server:
        threads = [threading.Thread(target=client, args=(number,)) for number in range(40)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < PATIENCE_S, "they waited for each other"
        assert len(server.requests) == 40
    assert heard == ["x"] * 40


# ---- the server -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_only_loopback(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        ModelServer([], host=host)
    assert (caught.value.rule, caught.value.message) == (
        "server.host",
        f"the host {host!r} is not loopback",
    )


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("localhost", "http://127.0.0.1:"),
        ("127.0.0.2", "http://127.0.0.2:"),
        ("::1", "http://[::1]:"),
    ],
)
def test_every_kind_of_loopback(host: str, url: str) -> None:
    with ModelServer([{"text": "x"}], host=host) as server:
        assert server.url == f"{url}{server.port}"
        assert ask(server, CHAT).status == 200


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_does_not_exist(port: int) -> None:
    with pytest.raises(UsageError, match=f"{port} is not a port"):
        ModelServer([], port=port)


def test_a_port_that_is_taken() -> None:
    with ModelServer([]) as server:
        other = ModelServer([], port=server.port)
        with pytest.raises(EnvironmentFault) as caught:
            other.start()
    assert caught.value.rule == "server.bind"
    assert "Address already in use" in caught.value.message


def test_a_log_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    server = ModelServer([], log=tmp_path / "missing" / "log")
    with pytest.raises(EnvironmentFault, match=r"cannot write the log .*/log: No such file"):
        server.start()


def test_stopping_twice_or_before_the_start_does_no_harm() -> None:
    ModelServer([]).stop()
    with ModelServer([]) as server:
        server.stop()


def test_after_the_end_nobody_listens() -> None:
    with ModelServer([]) as server:
        url = server.url
        idle = dial(server)
        idle.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
        assert idle.recv(2**16).startswith(b"HTTP/1.1 200 OK\r\n")
    with idle:
        assert read_all(idle) == b""
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S).connect()


def test_a_fault_of_our_own_is_an_answer_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("surprise")

    with ModelServer([{"text": "x"}]) as server:
        monkeypatch.setattr("coilclaw.cli.model_server.service.choose", broken)
        got = ask(server, Question("messages"))
        assert (got.status, got.json["error"]) == (
            500,
            {"type": "api_error", "message": "the server failed to answer"},
        )
    assert "surprise" in caplog.text
