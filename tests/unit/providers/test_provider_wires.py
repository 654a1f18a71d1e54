"""What each provider sends and how it reads what comes back, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from coilclaw.kernel.errors import ProviderMalformed, ProviderRejected, ProviderTruncated
from coilclaw.kernel.messages import (
    ChatRequest,
    ChatResponse,
    Message,
    Provider,
    ToolCall,
    ToolSpec,
    Usage,
)
from coilclaw.kernel.secret import Secret
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.gemini import Gemini
from coilclaw.models.openai import OpenAI
from tests.support.rawserver import response, serving

REQUEST = ChatRequest(
    "Be brief.",
    (
        Message("user", "List it."),
        Message("assistant", "", (ToolCall("c1", "ls", {"path": "."}),)),
        Message("tool", "a.txt", tool_call_id="c1"),
    ),
    "m",
    (ToolSpec("ls", "lists", {"type": "object", "properties": {"path": {"type": "string"}}}),),
    temperature=0.5,
)

Make = Callable[[str], Provider]
MAKES: dict[str, Make] = {
    "gemini": lambda url: Gemini(ModelEndpoint("g", url, Secret("key-1")), "gemini-x"),
    "openai": lambda url: OpenAI(ModelEndpoint("o", url, Secret("key-1")), "gpt-x"),
    "anthropic": lambda url: Anthropic(ModelEndpoint("a", url, Secret("key-1")), "claude-x", 99),
}
GOOD = {
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "thinking", "thought": True},
                        {"text": "Hel"},
                        {"text": "lo"},
                        {"functionCall": {"name": "ls", "args": {"path": "/"}}},
                    ]
                },
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
    },
    "openai": {
        "choices": [
            {
                "message": {
                    "content": "Hello",
                    "tool_calls": [
                        {"id": "", "function": {"name": "ls", "arguments": '{"path": "/"}'}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    },
    "anthropic": {
        "content": [
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "name": "ls", "input": {"path": "/"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    },
}


def ask(kind: str, payload: object) -> tuple[ChatResponse, bytes]:
    with serving(response(json.dumps(payload).encode())) as server:
        answer = MAKES[kind](server.url).chat(REQUEST)
        return answer, server.received[0]


@pytest.mark.parametrize("kind", MAKES)
def test_text_calls_and_usage_are_read(kind: str) -> None:
    answer, _ = ask(kind, GOOD[kind])
    assert answer.final_text == "Hello"
    assert answer.tool_calls == (ToolCall("call-1", "ls", {"path": "/"}),)
    assert answer.usage == Usage(3, 4)
    assert answer.raw_provider_payload == json.dumps(GOOD[kind]).encode()


def test_gemini_is_asked_as_its_api_says() -> None:
    _, sent = ask("gemini", GOOD["gemini"])
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1beta/models/gemini-x:generateContent HTTP/1.1")
    assert b"x-goog-api-key: key-1" in head
    assert json.loads(body) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "List it."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "ls", "args": {"path": "."}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "ls", "response": {"output": "a.txt"}}}],
            },
        ],
        "generationConfig": {"temperature": 0.5},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "ls",
                        "description": "lists",
                        "parametersJsonSchema": dict(REQUEST.tools[0].parameters_schema),
                    }
                ]
            }
        ],
    }


def test_openai_is_asked_as_its_api_says() -> None:
    _, sent = ask("openai", GOOD["openai"])
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert b"authorization: Bearer key-1" in head
    parsed = json.loads(body)
    assert parsed["model"] == "gpt-x"
    assert "stream" not in parsed
    assert parsed["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "ls", "arguments": '{"path": "."}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    ]


def test_anthropic_is_asked_as_its_api_says() -> None:
    _, sent = ask("anthropic", GOOD["anthropic"])
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/messages HTTP/1.1")
    assert b"x-api-key: key-1" in head
    assert b"anthropic-version: " in head
    parsed = json.loads(body)
    assert (parsed["model"], parsed["max_tokens"], parsed["system"]) == (
        "claude-x",
        99,
        "Be brief.",
    )
    assert parsed["messages"][1]["content"][0]["type"] == "tool_use"
    assert parsed["messages"][2]["content"][0]["tool_use_id"] == "c1"


CUT: dict[str, object] = {
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "MAX_TOKENS"}]
    },
    "openai": {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]},
    "anthropic": {"content": [{"type": "text", "text": "x"}], "stop_reason": "max_tokens"},
}


@pytest.mark.parametrize("kind", MAKES)
def test_an_answer_that_was_cut_off_is_an_error(kind: str) -> None:
    with pytest.raises(ProviderTruncated, match="cut off"):
        ask(kind, CUT[kind])


REFUSED: list[tuple[str, object]] = [
    ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}),
    ("gemini", {"candidates": [{"finishReason": "RECITATION"}]}),
    ("openai", {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}),
    ("openai", {"choices": [{"message": {"content": None, "refusal": "no"}}]}),
    ("anthropic", {"content": [], "stop_reason": "refusal"}),
]


@pytest.mark.parametrize(("kind", "payload"), REFUSED)
def test_a_model_that_declines_is_an_error_that_says_so(kind: str, payload: object) -> None:
    with pytest.raises(ProviderRejected, match="did not answer"):
        ask(kind, payload)


SHAPES: list[tuple[str, object]] = [
    ("gemini", {}),
    ("gemini", {"candidates": []}),
    ("gemini", {"candidates": ["x"]}),
    ("gemini", {"candidates": [{"content": {"parts": "x"}}]}),
    ("openai", {}),
    ("openai", {"choices": []}),
    ("openai", {"choices": [{}]}),
    ("openai", {"choices": [{"message": {"content": 5}}]}),
    ("openai", {"choices": [{"message": {"tool_calls": "x"}}]}),
    ("anthropic", {}),
    ("anthropic", {"content": "x"}),
]


@pytest.mark.parametrize(("kind", "payload"), SHAPES)
def test_an_answer_of_another_shape_is_malformed(kind: str, payload: object) -> None:
    with pytest.raises(ProviderMalformed):
        ask(kind, payload)


def test_broken_arguments_are_told_and_ids_are_made_unique() -> None:
    calls = [
        {"id": "a", "function": {"name": "x", "arguments": "{broken"}},
        {"id": "a", "function": {"name": "y", "arguments": "[1]"}},
        {"id": None, "function": {"name": None, "arguments": ""}},
        {"function": "nonsense"},
    ]
    answer, _ = ask("openai", {"choices": [{"message": {"content": None, "tool_calls": calls}}]})
    ids = [call.id for call in answer.tool_calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 4
    assert [bool(call.problem) for call in answer.tool_calls] == [True, True, True, True]
    assert answer.tool_calls[2].name == "unnamed"
