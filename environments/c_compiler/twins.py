"""The twin of a program that says nothing and ends well: the same, but its main ends otherwise.

A compiler that makes the same empty program of everything would pass every such program. So each
of them is compiled once more with a main that returns another number at once, in one of some ways.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from programs import Program

_NO_CODE: Final = re.compile(
    rb"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_MAIN: Final = re.compile(
    rb"(?P<before>\w*\s*)\bmain\s*\((?:[^(){};]|\([^(){};]*\))*\)\s*"
    rb"(?:[A-Za-z_][^(){};]*;\s*)*\{"
)
"""The head of main, with the parameters declared in it or, as of old, behind it."""
_AROUND: Final = re.compile(rb"\b(?:_*(?:con|de)structor_*|atexit|on_exit)\b")
"""What runs before or after main, and may have a say in how the program ends."""
_WAYS: Final = (
    "return {code};",
    "return {less} + {more};",
    "if ({less} < {code}) return {code};",
    "while ({code} > {more}) return {code};",
    "for (;;) return {code};",
    "{{ int {name} = {less}; {name} = {name} + {more}; return {name}; }}",
    "switch ({less}) {{ case {code}: return {more}; default: return {code}; }}",
)


def is_silent(program: Program) -> bool:
    """Whether a program that does nothing at all would be taken for it."""
    return not program.rejected and program.exit_code == 0 and not (program.stdout or b"").strip()


def twin(program: Program, code: int) -> dict[Path, bytes]:
    """The file with main in it, such that it returns ``code``; nothing if it cannot be made."""
    for source in program.sources:
        if source.suffix == ".c":
            made = ending(source.read_bytes(), statement(code, secrets.choice(_WAYS)))
            if made is not None:
                return {source: made}
    return {}


def statement(code: int, way: str) -> str:
    """A statement that returns a number of at least 2, one way or another."""
    less = secrets.choice(range(1, code))
    name = f"v{secrets.token_hex(3)}"
    return way.format(code=code, less=less, more=code - less, name=name)


def ending(text: bytes, how: str) -> bytes | None:
    """A source whose main ends at once, on the line where it begins."""
    masked = _NO_CODE.sub(_blanks, text)
    heads = list(_MAIN.finditer(masked))
    if len(heads) != 1 or heads[0]["before"].strip() == b"void" or _AROUND.search(masked):
        return None
    end = heads[0].end()
    return text[:end] + f" {how}".encode() + text[end:]


def _blanks(found: re.Match[bytes]) -> bytes:
    return re.sub(rb"[^\n]", b" ", found[0])
