"""Python code that puts something else in the place of what tests judge with."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RUNNERS: Final = frozenset({"pytest", "_pytest", "unittest", "nose2"})
"""The packages that run tests."""
_SETTERS: Final = frozenset({"setattr", "delattr", "builtins.setattr", "builtins.delattr"})
_METHODS: Final = frozenset({"__setattr__", "__delattr__"})
_PATCHERS: Final = frozenset({"patch", "object", "multiple", "setattr", "delattr", "setitem"})
_PLAIN: Final = frozenset({"setattr", "delattr", "vars"})
_BUILT_IN: Final = frozenset(dir(builtins))


def is_tool(name: str) -> bool:
    """Whether a dotted name lies in a package that runs tests."""
    return name.partition(".")[0] in RUNNERS


def find_patched(node: ast.AST, names: Mapping[str, str]) -> str:
    """What of the test tool, or of Python, code puts something else in the place of."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        return _patched_by_call(node, names)
    found = (_held(each, names) for target in targets for each in _each(target))
    return next((name for name in found if name), "")


def _each(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _each(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _held(target: ast.expr, names: Mapping[str, str]) -> str:
    """The dotted name of a target that lies in the test tool, or in ``builtins``."""
    if isinstance(target, ast.Subscript):
        held = target.value  # ``X.__dict__[…]`` and ``vars(X)[…]``
        if isinstance(held, ast.Call) and held.args and read_dotted(held.func, names) == "vars":
            held = held.args[0]
        name = read_dotted(held, names)
        return name if is_tool(name) or name.startswith("builtins") else ""
    name = read_dotted(target, names) if isinstance(target, ast.Attribute) else ""
    return name if _is_foreign(name) else ""


def _is_foreign(name: str) -> bool:
    top, _, rest = name.partition(".")
    return bool(rest) and (top in RUNNERS or (top == "builtins" and rest in _BUILT_IN))


def _patched_by_call(node: ast.Call, names: Mapping[str, str]) -> str:
    """``setattr(unittest.TestCase, …)``, ``patch("unittest…")``, ``patch.object(pytest, …)``."""
    if not node.args:
        return ""
    first, name = node.args[0], read_dotted(node.args[0], names)
    called = read_dotted(node.func, names)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in _SETTERS or method in _METHODS:
        attribute = _text(node.args[1]) if len(node.args) > 1 else ""
        built_in = name == "builtins" and attribute in _BUILT_IN
        return f"{name}.{attribute}" if is_tool(name) or built_in else ""
    if (method or called.rpartition(".")[2]) not in _PATCHERS:
        return ""
    text = _text(first)
    if text:
        return text if _is_foreign(text) else ""
    return name if is_tool(name) else ""


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def read_dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """What a name with any number of attributes stands for; empty for anything else.

    Only names that were imported stand for something: others may be anything.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rpartition(".")[2]
        top = _text(node.args[0]) if called in {"__import__", "import_module"} else ""
    elif isinstance(node, ast.Name):
        top = names.get(node.id, node.id if node.id in _PLAIN else "")
        top = "builtins" if node.id == "__builtins__" else top
    else:
        top = ""
    return ".".join([top, *reversed(parts)]) if top else ""
