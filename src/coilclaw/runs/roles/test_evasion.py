"""Python code that ends the process of the tests, patches their tool, or notices that it is tested.

With such code, green tests prove nothing.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


RUNNERS: Final = frozenset({"pytest", "_pytest", "unittest", "nose2"})
"""The packages that run tests."""
MAX_PIECES: Final = 16
_SETTERS: Final = frozenset({"setattr", "delattr", "builtins.setattr", "builtins.delattr"})
_METHODS: Final = frozenset({"__setattr__", "__delattr__"})
_PATCHERS: Final = frozenset({"patch", "object", "multiple", "setattr", "delattr", "setitem"})
_CHANGERS: Final = frozenset({"update", "pop", "setdefault", "clear", "__setitem__", "__delitem__"})
_PLAIN: Final = frozenset({"setattr", "delattr", "vars"})
_BUILT_IN: Final = frozenset(dir(builtins))


def parse_python(source: str | bytes | None) -> ast.Module:
    """Return the syntax tree of Python code; an empty one if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def is_tool(name: str) -> bool:
    """Whether a dotted name lies in a package that runs tests."""
    return name.partition(".")[0] in RUNNERS


def find_bindings(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    """Yield each plain name that code gives to a value, or to what a value consists of."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.comprehension):
        values = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else [node.iter]
        pairs = [(node.target, value) for value in values]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs.extend(zip(target.elts, value.elts, strict=False))
        elif isinstance(target, ast.Name):
            yield target, value


def read_getattr(node: ast.Call) -> ast.Attribute | None:
    """Return ``getattr(x, "name")`` as the attribute that it asks for."""
    asks = isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1
    attribute = read_text(node.args[1]) if asks else ""
    return ast.Attribute(node.args[0], attribute, ast.Load()) if attribute else None


def find_patched(node: ast.AST, names: Mapping[str, str]) -> str:
    """What of the test tool, or of Python, code puts something else in the place of."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call):
        return _find_patched_by_call(node, names)
    found = (_name_held_target(each, names) for target in targets for each in _list_targets(target))
    return next((name for name in found if name), "")


def _list_targets(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _list_targets(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _name_held_target(target: ast.expr, names: Mapping[str, str]) -> str:
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


def _find_patched_by_call(node: ast.Call, names: Mapping[str, str]) -> str:
    """``setattr(unittest.TestCase, …)``, ``patch("unittest…")``, ``patch.object(pytest, …)``."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGERS:
        held = _name_held_target(
            ast.Subscript(node.func.value, ast.Constant(""), ast.Store()), names
        )
        if held:
            return held
    if not node.args:
        return ""
    first, name = node.args[0], read_dotted(node.args[0], names)
    called = read_dotted(node.func, names)
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if called in _SETTERS or method in _METHODS:
        attribute = read_text(node.args[1]) if len(node.args) > 1 else ""
        built_in = name == "builtins" and attribute in _BUILT_IN
        return f"{name}.{attribute}" if is_tool(name) or built_in else ""
    if (method or called.rpartition(".")[2]) not in _PATCHERS:
        return ""
    text = read_text(first)
    if text:
        return text if _is_foreign(text) else ""
    return name if is_tool(name) else ""


def read_text(node: ast.AST) -> str:
    """Return what a text in code says, also in a few pieces; empty for anything else."""
    pieces: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and len(pieces) < MAX_PIECES:
        pieces.append(_read_constant(node.right))
        node = node.left
    return "".join([_read_constant(node), *reversed(pieces)])


def _read_constant(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _unwrap(node: ast.AST) -> ast.expr | None:
    """Return what ``getattr(x, "y")``, ``(z := x.y)`` and ``x.__subclasses__()`` are about."""
    if isinstance(node, ast.NamedExpr):
        return node.value
    if not isinstance(node, ast.Call):
        return None
    lists = isinstance(node.func, ast.Attribute) and node.func.attr == "__subclasses__"
    return node.func if lists else read_getattr(node)


def read_dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """What a name with any number of attributes stands for; empty for anything else.

    Only names that were imported stand for something: others may be anything.
    """
    parts: list[str] = []
    while (inner := _unwrap(node)) is not None or isinstance(node, ast.Attribute):
        if inner is None and isinstance(node, ast.Attribute):
            parts.append(node.attr)
            inner = node.value
        node = inner or node
    if isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rpartition(".")[2]
        top = read_text(node.args[0]) if called in {"__import__", "import_module"} else ""
    elif isinstance(node, ast.Name):
        top = names.get(node.id, node.id if node.id in _PLAIN else "")
        top = "builtins" if node.id == "__builtins__" else top
    else:
        top = ""
    return ".".join([top, *reversed(parts)]) if top else ""


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
    names = _find_imports(tree)
    for node in ast.walk(tree):
        message = _describe_evasion(node, names)
        if message:
            yield _make_evasion(node, message)
    if is_program:
        return
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in _list_at_import(tree.body):
        name = _name_ending(node, names)
        if name and name not in own:
            yield _make_evasion(node, f"{name} ends whatever imports this")


def _make_evasion(node: ast.AST, message: str) -> Evasion:
    line = getattr(node, "lineno", 0)
    return Evasion(line, getattr(node, "end_lineno", None) or line, message)


def _find_imports(tree: ast.Module) -> Mapping[str, str]:
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


def _read_name(node: ast.AST, names: Mapping[str, str]) -> str:
    """What a name, or a name and an attribute, stands for."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{names.get(node.value.id, node.value.id)}.{node.attr}"
    if isinstance(node, ast.Call) and (asked := read_getattr(node)) is not None:
        return _read_name(asked, names)
    return ""


def _describe_evasion(node: ast.AST, names: Mapping[str, str]) -> str:
    """Why code is not wanted wherever it stands."""
    name = _read_name(node, names)
    if name in _ALWAYS:
        return f"{name} can end the tests before they fail"
    if isinstance(node, ast.Call) and _read_name(node.func, names) in _RUNS_TEXT:
        return _describe_text_evasion(node)
    if (variable := read_text(node)) in _VARIABLES:
        return f"{variable} tells code that it is being tested"
    if _asks_for_runner(node, names):
        return "sys.modules tells code that it is being tested"
    patched = find_patched(node, names)
    return f"{patched} is patched, with which tests judge" if patched else ""


def _describe_text_evasion(node: ast.Call) -> str:
    """Why the text of a program that code runs is not wanted, as far as it can be read."""
    text = _read_constant(node.args[0]) if node.args else ""
    return next((each.message for each in evasions(parse_python(text), is_program=False)), "")


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
    return _read_name(node, names) == "sys.modules"


def _list_at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
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


def _name_ending(node: ast.AST, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Call):
        name = _read_name(node.func, names)
        return name if name in _AT_IMPORT else ""
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return "SystemExit" if _read_name(raised, names) == "SystemExit" else ""
    return ""
