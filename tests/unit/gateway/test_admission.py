"""Who is admitted: every rule with a denial, and its neighbour that is let in."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from coilclaw.gateway.http.admission import Admission, RateLimit
from coilclaw.gateway.http.listener import Hosts
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.gateway.tokens import KnownClients
from coilclaw.kernel.secret import Secret

_TOKEN = b"ab" * 32
_CLIENTS = KnownClients(Secret(_TOKEN.decode()))
_HOST = (b"host", b"127.0.0.1:8737")
_AUTH = (b"authorization", b"Bearer " + _TOKEN)
_JSON = (b"content-type", b"application/json")


async def _inside(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b'{"error": {"rule": "admitted"}}'})


def _asked(
    *headers: tuple[bytes, bytes],
    method: str = "GET",
    path: str = "/status",
    query: bytes = b"",
    per_minute: int = 6000,
    times: int = 1,
) -> tuple[int, str]:
    settings = GatewaySettings(max_body_bytes=1000, max_header_bytes=2000)
    admission = Admission(
        _inside, _CLIENTS, Hosts.of(settings, "127.0.0.1", 8737), RateLimit(per_minute), settings
    )
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "server": ("127.0.0.1", 8737),
    }
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads a body here")

    for _ in range(times):
        sent.clear()
        asyncio.run(admission(scope, receive, send))
    error = json.loads(sent[1]["body"])["error"]
    return sent[0]["status"], error.get("rule") or error["code"]


@pytest.mark.parametrize(
    ("headers", "more", "expected"),
    [
        ([_AUTH], {}, (403, "host.foreign")),
        ([(b"host", b"evil:8737"), _AUTH], {}, (403, "host.foreign")),
        ([_HOST, _HOST, _AUTH], {}, (400, "http.headers")),
        ([_HOST, _AUTH, (b"origin", b"http://evil")], {}, (403, "origin.foreign")),
        ([_HOST, _AUTH, (b"sec-fetch-site", b"same-site")], {}, (403, "origin.foreign")),
        ([_HOST], {}, (401, "auth.missing")),
        ([_HOST, (b"authorization", b"Bearer " + b"cd" * 32)], {}, (401, "auth.wrong")),
        ([_HOST, (b"authorization", b"Basic " + _TOKEN)], {}, (401, "auth.wrong")),
        ([_HOST, (b"authorization", _TOKEN)], {}, (401, "auth.wrong")),
        ([_HOST, (b"authorization", b"Bearer " + _TOKEN[:-1])], {}, (401, "auth.wrong")),
        ([_HOST, _AUTH, _AUTH], {}, (400, "http.headers")),
        ([_HOST, _AUTH], {"query": b"token=x"}, (400, "auth.query")),
        ([_HOST, _AUTH], {"query": b"q=" + _TOKEN.upper()}, (400, "auth.query")),
        ([_HOST, _AUTH, (b"x", b"y" * 2000)], {}, (431, "http.head_large")),
        ([_HOST, _AUTH], {"per_minute": 10, "times": 2}, (429, "rate.limit")),
        (
            [_HOST, _AUTH, _JSON, (b"content-length", b"1001")],
            {"method": "POST"},
            (413, "body.large"),
        ),
        (
            [_HOST, _AUTH, (b"content-length", b"5")],
            {"method": "POST"},
            (415, "body.type"),
        ),
        (
            [_HOST, _AUTH, (b"transfer-encoding", b"chunked"), (b"content-type", b"text/plain")],
            {"method": "POST"},
            (415, "body.type"),
        ),
        ([_HOST], {"path": "/v1/models"}, (401, "auth.missing")),
        ([_HOST], {"path": "/health/"}, (401, "auth.missing")),
    ],
)
def test_it_is_refused(
    headers: list[tuple[bytes, bytes]], more: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert _asked(*headers, **more) == expected


@pytest.mark.parametrize(
    ("headers", "more"),
    [
        ([_HOST, _AUTH], {}),
        ([_HOST], {"path": "/health"}),
        ([_HOST, (b"authorization", b"bearer  " + _TOKEN)], {}),
        ([_HOST, _AUTH, (b"origin", b"http://localhost:8737")], {}),
        ([_HOST, _AUTH, (b"sec-fetch-site", b"none")], {}),
        ([_HOST, _AUTH], {"query": b"q=token"}),
        ([_HOST, _AUTH, (b"x", b"y" * 1500)], {}),
        ([_HOST, _AUTH], {"per_minute": 20, "times": 2}),
        ([_HOST, _AUTH], {"per_minute": 10, "times": 5, "path": "/estop", "method": "POST"}),
        ([_HOST, _AUTH, _JSON, (b"content-length", b"1000")], {"method": "POST"}),
        ([_HOST, _AUTH, (b"content-length", b"0")], {"method": "POST"}),
    ],
)
def test_its_neighbour_is_admitted(
    headers: list[tuple[bytes, bytes]], more: dict[str, Any]
) -> None:
    assert _asked(*headers, **more) == (200, "admitted")


def test_what_is_not_http_is_not_answered() -> None:
    settings = GatewaySettings()
    admission = Admission(
        _inside, _CLIENTS, Hosts.of(settings, "127.0.0.1", 1), RateLimit(60), settings
    )

    async def never(*_: Any) -> Any:
        raise AssertionError("nothing is sent or received")

    asyncio.run(admission({"type": "websocket"}, never, never))
