"""The tests of a Python file, read from its syntax tree, each with all that it stands on."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.runs.gates.test_grammar import GRAMMARS, UNKNOWN, CaseBlock, SourceText, count_demands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Import: TypeAlias = ast.Import | ast.ImportFrom
Assignment: TypeAlias = ast.Assign | ast.AnnAssign | ast.AugAssign
MAX_NAMES: Final = 200
"""A test that needs more names of its file than this is not known again elsewhere."""
SCRIPT: Final = "(script)"
"""The name of what a file demands outside of all tests."""
_GRAMMAR: Final = GRAMMARS["python"]
_HOOKS: Final = re.compile(
    r"__\w+__|pytest\w+|set_?up\w*|tear_?down\w*|load_tests|collect_ignore\w*", re.IGNORECASE
)
_EXITS: Final = frozenset({"exit", "quit", "SystemExit", "Exit"})
_COLLECTION: Final = re.compile(r"collect_ignore(_glob)?|pytest_plugins|__test__|load_tests")


def read_python(data: bytes) -> SourceText | None:
    """Return the tests of a file; ``None`` if it is not Python that can be read."""
    try:
        return _Reader(ast.parse(data)).read()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def dump(node: ast.AST) -> str:
    """Return a form of the code that does not change with its place or its comments."""
    return ast.dump(node, annotate_fields=False)


def dumps(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """Return the forms of several nodes."""
    return tuple(dump(node) for node in nodes)


def walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk over several nodes and all that is inside them."""
    return chain.from_iterable(map(ast.walk, nodes))


def path(node: ast.AST) -> tuple[str, ...]:
    """Return the names of ``a.b(c).d[e]``: ``a``, ``b``, ``d``; the first is empty for no name."""
    found: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            found.append(node.id if isinstance(node, ast.Name) else "")
            return tuple(reversed(found))


def imported_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, f"import {alias.name if alias.asname else name}"
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield alias.asname or alias.name, f"from {module} import {alias.name}"


def bound_names(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names that nodes bind, with all that is inside them."""
    return [name for node in walk(nodes) for name in _bound_by(node)]


def _bound_by(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(ctx=ast.Load()):
            return []
        case ast.Import() | ast.ImportFrom():
            return [name for name, _ in imported_names(node)]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case (
            ast.Name(id=name)
            | ast.arg(arg=name)
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return [name]
    return []


def bound_in_scope(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds in it."""
    return [node.name] if isinstance(node, Definition) else bound_names([node])


def names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return all names that are used or bound in the nodes, and the texts of decorators.

    Such a text may name a fixture.
    """
    found = set(bound_names(nodes))
    for node in walk(nodes):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, Definition):
            for inner in walk(node.decorator_list):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    found.add(inner.value)
    return found


def is_test(node: ast.AST) -> bool:
    """Tell whether a function is a test by its name."""
    return isinstance(node, Function) and node.name.lower().startswith("test")


def is_hook(name: str) -> bool:
    """Tell whether a test framework looks for a name."""
    return _HOOKS.fullmatch(name) is not None


def is_main_guard(node: ast.stmt) -> bool:
    """Tell whether a statement is ``if __name__ == "__main__":``."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) == "__name__ == '__main__'"
    )


def meaningful(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a block without ``pass`` and without texts that are not a doctest."""
    return [node for node in body if not isinstance(node, ast.Pass) and not _is_text(node)]


def _is_text(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    value = node.value.value
    return value is Ellipsis or (isinstance(value, str) and ">>>" not in value)


def others(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return what is neither an import nor a definition."""
    return [node for node in meaningful(body) if not isinstance(node, Definition | Import)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a test stands: what decides over it, and the names which that mentions."""

    prefix: str = ""
    skips: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    """The classes around it."""

    def enter_class(self, node: ast.ClassDef, *, counts: bool) -> _Place:
        """Return the place inside a class; one that is replaced later does not count."""
        members = [item for item in meaningful(node.body) if not is_test(item)]
        heads = [*node.bases, *node.keywords, *node.decorator_list]
        frame = _digest([*dumps(heads), "", *dumps(members)])
        loose = [*node.decorator_list, *others(node.body)]
        return _Place(
            f"{self.prefix}{node.name}.",
            (*self.skips, *_GRAMMAR.find_skips(_code_of(loose))),
            (*self.frames, frame if counts else "replaced"),
            self.needs | names([*heads, *members]),
            self.own | {node.name},
        )


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._texts: dict[str, list[str]] = {}
        self._needs: dict[str, list[set[str]]] = {}
        for node in tree.body:
            if isinstance(node, Import):
                for name, origin in imported_names(node):
                    self._texts.setdefault(name, []).append(origin)
                continue
            text, needs = _digest([dump(node)]), names([node])
            for name in bound_in_scope(node):
                self._texts.setdefault(name, []).append(text)
                self._needs.setdefault(name, []).append(needs)
        for needs in chain.from_iterable(self._needs.values()):
            if len(needs) > MAX_NAMES:
                needs.intersection_update(self._texts)
        self._loose = frozenset(_find_loose(tree))

    def read(self) -> SourceText:
        loose = others(self._tree.body)
        cases = [*self._read_cases(self._tree.body, _Place())]
        # A file may be run as a program as well, and demand something then.
        script = count_demands(_GRAMMAR, SCRIPT, "", _code_of(loose))
        if script.weight:
            ground = self._find_ground(dumps(loose), names(loose), frozenset())
            cases.append(replace(script, ground=ground, loose=self._loose))
        marks = _GRAMMAR.find_skips(_code_of(loose))
        exits = len([*_find_exits(self._tree)])
        return SourceText(tuple(cases), marks, exits, tuple(sorted(self._find_hooks())), self._tree)

    def _read_cases(self, body: Sequence[ast.stmt], place: _Place) -> Iterator[CaseBlock]:
        final: dict[str, int] = {}
        for node in body:
            here = id(node) if isinstance(node, Definition) else 0
            final.update((name, here) for name in bound_in_scope(node))
        for node in body:
            counts = isinstance(node, Definition) and final[node.name] == id(node)
            if isinstance(node, ast.ClassDef):
                yield from self._read_cases(node.body, place.enter_class(node, counts=counts))
            elif isinstance(node, Function) and is_test(node):
                yield self._read_case(node, place, counts=counts)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
                blocks += [handler.body for handler in getattr(node, "handlers", [])]
                inner = (ast.stmt, ast.ExceptHandler)
                heads = [one for one in ast.iter_child_nodes(node) if not isinstance(one, inner)]
                for number, block in enumerate(blocks):
                    frame = (type(node).__name__, str(number), *dumps(heads))
                    within = replace(place, frames=(*place.frames, *frame))
                    yield from self._read_cases(block, within)

    def _read_case(self, node: Function, place: _Place, *, counts: bool) -> CaseBlock:
        frames = (*place.frames, "" if counts else "replaced", type(node).__name__)
        parts = (*frames, dump(node.args), *dumps(node.decorator_list), "")
        used = (names([node]) | place.needs) - place.own - {node.name}
        ground = self._find_ground((*parts, *dumps(meaningful(node.body))), used, place.own)
        code = _code_of([node])
        case = count_demands(_GRAMMAR, place.prefix + node.name, code, code)
        skips = (*place.skips, *case.skips)
        return replace(case, assertions=(), skips=skips, ground=ground, loose=self._loose)

    def _find_ground(self, parts: Sequence[str], used: set[str], own: frozenset[str]) -> str:
        """Return what is the same for two tests that do the same on the same ground."""
        seen, waiting = set(own), [*used]
        lines: list[str] = []
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._texts:
                continue
            seen.add(name)
            needed = self._needs.get(name, [])
            if len(lines) >= MAX_NAMES or sum(map(len, needed)) > MAX_NAMES:
                return UNKNOWN
            lines.append(f"{name}={_digest(self._texts[name])}")
            waiting += chain.from_iterable(needed)
        return _digest([*parts, "", *sorted(lines)])

    def _find_hooks(self) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, Function) and node.name.startswith("pytest_"):
                yield f"{node.name}: {dump(node)}"
            elif isinstance(node, Assignment):
                for target in targets(node):
                    if _COLLECTION.fullmatch(path(target)[-1]):
                        yield f"{path(target)[-1]}: {dump(node)}"


def targets(node: Assignment) -> list[ast.expr]:
    """Return what an assignment binds."""
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _code_of(nodes: Iterable[ast.AST]) -> str:
    return _GRAMMAR.blank("\n".join(map(ast.unparse, nodes)))


def _find_exits(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what ends the process: from anywhere at once, or when the file is merely imported."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(attr="_exit" | "abort")
                | ast.Call(func=ast.Attribute(ast.Name("pytest"), "exit"))
            ):
                yield node
    for item in tree.body:
        guard = isinstance(item, ast.If) and "'__name__'" in dump(item.test)
        for node in () if guard or isinstance(item, Definition) else ast.walk(item):
            what = node.exc if isinstance(node, ast.Raise) else node
            called = isinstance(node, ast.Raise | ast.Call)
            if called and what is not None and path(what)[-1] in _EXITS:
                yield node


def _find_loose(tree: ast.Module) -> Iterator[str]:
    """Yield what runs on import or for every test, whatever the test mentions."""
    for node in tree.body:
        if isinstance(node, Definition):
            inner = walk(node.decorator_list)
            keywords = {child.arg for child in inner if isinstance(child, ast.keyword)}
            if is_hook(node.name) or keywords & {"autouse", None}:
                yield dump(node)
        elif isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            yield dump(node)
    for node in others(tree.body):
        plain = isinstance(node, ast.Assign | ast.AnnAssign) and not any(
            isinstance(child, ast.Attribute | ast.Subscript) and isinstance(child.ctx, ast.Store)
            for child in ast.walk(node)
        )
        if any(map(is_hook, bound_names([node]))) or not (plain or is_main_guard(node)):
            yield dump(node)


def _digest(parts: Sequence[str]) -> str:
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.hexdigest()
