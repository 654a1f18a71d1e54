from __future__ import annotations

import gzip
import json
import socket
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpcore2
import pytest

from coilclaw.kernel.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
    UsageError,
)
from coilclaw.kernel.messages import ChatRequest, Json, Message
from coilclaw.kernel.secret import Secret
from coilclaw.models.endpoint import ModelEndpoint, checked_model
from coilclaw.models.http import ModelClient, foreign, parse
from tests.support.children import PATIENCE_S
from tests.support.rawserver import Answer, drip, response, serving

KEY = "secret-canary-0123456789"


def endpoint(url: str, **options: object) -> ModelEndpoint:
    return ModelEndpoint("model-x", url, Secret(KEY), **options)  # type: ignore[arg-type]


def post(
    place: ModelEndpoint, headers: Mapping[str, str] | None = None, body: Json = None
) -> bytes:
    return ModelClient(place).post(place.url("v1", "x"), headers or {}, {"a": body})


def failure(answer: Answer, **options: object) -> ProviderError:
    def ask(place: ModelEndpoint) -> None:
        parse(place, post(place, {"authorization": KEY}))

    with serving(answer) as server, pytest.raises(ProviderError) as caught:
        ask(endpoint(server.url, **options))
    shown = "".join(traceback.format_exception(caught.value))
    assert KEY not in shown
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", ProviderRejected),
        ("401 Unauthorized", ProviderAuth),
        ("403 Forbidden", ProviderAuth),
        ("404 Not Found", ProviderRejected),
        ("408 Request Timeout", ProviderTimeout),
        ("429 Too Many Requests", ProviderRateLimit),
        ("500 Internal Server Error", ProviderServer),
        ("503 Service Unavailable", ProviderServer),
        ("302 Found", ProviderRejected),
    ],
)
def test_every_status_is_an_error_of_its_kind(status: str, kind: type[ProviderError]) -> None:
    body = json.dumps({"error": {"message": "what the provider says"}}).encode()
    problem = failure(response(body, status, "location: http://127.0.0.1:9/"))
    assert type(problem) is kind
    assert problem.status == int(status.split(maxsplit=1)[0])
    assert "what the provider says" in problem.message
    assert problem.body == body


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    assert failure(response(b"", "429 X", "retry-after: 7")).retry_after_s == 7
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    waiting = failure(response(b"", "503 X", f"retry-after: {soon}")).retry_after_s
    assert waiting is not None
    assert 50 < waiting <= 60
    assert failure(response(b"", "429 X", "retry-after: soon")).retry_after_s is None


def test_a_key_that_the_provider_echoes_is_not_repeated() -> None:
    body = json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()
    problem = failure(response(body, "401 X"), redact=lambda text: text.replace(KEY, "[redacted]"))
    assert "wrong key [redacted]" in problem.message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b"nonsense", b'{"a": NaN}', b"[" * 100_000, b"\xff"]
)
def test_an_answer_that_is_no_json_object_is_malformed(body: bytes) -> None:
    assert isinstance(failure(response(body)), ProviderMalformed)


def test_an_answer_beyond_the_bound_is_malformed_also_when_it_was_packed() -> None:
    assert isinstance(failure(response(b" " * 2000), max_response_bytes=1000), ProviderMalformed)
    bomb = gzip.compress(b" " * 10_000_000)
    packed = response(bomb, "200 OK", "content-encoding: gzip")
    assert isinstance(failure(packed, max_response_bytes=100_000), ProviderMalformed)
    broken = response(b"not gzip", "200 OK", "content-encoding: gzip")
    assert isinstance(failure(broken), ProviderMalformed)


def test_a_connection_that_breaks_is_a_network_error() -> None:
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"
    assert isinstance(failure(cut), ProviderNetwork)
    assert isinstance(failure(b""), ProviderNetwork)
    assert isinstance(failure(b"SSH-2.0-nonsense\r\n"), ProviderNetwork)


def test_nobody_listening_is_a_network_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = endpoint(f"http://127.0.0.1:{port}")
    with pytest.raises(ProviderNetwork):
        post(place)


def test_silence_and_dripping_are_time_outs() -> None:
    def silent(connection: socket.socket) -> None:
        connection.recv(1)

    assert isinstance(failure(silent, timeout_s=0.3), ProviderTimeout)
    assert isinstance(failure(drip, timeout_s=0.4), ProviderTimeout)


def test_every_error_of_the_http_library_is_translated() -> None:
    def tree(kind: type[Exception]) -> list[type[Exception]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    place = endpoint("http://127.0.0.1")
    raised = [kind for kind in tree(OSError) if kind.__module__ in {"builtins", "socket", "ssl"}]
    library = [
        kind
        for kind in vars(httpcore2).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert len(library) > 10
    for kind in (*library, *raised, ValueError):
        assert isinstance(foreign(place, kind("said")), ProviderError), kind
    assert type(foreign(place, TimeoutError())) is ProviderTimeout
    assert type(foreign(place, ConnectionResetError())) is ProviderNetwork
    assert type(foreign(place, httpcore2.RemoteProtocolError())) is ProviderNetwork
    assert type(foreign(place, ValueError())) is ProviderRejected


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://host", "provider.address"),
        ("host", "provider.address"),
        ("http://[bad", "provider.address"),
        ("https://user:word@host", "provider.address"),
        ("https://host?key=1", "provider.address"),
        ("http://example.com", "provider.clear"),
        ("http://10.0.0.1:8000", "provider.clear"),
    ],
)
def test_an_address_that_would_lose_the_key_is_refused(url: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        endpoint(url)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/p", "http://localhost", "http://[::1]:2", "https://example.com/v1"]
)
def test_an_address_that_keeps_the_key_is_taken(url: str) -> None:
    assert endpoint(url).key == Secret(KEY)


def test_a_clear_address_is_fine_without_a_key() -> None:
    assert not ModelEndpoint("m", "http://10.0.0.1").local


@pytest.mark.parametrize("key", ["a\nb", "a\rb", "ä", "a\x00b"])
def test_a_key_that_is_no_header_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        ModelEndpoint("m", "https://h", Secret(key))


@pytest.mark.parametrize("model", ["", "a/b", "a?b", "a b", "a\nb", "..%2f", "a#b"])
def test_a_model_that_would_change_the_address_is_refused(model: str) -> None:
    with pytest.raises(UsageError):
        checked_model(model)
    assert checked_model("gemini-2.5-pro") == "gemini-2.5-pro"


def test_the_version_stands_in_the_address_once() -> None:
    assert endpoint("https://h/p/").url("v1", "x") == "https://h/p/v1/x"
    assert endpoint("https://h/p/v1").url("v1", "x") == "https://h/p/v1/x"


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with serving(response(b"{}")) as server:
        place = endpoint(server.url)
        assert post(place) == b"{}"


def test_a_secret_shows_nowhere() -> None:
    place = endpoint("https://h")
    request = ChatRequest("", (Message("user", "hi"),), "m")
    assert KEY not in repr(place) + str(place.key) + repr(request) + f"{place}"


def test_the_time_limit_holds_while_the_head_drips_in() -> None:
    def slowly(connection: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"a" * 12_000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    with serving(slowly) as server:
        place = endpoint(server.url, timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(ProviderTimeout):
            post(place)
        assert time.monotonic() - began < PATIENCE_S


def test_a_wrong_key_and_a_wait_are_seen_where_gemini_says_them() -> None:
    body = (
        b'{"error": {"message": "API key not valid", "details": [{"reason": "API_KEY_INVALID"}]}}'
    )
    assert isinstance(failure(response(body, "400 Bad Request")), ProviderAuth)
    body = b'{"error": {"message": "quota", "details": [{"retryDelay": "34s"}]}}'
    assert failure(response(body, "429 X")).retry_after_s == 34


def test_an_error_under_a_good_status_is_an_error() -> None:
    assert isinstance(failure(response(b'{"error": {"code": 429}}')), ProviderRateLimit)
    assert isinstance(failure(response(b'{"error": {"message": "x"}}')), ProviderRejected)


def test_the_body_of_an_error_holds_no_key_either() -> None:
    body = json.dumps({"error": {"message": f"wrong key {KEY}"}}).encode()
    problem = failure(response(body, "401 X"), redact=lambda text: text.replace(KEY, "[redacted]"))
    assert problem.body is not None
    assert KEY.encode() not in problem.body


def test_a_host_that_is_none_is_an_error_of_ours() -> None:
    place = ModelEndpoint("m", "https://" + "a" * 300 + ".example")
    with pytest.raises(ProviderError):
        post(place)
