"""The compilers of this machine: which files a submission may not use, and what marks them."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM: Final = re.compile(
    r"(?:.*-)?(?:"
    r"gcc|g\+\+|cpp|cc|c\+\+|c89|c99|c11|c17|clang|clang\+\+|clang-cpp|clang-cl|tcc|"
    r"zig|icc|icx|icpc|icpx|nvcc|nvc|pcc|lcc|ccomp|chibicc|slimcc|8cc|9cc|cproc|kefir|emcc|armclang"
    r")(?:-?[0-9]+(?:\.[0-9]+)*)?"
)
"""By name; ``gcc-ar`` and ``c++filt`` compile nothing, and ``as`` and ``ld`` may be used."""
_INNER: Final = re.compile(r"cc1|cc1plus|cc1obj|cc1objplus|lto1")
_LIBRARY: Final = re.compile(
    r"(?:libclang(?:-cpp)?(?:-[0-9.]+)?\.so.*|libtcc\.(?:a|so.*)|libgccjit\.(?:a|so.*))"
)
_GCC_PLACES: Final = ("lib/gcc", "libexec/gcc", "lib/gcc-cross", "lib64/gcc", "libexec/gcc-cross")
_LIBRARY_PLACES: Final = ("lib", "lib64", "lib/*-linux-*", "lib/llvm-*/lib")
_PREFIXES: Final = (Path("/usr"), Path("/usr/local"))

MARKS: Final[tuple[tuple[str, tuple[bytes, ...]], ...]] = (
    ("gcc", (b"gimple_build", b"cgraph_node")),
    ("gcc", (b"COLLECT_GCC_OPTI", b"%(cc1_options)")),
    ("clang", (b"_ZN5clang", b"N4llvm9StringRef")),
    ("clang", (b"-fno-delete-null-pointer-checks", b"-fipa-cp", b"N4llvm9StringRef")),
    ("tcc", (b"Tiny C Compiler", b"libtcc1")),
    ("tcc", (b"__TINYC__", b"libtcc1")),
)
"""Texts that a compiler carries; all of one line together are in no other program."""


@cache
def on_this_machine(path: str | None = None) -> tuple[Path, ...]:
    """Return every compiler found by name on PATH and where compilers live, and their other names.

    Of links it is the file that they lead to; a file with several names is there by each of them.
    """
    found: dict[Path, None] = {}
    several: set[tuple[int, int]] = set()
    places = list(dict.fromkeys(_places(os.environ.get("PATH", "") if path is None else path)))
    for place, names in places:
        for entry in _entries(place):
            if names.fullmatch(entry.name) and entry.is_file():
                real = Path(os.path.realpath(entry.path))
                found[real] = None
                known = real.stat()
                if known.st_nlink > 1:
                    several.add((known.st_dev, known.st_ino))
    inodes = {number for _, number in several}
    for place, _ in places if several else []:
        for entry in _entries(place):
            if entry.inode() in inodes and not entry.is_symlink():
                known = entry.stat()
                if (known.st_dev, known.st_ino) in several:
                    found[Path(os.path.realpath(entry.path))] = None
    return tuple(sorted(found))


def _places(path: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the directories to look into, each with the names to look for."""
    programs = [entry for entry in path.split(":") if entry.startswith("/")]
    prefixes = {*_PREFIXES, *(Path(os.path.realpath(entry)).parent for entry in programs)}
    for entry in (*programs, "/usr/bin", "/usr/local/bin", "/bin"):
        yield os.path.realpath(entry), _PROGRAM
    for prefix in sorted(prefixes):
        yield from ((str(place), _PROGRAM) for place in prefix.glob("lib/llvm-*/bin"))
        for above in _GCC_PLACES:
            yield from ((str(place), _INNER) for place in prefix.glob(f"{above}/*/*"))
        for libraries in _LIBRARY_PLACES:
            yield from ((str(place), _LIBRARY) for place in prefix.glob(libraries))
    for place in Path("/opt").glob("*/bin"):
        yield str(place), _PROGRAM


def _entries(place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError:
        return []  # not there, or no directory: then nothing of it can be executed either
