"""What a change does to Python tests that were there: nothing but harmless additions is allowed.

The statements of a test stay as they are and in their order. Fixtures, helpers, imports and all
other code of the file stay as well. What a test expects is a part of it: another expected value is
a changed test, and whether it is right cannot be read from it.

New assertions, assignments to names of their own and calls of what the file knew are fine. What
could end, skip or replace something that was there is not. What a called function does is not
followed: it is the code under test, or was there before.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.runs.gates.python_tests import (
    Definition,
    Function,
    Import,
    bound_in_scope,
    bound_names,
    dump,
    dumps,
    imported_names,
    is_hook,
    is_main_guard,
    is_test,
    meaningful,
    names,
    others,
    path,
    targets,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

_DENIED: Final = re.compile(
    r"skip|skip_?(if|unless|test)|xfail|SkipTest|expectedFailure|importorskip|_?exit|quit|abort"
    r"|(sys)?exc_?info|setattr|delattr|getattr|globals|locals|vars|exec|eval|compile|breakpoint"
    r"|patch|mock|mocker|monkeypatch|modules|fail_?fast|stop|kill|main|__\w+",
    re.IGNORECASE,
)
_BUILTINS: Final = frozenset(dir(builtins)) - {"open", "input", "help", "memoryview", "super"}
_HARMLESS_MODULES: Final = frozenset(
    {"abc", "collections", "contextlib", "dataclasses", "datetime", "decimal", "enum", "fractions"}
    | {"functools", "hypothesis", "io", "itertools", "json", "math", "pathlib", "pytest", "re"}
    | {"string", "tempfile", "textwrap", "typing", "unittest", "uuid"}
)
_CONTEXTS: Final = frozenset(
    {"raises", "warns", "subTest", "assertRaises", "assertRaisesRegex", "assertWarns"}
    | {"assertWarnsRegex", "assertLogs", "assertNoLogs"}
)
_SKIPPING_MARKS: Final = frozenset({"skip", "skipIf", "skipUnless", "expectedFailure"})
_HELPER_METHOD: Final = re.compile(r"(?!(run|debug|id|fail|setup\w*|teardown\w*)$)[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class PythonChange:
    """Something that is not as it was."""

    subject: str
    """The test or class; empty for the rest of the file."""
    what: str


def find_changes(old: ast.Module, new: ast.Module) -> Iterator[PythonChange]:
    """Say what is different about the tests of a file that were there before."""
    comparison = _Comparison(old, new)
    yield from comparison.compare_imports()
    yield from comparison.compare_scope(old.body, new.body, "")


@dataclass(frozen=True, slots=True)
class _Additions:
    """Judges what is added; says what is wrong with it, and nothing if it is fine."""

    known: Sequence[AbstractSet[str]]
    """The names whose functions may be called: shared sets, which are not copied."""
    taken: AbstractSet[str] = frozenset()
    """The names that may not be bound anew."""
    local: AbstractSet[str] = frozenset()
    """The names whose attributes may be set."""
    last: bool = False
    """Nothing that was there comes after it, so that anything may be called."""
    is_async: bool = False

    def judge_statement(self, node: ast.stmt) -> str:
        """Say what is wrong with an added statement."""
        match node:
            case ast.Assert() | ast.Expr(ast.Call() | ast.Await(ast.Call())):
                return self.judge_expression(node)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._judge_bindings(targets(node)) or self.judge_expression(node)
            case ast.Import() | ast.ImportFrom():
                return self._judge_bindings([node])
            case ast.With():
                return self._judge_with(node)
            case ast.For():
                heads = self._judge_bindings([node.target]) or self.judge_expression(node.iter)
                return heads or self._judge_block([*node.body, *node.orelse])
            case ast.If():
                heads = self.judge_expression(node.test)
                return heads or self._judge_block([*node.body, *node.orelse])
        return f"adds {_shorten(node)}"

    def _judge_block(self, body: Iterable[ast.stmt]) -> str:
        return _find_first(map(self.judge_statement, body))

    def judge_decorator(self, node: ast.expr) -> str:
        """Say what is wrong with a decorator of something new."""
        found = path(node)
        marks = len(found) > 1 and found[:2] == ("pytest", "mark")
        if marks or (found[0] in {"unittest", *_SKIPPING_MARKS} and found[-1] in _SKIPPING_MARKS):
            inside = [*node.args, *node.keywords] if isinstance(node, ast.Call) else []
            return _find_first(map(self.judge_expression, inside))
        for child in ast.walk(node):
            if isinstance(child, ast.keyword) and child.arg in {None, "autouse", "name"}:
                return f"has a decorator with {child.arg or '**'}"
        called = ast.Call(func=node, args=[], keywords=[]) if found[0] else node
        return self.judge_expression(node) or self.judge_expression(called)

    def _judge_with(self, node: ast.With) -> str:
        for item in node.items:
            if path(item.context_expr)[-1] not in _CONTEXTS:
                return f"adds {_shorten(node)}"
            bindings = [item.optional_vars] if item.optional_vars is not None else []
            what = self.judge_expression(item.context_expr) or self._judge_bindings(bindings)
            if what:
                return what
        return self._judge_block(node.body)

    def _judge_bindings(self, nodes: Sequence[ast.AST]) -> str:
        for target in nodes:
            for node in ast.walk(target):
                if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(
                    node.ctx, ast.Store
                ):
                    found = path(node)
                    if found[0] not in self.local or not self.last or _is_denied(found[1:]):
                        return f"sets {_shorten(node)}"
        for name in bound_names(nodes):
            if name in self.taken or name == "*" or name.startswith("__"):
                return f"binds {name} anew"
        return ""

    def judge_expression(self, node: ast.AST) -> str:
        """Say what is wrong with an added expression."""
        for child in ast.walk(node):
            match child:
                case ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
                    return f"adds {_shorten(child)}"
                case ast.Await() if not self.is_async:
                    return f"adds {_shorten(child)}"
                case ast.Name() | ast.Attribute() if _is_denied(path(child)[-1:]):
                    return f"uses {_shorten(child)}"
                case ast.Call() if what := self._judge_call(child):
                    return what
        return ""

    def _judge_call(self, node: ast.Call) -> str:
        found = path(node.func)
        if _is_denied(found):
            return f"calls {_shorten(node.func)}"
        known = not found[0] or any(found[0] in one for one in (_BUILTINS, *self.known))
        return "" if known or self.last else f"calls {_shorten(node.func)}, which was not there"


class _Comparison:
    def __init__(self, old: ast.Module, new: ast.Module) -> None:
        self._old, self._new = old, new
        self._names = names([old])
        attributes = {node.attr for node in ast.walk(old) if isinstance(node, ast.Attribute)}
        defined = {node.name for node in ast.walk(old) if isinstance(node, Definition)}
        self._members = attributes | defined
        self._shared = {name for node in new.body for name in bound_in_scope(node)}
        self._known = {name for node in old.body for name in bound_in_scope(node)}
        for node in new.body:
            for name, origin in imported_names(node):
                if origin.split()[1].partition(".")[0] in _HARMLESS_MODULES:
                    self._known.add(name)
        self._mentioned = _count_uses(old)
        self._remaining = _count_uses(new)

    def compare_imports(self) -> Iterator[PythonChange]:
        """Say which names stand for something else, or are new and hide something."""
        before, after = _list_imports(self._old), _list_imports(self._new)
        for name, origins in before.items():
            if name not in after and self._may_go(name):
                continue
            if after.get(name) != origins:
                yield PythonChange("", f"does not have {origins[0]!r} as it was")
        for name in after.keys() - before.keys():
            if name in self._names or name == "*" or is_hook(name):
                yield PythonChange("", f"binds {name} anew")
        known = set(dumps(self._old.body))
        for node in self._new.body:
            if not isinstance(node, Import) or dump(node) in known:
                continue
            for alias in node.names:
                if alias.asname not in {None, alias.name} and _is_denied([alias.name]):
                    yield PythonChange("", f"imports {alias.name} under another name")

    def compare_scope(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], prefix: str
    ) -> Iterator[PythonChange]:
        """Compare the definitions and all other statements of a module or class."""
        before, after = _list_definitions(old), _list_definitions(new)
        for name, nodes in before.items():
            now = after.get(name, [])
            if not now:
                holds_tests = any(map(is_test, [nodes[0], *getattr(nodes[0], "body", [])]))
                if not holds_tests and (prefix or not self._may_go(name)):
                    yield PythonChange("", f"has no {prefix}{name} any more")
            elif len(now) != len(nodes):
                yield PythonChange(prefix + name, f"is defined {len(now)} times")
            else:
                for was, node in zip(nodes, now, strict=True):
                    yield from self._compare_definition(was, node, prefix)
        for name, nodes in after.items():
            if name not in before:
                yield from self._judge_new(name, nodes, prefix)
        yield from self._compare_others(old, new, prefix)

    def _may_go(self, name: str) -> bool:
        """Tell whether nothing is left of the file that needs a name, and something did."""
        return self._mentioned[name] > 0 and self._remaining[name] == 0

    def _compare_definition(
        self, old: Definition, new: Definition, prefix: str
    ) -> Iterator[PythonChange]:
        name = prefix + old.name
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            if dumps([*old.bases, *old.keywords]) != dumps([*new.bases, *new.keywords]):
                yield PythonChange(name, "has other bases")
            if dumps(old.decorator_list) != dumps(new.decorator_list):
                yield PythonChange(name, "has other decorators")
            yield from self.compare_scope(old.body, new.body, f"{name}.")
        elif (
            isinstance(old, ast.ClassDef)
            or isinstance(new, ast.ClassDef)
            or (type(old) is not type(new))
        ):
            yield PythonChange(name, "is of another kind")
        elif not is_test(old):
            if _strip(old) != _strip(new):
                yield PythonChange("" if not prefix else name, f"has another {name}")
        elif dump(old) != dump(new) and (what := self._compare_tests(old, new)):
            yield PythonChange(name, what)

    def _compare_tests(self, old: Function, new: Function) -> str:
        """Say what is not as it was about a test."""
        if _strip(old)[0] != _strip(new)[0]:
            return "takes other arguments"
        decorators = old.decorator_list, new.decorator_list
        if len(decorators[0]) != len(decorators[1]) or not all(
            dump(was) == dump(now) or self._has_more_rows(was, now)
            for was, now in zip(*decorators, strict=True)
        ):
            return "has other decorators"
        parameters, local = set(bound_names([new.args])), set(bound_names(new.body))
        judge = _Additions(
            (self._known, parameters, local - self._shared),
            names([old]) | parameters,
            local=parameters | local,
            is_async=isinstance(new, ast.AsyncFunctionDef),
        )
        sequel = _Sequel(meaningful(old.body), judge, replace(judge, last=True))
        return sequel.find_problem(meaningful(new.body))

    def _has_more_rows(self, old: ast.expr, new: ast.expr) -> bool:
        """Tell whether ``parametrize`` has all its values as they were, and others."""
        match old, new:
            case (
                ast.Call(func=func, args=[first, (ast.List() | ast.Tuple()) as was]),
                ast.Call(args=[_, (ast.List() | ast.Tuple()) as now]),
            ) if path(func)[-1] == "parametrize" and type(was) is type(now):
                pass
            case _:
                return False
        same = ast.Call(func, [first, now], old.keywords)
        if dump(same) != dump(new):
            return False
        rest, judge = [*reversed(dumps(was.elts))], _Additions((self._known,))
        for element in now.elts:
            if rest and dump(element) == rest[-1]:
                rest.pop()
            elif judge.judge_decorator(element) and judge.judge_expression(element):
                return False
        return not rest

    def _judge_new(
        self, name: str, nodes: Sequence[Definition], prefix: str
    ) -> Iterator[PythonChange]:
        what = ""
        if len(nodes) > 1:
            what = f"is defined {len(nodes)} times"
        elif name in self._names or (prefix and name in self._members):
            what = "takes the place of what was there"
        elif is_hook(name):
            what = "has a say in how tests run"
        elif prefix and not (is_test(nodes[0]) or _HELPER_METHOD.fullmatch(name)):
            what = "may take the place of what the class inherits"
        judge = _Additions((self._known,), self._names)
        for node in nodes:
            what = what or _find_patch(node, self._shared) or _judge_import_time(node, judge)
            if not prefix and _is_calm(node, judge):
                self._known.add(name)
        if what:
            yield PythonChange("", f"has a new {prefix}{name} that {what}")

    def _compare_others(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], prefix: str
    ) -> Iterator[PythonChange]:
        """Compare what is neither an import nor a definition."""
        before, after = others(old), others(new)
        if not prefix:
            before = [node for node in before if not self._may_constant_go(node)]
            demands = any(
                isinstance(child, ast.Assert) for one in before for child in ast.walk(one)
            )
            if not demands and not any(map(is_main_guard, before)):
                after = [node for node in after if not is_main_guard(node)]
        taken = self._names | self._members | {"pytestmark", "pytest_plugins"}
        judge = _Additions((self._known,), taken)
        what = _Sequel(before, judge, judge).find_problem(after)
        members = set(dumps(before))
        for node in after:
            added = bound_names([node])
            if dump(node) not in members and any(
                is_hook(name) or (prefix and not name.isupper()) for name in added
            ):
                what = what or f"binds {added[0]}"
        if what:
            yield PythonChange(prefix.rstrip("."), what)

    def _may_constant_go(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.Assign | ast.AnnAssign) and all(
            isinstance(one, ast.Name) and self._may_go(one.id) for one in targets(node)
        )


class _Sequel:
    """Tells whether a block is another one with harmless additions."""

    def __init__(self, old: Sequence[ast.stmt], judge: _Additions, end: _Additions) -> None:
        self._rest = [*reversed([(dump(node), node) for node in old])]
        self._judge = judge
        self._end = end

    def find_problem(self, new: Sequence[ast.stmt]) -> str:
        what = self._read_block(new)
        if self._rest:
            return f"does not have {_shorten(self._rest[-1][1])!r} as it was"
        return what

    def _read_block(self, new: Sequence[ast.stmt]) -> str:
        what = ""
        for node in new:
            if self._rest and dump(node) == self._rest[-1][0]:
                self._rest.pop()
                continue
            judge = self._judge if self._rest else self._end
            if self._rest and isinstance(node, ast.With) and _is_sub_test(node):
                heads = (judge.judge_expression(item.context_expr) for item in node.items)
                what = what or _find_first(heads)
                inside = self._read_block(node.body)
                what = what or inside
            else:
                what = what or judge.judge_statement(node)
        return what


def _is_sub_test(node: ast.With) -> bool:
    """Tell whether a block is ``with self.subTest(...)``, which reports what fails inside it."""
    return all(
        path(item.context_expr) == ("self", "subTest") and item.optional_vars is None
        for item in node.items
    )


def _judge_import_time(node: Definition, judge: _Additions) -> str:
    """Say what is wrong with the parts of something new that run when the file is imported."""
    found = [judge.judge_decorator(one) for one in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        found += [judge.judge_expression(one) for one in [*node.bases, *node.keywords]]
        inside = _Additions(judge.known)
        for item in meaningful(node.body):
            if isinstance(item, Definition):
                found.append(_judge_import_time(item, judge))
            elif not isinstance(item, ast.AnnAssign) or item.value is not None:
                found.append(inside.judge_statement(item))
    else:
        defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]
        found += [judge.judge_expression(one) for one in defaults]
    return _find_first(found)


def _find_patch(node: Definition, shared: AbstractSet[str]) -> str:
    """Say what a new function or class does to names that others share."""
    for child in ast.walk(node):
        if isinstance(child, ast.Global) and (both := shared & set(child.names)):
            return f"binds {min(both)} anew"
        if isinstance(child, ast.Attribute | ast.Subscript) and not isinstance(child.ctx, ast.Load):
            if path(child)[0] in shared:
                return f"sets {_shorten(child)}"
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            first = path(child.args[0])[0] if child.args else ""
            if child.func.id in {"setattr", "delattr"} and first in shared:
                return f"calls {child.func.id} on {first}"
            if child.func.id in {"globals", "exec", "eval", "vars"}:
                return f"calls {child.func.id}"
    return ""


def _is_calm(node: Definition, judge: _Additions) -> bool:
    """Tell whether something new may be called while the file is imported."""
    unsafe = (ast.Raise, ast.While, ast.Try, ast.TryStar, ast.Global, ast.Import, ast.ImportFrom)
    within = _Additions((*judge.known, set(bound_names([node]))))
    return not any(
        isinstance(child, unsafe)
        or (isinstance(child, ast.Call) and within.judge_expression(child))
        for child in ast.walk(node)
    )


def _strip(node: Function) -> tuple[object, ...]:
    """Return the arguments without their annotations, the decorators, and the body."""
    args = node.args
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    defaults = [*args.defaults, *(one or ast.Pass() for one in args.kw_defaults)]
    signature = tuple(one.arg if one is not None else "" for one in every), dumps(defaults)
    return signature, dumps(node.decorator_list), dumps(meaningful(node.body))


def _list_definitions(body: Sequence[ast.stmt]) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in body:
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append(node)
    return found


def _list_imports(tree: ast.Module) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in tree.body:
        for name, origin in imported_names(node):
            if origin not in found.setdefault(name, []):
                found[name].append(origin)
    return found


def _count_uses(tree: ast.Module) -> Counter[str]:
    """Count how often each name is used, and not bound, in the file."""
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=used, ctx=ast.Load())
                | ast.arg(arg=used)
                | ast.Constant(value=str(used))
            ):
                found[used] += 1
    return found


def _is_denied(found: Iterable[str]) -> bool:
    return any(_DENIED.fullmatch(name) for name in found if name)


def _find_first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _shorten(node: ast.AST) -> str:
    if isinstance(node, Definition):
        return node.name
    return ast.unparse(node).partition("\n")[0][:60]
