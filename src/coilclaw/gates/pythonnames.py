"""The names in a piece of Python: what it mentions, binds and imports."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HOOKS: Final = re.compile(
    r"__\w+__|pytest\w+|set_?up\w*|tear_?down\w*|load_tests|collect_ignore\w*", re.IGNORECASE
)


def dump(node: ast.AST) -> str:
    """A form of the code that does not change with its place or its comments."""
    return ast.dump(node, annotate_fields=False)


def dumps(nodes: Sequence[ast.AST]) -> tuple[str, ...]:
    """The forms of several."""
    return tuple(dump(node) for node in nodes)


def path(node: ast.AST) -> tuple[str, ...]:
    """The names of ``a.b(c).d[e]``: ``a``, ``b``, ``d``; the first is empty if it is no name."""
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


def imported(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, f"import {alias.name if alias.asname else name}"
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield alias.asname or alias.name, f"from {module} import {alias.name}"


def bound(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds, not what is inside it."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (name for name, _ in imported(node))
    elif isinstance(node, DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        if node.name is not None:
            yield node.name
    elif isinstance(node, ast.MatchMapping):
        if node.rest is not None:
            yield node.rest
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def names(nodes: Sequence[ast.AST], *, texts: bool = False) -> set[str]:
    """All names that are used or bound anywhere in the nodes; with ``texts``, in texts as well.

    A text in a decorator always counts: it may name a fixture.
    """
    found: set[str] = set()
    for top in nodes:
        for node in ast.walk(top):
            found.update(bound(node))
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, DEFINITIONS):
                found.update(_texts(node.decorator_list))
    return found


def attributes(nodes: Sequence[ast.AST]) -> set[str]:
    """All attributes and members that the nodes use or define."""
    found = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, DEFINITIONS):
                found.add(node.name)
    return found


def _texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def is_test(node: ast.AST) -> bool:
    """Whether a function is a test by its name."""
    return isinstance(node, Function) and node.name.lower().startswith("test")


def meaningful(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A block without ``pass`` and without texts that are no doctest."""
    return [node for node in body if not isinstance(node, ast.Pass) and not _is_text(node)]


def _is_text(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    value = node.value.value
    return value is Ellipsis or (isinstance(value, str) and ">>>" not in value)


def is_main_guard(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) == "__name__ == '__main__'"
    )


def is_hook(name: str) -> bool:
    """Whether a test framework looks for a name."""
    return _HOOKS.fullmatch(name) is not None


def others(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """What is neither an import nor a definition."""
    apart = (*DEFINITIONS, ast.Import, ast.ImportFrom)
    return [node for node in meaningful(body) if not isinstance(node, apart)]
