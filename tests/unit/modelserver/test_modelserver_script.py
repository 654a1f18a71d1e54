"""The script file: whole scripts, and every problem of a wrong one in one pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server import script_file
from coilclaw.cli.model_server.script import (
    CallTool,
    Counts,
    Cut,
    DialectName,
    ErrorBody,
    Fault,
    Hang,
    Malformed,
    ModelScript,
    RunShell,
    ScriptedAnswer,
    ScriptedWrite,
    ScriptPlace,
    Slow,
    Stop,
    When,
)
from coilclaw.cli.model_server.script_file import DEFAULT_HUGE_BYTES
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.secret import Secret

QUIET = Fault(size=DEFAULT_HUGE_BYTES)


def problems(value: object) -> list[str]:
    found = script_file.parse_script(json.dumps(value).encode())
    assert isinstance(found, tuple), found
    return [str(problem) for problem in found]


def fault(**fields: Any) -> Fault:
    return Fault(**{"size": DEFAULT_HUGE_BYTES, **fields})


def test_a_list_of_answers_is_a_script() -> None:
    assert script_file.make_script([{"text": "a"}, {"text": "b"}]) == ModelScript(
        answers=(
            ScriptedAnswer("$[0]", text="a", fault=QUIET),
            ScriptedAnswer("$[1]", text="b", fault=QUIET),
        )
    )


def test_a_script_with_everything() -> None:
    value = {
        "turns": [
            [
                {
                    "text": "t",
                    "reasoning": "r",
                    "tool_calls": [
                        {"name": "f", "arguments": {"a": [1]}, "id": "call_1"},
                        {"name": "p", "input": "free"},
                    ],
                    "shell": "ls",
                    "write": [{"path": "a", "content": ""}, {"path": "b", "content": "x"}],
                    "stop": "length",
                    "usage": {"input": 1, "output": 2, "cached": 3, "reasoning": 4},
                    "when": {
                        "prompt": ["one", "two"],
                        "system": "good",
                        "model": "m",
                        "dialect": "gemini",
                        "stream": False,
                        "headers": {"X-Retry": "0"},
                    },
                    "headers": {"x-a": "b"},
                    "sleep": 1,
                    "slow": {"bytes_per_second": 10},
                    "cut": {"after_events": 2, "reset": True},
                    "faults": [
                        {"status": 429, "retry_after": 0.5, "headers": {"x-c": "d"}},
                        {"status": 302, "body": {"a": 1}, "retry_after": "Fri, 31 Dec"},
                        {"hang": True},
                    ],
                }
            ],
            [{"when": "x", "malformed": "huge", "size": 7}, {"hang": {"after_bytes": 0}}],
        ],
        "models": ["a", "b"],
        "otherwise": {"status": 500, "body": "plain"},
        "stateful": True,
        "require_key": "sk-1",
        "context_prefixes": ["<note>"],
    }
    first = ScriptedAnswer(
        "$.turns[0][0]",
        text="t",
        reasoning="r",
        actions=(
            CallTool("f", {"a": [1]}, id="call_1"),
            CallTool("p", {}, "free"),
            RunShell("ls"),
            ScriptedWrite("a", ""),
            ScriptedWrite("b", "x"),
        ),
        stop=Stop.LENGTH,
        usage=Counts(1, 2, 3, 4),
        when=When(("one", "two"), ("good",), "m", DialectName.GEMINI, False, (("x-retry", "0"),)),
        fault=fault(
            headers=(("x-a", "b"),),
            sleep_s=1.0,
            slow=Slow(bytes_per_second=10),
            cut=Cut(ScriptPlace(after_events=2), reset=True),
        ),
        faults=(
            fault(status=429, retry_after="0.5", headers=(("x-c", "d"),)),
            fault(
                status=302,
                body=ErrorBody(b'{"a": 1}', "application/json"),
                retry_after="Fri, 31 Dec",
            ),
            fault(hang=Hang()),
        ),
    )
    assert script_file.make_script(value) == ModelScript(
        turns=(
            (first,),
            (
                ScriptedAnswer(
                    "$.turns[1][0]",
                    when=When(("x",)),
                    fault=Fault(malformed=Malformed.HUGE, size=7),
                ),
                ScriptedAnswer(
                    "$.turns[1][1]", fault=fault(hang=Hang(place=ScriptPlace(after_bytes=0)))
                ),
            ),
        ),
        models=("a", "b"),
        otherwise=ScriptedAnswer(
            "$.otherwise",
            fault=fault(status=500, body=ErrorBody(b"plain", "text/plain; charset=utf-8")),
        ),
        stateful=True,
        require_key=Secret("sk-1"),
        context_prefixes=("<note>",),
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"hang": 2.5}, fault(hang=Hang(2.5))),
        ({"hang": {"seconds": 1, "after_events": 1}}, fault(hang=Hang(1.0, ScriptPlace(None, 1)))),
        ({"hang": {}}, fault(hang=Hang())),
        ({"cut": True}, fault(cut=Cut())),
        ({"cut": {"after_bytes": 3}}, fault(cut=Cut(ScriptPlace(3)))),
        ({"slow": {"delay_s": 0.5}}, fault(slow=Slow(delay_s=0.5))),
        *(({"malformed": word.value}, fault(malformed=word)) for word in Malformed),
    ],
)
def test_a_fault(answer: dict[str, Any], expected: Fault) -> None:
    assert script_file.make_script([answer]).answers == (ScriptedAnswer("$[0]", fault=expected),)


def test_a_script_that_is_not_strict_has_an_answer_past_its_end() -> None:
    assert script_file.make_script({"answers": []}).otherwise is None
    assert script_file.make_script({"answers": [], "strict": True}).otherwise is None
    assert script_file.make_script({"answers": [], "strict": False}).otherwise == ScriptedAnswer(
        "$.otherwise", text="(the script has no further answer)"
    )


def test_all_problems_are_found_in_one_pass() -> None:
    value = {
        "answers": [
            {"txt": "typo"},
            {},
            7,
            {"text": 7, "tool_calls": [{"arguments": []}, "f"], "stop": "never"},
        ],
        "strict": "yes",
        "models": ["", 1],
    }
    assert problems(value) == [
        (
            "$.answers[0].txt: is not a known key; did you mean 'text'? (allowed: stop, text, "
            "reasoning, tool_calls, shell, write, stop_as, usage, when, malformed, headers, "
            "status, body, retry_after, sleep, hang, cut, slow, size, faults)"
        ),
        "$.answers[1]: says nothing: give it text, tool_calls or a fault",
        "$.answers[2]: must be a table, not a whole number",
        "$.answers[3].stop: is 'never' (allowed: stop, length, content_filter, tool_calls)",
        "$.answers[3].text: must be a string, not a whole number",
        "$.answers[3].tool_calls[0].name: is missing",
        "$.answers[3].tool_calls[0].arguments: must be a table, not a list",
        "$.answers[3].tool_calls[1]: must be a table, not a string",
        "$.models[0]: is empty",
        "$.models[1]: must be a string, not a whole number",
        "$.strict: must be true or false, not a string",
    ]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        # What does not go together
        ({"status": 500, "text": "x"}, ".text: is never sent beside a status"),
        ({"status": 500, "usage": {}}, ".usage: is never sent beside a status"),
        ({"status": 500, "malformed": "json"}, ".malformed: and status exclude each other"),
        ({"cut": True, "hang": {"after_bytes": 1}}, ".cut: and hang exclude each other"),
        ({"cut": True, "malformed": "json"}, ".malformed: and cut exclude each other"),
        (
            {"hang": {"after_bytes": 1}, "malformed": "json"},
            ".malformed: and hang exclude each other",
        ),
        (
            {"hang": True, "text": "x"},
            ".text: is never sent, because hang without a place sends nothing",
        ),
        (
            {"hang": True, "slow": {"delay_s": 1}},
            ".slow: is never sent, because hang without a place sends nothing",
        ),
        ({"text": "x", "body": {}}, ".body: needs a status"),
        ({"text": "x", "retry_after": 1}, ".retry_after: needs a status"),
        ({"text": "x", "size": 1}, ".size: needs malformed to be huge"),
        ({"text": "x", "stop": "stop", "stop_as": "y"}, ".stop_as: and stop exclude each other"),
        (
            {"text": "x", "stop": "tool_calls"},
            ".stop: is tool_calls, but the answer calls no tool",
        ),
        (
            {"text": "x", "faults": []},
            ".faults: needs a script that is stateful, because a retry repeats the request",
        ),
        # What is out of bounds
        ({"status": 200}, ".status: is out of bounds: it must be at least 300 and at most 599"),
        ({"status": 600}, ".status: is out of bounds: it must be at least 300 and at most 599"),
        ({"status": True}, ".status: must be a whole number, not true or false"),
        ({"status": 304}, ".status: 304 has no body, and no model answers with it"),
        ({"sleep": -1}, ".sleep: is out of bounds: it must be at least 0 and at most 3600"),
        ({"sleep": 3601}, ".sleep: is out of bounds: it must be at least 0 and at most 3600"),
        ({"hang": 1e9}, ".hang: is out of bounds: it must be at least 0 and at most 3600"),
        (
            {"malformed": "huge", "size": 2**30 + 1},
            ".size: is out of bounds: it must be at least 1 and at most 1073741824",
        ),
        (
            {"text": "x", "usage": {"input": -1}},
            ".usage.input: is out of bounds: it must be at least 0 and at most 9.00719925474e+15",
        ),
        (
            {"text": "x", "usage": {"output": 1.5}},
            ".usage.output: must be a whole number, not a number",
        ),
        # What has the wrong form
        (
            {"hang": False},
            ".hang: must be true, a number of seconds or an object",
        ),
        ({"cut": False}, ".cut: must be true or an object"),
        ({"cut": {"after_bytes": "x"}}, ".cut.after_bytes: must be a whole number, not a string"),
        ({"slow": {}}, ".slow: needs either bytes_per_second or delay_s"),
        ({"slow": 1}, ".slow: must be a table, not a whole number"),
        ({"malformed": "bad"}, ".malformed: is 'bad' (allowed: json, truncated, empty, not-json, "),
        ({"malformed": None}, ".malformed: must be a string, not null"),
        ({"status": 500, "retry_after": []}, ".retry_after: must be a number, not a list"),
        ({"status": 500, "retry_after": "a\nb"}, ".retry_after: is not what a header can hold"),
        ({"text": "x", "stop_as": ""}, ".stop_as: is empty"),
        ({"shell": 1}, ".shell: must be the text of a command, not a whole number"),
        ({"shell": ["a", 1]}, ".shell[1]: must be the text of a command, not a whole number"),
        ({"write": {"path": "a"}}, ".write.content: is missing"),
        ({"write": {"content": "a"}}, ".write.path: is missing"),
        ({"write": "a"}, ".write: must be a table, not a string"),
        ({"tool_calls": {}}, ".tool_calls: must be a list, not a table"),
        (
            {"tool_calls": [{"name": "f", "arguments": {}, "input": ""}]},
            ".tool_calls[0].input: is for freeform tools, and arguments for all others: give one",
        ),
        ({"text": "x", "headers": []}, ".headers: must be a table, not a list"),
        ({"text": "x", "headers": {"a": 1}}, ".headers.a: must be a string, not a whole number"),
        ({"text": "x", "headers": {"a b": ""}}, '.headers."a b": is not the name of a header'),
        (
            {"text": "x", "headers": {"a": "b\r\nc: d"}},
            ".headers.a: holds a character that no header may hold",
        ),
        (
            {"text": "x", "headers": {"Content-Length": "1"}},
            ".headers.Content-Length: is set by the server itself",
        ),
        ({"text": "x", "when": ""}, ".when: is empty"),
        ({"text": "x", "when": ["a", None]}, ".when[1]: must be a string, not null"),
        (
            {"text": "x", "when": {"prompt": 1}},
            ".when.prompt: must be a string, not a whole number",
        ),
        (
            {"text": "x", "when": {"dialect": "x"}},
            ".when.dialect: is 'x' (allowed: chat, responses",
        ),
        ({"text": "x", "when": {"turn": 1}}, ".when.turn: is not a known key (allowed: dialect"),
        ({"when": "x", "headers": {}}, ": says nothing: give it text, tool_calls or a fault"),
    ],
)
def test_a_wrong_answer(answer: dict[str, Any], problem: str) -> None:
    (found,) = problems([answer])
    assert found.startswith(f"$[0]{problem}")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (7, "$: must be a table, not a whole number"),
        ({}, "$: needs either answers or turns"),
        ({"answers": [], "turns": []}, "$: needs either answers or turns"),
        ({"answers": {}}, "$.answers: must be a list, not a table"),
        ({"turns": [{}]}, "$.turns[0]: must be a list, not a table"),
        ({"answers": [], "require_key": ""}, "$.require_key: is empty"),
        (
            {"answers": [], "strict": True, "otherwise": {"text": "x"}},
            "$.otherwise: is never played by a script that is strict",
        ),
        (
            {"answers": [], "otherwise": {"text": "x", "when": "y"}},
            "$.otherwise.when: is not a known key",
        ),
        (
            {"answers": [{"text": "x"}] * 10_001},
            "$.answers: has 10001 items; at most 10000 are allowed",
        ),
        (
            {"stateful": True, "answers": [{"text": "x", "faults": [{}]}]},
            "$.answers[0].faults[0]: names no fault",
        ),
        (
            {"stateful": True, "answers": [{"text": "x", "faults": [{"text": "y"}]}]},
            "$.answers[0].faults[0].text: is not a known key",
        ),
    ],
)
def test_a_wrong_script(value: object, problem: str) -> None:
    assert problems(value)[0].startswith(problem)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "$: is not valid JSON: Expecting value at line 1, column 1"),
        (
            b"[{]",
            "$: is not valid JSON: Expecting property name enclosed in double quotes at line 1",
        ),
        (b"\xff", "$: is not valid UTF-8 at byte 0"),
        (b'[{"sleep": NaN}]', "$: has NaN, which is not valid JSON"),
        (b'[{"text": "a", "text": "b"}]', "$: has the key 'text' twice in one object"),
        (
            b'[{"tool_calls": [{"name": "f", "arguments": {"a b": 1, "a b": 2}}]}]',
            "$: has the key 'a b' twice in one object",
        ),
        (b"[" * 200 + b"]" * 200, "$: is nested more than 128 levels deep"),
        (b"[" * 100_000, "$: is nested more than 128 levels deep"),
    ],
)
def test_a_text_that_is_no_script(data: bytes, problem: str) -> None:
    found = script_file.parse_script(data)
    assert isinstance(found, tuple)
    assert str(found[0]).startswith(problem)
    assert len(found) == 1


def test_a_byte_order_mark_does_no_harm() -> None:
    assert isinstance(script_file.parse_script(b"\xef\xbb\xbf[]"), ModelScript)


def test_a_script_beyond_the_bound_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_file, "MAX_SCRIPT_BYTES", 10)
    assert isinstance(script_file.parse_script(b"[        ]"), ModelScript)
    found = script_file.parse_script(b"[         ]")
    assert isinstance(found, tuple)
    assert str(found[0]) == "$: is larger than 10 bytes"


def test_a_script_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('[{"text": "é"}]', encoding="utf-8")
    assert script_file.load_script(path) == ModelScript(
        answers=(ScriptedAnswer("$[0]", text="é", fault=QUIET),)
    )
    for missing in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(UsageError, match=r"the script .* does not exist") as caught:
            script_file.load_script(missing)
        assert caught.value.rule == "script.missing"
    with pytest.raises(EnvironmentFault, match=r"cannot read the script .*: Not a directory"):
        script_file.load_script(path / "below")


def test_a_value_with_problems_is_an_error_that_names_them() -> None:
    with pytest.raises(UsageError) as caught:
        script_file.make_script([{"text": 1}, {"sleep": "x"}])
    assert caught.value.rule == "script.invalid"
    assert caught.value.message == (
        "the script has problems: $[0].text: must be a string, not a whole number; "
        "$[1].sleep: must be a number, not a string"
    )
