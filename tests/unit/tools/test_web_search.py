"""``web_search``: real servers on loopback, and a key that must not be seen anywhere."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from coilclaw.agent.settings import SearchProvider, SearchSettings
from coilclaw.agent.tools import web_tools
from coilclaw.agent.tools.builtin import builtin_tools
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.web_tools import WebSearch
from coilclaw.kernel.effects import Fetches
from coilclaw.kernel.errors import CoilClawError, DeniedError, UsageError
from coilclaw.kernel.messages import ToolResult
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.children import PATIENCE_S
from tests.support.rawserver import RawServer, drip, response, serving
from tests.support.toolworld import World, world

KEY = "tvly-canary-0123456789abcdef"
ENVIRON = {"SEARCH_KEY": KEY, "PATH": "/usr/bin:/bin"}
PROVIDERS: tuple[SearchProvider, ...] = ("brave", "tavily", "searxng")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, ENVIRON) as made:
        yield made


def answer(provider: str, *entries: tuple[str, str, str]) -> bytes:
    """Results in the form of a service."""
    name = "description" if provider == "brave" else "content"
    results = [{"title": title, "url": url, name: text} for title, url, text in entries]
    value = {"web": {"results": results}} if provider == "brave" else {"results": results}
    return json.dumps({"query": {"original": "q"}, "other": [1], **value}).encode()


def searching(
    here: World, server: RawServer, provider: SearchProvider = "tavily", key: str = "SEARCH_KEY"
) -> tuple[World, WebSearch]:
    settings = SearchSettings(provider, key, f"{server.url}/search")
    allowed = here.using(allowed_domains=(f"127.0.0.1:{urlsplit(server.url).port}",))
    return allowed, WebSearch(settings)


def failed(told: ToolResult, rule: str) -> bool:
    assert KEY not in repr(told)
    return (told.success, told.output, told.metadata.get("rule")) == (False, "", rule)


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        (None, "web_search.provider"),
        (SearchSettings(), "web_search.provider"),
        (SearchSettings(api_key_env="X"), "web_search.provider"),
        (SearchSettings("searxng"), "web_search.base_url"),
    ],
)
def test_without_configuration_it_says_how_to_configure(
    here: World, settings: SearchSettings | None, lacking: str
) -> None:
    tool = WebSearch(settings)
    for attempt in (lambda: tool.effects({"query": "x"}), lambda: here.call(tool, query="x")):
        with pytest.raises(UsageError) as problem:
            attempt()
        assert problem.value.rule == "web_search.unconfigured"
        message = problem.value.message
        assert message.startswith(f"web search is not configured: set {lacking} ")
        assert "security.allowed_domains" in message


def test_it_is_built_in_with_the_settings_it_is_given() -> None:
    settings = SearchSettings("brave", "K")
    tool = builtin_tools(settings)[-1]
    assert tool.name == "web_search"
    assert tool.effects({"query": "x"}) == (
        Fetches("https://api.search.brave.com/res/v1/web/search"),
    )
    with pytest.raises(UsageError):
        builtin_tools()[-1].effects({"query": "x"})


def test_the_endpoint_must_be_an_allowed_domain(here: World) -> None:
    tool = WebSearch(SearchSettings("tavily", "SEARCH_KEY"))
    assert tool.effects({"query": "x"}) == (Fetches("https://api.tavily.com/search"),)
    with pytest.raises(DeniedError) as denied:
        tool.prepare({"query": "x"}, here.context)
    assert denied.value.rule == "http.domain"
    allowed = here.using(allowed_domains=("api.tavily.com",)).context
    assert tool.prepare({"query": "x"}, allowed).detail == ("ask api.tavily.com (tavily) for 'x'",)


def test_a_name_that_leads_inside_is_denied(here: World) -> None:
    def resolve(host: str, port: int, *, type: int) -> list[tuple[Any, ...]]:  # noqa: A002 - as in socket
        return [(socket.AF_INET, type, 6, "", ("169.254.169.254", port))]

    tool = WebSearch(SearchSettings("tavily", "SEARCH_KEY"), resolve)
    with pytest.raises(DeniedError) as denied:
        here.using(allowed_domains=("api.tavily.com",)).call(tool, query="x")
    assert denied.value.rule == "http.address"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("", ""),
        ("ABSENT", None),
        ("EMPTY", " "),
        ("LINES", f"{KEY}\r\nX-Other: 1"),
        ("BYTES", f"{KEY}\u00e9"),
    ],
)
def test_without_a_usable_key_nothing_is_asked(
    here: World, variable: str, value: str | None
) -> None:
    environ = ENVIRON if value is None else {**ENVIRON, variable: value}
    with serving() as server:
        world, tool = searching(here, server, key=variable)
        with pytest.raises(UsageError) as problem:
            world.using(environ=environ).call(tool, query="x")
    assert problem.value.rule == "web_search.key"
    assert KEY not in problem.value.message
    assert server.received == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_are_titles_addresses_and_snippets(here: World, provider: SearchProvider) -> None:
    body = answer(
        provider,
        ("First\n one", "https://a.example/x", "about\t it"),
        ("", "https://b.example/", ""),
        ("No address", "", "left out"),
    )
    with serving(response(body, "200 OK", "content-type: application/json")) as server:
        world, tool = searching(here, server, provider)
        told = world.call(tool, query="ä & b", count=5)
    assert told == ToolResult(
        True,
        "1. First one\n   https://a.example/x\n   about it\n2. (no title)\n   https://b.example/\n",
        None,
        {"provider": provider, "http_status": 200, "results": 2},
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_key_stands_in_a_header_and_nowhere_else(here: World, provider: SearchProvider) -> None:
    with serving(response(answer(provider))) as server:
        world, tool = searching(here, server, provider)
        told = world.call(tool, query="ä & b", count=5)
    assert told.output == "nothing was found\n"
    (request,) = server.received
    head, _, body = request.decode().partition("\r\n\r\n")
    line, *headers = head.split("\r\n")
    name = {"brave": "x-subscription-token: ", "tavily": "authorization: Bearer "}
    expected = name.get(provider, "authorization: Bearer ") + KEY
    assert [header for header in headers if KEY in header] == [expected]
    assert KEY not in line + body
    assert not any(header.startswith("cookie") for header in headers)
    if provider == "tavily":
        assert line == "POST /search HTTP/1.1"
        assert json.loads(body) == {"query": "ä & b", "max_results": 5}
    else:
        assert line.startswith("GET /search?q=%C3%A4+%26+b&")
        assert parse_qs(urlsplit(line.split()[1]).query)["q"] == ["ä & b"]
        assert body == ""


def test_searxng_needs_no_key(here: World) -> None:
    with serving(response(answer("searxng", ("T", "https://a.example/", "s")))) as server:
        world, tool = searching(here, server, "searxng", key="")
        assert world.call(tool, query="x").success
    assert b"authorization" not in server.received[0].lower()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("401 Unauthorized", "the search service answers HTTP 401: the key is wrong"),
        (
            "429 Too Many Requests",
            "the search service answers HTTP 429: too many questions, or the quota is used up",
        ),
        ("500 Oops", "the search service answers HTTP 500"),
    ],
)
def test_a_refusal_is_a_failure_without_the_words_of_the_server(
    here: World, status: str, error: str
) -> None:
    with serving(response(f"bad key {KEY}".encode(), status)) as server:
        world, tool = searching(here, server)
        told = world.call(tool, query="x")
    assert failed(told, "web_search.status")
    assert told.error == error


def test_a_service_that_repeats_the_key_does_not_spread_it(here: World) -> None:
    body = answer("tavily", (f"key {KEY}", f"https://a.example/?k={KEY}", KEY[::-1]))
    with serving(response(body)) as server:
        world, tool = searching(here, server)
        told = world.call(tool, query="x")
    assert told.success
    assert KEY not in told.output
    assert KEY[::-1] not in told.output


def test_a_redirect_is_not_followed(here: World) -> None:
    with serving(response(answer("tavily"))) as other:
        moved = response(b"", "302 Found", f"location: {other.url}/steal")
        with serving(moved) as server:
            world, tool = searching(here, server)
            port = urlsplit(other.url).port
            domains = (*world.context.security.allowed_domains, f"127.0.0.1:{port}")
            told = world.using(allowed_domains=domains).call(tool, query="x")
        assert failed(told, "web_search.status")
        assert other.received == []
        socket.create_connection(("127.0.0.1", port or 0)).close()


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "web_search.answer"),
        (b"<html>", "web_search.answer"),
        (b"[]", "web_search.answer"),
        (b'{"results": 7}', "web_search.answer"),
        (b"[" * 100_000, "web_search.answer"),
        (b" " * (web_tools.ANSWER_BYTES + 1), "web_search.answer"),
    ],
)
def test_what_is_no_answer_is_a_failure(here: World, body: bytes, rule: str) -> None:
    with serving(response(body)) as server:
        world, tool = searching(here, server)
        assert failed(world.call(tool, query="x"), rule)


def test_odd_entries_are_left_out(here: World) -> None:
    results = [7, None, {"url": 7}, {"url": "https://a.example/", "title": ["x"], "content": 1}]
    with serving(response(json.dumps({"results": results}).encode())) as server:
        world, tool = searching(here, server)
        told = world.call(tool, query="x")
    assert told.output == "1. (no title)\n   https://a.example/\n"


def test_a_packed_answer_is_read_and_a_bomb_is_not(here: World) -> None:
    good = gzip.compress(answer("tavily", ("T", "https://a.example/", "s")))
    bomb = gzip.compress(b" " * (64 * 2**20))
    with serving(
        response(good, "200 OK", "content-encoding: gzip"),
        response(bomb, "200 OK", "content-encoding: gzip"),
    ) as server:
        world, tool = searching(here, server)
        assert world.call(tool, query="x").success
        assert failed(world.call(tool, query="x"), "web_search.answer")


def test_no_more_results_than_asked_for_and_no_more_than_fit(here: World) -> None:
    entries = [(f"T{n}", f"https://a.example/{n}", "s" * 5000) for n in range(30)]
    body = answer("tavily", *entries)
    with serving(response(body), response(body)) as server:
        world, tool = searching(here, server)
        told = world.call(tool, query="x", count=3)
        assert told.metadata["results"] == 3
        assert told.output.count("https://") == 3
        assert max(map(len, told.output.splitlines())) < 1100
        narrow = world.using(limits=ToolLimits(output_bytes=900))
        told = narrow.call(tool, query="x")
    assert len(told.output.encode()) <= 900
    assert told.output.endswith("[… the rest is cut]\n")


def test_a_slow_service_is_given_up_and_a_stop_is_heard(here: World) -> None:
    with serving(drip, drip) as server:
        world, tool = searching(here, server)
        began = time.monotonic()
        told = world.using(limits=ToolLimits(http_timeout_s=0.3)).call(tool, query="x")
        assert failed(told, "http.timeout")
        cancel = Cancellation()
        cancel.cancel("the emergency stop is set")
        told = world.using(cancel=cancel).call(tool, query="x")
        assert failed(told, "stopped")
        assert time.monotonic() - began < PATIENCE_S


def test_nobody_there_is_a_failure(here: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world, tool = searching(here, RawServer(f"http://127.0.0.1:{port}"))
    assert failed(world.call(tool, query="x"), "http.connection")


def test_no_error_carries_the_request_in_its_chain(here: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world, tool = searching(here, RawServer(f"http://127.0.0.1:{port}"))
    prepared = tool.prepare({"query": "x"}, world.context)
    work = prepared.work  # what perform() turns into a result
    with pytest.raises(CoilClawError) as problem:
        work()
    assert problem.value.__cause__ is None
    assert problem.value.__suppress_context__
