"""Fixture sets and archives for tests, made by us."""

from __future__ import annotations

import io
import lzma
import tarfile
from dataclasses import replace
from pathlib import Path

from coilclaw.traces.environments import fixtures
from coilclaw.traces.environments.fixtures import DebianOrigin, FixtureSet

FILES = {
    "LICENSE": b"ours",
    "tests/a.c": b"int main(void) { return 0; }\n",
    "tests/deep/b.c": b"int b;\n",
    "tests/deep/b.h": b"#define B 1\n",
}
OTHERS = {"README.md": b"not read", "tests/deep/b.txt": b"not read"}

SET = FixtureSet(
    name="small",
    suite="small",
    purpose="a few files",
    licence="ours",
    places=("small", "other-name", "deep-*/inside"),
    files=("LICENSE", "tests/**/*.c", "tests/**/*.h"),
    anchor="tests/a.c",
    sha256="0" * 64,
    programs=2,
)


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files below a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def pinned(folder: Path, files: dict[str, bytes] | None = None) -> FixtureSet:
    """The set, pinned to files that are laid in a folder for that."""
    place = lay(folder, FILES if files is None else files)
    names = fixtures.select_files(SET, place)
    return replace(SET, sha256=fixtures.fingerprint(place, names))


def packed(
    files: dict[str, bytes], mode: str = "w", extra: list[tarfile.TarInfo] | None = None
) -> bytes:
    """A tar archive of files, and of entries that need no contents."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in extra or []:
            tar.addfile(info)
    return made.getvalue()


def package(files: dict[str, bytes]) -> bytes:
    """A Debian package."""
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", lzma.compress(packed({"control": b"x"}))),
        ("data.tar.xz", lzma.compress(packed(files))),
    ]
    made = b"!<arch>\n"
    for name, data in members:
        made += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        made += data + b"\n" * (len(data) % 2)
    return made


def in_package(wanted: FixtureSet) -> FixtureSet:
    """The set, as it comes from a Debian package with an archive in it."""
    return replace(wanted, debian=DebianOrigin("small-source", "1.0", "usr/src/small-*.tar.xz"))
