"""The programs of basics, written for this environment.

Beside ``NAME.c`` lies ``NAME.expect``; a folder is one program of several files, with ``main.c``
and ``main.expect``. What is expected is not in the source, because the compiler that is judged
reads that. Each line of such a file is one of::

    expect_stdout: TEXT     one line of the output, repeatable
    expect_exit: N          the exit code, 0 unless said
    expect_rejected         it must not compile
    link: -lm               what it is linked with, repeatable
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from programs import Program
from sourcetree import case_name, checked, files, read, refused

CATEGORIES: Final = (
    "smoke",
    "variables",
    "control_flow",
    "functions",
    "expressions",
    "edge_cases",
    "stress",
    "multi_file",
)
FOLDER: Final = Path(__file__).absolute().parent / "basics"
SOURCE: Final = ".c"
HEADER: Final = ".h"
EXPECT: Final = ".expect"
MAIN: Final = "main"
MAX_EXIT: Final = 255

_VALID_FLAGS: Final = ("-std=c17", "-w")
# Without -w: it would silence what -pedantic-errors is there for.
_REJECTED_FLAGS: Final = ("-std=c17", "-pedantic-errors")
_NUMBER: Final = re.compile(r"[0-9]{1,3}")
_LIBRARY: Final = re.compile(r"-l[a-z0-9_]{1,40}")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a right compiler makes of a program."""

    stdout: bytes = b""
    exit_code: int = 0
    rejected: bool = False
    link: tuple[str, ...] = ()


def programs(folder: Path = FOLDER) -> dict[str, tuple[Program, ...]]:
    """The programs of each category that is there; anything that is no program is an error."""
    folder = folder.absolute()
    there = _names(folder)
    for name in there:
        if name not in CATEGORIES:
            raise refused(
                "is no category of programs", folder / name, hint=f"one of {', '.join(CATEGORIES)}"
            )
    if not there:
        raise refused("holds no program", folder)
    return {name: _category(folder / name) for name in CATEGORIES if name in there}


def expectation(text: str, file: Path) -> Expectation:
    """Read what is expected of a program."""
    said: dict[str, list[str]] = {}
    lines = text.removesuffix("\n").split("\n") if text else []
    for number, line in enumerate(lines, 1):
        name, value = _entry(line, number, file)
        said.setdefault(name, []).append(value)
    for name in ("expect_exit", "expect_rejected"):
        if len(said.get(name, ())) > 1:
            raise refused(f"says {name} more than once", file)
    if "expect_rejected" in said:
        if len(said) > 1:
            raise refused("says expect_rejected, so nothing else can be expected", file)
        return Expectation(rejected=True)
    if not said.keys() & {"expect_stdout", "expect_exit"}:
        raise refused(
            "does not say what is expected", file, hint="expect_exit: 0, if it prints nothing"
        )
    return Expectation(
        stdout="".join(f"{line}\n" for line in said.get("expect_stdout", ())).encode(),
        exit_code=int(said.get("expect_exit", ["0"])[0]),
        link=tuple(said.get("link", ())),
    )


def _entry(line: str, number: int, file: Path) -> tuple[str, str]:
    """One line as its name and its value, both checked."""
    name, colon, rest = line.partition(":")
    value = rest.removeprefix(" ")
    where = f"line {number}"
    if name not in ("expect_stdout", "expect_exit", "expect_rejected", "link"):
        raise refused(
            f"{where}: {name[:60]!r} is not known",
            file,
            hint="expect_stdout, expect_exit, expect_rejected or link",
        )
    if name == "expect_rejected":
        if colon:
            raise refused(f"{where}: expect_rejected takes no value", file)
    elif not colon or (rest and not rest.startswith(" ")):
        raise refused(f"{where}: after {name} there has to be a colon and a space", file)
    if name == "expect_exit" and not (_NUMBER.fullmatch(value) and int(value) <= MAX_EXIT):
        raise refused(f"{where}: {value[:60]!r} is no exit code of 0 to {MAX_EXIT}", file)
    if name == "link" and not _LIBRARY.fullmatch(value):
        raise refused(f"{where}: {value[:60]!r} is no library such as -lm", file)
    return name, value


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError as problem:
        raise refused(f"cannot be read: {problem.strerror}", folder) from problem


def _category(folder: Path) -> tuple[Program, ...]:
    found = []
    names = _names(folder)
    for name in names:
        place = folder / name
        if place.is_dir() and not place.is_symlink():
            found.append(_folder(place))
        elif place.suffix == SOURCE:
            found.append(_program(place.stem, (place,), place.with_suffix(EXPECT)))
        elif place.suffix != EXPECT:
            raise refused("is no program, and not what is expected of one", place)
        elif f"{place.stem}{SOURCE}" not in names:
            raise refused("there is no program that this is expected of", place)
    return checked(found, folder)


def _folder(place: Path) -> Program:
    """A program of several files."""
    names = files(place)
    main = f"{MAIN}{SOURCE}"
    if main not in names:
        raise refused(f"has no {main}", place)
    for name in names:
        if not name.endswith((SOURCE, HEADER)) and name != f"{MAIN}{EXPECT}":
            raise refused("is neither a source nor a header", place / name)
    sources = [main, *(name for name in names if name.endswith(SOURCE) and name != main)]
    headers = [name for name in names if name.endswith(HEADER)]
    return _program(
        place.name,
        tuple(place / name for name in sources),
        place / f"{MAIN}{EXPECT}",
        tuple(place / name for name in headers),
        root=place,
    )


def _program(
    name: str,
    sources: tuple[Path, ...],
    expected: Path,
    include: tuple[Path, ...] = (),
    root: Path | None = None,
) -> Program:
    for file in (*sources, *include):
        read(file)
    try:
        wanted = expectation(read(expected).decode(), expected)
    except UnicodeDecodeError as problem:
        raise refused("is not UTF-8", expected) from problem
    return Program(
        name=case_name(name, sources[0]),
        sources=sources,
        rejected=wanted.rejected,
        stdout=wanted.stdout,
        exit_code=wanted.exit_code,
        include=include,
        root=root,
        link=wanted.link,
        reference_flags=_REJECTED_FLAGS if wanted.rejected else _VALID_FLAGS,
    )
