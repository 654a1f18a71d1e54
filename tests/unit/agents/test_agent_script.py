"""Scripts are checked as a whole before anything happens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel.errors import UsageError
from coilclaw.runners import script
from coilclaw.runners.script import Action


def _read(value: Any) -> script.AgentScript:
    return script.read(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "neither"),
        ("text", "neither"),
        ({"turns": [], "tasks": {}}, "neither"),
        ([], "not a list of turns"),
        ({"tasks": {}}, "nor {tasks} with a task"),
        ({"tasks": {"a": []}}, "tasks.a: it is not a list of turns"),
        ([{"text": "x"}], "turns[0]: a turn is a list of parts"),
        ([["text"]], "turns[0][0]: a part is an object with one key"),
        ([[{}]], "a part is an object with one key"),
        ([[{"text": "x", "shell": "y"}]], "a part is an object with one key"),
        ([[{"think": "x"}]], "the part 'think' is not known"),
        ([[{"text": 1}]], "turns[0][0].text: it must be a text"),
        ([[{"reasoning": None}]], ".reasoning: it must be a text"),
        ([[{"write": []}]], ".write: it must be an object"),
        ([[{"write": {}}]], ".write: it must be an object"),
        ([[{"write": {"a": 1}}]], ".write.a: it must be an object of paths and their contents"),
        ([[{"write": {"": "x"}}]], '.write."": it must be'),
        ([[{"write": {"a\0": "x"}}]], '.write."a\\u0000": it must be'),
        ([[{"delete": "a"}]], ".delete: it must be a list of paths"),
        ([[{"delete": [1]}]], ".delete: it must be a list of paths"),
        ([[{"shell": " "}]], ".shell: it must be a text that is not empty"),
        ([[{"shell": ["ls"]}]], ".shell: it must be a text"),
        ([[{"commit": ""}]], ".commit: it must be a text that is not empty"),
        ([[{"run_tests": 3}]], ".run_tests: it must be a text"),
        ([[{"sleep_s": True}]], ".sleep_s: it must be a number"),
        ([[{"sleep_s": -1}]], ".sleep_s: it must be a number of seconds from 0 to"),
        ([[{"sleep_s": 1e6}]], ".sleep_s: it must be a number of seconds from 0 to"),
        ([[{"crash": False}]], ".crash: it must be true"),
        ([[{"result": "done"}]], ".result: it must be an object"),
    ],
)
def test_a_wrong_script_is_refused(value: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read(value)
    assert caught.value.rule == "script.form"
    assert said in caught.value.message


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        _read([[{"text": 1}, {"text": "fine"}, {"delete": []}], "turn"])
    assert caught.value.message.count(";") == 2
    for place in ("turns[0][0].text", "turns[0][2].delete", "turns[1]"):
        assert place in caught.value.message


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"[[", "script.json"),
        (b'[[{"text": "a", "text": "b"}]]', "script.json"),
        (b"\xff", "script.encoding"),
        (b'"' + b"x" * script.MAX_BYTES + b'"', "script.bounds"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        script.read(data)
    assert caught.value.rule == rule


_KEYS = st.sampled_from([*script.KINDS, "turns", "tasks", "x"])
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(_KEYS, _SCALARS, max_size=2)
_TURNS = st.lists(st.lists(st.dictionaries(_KEYS, _VALUES, max_size=2), max_size=3) | _VALUES)


@given(_TURNS | _VALUES | st.dictionaries(_KEYS, _TURNS, max_size=1))
def test_whatever_stands_in_a_file_is_a_script_or_refused(value: Any) -> None:
    rule = "script.read"
    turns: tuple[script.Turn, ...] = ()
    try:
        turns = _read(value).turns("t")
    except UsageError as problem:
        rule = problem.rule
    assert rule.startswith("script.")
    assert all(action.kind in script.KINDS for turn in turns for action in turn)


def test_too_many_turns_or_parts_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 10,000 turns"):
        _read([[]] * (script.MAX_TURNS + 1))
    with pytest.raises(UsageError, match="more than 100,000 parts"):
        _read([[{"text": ""}] * (script.MAX_PARTS + 1)])
    assert len(_read([[]] * script.MAX_TURNS).turns("t")) == script.MAX_TURNS


def test_all_forms_of_a_script_are_read() -> None:
    turns = [[{"text": "a"}, {"crash": True}], [{"sleep_s": 0.5}]]
    expected = (
        (Action("text", "a"), Action("crash", True)),
        (Action("sleep_s", 0.5),),
    )
    assert _read(turns).turns("any") == expected
    assert _read({"turns": turns}).turns("any") == expected
    assert _read({"tasks": {"one": turns}}).turns("one") == expected
    assert _read({"tasks": {"one": turns}}).turns("two") == ()


def test_a_task_finds_its_turns_by_id_then_by_the_longest_glob() -> None:
    read = _read(
        {
            "tasks": {
                "*": [[{"text": "any"}]],
                "*-api": [[{"text": "suffix"}]],
                "task-7": [[{"text": "exact"}]],
                "task-7-fix-1": [[{"text": "repair"}]],
            }
        }
    )

    def text(task_id: str) -> Any:
        return read.turns(task_id)[0][0].value

    assert text("task-7") == "exact"
    assert text("task-7-fix-1") == "repair"
    assert text("task-7-fix-2") == "exact"
    assert text("x-api") == "suffix"
    assert text("x-api-fix-3") == "suffix"
    assert text("task-77") == "any"


@pytest.mark.parametrize(
    ("task_id", "root", "number"),
    [
        ("t", "t", 0),
        ("t-fix", "t-fix", 0),
        ("t-fix-x", "t-fix-x", 0),
        ("bug-fix-12-api", "bug-fix-12-api", 0),
        ("t-fix-1", "t", 1),
        ("t-fix-3", "t", 3),
        ("t-fix-1-fix-1", "t", 2),
        ("t-fix-1-fix-2", "t", 2),
    ],
)
def test_a_repair_knows_its_root_and_its_number(task_id: str, root: str, number: int) -> None:
    assert (script.root_of(task_id), script.attempt_of(task_id)) == (root, number)
