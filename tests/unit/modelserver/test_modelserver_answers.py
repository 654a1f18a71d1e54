"""Every dialect, streamed and whole, says what the script says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from tests.unit.modelserver.asking import (
    DIALECTS,
    MODES,
    Heard,
    Question,
    Turn,
    ask,
    events,
    hear,
    send,
)

TEXT = 'Grüße, 世界! \u2028 \x85 two\nlines\twith \\ and " ' * 3
CALLS = [
    {"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2], "exact": None}},
    {"name": "get_time", "arguments": {}},
]
STOPS = {
    "chat": {
        "stop": "stop",
        "length": "length",
        "content_filter": "content_filter",
        "tool_calls": "tool_calls",
    },
    "responses": {
        "stop": "completed",
        "length": "incomplete:max_output_tokens",
        "content_filter": "incomplete:content_filter",
        "tool_calls": "completed",
    },
    "messages": {
        "stop": "end_turn",
        "length": "max_tokens",
        "content_filter": "refusal",
        "tool_calls": "tool_use",
    },
    "gemini": {
        "stop": "STOP",
        "length": "MAX_TOKENS",
        "content_filter": "SAFETY",
        "tool_calls": "STOP",
    },
}

both = pytest.mark.parametrize("stream", MODES, ids=["whole", "stream"])
every = pytest.mark.parametrize("dialect", DIALECTS)


def heard(script: object, question: Question) -> Heard:
    with ModelServer(script) as server:
        return hear(question, ask(server, question))


@both
@every
def test_text(dialect: str, stream: bool) -> None:
    answer = {"text": TEXT, "usage": {"input": 11, "output": 7}}
    said = heard([answer], Question(dialect, stream))
    assert said == Heard(text=TEXT, stop=STOPS[dialect]["stop"], usage=(11, 7))


@both
@every
def test_parallel_tool_calls_beside_text_and_reasoning(dialect: str, stream: bool) -> None:
    answer = {"reasoning": "first I think", "text": TEXT, "tool_calls": CALLS}
    said = heard([{**answer, "usage": {"input": 1, "output": 2}}], Question(dialect, stream))
    assert said == Heard(
        text=TEXT,
        reasoning="first I think",
        calls=(
            ("get_weather", {"city": "Zürich", "days": [1, 2], "exact": None}),
            ("get_time", {}),
        ),
        stop=STOPS[dialect]["tool_calls"],
        usage=(1, 2),
    )


@both
@every
@pytest.mark.parametrize("stop", ["stop", "length", "content_filter"])
def test_the_reason_to_stop(dialect: str, stream: bool, stop: str) -> None:
    assert (
        heard([{"text": "x", "stop": stop}], Question(dialect, stream)).stop
        == (STOPS[dialect][stop])
    )


@both
@every
def test_a_reason_of_the_dialects_own(dialect: str, stream: bool) -> None:
    said = heard([{"text": "x", "stop_as": "RECITATION"}], Question(dialect, stream))
    assert said.stop.removeprefix("incomplete:") == "RECITATION"


@both
@every
@pytest.mark.parametrize("answer", [{"text": ""}, {"reasoning": "hm"}, {"sleep": 0}])
def test_an_answer_may_say_next_to_nothing(
    dialect: str, stream: bool, answer: dict[str, Any]
) -> None:
    said = heard([answer], Question(dialect, stream))
    assert (said.text, said.calls, said.stop) == ("", (), STOPS[dialect]["stop"])
    assert said.reasoning == answer.get("reasoning", "")


@both
@every
def test_tokens_are_estimated_from_the_bytes_where_the_script_is_silent(
    dialect: str, stream: bool
) -> None:
    question = Question(dialect, stream)
    size = len(json.dumps(question.body).encode())
    assert heard([{"text": "x" * 400}], question).usage == ((size + 3) // 4, 100)


@every
def test_a_large_text_streams_in_a_bounded_number_of_events(dialect: str) -> None:
    text = "0123456789" * 40_000
    with ModelServer([{"text": text}]) as server:
        question = Question(dialect, stream=True)
        got = ask(server, question)
        assert hear(question, got).text == text
        assert len(events(got.body)) < 80


def _same(value: Any) -> Any:
    """Blank what differs from answer to answer: identifiers and the time."""
    if isinstance(value, dict):
        return {
            key: "…" if key in {"id", "item_id", "call_id", "responseId"} and item else _same(item)
            for key, item in value.items()
            if key not in {"created", "created_at", "completed_at"}
        }
    return [_same(item) for item in value] if isinstance(value, list) else value


def test_a_whole_chat_completion() -> None:
    answer = {
        "reasoning": "hm",
        "tool_calls": [CALLS[1]],
        "usage": {"input": 5, "output": 3, "cached": 2, "reasoning": 1},
    }
    with ModelServer([answer]) as server:
        body = ask(server, Question("chat")).json
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"][0]["message"]["tool_calls"][0]["id"].startswith("call_")
    assert _same(body) == {
        "id": "…",
        "object": "chat.completion",
        "model": "some-model",
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {
                            "id": "…",
                            "type": "function",
                            "function": {"name": "get_time", "arguments": "{}"},
                        }
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 1,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }


def test_chat_usage_is_streamed_only_when_asked_for() -> None:
    question = Question("chat", stream=True, extra={"stream_options": None})
    with ModelServer([{"text": "x"}]) as server:
        found = events(ask(server, question).body)
    assert [name for name, _ in found] == [None] * len(found)
    *chunks, (_, done) = found
    assert done == "[DONE]"
    assert [_same(chunk["choices"]) for _, chunk in chunks] == [
        [_choice({"role": "assistant", "content": "", "refusal": None})],
        [_choice({"content": "x"})],
        [_choice({}, "stop")],
    ]
    assert all("usage" not in chunk for _, chunk in chunks)


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def test_a_whole_message() -> None:
    answer = {"reasoning": "hm", "text": "hi", "tool_calls": [{"name": "f", "id": "toolu_1"}]}
    with ModelServer([{**answer, "usage": {"input": 5, "output": 3, "cached": 2}}]) as server:
        got = ask(server, Question("messages"))
    assert got.json["id"].startswith("msg_")
    assert got.headers["request-id"].startswith("req_")
    assert got.json["content"][2]["id"] == "toolu_1"
    assert _same(got.json) == {
        "id": "…",
        "type": "message",
        "role": "assistant",
        "model": "some-model",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2NyaXB0ZWQ="},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "…", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": 3,
            "service_tier": "standard",
        },
    }


def test_a_whole_gemini_response() -> None:
    usage = {"input": 5, "output": 3, "cached": 2, "reasoning": 1}
    with ModelServer([{"text": "hi", "tool_calls": [CALLS[1]], "usage": usage}]) as server:
        body = ask(server, Question("gemini", model="gemini-2.5-pro")).json
    assert _same(body) == {
        "candidates": [
            {
                "content": {
                    "parts": [{"text": "hi"}, {"functionCall": {"name": "get_time", "args": {}}}],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 5,
            "candidatesTokenCount": 3,
            "totalTokenCount": 9,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 5}],
            "cachedContentTokenCount": 2,
            "thoughtsTokenCount": 1,
        },
        "modelVersion": "gemini-2.5-pro",
        "responseId": "…",
    }


def test_gemini_without_events_streams_a_list() -> None:
    question = Question("gemini")
    with ModelServer([{"text": TEXT}]) as server:
        got = send(
            server,
            "POST",
            "/v1beta/models/m:streamGenerateContent",
            json.dumps(question.body).encode(),
        )
    assert got.headers["content-type"] == "application/json"
    assert len(got.json) > 1
    parts = [part for body in got.json for part in body["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts) == TEXT


def test_a_whole_response_repeats_its_settings() -> None:
    settings = {
        "instructions": "be brief",
        "temperature": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "metadata": {"a": "b"},
    }
    question = Question("responses", extra={**settings, "include": ["reasoning.encrypted_content"]})
    with ModelServer([{"reasoning": "hm", "text": "hi", "stop": "length"}]) as server:
        body = ask(server, question).json
    assert body["id"].startswith("resp_")
    assert {key: body[key] for key in settings} == settings
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert _same(body["output"]) == [
        {
            "id": "…",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "c2NyaXB0ZWQ=",
        },
        {
            "id": "…",
            "type": "message",
            "status": "incomplete",
            "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "hi"}],
        },
    ]


def test_the_events_of_a_response() -> None:
    answer = {
        "reasoning": "hm",
        "text": "hi",
        "tool_calls": [{"name": "f", "arguments": {}}, {"name": "apply_patch", "input": "*** x"}],
    }
    with ModelServer([answer]) as server:
        found = events(ask(server, Question("responses", stream=True)).body)
    assert [name for name, _ in found] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ]


@both
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_freeform_call(dialect: str, stream: bool) -> None:
    script = [{"tool_calls": [{"name": "apply_patch", "input": "*** Begin Patch\n+é"}]}]
    assert heard(script, Question(dialect, stream)).calls == (
        ("apply_patch", "*** Begin Patch\n+é"),
    )


@both
@pytest.mark.parametrize("dialect", ["messages", "gemini"])
def test_a_freeform_call_where_tools_take_objects_only(dialect: str, stream: bool) -> None:
    script = [{"tool_calls": [{"name": "apply_patch", "input": "*** Begin Patch"}]}]
    assert heard(script, Question(dialect, stream)).calls == (
        ("apply_patch", {"input": "*** Begin Patch"}),
    )


@both
@every
def test_the_history_decides_which_answer_comes(dialect: str, stream: bool) -> None:
    turns = (
        Turn(prompt="one"),
        Turn(text="long ago", calls=("a",)),
        Turn(text="done"),
        Turn(prompt="two"),
        Turn(text="now", calls=("a", "b")),
    )
    script = [{"text": "first"}, {"text": "second"}, {"text": "third"}]
    assert heard(script, Question(dialect, stream, turns)).text == "second"


@every
@pytest.mark.parametrize("prefix", ["", "/proxy", "/a/v1/b"])
def test_any_prefix_is_accepted(dialect: str, prefix: str) -> None:
    with ModelServer([{"text": "x"}]) as server:
        question = Question(dialect)
        assert hear(question, ask(server, question, prefix=prefix)).text == "x"


@pytest.mark.parametrize("path", ["/chat/completions", "/openai/deployments/m/chat/completions"])
def test_chat_needs_no_version(path: str) -> None:
    body = json.dumps(Question("chat").body).encode()
    with ModelServer([{"text": "x"}]) as server:
        assert send(server, "POST", path, body).status == 200


def test_tokens_are_counted() -> None:
    body = b'{"contents":[{"parts":[{"text":"hello"}]}]}'
    tokens = (len(body) + 3) // 4
    with ModelServer([]) as server:
        got = send(server, "POST", "/v1beta/models/m:countTokens", body)
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        assert got.json == {"totalTokens": tokens, "promptTokensDetails": details}
        assert send(server, "POST", "/v1/messages/count_tokens", body).json == {
            "input_tokens": tokens
        }


def test_models_are_listed_in_every_shape() -> None:
    anthropic, google = {"anthropic-version": "2023-06-01"}, {"x-goog-api-client": "sdk"}
    with ModelServer({"answers": [], "models": ["one", "org/two"]}) as server:
        openai = send(server, "GET", "/v1/models").json
        messages = send(server, "GET", "/v1/models", headers=anthropic).json
        gemini = send(server, "GET", "/v1beta/models").json
        assert send(server, "GET", "/v1/models", headers=google).json == gemini
        assert send(server, "GET", "/v1/models/org/two").json == openai["data"][1]
        assert send(server, "GET", "/models/one").json == openai["data"][0]
        one = send(server, "GET", "/v1/models/one", headers=anthropic).json
        assert one == messages["data"][0]
        assert send(server, "GET", "/v1beta/models/one").json == gemini["models"][0]
        missing = send(server, "GET", "/v1/models/three")
    assert openai["object"] == "list"
    assert openai["data"][0] == {
        "id": "one",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "coilclaw",
    }
    assert [(model["type"], model["id"]) for model in messages["data"]] == [
        ("model", "one"),
        ("model", "org/two"),
    ]
    assert (messages["first_id"], messages["last_id"]) == ("one", "org/two")
    assert [model["name"] for model in gemini["models"]] == ["models/one", "models/org/two"]
    said = missing.json["error"]["message"]
    assert (missing.status, said) == (404, "the model three does not exist")
