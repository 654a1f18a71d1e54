"""Expansions of a word that the command line itself explains: its variables and substitutions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.policy.shell.script import Simple, Word

_NAMED: Final = re.compile(
    r"\$(?:(?P<name>[A-Za-z_]\w*)|(?P<sign>[?#$!]))"
    r"|\$\{#?(?P<braced>[A-Za-z_]\w*)(?:\[[@*0-9]+\])?"
    r"(?:(?:%%?|##?|\^\^?|,,?|:[0-9 -]|//?)[^{}$`\"']*)?\}"
)
_ARITHMETIC: Final = re.compile(r"\$\(\([\w $+*/%()-]*\)\)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def set_variables(commands: Sequence[Simple]) -> dict[str, bool]:
    """Return the variables that commands set for later ones; whether none can be an option."""
    found: dict[str, bool] = {}
    for command in commands:
        names: list[tuple[str, bool]] = []
        if not command.words:
            names = [(name, _is_plain(value)) for name, value in command.assignments]
        elif command.words[0].text in {"read", "mapfile", "readarray"}:
            texts = (word.text or "" for word in command.words[1:])
            names = [(text, False) for text in texts if _NAME.fullmatch(text)]
        for name, plain in names:
            bare = name.rstrip("+")
            found[bare] = found.get(bare, True) and plain
    return found


def is_explained(word: Word, variables: Mapping[str, bool]) -> bool:
    """Whether all that a word becomes comes from commands and values of the same line."""
    raw = word.raw
    at = 0
    while at < len(raw):
        sign = raw[at]
        if sign == "\\":
            at += 2
        elif sign == "'" and raw[:at].count('"') % 2 == 0:
            at = raw.find("'", at + 1) + 1 or len(raw)
        elif sign == "`":
            at = raw.find("`", at + 1) + 1 or len(raw)
        elif raw.startswith(("<(", ">("), at):
            return False
        elif sign == "$" and raw[at + 1 : at + 2] == "(":
            sums = _ARITHMETIC.match(raw, at)
            at = sums.end() if sums is not None else _closing(raw, at + 2)
        elif sign == "$":
            named = _NAMED.match(raw, at)
            name = None if named is None else named["name"] or named["braced"]
            if named is None or (name is not None and name not in variables):
                return False
            at = named.end()
        else:
            at += 1
    return True


def may_be_option(word: Word, variables: Mapping[str, bool]) -> bool:
    """Whether a word that is explained may begin with a dash, or become several words."""
    raw = word.raw
    if not (raw.startswith('"') and raw.endswith('"') and raw.count('"') == 2):
        return True
    named = _NAMED.match(raw, 1)
    if named is not None and named["name"] is not None:
        return not variables.get(named["name"], False)
    return raw[1] in "-$`"


def _is_plain(value: Word) -> bool:
    return bool(value.text) and (value.text or "-")[0] not in "-*?[{~"


def _closing(raw: str, at: int) -> int:
    """Return the place behind the parenthesis that closes a substitution."""
    depth = 1
    quote = ""
    while at < len(raw) and depth:
        sign = raw[at]
        if sign == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign == "(") - (sign == ")")
        at += 1
    return at
