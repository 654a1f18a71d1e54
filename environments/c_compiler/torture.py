"""The execution tests of GCC's torture suite: a program is right if it says nothing and ends well.

Some of them are not for a compiler that is given one file and nothing else. Which those are was
found out by a command (``coilclaw env selfcheck c_compiler --derive torture``) and stands in a
file beside this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from programs import Program
from sourcetree import MAX_FILES, case_name, checked, headers, read_object, refused

LEFT_OUT: Final = "torture_left_out.json"
PLACES: Final = (
    "torture/execute",
    "llvm-test-suite/SingleSource/Regression/C/gcc-c-torture/execute",
    "gcc-*/gcc/testsuite/gcc.c-torture/execute",
    "gcc-*/gcc-*/gcc/testsuite/gcc.c-torture/execute",
)

_FLAGS: Final = ("-w",)


def found(fixtures: Path) -> Path | None:
    """Where the programs are below a directory of fixtures."""
    for place in PLACES:
        for folder in sorted(fixtures.glob(place)):
            if folder.is_dir():
                return folder
    return None


def left_out(file: Path | None = None) -> frozenset[str]:
    """The names of the programs that are left out, such as ``eeprof-1``."""
    said_by = file or Path(__file__).with_name(LEFT_OUT)
    names = read_object(said_by).get("left_out")
    if not isinstance(names, dict) or not all(isinstance(why, str) for why in names.values()):
        raise refused("left_out is no object of names with reasons", said_by)
    return frozenset(names)


def programs(folder: Path, left_out: frozenset[str]) -> tuple[Program, ...]:
    """Every program of a directory but those left out, by name or by the name of their file."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".c"))
    except OSError as problem:
        raise refused(f"cannot be read: {problem.strerror}", folder) from problem
    if len(names) > MAX_FILES:
        raise refused(f"has more than {MAX_FILES} programs", folder)
    kept = [folder / name for name in names if not {name, name[:-2]} & left_out]
    return checked((_program(source) for source in kept), folder)


def _program(source: Path) -> Program:
    return Program(
        name=case_name(source.name, source),
        sources=(source,),
        include=headers([source], source.parent, optional=True),
        root=source.parent,
        reference_flags=_FLAGS,
    )
