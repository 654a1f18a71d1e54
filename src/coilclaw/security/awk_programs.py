"""``awk``: whether a program only looks at its input and prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandline import read_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.security.commandclass import Classed
    from coilclaw.security.commandrule import Rule
    from coilclaw.security.shellscript import Word
    from coilclaw.security.wordpaths import Scene

MAX_PROGRAM: Final = 8000
_REACHES: Final = re.compile(
    r"system|getline|close|fflush|@|ENVIRON|ARGV|ARGC|PROCINFO|SYMTAB|FUNCTAB|extension|\\\n"
)
"""What starts programs, opens files, or looks beyond the input; also within a string."""
_REGEX_BEFORE: Final = frozenset("(,{};!~&|=?:\n")
_REGEX_WORD: Final = re.compile(r"(?:^|[^\w$])(?:print|return|in|case)\s*\Z")
_PRINTS: Final = re.compile(r"\bprintf?\b")
_STATEMENT: Final = re.compile(r"[;{}\n]")


def check_awk(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """Say what speaks against an ``awk`` that only reads."""
    line = read_line(words, rule.table, stop=True)
    found = rule.check_line(line, scene)
    program = line.operands[0].word.text if line.operands else None
    problem = "it lacks its program" if program is None else program_problem(program)
    return [*found, rule.against(problem)] if problem else found


def program_problem(program: str) -> str:
    """Say what a program does besides reading its input and printing; empty for nothing."""
    reaches = _REACHES.search(program)
    if reaches is not None:
        return f"its program holds {reaches[0]!r}"
    if len(program) > MAX_PROGRAM:
        return "its program is too long"
    code = _blank_texts(program)
    if code is None:
        return "its program cannot be told apart"
    for at, sign in enumerate(code):
        if sign == "|" and "||" not in code[max(at - 1, 0) : at + 2]:
            return "its program pipes into another one"
        if sign == ">" and _PRINTS.search(_STATEMENT.split(code[:at])[-1]):
            return "its program may write a file"
    return ""


def _blank_texts(program: str) -> str | None:
    """Return the program with its strings, patterns and comments blanked out."""
    pieces = list(_pieces(program))
    doubtful = any(doubt for _, doubt in pieces)
    if doubtful and not {">", "|"}.isdisjoint(program):
        return None
    return "".join(piece for piece, _ in pieces)


def _pieces(program: str) -> Iterator[tuple[str, bool]]:
    at = 0
    code = ""
    while at < len(program):
        sign = program[at]
        end, doubt = at + 1, False
        if sign == '"':
            end = _end_of(program, at, '"')
        elif sign == "#":
            newline = program.find("\n", at)
            end = len(program) if newline < 0 else newline
        elif sign == "/":
            before = code.rstrip(" \t")
            if not before or before[-1] in _REGEX_BEFORE or _REGEX_WORD.search(code):
                end = _end_of(program, at, "/")
            # Behind one of these a slash may divide, or begin a pattern.
            doubt = bool(before) and before[-1] in ")+-"
        plain = end == at + 1 and sign not in '"#'
        piece = sign if plain else '"' + " " * (end - at - 1)
        code += piece
        yield piece, doubt
        at = end


def _end_of(program: str, start: int, closer: str) -> int:
    """Return where a string or pattern ends; one without an end takes all of the rest."""
    at = start + 1
    bracket = False
    while at < len(program):
        sign = program[at]
        if sign == "\\":
            at += 1
        elif closer == "/" and sign == "[":
            bracket = True
        elif closer == "/" and sign == "]":
            bracket = False
        elif sign == closer and not bracket:
            return at + 1
        at += 1
    return len(program)
