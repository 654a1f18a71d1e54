"""Tool calls as hostile answers have them: said to the model, never acted on, never a crash."""

from __future__ import annotations

import json

import pytest

from coilclaw.kernel.messages import ChatRequest, ChatResponse, Json, Message, ToolCall
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.gemini import Gemini
from coilclaw.models.openai import OpenAI
from coilclaw.models.tool_arguments import MAX_CALLS, number_calls, tool_call, wire_name
from tests.support.rawserver import response, serving

EMPTY = ChatRequest("", (Message("user", "hi"),), "m")

BROKEN: list[tuple[Json, str]] = [
    ("{", "are not valid JSON"),
    ("nonsense", "are not valid JSON"),
    ("{} {}", "are not valid JSON"),
    ("[]", "are not a JSON object"),
    ('"x"', "are not a JSON object"),
    ("5", "are not a JSON object"),
    (5, "are not a JSON object"),
    ([], "are not a JSON object"),
    ('{"a": 1, "a": 2}', "have the key 'a' twice"),
    ('{"a": [{"b": 1, "b": 1}]}', "have the key 'b' twice"),
    ('{"a": NaN}', "are not valid JSON"),
    ('{"a": -Infinity}', "are not valid JSON"),
    ('{"a": 1e999}', "hold a number that is too large"),
    ('{"a": 9007199254740992}', "hold an integer beyond"),
    ('{"a": ' + "9" * 5000 + "}", "are not valid JSON"),
    ('{"a": ' + "[" * 65 + "]" * 65 + "}", "are nested more than 64 levels deep"),
    ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "are nested too deeply"),
    ('{"a": "\\ud800"}', "hold text that is not valid Unicode"),
    ('{"\\udfff": 1}', "hold a key that is not valid Unicode"),
]


@pytest.mark.parametrize(("arguments", "problem"), BROKEN)
def test_arguments_that_cannot_be_used_are_a_problem(arguments: Json, problem: str) -> None:
    call = tool_call("x", arguments, "c1")
    assert call.problem is not None
    assert problem in call.problem
    assert len(call.problem) < 300
    assert (call.id, call.name, call.arguments) == ("c1", "x", {})


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("", {}),
        ("  ", {}),
        (None, {}),
        ("{}", {}),
        ('{"a": {"a": 1}}', {"a": {"a": 1}}),
        ('{"a": 9007199254740991}', {"a": 2**53 - 1}),
        ('{"a": "\\ud83d\\ude00\\u0000"}', {"a": "\U0001f600\0"}),
        ('{"a": ' + "[" * 63 + "]" * 63 + "}", None),
    ],
)
def test_arguments_that_can_be_used_are(arguments: Json, found: dict[str, Json] | None) -> None:
    call = tool_call("x", arguments, "c1")
    assert call.problem is None
    assert found is None or call.arguments == found


@pytest.mark.parametrize("name", [None, "", 5, {}, "x" * 65])
def test_a_call_without_a_usable_name_is_a_problem(name: object) -> None:
    call = tool_call(name, {"a": 1}, "c1")
    assert call.problem is not None
    assert call.arguments == {}
    assert 0 < len(call.name) <= 64


@pytest.mark.parametrize("identity", [None, "", 5, "a b", "a\nb", "ä", "x" * 65, []])
def test_an_id_that_is_none_is_given_up(identity: object) -> None:
    assert tool_call("x", {}, identity).id == ""


def made(*ids: str) -> list[ToolCall]:
    return [ToolCall(identity, "x", {}) for identity in ids]


def test_ids_are_unique_within_an_answer_and_in_the_conversation() -> None:
    spoken = ChatRequest(
        "",
        (Message("user", "hi"), Message("assistant", "", tuple(made("a", "call-1", "a-2")))),
        "m",
    )
    found = number_calls(made("a", "", "b", "b", ""), spoken)
    assert [call.id for call in found] == ["a-3", "call-2", "b", "b-2", "call-5"]


def test_too_many_calls_are_told() -> None:
    found = number_calls(made(*map(str, range(MAX_CALLS + 200))), EMPTY)
    assert len(found) == MAX_CALLS + 1
    assert all(call.problem is None for call in found[:MAX_CALLS])
    assert found[-1].problem is not None
    assert "200 in all" in found[-1].problem
    assert len(number_calls(made(*map(str, range(MAX_CALLS))), EMPTY)) == MAX_CALLS


def test_a_name_that_was_made_up_is_sent_as_every_api_takes_it() -> None:
    assert wire_name("functions.shell") == "functions_shell"
    assert wire_name("a b\0/ä") == "a_b___"
    assert wire_name("x" * 100) == "x" * 64
    assert wire_name("file_list-2") == "file_list-2"


def openai(message: object) -> ChatResponse:
    body = json.dumps({"choices": [{"message": message}]}).encode()
    with serving(response(body)) as server:
        return OpenAI(ModelEndpoint("m", server.url), "m").chat(EMPTY)


def test_text_that_cannot_be_stored_is_made_so() -> None:
    assert openai({"content": "a\0b\ud800c😀"}).final_text == "a\ufffdb\ufffdc😀"
    assert openai({"content": "ab\n"}).final_text == "ab\n"


def test_duplicate_keys_are_seen_in_arguments_that_are_no_text() -> None:
    gemini = (
        b'{"candidates": [{"content": {"parts": '
        b'[{"functionCall": {"name": "x", "args": {"a": 1, "a": 2}}}]}}]}'
    )
    anthropic = b'{"content": [{"type": "tool_use", "name": "x", "input": {"a": 1, "a": 2}}]}'
    with serving(response(gemini), response(anthropic)) as server:
        place = ModelEndpoint("m", server.url)
        for wire in (Gemini(place, "g"), Anthropic(place, "a")):
            (call,) = wire.chat(EMPTY).tool_calls
            assert call.problem == "the arguments have the key 'a' twice in one object"


def test_a_thought_signature_is_kept_and_sent_back() -> None:
    part = {"functionCall": {"name": "x", "args": {}}, "thoughtSignature": "c2lnbmVk"}
    body = json.dumps({"candidates": [{"content": {"parts": [part]}}]}).encode()
    with serving(response(body), response(body)) as server:
        gemini = Gemini(ModelEndpoint("m", server.url), "g")
        (call,) = gemini.chat(EMPTY).tool_calls
        assert call.signature == "c2lnbmVk"
        again = Message("assistant", "", (call,)), Message("tool", "out", tool_call_id=call.id)
        gemini.chat(ChatRequest("", (*EMPTY.messages, *again), "m"))
        sent = json.loads(server.received[1].partition(b"\r\n\r\n")[2])
    assert sent["contents"][1] == {"role": "model", "parts": [part]}


def history() -> ChatRequest:
    calls = (ToolCall("a.b:0", "functions.ls", {}), ToolCall("ok", "ls", {"p": 1}))
    return ChatRequest(
        "",
        (
            Message("user", "hi"),
            Message("assistant", " ", calls),
            Message("tool", "one", tool_call_id="a.b:0"),
            Message("tool", "two", tool_call_id="ok"),
            Message("assistant", ""),
            Message("user", "go on"),
        ),
        "m",
    )


def test_gemini_gets_all_results_of_a_round_at_once_and_no_empty_message() -> None:
    body = json.dumps({"candidates": [{"content": {"parts": []}}]}).encode()
    with serving(response(body)) as server:
        Gemini(ModelEndpoint("m", server.url), "g").chat(history())
        sent = json.loads(server.received[0].partition(b"\r\n\r\n")[2])["contents"]
    assert [content["role"] for content in sent] == ["user", "model", "user", "user"]
    assert [part["functionResponse"] for part in sent[2]["parts"]] == [
        {"name": "functions_ls", "response": {"output": "one"}},
        {"name": "ls", "response": {"output": "two"}},
    ]


def test_anthropic_gets_ids_and_texts_that_it_takes() -> None:
    body = json.dumps({"content": [], "stop_reason": "end_turn"}).encode()
    with serving(response(body)) as server:
        Anthropic(ModelEndpoint("m", server.url), "a").chat(history())
        sent = json.loads(server.received[0].partition(b"\r\n\r\n")[2])["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "user"]
    used, results = sent[1]["content"], sent[2]["content"]
    assert [block["type"] for block in used] == ["tool_use", "tool_use"]
    assert [block["id"] for block in used] == [block["tool_use_id"] for block in results]
    assert used[0]["id"].replace("-", "").isalnum()
    assert used[1]["id"] == "ok"
