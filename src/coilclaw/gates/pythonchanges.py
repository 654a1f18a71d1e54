"""What a change does to Python tests that were there: nothing but harmless additions is allowed.

The statements of a test stay as they are and in their order. Fixtures, helpers, imports and all
other code of the file stay as well. What a test expects is a part of it: another expected value is
a changed test, and whether it is right is nothing that can be read from it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.gates.pythonadditions import HARMLESS_MODULES, Additions, hides, is_calm, patches
from coilclaw.gates.pythonnames import (
    DEFINITIONS,
    Function,
    attributes,
    bound,
    dump,
    dumps,
    imported,
    is_hook,
    is_main_guard,
    is_test,
    meaningful,
    names,
    others,
    path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.gates.pythonnames import Definition

_HELPER_METHOD: Final = re.compile(r"(?!(run|debug|id|fail|setup\w*|teardown\w*)$)[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not as it was."""

    subject: str
    """The test or class; empty for the rest of the file."""
    what: str


def changes(old: ast.Module, new: ast.Module) -> Iterator[Change]:
    """Say what is different about the tests of a file that were there before."""
    comparison = _Comparison(old, new)
    yield from comparison.imports()
    yield from comparison.scope(old.body, new.body, "")


class _Comparison:
    def __init__(self, old: ast.Module, new: ast.Module) -> None:
        self._old, self._new = old, new
        self._names = names([old])
        self._members = attributes([old])
        self._shared = {name for node in new.body for name in _module_names(node)}
        old_shared = {name for node in old.body for name in _module_names(node)}
        self._known = old_shared | _harmless_imports(new)
        self._mentioned = _uses(old)
        self._remaining = _uses(new)

    def imports(self) -> Iterator[Change]:
        before, after = _imports(self._old), _imports(self._new)
        for name, origins in before.items():
            if name not in after and self._may_go(name):
                continue
            if after.get(name) != origins:
                yield Change("", f"does not have {origins[0]!r} as it was")
        for name in after.keys() - before.keys():
            if name in self._names or name == "*" or is_hook(name):
                yield Change("", f"binds {name} anew")
        known = set(dumps(self._old.body))
        for node in self._new.body:
            if (name := hides(node)) and dump(node) not in known:
                yield Change("", f"imports {name} under another name")

    def scope(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], prefix: str
    ) -> Iterator[Change]:
        before, after = _definitions(old), _definitions(new)
        for name, nodes in before.items():
            now = after.get(name, [])
            if not now:
                if not _holds_tests(nodes[0]) and (prefix or not self._may_go(name)):
                    yield Change("", f"has no {prefix}{name} any more")
            elif len(now) != len(nodes):
                yield Change(prefix + name, f"is defined {len(now)} times")
            else:
                for was, node in zip(nodes, now, strict=True):
                    yield from self._definition(was, node, prefix)
        for name, nodes in after.items():
            if name not in before:
                yield from self._new_definition(name, nodes, prefix)
        yield from self._loose(old, new, prefix)

    def _may_go(self, name: str) -> bool:
        """Whether nothing is left of the file that needs a name, and something did need it."""
        return self._mentioned.get(name, 0) > 0 and self._remaining.get(name, 0) == 0

    def _definition(self, old: Definition, new: Definition, prefix: str) -> Iterator[Change]:
        name = prefix + old.name
        if isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef):
            if dumps([*old.bases, *old.keywords]) != dumps([*new.bases, *new.keywords]):
                yield Change(name, "has other bases")
            if dumps(old.decorator_list) != dumps(new.decorator_list):
                yield Change(name, "has other decorators")
            yield from self.scope(old.body, new.body, f"{name}.")
        elif type(old) is not type(new) or isinstance(old, ast.ClassDef):
            yield Change(name, "is of another kind")
        elif isinstance(new, Function) and dump(old) != dump(new):
            if not is_test(old):
                if _without_docstring(old) != _without_docstring(new):
                    yield Change("" if not prefix else name, f"has another {name}")
            elif what := self._test(old, new):
                yield Change(name, what)

    def _test(self, old: Function, new: Function) -> str:
        """Say what is not as it was about a test."""
        if _signature(old) != _signature(new):
            return "takes other arguments"
        if len(old.decorator_list) != len(new.decorator_list):
            return "has other decorators"
        for was, node in zip(old.decorator_list, new.decorator_list, strict=True):
            if dump(was) != dump(node) and not self._more_rows(was, node):
                return "has other decorators"
        parameters = {name for node in ast.walk(new.args) for name in bound(node)}
        local = {name for node in new.body for child in ast.walk(node) for name in bound(child)}
        judge = Additions(
            (self._known, parameters, local - self._shared),
            names([old]) | parameters,
            local=parameters | local,
            is_async=isinstance(new, ast.AsyncFunctionDef),
        )
        return _Sequel(meaningful(old.body), judge).problem(meaningful(new.body))

    def _more_rows(self, old: ast.expr, new: ast.expr) -> bool:
        """Whether ``parametrize`` has all its values as they were, and others."""
        if not isinstance(old, ast.Call) or not isinstance(new, ast.Call):
            return False
        if path(old)[-1] != "parametrize" or dump(old.func) != dump(new.func):
            return False
        if len(old.args) != 2 or len(new.args) != 2 or dump(old.args[0]) != dump(new.args[0]):
            return False
        was, now = old.args[1], new.args[1]
        if not isinstance(was, ast.List | ast.Tuple) or type(was) is not type(now):
            return False
        assert isinstance(now, ast.List | ast.Tuple)
        if dumps(old.keywords) != dumps(new.keywords):
            return False
        rest, judge = [*dumps(was.elts)], Additions((self._known,), frozenset())
        rest.reverse()
        for element in now.elts:
            if rest and dump(element) == rest[-1]:
                rest.pop()
            elif judge.decorator(element) and judge.expression(element):
                return False
        return not rest

    def _new_definition(
        self, name: str, nodes: Sequence[Definition], prefix: str
    ) -> Iterator[Change]:
        what = self._new_name(name, nodes, prefix)
        judge = Additions((self._known,), self._names)
        for node in nodes:
            what = what or patches(node, self._shared) or _on_import(node, judge)
            if not prefix and is_calm(node, judge):
                self._known.add(name)
        if what:
            yield Change("", f"has a new {prefix}{name} that {what}")

    def _new_name(self, name: str, nodes: Sequence[Definition], prefix: str) -> str:
        if len(nodes) > 1:
            return f"is defined {len(nodes)} times"
        if name in self._names or (prefix and name in self._members):
            return "takes the place of what was there"
        if is_hook(name):
            return "has a say in how tests run"
        if prefix and not (is_test(nodes[0]) or _HELPER_METHOD.fullmatch(name)):
            return "may take the place of what the class inherits"
        return ""

    def _loose(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], prefix: str
    ) -> Iterator[Change]:
        """Compare what is neither an import nor a definition."""
        before, after = others(old), others(new)
        if not prefix:
            before = [node for node in before if not self._constant_may_go(node)]
        if not prefix and not any(is_main_guard(node) or _is_demand(node) for node in before):
            after = [node for node in after if not is_main_guard(node)]
        judge = Additions(
            (self._known,), self._names | self._members | {"pytestmark", "pytest_plugins"}
        )
        what = _Sequel(before, judge, to_the_end=False).problem(after)
        members = set(dumps(before))
        for node in after:
            added = [name for child in ast.walk(node) for name in bound(child)]
            if dump(node) not in members and any(
                is_hook(name) or (prefix and not name.isupper()) for name in added
            ):
                what = what or f"binds {added[0]}"
        if what:
            yield Change(prefix.rstrip("."), what)

    def _constant_may_go(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(isinstance(one, ast.Name) and self._may_go(one.id) for one in targets)


class _Sequel:
    """Whether a block is another one with harmless additions."""

    def __init__(
        self, old: Sequence[ast.stmt], judge: Additions, *, to_the_end: bool = True
    ) -> None:
        self._rest = [*reversed([(dump(node), node) for node in old])]
        self._judge = judge
        self._end = replace(judge, last=True) if to_the_end else judge

    def problem(self, new: Sequence[ast.stmt]) -> str:
        what = self._block(new)
        if self._rest:
            first = ast.unparse(self._rest[-1][1]).partition("\n")[0][:60]
            return f"does not have {first!r} as it was"
        return what

    def _block(self, new: Sequence[ast.stmt]) -> str:
        what = ""
        for node in new:
            if self._rest and dump(node) == self._rest[-1][0]:
                self._rest.pop()
                continue
            judge = self._judge if self._rest else self._end
            found = judge.problem(node)
            if self._rest and isinstance(node, ast.With) and _is_sub_test(node):
                heads = (judge.expression(item.context_expr) for item in node.items)
                found = next((head for head in heads if head), "") or self._block(node.body)
            what = what or found
        return what


def _is_sub_test(node: ast.With) -> bool:
    """``with self.subTest(...)`` reports what fails inside it."""
    return all(
        path(item.context_expr) == ("self", "subTest") and item.optional_vars is None
        for item in node.items
    )


def _is_demand(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert) or any(isinstance(c, ast.Assert) for c in ast.walk(node))


def _on_import(node: Definition, judge: Additions) -> str:
    """What is wrong with the parts of something new that run as soon as the file is imported."""
    found = [judge.decorator(one) for one in node.decorator_list]
    if isinstance(node, ast.ClassDef):
        found += [judge.expression(one) for one in [*node.bases, *node.keywords]]
        inside = Additions(judge.known, frozenset())
        for item in meaningful(node.body):
            if isinstance(item, DEFINITIONS):
                found.append(_on_import(item, judge))
            else:
                found.append(inside.problem(item) if not _is_bare(item) else "")
    else:
        defaults = [*node.args.defaults, *(one for one in node.args.kw_defaults if one)]
        found += [judge.expression(one) for one in defaults]
    return next((what for what in found if what), "")


def _is_bare(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is None


def _holds_tests(node: ast.AST) -> bool:
    return is_test(node) or (
        isinstance(node, ast.ClassDef) and any(is_test(item) for item in node.body)
    )


def _signature(node: Function) -> tuple[object, ...]:
    """The arguments without their annotations."""
    args = node.args
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    defaults = [*args.defaults, *(one or ast.Pass() for one in args.kw_defaults)]
    return tuple(one.arg if one is not None else "" for one in every), dumps(defaults)


def _without_docstring(node: Function) -> tuple[object, ...]:
    return _signature(node), dumps(node.decorator_list), dumps(meaningful(node.body))


def _definitions(body: Sequence[ast.stmt]) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in body:
        if isinstance(node, DEFINITIONS):
            found.setdefault(node.name, []).append(node)
    return found


def _imports(tree: ast.Module) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in tree.body:
        for name, origin in imported(node):
            if origin not in found.setdefault(name, []):
                found[name].append(origin)
    return found


def _module_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of the module binds in it."""
    if isinstance(node, DEFINITIONS):
        yield node.name
        return
    for child in ast.walk(node):
        yield from bound(child)


def _harmless_imports(tree: ast.Module) -> set[str]:
    return {
        name
        for node in tree.body
        for name, origin in imported(node)
        if origin.split()[1].partition(".")[0] in HARMLESS_MODULES
    }


def _uses(tree: ast.Module) -> dict[str, int]:
    """How often each name is used, and not bound, in the file."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        used = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used = node.id
        elif isinstance(node, ast.arg):
            used = node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used = node.value
        if used:
            found[used] = found.get(used, 0) + 1
    return found
