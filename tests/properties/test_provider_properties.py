"""Whatever a model or a server sends: an answer or an error of ours, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel import canonical_json
from coilclaw.kernel.errors import ProviderError
from coilclaw.kernel.messages import ChatRequest, ChatResponse, Json, Message, ToolCall, Usage
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.event_stream import StreamTally, events
from coilclaw.models.gemini import Gemini
from coilclaw.models.mock import Mock, parse_fixture
from coilclaw.models.openai import OpenAI
from coilclaw.models.recorded_answers import decode, describe_request, encode, marks
from coilclaw.models.tool_arguments import MAX_CALLS, number_calls, tool_call
from coilclaw.models.wire import ModelWire
from tests.support.scale import scaled

PLACE = ModelEndpoint("m", "http://127.0.0.1:9", max_response_bytes=100_000)
REQUEST = ChatRequest("", (Message("user", "hi"),), "m")
WIRES: dict[str, ModelWire] = {
    "openai": OpenAI(PLACE, "m"),
    "gemini": Gemini(PLACE, "m"),
    "anthropic": Anthropic(PLACE, "m"),
}
WORDS = [
    "choices",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "index",
    "delta",
    "finish_reason",
    "refusal",
    "usage",
    "candidates",
    "parts",
    "text",
    "thought",
    "functionCall",
    "args",
    "thoughtSignature",
    "finishReason",
    "promptFeedback",
    "blockReason",
    "type",
    "content_block",
    "input",
    "partial_json",
    "stop_reason",
    "error",
    "code",
    "text_delta",
    "input_json_delta",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "tool_use",
    "message_stop",
    "STOP",
    "stop",
    "end_turn",
    "when",
    "delay_s",
    "timeout",
]

TEXT = st.text(st.characters(), max_size=20)  # halves of surrogate pairs included
SCALARS: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from(WORDS)
)
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | TEXT, inner, max_size=5)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=5)


def usable(found: ChatResponse) -> None:
    found.final_text.encode("utf-8")
    assert "\0" not in found.final_text
    assert len({call.id for call in found.tool_calls}) == len(found.tool_calls)
    for call in found.tool_calls:
        assert call.name
        assert call.id
        canonical_json.render_json(dict(call.arguments))
        assert call.problem is None or call.arguments == {}


@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=scaled(full=1000, default=60))
@given(payload=OBJECTS)
def test_any_answer_is_read_or_refused(name: str, payload: dict[str, Json]) -> None:
    try:
        usable(WIRES[name].response(payload, None, REQUEST))
    except ProviderError:
        return


@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=scaled(full=1000, default=60))
@given(told=st.lists(OBJECTS, max_size=4), done=st.booleans())
def test_any_stream_is_read_or_refused(name: str, told: list[dict[str, Json]], done: bool) -> None:
    def stream() -> Iterator[dict[str, Json] | None]:
        yield from told
        if done:
            yield None

    drafts: list[str] = []
    try:
        payload = WIRES[name].fold(stream(), StreamTally(PLACE), drafts.append)
        usable(WIRES[name].response(payload, None, REQUEST))
    except ProviderError:
        return
    finally:
        "".join(drafts).encode("utf-8")


@settings(max_examples=scaled(full=1000, default=80))
@given(arguments=VALUES | TEXT, name=SCALARS, identity=SCALARS)
def test_a_call_can_be_acted_on_or_has_a_problem(
    arguments: Json, name: Json, identity: Json
) -> None:
    call = tool_call(name, arguments, identity)
    canonical_json.render_json(dict(call.arguments))
    assert call.problem is None or call.arguments == {}
    if isinstance(arguments, dict) and call.problem is None:
        assert call.arguments == arguments


@settings(max_examples=scaled(full=500, default=60))
@given(
    spoken=st.lists(st.sampled_from(["", "a", "a-2", "call-1", "call-2"]), max_size=8),
    ids=st.lists(st.sampled_from(["", "a", "a-2", "b", "call-1", "call-3"]), max_size=100),
)
def test_ids_are_new_in_their_conversation(spoken: list[str], ids: list[str]) -> None:
    said = tuple(ToolCall(identity, "x", {}) for identity in spoken)
    request = ChatRequest("", (Message("assistant", "", said),), "m")
    found = [call.id for call in number_calls([ToolCall(i, "x", {}) for i in ids], request)]
    assert len(found) == min(len(ids), MAX_CALLS + 1)
    assert len(set(found)) == len(found)
    assert not set(found) & set(spoken)
    assert "" not in found


@settings(max_examples=scaled(full=500, default=60))
@given(
    values=st.lists(st.dictionaries(TEXT, TEXT, max_size=3).filter(lambda v: "error" not in v)),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
)
def test_events_are_the_same_however_they_arrive(
    values: list[dict[str, str]], end: bytes, cuts: list[int]
) -> None:
    body = b"".join(b"data: " + json.dumps(value).encode() + end * 2 for value in values)
    body += b": comment" + end + b"data: [DONE]" + end * 2
    places = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    pieces = [body[start:stop] for start, stop in pairwise(places)]
    assert list(events(PLACE, pieces)) == [*values, None]


@settings(max_examples=scaled(full=1000, default=80))
@given(raw=st.binary(max_size=200), lead=st.sampled_from([b"", b"data: ", b"data: {", b"\n\n"]))
def test_any_bytes_are_events_or_an_error(raw: bytes, lead: bytes) -> None:
    try:
        list(events(PLACE, [lead, raw, b"\n\n", lead + raw, b"\r\r"]))
    except ProviderError:
        return


@settings(max_examples=scaled(full=1000, default=80))
@given(value=st.lists(OBJECTS, max_size=4) | VALUES)
def test_any_fixture_is_played_or_has_problems(value: Json) -> None:
    answers, problems = parse_fixture(value)
    if problems:
        return
    provider = Mock("m", "m", answers, timeout_s=0, sleep=lambda _: None)
    for _ in answers:
        try:
            usable(provider.chat(REQUEST))
        except ProviderError:
            continue


TEXTS = st.text(max_size=30)
CALLS = st.builds(
    ToolCall,
    st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
    st.from_regex(r"[a-z]{1,8}", fullmatch=True),
    st.dictionaries(TEXTS, TEXTS | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans()),
    st.none(),
    st.none() | st.just("c2ln"),
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    TEXTS,
    st.lists(CALLS, max_size=2).map(tuple),
    st.none() | TEXTS,
)


@settings(max_examples=scaled(full=500, default=60))
@given(
    messages=st.lists(MESSAGES, max_size=5).map(tuple),
    text=TEXTS,
    calls=st.lists(CALLS, max_size=3).map(tuple),
)
def test_an_exchange_reads_as_it_was_written(
    messages: tuple[Message, ...], text: str, calls: tuple[ToolCall, ...]
) -> None:
    request = describe_request(ChatRequest("system", messages, "m"), str)
    answered = ChatResponse(text, calls, None, Usage(1, None), "m")
    read = decode(encode(request, answered, str), "m")
    assert read.request == request
    assert marks(read.request) == marks(request)
    assert read.outcome == answered
