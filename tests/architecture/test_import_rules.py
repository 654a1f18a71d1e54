"""Packages import downwards, and each other only through their pages."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.support.pages import Page, find_cycle, import_graph, imported, pages, reach, render_stub
from tests.support.repository import ROOT, Module, modules

_LINT_IMPORTS = "from importlinter.cli import lint_imports_command as main; main()"
_PACKAGES = frozenset(
    {"kernel", "policy", "workspace", "models", "changes", "commit", "runners", "agent", "runs"}
    | {"traces", "gateway", "app", "cli"}
)


_OFFERING = [page for page in pages() if page.offered]
_OUTERMOST = frozenset({"coilclaw.__main__", "coilclaw.environments.authoring"})
"""Names by which people reach a module; nothing imports them."""


def _past_the_page(
    module: Module, existing: Collection[str], offered: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the imports that reach into another package past its page."""
    found = []
    for node, source, name in imported(module, existing):
        root, _, rest = source.partition(".")
        package, _, inner = rest.partition(".")
        if root != "coilclaw" or package not in offered or package == module.package:
            continue
        if module.name in _OUTERMOST:
            continue
        # A module that a page offers as a whole reads as ``from coilclaw.low import module``.
        statement = node.module if isinstance(node, ast.ImportFrom) else None
        at_page = statement == f"coilclaw.{package}" and not (inner and "." in inner)
        if not at_page or (name or inner) not in offered[package]:
            found.append(f"{module.name}:{node.lineno} imports {source} {name}".rstrip())
    return found


def _module(name: str, source: str) -> Module:
    return Module(name=name, path=Path("m.py"), is_package=False, tree=ast.parse(source))


_EXISTING = frozenset(
    {"coilclaw.low", "coilclaw.low.inside", "coilclaw.low.open", "coilclaw.high.inside"}
)


@pytest.mark.parametrize(
    "source",
    [
        "import coilclaw.low.inside",
        "import coilclaw.low.open",
        "from coilclaw.low import inside",
        "from coilclaw.low import missing",
        "from coilclaw.low.inside import thing",
        "from coilclaw.low.open import thing",
        "from ..low.inside import thing",
        "def f() -> None:\n    from coilclaw.low.inside import thing",
        "if TYPE_CHECKING:\n    from coilclaw.low.inside import thing",
        "import_module('coilclaw.low.inside')",
    ],
)
def test_an_import_past_the_page_is_found(source: str) -> None:
    module = _module("coilclaw.high.user", source)
    assert _past_the_page(module, _EXISTING, {"low": ("open", "thing"), "high": ()})


@pytest.mark.parametrize(
    "source",
    [
        "from coilclaw.low import thing",
        "from coilclaw.low import open",
        "from coilclaw.high.inside import thing",
        "from .inside import thing",
        "from coilclaw import __version__",
        "import os.path",
    ],
)
def test_an_import_from_the_page_is_not(source: str) -> None:
    module = _module("coilclaw.high.user", source)
    assert _past_the_page(module, _EXISTING, {"low": ("open", "thing"), "high": ()}) == []


def test_packages_import_each_other_through_pages_only() -> None:
    existing = frozenset(module.name for module in modules())
    offered = {page.package: page.offered for page in pages()}
    assert [line for m in modules() for line in _past_the_page(m, existing, offered)] == []


def test_there_are_thirteen_packages_and_each_has_a_page() -> None:
    # ``environments`` is the name that environment files import, and nothing else.
    assert {page.package for page in pages()} == _PACKAGES | {"environments"}
    short = {page.package for page in pages() if len(page.docstring.splitlines()) < 3}
    assert short == {"environments"}


@pytest.mark.parametrize("page", _OFFERING, ids=lambda page: page.package)
def test_every_offered_name_exists_and_another_package_uses_it(page: Page) -> None:
    existing = frozenset(module.name for module in modules())
    package = importlib.import_module(f"coilclaw.{page.package}")
    for name in page.names:
        assert getattr(package, name) is getattr(importlib.import_module(page.names[name]), name)
    for name, home in page.whole.items():
        assert getattr(package, name) is importlib.import_module(home)
    assert dir(package) == sorted(page.offered)
    used = {
        name or source.rpartition(".")[2]
        for module in modules()
        if module.package != page.package
        for _, source, name in imported(module, existing)
        if source.startswith(f"coilclaw.{page.package}")
    }
    assert sorted(set(page.offered) - used) == []


@pytest.mark.parametrize("page", _OFFERING, ids=lambda page: page.package)
def test_the_stub_of_a_page_says_the_same(page: Page) -> None:
    stub = page.path.with_suffix(".pyi").read_text(encoding="utf-8")
    assert stub == render_stub(page), "scripts/pages.py writes it"


def test_a_name_that_no_page_offers_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'coilclaw\.kernel' has no attribute 'nope'"):
        importlib.import_module("coilclaw.kernel").nope  # noqa: B018


def test_a_cycle_is_found_and_a_tree_is_none() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["a"]}) == ["a", "b", "c", "a"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"], "c": ["os"]}) == []


def test_no_modules_import_each_other_in_a_circle_not_even_inside_functions() -> None:
    assert find_cycle(import_graph()) == []


def test_pure_packages_reach_nothing_outside_through_a_page_either() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (pure,) = (each for each in contracts if each["name"].startswith("Pure"))
    inside = [
        name
        for name in import_graph()
        if name.startswith(tuple(f"{source}." for source in pure["source_modules"]))
        or name in pure["source_modules"]
    ]
    assert len(inside) > 50
    found = reach(import_graph(), inside)
    outside = set(pure["forbidden_modules"])
    assert {name: by for name, by in found.items() if name.split(".")[0] in outside} == {}


def test_the_import_contracts_hold() -> None:
    argv = [sys.executable, "-c", _LINT_IMPORTS, "--no-logo", "--no-cache"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_packages_are_at_most_three_levels_deep() -> None:
    deeper = [m.name for m in modules() if m.name.count(".") > 3 and "shipped" not in m.path.parts]
    assert deeper == []
