"""``sed``: read a script, and say whether it does anything but select and change text.

Only what is known to be pure is accepted; ``e``, ``r``, ``R``, ``w``, ``W`` and their forms as
flags of ``s`` start programs and open files, and anything not understood may be one of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.destructive import check_code
from coilclaw.policy.commands.options import read_line
from coilclaw.policy.commands.word_paths import check_read, looks_like_path
from coilclaw.policy.shell.script import Word as Written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.policy.commands.command_class import Classed
    from coilclaw.policy.commands.rule import Rule
    from coilclaw.policy.commands.word_paths import Scene
    from coilclaw.policy.shell.script import Word


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
    pieces = list(_pieces(program))
    if any(doubt for _, doubt in pieces) and not {">", "|"}.isdisjoint(program):
        return "its program cannot be told apart"
    # Its strings, patterns and comments are blanked out.
    code = "".join(piece for piece, _ in pieces)
    for at, sign in enumerate(code):
        if sign == "|" and "||" not in code[max(at - 1, 0) : at + 2]:
            return "its program pipes into another one"
        if sign == ">" and _PRINTS.search(_STATEMENT.split(code[:at])[-1]):
            return "its program may write a file"
    return ""


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


MAX_SCRIPT: Final = 10_000
MAX_LINES: Final = 500
_SCRIPTS: Final = ("-e", "--expression")
_SPACE: Final = re.compile(r"[ \t]*")
_SEPARATORS: Final = re.compile(r"[\s;]*")
_NUMBER: Final = re.compile(r"[0-9]+(?:~[0-9]+)?|\$")
_OFFSET: Final = re.compile(r"[+~][0-9]+")
_LABEL: Final = re.compile(r"[ \t]*[A-Za-z0-9_]*")
_EXIT: Final = re.compile(r"[ \t]*[0-9]*")
_FLAGS: Final = re.compile(r"[gpiImM0-9]*")
_TEXT: Final = re.compile(r"(?:[^\\\n]|\\[\s\S])*")
_DANGEROUS: Final = {
    "e": "runs a program",
    "r": "reads another file",
    "R": "reads another file",
    "w": "writes a file",
    "W": "writes a file",
}


class _Impure(Exception):
    """The script does something else, or is not understood; ``rest`` is what it does it with."""

    def __init__(self, problem: str, rest: str = "", runs: str = "") -> None:
        super().__init__(problem)
        self.rest = rest.partition("\n")[0].strip()
        self.runs = runs.partition("\n")[0].strip()
        """A command line that it would have a shell run."""


def check_sed(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """Say what speaks against a ``sed`` whose options the rule lists."""
    line = read_line(words, rule.table)
    found = rule.check_line(line, scene)
    scripts = list(line.values(*_SCRIPTS))
    if not scripts and line.operands:
        scripts = [line.operands[0].word]
    texts = [script.text for script in scripts]
    if not texts or any(text is None for text in texts):
        found.append(rule.against("its script cannot be seen"))
        return found
    script = "\n".join(text for text in texts if text is not None)
    impure = find_impurity(script)
    if impure is not None:
        found.append(rule.against(str(impure)))
        found += check_code(f"\n{impure.rest}", scene)
        if looks_like_path(impure.rest):
            found += check_read(impure.rest, scene)
    return found


def sed_commands(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the command lines that scripts among the words of a ``sed`` would have run."""
    for word in words:
        text = re.sub(r"\A(?:--?[a-z]*=|-[A-Za-z]*e(?=.))", "", word.text or "")
        for line in text.split("\n")[:MAX_LINES]:
            impure = find_impurity(line)
            if impure is not None and impure.runs:
                yield Written(impure.runs, impure.runs)


def find_impurity(script: str) -> _Impure | None:
    """Return what a script does besides selecting and changing text, if anything."""
    if len(script) > MAX_SCRIPT:
        return _Impure("its script is too long")
    try:
        _Script(script).read()
    except _Impure as impure:
        return impure
    return None


class _Script:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> None:
        while True:
            self._skip(_SEPARATORS)
            if self._at >= len(self._text):
                break
            self._command()
        if self._depth:
            raise _Impure("its script has an unclosed brace")

    def _command(self) -> None:
        if self._address():
            self._skip(_SPACE)
            if self._peek() == ",":
                self._at += 1
                self._skip(_SPACE)
                if not self._skip(_OFFSET) and not self._address():
                    raise _Impure("its script has an incomplete address")
        while self._peek() in {" ", "\t", "!"}:
            self._at += 1
        name = self._peek()
        self._at += 1
        if name in _DANGEROUS:
            problem = f"the command {name} of its script {_DANGEROUS[name]}"
            rest = self._text[self._at :]
            raise _Impure(problem, rest, rest if name == "e" else "")
        self._body(name)

    def _body(self, name: str) -> None:
        if name == "{":
            self._depth += 1
            return
        if name == "}":
            self._depth -= 1
            if self._depth < 0:
                raise _Impure("its script closes a brace that is not open")
        elif name == "#":
            self._at = (self._text + "\n").index("\n", self._at)
        elif name in {"a", "i", "c"}:
            self._skip(_TEXT)
        elif name in {"b", "t", "T", ":"}:
            self._skip(_LABEL)
        elif name in {"q", "Q", "l", "L"}:
            self._skip(_EXIT)
        elif name == "s":
            self._substitute()
        elif name == "y":
            mark = self._delimiter()
            self._until(mark, brackets=False)
            self._until(mark, brackets=False)
        elif name not in set("pPdDnNgGhHx=zF"):
            raise _Impure(f"the command {name or 'at the end'} of its script is not known")
        self._ends()

    def _ends(self) -> None:
        """After a command only a separator, a closing brace or a comment may follow."""
        self._skip(_SPACE)
        if self._peek() not in {"", ";", "\n", "}", "#"}:
            raise _Impure(f"its script cannot be parsed at {self._text[self._at :][:20]!r}")

    def _substitute(self) -> None:
        mark = self._delimiter()
        self._until(mark, brackets=True)
        start = self._at
        self._until(mark, brackets=False)
        replacement = self._text[start : self._at - 1]
        self._skip(_FLAGS)
        flag = self._peek()
        if flag in {"e", "w"}:
            problem = f"the flag {flag} of s/// in its script {_DANGEROUS[flag]}"
            rest = self._text[self._at + 1 :]
            raise _Impure(problem, rest, replacement if flag == "e" else "")

    def _address(self) -> bool:
        if self._skip(_NUMBER):
            return True
        if self._peek() == "\\":
            self._at += 1
            self._until(self._delimiter(), brackets=True)
        elif self._peek() == "/":
            self._until(self._delimiter(), brackets=True)
        else:
            return False
        while self._peek() in {"I", "M"}:
            self._at += 1
        return True

    def _delimiter(self) -> str:
        mark = self._peek()
        self._at += 1
        if mark in {"", "\n", "\\", "["}:
            raise _Impure("its script is missing a delimiter")
        return mark

    def _until(self, mark: str, *, brackets: bool) -> None:
        """Go past the next delimiter that is neither escaped nor, in a pattern, in brackets."""
        while (char := self._peek()) != mark:
            self._at += 1
            if char == "":
                raise _Impure("its script ends inside a pattern")
            if char == "\\":
                self._at += 1
            elif char == "[" and brackets:
                self._bracket()
        self._at += 1

    def _bracket(self) -> None:
        if self._peek() == "^":
            self._at += 1
        if self._peek() == "]":
            self._at += 1
        end = self._text.find("]", self._at)
        inside = self._text[self._at : end]
        if end < 0 or "\n" in inside or re.search(r"\[[.:=]", inside[:-1]):
            end = self._classes()
        self._at = end + 1

    def _classes(self) -> int:
        """Return where a bracket with character classes ends, such as ``[[:alpha:]_]``."""
        found = re.compile(r"(?:\[:[a-z]+:\]|[^\]\[\n])*\]").match(self._text, self._at)
        if found is None:
            raise _Impure("its script has an unclosed bracket")
        return found.end() - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        found = pattern.match(self._text, self._at)
        if found is None or not found[0]:
            return False
        self._at = found.end()
        return True
