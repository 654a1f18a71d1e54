"""Well-known caches and build outputs: what is one, and what only looks like one."""

from __future__ import annotations

import pytest

from coilclaw.runs.gates.scope import cache_above, is_named


@pytest.mark.parametrize(
    ("path", "cache"),
    [
        ("__pycache__/a.pyc", "__pycache__"),
        ("src/pkg/__pycache__/a.pyc", "src/pkg/__pycache__"),
        (".pytest_cache/.gitignore", ".pytest_cache"),
        (".mypy_cache/3.11/x.json", ".mypy_cache"),
        (".ruff_cache/0.1/x", ".ruff_cache"),
        (".hypothesis/examples/x", ".hypothesis"),
        (".tox/py311/log/1", ".tox"),
        (".nox/tests/bin/x", ".nox"),
        (".gradle/8.0/x.bin", ".gradle"),
        ("web/node_modules/.cache/babel/x", "web/node_modules/.cache"),
        ("src/pkg.egg-info/PKG-INFO", "src/pkg.egg-info"),
        (".coverage", ".coverage"),
        ("sub/.coverage", "sub/.coverage"),
    ],
)
def test_a_file_of_a_cache_is_known(path: str, cache: str) -> None:
    assert cache_above(path, directory=False) == cache


@pytest.mark.parametrize(
    "path",
    [
        "__pycache__",
        "x__pycache__/a.pyc",
        ".cache/x",
        "node_modules/.cached/x",
        "pkg.egg-info",
        ".coveragerc",
        "src/.coverage/x",
        "tests/test_pycache.py",
        ".tox.ini",
    ],
)
def test_what_only_looks_like_a_cache_is_not_one(path: str) -> None:
    assert cache_above(path, directory=False) == ""


def test_a_directory_is_a_cache_by_its_own_name() -> None:
    assert cache_above("src/__pycache__", directory=True) == "src/__pycache__"
    assert cache_above("src/.coverage", directory=True) == ""


def test_a_contract_names_a_cache_only_by_its_own_path() -> None:
    assert is_named("src/pkg.egg-info", ("src/pkg.egg-info/",))
    assert is_named("src/pkg.egg-info", ("src/pkg.egg-info/PKG-INFO",))
    assert not is_named("src/pkg.egg-info", ("src/",))
    assert not is_named("src/pkg.egg-info", ("src/pkg.egg-info2",))
    assert not is_named("src/pkg.egg-info", ("../src/pkg.egg-info",))
