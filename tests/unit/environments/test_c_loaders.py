"""The loaders of the C-compiler environment: what they make of trees that others wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from tests.support.cprograms import (
    ENVIRONMENT,
    compiled,
    ctestsuite_files,
    loader,
    real_fixtures,
    torture_files,
    wacct_files,
    write,
)

wacct = loader("wacct")
ctestsuite = loader("ctestsuite")
torture = loader("torture")
programs = loader("programs")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "wacct", wacct_files())


def by_name(made: tuple[Any, ...]) -> dict[str, Any]:
    return {program.name: program for program in made}


# wacct


def change(tree: Path, file: str, key: str, value: object) -> None:
    document = json.loads((tree / file).read_text())
    document[key] = value
    (tree / file).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("file", "key", "value", "said"),
    [
        ("expected_results.json", "chapter_1/valid/gone.c", {"return_code": 0}, "is not there"),
        ("expected_results.json", "chapter_1/valid/only.c", 3, "not understood"),
        ("expected_results.json", "chapter_1/valid/only.c", {}, "no exit code"),
        ("expected_results.json", "chapter_1/valid/only.c", {"return_code": 256}, "no exit code"),
        ("expected_results.json", "chapter_1/valid/only.c", {"return_code": True}, "no exit code"),
        ("expected_results.json", "chapter_1/valid/only.c", {"code": 1}, "not understood"),
        (
            "expected_results.json",
            "chapter_1/valid/only.c",
            {"return_code": 0, "stdout": 1},
            "no text",
        ),
        ("test_properties.json", "libs", {"chapter_1/valid/only.c": ["a/gone.c"]}, "not there"),
        ("test_properties.json", "libs", {"chapter_1/valid/only.c": ["../x.c"]}, "below"),
        ("test_properties.json", "libs", {"chapter_1/valid/only.c": ["/etc/hosts"]}, "below"),
        ("test_properties.json", "libs", {"chapter_1/valid/only.c": [""]}, "no name"),
        ("test_properties.json", "libs", {"chapter_1/valid/only.c": "x.c"}, "no list"),
        ("test_properties.json", "libs", [], "no object"),
        ("test_properties.json", "requires_mathlib", [1], "no list"),
    ],
)
def test_what_the_files_say_wrongly_is_an_error(
    tree: Path, file: str, key: str, value: object, said: str
) -> None:
    assert len(wacct.programs(tree, 1)) == 4
    change(tree, file, key, value)
    with pytest.raises(UsageError, match=said) as caught:
        wacct.programs(tree, 1)
    assert caught.value.rule == "fixtures.malformed"
    assert str(tree) in str(caught.value.where)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"a": ' * 100_000])
@pytest.mark.parametrize("file", ["expected_results.json", "test_properties.json"])
def test_a_file_that_is_no_json_object(tree: Path, file: str, data: bytes) -> None:
    (tree / file).write_bytes(data)
    with pytest.raises(UsageError, match=file):
        wacct.programs(tree, 1)


def test_a_program_that_nothing_is_said_about_is_an_error_and_a_helper_is_not(tree: Path) -> None:
    write(tree, {"tests/chapter_13/helper_libs/more.c": "int more;"})
    with pytest.raises(UsageError, match=r"more\.c: nothing says"):
        wacct.programs(tree, 13)
    (tree / "tests/chapter_13/helper_libs/more.c").unlink()
    assert len(wacct.programs(tree, 13)) == 3


def test_a_chapter_that_is_not_there(tree: Path) -> None:
    with pytest.raises(UsageError, match="chapter_21"):
        wacct.programs(tree, 21)
    shutil.rmtree(tree / "tests")
    with pytest.raises(UsageError, match="no directory tests"):
        wacct.programs(tree, 1)


@pytest.mark.parametrize(
    ("include", "said"),
    [("gone.h", "not there"), ("../../../../outside.h", "outside"), ("/etc/hosts", "outside")],
)
def test_a_header_that_is_not_there_or_outside(tree: Path, include: str, said: str) -> None:
    text = f'#include <stdio.h>\n  #  include "{include}"\nint main(void) {{ return 3; }}'
    write(tree, {"tests/chapter_1/valid/only.c": text})
    with pytest.raises(UsageError, match=said):
        wacct.programs(tree, 1)
    # The same for what must be rejected: it would be, for the wrong reason.
    write(tree, {"tests/chapter_1/valid/only.c": "int main(void) { return 3; }"})
    write(tree, {"tests/chapter_1/invalid_lex/at_sign.c": text})
    with pytest.raises(UsageError, match=said):
        wacct.programs(tree, 1)


def test_a_link_is_not_followed(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("int secret;")
    place = tree / "tests/chapter_1/valid/only.c"
    place.unlink()
    place.symlink_to(secret)
    with pytest.raises(UsageError, match=r"only\.c"):
        wacct.programs(tree, 1)


def test_a_linked_directory_is_not_walked(tree: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"x.c": "int main(void) { return 0; }"})
    (tree / "tests/chapter_1/invalid_more").symlink_to(tmp_path / "elsewhere")
    assert len(wacct.programs(tree, 1)) == 4


def test_a_fifo_is_not_waited_for(tree: Path) -> None:
    os.mkfifo(tree / "tests/chapter_1/invalid_lex/pipe.c")
    with pytest.raises(UsageError, match="no regular file"):
        wacct.programs(tree, 1)


def test_two_files_that_would_be_one_case(tree: Path) -> None:
    text = "int main(void) { return 0@1; }"
    write(tree, {"tests/chapter_1/invalid_lex/a/b.c": text})
    assert len(wacct.programs(tree, 1)) == 5
    write(tree, {"tests/chapter_1/invalid_lex/a.b.c": text})
    with pytest.raises(UsageError, match=r"both be the case invalid_lex\.a\.b"):
        wacct.programs(tree, 1)


@pytest.mark.parametrize("name", ["a b.c", "a\n.c", "é.c", "x" * 120 + ".c"])
def test_a_name_that_no_case_can_have(tree: Path, name: str) -> None:
    write(tree, {f"tests/chapter_1/invalid_lex/{name}": "int"})
    with pytest.raises(UsageError, match="name of a case"):
        wacct.programs(tree, 1)


def test_each_kind_of_program(tree: Path) -> None:
    tests = tree / "tests"
    valid, invalid = ("-std=c17", "-w"), ("-std=c17", "-pedantic-errors")
    assert by_name(wacct.programs(tree, 1)) == {
        "invalid_lex.at_sign": programs.Program(
            name="invalid_lex.at_sign",
            sources=(tests / "chapter_1/invalid_lex/at_sign.c",),
            rejected=True,
            root=tests,
            reference_flags=invalid,
        ),
        "invalid_parse.deep.no_brace": programs.Program(
            name="invalid_parse.deep.no_brace",
            sources=(tests / "chapter_1/invalid_parse/deep/no_brace.c",),
            rejected=True,
            root=tests,
            reference_flags=invalid,
        ),
        "valid.only": programs.Program(
            name="valid.only",
            sources=(tests / "chapter_1/valid/only.c",),
            exit_code=3,
            root=tests,
            reference_flags=valid,
        ),
        "valid.prints": programs.Program(
            name="valid.prints",
            sources=(tests / "chapter_1/valid/prints.c",),
            stdout=b"a\nb",
            root=tests,
            reference_flags=valid,
        ),
    }
    ninth = by_name(wacct.programs(tree, 9))
    library = tests / "chapter_9/valid/libraries"
    assert ninth["valid.libraries.add"].sources == (library / "add.c", library / "add_client.c")
    stack = tests / "chapter_9/valid/stack"
    assert ninth["valid.stack.asm"].sources == (stack / "asm.c", stack / "seven_linux.s")
    assert sorted(ninth) == ["valid.libraries.add", "valid.only", "valid.stack.asm"]
    thirteenth = by_name(wacct.programs(tree, 13))
    assert thirteenth["valid.root"].link == ("-lm",)
    assert thirteenth["valid.only"].link == ()
    helper = tests / "chapter_13/helper_libs/four.c"
    assert thirteenth["valid.extra.helped"].sources[1:] == (helper,)
    heads = tests / "chapter_18/valid/heads"
    eighteenth = by_name(wacct.programs(tree, 18))
    assert eighteenth["valid.deep.headed"].include == (heads / "inner.h", heads / "outer.h")
    assert eighteenth["invalid_types.headed"].include == (heads / "inner.h",)
    last = by_name(wacct.programs(tree, 20))
    helpers = tests / "chapter_20/helper_libs"
    assert last["int_only.wrapped"].sources[1:] == (
        helpers / "util.c",
        helpers / "wrapper_linux.s",
    )
    assert last["int_only.own_main"].sources[1:] == ()


@needs_gcc
def test_a_compiler_makes_of_the_look_alike_what_is_said_of_it(tree: Path, tmp_path: Path) -> None:
    seen = 0
    for chapter in wacct.CHAPTERS:
        for program in wacct.programs(tree, chapter):
            seen += 1
            done, code, said = compiled(program, tmp_path / f"{chapter}.{program.name}")
            assert done is not program.rejected, (chapter, program.name, said)
            if done:
                assert (code, said) == (program.exit_code, program.stdout), program.name
    assert seen == 31


def test_where_it_is_found(tree: Path, tmp_path: Path) -> None:
    assert wacct.found(tmp_path) == tree
    (tree / "expected_results.json").unlink()
    assert wacct.found(tmp_path) is None
    other = write(tmp_path / "writing-a-c-compiler-tests", wacct_files())
    assert wacct.found(tmp_path) == other


# c_testsuite


def test_a_program_and_its_output_go_together(tmp_path: Path) -> None:
    write(tmp_path / "c-testsuite", ctestsuite_files())
    folder = ctestsuite.found(tmp_path)
    assert [(made.name, made.stdout) for made in ctestsuite.programs(folder)] == [
        ("00001", b""),
        ("00002", b"hi\n"),
    ]
    for lost, left in (("00001.c.expected", "00001.c"), ("00002.c", "00002.c.expected")):
        text = (folder / lost).read_bytes()
        (folder / lost).unlink()
        with pytest.raises(UsageError, match=lost) as caught:
            ctestsuite.programs(folder)
        assert caught.value.where == str(folder / lost)
        assert (folder / left).is_file()
        (folder / lost).write_bytes(text)
    assert len(ctestsuite.programs(folder)) == 2


def test_nothing_to_find(tmp_path: Path) -> None:
    assert ctestsuite.found(tmp_path) is None
    assert torture.found(tmp_path) is None
    for read in (ctestsuite.programs, lambda folder: torture.programs(folder, frozenset())):
        with pytest.raises(UsageError, match="cannot be read"):
            read(tmp_path / "nothing")
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="holds no program"):
            read(tmp_path / "empty")


# torture


@pytest.mark.parametrize(
    "place",
    [
        "torture",
        "llvm-test-suite/SingleSource/Regression/C/gcc-c-torture",
        "gcc-12.2.0/gcc/testsuite/gcc.c-torture",
        "gcc-12/gcc-12.2.0/gcc/testsuite/gcc.c-torture",
    ],
)
def test_torture_is_found_wherever_it_may_be(tmp_path: Path, place: str) -> None:
    write(tmp_path / place, torture_files())
    assert torture.found(tmp_path) == tmp_path / place / "execute"


def test_torture_leaves_out_what_it_is_told_to(tmp_path: Path) -> None:
    write(tmp_path / "torture", torture_files())
    folder = torture.found(tmp_path)
    every = by_name(torture.programs(folder, frozenset()))
    assert sorted(every) == ["20000112-1", "20000113-1", "loud", "twice", "unlinked"]
    kept = by_name(torture.programs(folder, frozenset({"loud", "unlinked.c", "unknown"})))
    assert sorted(kept) == ["20000112-1", "20000113-1", "twice"]
    assert kept["20000113-1"] == programs.Program(
        name="20000113-1",
        sources=(folder / "20000113-1.c",),
        include=(folder / "20000112-1.c",),
        root=folder,
        reference_flags=("-w",),
    )


@pytest.mark.parametrize("text", ["{}", '{"left_out": ["a"]}', '{"left_out": {"a": 1}}', "[]"])
def test_a_list_of_what_is_left_out_that_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "list.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="list"):
        torture.left_out(file)
    file.write_text('{"left_out": {"a": "it prints"}}')
    assert torture.left_out(file) == frozenset({"a"})


def test_our_own_list_has_a_reason_for_each() -> None:
    document = json.loads((ENVIRONMENT / "torture_left_out.json").read_text())
    assert torture.left_out() == frozenset(document["left_out"])
    assert 0 < len(document["left_out"]) < 100
    assert all(reason for reason in document["left_out"].values())


# the real ones, where they are


@pytest.mark.full
def test_the_real_wacct() -> None:
    folder = wacct.found(real_fixtures())
    if folder is None:
        pytest.skip("wacct is not on this machine")
    made = [program for chapter in wacct.CHAPTERS for program in wacct.programs(folder, chapter)]
    assert (len(made), sum(program.rejected for program in made)) == (1559, 692)


@pytest.mark.full
def test_the_real_c_testsuite() -> None:
    folder = ctestsuite.found(real_fixtures())
    if folder is None:
        pytest.skip("c-testsuite is not on this machine")
    assert len(ctestsuite.programs(folder)) == 220


@pytest.mark.full
def test_the_real_torture() -> None:
    folder = torture.found(real_fixtures())
    if folder is None:
        pytest.skip("torture is not on this machine")
    left_out = torture.left_out()
    every = torture.programs(folder, frozenset())
    assert len(every) == len(torture.programs(folder, left_out)) + len(left_out)
