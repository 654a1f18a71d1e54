"""Records and schemas are the same thing, said twice: neither can drift from the other."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest

import coilclaw.runs.contracts
from coilclaw.kernel import schemas
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.record import Record, shape
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import ArtifactRef, Finding, ReviewReport, TaskResult
from coilclaw.runs.contracts.roles import ROLES, Producer
from coilclaw.runs.gates.table import GATES
from tests.support import schema_records
from tests.support.schema_records import AgentTaskResult, EvidenceReport

# Schemas of what models answer: they are read as JSON, and compiled, by the planning plane.
# Answers of models are read once; the records of tests and trajectories are in their own areas.
WITHOUT_RECORD = {
    "agent_trace.v1",
    "evaluation.v1",
    "graph_trace.v1",
    "plan.v1",
    "replay.v1",
    "review_answer.v1",
    "split.v1",
    "test_result.v1",
}
ANYTHING = "anything"


def _records() -> Iterator[type[Record]]:
    names = [found.name for found in pkgutil.iter_modules(coilclaw.runs.contracts.__path__)]
    modules = [importlib.import_module(f"coilclaw.runs.contracts.{name}") for name in names]
    for module in (*modules, schema_records):
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, Record) and value is not Record:
                yield value


RECORDS = tuple(_records())


def _of_type(kind: object) -> object:
    """The shape of a type: what JSON its values are."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = [item for item in arguments if item is not NoneType]
        if len(inner) > 1:
            return ANYTHING
        return _nullable(_of_type(inner[0]))
    if origin is Literal:
        return ("enum", frozenset(arguments))
    if origin is tuple:
        assert arguments[1] is Ellipsis
        return ("array", _of_type(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return ("map", _of_type(arguments[1]))
    assert isinstance(kind, type), kind
    if issubclass(kind, Record):
        return _of_record(kind)
    if issubclass(kind, StrEnum):
        return ("enum", frozenset(str(item) for item in kind))
    return {str: "string", bool: "boolean", int: "integer", float: "number"}[kind]


def _of_record(record: type[Record]) -> object:
    fields = []
    for field in shape(record):
        inner = _of_type(field.type)
        if not field.required:
            # ``X | None = None`` is an absent field, never a null.
            assert isinstance(inner, tuple), field
            assert inner[0] == "null or", field
            inner = inner[1]
        fields.append((field.name, field.required, inner))
    return ("object", frozenset(fields))


def _nullable(inner: object) -> object:
    return inner if inner == ANYTHING else ("null or", inner)


def _of_schema(schema: Any, root: dict[str, Any]) -> object:
    """The shape of a schema, in the same terms."""
    if schema is True:
        return ANYTHING
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _of_schema(root["$defs"][name], root)
    if "anyOf" in schema:
        (inner, null) = schema["anyOf"]
        assert null == {"type": "null"}
        return _nullable(_of_schema(inner, root))
    if "enum" in schema:
        return ("enum", frozenset(schema["enum"]))
    if "const" in schema:
        return ("enum", frozenset([schema["const"]]))
    kind = schema["type"]
    if isinstance(kind, list):
        (inner,) = (item for item in kind if item != "null")
        assert "null" in kind
        return _nullable(_of_schema({**schema, "type": inner}, root))
    if kind == "array":
        return ("array", _of_schema(schema["items"], root))
    if kind == "object":
        return _of_object(schema, root)
    assert kind in {"string", "boolean", "integer", "number"}
    return kind


def _of_object(schema: dict[str, Any], root: dict[str, Any]) -> object:
    if "properties" not in schema:
        rest = schema.get("additionalProperties")
        return ("map", ANYTHING if rest is None else _of_schema(rest, root))
    assert schema["additionalProperties"] is False
    required = set(schema.get("required", ()))
    assert required <= schema["properties"].keys()
    return (
        "object",
        frozenset(
            (name, name in required, _of_schema(value, root))
            for name, value in schema["properties"].items()
        ),
    )


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_has_the_shape_of_its_schema(record: type[Record]) -> None:
    name, _, part = record.SCHEMA.partition("#")
    document: dict[str, Any] = schemas.load_schema(name)
    schema = document["$defs"][part] if part else document
    assert _of_record(record) == _of_schema(schema, document)


def test_every_schema_has_a_record_and_every_definition_of_an_object_as_well() -> None:
    recorded = {record.SCHEMA for record in RECORDS}
    assert recorded & set(schemas.NAMES) == set(schemas.NAMES) - WITHOUT_RECORD
    names = {record.SCHEMA.partition("#")[2] for record in RECORDS}
    for name in set(schemas.NAMES) - WITHOUT_RECORD:
        definitions: dict[str, Any] = schemas.load_schema(name).get("$defs", {})  # type: ignore[assignment]  # a schema's definitions are an object
        objects = {key for key, value in definitions.items() if value.get("type") == "object"}
        assert objects <= names, name


def test_a_record_that_differs_would_be_seen() -> None:
    document: dict[str, Any] = schemas.load_schema("evidence_report.v1")
    expected = _of_record(EvidenceReport)
    for change in (
        {"required": ["status"]},
        {"properties": {**document["properties"], "status": {"enum": ["ok"]}}},
        {"properties": {**document["properties"], "missing": {"type": "string"}}},
        {"properties": {**document["properties"], "more": {"type": "string"}}},
    ):
        assert _of_schema({**document, **change}, document) != expected
    assert _of_schema(document, document) == expected


def test_the_words_of_the_schemas_are_those_of_the_program() -> None:
    event: Any = schemas.load_schema("orchestrator_event.v1")
    assert event["properties"]["event_type"]["enum"] == [str(kind) for kind in EventType]
    gate: Any = schemas.load_schema("gate_result.v1")
    assert sorted(gate["$defs"]["Gate"]["enum"]) == sorted(GATES)
    result: Any = schemas.load_schema("task_result.v1")
    assert result["properties"]["gates"]["propertyNames"] == {"$ref": "#/$defs/Gate"}
    assert result["$defs"]["Gate"] == gate["$defs"]["Gate"]
    assert get_args(Producer) == (*ROLES, "ORCHESTRATOR")


def test_what_is_not_of_the_schema_is_refused_with_every_problem() -> None:
    with pytest.raises(UsageError) as caught:
        ArtifactRef.of({"name": 1, "path": "a", "sha256": "xyz", "more": None})
    assert caught.value.rule == "contract.schema"
    for where in ("/name", "/sha256", "'more'"):
        assert where in caught.value.message


def test_absent_fields_are_left_out_and_null_ones_are_not() -> None:
    result = AgentTaskResult(
        task_id="t",
        status="SUCCESS",
        summary="",
        evidence_refs={"a": [1, {"b": None}]},
        failure=None,
    )
    plain = {
        "task_id": "t",
        "status": "SUCCESS",
        "summary": "",
        "evidence_refs": {"a": [1, {"b": None}]},
        "failure": None,
    }
    assert result.json() == plain
    assert AgentTaskResult.of(plain) == result


def test_a_null_for_an_absent_field_is_refused() -> None:
    plain = {"name": "a", "path": "b", "sha256": "0" * 64}
    assert ArtifactRef.of(plain).json() == plain
    with pytest.raises(UsageError):
        ArtifactRef.of({**plain, "media_type": None})


def test_nested_records_arrays_and_maps_come_back_as_they_were() -> None:
    artifact = {"name": "a", "path": "b", "sha256": "A" * 64, "size_bytes": 3}
    plain = {
        "run_id": "r",
        "task_id": "t",
        "producer": {"role": "ORCHESTRATOR", "agent_id": "o"},
        "status": "FAILED",
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T00:00:01.5+01:00",
        "summary": "",
        "artifacts": [artifact],
        "git": {
            "baseline_ref": "x",
            "head_ref": "y",
            "changed_files": artifact,
            "patch": artifact,
        },
        "gates": {"diff_gate": {"passed": False, "violations": ["a: b"]}},
        "next_" + "steps": {"suggested_action": "look", "notes": ""},
    }
    result = TaskResult.of(plain)
    assert result.json() == plain
    assert result.artifacts == (ArtifactRef(name="a", path="b", sha256="A" * 64, size_bytes=3),)
    assert result.next_actions.suggested_action == "look"


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    finding = Finding.of({"severity": "blocking", "message": "m", "line": 3.0})
    assert type(finding.line) is int
    assert finding.json()["line"] == 3


def test_a_review_with_a_diff_has_no_record() -> None:
    plain: dict[str, object] = {
        "run_id": "r",
        "reviewer": {"role": "REVIEWER", "agent_id": "a"},
        "reviewed_at": "2026-01-01T00:00:00Z",
        "verdict": "PASS",
        "summary": "",
        "scope_check": {"passed": True, "violations": []},
        "evidence": [],
        "produced_diff": False,
        "findings": [],
    }
    assert ReviewReport.of(plain).json() == plain
    for change in ({"produced_diff": True}, {"reviewed_at": "yesterday"}, {"findings": None}):
        with pytest.raises(UsageError):
            ReviewReport.of({**plain, **change})
    del plain["produced_diff"]
    with pytest.raises(UsageError):
        ReviewReport.of(plain)
