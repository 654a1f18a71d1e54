"""The files of a program as the compiler finds them: under names that give nothing away."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from programs import Program

ALONE: Final = "program"
"""What a program of one file is called: its own name may say that it has to be rejected."""


def lay(program: Program, place: Path, instead: dict[Path, bytes] | None = None) -> list[str]:
    """Copy the files of a program into a directory, and return the names of its sources.

    ``instead`` holds other contents for some of them.
    """
    names = _names(program)
    for file, name in names.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        content = (instead or {}).get(file)
        target.write_bytes(file.read_bytes() if content is None else content)
    return [names[source] for source in program.sources]


def _names(program: Program) -> dict[Path, str]:
    files = list(dict.fromkeys((*program.sources, *program.include)))
    if len(files) == 1 and not _includes_itself(files[0]):
        return {files[0]: f"{ALONE}{files[0].suffix}"}
    if program.root is None:
        return {file: file.name for file in files}
    # No more of where they come from than they need to find each other.
    shared = os.path.commonpath([file.parent for file in files])
    return {file: str(file.relative_to(shared)) for file in files}


def _includes_itself(file: Path) -> bool:
    return f'"{file.name}"'.encode() in file.read_bytes()
