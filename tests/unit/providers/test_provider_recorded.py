"""Conversations that are recorded, and played back."""

from __future__ import annotations

import json
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import (
    EnvironmentFault,
    ProviderError,
    ProviderRejected,
    ProviderTimeout,
    UsageError,
)
from coilclaw.kernel.messages import (
    ChatRequest,
    ChatResponse,
    Json,
    Message,
    Provider,
    ToolCall,
    ToolSpec,
    Usage,
)
from coilclaw.kernel.secret import Secret
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.event_stream import ask
from coilclaw.models.mock import Mock, parse_fixture
from coilclaw.models.openai import OpenAI
from coilclaw.models.recorded_answers import (
    KINDS,
    AnswerRecording,
    Playing,
    decode,
    describe_request,
    encode,
)
from coilclaw.policy.redaction import SecretRedactor

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "recorded" / "exchanges.jsonl"
KEY = "sk-canary-0123456789abcdef"


def mock(*answers: Json) -> Mock:
    made, problems = parse_fixture(list(answers))
    assert problems == []
    return Mock("m", "m", made)


def request(*messages: Message | str, system: str = "Be brief.") -> ChatRequest:
    made = tuple(m if isinstance(m, Message) else Message("user", m) for m in messages)
    return ChatRequest(system, made, "m", (ToolSpec("time", "tells it", {"type": "object"}),), 0.5)


def round_of(call: ToolCall, output: str) -> tuple[Message, Message]:
    return Message("assistant", "", (call,)), Message("tool", output, tool_call_id=call.id)


def converse(provider: Provider, output: str = "10:00", system: str = "Be brief.") -> list[str]:
    """Ask, call a tool, ask again, and be refused once."""
    first = provider.chat(request("What time is it?", system=system))
    (call,) = first.tool_calls
    asked = ("What time is it?", *round_of(call, output))
    second = provider.chat(request(*asked, system=system))
    with pytest.raises(ProviderTimeout) as caught:
        provider.chat(request(*asked, Message("assistant", second.final_text), "And now?"))
    return [first.final_text, call.name, second.final_text, caught.value.message]


ANSWERS: tuple[Json, ...] = (
    {"text": "I look.", "tool_calls": [{"name": "time", "arguments": {"zone": "UTC", "n": 1.5}}]},
    {"text": "It is ten."},
    {"error": "timeout"},
)


def recording(path: Path) -> AnswerRecording:
    return AnswerRecording("taped", mock(*ANSWERS), path)


def test_a_conversation_is_played_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "exchanges.jsonl"
    spoken = converse(recording(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes().splitlines()) == 3
    assert converse(Playing("taped", path)) == spoken
    assert spoken[:3] == ["I look.", "time", "It is ten."]


def test_times_ids_and_prompts_may_drift_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "exchanges.jsonl"
    spoken = converse(recording(path))
    with caplog.at_level(logging.INFO):
        assert converse(Playing("taped", path), output="11:30", system="Now is later.") == spoken
    said = [record.getMessage() for record in caplog.records]
    assert said[0].endswith("was recorded with another system_prompt")
    assert said[1].endswith("was recorded with another system_prompt, message 3")


def other(**changes: object) -> ChatRequest:
    call = ToolCall("call-1", "time", {"zone": "UTC", "n": 1.5})
    asked = request("What time is it?", *round_of(call, "10:00"))
    return replace(asked, **changes)  # type: ignore[arg-type]  # each test knows its fields


DIFFERENT: list[tuple[ChatRequest, str]] = [
    (
        request("What day is it?"),
        "1: recorded 'user: What time is it?', asked 'user: What day is it?'",
    ),
    (
        request("What time is it?", *round_of(ToolCall("x", "date", {}), "o")),
        '\'assistant: calls time {"n":1.5,"zone":"UTC"}\', asked \'assistant: calls date {}\'',
    ),
    (
        request("What time is it?", *round_of(ToolCall("x", "time", {"zone": "CET"}), "o")),
        "exchange 2 differs at message 2",
    ),
    (
        request("What time is it?", Message("assistant", "It is ten.")),
        "exchange 2 differs at message 2: recorded 'assistant: calls",
    ),
    (
        other(messages=(*other().messages, Message("user", "x"))),
        "exchange 3 differs at message 4: recorded 'assistant: text', asked 'user: x'",
    ),
]


@pytest.mark.parametrize(("asked", "difference"), DIFFERENT)
def test_a_request_that_was_not_recorded_is_told_by_its_first_difference(
    tmp_path: Path, asked: ChatRequest, difference: str
) -> None:
    path = tmp_path / "exchanges.jsonl"
    converse(recording(path))
    with pytest.raises(ProviderRejected) as caught:
        Playing("taped", path).chat(asked)
    assert difference in caught.value.message
    assert caught.value.rule == "provider.recording"


def test_an_exchange_is_played_once_and_the_same_question_gets_its_answers_in_order(
    tmp_path: Path,
) -> None:
    path = tmp_path / "exchanges.jsonl"
    tape = AnswerRecording("taped", mock({"text": "one"}, {"text": "two"}, {"text": "else"}), path)
    for question in ("hi", "hi", "other"):
        tape.chat(request(question))
    playing = Playing("taped", path)
    asked = [playing.chat(request(question)).final_text for question in ("other", "hi", "hi")]
    assert asked == ["else", "one", "two"]
    with pytest.raises(ProviderRejected, match="all 3 exchanges were played"):
        playing.chat(request("hi"))


def test_no_secret_is_recorded_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "exchanges.jsonl"
    redact = SecretRedactor((Secret(KEY), Secret("98765432101"))).redact
    call: Json = {"name": "time", "arguments": {KEY: [KEY, 98765432101]}}
    tape = AnswerRecording("taped", mock({"text": f"so {KEY}", "tool_calls": [call]}), path, redact)
    asked = request(
        f"use {KEY}",
        *round_of(ToolCall("c", "time", {"key": KEY}), f"out {KEY}"),
        system=f"prompt {KEY}",
    )
    spoken = tape.chat(asked)
    assert KEY in spoken.final_text
    raw = path.read_text(encoding="utf-8")
    assert KEY not in raw
    assert "98765432101" not in raw
    assert Playing("taped", path, redact).chat(asked).final_text == redact(spoken.final_text)


def test_drafts_pass_through_a_recording(tmp_path: Path) -> None:
    path, drafts = tmp_path / "exchanges.jsonl", list[str]()
    text = "a text that comes in several pieces"
    with ModelServer([{"text": text}]) as server:
        wire = OpenAI(ModelEndpoint("m", server.url), "x")
        found = ask(AnswerRecording("taped", wire, path), request("hi"), drafts.append)
        wire.close()
    assert (found.final_text, "".join(drafts)) == (text, text)
    assert len(drafts) > 2
    assert Playing("taped", path).chat(request("hi")).final_text == text


def test_a_line_that_a_crash_left_is_left_out_and_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "exchanges.jsonl"
    AnswerRecording("taped", mock({"text": "one"}), path).chat(request("hi"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2] * 3)
    assert Playing("taped", path).chat(request("hi")).final_text == "one"
    assert "is unfinished" in caplog.text
    AnswerRecording("taped", mock({"text": "two"}), path).chat(request("ho"))
    assert path.read_bytes().startswith(whole)
    assert Playing("taped", path).chat(request("ho")).final_text == "two"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"nonsense\n", "line 1: "),
        (b"[]\n", "line 1: the line is not an object"),
        (b"\n", "line 1: "),
        (b'{"format":"other"}\n', "line 1: its format is not coilclaw.exchange.v1"),
        (b'{"format":"coilclaw.exchange.v1"}\n', "line 1: its request is not an object"),
        (b'{"format":"coilclaw.exchange.v1","request":{}}\n', "its response is not an object"),
        (
            b'{"format":"coilclaw.exchange.v1","request":{},"error":{"kind":"x"}}\n',
            "its error is none of network",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, raw: bytes, problem: str) -> None:
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(raw)
    with pytest.raises(UsageError) as caught:
        Playing("taped", path)
    assert caught.value.rule == "provider.recording"
    assert problem in caught.value.message


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Playing("taped", tmp_path / "none.jsonl")
    with pytest.raises(EnvironmentFault, match="cannot write to the recording"):
        recording(tmp_path / "no" / "folder.jsonl").chat(request("hi"))
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    with pytest.raises(EnvironmentFault, match="cannot write to the recording"):
        recording(tmp_path / "link").chat(request("hi"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_error_is_played_as_what_it_was(kind: type[ProviderError]) -> None:
    line = encode(describe_request(request("hi"), str), kind("said", provider="m"), str)
    outcome = decode(line, "taped").outcome
    assert isinstance(outcome, ProviderError)
    assert (type(outcome), outcome.message, outcome.provider) == (kind, "said", "taped")


SAID: list[tuple[ChatRequest, ChatResponse | ProviderError]] = [
    (
        request("Grüße \U0001f40d", system='quote " backslash \\ newline \n'),
        ChatResponse(
            "I look.",
            (
                ToolCall("c1", "time", {"b": 1.5, "a": [None, True, "ä"]}, None, "c2lnbmVk"),
                ToolCall("c2", "unnamed", {}, "the call names no tool"),
            ),
            b"not kept",
            Usage(3, None),
            "model-x",
        ),
    ),
    (
        request(
            "hi",
            *round_of(ToolCall("c1", "time", {"zone": "UTC"}), "10:00"),
            Message("assistant", "It is ten."),
        ),
        ChatResponse("Done."),
    ),
    (
        ChatRequest("", (Message("user", "hi"),), "m"),
        ProviderTimeout("m did not answer in time", provider="m"),
    ),
]


def test_exchanges_are_written_today_as_the_baseline_has_them() -> None:
    lines = [encode(describe_request(asked, str), outcome, str) for asked, outcome in SAID]
    assert BASELINE.read_bytes() == b"".join(line + b"\n" for line in lines)


def test_the_baseline_reads_as_it_was_written() -> None:
    playing = Playing("taped", BASELINE)
    for asked, outcome in SAID:
        if isinstance(outcome, ProviderError):
            with pytest.raises(type(outcome), match=outcome.message):
                playing.chat(asked)
        else:
            usage = outcome.usage or Usage()
            expected = replace(outcome, raw_provider_payload=None, usage=usage)
            # The conversation has a call named c1 in the second exchange only.
            assert playing.chat(asked) == expected


def test_every_line_of_the_baseline_is_canonical() -> None:
    for line in BASELINE.read_text(encoding="utf-8").splitlines():
        value = json.loads(line)
        compact = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert compact == line
