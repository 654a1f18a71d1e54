"""The one document reader: every problem at once, each with its key and its line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.document import MAX_PROBLEMS, Document, Problem, list_problems, write_place

TEXT = """\
name = 3
colour = "rad"
size = 0
ratio = nan
words = ["a", 1, ""]

[limits]
seconds = "many"
secnds = 1

[[stages]]
kind = "x"

[[stages]]
kind = true
"""


def read_everything(text: str) -> tuple[object, tuple[Problem, ...]]:
    document = Document(text)
    table = document.read_toml()
    limits = table.table("limits")
    stages = table.tables("stages", required=True)
    found = (
        table.text("name", required=True),
        table.choice("colour", "red", ("red", "blue")),
        table.integer("size", 1, least=1, most=9),
        table.number("ratio", None, least=0, most=1),
        table.texts("words"),
        table.flag("loud", True),
        limits.number("seconds", 5.0, least=0, most=60, above=True),
        [stage.text("kind") for stage in stages],
    )
    table.refuse_unknown()
    limits.refuse_unknown()
    return found, document.problems


def test_all_problems_are_told_with_their_lines_and_wrong_values_count_as_absent() -> None:
    found, problems = read_everything(TEXT)
    assert found == ("", "red", 1, None, ("a",), True, 5.0, ["x", ""])
    assert [str(problem) for problem in problems] == [
        "line 1: name: must be a string, not a whole number",
        "line 2: colour: is 'rad'; did you mean 'red'? (allowed: red, blue)",
        "line 3: size: is out of bounds: it must be at least 1 and at most 9",
        "line 4: ratio: is out of bounds: it must be at least 0 and at most 1",
        "line 5: words[1]: must be a string, not a whole number",
        "line 5: words[2]: is empty",
        "line 8: limits.seconds: must be a number, not a string",
        "line 9: limits.secnds: is not a known key; did you mean 'seconds'? (allowed: seconds)",
        "line 15: stages[1].kind: must be a string, not true or false",
    ]


def test_a_good_document_has_no_problems() -> None:
    text = (
        """name = "n"\nstages = [{kind = "a"}]\nlimits = {seconds = 3}\nratio = 1\nloud = false\n"""
    )
    found, problems = read_everything(text)
    assert problems == ()
    assert found == ("n", "red", 1, 1.0, (), False, 3.0, ["a"])


def test_what_is_missing_is_told_at_its_table() -> None:
    document = Document("[a]\n[a.b]\nx = 1\n")
    document.read_toml().table("a").table("b").text("name", required=True)
    assert [str(problem) for problem in document.problems] == ["line 2: a.b.name: is missing"]


def test_broken_toml_is_one_problem_with_its_line() -> None:
    document = Document("a = 1\nb =\n")
    assert document.read_toml().text("a", required=True) == ""
    assert document.problems == (Problem("", "is not valid TOML: invalid value", 2),)
    assert document.problems[0].sentence("f.toml") == "f.toml:2: is not valid TOML: invalid value"


def test_a_null_of_json_is_a_wrong_type_not_an_absent_key() -> None:
    document = Document(root="$")
    assert document.table({"a": None}).text("a", "default") == "default"
    assert [str(problem) for problem in document.problems] == ["$.a: must be a string, not null"]


def test_forms_and_lengths_of_strings() -> None:
    document = Document()
    table = document.table({"id": "A b", "long": "x" * 9, "blank": " "})
    form = re.compile("[a-z]+")
    assert table.text("id", form=form, rule="lower case letters") == ""
    assert table.text("long", most=8) == ""
    assert (table.text("blank"), table.text("blank", blank=True)) == ("", " ")
    assert [problem.message for problem in document.problems] == [
        "'A b' is not lower case letters",
        "is longer than 8 characters",
        "is empty",
    ]


def test_lists_are_bounded_and_pairs_are_strings() -> None:
    document = Document()
    table = document.table({"many": [1, 2, 3], "pairs": {"a": "b", "c": 1}, "none": []})
    assert list(table.items("many", most=2)) == []
    assert list(table.items("many", most=3)) == [(("many", n), n + 1) for n in range(3)]
    assert table.pairs("pairs") == {"a": "b"}
    assert table.tables("none", required=True) == ()
    assert [str(problem) for problem in document.problems] == [
        "many: has 3 items; at most 2 are allowed",
        "pairs.c: must be a string, not a whole number",
        "none: is empty",
    ]


def test_the_number_of_problems_is_bounded_and_none_is_told_twice() -> None:
    document = Document()
    for index in range(2 * MAX_PROBLEMS):
        document.note(("a", index % MAX_PROBLEMS), "is wrong")
        document.note(("b", index), "is wrong")
    assert len(document.problems) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("place", "written"),
    [(("a", 2, "b"), "a[2].b"), (("a b",), '"a b"'), (("", "\x1b"), '"".' + r'"\u001b"')],
)
def test_places_are_written_as_toml_writes_them(place: tuple[str | int, ...], written: str) -> None:
    assert write_place(place) == written


def test_problems_are_listed_for_a_person() -> None:
    first, second = Problem("a", "is empty", 1), Problem("b", "is empty")
    assert list_problems([first], "f") == "a problem: f:1: a: is empty"
    assert list_problems([first, second], "f") == "2 problems:\nf:1: a: is empty\nf: b: is empty"


@given(st.text())
def test_any_text_is_read_or_refused_with_a_problem(text: str) -> None:
    document = Document(text)
    table = document.read_toml()
    table.refuse_unknown()
    assert table.values.keys() == set() or len(document.problems) == len(table.values)
