"""Python code that ends the process of the tests, patches their tool, or notices that it is tested.

Nobody can tell what such code is for, and with it green tests say nothing.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.orchestrator.tool_patches import (
    RUNNERS,
    find_bindings,
    find_patched,
    is_tool,
    read_dotted,
    read_getattr,
    read_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ALWAYS: Final = frozenset(
    {"os._exit", "posix._exit", "os.abort", "atexit.register", "pytest.exit"}
)
_AT_IMPORT: Final = frozenset({"sys.exit", "exit", "quit", "builtins.exit", "builtins.quit"})
_VARIABLES: Final = frozenset({"PYTEST_CURRENT_TEST", "PYTEST_VERSION"})
_MODULES: Final = frozenset({"os", "posix", "sys", "atexit", "builtins"})
_RUNS_TEXT: Final = frozenset({"exec", "eval", "builtins.exec", "builtins.eval"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True, order=True)
class Evasion:
    """One place of it."""

    line: int
    end: int
    message: str


def evasions(tree: ast.Module, *, is_program: bool) -> Iterator[Evasion]:
    """Find them; ``is_program`` says that the file is only ever run, and not imported."""
    names = _imported(tree)
    for node in ast.walk(tree):
        message = _always(node, names)
        if message:
            yield _evasion(node, message)
    if is_program:
        return
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in _at_import(tree.body):
        name = _ending(node, names)
        if name and name not in own:
            yield _evasion(node, f"{name} ends whatever imports this")


def _evasion(node: ast.AST, message: str) -> Evasion:
    line = getattr(node, "lineno", 0)
    return Evasion(line, getattr(node, "end_lineno", None) or line, message)


def _imported(tree: ast.Module) -> Mapping[str, str]:
    """What names stand for that are imported from the modules that matter here."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name in _MODULES or is_tool(each.name):
                    top = each.name.partition(".")[0]
                    names[each.asname or top] = each.name if each.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for each in node.names if node.module in _MODULES or is_tool(node.module or "") else ():
                names[each.asname or each.name] = f"{node.module}.{each.name}"
        for target, value in find_bindings(node):
            held = read_dotted(value, names)
            if is_tool(held) or held == "sys.modules":
                names[target.id] = held
    return names


def _name(node: ast.AST, names: Mapping[str, str]) -> str:
    """What a name, or a name and an attribute, stands for."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{names.get(node.value.id, node.value.id)}.{node.attr}"
    if isinstance(node, ast.Call) and (asked := read_getattr(node)) is not None:
        return _name(asked, names)
    return ""


def _always(node: ast.AST, names: Mapping[str, str]) -> str:
    """Why code is not wanted wherever it stands."""
    name = _name(node, names)
    if name in _ALWAYS:
        return f"{name} can end the tests before they fail"
    if isinstance(node, ast.Call) and _name(node.func, names) in _RUNS_TEXT:
        return _of_text(node)
    if (variable := read_text(node)) in _VARIABLES:
        return f"{variable} tells code that it is being tested"
    if _asks_for_runner(node, names):
        return "sys.modules tells code that it is being tested"
    patched = find_patched(node, names)
    return f"{patched} is patched, with which tests judge" if patched else ""


def _of_text(node: ast.Call) -> str:
    """Why the text of a program that code runs is not wanted, as far as it can be read."""
    text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    try:
        inner = ast.parse(text) if isinstance(text, str) else ast.Module([], [])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return next((each.message for each in evasions(inner, is_program=False)), "")


def _asks_for_runner(node: ast.AST, names: Mapping[str, str]) -> bool:
    if isinstance(node, ast.Compare):
        asked, where = node.left, node.comparators
        is_in = isinstance(node.ops[0], ast.In | ast.NotIn)
        return is_in and _is_runner(asked) and _is_modules(where[0], names)
    if isinstance(node, ast.Subscript):
        return _is_runner(node.slice) and _is_modules(node.value, names)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and any(map(_is_runner, node.args))
        and _is_modules(node.func.value, names)
    )


def _is_runner(node: ast.expr) -> bool:
    return read_text(node).partition(".")[0] in RUNNERS


def _is_modules(node: ast.expr, names: Mapping[str, str]) -> bool:
    """``sys.modules``, or its ``keys()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_modules(node.func.value, names)
    return _name(node, names) == "sys.modules"


def _at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Everything that is done when a module is imported."""
    left: list[ast.AST] = [*reversed(body)]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.If) and _is_main(node.test):
            left.extend(node.orelse)
        elif isinstance(node, _FUNCTIONS):
            left.extend((*getattr(node, "decorator_list", ()), *node.args.defaults))
        else:
            left.extend(ast.iter_child_nodes(node))


def _is_main(test: ast.expr) -> bool:
    """``__name__ == "__main__"``."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = {ast.unparse(test.left), *map(ast.unparse, test.comparators)}
    return len(test.ops) == 1 and sides == {"__name__", "'__main__'"}


def _ending(node: ast.AST, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Call):
        name = _name(node.func, names)
        return name if name in _AT_IMPORT else ""
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return "SystemExit" if _name(raised, names) == "SystemExit" else ""
    return ""
