"""The twin of a program: the same, but for how its main ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cprograms import loader

WAYS: tuple[str, ...] = loader("twins")._WAYS


def ending(text: str, how: str = "return 7;") -> str | None:
    made = loader("twins").ending(text.encode(), how)
    return None if made is None else made.decode()


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("int main(void) { return 0; }", "int main(void) { return 7; return 0; }"),
        ("main ()\n{\n}", "main ()\n{ return 7;\n}"),
        (
            "main (argc, argv)\n int argc;\n char **argv;\n{ exit (0); }",
            "main (argc, argv)\n int argc;\n char **argv;\n{ return 7; exit (0); }",
        ),
        (
            "int main(int n __attribute__((unused))) {}",
            None,  # deeper than what is looked into: nothing is guessed
        ),
        (
            "/* main () { */ int x; // main() {\nint main (int n, char *w[]) {}",
            "/* main () { */ int x; // main() {\nint main (int n, char *w[]) { return 7;}",
        ),
        ('char *s = "main() {"; main(){}', 'char *s = "main() {"; main(){ return 7;}'),
        ("int main(void); int f(void) { return 1; }", None),
        ("int domain(void) { return 1; }", None),
        ("int main(void) {}\n#if 0\nint main(void) {}\n#endif", None),
        ("void main(void) {}", None),
        ("void f(void) __attribute__((constructor)); int main(void) {}", None),
        ("int main(void) { atexit(f); }", None),
        ("int f(void) { return 0; }", None),
    ],
)  # fmt: skip
def test_main_is_found_or_nothing_is_made(text: str, twin: str | None) -> None:
    assert ending(text) == twin


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")
def test_every_way_ends_with_the_number(tmp_path: Path) -> None:
    """All in one program: each way is a function of its own, and main says which are wrong."""
    functions = []
    for number, way in enumerate(WAYS):
        for code in (3, 57, 119):
            how = loader("twins").statement(code, way)
            functions.append((f"f{number}_{code}", code, how))
    text = "".join(f"int {name}(void) {{ {how} return 0; }}\n" for name, _, how in functions)
    tests = "".join(f"  if ({name}() != {code}) return 1;\n" for name, code, _ in functions)
    source = tmp_path / "all.c"
    source.write_text(f"{text}int main(void) {{\n{tests}  return 0;\n}}\n")
    made = tmp_path / "all"
    subprocess.run(["gcc", "-w", str(source), "-o", str(made)], check=True)
    assert subprocess.run([str(made)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("given", "silent"),
    [
        ({}, True),
        ({"stdout": None}, True),
        ({"stdout": b"\n"}, True),
        ({"stdout": b"x\n"}, False),
        ({"exit_code": 1}, False),
        ({"rejected": True}, False),
    ],
)
def test_who_needs_a_twin(given: dict[str, object], silent: bool) -> None:
    program = loader("programs").Program("one", (Path("/one.c"),), **given)
    assert loader("twins").is_silent(program) is silent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_what_cannot_be_looked_at_is_no_program_and_yet_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a compiler left may be closed to whoever judges, who is not always root."""
    judging = loader("judge")
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)  # what is above is closed to others
    os.seteuid(65534)
    try:
        closed, unreadable, good = map(Path, ("closed/x", "unreadable", "good"))
        closed.parent.mkdir()
        for file in (closed, unreadable, good):
            file.write_text("x")
            file.chmod(0o755)
        unreadable.chmod(0o111)
        closed.parent.chmod(0)
        missing = Path("missing")
        files = (closed, unreadable, good, missing)
        assert [judging._is_program(file) for file in files] == [False, False, True, False]
        assert [judging._is_there(file) for file in files] == [True, True, True, False]
        closed.parent.chmod(0o700)
    finally:
        os.seteuid(0)


def test_names_give_nothing_away(tmp_path: Path) -> None:
    lay = loader("laying").lay
    program = loader("programs").Program
    root = tmp_path / "tests"
    files = {
        "chapter_1/invalid_lex/at.c": "x",
        "chapter_2/valid/deep/client.c": '#include "../util.h"\n',
        "chapter_2/valid/util.h": "",
        "own.c": '#include "own.c"\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    alone, client, header, own = (root / name for name in files)

    def laid(place: str, *sources: Path, **more: object) -> tuple[list[str], list[str]]:
        names = lay(program("one", sources, **more), tmp_path / place)
        found = (tmp_path / place).rglob("*")
        there = [str(file.relative_to(tmp_path / place)) for file in found if file.is_file()]
        return names, sorted(there)

    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    assert laid("a", alone, root=root) == (["program.c"], ["program.c"])
    assert laid("b", client, include=(header,), root=root) == (
        ["deep/client.c"],
        ["deep/client.c", "util.h"],
    )
    assert laid("c", own) == (["own.c"], ["own.c"])
    assert laid("d", alone, own) == (["at.c", "own.c"], ["at.c", "own.c"])


def test_half_of_a_compiler_is_one(tmp_path: Path) -> None:
    likeness = loader("likeness")
    original = tmp_path / "original"
    data = bytes((at * at * 7 + at // 251 * 13 + at) % 256 for at in range(200_000))
    original.write_bytes(data)
    patched = bytearray(data)
    for at in range(0, 200_000, 1000):
        patched[at] ^= 0xFF
    for same in (data, bytes(patched), b"#!/bin/sh\n" + data, data[:150_000]):
        assert likeness.is_like(same, len(same), original)
    other = bytes((at * at * 5 + at // 249 * 11 + 3) % 256 for at in range(200_000))
    for different in (other, data[:40_000] + other, b"", b"\0" * 200_000):
        assert not likeness.is_like(different, len(different), original)
