from __future__ import annotations

import socket

import pytest

from coilclaw.agent.tools.builtin import builtin_tools
from coilclaw.agent.tools.contract import (
    MAX_MESSAGE,
    MAX_PROBLEMS,
    Tool,
    Validators,
    check,
    object_schema,
)
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json
from tests.support.rawserver import response, serving

SCHEMA = object_schema(
    {
        "path": {"type": "string", "minLength": 1, "maxLength": 10},
        "limit": {"type": "integer", "minimum": 1, "maximum": 5},
        "argv": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
    },
    "path",
)


def test_good_arguments_have_no_problems() -> None:
    assert check(SCHEMA, {"path": "a", "limit": 5, "argv": ["x"]}) == ()


def test_all_problems_are_told_with_their_pointers() -> None:
    problems = check(SCHEMA, {"limit": 9, "argv": ["a", 1, "c"], "extra": True})
    assert sorted(problems) == [
        '/: "path" is a required property',
        "/: unknown argument: 'extra'",
        '/argv/1: the value is not of type "string"',
        "/argv: the value has more than 2 items",
        "/limit: the value is greater than the maximum of 5",
    ]


@pytest.mark.parametrize(
    "args",
    [
        {"path": 1},
        {"path": None},
        {"path": ""},
        {"path": "x" * 11},
        {"path": "a", "limit": True},
        {"path": "a", "limit": 1.5},
        {"path": "a", "limit": 10**400},
        {"path": "a", "argv": "a"},
    ],
)
def test_what_does_not_fit_is_a_problem(args: dict[str, Json]) -> None:
    assert len(check(SCHEMA, args)) == 1


def test_the_value_is_not_repeated() -> None:
    (problem,) = check(SCHEMA, {"path": "secret" * 1000})
    assert "secret" not in problem
    assert len(problem) < MAX_MESSAGE


def test_misleading_names_are_made_visible_and_many_are_cut() -> None:
    (problem,) = check(SCHEMA, {"path": "a", "\u202eevil\x1b[2J": 1})
    assert "\\u202e" in problem
    assert "\x1b" not in problem
    (problem,) = check(SCHEMA, {"path": "a", **{f"key{n}": n for n in range(1000)}})
    assert len(problem) <= MAX_MESSAGE
    many: list[Json] = [1] * 1000
    found = check(
        {"type": "object", "properties": {"a": {"items": {"type": "string"}}}}, {"a": many}
    )
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1] == "… and more"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"path": "\ud800"}, "/: holds text that is not valid Unicode"),
        ({"path": "a", "\udfff": 1}, "/: holds text that is not valid Unicode"),
        ({"path": float("nan")}, "/: holds a value that JSON cannot express"),
        ({"limit": float("inf")}, "/: holds a value that JSON cannot express"),
    ],
)
def test_what_no_record_could_hold_is_a_problem(args: dict[str, Json], problem: str) -> None:
    assert check(SCHEMA, args) == (problem,)


def test_deep_nesting_is_a_problem_and_no_crash() -> None:
    deep: Json = {}
    for _ in range(100_000):
        deep = [deep]
    assert len(check(SCHEMA, {"path": deep})) == 1
    shallow: Json = {}
    for _ in range(400):
        shallow = [shallow]
    assert len(check(SCHEMA, {"path": shallow})) == 1


def test_a_schema_is_compiled_once_and_by_its_own_identity() -> None:
    validators = Validators()
    assert validators.check(SCHEMA, {"path": "a"}) == ()
    first = validators._compiled[id(SCHEMA)]
    assert validators.check(SCHEMA, {"path": "b"}) == ()
    assert validators._compiled[id(SCHEMA)] is first
    copy = dict(SCHEMA)
    assert validators.check(copy, {"path": "a"}) == ()
    assert validators._compiled[id(copy)] is not first
    for number in range(50):  # ids of dead objects are given out again
        schema: dict[str, Json] = {"required": [f"k{number}"]}
        assert validators.check(schema, {f"k{number}": 1}) == ()


def test_a_malformed_schema_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="malformed"):
        check({"type": "no such type"}, {})


def test_a_schema_never_makes_us_fetch_another() -> None:
    with serving(response(b"{}")) as server:
        with pytest.raises(UsageError):
            check({"$ref": f"{server.url}/schema.json"}, {})
        assert server.received == []
        # The server still waits for somebody.
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))).close()


@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: str(tool.name))
def test_every_built_in_schema_is_closed_and_bounded(tool: Tool) -> None:
    schema = tool.parameters_schema
    assert schema["additionalProperties"] is False
    assert check(schema, {"no such argument": 1})
    properties = schema["properties"]
    assert isinstance(properties, dict)
    for name, value in properties.items():
        assert isinstance(value, dict)
        assert value.get("description"), name
        if value["type"] == "string":
            assert "maxLength" in value or "pattern" in value, name
        elif value["type"] == "array":
            assert "maxItems" in value, name
            assert "maxLength" in str(value["items"]), name
        elif value["type"] in {"integer", "number"}:
            assert "maximum" in value, name


def test_the_built_in_tools_in_their_order() -> None:
    assert [tool.name for tool in builtin_tools()] == [
        *("time", "file_list", "file_read", "file_write", "apply_changes"),
        *("shell", "http", "memory_search", "ask_user", "pdf_extract", "web_search"),
    ]
