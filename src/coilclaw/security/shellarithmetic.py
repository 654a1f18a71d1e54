"""Arithmetic that can be trusted: no side effects, and nothing in it is read as arithmetic again.

The shell evaluates the *value* of a variable in arithmetic as arithmetic once more, and an array
subscript in that value may run commands. So the names an expression uses are handed back, for the
caller to show that they can only hold numbers.
"""

from __future__ import annotations

import re
from typing import Final

NUMBER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")

_ATOM: Final = re.compile(
    r"[ \t]+|0[xX][0-9a-fA-F]+(?![\w#])|[0-9]+(?![\w#])"
    r"|\$?(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|\$[#?$]|\$\{#[A-Za-z_][A-Za-z0-9_]*\}"
    r"|\*\*(?!=)|<<(?!=)|>>(?!=)|<=|>=|==|!=|&&|\|\||\+(?![+=])|-(?![-=])"
    r"|[*/%^&|](?!=)|<(?!<)|>(?!>)|[!~?:,]"
)
_OPERAND: Final = re.compile(
    NUMBER.pattern
    + r"|\$?(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\"\$(?P<quoted>[A-Za-z_][A-Za-z0-9_]*)\""
    r"|\"?\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}\"?|\"?\$[#?$]\"?"
    r"|\"?\$\{#[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?\}\"?"
)


def read(text: str, start: int, end: int) -> tuple[frozenset[str], int] | None:
    """Read an expression up to its ``))``; return its names and where the ``))`` is.

    ``None`` when anything in it is not plain arithmetic.
    """
    names: set[str] = set()
    depth = 0
    at = start
    while at < end:
        if text[at] == "(":
            depth += 1
            at += 1
        elif text[at] == ")" and depth:
            depth -= 1
            at += 1
        elif text.startswith("))", at, end):
            return (frozenset(names), at) if text[start:at].strip() else None
        else:
            atom = _ATOM.match(text, at, end)
            if atom is None:
                return None
            names.update(name for name in (atom["name"], atom["braced"]) if name)
            at = atom.end()
    return None


def operand(text: str) -> frozenset[str] | None:
    """Return the names in one side of a numeric ``[[ ]]`` comparison; ``None`` as in ``read``."""
    if text.startswith("$((") and text.endswith("))"):
        inner = read(text, 3, len(text))
        return inner[0] if inner is not None and inner[1] == len(text) - 2 else None
    plain = _OPERAND.fullmatch(text)
    if plain is None:
        return None
    return frozenset(filter(None, plain.groupdict().values()))
