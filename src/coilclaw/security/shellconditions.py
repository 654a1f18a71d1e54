"""The tests in a ``[[ ]]``, as the shell takes its words apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security import shellarithmetic

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNARY: Final = frozenset(f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNORS")
_BINARY: Final = frozenset(
    {"=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef", "-eq", "-ne", "-lt", "-le", "-gt"}
    | {"-ge"}
)
_SIGNS: Final = frozenset({"&&", "||", "(", ")", "<", ">"})
_NUMERIC: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tests(words: Sequence[str]) -> list[tuple[str, ...]] | None:
    """Return each test with its operator and operands, as written; ``None`` if they are none."""
    found: list[tuple[str, ...]] = []
    depth = at = 0
    complete = False
    while at < len(words):
        word = words[at]
        if not complete and word in ("!", "("):
            depth += word == "("
            at += 1
        elif not complete:
            test = _test(words[at : at + 3])
            if test is None:
                return None
            found.append(test)
            at += len(test)
            complete = True
        elif word in ("&&", "||"):
            complete = False
            at += 1
        elif word == ")" and depth:
            depth -= 1
            at += 1
        else:
            return None
    return found if complete and not depth else None


def _test(words: Sequence[str]) -> tuple[str, ...] | None:
    if words[0] in _SIGNS:
        return None
    joins = len(words) > 1 and words[1] in _BINARY
    size = 2 if words[0] in _UNARY else 3 if joins else 1
    if len(words) < size or (size > 1 and words[size - 1] in _SIGNS):
        return None
    return tuple(words[:size])


def numbers(test: tuple[str, ...]) -> frozenset[str] | None:
    """Return the variables that a test evaluates; ``None`` if it may evaluate anything else."""
    if test[0] in ("-v", "-R"):
        return frozenset() if _NAME.fullmatch(test[1]) else None
    if len(test) < 3 or test[1] not in _NUMERIC:
        return frozenset()
    left, right = shellarithmetic.operand(test[0]), shellarithmetic.operand(test[2])
    return None if left is None or right is None else left | right
