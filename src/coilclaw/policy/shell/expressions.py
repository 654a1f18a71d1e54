"""Arithmetic that can be trusted: no side effects, and nothing in it is read as arithmetic again.

The shell evaluates the *value* of a variable in arithmetic as arithmetic once more, and an array
subscript in that value may run commands. So the names an expression uses are handed back, for the
caller to show that they can only hold numbers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.policy.shell.script import Unreadable, excerpt

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")

_VALUE: Final = re.compile(
    r"0[xX][0-9a-fA-F]+(?![\w#])|[0-9]+(?![\w#])"
    r"|\$?(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}"
    r"|\$[#?$]|\$\{#[A-Za-z_][A-Za-z0-9_]*\}"
)
_PREFIX: Final = re.compile(r"\+(?![+=])|-(?![-=])|[!~]")
_JOINT: Final = re.compile(
    r"\*\*(?!=)|<<(?!=)|>>(?!=)|<=|>=|==|!=|&&|\|\||\+(?![+=])|-(?![-=])"
    r"|[*/%^&|](?!=)|<(?!<)|>(?!>)|[?:,]"
)
_OPERAND: Final = re.compile(
    NUMBER.pattern
    + r"|\$?(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\"\$(?P<quoted>[A-Za-z_][A-Za-z0-9_]*)\""
    r"|\"?\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}\"?|\"?\$[#?$]\"?"
    r"|\"?\$\{#[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?\}\"?"
)


def read_arithmetic(text: str, start: int, end: int) -> tuple[frozenset[str], int] | None:
    """Read an expression up to its ``))``; return its names and where the ``))`` is.

    ``None`` when anything in it is not plain arithmetic.
    """
    names: set[str] = set()
    depth = choices = 0
    valued = False
    at = start
    while at < end:
        if text[at] in " \t":
            at += 1
        elif text[at] == "(" and not valued:
            depth += 1
            at += 1
        elif text[at] == ")" and depth and valued:
            depth -= 1
            at += 1
        elif text.startswith("))", at, end):
            return (frozenset(names), at) if valued and not choices else None
        elif valued and (joint := _JOINT.match(text, at, end)) is not None:
            choices += (joint[0] == "?") - (joint[0] == ":")
            if choices < 0:
                return None
            valued, at = False, joint.end()
        elif not valued and (prefix := _PREFIX.match(text, at, end)) is not None:
            at = prefix.end()
        elif not valued and (value := _VALUE.match(text, at, end)) is not None:
            names.update(name for name in (value["name"], value["braced"]) if name)
            valued, at = True, value.end()
        else:
            return None
    return None


def read_operand(text: str) -> frozenset[str] | None:
    """Return the names in one side of a numeric ``[[ ]]`` comparison; ``None`` as in ``read``."""
    if text.startswith("$((") and text.endswith("))"):
        inner = read_arithmetic(text, 3, len(text))
        return inner[0] if inner is not None and inner[1] == len(text) - 2 else None
    plain = _OPERAND.fullmatch(text)
    if plain is None:
        return None
    return frozenset(filter(None, plain.groupdict().values()))


_UNARY: Final = frozenset(f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNORS")
_BINARY: Final = frozenset(
    {"=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef", "-eq", "-ne", "-lt", "-le", "-gt"}
    | {"-ge"}
)
_SIGNS: Final = frozenset({"&&", "||", "(", ")", "<", ">"})
_NUMERIC: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_tests(words: Sequence[str]) -> list[tuple[str, ...]] | None:
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


def evaluated_names(test: tuple[str, ...]) -> frozenset[str] | None:
    """Return the variables that a test evaluates; ``None`` if it may evaluate anything else."""
    if test[0] in ("-v", "-R"):
        return frozenset() if _NAME.fullmatch(test[1]) else None
    if len(test) < 3 or test[1] not in _NUMERIC:
        return frozenset()
    left, right = read_operand(test[0]), read_operand(test[2])
    return None if left is None or right is None else left | right


_BODY: Final = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_PART: Final = re.compile(
    r"(?P<plain>[^\\]+)"
    r"|\\(?:(?P<named>[abeEfnrtv\\'\"?])"
    r"|(?P<octal>[0-7]{1,3})"
    r"|x(?P<byte>[0-9a-fA-F]{1,2})"
    r"|(?:u(?P<short>[0-9a-fA-F]{1,4})|U(?P<long>[0-9a-fA-F]{1,8}))"
    r"|c(?P<control>[A-Za-z])"
    r"|(?P<kept>[^cuUx0-7]))",
    re.DOTALL,
)
_NAMED: Final = dict(zip("abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
# The shell marks characters with these two bytes itself, and has mistaken them before.
_SHELLS_OWN: Final = frozenset({0x01, 0x7F})


def read_ansi_string(text: str, start: int, end: int) -> tuple[str | None, int]:
    """Return the value of the string whose ``$'`` is at ``start``, and the place behind it.

    The value is ``None`` when it depends on the locale of the shell.
    """
    body = _BODY.match(text, start + 2, end)
    assert body is not None
    if not text.startswith("'", body.end(), end):
        raise Unreadable("shell.syntax", "a $'…' string has no end", excerpt(text, start))
    value = bytearray()
    known = True
    at = 0
    while at < len(body[0]):
        part = _PART.match(body[0], at)
        if part is None:
            raise Unreadable("shell.construct", "an escape in $'…'", excerpt(text, start))
        code = _code(part)
        if isinstance(code, int):
            known = known and code < 0x80 and code not in _SHELLS_OWN
            code = chr(code).encode("utf-8", "replace") if code <= 0x10FFFF else b"?"
        if b"\0" in code:
            raise Unreadable("shell.text", "a NUL cuts a $'…' string short", excerpt(text, start))
        known = known and _SHELLS_OWN.isdisjoint(code)
        value += code
        at = part.end()
    try:
        return (value.decode() if known else None), body.end() + 1
    except UnicodeDecodeError:
        raise Unreadable("shell.text", "a $'…' string is not UTF-8", excerpt(text, start)) from None


def _code(part: re.Match[str]) -> bytes | int:
    """Return the bytes of one part, or the code point that the locale makes bytes of."""
    kind = part.lastgroup
    assert kind is not None
    digits = part[kind]
    match kind:
        case "named":
            return bytes([_NAMED[digits]])
        case "octal":
            return bytes([int(digits, 8) & 0xFF])
        case "byte":
            return bytes([int(digits, 16)])
        case "short" | "long":
            return int(digits, 16)
        case "control":
            return bytes([ord(digits.upper()) & 0x1F])
        case "kept":
            return b"\\" + digits.encode()
        case _:
            return digits.encode()
