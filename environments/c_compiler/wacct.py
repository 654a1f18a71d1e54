"""The programs of "Writing a C Compiler", chapter by chapter.

``expected_results.json`` says what each valid program does, ``test_properties.json`` what else
belongs to it; a program in a directory ``invalid_…`` must not compile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from programs import Program
from sourcetree import case_name, checked, files, headers, inside, read, read_object, refused

if TYPE_CHECKING:
    from pathlib import Path

CHAPTERS: Final = range(1, 21)
FOLDER: Final = "wacct"
RESULTS: Final = "expected_results.json"
PROPERTIES: Final = "test_properties.json"
MAX_EXIT_CODE: Final = 255

_OTHER_NAMES: Final = ("writing-a-c-compiler-tests",)
_VALID_FLAGS: Final = ("-std=c17", "-w")
_INVALID_FLAGS: Final = ("-std=c17", "-pedantic-errors")
_WRAPPED_CHAPTER: Final = 20
_WRAPPER: Final = "chapter_20/helper_libs/wrapper_linux.s"
"""It calls ``target`` and looks whether registers were kept: for programs without a ``main``."""
_COMMENTS: Final = re.compile(rb'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_MAIN: Final = {
    ".c": re.compile(rb"\bmain\s*\("),
    ".s": re.compile(rb"^\s*main\s*:", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class Tree:
    """The tests as they are on disk, with what is said about them."""

    tests: Path
    results: dict[str, object]
    libraries: dict[str, tuple[Path, ...]]
    """By the name of a program: further sources, of C and of assembly."""
    math: frozenset[str]


def found(fixtures: Path) -> Path | None:
    """Where the tests are below a directory of fixtures."""
    for name in (FOLDER, *_OTHER_NAMES):
        if (fixtures / name / RESULTS).is_file():
            return fixtures / name
    return None


def programs(folder: Path, chapter: int) -> tuple[Program, ...]:
    """The programs of one chapter, valid and invalid; every file of it is accounted for."""
    return of_chapter(tree(folder), chapter)


def tree(folder: Path) -> Tree:
    """Read what is said about all the tests."""
    tests = folder / "tests"
    if not tests.is_dir():
        raise refused("there is no directory tests", folder)
    said_by = folder / PROPERTIES
    properties = read_object(said_by)
    libraries: dict[str, tuple[Path, ...]] = {}
    for key, end in (("libs", ""), ("assembly_libs", "_linux.s")):
        for program, names in _table(properties, key, said_by).items():
            given = tuple(inside(tests, f"{name}{end}", said_by) for name in _texts(names, said_by))
            libraries[program] = (*libraries.get(program, ()), *given)
    math = _texts(properties.get("requires_mathlib", []), said_by)
    return Tree(tests, read_object(folder / RESULTS), libraries, frozenset(math))


def of_chapter(tree: Tree, chapter: int) -> tuple[Program, ...]:
    """The programs of one chapter of a tree that has been read."""
    folder = tree.tests / f"chapter_{chapter}"
    if not folder.is_dir():
        raise refused(f"there is no directory chapter_{chapter}", tree.tests)
    prefix = f"chapter_{chapter}/"
    there = [f"{prefix}{name}" for name in files(folder) if name.endswith(".c")]
    expected = {name for name in tree.results if name.startswith(prefix)}
    parts = {str(part) for part in _parts(tree)}
    made: list[Program] = []
    for name in there:
        if _is_invalid(name):
            made.append(_invalid(tree, name))
        elif name in expected:
            made.append(_valid(tree, name, chapter))
        elif _client_of(name) not in expected and str(tree.tests / name) not in parts:
            raise refused(
                f"nothing says what it has to do: it is not in {RESULTS}, not the client of "
                "a library there, and not a part of another program",
                tree.tests / name,
            )
    missing = sorted(expected.difference(there))
    if missing:
        raise refused(f"{RESULTS} names it, and it is not there", tree.tests / missing[0])
    return checked(made, folder)


def _parts(tree: Tree) -> set[Path]:
    return {part for group in tree.libraries.values() for part in group}


def _is_invalid(name: str) -> bool:
    return any(folder.startswith("invalid_") for folder in name.split("/")[1:-1])


def _client_of(name: str) -> str:
    """The library that a client belongs to."""
    return f"{name.removesuffix('_client.c')}.c" if name.endswith("_client.c") else ""


def _invalid(tree: Tree, name: str) -> Program:
    source = tree.tests / name
    return Program(
        name=_case(name, source),
        sources=(source,),
        rejected=True,
        include=headers([source], tree.tests),
        root=tree.tests,
        reference_flags=_INVALID_FLAGS,
    )


def _valid(tree: Tree, name: str, chapter: int) -> Program:
    source = tree.tests / name
    client = source.with_name(f"{source.stem}_client.c")
    sources = (source, *((client,) if client.is_file() else ()), *tree.libraries.get(name, ()))
    for part in sources[1:]:
        if not part.is_file():
            raise refused(f"it belongs to {name}, and it is not there", part)
    if chapter == _WRAPPED_CHAPTER and not any(map(_has_main, sources)):
        sources = (*sources, tree.tests / _WRAPPER)
    exit_code, stdout = _expected(tree, name)
    return Program(
        name=_case(name, source),
        sources=sources,
        stdout=stdout,
        exit_code=exit_code,
        include=headers(sources, tree.tests),
        root=tree.tests,
        link=("-lm",) if name in tree.math else (),
        reference_flags=_VALID_FLAGS,
    )


def _case(name: str, source: Path) -> str:
    return case_name(name.partition("/")[2], source)


def _has_main(source: Path) -> bool:
    text = read(source)
    if source.suffix == ".c":
        text = _COMMENTS.sub(b" ", text)
    return bool(_MAIN[source.suffix].search(text)) if source.suffix in _MAIN else False


def _expected(tree: Tree, name: str) -> tuple[int, bytes]:
    said_by = tree.tests.parent / RESULTS
    result = tree.results[name]
    if not isinstance(result, dict) or not set(result) <= {"return_code", "stdout"}:
        raise refused(f"what it says about {name} is not understood", said_by)
    code, stdout = result.get("return_code"), result.get("stdout", "")
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= MAX_EXIT_CODE:
        raise refused(f"the return_code of {name} is no exit code", said_by)
    if not isinstance(stdout, str):
        raise refused(f"the stdout of {name} is no text", said_by)
    return code, stdout.encode("utf-8", "surrogatepass")


def _table(properties: dict[str, object], key: str, said_by: Path) -> dict[str, object]:
    value = properties.get(key, {})
    if not isinstance(value, dict):
        raise refused(f"{key} is no object", said_by)
    return value


def _texts(value: object, said_by: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise refused(f"{str(value)[:80]!r} is no list of texts", said_by)
    return tuple(value)
