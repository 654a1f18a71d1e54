"""``Ground``: a Python test with all that it stands on, to know it again under another name."""

from __future__ import annotations

import ast
import hashlib
from typing import TYPE_CHECKING, Final

from coilclaw.gates.pythonnames import (
    DEFINITIONS,
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
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.gates.pythonnames import Function

MAX_NAMES: Final = 200
"""A test that needs more names of its file than this is not known again elsewhere."""


class Ground:
    """What the names of a module stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._texts: dict[str, list[str]] = {}
        self._needs: dict[str, list[set[str]]] = {}
        for node in tree.body:
            self._bind(node)
        for sets in self._needs.values():
            for needs in sets:
                if len(needs) > MAX_NAMES:
                    needs.intersection_update(self._texts)
        self.loose = frozenset(_loose(tree))
        """What runs on import or for every test, whatever the test mentions."""

    def _bind(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, origin in imported(node):
                self._texts.setdefault(name, []).append(origin)
            return
        text, needs = _digest([dump(node)]), names([node])
        found = [node.name] if isinstance(node, DEFINITIONS) else []
        if not found:
            found = [name for child in ast.walk(node) for name in bound(child)]
        for name in found:
            self._texts.setdefault(name, []).append(text)
            self._needs.setdefault(name, []).append(needs)

    def of_test(self, node: Function, frames: Sequence[str], needs: set[str], own: set[str]) -> str:
        """Everything about a test but its name; empty if that is too much.

        ``frames`` is what it stands in, ``needs`` the names those mention, ``own`` the classes.
        """
        parts = (type(node).__name__, dump(node.args), *dumps(node.decorator_list))
        body = dumps(meaningful(node.body))
        used = (names([node]) | needs) - own - {node.name}
        return self._whole((*frames, *parts, "", *body), used, own)

    def of_script(self, body: Sequence[ast.stmt]) -> str:
        """What a file does when it runs as a program, whatever else it defines."""
        return self._whole(dumps(others(body)), names(others(body)), set())

    def _whole(self, parts: Sequence[str], used: set[str], own: set[str]) -> str:
        seen, waiting = set(own), [*used]
        lines: list[str] = []
        while waiting:
            name = waiting.pop()
            if name in seen or name not in self._texts:
                continue
            seen.add(name)
            needed = self._needs.get(name, [])
            if len(lines) >= MAX_NAMES or sum(map(len, needed)) > MAX_NAMES:
                return ""
            lines.append(f"{name}={_digest(self._texts[name])}")
            for more in needed:
                waiting += more
        return _digest([*parts, "", *sorted(lines)])


def class_frame(node: ast.ClassDef) -> str:
    """What a class gives to each of its tests."""
    members = [item for item in meaningful(node.body) if not is_test(item)]
    heads = dumps([*node.bases, *node.keywords, *node.decorator_list])
    return _digest([*heads, "", *dumps(members)])


def class_needs(node: ast.ClassDef) -> set[str]:
    """The names that a class mentions outside of its tests."""
    members = [item for item in node.body if not is_test(item)]
    return names([*node.bases, *node.keywords, *node.decorator_list, *members])


def final(body: Sequence[ast.stmt]) -> set[int]:
    """The ids of the definitions of a block whose name is not bound again after them."""
    last: dict[str, int] = {}
    for node in body:
        if isinstance(node, DEFINITIONS):
            last[node.name] = id(node)
        else:
            for child in ast.walk(node):
                last.update((name, 0) for name in bound(child))
    return set(last.values())


def _loose(tree: ast.Module) -> list[str]:
    found = []
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            keywords = [
                child.arg
                for one in node.decorator_list
                for child in ast.walk(one)
                if isinstance(child, ast.keyword)
            ]
            if is_hook(node.name) or "autouse" in keywords or None in keywords:
                found.append(dump(node))
        elif isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            found.append(dump(node))
    for node in others(tree.body):
        plain = isinstance(node, ast.Assign | ast.AnnAssign) and not any(
            isinstance(child, ast.Attribute | ast.Subscript) and isinstance(child.ctx, ast.Store)
            for child in ast.walk(node)
        )
        hooks = any(is_hook(name) for child in ast.walk(node) for name in bound(child))
        if hooks or not (plain or is_main_guard(node)):
            found.append(dump(node))
    return found


def _digest(parts: Sequence[str]) -> str:
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.hexdigest()
