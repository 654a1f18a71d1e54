"""Parameters are held to their annotations, and nothing is converted silently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments.declarations import (
    Documents,
    bind,
    parameters_of,
    parameters_schema,
    value_of,
)

HERE = Documents(Path("/submission"))


@dataclass(frozen=True)
class Size:
    width: int
    height: int = 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, "1"),
        (int, 1.0),
        (int, True),
        (bool, 1),
        (str, 1),
        (float, "1.5"),
        (float, True),
        (float, 10**400),
        (type(None), 0),
        (Literal["a", 1], "b"),
        (Literal[1], True),
        (list[int], [1, "2"]),
        (list[int], {"0": 1}),
        (dict[str, int], {"a": "1"}),
        (dict[str, int], [1]),
        (int | None, "1"),
        (Size, {"width": "1"}),
        (Size, {"height": 1}),
        (Size, {"width": 1, "depth": 2}),
        (Size, [1, 2]),
    ],
)
def test_a_value_of_another_type_is_refused(kind: object, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        value_of(kind, value, "n")
    assert caught.value.rule == "environment.parameter.type"


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        (int, 1, 1),
        (float, 1, 1.0),
        (str, "1", "1"),
        (bool, False, False),
        (Literal["a", 1], 1, 1),
        (list[int], [1, 2], [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, list[str]], {"a": ["b"]}, {"a": ["b"]}),
        (int | None, None, None),
        (int | str, "x", "x"),
        (Size | None, {"width": 2}, Size(2)),
        (list[Size], [{"width": 2, "height": 3}], [Size(2, 3)]),
    ],
)
def test_a_value_of_the_type_is_taken(kind: object, value: object, made: object) -> None:
    assert value_of(kind, value, "n") == made
    assert type(value_of(kind, value, "n")) is type(made)


def _untyped(n) -> None:  # type: ignore[no-untyped-def]  # that is what is tested
    ...


def _many(*n: int) -> None: ...


def _named(**n: int) -> None: ...


def _strange(n: Path) -> None: ...


def _bare_list(n: list) -> None:  # type: ignore[type-arg]  # that is what is tested
    ...


def _callback(n: Callable[[], None]) -> None: ...


@pytest.mark.parametrize("handler", [_untyped, _many, _named, _strange, _bare_list, _callback])
def test_a_parameter_that_cannot_be_given_is_refused(handler: Callable[..., Any]) -> None:
    with pytest.raises(UsageError) as caught:
        parameters_of(handler, "the test t")
    assert caught.value.rule == "environment.parameter"


def _handler(where: Documents, n: int, size: Size, mode: Literal["x", "y"] = "x") -> None: ...


def test_the_schema_says_what_can_be_given() -> None:
    assert parameters_schema(parameters_of(_handler, "t")) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "n": {"type": "integer"},
            "size": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"width": {"type": "integer"}, "height": {"type": "integer"}},
                "required": ["width"],
            },
            "mode": {"enum": ["x", "y"]},
        },
        "required": ["n", "size"],
    }


def test_arguments_come_from_the_path_first_then_from_what_is_given() -> None:
    parameters = parameters_of(_handler, "t")
    assert bind(parameters, {"n": 3}, {"n": 4, "size": {"width": 1}}, HERE, "t") == {
        "where": HERE,
        "n": 3,
        "size": Size(1),
    }


def test_a_required_parameter_that_is_missing_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        bind(parameters_of(_handler, "t"), {}, {"n": 4}, HERE, "t")
    assert (caught.value.rule, caught.value.hint) == (
        "environment.parameter.missing",
        "--param size=VALUE",
    )
