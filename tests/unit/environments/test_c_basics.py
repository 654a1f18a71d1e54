"""The programs of basics: gcc makes of each what is expected, and what is malformed is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coilclaw.kernel.errors import UsageError
from tests.support.cprograms import loader
from tests.support.scale import scaled

GCC = shutil.which("gcc")
LEAST = 6
LEAST_MULTI_FILE = 8
LEAST_REJECTED = 6
LEAST_ALL = 70

ABOUT_A_WARNING = {
    "arrays",
    "array_parameters",
    "booleans",
    "comma_operator",
    "common_types",
    "conditional_inclusion",
    "conditional_operator",
    "conditions",
    "declarators",
    "designated_initializers",
    "initializer_effects",
    "macros",
    "precedence",
    "short_circuit_effects",
    "tokens",
    "typedefs",
    "variadic_macros",
}
"""Valid programs whose subject is something that gcc warns of."""


basics = loader("basics")
EVERYTHING: dict[str, tuple[Any, ...]] = basics.programs()
PROGRAMS: list[tuple[str, Any]] = [
    (category, program) for category, programs in EVERYTHING.items() for program in programs
]
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")


def _share(every: int) -> list[tuple[str, Any]]:
    """All programs at full scale, else a fixed share of them."""
    return PROGRAMS[:: scaled(full=1, default=every)]


def _failing(
    chosen: Iterable[tuple[str, Any]], problem: Callable[[Any, Path], str | None]
) -> dict[str, str]:
    """What is wrong with which program; each is looked at in a directory of its own."""
    chosen = list(chosen)

    def look(item: tuple[str, Any]) -> str | None:
        with tempfile.TemporaryDirectory() as place:
            return problem(item[1], Path(place))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(look, chosen))
    return {
        f"{category}/{program.name}": text
        for (category, program), text in zip(chosen, found, strict=True)
        if text is not None
    }


def _compile(program: Any, output: Path, *flags: str) -> subprocess.CompletedProcess[bytes]:
    assert GCC is not None
    argv = [GCC, *flags, *map(str, program.sources), "-o", str(output), *program.link]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False)


def _outcome(program: Any, place: Path, *flags: str) -> str | None:
    """How what gcc made of a program differs from what is expected."""
    output = place / "program"
    done = _compile(program, output, *program.reference_flags, *flags)
    if program.rejected:
        as_it_should = done.returncode == 1 and done.stderr and not output.exists()
        return None if as_it_should else f"accepted: {done.stderr!r}"
    if done.returncode != 0:
        return f"does not compile: {done.stderr!r}"
    ran = subprocess.run(
        [str(output)],
        capture_output=True,
        timeout=60,
        check=False,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
    )
    same = (ran.stdout, ran.returncode) == (program.stdout, program.exit_code)
    return None if same else f"{ran.returncode}, {ran.stdout!r}, {ran.stderr!r}"


# The programs


def test_there_are_enough_in_every_category() -> None:
    counts = {category: len(programs) for category, programs in EVERYTHING.items()}
    assert tuple(counts) == basics.CATEGORIES
    assert min(counts.values()) >= LEAST
    assert sum(counts.values()) >= LEAST_ALL
    assert counts["multi_file"] >= LEAST_MULTI_FILE
    rejected = [one for one in EVERYTHING["edge_cases"] if one.rejected]
    assert len(rejected) >= LEAST_REJECTED
    # A refusal counts only beside a valid program of the same shard.
    assert all(not all(one.rejected for one in programs) for programs in EVERYTHING.values())


def test_programs_of_several_files_name_all_of_them() -> None:
    for program in EVERYTHING["multi_file"]:
        place = basics.FOLDER / "multi_file" / program.name
        assert program.root == place
        assert program.sources[0] == place / "main.c"
        assert len(program.sources) > 1
        assert set(program.sources) == set(place.rglob("*.c"))
        assert set(program.include) == set(place.rglob("*.h"))
    assert any(program.include for program in EVERYTHING["multi_file"])


def test_no_source_says_what_is_expected_of_it() -> None:
    files = [file for _, one in PROGRAMS for file in (*one.sources, *one.include)]
    assert [file.name for file in files if "expect" in file.read_text()] == []


def test_an_early_compiler_needs_no_headers() -> None:
    plain = [one for _, one in PROGRAMS if b"#include" not in one.sources[0].read_bytes()]
    assert {one.name for one in EVERYTHING["smoke"]} <= {one.name for one in plain}
    assert len(plain) > len(PROGRAMS) / 2


@needs_gcc
def test_gcc_makes_what_is_expected() -> None:
    assert _failing(_share(3), lambda one, place: _outcome(one, place, "-O0")) == {}


@needs_gcc
def test_gcc_warns_only_of_what_a_program_is_about() -> None:
    flags = ("-std=c17", "-Wall", "-Wextra", "-pedantic", "-fsyntax-only")

    def warnings(program: Any, place: Path) -> str | None:
        done = _compile(program, place / "none", *flags)
        return done.stderr.decode() or None

    valid = [item for item in _share(6) if not item[1].rejected]
    warned = {name.partition("/")[2] for name in _failing(valid, warnings)}
    assert warned == ABOUT_A_WARNING & {program.name for _, program in valid}


@needs_gcc
def test_no_program_relies_on_what_is_undefined(tmp_path: Path) -> None:
    flags = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all", "-funsigned-char")
    if _outcome(EVERYTHING["smoke"][0], tmp_path, *flags) is not None:
        pytest.skip("gcc has no sanitizers here")
    valid = [item for item in _share(20) if not item[1].rejected]
    assert _failing(valid, lambda one, place: _outcome(one, place, *flags)) == {}


@needs_gcc
def test_a_wrong_expectation_is_noticed(tmp_path: Path) -> None:
    folder = _written(
        tmp_path,
        {
            "smoke/code.c": "int main(void) { return 3; }",
            "smoke/code.expect": "expect_exit: 4\n",
            "smoke/text.c": 'int puts(const char *); int main(void) { puts("a"); return 0; }',
            "smoke/text.expect": "expect_stdout: a\nexpect_stdout:\n",
            "smoke/valid.c": "int main(void) { return 0; }",
            "smoke/valid.expect": "expect_rejected\n",
        },
    )
    chosen = [("smoke", one) for one in basics.programs(folder)["smoke"]]
    failing = _failing(chosen, _outcome)
    assert sorted(failing) == ["smoke/code", "smoke/text", "smoke/valid"]


# What is malformed


def _written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


RIGHT = {"smoke/a.c": "int main(void) { return 0; }\n", "smoke/a.expect": "expect_exit: 0\n"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not say what is expected"),
        ("link: -lm\n", "does not say what is expected"),
        ("expect_output: a\n", "line 1: 'expect_output' is not known"),
        ("expect_exit: 0\n\n", "line 2: '' is not known"),
        ("// expect_exit: 0\n", "line 1: '// expect_exit' is not known"),
        ("Expect_exit: 0\n", "line 1: 'Expect_exit' is not known"),
        (" expect_exit: 0\n", "line 1: ' expect_exit' is not known"),
        ("expect_exit: zero\n", "line 1: 'zero' is no exit code of 0 to 255"),
        ("expect_exit: 256\n", "line 1: '256' is no exit code of 0 to 255"),
        ("expect_exit: -1\n", "line 1: '-1' is no exit code of 0 to 255"),
        ("expect_exit: ٣\n", "line 1: '٣' is no exit code of 0 to 255"),
        ("expect_exit: 1 \n", "line 1: '1 ' is no exit code of 0 to 255"),
        ("expect_exit:\n", "line 1: '' is no exit code of 0 to 255"),
        ("expect_exit\n", "line 1: after expect_exit there has to be a colon and a space"),
        ("expect_exit:0\n", "line 1: after expect_exit there has to be a colon and a space"),
        ("expect_stdout:a\n", "line 1: after expect_stdout there has to be a colon and a space"),
        ("expect_exit: 0\nexpect_exit: 0\n", "says expect_exit more than once"),
        ("expect_rejected: yes\n", "line 1: expect_rejected takes no value"),
        ("expect_rejected\nexpect_rejected\n", "says expect_rejected more than once"),
        ("expect_rejected\nexpect_exit: 1\n", "so nothing else can be expected"),
        ("expect_exit: 0\nlink: -Wl,-e,x\n", "line 2: '-Wl,-e,x' is no library such as -lm"),
        ("expect_exit: 0\nlink: m\n", "line 2: 'm' is no library such as -lm"),
    ],
)
def test_an_expectation_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    folder = _written(tmp_path, RIGHT | {"smoke/a.expect": text})
    with pytest.raises(UsageError) as caught:
        basics.programs(folder)
    assert said in caught.value.message
    assert caught.value.where == str(folder / "smoke/a.expect")


def test_expectations_that_can_be_read() -> None:
    where = Path("a.expect")
    read = basics.expectation
    assert read("expect_exit: 7", where) == basics.Expectation(exit_code=7)
    assert read("expect_rejected\n", where) == basics.Expectation(rejected=True)
    assert read(
        "expect_stdout:  a: b \nexpect_stdout:\nlink: -lm\nexpect_exit: 255\n", where
    ) == basics.Expectation(stdout=b" a: b \n\n", exit_code=255, link=("-lm",))


@pytest.mark.parametrize(
    ("files", "where", "said"),
    [
        ({"smoke/a.expect": None}, "smoke/a.expect", "cannot be read"),
        ({"smoke/a.c": None}, "smoke/a.expect", "there is no program that this is expected of"),
        ({"smoke/b.txt": ""}, "smoke/b.txt", "is no program"),
        ({"smoke/a b.c": "", "smoke/a b.expect": "expect_exit: 0"}, "smoke/a b.c", "name of a"),
        ({"others/a.c": ""}, "others", "is no category of programs"),
        ({"README.md": ""}, "README.md", "is no category of programs"),
        ({"stress": ""}, "stress", "cannot be read"),
        ({"multi_file/a/b.c": ""}, "multi_file/a", "has no main.c"),
        ({"multi_file/a/main.c": ""}, "multi_file/a/main.expect", "cannot be read"),
        (
            {"multi_file/a/main.c": "", "multi_file/a/x.o": ""},
            "multi_file/a/x.o",
            "neither a source nor a header",
        ),
    ],
)
def test_a_folder_that_is_no_set_of_programs(
    tmp_path: Path, files: dict[str, str | None], where: str, said: str
) -> None:
    _written(tmp_path, RIGHT)
    assert [one.name for one in basics.programs(tmp_path)["smoke"]] == ["a"]
    for name, text in files.items():
        if text is None:
            (tmp_path / name).unlink()
        else:
            _written(tmp_path, {name: text})
    with pytest.raises(UsageError) as caught:
        basics.programs(tmp_path)
    assert said in caught.value.message
    assert caught.value.where == str(tmp_path / where)


def test_a_folder_without_programs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no program"):
        basics.programs(tmp_path)
    (tmp_path / "smoke").mkdir()
    with pytest.raises(UsageError, match="holds no program"):
        basics.programs(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        basics.programs(tmp_path / "missing")


def test_links_are_not_followed(tmp_path: Path) -> None:
    _written(tmp_path, RIGHT)
    (tmp_path / "smoke/b.c").symlink_to(tmp_path / "smoke/a.c")
    _written(tmp_path, {"smoke/b.expect": "expect_exit: 0\n"})
    with pytest.raises(UsageError, match=r"b\.c: cannot be read"):
        basics.programs(tmp_path)
    (tmp_path / "smoke/b.c").unlink()
    (tmp_path / "smoke/b.c").write_text("int main(void) { return 0; }\n")
    assert len(basics.programs(tmp_path)["smoke"]) == 2
    (tmp_path / "smoke/c").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UsageError, match="is no program"):
        basics.programs(tmp_path)


# Whatever a file holds


def _read_or_refused(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except UsageError as problem:
        return problem


_LINES = st.one_of(
    st.sampled_from(["expect_rejected", "link: -lm", "expect_stdout:", "expect_exit: 1", ""]),
    st.builds("expect_stdout: {}".format, st.text(max_size=20)),
    st.builds("expect_exit: {}".format, st.integers(-10, 300)),
    st.text(max_size=20),
)


@settings(max_examples=scaled(full=500, default=150), deadline=None)
@given(st.lists(_LINES, max_size=5).map("\n".join))
@example("expect_stdout: \r\x0b\x85\u2028")
def test_any_text_is_an_expectation_or_refused(text: str) -> None:
    wanted = _read_or_refused(lambda: basics.expectation(text, Path("any.expect")))
    if isinstance(wanted, UsageError):
        assert wanted.message.startswith("any.expect: ")
        return
    lines = text.removesuffix("\n").split("\n")
    printed = [
        line.removeprefix("expect_stdout:") for line in lines if line.startswith("expect_stdout:")
    ]
    assert wanted.stdout == "".join(f"{line.removeprefix(' ')}\n" for line in printed).encode()
    assert wanted.rejected == ("expect_rejected" in lines)
    assert 0 <= wanted.exit_code <= 255


@settings(max_examples=scaled(full=300, default=80), deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=30)),
    st.integers(0, 255),
)
def test_what_is_written_is_read_back(lines: list[str], code: int) -> None:
    text = "".join(f"expect_stdout: {line}\n" for line in lines) + f"expect_exit: {code}\n"
    stdout = "".join(f"{line}\n" for line in lines).encode()
    assert basics.expectation(text, Path("a.expect")) == basics.Expectation(stdout, code)


@settings(max_examples=scaled(full=200, default=60), deadline=None)
@given(
    st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=40),
    st.binary(max_size=40),
    st.one_of(st.binary(max_size=60), st.lists(_LINES, max_size=3).map("\n".join).map(os.fsencode)),
)
@example("a", b"\xff", b"expect_exit: 0")
@example("a", b"", b"expect_stdout: \xff")
def test_any_files_are_programs_or_refused(name: str, source: bytes, expected: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "smoke"
        folder.mkdir()
        try:
            (folder / f"{name}.c").write_bytes(source)
            (folder / f"{name}.expect").write_bytes(expected)
        except OSError:
            return  # a name that is too long for a file
        found = _read_or_refused(lambda: basics.programs(Path(place)))
        if isinstance(found, UsageError):
            assert found.where is not None
            assert found.where.startswith(str(folder))
            return
        assert [one.name for one in found["smoke"]] == [name]
        assert found["smoke"][0].sources == (folder / f"{name}.c",)
