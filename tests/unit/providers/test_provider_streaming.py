"""Streams of the three dialects: from the real server, and from one that breaks them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
    ProviderTruncated,
)
from coilclaw.kernel.messages import ChatRequest, ChatResponse, Message, ToolCall, ToolSpec, Usage
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.event_stream import ask
from coilclaw.models.gemini import Gemini
from coilclaw.models.mock import Mock
from coilclaw.models.openai import OpenAI
from coilclaw.models.provider_chain import RELIABLE, Falling, Retrying, RetryPolicy, Router
from coilclaw.models.wire import ModelWire
from tests.support.children import PATIENCE_S
from tests.support.rawserver import response, serving

REQUEST = ChatRequest(
    "Be brief.",
    (Message("user", "List it."),),
    "m",
    (ToolSpec("ls", "lists", {"type": "object", "properties": {"path": {"type": "string"}}}),),
)
LONG = "Grüße, and a text that is cut into pieces. " * 5
CALLS = [
    {"name": "ls", "arguments": {"path": "ä" * 30, "n": [1, 2.5, None]}, "id": "one"},
    {"name": "ls", "arguments": {}, "id": "two"},
]

Make = Callable[[ModelEndpoint], ModelWire]
MAKES: dict[str, Make] = {
    "openai": lambda place: OpenAI(place, "gpt-x"),
    "gemini": lambda place: Gemini(place, "gemini-x"),
    "anthropic": lambda place: Anthropic(place, "claude-x"),
}


def streamed(kind: str, answer: object, **options: float) -> tuple[ChatResponse, list[str]]:
    drafts: list[str] = []
    with ModelServer([answer]) as server:
        wire = MAKES[kind](ModelEndpoint("m", server.url, **options))  # type: ignore[arg-type]  # numbers
        try:
            return wire.stream(REQUEST, drafts.append), drafts
        finally:
            wire.close()


def raw(kind: str, *events: object, end: bytes = b"") -> tuple[ChatResponse, list[str]]:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + end
    drafts: list[str] = []
    with serving(response(body, "200 OK", "content-type: text/event-stream")) as server:
        return MAKES[kind](ModelEndpoint("m", server.url)).stream(REQUEST, drafts.append), drafts


@pytest.mark.parametrize("kind", MAKES)
def test_a_stream_says_what_the_whole_answer_says(kind: str) -> None:
    usage = {"input": 3, "output": 4}
    answer = {"text": LONG, "reasoning": "hidden", "tool_calls": CALLS, "usage": usage}
    with ModelServer([answer]) as server:
        wire = MAKES[kind](ModelEndpoint("m", server.url))
        drafts: list[str] = []
        found = wire.stream(REQUEST, drafts.append)
        assert found == replace(wire.chat(REQUEST), raw_provider_payload=None)
        wire.close()
    assert found == ChatResponse(
        LONG,
        (
            ToolCall("one", "ls", {"path": "ä" * 30, "n": [1, 2.5, None]}),
            ToolCall("two", "ls", {}),
        ),
        None,
        Usage(3, 4),
        wire.model,
    )
    assert "".join(drafts) == LONG
    assert len(drafts) > 5


@pytest.mark.parametrize("kind", MAKES)
def test_streams_share_a_connection(kind: str) -> None:
    with ModelServer([{"text": "hello"}]) as server:
        wire = MAKES[kind](ModelEndpoint("m", server.url))
        for _ in range(3):
            wire.stream(REQUEST, lambda _: None)
            assert len(wire.client.connections) == 1
        wire.close()


@pytest.mark.parametrize("kind", MAKES)
def test_a_stream_that_is_cut_anywhere_is_an_error_or_the_whole_answer(kind: str) -> None:
    whole = streamed(kind, {"text": LONG, "tool_calls": CALLS})[0]
    errors = 0
    for number in range(0, 60, 3):
        cut = {"after_events": number}
        try:
            found = streamed(kind, {"text": LONG, "tool_calls": CALLS, "cut": cut})[0]
        except ProviderNetwork:
            errors += 1
        else:
            assert found == replace(whole, usage=found.usage)
    assert errors > 5


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"malformed": "json"}, ProviderMalformed),
        ({"malformed": "truncated"}, ProviderNetwork),
        ({"malformed": "empty"}, ProviderNetwork),
        ({"malformed": "not-json"}, ProviderMalformed),
        ({"malformed": "wrong-shape"}, ProviderNetwork),
        ({"malformed": "utf-8"}, ProviderMalformed),
        ({"malformed": "huge", "size": 3_000_000}, ProviderMalformed),
        ({"stop": "length"}, ProviderTruncated),
        ({"stop": "content_filter"}, ProviderRejected),
        ({"hang": {"after_events": 1}}, ProviderTimeout),
        ({"slow": {"delay_s": 0.2}}, ProviderTimeout),
        ({"status": 401}, ProviderAuth),
        ({"status": 429}, ProviderRateLimit),
        ({"status": 503}, ProviderServer),
        ({"cut": {"after_events": 2, "reset": True}}, ProviderNetwork),
    ],
)
def test_every_fault_of_a_stream_is_an_error_of_its_kind(
    kind: str, fault: dict[str, object], error: type[ProviderError]
) -> None:
    answer = fault if "status" in fault else {"text": LONG, **fault}
    timeout_s = 0.5 if error is ProviderTimeout else PATIENCE_S
    with pytest.raises(ProviderError) as caught:
        streamed(kind, answer, timeout_s=timeout_s, max_response_bytes=2**20)
    assert type(caught.value) is error


def test_what_a_stream_says_is_bounded_and_how_it_says_it_is_not() -> None:
    with pytest.raises(ProviderMalformed, match="larger than 1,024 bytes"):
        streamed("openai", {"text": "x" * 1100}, max_response_bytes=1024)
    assert streamed("openai", {"text": "x" * 1000}, max_response_bytes=1024)[0].final_text


@pytest.mark.parametrize("kind", MAKES)
def test_a_stream_of_nothings_is_bounded(kind: str) -> None:
    endless = {
        "openai": {"choices": [{"delta": {"tool_calls": [{"id": "a", "function": {}}]}}]},
        "gemini": {"candidates": [{"content": {"parts": [{"text": ""}] * 100}}]},
        "anthropic": {"type": "content_block_start", "index": 1, "content_block": {}},
    }[kind]
    events = b"data: " + json.dumps(endless).encode() + b"\n\n"
    if kind == "openai":  # every piece begins another call
        events = b"".join(
            b'data: {"choices": [{"delta": {"tool_calls": [{"index": %d}]}}]}\n\n' % number
            for number in range(30)
        )
    with serving(response(events * 30, "200 OK", "content-type: text/event-stream")) as server:
        wire = MAKES[kind](ModelEndpoint("m", server.url, max_response_bytes=1024))
        with pytest.raises(ProviderMalformed, match="larger than"):
            wire.stream(REQUEST, lambda _: None)


def test_a_server_that_does_not_stream_is_understood() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Hello"}}]}).encode()
    drafts: list[str] = []
    with serving(response(body, "200 OK", "content-type: application/json")) as server:
        found = OpenAI(ModelEndpoint("m", server.url), "x").stream(REQUEST, drafts.append)
    assert (found.final_text, drafts) == ("Hello", ["Hello"])


ERRORS: list[tuple[str, object, type[ProviderError]]] = [
    ("openai", {"error": {"message": "m", "code": 502}}, ProviderServer),
    ("openai", {"error": {"message": "m", "code": "rate_limit_exceeded"}}, ProviderRateLimit),
    ("openai", {"error": {"message": "m", "type": "server_error"}}, ProviderServer),
    ("openai", {"error": "it broke"}, ProviderRejected),
    ("gemini", {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, ProviderRateLimit),
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}, ProviderServer),
    ("anthropic", {"type": "error", "error": {"type": "authentication_error"}}, ProviderAuth),
]


@pytest.mark.parametrize(("kind", "event", "error"), ERRORS)
def test_an_error_within_a_stream_is_an_error(
    kind: str, event: object, error: type[ProviderError]
) -> None:
    with pytest.raises(ProviderError) as caught:
        raw(kind, event)
    assert type(caught.value) is error


def said(text: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}}]}


def test_either_end_of_a_completion_is_an_end_and_none_is_not() -> None:
    finish = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    assert raw("openai", said("a"), end=b"data: [DONE]\n\n")[0].final_text == "a"
    assert raw("openai", said("a"), end=b"data: [DONE]\n")[0].final_text == "a"
    assert raw("openai", said("a"), finish)[0].final_text == "a"
    with pytest.raises(ProviderNetwork, match="ended before its answer did"):
        raw("openai", said("a"))
    with pytest.raises(ProviderNetwork, match="ended before its answer did"):
        raw("openai", said("a"), end=b"data: [DONE]")


def deltas(*calls: object) -> list[object]:
    return [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]


@pytest.mark.parametrize(
    "pieces",
    [
        [  # as documented
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}},
            {"index": 1, "id": "b", "function": {"name": "y", "arguments": '{"k"'}},
            {"index": 0, "function": {"arguments": '{"k": 1}'}},
            {"index": 1, "function": {"arguments": ": 2}"}},
        ],
        [  # every call has the same number
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"k": 1}'}},
            {"index": 0, "id": "b", "function": {"name": "y", "arguments": '{"k": 2}'}},
        ],
        [  # no call has a number
            {"id": "a", "function": {"name": "x", "arguments": '{"k":'}},
            {"function": {"arguments": " 1}"}},
            {"id": "b", "function": {"name": "y", "arguments": '{"k": 2}'}},
        ],
        [  # the id is repeated with every piece
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"k":'}},
            {"index": 0, "id": "a", "function": {"arguments": " 1}"}},
            {"index": 1, "id": "b", "function": {"name": "y", "arguments": '{"k": 2}'}},
        ],
    ],
)
def test_calls_are_put_together_however_they_are_numbered(pieces: list[object]) -> None:
    found, _ = raw("openai", *deltas(*pieces), end=b"data: [DONE]\n\n")
    assert found.tool_calls == (ToolCall("a", "x", {"k": 1}), ToolCall("b", "y", {"k": 2}))


def test_broken_arguments_of_a_stream_are_a_problem_of_the_call() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"k": '}}
    found, _ = raw("openai", *deltas(call), end=b"data: [DONE]\n\n")
    assert found.tool_calls[0].problem
    assert found.tool_calls[0].arguments == {}


NONSENSE: list[object] = [
    {"choices": [{"delta": {"tool_calls": [5, {"index": [], "function": 5}, {"id": {}}]}}]},
    {"choices": [{"delta": 5, "finish_reason": []}]},
    {"choices": 5, "candidates": {}, "usage": []},
    {"candidates": [{"content": {"parts": [5, {"text": 5}, {"functionCall": 5}]}}]},
    {"candidates": [{"content": {"parts": 5}, "finishReason": {}}]},
    {"type": "content_block_delta", "index": [], "delta": {}},
    {"type": "content_block_start", "index": {}, "content_block": 5},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 5}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": []}},
    {"type": "message_delta", "delta": {"stop_reason": 5}, "usage": 5},
    {"type": [], "message": 5},
]


@pytest.mark.parametrize("kind", MAKES)
@pytest.mark.parametrize("event", NONSENSE)
def test_nonsense_in_a_stream_is_no_crash(kind: str, event: object) -> None:
    try:
        raw(kind, event, NONSENSE[0], end=b"data: [DONE]\n\n")
    except ProviderError:
        return


def test_line_ends_and_comments_are_as_the_standard_says() -> None:
    text = json.dumps(said("a"))
    body = f": ping\r\ndata: {text}\r\n\r\nevent: x\rdata:{text}\r\rid: 1\ndata: [DONE]\n\n"
    drafts: list[str] = []
    with serving(response(body.encode(), "200 OK", "content-type: text/event-stream")) as server:
        OpenAI(ModelEndpoint("m", server.url), "x").stream(REQUEST, drafts.append)
    assert drafts == ["a", "a"]


def test_a_draft_that_fails_is_not_an_error_of_the_provider() -> None:
    def broken(_piece: str) -> None:
        raise BrokenPipeError

    with ModelServer([{"text": "hello"}]) as server, pytest.raises(BrokenPipeError):
        OpenAI(ModelEndpoint("m", server.url), "x").stream(REQUEST, broken)


def test_asking_streams_where_that_is_possible() -> None:
    drafts: list[str] = []
    with ModelServer([{"text": LONG}]) as server:
        wire = OpenAI(ModelEndpoint("m", server.url), "x")
        assert ask(wire, REQUEST, None).final_text == LONG
        assert server.requests[0].body is not None
        ask(wire, REQUEST, drafts.append)
        wire.close()
    assert len(drafts) > 5
    drafts.clear()
    echoed = ask(Mock(), REQUEST, drafts.append)
    assert drafts == [echoed.final_text]


def test_wrappers_pass_streams_through() -> None:
    drafts: list[str] = []
    with ModelServer([{"text": LONG}]) as server:
        wire = OpenAI(ModelEndpoint("m", server.url), "x")
        retrying = Retrying(wire, RetryPolicy(), lambda _: None)
        provider = Router("r", {}, Falling(((retrying, "x"),), lambda _: None))
        assert provider.capabilities.streaming
        assert ask(provider, REQUEST, drafts.append).final_text == LONG
        wire.close()
    assert "".join(drafts) == LONG
    assert len(drafts) > 5


def test_a_fallback_in_the_middle_of_a_stream_begins_a_new_line() -> None:
    drafts: list[str] = []
    with ModelServer([{"text": LONG, "cut": {"after_events": 3}}]) as server:
        wire = OpenAI(ModelEndpoint("m", server.url), "x")
        both = Falling(((wire, "x"), (Mock(), "mock")), lambda _: None, RELIABLE)
        found = both.stream(REQUEST, drafts.append)
    assert found.final_text.startswith("This is the mock provider")
    assert drafts[-2:] == ["\n", found.final_text]
    assert LONG.startswith("".join(drafts[:-2]))
