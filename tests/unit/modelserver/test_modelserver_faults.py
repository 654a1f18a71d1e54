"""Every fault, over real sockets, in every dialect, streamed and whole."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from coilclaw.cli.model_server.exchange import FILLER, locate_place, pace_pieces, take_bytes
from coilclaw.cli.model_server.script import ScriptPlace, Slow
from coilclaw.cli.model_server.server import ModelServer
from tests.support.children import PATIENCE_S
from tests.unit.modelserver.asking import (
    DIALECTS,
    MODES,
    Got,
    Question,
    ask,
    connect,
    dial,
    events,
    hear,
    raw_request,
    read_all,
    send,
    silent,
)

TEXT = "a text that is long enough for several events of a stream, and then some"

both = pytest.mark.parametrize("stream", MODES, ids=["whole", "stream"])
every = pytest.mark.parametrize("dialect", DIALECTS)


def answer_to(answer: dict[str, Any], question: Question) -> Got:
    with ModelServer([answer]) as server:
        return ask(server, question)


# ---- status ---------------------------------------------------------------------------------


def _error(dialect: str, status: int, kinds: dict[str, Any]) -> Any:
    message = f"scripted error {status}"
    if dialect == "gemini":
        return {"error": {"code": status, "message": message, **kinds}}
    if dialect == "messages":
        return {"type": "error", "error": {**kinds, "message": message}, "request_id": "…"}
    return {"error": {"message": message, "param": None, **kinds}}


@both
@pytest.mark.parametrize(
    ("dialect", "status", "kinds"),
    [
        ("chat", 400, {"type": "invalid_request_error", "code": None}),
        ("chat", 401, {"type": "invalid_request_error", "code": "invalid_api_key"}),
        ("chat", 429, {"type": "rate_limit_error", "code": "rate_limit_exceeded"}),
        ("chat", 500, {"type": "server_error", "code": None}),
        ("responses", 503, {"type": "server_error", "code": None}),
        ("messages", 400, {"type": "invalid_request_error"}),
        ("messages", 401, {"type": "authentication_error"}),
        ("messages", 429, {"type": "rate_limit_error"}),
        ("messages", 500, {"type": "api_error"}),
        ("messages", 529, {"type": "overloaded_error"}),
        ("gemini", 400, {"status": "INVALID_ARGUMENT"}),
        ("gemini", 403, {"status": "PERMISSION_DENIED"}),
        ("gemini", 429, {"status": "RESOURCE_EXHAUSTED"}),
        ("gemini", 503, {"status": "UNAVAILABLE"}),
    ],
)
def test_a_status_in_the_dialects_own_shape(
    dialect: str, stream: bool, status: int, kinds: dict[str, Any]
) -> None:
    got = answer_to({"status": status}, Question(dialect, stream))
    body = got.json
    if "request_id" in body:
        assert body["request_id"].startswith("req_")
        body["request_id"] = "…"
    assert (got.status, got.headers["content-type"]) == (status, "application/json")
    assert body == _error(dialect, status, kinds)
    assert "retry-after" not in got.headers


@every
def test_how_long_to_wait(dialect: str) -> None:
    got = answer_to({"status": 429, "retry_after": 2}, Question(dialect))
    assert got.headers["retry-after"] == "2"
    if dialect == "gemini":
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        assert got.json["error"]["details"] == [{"@type": kind, "retryDelay": "2s"}]


def test_a_date_to_wait_for_is_sent_as_it_is() -> None:
    date = "Fri, 31 Dec 1999 23:59:59 GMT"
    got = answer_to({"status": 503, "retry_after": date}, Question("gemini"))
    assert got.headers["retry-after"] == date
    assert "details" not in got.json["error"]


@pytest.mark.parametrize(
    ("body", "sent", "media_type"),
    [
        ({"odd": [1]}, b'{"odd": [1]}', "application/json"),
        (None, b"null", "application/json"),
        ("<h1>Bad gateway</h1>", b"<h1>Bad gateway</h1>", "text/plain; charset=utf-8"),
        ("", b"", "text/plain; charset=utf-8"),
    ],
)
def test_a_body_of_the_scripts_own(body: object, sent: bytes, media_type: str) -> None:
    got = answer_to({"status": 502, "body": body}, Question("chat"))
    assert (got.status, got.body, got.headers["content-type"]) == (502, sent, media_type)


def test_headers_of_the_scripts_own() -> None:
    headers = {"Location": "http://example.org/", "Content-Type": "text/html"}
    got = answer_to({"status": 302, "body": "gone", "headers": headers}, Question("chat"))
    assert (got.status, got.headers["location"]) == (302, "http://example.org/")
    assert got.headers["content-type"] == "text/html"


def test_headers_beside_a_good_answer() -> None:
    got = answer_to({"text": "x", "headers": {"x-ratelimit-remaining": "0"}}, Question("chat"))
    assert (got.status, got.headers["x-ratelimit-remaining"]) == (200, "0")


def test_an_error_in_a_stream_without_events_is_a_list() -> None:
    body = json.dumps(Question("gemini").body).encode()
    with ModelServer([{"status": 503}]) as server:
        got = send(server, "POST", "/v1beta/models/m:streamGenerateContent", body)
    assert [problem["error"]["code"] for problem in got.json] == [503]


# ---- hang and sleep -------------------------------------------------------------------------


@both
@every
def test_hanging_sends_nothing_until_the_server_ends(dialect: str, stream: bool) -> None:
    with ModelServer([{"hang": True}]) as server, dial(server) as client:
        client.sendall(raw_request(Question(dialect, stream)))
        assert silent(client)
        began = time.monotonic()
        server.stop()
        assert read_all(client) == b""
        assert time.monotonic() - began < PATIENCE_S


@every
def test_hanging_for_a_while_ends_without_an_answer(dialect: str) -> None:
    with ModelServer([{"hang": 0.2}]) as server, dial(server) as client:
        began = time.monotonic()
        client.sendall(raw_request(Question(dialect)))
        assert read_all(client) == b""
        assert time.monotonic() - began >= 0.2


@every
def test_hanging_within_a_stream(dialect: str) -> None:
    hang = {"text": TEXT, "hang": {"after_events": 2}}
    with ModelServer([hang]) as server:
        connection = connect(server)
        question = Question(dialect, stream=True)
        connection.request("POST", question.path, json.dumps(question.body), question.all_headers)
        answer = connection.getresponse()
        assert connection.sock is not None
        read, timed_out = b"", False
        try:
            while data := answer.read1(1):
                read += data
                if read.replace(b"\r", b"").count(b"\n\n") == 2:
                    connection.sock.settimeout(0.3)
        except TimeoutError:
            timed_out = True
        connection.close()
    assert timed_out
    assert len(events(read)) == 2


def test_hanging_after_the_head() -> None:
    with ModelServer([{"hang": {"after_bytes": 0}}]) as server, dial(server) as client:
        client.sendall(raw_request(Question("chat")))
        head = client.recv(2**16)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert silent(client)


def _eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.005)
    return holds()


@pytest.mark.parametrize(
    "answer",
    [
        {"hang": True},
        {"sleep": 3600, "text": "x"},
        {"slow": {"delay_s": 3600}, "text": "x"},
        {"hang": {"after_bytes": 9}, "text": "x"},
    ],
)
def test_a_client_that_leaves_is_let_go(answer: dict[str, Any]) -> None:
    with ModelServer([answer]) as server:
        with dial(server) as client:
            client.sendall(raw_request(Question("chat")))
            assert _eventually(lambda: len(server.requests) == 1)
            assert len(server._connections) == 1
        assert _eventually(lambda: server._connections == {})


def test_a_client_that_talks_on_does_not_end_the_silence() -> None:
    with ModelServer([{"hang": 3}]) as server, dial(server) as client:
        began = time.monotonic()
        client.sendall(raw_request(Question("chat")))
        assert _eventually(lambda: len(server.requests) == 1)
        client.sendall(b"more")
        assert silent(client)
        with pytest.raises(ConnectionResetError):
            read_all(client)
        assert time.monotonic() - began >= 3


@both
@every
def test_sleeping_comes_before_the_answer(dialect: str, stream: bool) -> None:
    question = Question(dialect, stream)
    began = time.monotonic()
    got = answer_to({"sleep": 0.2, "text": "x"}, question)
    assert hear(question, got).text == "x"
    assert time.monotonic() - began >= 0.2


# ---- cut ------------------------------------------------------------------------------------


@both
@every
def test_cutting_leaves_half_a_body(dialect: str, stream: bool) -> None:
    with (
        ModelServer([{"text": TEXT, "cut": True}]) as server,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        ask(server, Question(dialect, stream))
    assert caught.value.partial
    if not stream:
        assert caught.value.expected in {len(caught.value.partial), len(caught.value.partial) + 1}


@both
@every
def test_cutting_after_some_bytes(dialect: str, stream: bool) -> None:
    with (
        ModelServer([{"text": TEXT, "cut": {"after_bytes": 17}}]) as server,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        ask(server, Question(dialect, stream))
    assert len(caught.value.partial) == 17


@every
def test_cutting_after_some_events(dialect: str) -> None:
    with (
        ModelServer([{"text": TEXT, "cut": {"after_events": 3}}]) as server,
        pytest.raises(http.client.IncompleteRead) as caught,
    ):
        ask(server, Question(dialect, stream=True))
    assert len(events(caught.value.partial)) == 3


@both
def test_cutting_with_a_reset(stream: bool) -> None:
    cut = {"text": TEXT, "cut": {"after_bytes": 0, "reset": True}}
    with ModelServer([cut]) as server, dial(server) as client:
        client.sendall(raw_request(Question("chat", stream)))
        with pytest.raises(ConnectionResetError):
            read_all(client)


def test_an_error_can_be_cut_too() -> None:
    with (
        ModelServer([{"status": 500, "cut": True}]) as server,
        pytest.raises(http.client.IncompleteRead),
    ):
        ask(server, Question("chat"))


# ---- slow -----------------------------------------------------------------------------------


@both
@every
def test_slow_by_the_second(dialect: str, stream: bool) -> None:
    question = Question(dialect, stream)
    began = time.monotonic()
    got = answer_to({"text": "x", "slow": {"bytes_per_second": 10_000}}, question)
    assert hear(question, got).text == "x"
    assert time.monotonic() - began >= len(got.body) / 10_000


@both
def test_slow_by_the_piece(stream: bool) -> None:
    question = Question("chat", stream)
    began = time.monotonic()
    got = answer_to({"text": TEXT, "slow": {"delay_s": 0.02}}, question)
    assert hear(question, got).text == TEXT
    pieces = len(events(got.body)) if stream else 16
    assert time.monotonic() - began >= 0.02 * pieces


# ---- malformed ------------------------------------------------------------------------------


@both
@every
def test_broken_json(dialect: str, stream: bool) -> None:
    got = answer_to({"text": TEXT, "malformed": "json"}, Question(dialect, stream))
    assert got.status == 200
    with pytest.raises(json.JSONDecodeError):
        events(got.body) if stream else got.json


@both
@every
def test_a_truncated_body_is_good_http(dialect: str, stream: bool) -> None:
    got = answer_to({"text": TEXT, "malformed": "truncated"}, Question(dialect, stream))
    assert got.body
    if stream:
        with pytest.raises(AssertionError, match="ends within an event"):
            events(got.body)
    else:
        assert got.headers["content-length"] == str(len(got.body))
        with pytest.raises(json.JSONDecodeError, match=r"Unterminated|Expecting"):
            assert got.json


@both
@every
def test_an_empty_body(dialect: str, stream: bool) -> None:
    got = answer_to({"text": TEXT, "malformed": "empty"}, Question(dialect, stream))
    assert (got.status, got.body) == (200, b"")


@both
@every
def test_a_page_instead_of_json(dialect: str, stream: bool) -> None:
    got = answer_to({"text": TEXT, "malformed": "not-json"}, Question(dialect, stream))
    assert (got.status, got.headers["content-type"]) == (200, "text/html")
    assert got.body.startswith(b"<!doctype html>")


@both
@every
def test_json_of_another_shape(dialect: str, stream: bool) -> None:
    got = answer_to({"text": TEXT, "malformed": "wrong-shape"}, Question(dialect, stream))
    value = {"unexpected": {"shape": [1, 2, 3]}}
    assert (events(got.body) == [(None, value)]) if stream else (got.json == value)


@both
@every
@pytest.mark.parametrize("text", ["hällo", "half \ud800"])
def test_bytes_that_are_no_text(dialect: str, stream: bool, text: str) -> None:
    got = answer_to({"text": text, "malformed": "utf-8"}, Question(dialect, stream))
    with pytest.raises(UnicodeDecodeError):
        got.body.decode()
    assert b"\xff\xfe" in got.body
    assert "�" in got.body.decode("utf-8", "replace")


@both
@every
def test_a_huge_body_comes_without_a_length(dialect: str, stream: bool) -> None:
    size = 3 * len(FILLER) + 1
    question = Question(dialect, stream)
    got = answer_to({"text": "ab", "malformed": "huge", "size": size}, question)
    assert "content-length" not in got.headers
    heard = (
        hear(question, got)
        if stream
        else hear(question, Got(200, {"content-type": "application/json"}, got.body))
    )
    assert heard.text == "a" + "x" * size + "b"


# ---- faults before an answer ----------------------------------------------------------------


def test_faults_are_played_once_each_before_the_answer() -> None:
    faults = [{"status": 429, "retry_after": 0}, {"malformed": "not-json"}, {"cut": True}]
    script = {
        "stateful": True,
        "answers": [{"text": "one", "faults": faults}, {"text": "two", "faults": faults[:1]}],
    }
    question = Question("chat")
    with ModelServer(script) as server:
        assert ask(server, question).status == 429
        assert ask(server, question).headers["content-type"] == "text/html"
        with pytest.raises(http.client.IncompleteRead):
            ask(server, question)
        for _ in range(2):
            assert hear(question, ask(server, question)).text == "one"
        # The other answer has a count of its own.
        body = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant"}]}
        second = Question("chat", extra=body)
        assert ask(server, second).status == 429
        assert hear(second, ask(server, second)).text == "two"


def test_without_faults_the_same_request_gets_the_same_answer_for_ever() -> None:
    with ModelServer({"stateful": True, "answers": [{"text": "a"}, {"text": "b"}]}) as server:
        question = Question("messages")
        assert {hear(question, ask(server, question)).text for _ in range(5)} == {"a"}


# ---- arithmetic -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "size"),
    [
        (None, 5),
        (ScriptPlace(after_bytes=0), 0),
        (ScriptPlace(after_bytes=99), 99),
        (ScriptPlace(after_events=0), 0),
        (ScriptPlace(after_events=2), 7),
        (ScriptPlace(after_events=9), 10),
    ],
)
def test_a_place_in_a_body(place: ScriptPlace | None, size: int) -> None:
    assert locate_place([b"abc", b"defg", b"hij"], place) == size


@pytest.mark.parametrize(
    ("size", "pieces"),
    [(0, []), (2, [b"ab"]), (3, [b"abc"]), (5, [b"abc", b"de"]), (99, [b"abc", b"defg"])],
)
def test_the_first_bytes(size: int, pieces: list[bytes]) -> None:
    assert take_bytes([b"abc", b"defg"], size) == pieces


def test_pacing() -> None:
    pieces = [b"abcd", b"ef"]
    assert list(pace_pieces(pieces, None, streamed=True)) == [(0.0, b"abcd"), (0.0, b"ef")]
    assert list(pace_pieces(pieces, Slow(delay_s=2), streamed=True)) == [(2, b"abcd"), (2, b"ef")]
    by_rate = list(pace_pieces(pieces, Slow(bytes_per_second=30), streamed=True))
    assert by_rate == [(0.1, b"abc"), (1 / 30, b"d"), (2 / 30, b"ef")]
    whole = list(pace_pieces([b"x" * 32], Slow(delay_s=1), streamed=False))
    assert whole == [(1, b"xx")] * 16
