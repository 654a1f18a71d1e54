"""The pages of packages: which names each offers, and who imports what in the end."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.repository import Module, modules

TOP = "coilclaw"


@dataclass(frozen=True, slots=True)
class Page:
    """The ``__init__.py`` of a package: what other packages may import from it."""

    package: str
    path: Path
    docstring: str
    names: Mapping[str, str]
    """Each name with the dotted name of the module that defines it."""
    whole: Mapping[str, str]
    """Each module that is offered as a whole, by its last name."""

    @property
    def offered(self) -> dict[str, str]:
        return {**self.names, **self.whole}


def read_page(module: Module) -> Page:
    """Read the table that a page passes to ``lazy_names``; a page without one offers nothing."""
    names: dict[str, str] = {}
    whole: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names":
            for inner, offered in ast.literal_eval(node.args[1]).items():
                names |= dict.fromkeys(offered.split(), f"{module.name}.{inner}")
            for keyword in node.keywords:
                for inner in ast.literal_eval(keyword.value).split():
                    whole[inner.rpartition(".")[2]] = f"{module.name}.{inner}"
    return Page(module.package, module.path, ast.get_docstring(module.tree) or "", names, whole)


@cache
def pages() -> tuple[Page, ...]:
    """Return the pages of all packages."""
    return tuple(read_page(m) for m in modules() if m.is_package and m.name.count(".") == 1)


def render_stub(page: Page) -> str:
    """Return what the type checker is told of a page."""
    lines = [f"from {home} import {name} as {name}" for name, home in page.names.items()]
    lines += [
        f"from {home.rpartition('.')[0]} import {name} as {name}"
        for name, home in page.whole.items()
    ]
    return "\n".join(sorted(lines)) + "\n"


def imported(module: Module, existing: Collection[str]) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yield statement, source and name of each import, also those inside functions.

    The name is empty where a module is imported as a whole.
    """
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*above, node.module] if node.module else above)
            source = (node.module or "") if node.level == 0 else source
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield (node, whole, "") if whole in existing else (node, source, alias.name)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _imported_by_call(node, node.value)


def _imported_by_call(node: ast.stmt, call: ast.Call) -> Iterator[tuple[ast.stmt, str, str]]:
    called = ast.unparse(call.func).rpartition(".")[2]
    if called in {"import_module", "__import__"} and isinstance(call.args[0], ast.Constant):
        yield node, str(call.args[0].value), ""


def for_types_only(module: Module) -> frozenset[ast.AST]:
    """Return the statements that only the type checker reads."""
    return frozenset(
        inner
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    )


def import_graph() -> dict[str, set[str]]:
    """Map every module to what it imports when it runs, with pages looked through."""
    existing = frozenset(module.name for module in modules())
    by_package = {f"{TOP}.{page.package}": page.offered for page in pages()}
    graph: dict[str, set[str]] = {}
    for module in modules():
        types = for_types_only(module)
        found = graph.setdefault(module.name, set())
        for node, source, name in imported(module, existing):
            if node not in types:
                found.add(by_package.get(source, {}).get(name, source))
    return graph


def find_cycle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the modules of one cycle, or nothing."""
    state: dict[str, int] = {}
    for start in graph:
        path: list[tuple[str, Iterator[str]]] = []
        if start not in state:
            state[start] = 1
            path.append((start, iter(sorted(graph[start]))))
        while path:
            name, rest = path[-1]
            for target in rest:
                if state.get(target) == 1 and target in graph and target != name:
                    names = [each for each, _ in path]
                    return [*names[names.index(target) :], target]
                if target in graph and target not in state:
                    state[target] = 1
                    path.append((target, iter(sorted(graph[target]))))
                    break
            else:
                state[name] = 2
                path.pop()
    return []


def reach(graph: Mapping[str, Collection[str]], starts: Collection[str]) -> dict[str, str]:
    """Return everything that some modules import in the end, each with who imports it."""
    found: dict[str, str] = {}
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        for target in graph.get(name, ()):
            if target not in found and target not in starts:
                found[target] = name
                waiting.append(target)
    return found
