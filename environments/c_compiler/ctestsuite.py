"""The programs of c-testsuite: one file each, with the output that is expected of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from programs import Program
from sourcetree import MAX_FILES, case_name, checked, read, refused

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "c-testsuite"
PLACE: Final = "tests/single-exec"
EXPECTED: Final = ".expected"

_FLAGS: Final = ("-w",)


def found(fixtures: Path) -> Path | None:
    """Where the programs are below a directory of fixtures."""
    folder = fixtures / FOLDER / PLACE
    return folder if folder.is_dir() else None


def programs(folder: Path) -> tuple[Program, ...]:
    """Every program; one without its output, or an output without its program, is an error."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as problem:
        raise refused(f"cannot be read: {problem.strerror}", folder) from problem
    if len(names) > MAX_FILES:
        raise refused(f"has more than {MAX_FILES} files", folder)
    sources = {name for name in names if name.endswith(".c")}
    outputs = {name.removesuffix(EXPECTED) for name in names if name.endswith(f".c{EXPECTED}")}
    for name in sorted(sources ^ outputs):
        lacks = f"{name}{EXPECTED}" if name in sources else name
        raise refused("it is not there, and its counterpart is", folder / lacks)
    return checked((_program(folder / name) for name in sources), folder)


def _program(source: Path) -> Program:
    read(source)
    return Program(
        name=case_name(source.name, source),
        sources=(source,),
        stdout=read(source.with_name(f"{source.name}{EXPECTED}")),
        reference_flags=_FLAGS,
    )
