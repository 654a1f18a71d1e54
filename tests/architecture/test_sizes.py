"""A module is about one noun, a function fits a screen."""

from __future__ import annotations

import ast

from tests.support.repository import PACKAGE, modules

MODULE_LINES = 500
FUNCTION_LINES = 60


def _long_functions(tree: ast.Module, limit: int) -> list[str]:
    """Return the functions of more than ``limit`` lines, from ``def`` to the last one."""
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > limit
    ]


def test_a_function_above_the_limit_is_found_and_one_at_it_is_not() -> None:
    at_limit = "def f():\n" + "    x = 1\n" * 59
    above = "class C:\n    def g(self):\n" + "        x = 1\n" * 60
    assert _long_functions(ast.parse(at_limit), 60) == []
    assert _long_functions(ast.parse(above), 60) == ["g: 61 lines"]


def test_no_module_is_too_long() -> None:
    lines = {m.name: len(m.path.read_text(encoding="utf-8").splitlines()) for m in modules()}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {m.name: found for m in modules() if (found := _long_functions(m.tree, FUNCTION_LINES))}
    assert long == {}


def test_the_package_is_where_these_tests_look() -> None:
    assert PACKAGE / "kernel" / "errors.py" in [m.path for m in modules()]
