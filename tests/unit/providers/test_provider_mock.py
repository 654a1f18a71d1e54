"""The mock provider and its fixtures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coilclaw.kernel.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRejected,
    ProviderTimeout,
    UsageError,
)
from coilclaw.kernel.messages import ChatRequest, ChatResponse, Message, ToolCall, ToolSpec
from coilclaw.models.mock import MAX_ANSWERS, MAX_FIXTURE_BYTES, Mock, load_fixture, parse_fixture


def request(*messages: Message | str) -> ChatRequest:
    made = (m if isinstance(m, Message) else Message("user", m) for m in messages or ("hi",))
    return ChatRequest("", tuple(made), "m", (ToolSpec("time", "tells it", {}),))


def mock(*answers: object, **options: float) -> Mock:
    made, problems = parse_fixture(json.loads(json.dumps(answers)))
    assert problems == []
    return Mock("played", "m", made, **options)  # type: ignore[arg-type]  # all are numbers


WRONG: list[tuple[object, str]] = [
    ({}, "is not a list of answers"),
    ("x", "is not a list of answers"),
    ([5], "$[0]: must be a table, not a whole number"),
    ([{}], "$[0]: has none of 'text', 'tool_calls' and 'error'"),
    ([{"when": "x"}], "$[0]: has none of"),
    ([{"text": 5}], "$[0].text: must be a string, not a whole number"),
    ([{"text": "a"}, {"txt": "b"}], "$[1].txt: is not a known key"),
    ([{"error": "boom"}], "$[0].error: is 'boom' (allowed: timeout, network, auth)"),
    ([{"error": ["x"]}], "$[0].error: must be a string, not a list"),
    ([{"error": "auth", "text": "x"}], "$[0].error: has an answer beside it"),
    ([{"tool_calls": {}}], "$[0].tool_calls: must be a list, not a table"),
    ([{"tool_calls": []}], "$[0].tool_calls: is empty"),
    ([{"tool_calls": [5]}], "$[0].tool_calls[0]: must be a table, not a whole number"),
    ([{"tool_calls": [{}]}], "$[0].tool_calls[0].name: is missing"),
    ([{"tool_calls": [{"name": 5}]}], "$[0].tool_calls[0].name: must be a string"),
    ([{"tool_calls": [{"name": "x", "args": {}}]}], "$[0].tool_calls[0].args: is not a known key"),
    ([{"tool_calls": [{"name": "x", "arguments": 5}]}], "$[0].tool_calls[0].arguments: is neither"),
    ([{"tool_calls": [{"name": "x", "id": 5}]}], "$[0].tool_calls[0].id: must be a string"),
    ([{"text": "x", "delay_s": -1}], "$[0].delay_s: is out of bounds: it must be at least 0"),
    ([{"text": "x", "delay_s": "1"}], "$[0].delay_s: must be a number, not a string"),
    ([{"text": "x", "delay_s": True}], "$[0].delay_s: must be a number, not true or false"),
    ([{"text": "x", "delay_s": 1e9}], "$[0].delay_s: is out of bounds: it must be"),
    ([{"text": "x", "when": 5}], "$[0].when: must be a string, not a whole number"),
]


@pytest.mark.parametrize(("value", "problem"), WRONG)
def test_a_wrong_fixture_is_refused(tmp_path: Path, value: object, problem: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_fixture(path)
    assert caught.value.rule == "provider.fixture"
    assert problem in caught.value.message
    assert str(path) in caught.value.message


def test_all_problems_of_a_fixture_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "fixture.json"
    path.write_text('[{"txt": 1}, {"text": "ok"}, {"tool_calls": [{"id": 1}]}]', encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_fixture(path)
    assert caught.value.message.count("; $") >= 3
    for place in (
        "$[0].txt: is not a known",
        "$[0]: has none",
        "$[2].tool_calls[0].name: is missing",
    ):
        assert place in caught.value.message


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"[", "is not valid JSON"),
        (b"\xff", "is not valid UTF-8"),
        (b'[{"text": NaN}]', "has NaN, which is not valid JSON"),
        (b"[" * 100_000, "is nested more than 256 levels deep"),
        (b'[{"text": "a", "text": "b"}]', "has the key 'text' twice in one object"),
        (b" " * (MAX_FIXTURE_BYTES + 1), "is larger than"),
        (b"[" + b"5," * MAX_ANSWERS + b"5]", "has more than 10,000 answers"),
    ],
)
def test_a_file_that_is_no_fixture_is_refused(tmp_path: Path, raw: bytes, problem: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_bytes(raw)
    with pytest.raises(UsageError, match=problem):
        load_fixture(path)


def test_a_fixture_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_fixture(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_fixture(tmp_path)


def test_answers_are_played_in_order_and_past_the_end_is_an_error() -> None:
    provider = mock(
        {"text": "one"},
        {"tool_calls": [{"name": "time", "arguments": {"a": 1}}], "text": "two"},
    )
    assert provider.chat(request()) == ChatResponse("one", model="m")
    calls = (ToolCall("call-1", "time", {"a": 1}),)
    assert provider.chat(request()) == ChatResponse("two", calls, model="m")
    with pytest.raises(ProviderRejected, match="all 2 answers were played") as caught:
        provider.chat(request())
    assert caught.value.rule == "provider.fixture"


@pytest.mark.parametrize(
    ("error", "kind"),
    [("timeout", ProviderTimeout), ("network", ProviderNetwork), ("auth", ProviderAuth)],
)
def test_an_error_is_raised_and_used_up(error: str, kind: type[ProviderError]) -> None:
    provider = mock({"error": error}, {"text": "after"})
    with pytest.raises(kind):
        provider.chat(request())
    assert provider.chat(request()).final_text == "after"


def test_an_answer_waits_for_its_message() -> None:
    provider = mock(
        {"text": "about cats", "when": "cat"},
        {"text": "about dogs", "when": "dog"},
        {"text": "anything"},
    )
    assert provider.chat(request("a dog")).final_text == "about dogs"
    assert provider.chat(request("a cat")).final_text == "about cats"
    assert provider.chat(request("a cat")).final_text == "anything"


def test_only_the_last_message_of_the_user_counts() -> None:
    provider = mock({"text": "x", "when": "cat"})
    with pytest.raises(ProviderRejected, match="none of the 1 answers that are left"):
        provider.chat(
            request("a cat", "a dog", Message("assistant", "cat"), Message("tool", "cat"))
        )
    assert provider.chat(request("a dog", "a cat", Message("tool", "dog"))).final_text == "x"


def test_a_delay_is_waited_and_one_beyond_the_time_limit_is_a_time_out() -> None:
    slept: list[float] = []
    made, _ = parse_fixture([{"text": "x", "delay_s": 2.5}, {"text": "y", "delay_s": 9}])
    provider = Mock("m", "m", made, timeout_s=3, sleep=slept.append)
    assert provider.chat(request()).final_text == "x"
    with pytest.raises(ProviderTimeout):
        provider.chat(request())
    assert slept == [2.5, 3]


def test_placeholders_stand_for_what_was_said() -> None:
    provider = mock(
        {
            "text": "{{user_message}}: {{tool_output}} {{other}} {tool_output}",
            "tool_calls": [
                {"name": "w", "arguments": {"a": ["{{tool_output}}"], "{{tool_output}}": 1}}
            ],
        }
    )
    said = request("list", Message("tool", "old"), Message("tool", "a.txt {{user_message}}"))
    found = provider.chat(said)
    assert found.final_text == "list: a.txt {{user_message}} {{other}} {tool_output}"
    assert found.tool_calls[0].arguments == {
        "a": ["a.txt {{user_message}}"],
        "{{tool_output}}": 1,
    }
    assert mock({"text": "<{{tool_output}}>"}).chat(request()).final_text == "<>"


def test_an_answer_beyond_the_bound_is_an_error_also_when_placeholders_make_it_so() -> None:
    large: list[object] = [
        {"text": "x" * 101},
        {"text": "{{user_message}}" * 5},
        {"tool_calls": [{"name": "w", "arguments": {"a": "x" * 101}}]},
        {"tool_calls": [{"name": "w", "arguments": "x" * 101}]},
    ]
    for answer in large:
        with pytest.raises(ProviderMalformed, match="larger than 100 bytes"):
            mock(answer, max_response_bytes=100).chat(request("y" * 30))
    assert mock({"text": "x" * 100}, max_response_bytes=100).chat(request()).final_text


def test_hostile_calls_can_be_played() -> None:
    made, problems = parse_fixture(
        [
            {
                "tool_calls": [
                    {"name": "a", "arguments": "{broken"},
                    {"name": "b", "arguments": '{"k": 1, "k": 2}'},
                    {"name": "", "arguments": {}},
                    {"name": "c", "id": "same"},
                    {"name": "d", "id": "same", "arguments": {"big": 2**60}},
                ],
            }
        ]
    )
    assert problems == []
    calls = Mock("m", "m", made).chat(request()).tool_calls
    assert [call.id for call in calls] == ["call-1", "call-2", "call-3", "same", "same-2"]
    assert [bool(call.problem) for call in calls] == [True, True, True, False, True]


def test_without_a_fixture_it_says_what_it_is_and_how_to_get_a_model() -> None:
    found = Mock().chat(request("What files are there?"))
    for words in ("mock provider", "What files are there?", "time", "default_provider"):
        assert words in found.final_text
    assert found.tool_calls == ()
    assert len(Mock().chat(request("x" * 10_000)).final_text) < 3000
