"""The orchestration plane: one JSON object by its schema, or everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel import schemas
from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.errors import (
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
    Stopped,
    UsageError,
)
from coilclaw.kernel.messages import Json, Provider
from coilclaw.kernel.schemas import SchemaProblem
from coilclaw.models.anthropic import Anthropic
from coilclaw.models.endpoint import ModelEndpoint
from coilclaw.models.gemini import Gemini
from coilclaw.models.openai import OpenAI
from coilclaw.runs.roles.model_questions import (
    MAX_ANSWER_BYTES,
    MAX_PAYLOAD_BYTES,
    BoundSchema,
    ModelPlane,
    ModelQuestion,
    RoleExchange,
    parse_answer,
)
from coilclaw.workspace.process.cancellation import Cancellation
from tests.unit.orchestrator.planning import plane

GOOD: dict[str, Json] = {
    "verdict": "PASS",
    "summary": "Read it all.",
    "scope_check": {"passed": True, "violations": []},
    "findings": [],
}
TEXT = json.dumps(GOOD)
BOUND = BoundSchema.of("review_answer.v1")
QUESTION = ModelQuestion("REVIEWER", "Answer in JSON.", {"patch": "+a"}, BOUND)

# ---- answers that are none ------------------------------------------------------------------

REFUSED: list[tuple[str, str]] = [
    ("", "is not valid JSON"),
    ("I think it is fine.", "is not valid JSON"),
    (f"Here you are:\n{TEXT}", "is not valid JSON"),
    (f"{TEXT}\nI hope this helps.", "is not valid JSON"),
    (f"```json\n{TEXT}\n```", "is not valid JSON"),
    (f"{TEXT}{TEXT}", "is not valid JSON"),
    (f"{TEXT}\n{TEXT}", "is not valid JSON"),
    (f"[{TEXT}]", "is not a JSON object"),
    ("null", "is not a JSON object"),
    (json.dumps(TEXT), "is not a JSON object"),
    (TEXT.replace("}", ",}", 1), "is not valid JSON"),
    (TEXT + "// done", "is not valid JSON"),
    ("\ufeff" + TEXT, "is not valid JSON"),
    (TEXT.replace('"findings": []', '"findings": [], "verdict": "FAIL"'), "'verdict' twice"),
    (TEXT.replace('"findings": []', '"findings": NaN'), "NaN"),
    (TEXT.replace('"findings": []', f'"findings": {"[" * 70}{"]" * 70}'), "nested"),
    (TEXT.replace('"findings": []', f'"findings": {"[" * 100_000}'), "nested"),
    (TEXT.replace("Read it all.", "x" * MAX_ANSWER_BYTES), "is larger than"),
    (json.dumps({**GOOD, "verdict": "OK"}), "one of"),
    (json.dumps({**GOOD, "run_id": "another"}), "no field is named 'run_id'"),
    (json.dumps({k: v for k, v in GOOD.items() if k != "summary"}), '"summary" is a required'),
    (json.dumps({**GOOD, "summary": ""}), "shorter than"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_an_answer_that_is_not_exactly_the_object_is_refused(text: str, why: str) -> None:
    asked, heard = plane({"text": text})
    answer = asked.ask(QUESTION)
    assert answer.value is None
    assert answer.problems
    assert why in str(answer.problems[0])
    (exchange,) = heard.exchanges
    assert exchange.problems == answer.problems


def test_an_answer_with_tool_calls_is_refused_even_beside_good_json() -> None:
    asked, _ = plane({"text": TEXT, "tool_calls": [{"name": "shell", "arguments": {"cmd": "id"}}]})
    answer = asked.ask(QUESTION)
    assert answer.value is None
    assert answer.problems == (
        SchemaProblem("/", "the answer asks for tools, and there are none: shell"),
    )


def test_nothing_is_asked_again() -> None:
    asked, heard = plane("no", TEXT)
    assert asked.ask(QUESTION).value is None
    assert len(heard.exchanges) == 1
    assert asked.ask(QUESTION).value == GOOD


@pytest.mark.parametrize(
    "bound",
    [
        BoundSchema("review_answer.v1", "0" * 64),
        BoundSchema("review_answer.v1", ""),
        BoundSchema("nothing.v1", BOUND.sha256),
        BoundSchema("../secrets", BOUND.sha256),
    ],
)
def test_without_the_very_schema_that_is_bound_nobody_is_asked(bound: BoundSchema) -> None:
    asked, heard = plane(TEXT)
    answer = asked.ask(ModelQuestion("REVIEWER", "", {}, bound))
    assert answer.value is None
    assert "schema" in answer.problems[0].message
    assert heard.exchanges == []


def test_what_a_model_is_told_is_bounded() -> None:
    asked, heard = plane(TEXT)
    with pytest.raises(UsageError) as caught:
        asked.ask(ModelQuestion("REVIEWER", "", {"patch": "x" * MAX_PAYLOAD_BYTES}, BOUND))
    assert caught.value.rule == "plane.payload"
    assert heard.exchanges == []


def test_a_run_that_was_stopped_asks_nobody() -> None:
    cancel = Cancellation()
    cancel.cancel("the user said so")
    asked, heard = plane(TEXT, cancel=cancel)
    with pytest.raises(Stopped, match="the user said so"):
        asked.ask(QUESTION)
    assert heard.exchanges == []


def test_an_error_of_the_provider_is_recorded_and_raised() -> None:
    asked, heard = plane({"error": "timeout"})
    with pytest.raises(ProviderTimeout):
        asked.ask(QUESTION)
    (exchange,) = heard.exchanges
    assert exchange.error == "m did not answer in time (as its fixture says)"
    assert (exchange.answer, exchange.answer_sha256) == ("", digest_bytes(b""))


# ---- answers that are ones ------------------------------------------------------------------


@pytest.mark.parametrize("text", [TEXT, f"\n  {TEXT}\n", json.dumps(GOOD, indent=2)])
def test_white_space_belongs_to_json(text: str) -> None:
    assert parse_answer(text, "review_answer.v1") == (GOOD, ())


def test_the_exchange_is_recorded_without_secrets_and_hashed_as_it_is_kept() -> None:
    said = {**GOOD, "summary": "the key is sk-canary"}
    asked, heard = plane(said)
    answer = asked.ask(ModelQuestion("REVIEWER", "Answer.", {"patch": "sk-canary"}, BOUND))
    assert answer.value == said
    (exchange,) = heard.exchanges
    request = (
        '{"model":"model-x","output_schema":"review_answer.v1",'
        f'"output_schema_sha256":"{schemas.sha256("review_answer.v1")}",'
        '"payload":"{\\"patch\\":\\"[REDACTED]\\"}","provider":"m","role":"REVIEWER",'
        '"system_prompt":"Answer."}'
    )
    text = json.dumps(said).replace("sk-canary", "[REDACTED]")
    assert exchange == RoleExchange(
        role="REVIEWER",
        provider="m",
        model="model-x",
        schema=BOUND,
        request=request,
        answer=text,
        request_sha256=digest_bytes(request.encode()),
        answer_sha256=digest_bytes(text.encode()),
    )


def test_an_answer_that_is_in_the_evidence_is_not_asked_for_again() -> None:
    asked, heard = plane(GOOD)
    first = asked.ask(QUESTION)
    kept = {heard.exchanges[0].request_sha256: heard.exchanges[0].answer}
    again, unheard = plane(cancel=None)
    again = replace(again, recall=kept.get)
    assert again.ask(QUESTION) == first
    assert unheard.exchanges == []
    # Another question has another hash, and this fixture has no answer at all.
    with pytest.raises(ProviderRejected):
        again.ask(replace(QUESTION, payload={"patch": "+b"}))


def test_evidence_that_does_not_fit_is_no_answer_either() -> None:
    asked, _ = plane()
    answer = replace(asked, recall=lambda _: "PASS").ask(QUESTION)
    assert answer.value is None
    assert answer.problems


# ---- over real sockets ----------------------------------------------------------------------

MAKES: dict[str, Callable[[str], Provider]] = {
    "openai": lambda url: OpenAI(ModelEndpoint("o", url, None), "x"),
    "anthropic": lambda url: Anthropic(ModelEndpoint("a", url, None), "x"),
    "gemini": lambda url: Gemini(ModelEndpoint("g", url, None), "x"),
}


@pytest.mark.parametrize("schema", ["plan.v1", "split.v1", "review_answer.v1"])
@pytest.mark.parametrize("kind", MAKES)
def test_every_service_takes_our_schemas_and_no_tools_are_offered(kind: str, schema: str) -> None:
    with ModelServer([{"text": TEXT}]) as server:
        heard: list[RoleExchange] = []
        asked = ModelPlane(MAKES[kind](server.url), "x", heard.append, str)
        answer = asked.ask(ModelQuestion("PM", "Answer.", {}, BoundSchema.of(schema)))
        (recorded,) = server.requests
    assert isinstance(recorded.body, dict)
    assert "tools" not in recorded.body
    assert recorded.problem is None
    assert (answer.value is not None) == (schema == "review_answer.v1")


@pytest.mark.parametrize("kind", MAKES)
def test_a_tool_call_over_the_wire_is_refused(kind: str) -> None:
    call = {"name": "shell", "arguments": {"command": "rm -rf ."}}
    with ModelServer([{"text": TEXT, "tool_calls": [call]}]) as server:
        asked = ModelPlane(MAKES[kind](server.url), "x", lambda _: None, str)
        answer = asked.ask(QUESTION)
    assert answer.value is None
    assert "asks for tools" in answer.problems[0].message


def test_a_provider_in_trouble_is_an_error_not_an_answer() -> None:
    with ModelServer([{"status": 500}]) as server:
        asked = ModelPlane(MAKES["openai"](server.url), "x", lambda _: None, str)
        with pytest.raises(ProviderServer):
            asked.ask(QUESTION)
