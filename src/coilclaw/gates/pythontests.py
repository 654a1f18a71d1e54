"""The tests of a Python file, read from its syntax tree."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.gates.pythonground import Ground, class_frame, class_needs, final
from coilclaw.gates.pythonnames import dumps
from coilclaw.gates.testcase import Case, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
MAX_DEPTH: Final = 4
"""How far functions of the same file are followed from a test."""
MAX_FOLLOWED: Final = 100_000
"""How many statements of a file are added up before its functions are no longer followed."""
SCRIPT: Final = "(script)"
"""The name of what a file demands outside of all tests."""
UNKNOWN: Final = "unknown"
"""The ground of a test that needs too much of its file to be known again elsewhere."""
_ASSERTING: Final = re.compile(
    r"_*(assert|expect|verify|check|ensure|should|fail$|fail[A-Z_])", re.IGNORECASE
)
_RAISING: Final = frozenset({"raises", "warns", "deprecated_call", "assertRaises", "assertWarns"})
_EXACT: Final = re.compile(
    r"assert_?(Equals?|Is|CountEqual|.*Equal)$|assert_(called_once_with|equal)", re.IGNORECASE
)
_SKIPS: Final = re.compile(
    r"skip|skip_?(if|unless|test)|xfail|SkipTest|expectedFailure|importorskip", re.IGNORECASE
)
_HOLDERS: Final = frozenset({"pytest", "unittest", "mark", "self", "testcase", ""})
_EXITS: Final = frozenset({"_exit", "abort"})
_MODULE_EXITS: Final = frozenset({"exit", "quit", "SystemExit", "Exit"})
_COLLECTION: Final = re.compile(r"collect_ignore(_glob)?|pytest_plugins|__test__|load_tests")
_SWALLOWED: Final = frozenset({"AssertionError", "Exception", "BaseException", "Failed"})


_PYTEST_EXIT: Final = "Attribute(Name('pytest', Load()), 'exit'"


def read(data: bytes) -> Source | None:
    """Return the tests of a file; ``None`` if it is no Python that can be read."""
    try:
        tree = ast.parse(data)
        return _Reader(tree).source()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@dataclass(slots=True)
class _Found:
    """What the statements of a test add up to."""

    assertions: list[str]
    skips: list[str]
    weight: int = 0
    exact: int = 0
    trivial: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a test stands."""

    prefix: str = ""
    skips: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    def in_class(self, node: ast.ClassDef, *, counts: bool) -> _Place:
        """Return the place inside a class; one that is replaced later does not count."""
        return _Place(
            f"{self.prefix}{node.name}.",
            (*self.skips, *_skips_of(node.decorator_list), *_class_marks(node)),
            (*self.frames, class_frame(node) if counts else "replaced"),
            self.needs | class_needs(node),
            self.own | {node.name},
        )

    def in_block(self, node: ast.stmt, number: int) -> _Place:
        """Return the place inside a block of a statement that decides over it."""
        frame = (type(node).__name__, str(number), *dumps(_heads(node)))
        return replace(self, frames=(*self.frames, *frame))


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._ground = Ground(tree)
        self._followed = 0
        self._local: dict[str, _Function] = {
            node.name: node for node in ast.walk(tree) if isinstance(node, _Function)
        }

    def source(self) -> Source:
        return Source(
            (*self._cases(self._tree.body, _Place()), *self._script()),
            tuple(self._marks()),
            len([*_exits(self._tree)]),
            tuple(sorted(self._hooks())),
            self._tree,
        )

    def _cases(self, body: Sequence[ast.stmt], place: _Place) -> Iterator[Case]:
        last = final(body)
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from self._cases(node.body, place.in_class(node, counts=id(node) in last))
            elif isinstance(node, _Function) and node.name.lower().startswith("test"):
                yield self._case(node, place, counts=id(node) in last)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                for number, part in enumerate(_blocks(node)):
                    yield from self._cases(part, place.in_block(node, number))

    def _script(self) -> Iterator[Case]:
        """What a file demands when it is run as a program, which is a way to run tests too."""
        found = _Found([], [])
        self._collect(self._tree.body, found, 1, ())
        if found.assertions:
            demands = (tuple(found.assertions), found.weight, found.exact, found.trivial)
            ground = self._ground.of_script(self._tree.body)
            whole = (_dump(self._tree), ground or UNKNOWN, self._ground.loose)
            yield Case(SCRIPT, *demands, (), *whole)

    def _case(self, node: _Function, place: _Place, *, counts: bool) -> Case:
        found = _Found([], [*place.skips, *_skips_of(node.decorator_list)])
        self._collect(node.body, found, 1, (node.name,))
        rows = _rows(node.decorator_list)
        frames = (*place.frames, "" if counts else "replaced")
        ground = self._ground.of_test(node, frames, set(place.needs), set(place.own))
        return Case(
            place.prefix + node.name,
            tuple(found.assertions),
            found.weight * rows,
            found.exact * rows,
            found.trivial,
            tuple(found.skips),
            _dump(node),
            ground or UNKNOWN,
            self._ground.loose,
        )

    def _collect(
        self, body: Sequence[ast.stmt], found: _Found, times: int, within: tuple[str, ...]
    ) -> bool:
        """Add up what can be reached; tells whether the end of the block can be."""
        self._followed += len(body)
        for node in body:
            if isinstance(node, ast.Assert):
                _count(found, node, times, exact=_is_exact(node.test), trivial=_always(node.test))
            elif isinstance(node, ast.If | ast.While) and _never(node.test):
                if not self._collect(node.orelse, found, times, within):
                    return False
            elif isinstance(node, ast.Try | ast.With | ast.AsyncWith) and _swallows(node):
                self._calls_in(_heads(node), found, times, within)
            elif isinstance(node, ast.For | ast.AsyncFor):
                self._collect(node.body, found, times * _length(node.iter), within)
                self._collect(node.orelse, found, times, within)
            elif isinstance(node, _Function | ast.ClassDef):
                continue
            else:
                self._calls_in(_heads(node), found, times, within)
                ends = [not self._collect(part, found, times, within) for part in _blocks(node)]
                if isinstance(node, ast.If) and node.orelse and len(ends) > 1 and all(ends):
                    return False
                if isinstance(node, ast.With | ast.AsyncWith) and any(ends):
                    return False
            if isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break):
                return False
        return True

    def _calls_in(
        self, heads: Sequence[ast.AST], found: _Found, times: int, within: tuple[str, ...]
    ) -> None:
        for head in heads:
            for node in ast.walk(head):
                if isinstance(node, ast.Call):
                    self._call(node, found, times, within)

    def _call(self, node: ast.Call, found: _Found, times: int, within: tuple[str, ...]) -> None:
        name = _name(node.func)
        local = self._local.get(name) if self._followed < MAX_FOLLOWED else None
        if _is_skip_call(node):
            found.skips.append(name)
        elif local is not None and name not in within and len(within) < MAX_DEPTH:
            self._collect(local.body, found, times, (*within, name))
        elif name in _RAISING or _ASSERTING.match(name):
            exact = _EXACT.match(name) is not None
            _count(found, node, times, exact=exact, trivial=_trivial_call(name, node))

    def _marks(self) -> Iterator[str]:
        """Marks on the whole file: ``pytestmark``, ``pytest.skip`` at its top, ``__test__``."""
        for node in self._tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                names = {_name(target) for target in _targets(node)}
                if "pytestmark" in names:
                    yield from _skips_of([node.value])
                if "__test__" in names and _never(node.value):
                    yield "__test__"
            elif isinstance(node, ast.Expr | ast.If | ast.Raise | ast.Try):
                yield from (_name(c) for c in ast.walk(node) if _is_skip_call(c))

    def _hooks(self) -> Iterator[str]:
        for node in ast.walk(self._tree):
            if isinstance(node, _Function) and node.name.startswith("pytest_"):
                yield f"{node.name}: {_dump(node)}"
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                for target in _targets(node):
                    if _COLLECTION.fullmatch(_name(target)):
                        yield f"{_name(target)}: {_dump(node)}"


def _count(found: _Found, node: ast.AST, times: int, *, exact: bool, trivial: bool) -> None:
    if trivial:
        found.trivial += 1
        return
    what = node.test if isinstance(node, ast.Assert) else node
    found.assertions.append(_dump(what))
    found.weight += times
    found.exact += times if exact else 0


def _dump(node: ast.AST) -> str:
    return ast.dump(node, annotate_fields=False)


def _name(node: ast.AST) -> str:
    """The last name of ``a.b.c`` or of what is called."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a statement."""
    found = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(node, "handlers", [])]
    found += [case.body for case in getattr(node, "cases", [])]
    return [block for block in found if block]


def _heads(node: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement that are not inside one of its blocks."""
    inside = {id(child) for block in _blocks(node) for child in block}
    skipped = (ast.stmt, ast.ExceptHandler, ast.match_case)
    return [
        child
        for child in ast.iter_child_nodes(node)
        if id(child) not in inside and not isinstance(child, skipped)
    ]


def _skips_of(nodes: Sequence[ast.AST]) -> list[str]:
    names = (
        _name(child)
        for node in nodes
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute | ast.Name)
    )
    return sorted(name for name in names if _SKIPS.fullmatch(name))


def _class_marks(node: ast.ClassDef) -> list[str]:
    found = []
    for item in node.body:
        if isinstance(item, ast.Assign | ast.AnnAssign) and item.value is not None:
            names = {_name(target) for target in _targets(item)}
            if "pytestmark" in names:
                found += _skips_of([item.value])
            if "__test__" in names and _never(item.value):
                found.append("__test__")
    return found


def _is_skip_call(node: ast.AST) -> bool:
    """Whether a call is the test framework's own, and not a method that is called the same."""
    if not isinstance(node, ast.Call) or _SKIPS.fullmatch(_name(node)) is None:
        return False
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    return holder is None or _name(holder) in _HOLDERS


def _exits(tree: ast.Module) -> Iterator[str]:
    """What ends the process: from anywhere at once, or when the file is merely imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _EXITS:
            yield node.attr
        elif isinstance(node, ast.Call) and _dump(node.func).startswith(_PYTEST_EXIT):
            yield "exit"
    for item in tree.body:
        if isinstance(item, _Function | ast.ClassDef) or _is_main_guard(item):
            continue
        for node in ast.walk(item):
            ending = isinstance(node, ast.Raise) and node.exc is not None
            what = node.exc if isinstance(node, ast.Raise) else node
            called = ending or isinstance(node, ast.Call)
            if called and what is not None and _name(what) in _MODULE_EXITS:
                yield _name(what)


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "'__name__'" in _dump(node.test)


def _rows(decorators: Sequence[ast.expr]) -> int:
    """How many times ``parametrize`` makes a test run, as far as it is written out."""
    rows = 1
    for node in decorators:
        if isinstance(node, ast.Call) and _name(node) in {"parametrize", "expand", "cases"}:
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            lengths = [
                _length(value) for value in values if isinstance(value, ast.List | ast.Tuple)
            ]
            rows *= max(lengths, default=1)
    return rows


def _length(node: ast.expr) -> int:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return len(node.elts)
    return 1


def _never(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _always(node: ast.expr) -> bool:
    """Whether a condition holds whatever the code under test does."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _never(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts)
    if isinstance(node, ast.BoolOp):
        held = [_always(value) for value in node.values]
        return any(held) if isinstance(node.op, ast.Or) else all(held)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _always_compare(node)
    return isinstance(node, ast.Lambda | ast.JoinedStr)


def _always_compare(node: ast.Compare) -> bool:
    left, right, operator = node.left, node.comparators[0], node.ops[0]
    if isinstance(operator, ast.Eq | ast.Is | ast.LtE | ast.GtE) and _dump(left) == _dump(right):
        return not any(isinstance(child, ast.Call) for child in ast.walk(left))
    counted = isinstance(left, ast.Call) and _name(left) == "len"
    zero = isinstance(right, ast.Constant) and right.value == 0
    return counted and zero and isinstance(operator, ast.GtE)


def _trivial_call(name: str, node: ast.Call) -> bool:
    lowered = name.lower().replace("_", "")
    if not node.args:
        return False
    if lowered in {"asserttrue", "assert"}:
        return _always(node.args[0])
    if lowered in {"assertfalse", "assertisnone"}:
        return _never(node.args[0])
    if lowered in {"assertequal", "assertequals", "assertis"} and len(node.args) > 1:
        return _dump(node.args[0]) == _dump(node.args[1])
    return False


def _is_exact(node: ast.expr) -> bool:
    return any(
        isinstance(child, ast.Compare) and any(isinstance(op, ast.Eq | ast.Is) for op in child.ops)
        for child in ast.walk(node)
    )


def _swallows(node: ast.Try | ast.With | ast.AsyncWith) -> bool:
    """Whether a failed assertion inside would go unnoticed."""
    if isinstance(node, ast.Try):
        return any(_catches(handler) for handler in node.handlers)
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and _name(call) == "suppress":
            return any(_name(argument) in _SWALLOWED for argument in call.args)
        if isinstance(call, ast.Call) and _name(call) == "raises":
            return any(_name(argument) in _SWALLOWED - {"Exception"} for argument in call.args)
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    caught = [handler.type] if handler.type is not None else []
    if caught and isinstance(caught[0], ast.Tuple):
        caught = [*caught[0].elts]
    if handler.type is not None and not any(_name(kind) in _SWALLOWED for kind in caught):
        return False
    raising = (ast.Raise, ast.Assert)
    if any(isinstance(child, raising) for part in handler.body for child in ast.walk(part)):
        return False
    return not any(
        isinstance(child, ast.Call) and _ASSERTING.match(_name(child))
        for part in handler.body
        for child in ast.walk(part)
    )
