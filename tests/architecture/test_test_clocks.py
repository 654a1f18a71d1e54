"""No test fails because a machine is slow: what is expected to happen may take a minute."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.children import PATIENCE_S
from tests.support.repository import ROOT

TESTS = ROOT / "tests"
CLOCKS = {"monotonic", "perf_counter", "time"}
MEASURED = "duration_s"
"""An attribute that holds what somebody else measured."""

PATIENCE = re.compile(r"[A-Z_]*(PATIENCE|SOON|DEADLINE)[A-Z_]*_S")


def _is_now(node: ast.expr) -> bool:
    """Say whether an expression asks a clock, as ``time.monotonic()`` does."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in CLOCKS
    return isinstance(node.func, ast.Name) and node.func.id in CLOCKS - {"time"}


def _numbers(tree: ast.Module) -> Iterator[tuple[ast.stmt, str, float]]:
    """Yield the constants of a module that are numbers."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        if isinstance(statement.value, ast.Constant) and isinstance(
            number := statement.value.value, int | float
        ):
            yield from ((statement, one.id, number) for one in targets if isinstance(one, ast.Name))


class _Clocks:
    """What one function keeps of clocks: the moments, and the times between them."""

    def __init__(self, function: ast.AST, constants: dict[str, float]) -> None:
        self._constants = constants
        self._moments: set[str] = set()
        self._times: set[str] = set()
        self._compared: list[ast.Compare] = []
        kept: list[tuple[str, ast.expr]] = []
        for node in ast.walk(function):
            match node:
                case ast.Compare():
                    self._compared.append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    kept.append((name, value))
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]
                ):
                    kept.append((name, value))
        self._moments = {name for name, value in kept if _is_now(value)}
        self._times = {name for name, value in kept if self._is_time(value)}

    def short(self) -> Iterator[int]:
        """Yield the lines on which a time has to be below a bound that is too short."""
        for node in self._compared:
            values = [node.left, *node.comparators]
            for left, operation, right in zip(values, node.ops, values[1:], strict=False):
                if isinstance(operation, ast.Gt | ast.GtE):
                    left, right = right, left
                elif not isinstance(operation, ast.Lt | ast.LtE):
                    continue
                if self._is_time(left) and self._is_short(right):
                    yield node.lineno

    def _is_moment(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript):
            node = node.value
        return _is_now(node) or (isinstance(node, ast.Name) and node.id in self._moments)

    def _is_time(self, node: ast.expr) -> bool:
        match node:
            case ast.BinOp(left=left, op=ast.Sub()):
                return self._is_moment(left)
            case ast.Name(id=name):
                return name in self._times
            case ast.Attribute(attr=name):
                return name == MEASURED
        return False

    def _is_short(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number < PATIENCE_S
            case ast.Name(id=name):
                return self._constants.get(name, PATIENCE_S) < PATIENCE_S
            case ast.BinOp(left=ast.Name(id=name), op=ast.Div()):
                return PATIENCE.fullmatch(name) is not None
        return False


def _short(source: str) -> list[int]:
    """Return the lines of a test on which a clock is given less than our patience."""
    tree = ast.parse(source)
    constants = {name: number for _, name, number in _numbers(tree)}
    lines = {
        statement.lineno
        for statement, name, number in _numbers(tree)
        if PATIENCE.fullmatch(name) and number < PATIENCE_S
    }
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                lines.update(_Clocks(node, constants).short())
            case ast.Call(
                func=ast.Attribute(attr="alarm"), args=[ast.Constant(value=int() as number)]
            ) if 0 < number < PATIENCE_S:
                lines.add(node.lineno)
    return sorted(lines)


FOUND = """
SOON_S = 5
SECONDS = 20.0
def test_a():
    began = time.monotonic()
    assert time.monotonic() - began < 59.5
    assert 0.1 <= clock.perf_counter() - began <= PATIENCE_S / 2
    took = monotonic() - began
    assert took < SECONDS
    stopped.append(time.time())
    ended = time.time()
    assert 1 > ended - stopped[0]
    assert result.duration_s < 10
    signal.alarm(10)
"""
NOT_FOUND = """
SOON_S = 60
WAIT_S = 5
SECONDS = 60.0
def test_a():
    began = time.monotonic()
    assert time.monotonic() - began < 60
    assert 0.1 <= clock.perf_counter() - began <= PATIENCE_S * 2
    took = monotonic() - began
    assert took < SECONDS
    stopped.append(time.time())
    ended = time.time()
    assert 1 < ended - stopped[0]
    assert result.duration_s >= 10
    assert time.process_time() - began < 5
    assert len(took_away) - number < 5
    signal.alarm(60)
    signal.alarm(0)
def test_b():
    assert took < 5
"""


def test_a_short_bound_is_found_and_a_long_or_a_lower_one_is_not() -> None:
    assert _short(FOUND) == [2, 6, 7, 9, 12, 13, 14]
    assert _short(NOT_FOUND) == []


def test_no_test_gives_a_clock_less_than_our_patience() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in _short(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_tests_are_where_this_one_looks() -> None:
    assert PATIENCE_S == 60
    assert TESTS / "support" / "children.py" in TESTS.rglob("*.py")
