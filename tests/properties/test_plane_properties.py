"""The planning plane against made-up answers, schemas and files."""

from __future__ import annotations

import json
from typing import cast

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.cli.model_server.structured import check_anthropic, check_openai
from coilclaw.kernel.messages import Json
from coilclaw.models.output_schema import narrow_schema
from coilclaw.runs.contracts.records import ReviewReport
from coilclaw.runs.roles import rule_review
from coilclaw.runs.roles.model_questions import parse_answer
from coilclaw.runs.roles.rule_review import ChangedFile
from tests.unit.orchestrator.planning import evidence

GOOD = json.dumps(
    {
        "verdict": "PASS",
        "summary": "Read it.",
        "scope_check": {"passed": True, "violations": []},
        "findings": [],
    }
)
TEXT = st.text(max_size=40)
NAMES = st.text("abc", min_size=1, max_size=3)
LEAVES: st.SearchStrategy[Json] = st.one_of(
    st.builds(lambda n: cast("Json", {"type": "string", "minLength": n}), st.integers(0, 5)),
    st.builds(lambda n: cast("Json", {"type": "integer", "minimum": n}), st.integers(0, 5)),
    st.builds(lambda v: cast("Json", {"const": v}), st.text("xyz", max_size=2)),
    st.just(cast("Json", {"type": "object"})),
)


def _object(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.builds(
        lambda properties, open_: cast(
            "Json",
            {
                "type": "object",
                "properties": properties,
                "required": list(properties)[:1],
                **({} if open_ else {"additionalProperties": False}),
            },
        ),
        st.dictionaries(NAMES, inner, max_size=3),
        st.booleans(),
    )


SCHEMAS = _object(
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            _object(inner),
            st.builds(lambda each: cast("Json", {"type": "array", "items": each}), inner),
            st.builds(lambda each: cast("Json", {"oneOf": [each, {"type": "null"}]}), inner),
        ),
        max_leaves=8,
    )
)


@given(TEXT, TEXT)
def test_nothing_stands_around_an_answer(before: str, after: str) -> None:
    value, problems = parse_answer(before + GOOD + after, "review_answer.v1")
    bare = not (before + after).strip(" \t\r\n")
    assert (value is not None) == bare
    assert (problems == ()) == bare


@given(st.text(max_size=200))
def test_no_text_makes_reading_fail(text: str) -> None:
    value, problems = parse_answer(text, "plan.v1")
    assert value is None
    assert problems


@given(SCHEMAS)
def test_every_service_takes_what_goes_out(schema: Json) -> None:
    assert isinstance(schema, dict)
    out = narrow_schema(schema)
    check_openai({"name": "x", "strict": True, "schema": out}, "x")
    check_anthropic({"output_config": {"format": {"type": "json_schema", "schema": out}}})
    jsonschema_rs.validator_for(out)


@given(
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.sampled_from(["py", "json", "toml", "js", "md"]),
)
def test_rules_read_any_file(before: bytes, after: bytes, ending: str) -> None:
    change = ChangedFile(f"src/app/a.{ending}", before, after)
    report = rule_review.review(evidence(change))
    assert ReviewReport.of(report.json()) == report
    blocking = any(finding.severity == "blocking" for finding in report.findings)
    assert (report.verdict == "FAIL") == blocking
    lines = len(after.splitlines())
    assert all((finding.line or 1) <= max(lines, 1) + 1 for finding in report.findings)
