"""Names of tests and suites: what is refused, and what a template stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments.declarations import Value, check_path, name_of, unknown_path


@pytest.mark.parametrize("text", ["", "a/b", "a b", "ä", ".hidden", "-x", "a\n", "x" * 101, "a\0b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        name_of(text, {})
    assert caught.value.rule == "environment.name"


@pytest.mark.parametrize("text", ["a", "chapter_1", "a.b", "x-1", "9", "c++", "x" * 100])
def test_a_plain_name_stands_for_itself(text: str) -> None:
    assert list(name_of(text, {}).expand()) == [(text, {})]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a_{n}", {}),
        ("a", {"n": [1]}),
        ("a_{n}", {"m": [1]}),
        ("a_{n}_{n}", {"n": [1]}),
        ("a_{}", {}),
        ("a_{1}", {}),
        ("a_{n", {"n": [1]}),
        ("a_}", {}),
        ("a_{n}", {"n": []}),
        ("a_{n}", {"n": "abc"}),
        ("a_{n}", {"n": [True]}),
        ("a_{n}", {"n": [1.5]}),
    ],
)
def test_a_template_without_its_values_is_refused(
    text: str, values: Mapping[str, Iterable[Value]]
) -> None:
    with pytest.raises(UsageError) as caught:
        name_of(text, values)
    assert caught.value.rule == "environment.template"


def test_a_template_stands_for_all_of_its_values_in_order() -> None:
    name = name_of("pair_{a}_{b}", {"a": range(1, 3), "b": ["x", "y"]})
    assert list(name.expand()) == [
        ("pair_1_x", {"a": 1, "b": "x"}),
        ("pair_1_y", {"a": 1, "b": "y"}),
        ("pair_2_x", {"a": 2, "b": "x"}),
        ("pair_2_y", {"a": 2, "b": "y"}),
    ]


def test_a_value_that_makes_no_name_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        name_of("a_{n}", {"n": ["b/c"]})
    assert caught.value.rule == "environment.name"


@pytest.mark.parametrize(
    ("text", "values"),
    [("a_{n}", {"n": [1, "1"]}), ("{a}{b}", {"a": ["x", "xy"], "b": ["yz", "z"]})],
)
def test_a_name_that_would_be_there_twice_is_refused(
    text: str, values: Mapping[str, Iterable[Value]]
) -> None:
    with pytest.raises(UsageError) as caught:
        name_of(text, values)
    assert caught.value.rule == "environment.twice"


def test_values_are_bounded() -> None:
    assert len(list(name_of("a_{n}", {"n": range(10_000)}).expand())) == 10_000
    with pytest.raises(UsageError):
        name_of("a_{n}", {"n": range(10_001)})
    with pytest.raises(UsageError):
        name_of("a_{n}_{m}", {"n": range(200), "m": range(200)})


def test_slashes_around_a_path_do_not_matter() -> None:
    assert check_path(" /a/b/ ") == "a/b"


@pytest.mark.parametrize("path", ["a//b", "a\0b", "x" * 401])
def test_a_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_path(path)
    assert caught.value.rule == "environment.path.malformed"


def test_an_unknown_path_says_what_was_meant() -> None:
    known = ["basics", "basics/get", "basics/set", "load", "load/batch_10"]
    assert unknown_path("basic/get", known).hint == "did you mean basics/get, basics/set, basics?"
    assert unknown_path("batch_10", known).hint == "did you mean load/batch_10?"
    assert unknown_path("zzz", known).hint == "there are basics, load"
