"""No script and no request breaks the scripted model; what it is told to say arrives."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coilclaw.cli.model_server import script_file
from coilclaw.cli.model_server.dialect import MOST_PIECES, cut_text
from coilclaw.cli.model_server.script import ModelScript
from coilclaw.cli.model_server.server import ModelServer
from tests.support.scale import scaled
from tests.unit.modelserver.asking import (
    DIALECTS,
    Heard,
    Question,
    Turn,
    ask,
    connect,
    hear,
)

_UNKNOWN = script_file.parse_script(b'[{"text": "", "?": 1}]')
assert isinstance(_UNKNOWN, tuple)
ANSWER_KEYS = _UNKNOWN[0].allowed

# Words that mean something, so that what is generated gets past the first check.
WORDS = st.sampled_from(
    sorted(
        set(ANSWER_KEYS)
        | {"answers", "turns", "models", "strict", "role", "user", "assistant", "tool", "system"}
        | {"messages", "input", "contents", "parts", "content", "type", "name", "tools", "stream"}
        | {"function", "parameters", "properties", "required", "functionDeclarations", "message"}
        | {"functionResponse", "tool_result", "namespace", "custom", "local_shell", "reasoning"}
        | {"exec_command", "apply_patch", "function_call", "model", "max_tokens", "array", "enum"}
        | {"stream_options", "include_usage", "include", "systemInstruction", "instructions"}
    )
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)
COUNT = scaled(full=400, default=80)
quick = settings(
    max_examples=COUNT,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

SCRIPT = {
    "answers": [
        {"text": "x", "when": {"stream": True}},
        {"shell": "ls", "write": {"path": "a", "content": "b"}, "when": {"dialect": "responses"}},
        {"reasoning": "r", "tool_calls": [{"name": "ns/f", "input": "y"}]},
    ],
    "otherwise": {"text": "o"},
}


@quick
@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_script_or_have_problems(data: bytes) -> None:
    found = script_file.parse_script(data)
    assert isinstance(found, ModelScript) or (found and all(p.key.startswith("$") for p in found))


@quick
@given(st.lists(st.dictionaries(st.sampled_from(sorted(ANSWER_KEYS)), VALUES, max_size=4)))
def test_any_answers_are_a_script_or_have_problems(answers: list[Any]) -> None:
    found = script_file.parse_script(json.dumps(answers).encode())
    assert isinstance(found, ModelScript) or found


@contextmanager
def _connection(server: ModelServer) -> Iterator[http.client.HTTPConnection]:
    connection = connect(server)
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(SCRIPT, kept_requests=3) as server:
        yield server


def _send(server: ModelServer, question: Question, body: bytes) -> tuple[int, bytes]:
    with _connection(server) as connection:
        connection.request("POST", question.path, body, question.all_headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("dialect", DIALECTS)
@quick
@given(data=VALUES, stream=st.booleans())
def test_any_json_gets_an_answer_or_a_reason(
    server: ModelServer, dialect: str, data: object, stream: bool
) -> None:
    status, body = _send(server, Question(dialect, stream), json.dumps(data).encode())
    assert status in {200, 400}
    if status == 400:
        assert json.loads(body)["error"]["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
@quick
@given(
    changes=st.dictionaries(WORDS, VALUES, max_size=3),
    history=st.lists(st.dictionaries(WORDS, VALUES, max_size=4), max_size=4),
    stream=st.booleans(),
)
def test_a_good_request_with_odd_parts_gets_an_answer_or_a_reason(
    server: ModelServer,
    dialect: str,
    changes: dict[str, Any],
    history: list[Any],
    stream: bool,
) -> None:
    question = Question(dialect, stream)
    body = dict(question.body)
    key = next(key for key in ("messages", "input", "contents") if key in body)
    body[key] = [*body[key], *history]
    status, answer = _send(server, question, json.dumps({**body, **changes}).encode())
    assert status in {200, 400}
    if status == 400:
        assert json.loads(answer)["error"]["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=scaled(full=150, default=25), deadline=None)
@given(
    text=st.text(max_size=300),
    reasoning=st.text(min_size=1, max_size=100),
    calls=st.lists(
        st.tuples(
            st.text("abcdef", min_size=1, max_size=8),
            st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(), max_size=3),
        ),
        max_size=3,
    ),
    stream=st.booleans(),
)
def test_what_the_script_says_arrives(
    dialect: str,
    text: str,
    reasoning: str,
    calls: list[tuple[str, dict[str, Any]]],
    stream: bool,
) -> None:
    answer = {
        "text": text,
        "reasoning": reasoning,
        "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls],
    }
    question = Question(dialect, stream)
    with ModelServer([answer]) as server:
        heard = hear(question, ask(server, question))
    assert Heard(heard.text, heard.reasoning, heard.calls) == Heard(text, reasoning, tuple(calls))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=scaled(full=100, default=15), deadline=None)
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    parallel=st.lists(st.integers(1, 3), min_size=16, max_size=16),
)
def test_a_whole_conversation_plays_the_script_in_order(
    dialect: str, lengths: list[int], parallel: list[int]
) -> None:
    turns = [
        [
            {
                "text": f"{prompt}.{index}",
                "tool_calls": []
                if index == length - 1
                else [{"name": f"t{number}"} for number in range(parallel[prompt * 4 + index])],
            }
            for index in range(length)
        ]
        for prompt, length in enumerate(lengths)
    ]
    heard: list[str] = []
    history: tuple[Turn, ...] = ()
    with ModelServer({"turns": turns}) as server:
        for prompt, length in enumerate(lengths):
            history += (Turn(prompt=f"prompt {prompt}"),)
            for _ in range(length):
                question = Question(dialect, stream=prompt % 2 == 0, turns=history)
                said = hear(question, ask(server, question))
                heard.append(said.text)
                history += (Turn(text=said.text, calls=tuple(name for name, _ in said.calls)),)
    assert heard == [str(answer["text"]) for answers in turns for answer in answers]


@given(st.text(max_size=5000))
def test_pieces_make_the_text_and_are_few(text: str) -> None:
    found = cut_text(text)
    assert "".join(found) == text
    assert len(found) <= MOST_PIECES
    assert all(found)
