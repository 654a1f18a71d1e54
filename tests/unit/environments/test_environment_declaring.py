"""Declaring tests in a file: what is refused, and which cases stand at which path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import authoring
from coilclaw.traces.environments.environment import MODULE, Environment, load_environment
from tests.support.environments import write_environment

HEAD = "from __future__ import annotations\nfrom coilclaw.environments.authoring import *\n"


@pytest.fixture
def loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Environment]]:
    """Loads the text of an environment in this process, and forgets it afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield lambda text: load_environment(write_environment(tmp_path, HEAD + text))
    sys.modules.pop(MODULE, None)


TREE = """
basics = suite("basics")

@test
def top(): "Says something."

@test()
async def later(): ...

@basics.test
def one(): ...

@basics.test("two")
def renamed(): ...

@basics.suite("deep").test("x_{n}", n=(1, 2))
def many(n: int): ...

chapter = suite("book").suite("chapter_{c}", c=range(1, 4))

@chapter.cases
def programs(c: int):
    for name in ("valid", "invalid"):
        yield case(name, program, number=c)

def program(number: int, c: int): ...

@chapter.test
def intro(): ...
"""

CASES = [
    "top",
    "later",
    "basics/one",
    "basics/two",
    "basics/deep/x_1",
    "basics/deep/x_2",
    *(f"book/chapter_{c}/{name}" for c in (1, 2, 3) for name in ("valid", "invalid")),
    *(f"book/chapter_{c}/intro" for c in (1, 2, 3)),
]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("@setup\ndef a(): ...\n@setup\ndef b(): ...", "environment.twice"),
        ("@teardown\ndef a(): ...\n@teardown\ndef b(): ...", "environment.twice"),
        ("suite('a/b')", "environment.name"),
        ("@test('')\ndef a(): ...", "environment.name"),
        ("@test('a_{n}')\ndef a(n: int): ...", "environment.template"),
        ("@test('a_{n}', n=['x'])\ndef a(n: int): ...", "environment.parameter.type"),
        ("@suite('s_{n}', n=[1]).test('a_{n}', n=[1])\ndef a(n: int): ...", "environment.template"),
        ("@test\ndef a(n): ...", "environment.parameter"),
        ("@test(timeout_s=0)\ndef a(): ...", "environment.timeout"),
        ("test('a')(3)", "environment.handler"),
        ("test('a')(dict)", "environment.handler"),
        ("@suite('s').cases\ndef a(n: int): ...", "environment.parameter"),
        ("1/0", "environment.load"),
        ("raise SystemExit", "environment.load"),
        ("def f(:", "environment.load"),
        ("import no_such_module_anywhere", "environment.load"),
    ],
)
def test_a_wrong_file_is_refused(
    loaded: Callable[[str], Environment], text: str, rule: str
) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(text)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "environment.empty"),
        ("@test\ndef a(): ...\n@test('a')\ndef b(): ...", "environment.twice"),
        ("@test\ndef a(): ...\n@suite('a').test\ndef b(): ...", "environment.twice"),
        ("@suite('a').test\ndef b(): ...\n@test\ndef a(): ...", "environment.twice"),
        ("@test('a_{n}', n=[1])\ndef a(n: int): ...\n@test\ndef a_1(): ...", "environment.twice"),
        ("@suite('s').cases\ndef a(): return 3", "environment.cases"),
        ("@suite('s').cases\ndef a(): yield 'x'", "environment.cases"),
        ("@suite('s').cases\ndef a(): yield case('x/y', a)", "environment.name"),
        ("@suite('s').cases\ndef a(): yield case('x', a, n=1)", "environment.parameter.unknown"),
    ],
)
def test_cases_that_cannot_be_are_refused(
    loaded: Callable[[str], Environment], text: str, rule: str
) -> None:
    environment = loaded(text)
    with pytest.raises(UsageError) as caught:
        environment.select()
    assert caught.value.rule == rule


def test_nothing_is_declared_while_no_file_is_being_loaded() -> None:
    def handler() -> None: ...

    for declare in (authoring.test, authoring.setup, authoring.teardown, authoring.cases):
        with pytest.raises(UsageError) as caught:
            declare(handler)
        assert caught.value.rule == "environment.not_loading"


def test_paths_are_for_a_handler_that_runs() -> None:
    for ask in (authoring.session_path, authoring.case_path):
        with pytest.raises(UsageError) as caught:
            ask()
        assert caught.value.rule == "environment.scope"


def test_all_cases_are_there_in_the_order_of_their_declaration(
    loaded: Callable[[str], Environment],
) -> None:
    assert [case.id for case in loaded(TREE).select().cases] == CASES


@pytest.mark.parametrize(
    ("path", "base", "ids"),
    [
        ("top", "top", ["top"]),
        ("basics", "basics", [name for name in CASES if name.startswith("basics/")]),
        ("basics/deep/x_2", "basics/deep/x_2", ["basics/deep/x_2"]),
        ("basics/deep/x_{n}", "basics/deep", ["basics/deep/x_1", "basics/deep/x_2"]),
        ("book", "book", [name for name in CASES if name.startswith("book/")]),
        (
            "book/chapter_2",
            "book/chapter_2",
            [f"book/chapter_2/{name}" for name in ("valid", "invalid", "intro")],
        ),
        ("book/chapter_{c}/intro", "book", [f"book/chapter_{c}/intro" for c in (1, 2, 3)]),
        ("/book/chapter_3/valid/", "book/chapter_3/valid", ["book/chapter_3/valid"]),
    ],
)
def test_a_path_selects_what_is_at_it_and_below(
    loaded: Callable[[str], Environment], path: str, base: str, ids: list[str]
) -> None:
    selection = loaded(TREE).select(path)
    assert (selection.base, [case.id for case in selection.cases]) == (base, ids)


@pytest.mark.parametrize(
    "path", ["to", "basics/x", "basics/deep/x_3", "top/more", "book/chapter_{n}", "bas"]
)
def test_a_path_that_matches_nothing_is_refused(
    loaded: Callable[[str], Environment], path: str
) -> None:
    environment = loaded(TREE)
    with pytest.raises(UsageError) as caught:
        environment.select(path)
    assert caught.value.rule == "environment.path"
    assert caught.value.hint


def test_values_of_the_path_and_of_the_author_reach_the_handler(
    loaded: Callable[[str], Environment],
) -> None:
    (case,) = loaded(TREE).select("book/chapter_2/valid").cases
    assert case.fixed == {"number": 2, "c": 2}


def test_a_parameter_is_taken_only_where_nothing_else_fills_it(
    loaded: Callable[[str], Environment],
) -> None:
    environment = loaded(
        "@test('a_{n}', n=[1])\ndef a(n: int): ...\n@test\ndef b(n: int, m: int): ...\n"
    )
    environment.check_given({"n": 1, "m": 2}, environment.select())
    environment.check_given({"n": 1}, environment.select("b"))
    with pytest.raises(UsageError) as caught:
        environment.check_given({"n": 1}, environment.select("a_{n}"))
    assert (caught.value.rule, caught.value.hint) == (
        "environment.parameter.unknown",
        "the parameters are (none)",
    )


def test_the_schema_names_every_test_and_case(loaded: Callable[[str], Environment]) -> None:
    schema = loaded(TREE + "\n@setup\ndef build(level: int = 1): ...").schema()
    tests = schema.pop("tests")
    assert schema == {
        "schema_version": 1,
        "has_setup": True,
        "has_teardown": False,
        "setup_params_schema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"level": {"type": "integer"}},
            "required": [],
        },
        "cases": CASES,
    }
    assert isinstance(tests, list)
    nothing = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
    assert tests[0] == {
        "path": "top",
        "kind": "test",
        "values": {},
        "params_schema": nothing,
        "description": "Says something.",
        "timeout_s": 60.0,
    }
    assert tests[4] == {
        "path": "basics/deep/x_{n}",
        "kind": "test",
        "values": {"n": [1, 2]},
        "params_schema": nothing,
        "description": "",
        "timeout_s": 60.0,
    }
    assert tests[5] == {
        "path": "book/chapter_{c}",
        "kind": "cases",
        "values": {"c": [1, 2, 3]},
        "params_schema": nothing,
        "description": "",
        "timeout_s": 60.0,
    }
