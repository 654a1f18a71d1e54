"""Answers by a schema: what goes out in each dialect, and what the services would refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import ProviderRejected, UsageError
from coilclaw.kernel.messages import ChatRequest, Json, Message, Provider
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.event_stream import ask
from coilclaw.models.gemini import Gemini
from coilclaw.models.mock import Mock, parse_fixture
from coilclaw.models.openai import OpenAI
from coilclaw.models.output_schema import MAX_DEPTH, narrow_schema
from coilclaw.models.provider_chain import Falling, Retrying, RetryPolicy, Router
from coilclaw.models.recorded_answers import AnswerRecording, Playing, describe_request, marks
from tests.unit.modelserver.asking import Question
from tests.unit.modelserver.asking import ask as ask_raw

SCHEMA: dict[str, Json] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "x.v1.json",
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "what it is called"},
        "kind": {"const": "a"},
        "open": {"type": "object"},
        "many": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/one"}},
        "either": {"oneOf": [{"type": "null"}, {"type": "integer", "minimum": 0}]},
    },
    "$defs": {"one": {"type": "object", "properties": {"n": {"enum": [1, None]}}}},
}
SENT: dict[str, Json] = {
    "type": "object",
    "required": ["name", "kind", "open", "many", "either"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "description": "what it is called"},
        "kind": {"type": "string", "enum": ["a"]},
        "open": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
        "many": {"type": "array", "items": {"$ref": "#/$defs/one"}},
        "either": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    },
    "$defs": {
        "one": {
            "type": "object",
            "properties": {"n": {"enum": [1, None], "type": ["integer", "null"]}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
}
FREE = ChatRequest("Answer in JSON.", (Message("user", "{}"),), "m")
BOUND = replace(FREE, output_schema=SCHEMA)
ANSWER = '{"name": "x"}'

MAKES: dict[str, Callable[[str], Provider]] = {
    "openai": lambda url: OpenAI(ModelEndpoint("o", url, None), "gpt-x"),
    "anthropic": lambda url: Anthropic(ModelEndpoint("a", url, None), "claude-x"),
    "gemini": lambda url: Gemini(ModelEndpoint("g", url, None), "gemini-x"),
}
PLACES: Mapping[str, tuple[str, Json]] = {
    "openai": (
        "response_format",
        {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SENT},
        },
    ),
    "anthropic": ("output_config", {"format": {"type": "json_schema", "schema": SENT}}),
    "gemini": (
        "generationConfig",
        {"responseMimeType": "application/json", "responseJsonSchema": SENT},
    ),
}


def body_of(server: ModelServer) -> dict[str, Json]:
    (recorded,) = server.requests
    assert isinstance(recorded.body, dict)
    return recorded.body


# ---- what cannot be asked -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "is not that of one object"),
        ({}, "is not that of one object"),
        ({"type": "object", "properties": {"a": {"$ref": "b.json"}}}, "another document"),
    ],
)
@pytest.mark.parametrize("kind", MAKES)
def test_a_schema_that_no_service_takes_is_not_sent(
    kind: str, schema: dict[str, Json], why: str
) -> None:
    with ModelServer([{"text": ANSWER}]) as server, pytest.raises(UsageError, match=why) as caught:
        MAKES[kind](server.url).chat(replace(FREE, output_schema=schema))
    assert caught.value.rule == "provider.output_schema"
    assert server.requests == []


def test_a_schema_is_nested_to_a_bound() -> None:
    schema: dict[str, Json] = {"type": "object"}
    for _ in range(MAX_DEPTH - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    assert narrow_schema(schema)["type"] == "object"
    with pytest.raises(UsageError, match="nested"):
        narrow_schema({"type": "object", "properties": {"a": schema}})


# ---- what goes out --------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", MAKES)
def test_the_schema_goes_where_the_api_wants_it(kind: str, streaming: bool) -> None:
    with ModelServer([{"text": ANSWER}]) as server:
        provider = MAKES[kind](server.url)
        response = ask(provider, BOUND, (lambda _: None) if streaming else None)
        place, value = PLACES[kind]
        assert body_of(server)[place] == value
    assert response.final_text == ANSWER


@pytest.mark.parametrize("kind", MAKES)
def test_without_a_schema_nothing_is_said_about_one(kind: str) -> None:
    with ModelServer([{"text": ANSWER}]) as server:
        MAKES[kind](server.url).chat(FREE)
        assert not {"response_format", "output_config", "generationConfig"} & set(body_of(server))


def test_gemini_keeps_the_temperature_beside_the_schema() -> None:
    with ModelServer([{"text": ANSWER}]) as server:
        MAKES["gemini"](server.url).chat(replace(BOUND, temperature=0.25))
        settings = body_of(server)["generationConfig"]
    assert isinstance(settings, dict)
    assert set(settings) == {"temperature", "responseMimeType", "responseJsonSchema"}


def test_the_schema_that_was_given_is_not_changed() -> None:
    before = repr(SCHEMA)
    assert narrow_schema(SCHEMA) == SENT
    assert repr(SCHEMA) == before


# ---- wrappers -------------------------------------------------------------------------------


def mock(*texts: str) -> Mock:
    answers, problems = parse_fixture([{"text": text} for text in texts])
    assert problems == []
    return Mock("m", "m", answers)


class Listening:
    """Keeps the requests that reach the provider."""

    name = "listening"
    capabilities = Mock().capabilities

    def __init__(self) -> None:
        self.heard: list[ChatRequest] = []

    def chat(self, request: ChatRequest) -> Any:
        self.heard.append(request)
        return mock(ANSWER).chat(request)


def test_wrappers_pass_the_schema_on(tmp_path: Path) -> None:
    heard = Listening()
    wrappers: list[Provider] = [
        Retrying(heard, RetryPolicy(), lambda _: None),
        Falling(((heard, "other"),)),
        Router("r", {}, heard),
        AnswerRecording("t", heard, tmp_path / "t.jsonl"),
    ]
    for wrapper in wrappers:
        wrapper.chat(BOUND)
    assert [request.output_schema for request in heard.heard] == [SCHEMA] * len(wrappers)


def test_a_recording_is_played_for_its_own_schema_only(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    AnswerRecording("t", mock("first", "second"), path).chat(BOUND)
    other = replace(FREE, output_schema={**SCHEMA, "title": "another"})
    for request in (FREE, other):
        with pytest.raises(ProviderRejected, match="answer by the schema"):
            Playing("t", path).chat(request)
    assert Playing("t", path).chat(BOUND).final_text == "first"


def test_a_request_without_a_schema_is_recorded_as_it_always_was() -> None:
    assert "output_schema" not in describe_request(FREE, str)
    assert marks(describe_request(FREE, str)) == ("user: {}",)
    assert len(marks(describe_request(BOUND, str))) == 2


def test_secrets_in_a_schema_are_not_recorded() -> None:
    bound = replace(FREE, output_schema={"type": "object", "description": "sk-secret"})
    kept = describe_request(bound, lambda text: text.replace("sk-secret", "***"))
    assert kept["output_schema"] == '{"description":"***","type":"object"}'


# ---- the model server refuses what the services refuse -------------------------------------

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
GOOD = {**CLOSED, "additionalProperties": False}


def chat(schema: object, **more: object) -> dict[str, object]:
    bound = {"name": "x", "strict": True, "schema": schema, **more}
    return {"response_format": {"type": "json_schema", "json_schema": bound}}


def responses(schema: object, **more: object) -> dict[str, object]:
    bound = {"type": "json_schema", "name": "x", "strict": True, "schema": schema, **more}
    return {"text": {"format": bound}}


def messages(schema: object, **more: object) -> dict[str, object]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema, **more}}}


def gemini(schema: object, **more: object) -> dict[str, object]:
    mime = {"responseMimeType": "application/json"}
    return {"generationConfig": {**mime, "responseJsonSchema": schema, **more}}


OPTIONAL = {**GOOD, "required": []}
REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("chat", chat(CLOSED), "additionalProperties must be present and false"),
    ("chat", chat(OPTIONAL), "required must name every property, and lacks 'a'"),
    ("chat", chat({"type": "array", "items": GOOD}), "must be of type 'object'"),
    ("chat", chat({**GOOD, "$defs": {"b": CLOSED}}), "schema.$defs.b: additionalProperties"),
    (
        "chat",
        chat({**GOOD, "properties": {"a": {"type": "array", "items": CLOSED}}}),
        "schema.properties.a.items: additionalProperties",
    ),
    (
        "chat",
        chat({**GOOD, "properties": {"a": {"anyOf": [GOOD, CLOSED]}}}),
        "schema.properties.a.anyOf[1]: additionalProperties",
    ),
    ("chat", chat(GOOD, name="a b"), "response_format.json_schema.name"),
    ("chat", chat("x"), "response_format.json_schema.schema: must be an object"),
    ("chat", {"response_format": {"type": "json_schema"}}, "json_schema.name"),
    ("responses", responses(CLOSED), "text.format.schema: additionalProperties"),
    ("responses", responses(GOOD, name=""), "text.format.name"),
    ("messages", messages(CLOSED), "output_config.format.schema: additionalProperties"),
    ("messages", messages(GOOD, type="json"), "output_config.format.type"),
    ("messages", messages(None), "output_config.format.schema: must be an object"),
    ("gemini", gemini(GOOD, responseMimeType="text/plain"), "needs responseMimeType"),
    ("gemini", gemini(GOOD, responseSchema={}), "has both"),
    ("gemini", gemini(3), "must be an object"),
]


@pytest.mark.parametrize(("dialect", "extra", "why"), REFUSED)
def test_a_schema_that_the_service_refuses_is_refused(
    dialect: str, extra: dict[str, object], why: str
) -> None:
    with ModelServer([{"text": ANSWER}]) as server:
        got = ask_raw(server, Question(dialect, extra=extra))
    assert got.status == 400
    assert why in got.body.decode()


@pytest.mark.parametrize(
    ("dialect", "extra"),
    [
        ("chat", chat(GOOD)),
        ("chat", chat(CLOSED, strict=False)),
        ("chat", {"response_format": {"type": "json_object"}}),
        ("responses", responses(GOOD)),
        ("responses", {"text": {"format": {"type": "text"}}}),
        ("messages", messages(OPTIONAL)),
        ("gemini", gemini(CLOSED)),
        ("gemini", {"generationConfig": {"responseMimeType": "application/json"}}),
    ],
)
def test_its_neighbour_is_taken_and_recorded(dialect: str, extra: dict[str, object]) -> None:
    with ModelServer([{"text": ANSWER}]) as server:
        assert ask_raw(server, Question(dialect, extra=extra)).status == 200
        assert extra.items() <= body_of(server).items()
