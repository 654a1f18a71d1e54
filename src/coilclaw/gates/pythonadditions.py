"""What may be added to Python tests that are there already, and cannot take anything from them.

New assertions, assignments to names of their own and calls of what the file knew are fine. What
could end, skip or replace something that was there is not. What a called function does is not
followed: it is the code under test, or was there before.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.gates.pythonnames import DEFINITIONS, bound, path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from coilclaw.gates.pythonnames import Definition

_DENIED: Final = re.compile(
    r"skip|skip_?(if|unless|test)|xfail|SkipTest|expectedFailure|importorskip|_?exit|quit|abort"
    r"|(sys)?exc_?info|setattr|delattr|getattr|globals|locals|vars|exec|eval|compile|breakpoint"
    r"|patch|mock|mocker|monkeypatch|modules|fail_?fast|stop|kill|main|__\w+",
    re.IGNORECASE,
)
_BUILTINS: Final = frozenset(
    {
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytearray",
        "bytes",
        "callable",
        "chr",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "hash",
        "hex",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "object",
        "oct",
        "ord",
        "pow",
        "print",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "type",
        "zip",
        "Exception",
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "RuntimeError",
        "OSError",
        "AttributeError",
        "staticmethod",
        "classmethod",
        "property",
    }
)
HARMLESS_MODULES: Final = frozenset(
    {
        "abc",
        "collections",
        "contextlib",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "hypothesis",
        "io",
        "itertools",
        "json",
        "math",
        "pathlib",
        "pytest",
        "re",
        "string",
        "tempfile",
        "textwrap",
        "typing",
        "unittest",
        "uuid",
    }
)
_CONTEXTS: Final = frozenset(
    {
        "raises",
        "warns",
        "subTest",
        "assertRaises",
        "assertRaisesRegex",
        "assertWarns",
        "assertWarnsRegex",
        "assertLogs",
        "assertNoLogs",
    }
)
_SKIPPING_MARKS: Final = frozenset({"skip", "skipIf", "skipUnless", "expectedFailure"})


@dataclass(frozen=True, slots=True)
class Additions:
    """Judges what is added; says what is wrong with it, and nothing if it is fine."""

    known: Sequence[AbstractSet[str]]
    """The names whose functions may be called: shared sets, which are not copied."""
    taken: AbstractSet[str]
    """The names that may not be bound anew."""
    local: AbstractSet[str] = frozenset()
    """The names whose attributes may be set."""
    last: bool = False
    """Nothing that was there comes after it, so that anything may be called."""
    is_async: bool = False

    def problem(self, node: ast.stmt) -> str:
        """What is wrong with an added statement."""
        if isinstance(node, ast.Assert):
            return self._expressions(node)
        if isinstance(node, ast.Expr):
            called = node.value.value if isinstance(node.value, ast.Await) else node.value
            return self._expressions(node) if isinstance(called, ast.Call) else _adds(node)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return self._bindings(targets) or self._expressions(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._names(node)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.For):
            heads = self._bindings([node.target]) or self._expressions(node.iter)
            return heads or self.block([*node.body, *node.orelse])
        if isinstance(node, ast.If):
            return self._expressions(node.test) or self.block([*node.body, *node.orelse])
        return _adds(node)

    def block(self, body: Sequence[ast.stmt]) -> str:
        """What is wrong with the first bad statement of an added block."""
        return next((what for node in body if (what := self.problem(node))), "")

    def decorator(self, node: ast.expr) -> str:
        """What is wrong with a decorator of something new."""
        names = path(node)
        marks = len(names) > 1 and names[:2] == ("pytest", "mark")
        if marks or (names[0] in {"unittest", *_SKIPPING_MARKS} and names[-1] in _SKIPPING_MARKS):
            inside = [*node.args, *node.keywords] if isinstance(node, ast.Call) else []
            return next((what for part in inside if (what := self._expressions(part))), "")
        for child in ast.walk(node):
            if isinstance(child, ast.keyword) and child.arg in {None, "autouse", "name"}:
                return f"has a decorator with {child.arg or '**'}"
        called = ast.Call(func=node, args=[], keywords=[]) if path(node)[0] else node
        return self._expressions(node) or self._expressions(called)

    def expression(self, node: ast.AST) -> str:
        """What is wrong with an added expression."""
        return self._expressions(node)

    def _with(self, node: ast.With) -> str:
        for item in node.items:
            what = self._expressions(item.context_expr)
            targets = [item.optional_vars] if item.optional_vars is not None else []
            if path(item.context_expr)[-1] not in _CONTEXTS:
                return _adds(node)
            if what or (what := self._bindings(targets)):
                return what
        return self.block(node.body)

    def _bindings(self, targets: Sequence[ast.expr]) -> str:
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(
                    node.ctx, ast.Store
                ):
                    names = path(node)
                    if names[0] not in self.local or not self.last or _denied(names[1:]):
                        return f"sets {_short(node)}"
            what = self._names(target)
            if what:
                return what
        return ""

    def _names(self, node: ast.AST) -> str:
        for child in ast.walk(node):
            for name in bound(child):
                if name in self.taken or name == "*" or name.startswith("__"):
                    return f"binds {name} anew"
        return ""

    def _expressions(self, node: ast.AST) -> str:
        for child in ast.walk(node):
            if isinstance(child, ast.Yield | ast.YieldFrom | ast.NamedExpr):
                return _adds(child)
            if isinstance(child, ast.Await) and not self.is_async:
                return _adds(child)
            if isinstance(child, ast.Name | ast.Attribute) and _denied(path(child)[-1:]):
                return f"uses {_short(child)}"
            if isinstance(child, ast.Call) and (what := self._call(child)):
                return what
        return ""

    def _call(self, node: ast.Call) -> str:
        names = path(node.func)
        if _denied(names):
            return f"calls {_short(node.func)}"
        known = not names[0] or names[0] in _BUILTINS or any(names[0] in one for one in self.known)
        return "" if known or self.last else f"calls {_short(node.func)}, which was not there"


def patches(node: Definition, shared: AbstractSet[str]) -> str:
    """What a new function or class does to names that others share; empty: nothing in sight."""
    for child in ast.walk(node):
        if isinstance(child, ast.Global) and (both := shared & set(child.names)):
            return f"binds {min(both)} anew"
        if isinstance(child, ast.Attribute | ast.Subscript) and not isinstance(child.ctx, ast.Load):
            if path(child)[0] in shared:
                return f"sets {_short(child)}"
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            first = path(child.args[0])[0] if child.args else ""
            if child.func.id in {"setattr", "delattr"} and first in shared:
                return f"calls {child.func.id} on {first}"
            if child.func.id in {"globals", "exec", "eval", "vars"}:
                return f"calls {child.func.id}"
    return ""


def is_calm(node: Definition, judge: Additions) -> bool:
    """Whether something new may be called while the file is imported."""
    unsafe = (ast.Raise, ast.While, ast.Try, ast.TryStar, ast.Global, ast.Import, ast.ImportFrom)
    inner = {name for child in ast.walk(node) for name in bound(child)}
    within = Additions((*judge.known, inner), frozenset())
    return not any(isinstance(child, unsafe) for child in ast.walk(node)) and not any(
        within.expression(child) for child in ast.walk(node) if isinstance(child, ast.Call)
    )


def hides(node: ast.stmt) -> str:
    """The name of something that ends or skips tests and is imported under another one."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            if alias.asname not in {None, alias.name} and _denied([alias.name]):
                return alias.name
    return ""


def _denied(names: Sequence[str]) -> bool:
    return any(_DENIED.fullmatch(name) for name in names if name)


def _adds(node: ast.AST) -> str:
    return f"adds {_short(node)}"


def _short(node: ast.AST) -> str:
    if isinstance(node, DEFINITIONS):
        return node.name
    return ast.unparse(node).partition("\n")[0][:60]
