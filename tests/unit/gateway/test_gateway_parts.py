"""The small pieces: bounds, tokens, statuses, metrics, streams and the description."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from coilclaw.agent.handle import TurnOutcome
from coilclaw.agent.tools.contract import Validators
from coilclaw.gateway import operator_token
from coilclaw.gateway.agent import DraftedText, FinishedTurn, ToolAnswered
from coilclaw.gateway.completions import Completions, _Pieces, render_messages
from coilclaw.gateway.endpoint_table import describe_endpoints, table
from coilclaw.gateway.endpoints import Endpoints
from coilclaw.gateway.http import body, faults, listener
from coilclaw.gateway.http.admission import RateLimit
from coilclaw.gateway.http.event_stream import EventStream, Feed, Mailbox, frame
from coilclaw.gateway.metrics import COUNTERS, Metrics
from coilclaw.gateway.runs.run_endpoints import RunEndpoints, SopEndpoints
from coilclaw.gateway.schemas import LIMIT_QUERY, SEARCH_QUERY
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.kernel import errors
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, ProviderRateLimit, UsageError
from tests.support.children import PATIENCE_S


def test_the_token_is_made_once_private_and_long(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = operator_token.load_token(home)
    path = home / operator_token.TOKEN_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(made.reveal())) == 32
    assert operator_token.load_token(home) == made
    assert operator_token.load_token(tmp_path / "other") != made


@pytest.mark.parametrize("content", [b"", b"short\n", b"g" * 64, b"ab" * 33])
def test_a_file_that_holds_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / operator_token.TOKEN_NAME
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(EnvironmentFault) as refused:
        operator_token.load_token(tmp_path)
    assert refused.value.rule == "gateway.token"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_token_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    operator_token.load_token(tmp_path)
    (tmp_path / operator_token.TOKEN_NAME).chmod(mode)
    with pytest.raises(EnvironmentFault):
        operator_token.load_token(tmp_path)


def test_a_token_that_is_a_link_is_refused(tmp_path: Path) -> None:
    operator_token.load_token(tmp_path / "other")
    (tmp_path / operator_token.TOKEN_NAME).symlink_to(
        tmp_path / "other" / operator_token.TOKEN_NAME
    )
    with pytest.raises(EnvironmentFault):
        operator_token.load_token(tmp_path)


def test_every_class_of_error_has_a_status() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, CoilClawError)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        problem = kind.__new__(kind)
        assert 400 <= faults.status_of(problem) < 600
    assert faults.status_of(UsageError("x")) == 400
    assert faults.status_of(errors.DeniedError("x")) == 403
    assert faults.status_of(errors.Stopped("x")) == 503
    assert faults.status_of(errors.ProviderTimeout("x", provider="p")) == 504
    assert faults.status_of(errors.ProviderAuth("x", provider="p")) == 502
    assert faults.status_of(EnvironmentFault("x")) == 500


def test_a_busy_provider_says_when_to_come_back() -> None:
    problem = ProviderRateLimit("x", provider="p", retry_after_s=7.4)
    assert (faults.status_of(problem), faults.headers_of(problem)) == (503, {"retry-after": "7"})


def test_the_bucket_fills_with_time_and_holds_a_tenth() -> None:
    now = 0.0
    limit = RateLimit(60, now=lambda: now)
    assert [limit.take() for _ in range(7)] == [0, 0, 0, 0, 0, 0, 1.0]
    now = 0.5
    assert limit.take() == pytest.approx(0.5)
    now = 1.0
    assert limit.take() == 0
    now = 1000.0
    assert [limit.take() > 0 for _ in range(7)] == [False] * 6 + [True]


def test_metrics_are_prometheus_text() -> None:
    metrics = Metrics()
    metrics.count("turns_total")
    metrics.observe("GET", "/status", 200, 0.02)
    metrics.observe("GET", "/status", 200, 99.0)
    text = metrics.text({"receipt_chain_valid": True})
    lines = text.splitlines()
    assert text.endswith("\n")
    assert "coilclaw_turns_total 1" in lines
    assert "coilclaw_receipt_chain_valid 1" in lines
    assert all(f"# TYPE coilclaw_{name} counter" in lines for name in COUNTERS)
    label = 'coilclaw_request_duration_seconds_bucket{method="GET",route="/status",status="200",le='
    assert [line.removeprefix(label) for line in lines if line.startswith(label)][-2:] == [
        '"120"} 2',
        '"+Inf"} 2',
    ]
    with pytest.raises(KeyError):
        metrics.count("unheard_of")


@pytest.mark.parametrize(
    "query",
    [
        b"limit=0",
        b"limit=1001",
        b"limit=x",
        b"limit=-1",
        b"limit=1&limit=2",
        b"more=1",
        b"limit",
        b"limit=%ff",
        b"&" * 40,
    ],
)
def test_a_query_that_does_not_fit(query: bytes) -> None:
    with pytest.raises(UsageError):
        body.parse_query(query, LIMIT_QUERY, Validators())


def test_a_query_that_fits() -> None:
    assert body.parse_query(b"", LIMIT_QUERY, Validators()) == {}
    assert body.parse_query(b"limit=1000", LIMIT_QUERY, Validators()) == {"limit": 1000}
    found = body.parse_query(b"q=a+b%C3%A9&limit=3", SEARCH_QUERY, Validators())
    assert found == {"q": "a bé", "limit": 3}


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (GatewaySettings(host="0.0.0.0"), "gateway.public"),
        (GatewaySettings(host="::"), "gateway.public"),
        (GatewaySettings(host="example.org"), "gateway.public"),
        (GatewaySettings(host="0.0.0.0", public=True), "gateway.insecure"),
        (GatewaySettings(host="0.0.0.0", insecure=True), "gateway.public"),
        (GatewaySettings(tls_cert=Path("c")), "gateway.tls"),
        (GatewaySettings(tls_key=Path("k")), "gateway.tls"),
        (GatewaySettings(port=-1), "gateway.port"),
    ],
)
def test_where_it_may_not_listen(settings: GatewaySettings, rule: str) -> None:
    with pytest.raises(UsageError) as refused:
        listener.check(settings)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    "settings",
    [
        GatewaySettings(),
        GatewaySettings(host="localhost"),
        GatewaySettings(host="[::1]"),
        GatewaySettings(host="127.0.0.9"),
        GatewaySettings(host="0.0.0.0", public=True, insecure=True),
        GatewaySettings(host="0.0.0.0", public=True, tls_cert=Path("c"), tls_key=Path("k")),
    ],
)
def test_where_it_may(settings: GatewaySettings) -> None:
    listener.check(settings)


def test_a_mailbox_lets_go_of_who_cannot_keep_up() -> None:
    async def work() -> tuple[list[int | None], list[int | None]]:
        slow: Mailbox[int] = Mailbox(3)
        quick: Mailbox[int] = Mailbox(3)
        for number in range(5):
            slow.put(number)
        for number in range(2):
            quick.put(number)
        quick.put_last(2)
        await asyncio.sleep(0)
        return [await slow.take(1) for _ in range(4)], [await quick.take(1) for _ in range(4)]

    dropped, kept = asyncio.run(work())
    assert dropped == [0, 1, 2, None]
    assert kept == [0, 1, 2, None]


def test_a_stream_ends_with_its_mailbox_and_when_its_client_goes() -> None:
    async def work(*, leave: bool) -> list[bytes]:
        mailbox: Mailbox[int] = Mailbox(10)
        sent: list[bytes] = []

        async def receive() -> Any:
            if not leave:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        def frames(item: int) -> Iterator[bytes]:
            yield frame({"n": item}, "number")

        mailbox.put(1)
        if not leave:
            mailbox.put_last(2)
        await asyncio.wait_for(EventStream(mailbox, frames)({}, receive, send), PATIENCE_S)
        assert mailbox.closed
        return sent

    ended = asyncio.run(work(leave=False))
    assert ended == [
        b"",
        b'event: number\ndata: {"n":1}\n\n',
        b'event: number\ndata: {"n":2}\n\n',
        b"",
    ]
    assert asyncio.run(work(leave=True))[-1] == b""


def test_a_feed_gives_each_line_to_everybody_and_ends() -> None:
    async def work() -> list[str | None]:
        feed = Feed()
        assert not feed.watched
        first: Mailbox[str] = Mailbox(5)
        second: Mailbox[str] = Mailbox(5)
        feed.watch(first, lambda _: True)
        feed.watch(second, lambda line: "one" in line)
        feed.write("one\n")
        feed.leave(second)
        feed.write("two\n")
        await asyncio.sleep(0)
        feed.end()
        return [await first.take(1), await first.take(1), await first.take(1), await second.take(1)]

    assert asyncio.run(work()) == ["one\n", "two\n", None, "one\n"]


def test_earlier_messages_are_quoted_as_what_the_client_says() -> None:
    assert render_messages([{"role": "user", "content": "hi"}]) == "hi"
    text = render_messages(
        [
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": "yes?"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
        ]
    )
    assert text == (
        "Earlier messages, as the client sent them:\n\n[system]\nbe brief\n\n[assistant]\nyes?\n\n"
        "The message to answer:\n\na\nb"
    )


def _said(*told: object) -> str:
    pieces = _Pieces(0, with_usage=False)
    frames = [line for one in told for line in pieces.frames(cast("Any", one))]
    assert frames[-1] == b"data: [DONE]\n\n"
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in frames[:-1]]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def _finished(text: str) -> FinishedTurn:
    return FinishedTurn(TurnOutcome("c", "t", text, 0, 0, 0, "p", "m"))


_RESULT = ToolAnswered("1", "time", True, "allowed", "now", None, "r")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([_finished("all")], "all"),
        ([DraftedText("a"), DraftedText("ll"), _finished("all")], "all"),
        (
            [
                DraftedText("I look."),
                DraftedText("\n\n"),
                _RESULT,
                DraftedText("all"),
                _finished("all"),
            ],
            "I look.\n\nall",
        ),
        ([DraftedText("I look."), _RESULT, _finished("all")], "I look.\n\nall"),
        ([DraftedText("begun"), _finished("begun\n\nI stopped.")], "begun\n\nI stopped."),
        ([DraftedText("other"), _finished("all")], "other\n\nall"),
    ],
)
def test_what_was_drafted_is_not_said_twice(told: list[object], expected: str) -> None:
    assert _said(*told) == expected


def test_the_description_is_of_every_endpoint_and_its_schemas_are_schemas() -> None:
    nothing = cast("Any", None)
    runs = RunEndpoints(None)
    ours = Endpoints(nothing, nothing, nothing, nothing, nothing, 1, runs)
    endpoints = table(ours, Completions(nothing), runs, SopEndpoints(None))
    document = cast("dict[str, Any]", describe_endpoints(endpoints))
    published = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    assert published == {(one.method, one.path) for one in endpoints}
    assert len(published) == len(endpoints) == 32
    for endpoint in endpoints:
        for schema in (endpoint.query, endpoint.headers, endpoint.body, endpoint.result):
            if schema is not None:
                jsonschema_rs.validator_for(schema)
    secured = {
        path
        for path, item in document["paths"].items()
        for operation in item.values()
        if operation.get("security") != []
    }
    assert {path for path in document["paths"] if path not in secured} == {"/health"}
