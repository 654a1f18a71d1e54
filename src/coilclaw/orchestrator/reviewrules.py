"""Findings that need no model: each rule looks at one changed file, and at added lines only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.reports import Finding
from coilclaw.gates.testfiles import is_test, is_test_configuration

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.contracts.reports import Severity
    from coilclaw.orchestrator.reviewevidence import ChangedFile
    from coilclaw.orchestrator.testevasion import Evasion

MAX_READ_BYTES: Final = 2**20
"""A larger file is not looked into, and a finding says so."""
MAX_TOML_BYTES: Final = 256 * 2**10
MAX_TOML_LINE: Final = 2_000
"""The time that the standard library takes to read a key grows with the square of its length."""
MAX_SHOWN_LINES: Final = 5
"""Of one rule in one file."""

_MARKERS: Final = (b"<<<<<<< ", b"=======", b">>>>>>> ")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_DEBUGGER: Final = re.compile(r"^\s*debugger\s*;?\s*(?://.*)?$")
_PRINTED: Final = re.compile(r"^\s*(?:console\.(?:log|debug)\(|dbg!\(|var_dump\()")
_UNFINISHED: Final = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME)\b")
_SCRIPTS: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
_DEBUG_CALLS: Final = frozenset(
    {"breakpoint", "pdb.set_trace", "ipdb.set_trace", "pudb.set_trace", "pdb.post_mortem"}
)


def findings(change: ChangedFile) -> Iterator[Finding]:
    """Return everything that the rules have against one file."""
    after = change.after
    if after is None:
        return
    if len(after) > MAX_READ_BYTES or len(change.before or b"") > MAX_READ_BYTES:
        yield _finding(
            "non_blocking", f"larger than {MAX_READ_BYTES:,} bytes, and not looked into", change
        )
        return
    if b"\0" in after:
        yield _finding("non_blocking", "no text, and not looked into", change)
        return
    added = list(change.added())
    yield from _conflict_markers(change, added)
    yield from _lines(change, added, _PRIVATE_KEY, "blocking", "a private key is added")
    yield from _unparsable(change)
    yield from _debugging(change, added)
    yield from _lines(change, added, _UNFINISHED, "non_blocking", "a note of unfinished work")
    if after and not after.endswith(b"\n") and (change.before or b"\n").endswith(b"\n"):
        yield _finding("non_blocking", "the last line has no end", change)


def _conflict_markers(change: ChangedFile, added: list[tuple[int, str]]) -> Iterator[Finding]:
    """A conflict is all three markers in order, of which the change adds at least one."""
    new = {number for number, _ in added}
    seen: list[int] = []
    for number, line in enumerate((change.after or b"").splitlines(), start=1):
        if line.startswith(_MARKERS[0]):
            seen = [number]
        elif seen and (line == _MARKERS[1] if len(seen) == 1 else line.startswith(_MARKERS[2])):
            seen.append(number)
        if len(seen) < len(_MARKERS):
            continue
        if new.intersection(seen):
            yield _finding("blocking", "markers of a merge conflict are left", change, seen[0])
            return
        seen = []


def _lines(
    change: ChangedFile,
    added: list[tuple[int, str]],
    pattern: re.Pattern[str],
    severity: Severity,
    message: str,
) -> Iterator[Finding]:
    found = [number for number, line in added if pattern.search(line)]
    for number in found[:MAX_SHOWN_LINES]:
        yield _finding(severity, message, change, number)
    if len(found) > MAX_SHOWN_LINES:
        left = len(found) - MAX_SHOWN_LINES
        yield _finding(severity, f"{message} ({left} more times)", change)


def _debugging(change: ChangedFile, added: list[tuple[int, str]]) -> Iterator[Finding]:
    if change.path.endswith(_SCRIPTS):
        yield from _lines(change, added, _DEBUGGER, "blocking", "a debugger statement is left")
    if change.path.endswith(".py"):
        yield from _python_debugging(change, {number for number, _ in added})
        yield from _python_evasion(change, {number for number, _ in added})
    else:
        yield from _lines(change, added, _PRINTED, "non_blocking", "output for debugging")


def _python_debugging(change: ChangedFile, new: set[int]) -> Iterator[Finding]:
    calls = [call for call in _python_calls(change.after or b"") if call[0] in new]
    for number, name in calls:
        if name in _DEBUG_CALLS:
            yield _finding("blocking", f"a call of {name} is left", change, number)
    printed = [number for number, name in calls if name == "print"]
    # In a file that prints anyway, one more is no trace of debugging.
    if printed and not any(name == "print" for _, name in _python_calls(change.before or b"")):
        yield _finding("non_blocking", "output with print is new here", change, printed[0])


def _python_evasion(change: ChangedFile, new: set[int]) -> Iterator[Finding]:
    """Code that could end the tests before they fail, or be another when it is tested."""
    if is_test(change.path) or is_test_configuration(change.path):
        return
    known = [each.message for each in _evasions(change.before or b"", change.path)]
    for each in _evasions(change.after or b"", change.path):
        # A line that only moved counts where the same was not there before.
        if each.message in known and new.isdisjoint(range(each.line, each.end + 1)):
            known.remove(each.message)
            continue
        yield _finding("blocking", each.message, change, each.line)


def _evasions(source: bytes, path: str) -> list[Evasion]:
    import ast

    from coilclaw.orchestrator.testevasion import evasions

    tree = _python(source)
    if not isinstance(tree, ast.Module):
        return []
    return sorted(evasions(tree, is_program=path.rpartition("/")[2] == "__main__.py"))


def _python_calls(source: bytes) -> Iterator[tuple[int, str]]:
    import ast

    tree = _python(source)
    for node in ast.walk(tree) if isinstance(tree, ast.AST) else ():
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func) if _is_plain(node.func) else ""


def _is_plain(function: ast.expr) -> bool:
    import ast

    return isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    )


def _unparsable(change: ChangedFile) -> Iterator[Finding]:
    name = change.path.rpartition("/")[2]
    parse = _PARSERS.get(name.rpartition(".")[2]) if "." in name else None
    if parse is None or change.after is None:
        return
    problem = parse(change.after)
    if not isinstance(problem, _Flaw):
        return
    # What was broken before, or is new, may be so on purpose.
    sound = change.before is not None and not isinstance(parse(change.before), _Flaw)
    yield _finding(
        "blocking" if sound else "non_blocking",
        f"it does not parse{' any more' if sound else ''}: {problem.message}",
        change,
        problem.line,
    )


class _Flaw:
    """Why a file does not parse; ``line`` is 0 where nobody knows."""

    def __init__(self, message: str, line: int = 0) -> None:
        self.message, self.line = message[:200], line


def _python(source: bytes) -> object:
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as problem:
        return _Flaw(problem.msg, problem.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as problem:
        return _Flaw(str(problem) or "it is nested too deeply")


def _json(source: bytes) -> object:
    import json

    try:
        json.loads(source)
    except json.JSONDecodeError as problem:
        return _Flaw(problem.msg, problem.lineno)
    except (ValueError, RecursionError) as problem:
        return _Flaw(str(problem))
    return None


def _toml(source: bytes) -> object:
    import tomllib

    if (
        len(source) > MAX_TOML_BYTES
        or max(map(len, source.splitlines()), default=0) > MAX_TOML_LINE
    ):
        return None
    try:
        tomllib.loads(source.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        return _Flaw(str(problem))
    return None


_PARSERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "py": _python,
    "pyi": _python,
    "json": _json,
    "toml": _toml,
}


def _finding(severity: Severity, message: str, change: ChangedFile, line: int = 0) -> Finding:
    return Finding(severity=severity, message=message, path=change.name, line=line or None)
