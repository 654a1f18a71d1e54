"""The twin of a program that says nothing and ends well: the same, but its main ends otherwise.

A compiler that makes the same empty program of everything would pass every such program. So each
of them is compiled once more with a main that returns another number at once.
"""

from __future__ import annotations

import re
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


def is_silent(program: Program) -> bool:
    """Whether a program that does nothing at all would be taken for it."""
    return not program.rejected and program.exit_code == 0 and not (program.stdout or b"").strip()


def twin(program: Program, code: int) -> dict[Path, bytes]:
    """The file with main in it, such that it returns ``code``; nothing if it cannot be made."""
    for source in program.sources:
        if source.suffix == ".c":
            made = returning(source.read_bytes(), code)
            if made is not None:
                return {source: made}
    return {}


def returning(text: bytes, code: int) -> bytes | None:
    """A source whose main returns a number at once, on the line where it begins."""
    masked = _NO_CODE.sub(_blanks, text)
    heads = list(_MAIN.finditer(masked))
    if len(heads) != 1 or heads[0]["before"].strip() == b"void" or _AROUND.search(masked):
        return None
    end = heads[0].end()
    return text[:end] + b" return %d;" % code + text[end:]


def _blanks(found: re.Match[bytes]) -> bytes:
    return re.sub(rb"[^\n]", b" ", found[0])
