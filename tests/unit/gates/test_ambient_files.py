"""Files beside tests that would decide over them, and files next to those that do not."""

from __future__ import annotations

import pytest

from coilclaw.runs.gates.test_files import is_read_unasked, module_of
from coilclaw.runs.gates.weakened_tests import find_weakened_tests

TEST = "tests/test_a.py"
TREE = (TEST, "tests/conftest.py", "src/app/a.py", "pkg/test_b/__init__.py", "pkg/test_b/test_c.py")


def found(
    added: dict[str, str], old: dict[str, str] | None = None, tree: tuple[str, ...] = TREE
) -> list[str]:
    before = {path: text.encode() for path, text in (old or {}).items()}
    after = {path: text.encode() for path, text in added.items()}
    every = dict.fromkeys((*before, *after))
    return [
        violation.rule
        for violation in find_weakened_tests(
            {**every, **before}, {**every, **after}, (*tree, *after)
        )
    ]


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_a/__init__.py",
        "tests/test_a/__init__.pyc",
        "tests/test_a.so",
        "tests/test_a.abi3.so",
        "tests/test_a.cpython-311-x86_64-linux-gnu.so",
        "tests/test_a.pyc",
        "tests/conftest/__init__.py",
        "pkg/test_b.py",
        "unittest.py",
        "src/unittest/__init__.py",
        "tests/pytest.py",
        "_pytest/__init__.py",
        "iniconfig.py",
        "src/traceback.py",
    ],
)
def test_a_module_in_the_place_of_a_test_is_a_changed_test(path: str) -> None:
    assert found({path: ""}) == ["tests.shadowed"]


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_b.py",
        "tests/test_a/data.json",
        "tests/test_a/helper.py",
        "tests/__pycache__/test_a.cpython-311.pyc",
        "tests/unit/test_a.py",
        "src/app/a/__init__.py",
        "src/app/unittest.py",
        "src/app/pytest/__init__.py",
        "tests/test_a.txt",
    ],
)
def test_its_neighbour_is_none(path: str) -> None:
    assert found({path: ""}) == []


def test_a_test_that_becomes_a_package_shadows_nothing() -> None:
    text = "def test_one():\n    assert 1 + 1 == 2\n"
    tree = tuple(path for path in TREE if path != TEST)
    assert found({"tests/test_a/__init__.py": text}, {TEST: text}, tree) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sitecustomize.py", ""),
        ("src/usercustomize.py", ""),
        ("src/evil.pth", "import os\n"),
        ("pytest.ini", "[pytest]\n"),
        (".pytest.ini", ""),
        ("pytest.toml", "[pytest]\naddopts = ['-p', 'evil']\n"),
        (".pytest.toml", ""),
        ("evil-1.dist-info/entry_points.txt", "[pytest11]\nevil = evil\n"),
        ("src/evil.egg-info/entry_points.txt", ""),
        ("conftest.py", ""),
        ("src/app/conftest.py", ""),
        ("tox.ini", "[pytest]\nxfail_strict = true\n"),
        ("setup.cfg", "[tool:pytest]\npythonpath = fake\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\npythonpath = ['fake']\n"),
    ],
)
def test_settings_of_the_test_tool_come_from_the_baseline(path: str, text: str) -> None:
    assert "tests.configuration" in found({path: text})
    assert found({path: text}, tree=("src/app/a.py",)) == [], "there is no test to decide over"
    assert found({path: text}, {path: text}) == [], "it is as it was"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/customize.py", ""),
        ("src/app/traceback.py", ""),
        ("docs/entry_points.txt", ""),
        ("src/app.egg-info/PKG-INFO", ""),
        ("src/app/conf.py", ""),
        ("tests/unit/conftest.py", "import pytest\n"),
        ("tox.ini", "[flake8]\nmax = 1\n"),
        ("setup.cfg", "[metadata]\nname = x\n"),
        ("pyproject.toml", "[project]\nname = 'x'\n"),
    ],
)
def test_other_settings_may_come(path: str, text: str) -> None:
    assert found({path: text}) == []


@pytest.mark.parametrize(
    "path",
    [
        "sitecustomize.py",
        "x.pth",
        "conftest.py",
        "pkg/conftest.py",
        "pytest.toml",
        "x.egg-info/entry_points.txt",
    ],
)
def test_what_is_read_unasked_stays_as_it_was(path: str) -> None:
    assert found({path: "import b\n"}, {path: "import a\n"}) == ["tests.configuration"]
    assert found({}, {path: "import a\n"}) == ["tests.configuration"]


def test_a_section_of_pytest_in_a_file_that_had_none_is_noticed() -> None:
    old = "[project]\nname = 'x'\n"
    new = old + "[tool.pytest.ini_options]\nfilterwarnings = ['error']\n"
    assert found({"pyproject.toml": new}, {"pyproject.toml": old}) == ["tests.configuration"]
    assert found({"pyproject.toml": old + "version = '1'\n"}, {"pyproject.toml": old}) == []


def test_where_a_module_is_imported_from() -> None:
    assert module_of("a/b.py") == ("a", "b")
    assert module_of("a/b/__init__.py") == ("a", "b")
    assert module_of("__init__.py") is None
    assert module_of("a/b.txt") is None


def test_what_is_read_unasked() -> None:
    assert is_read_unasked("a/conftest.py")
    assert not is_read_unasked("tests/conftest.py")
