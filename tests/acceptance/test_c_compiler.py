"""The C-compiler environment: what is right passes, what is wrong fails, what cheats gets zero."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import Judge
from coilclaw.traces.environments.results import Case, Result
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support import ccompiler
from tests.support.ccompiler import TAKES_OUTPUT
from tests.support.scale import scaled

SMOKE = "basics/smoke"
ONE = f"{SMOKE}/return_42"
WRONG = "basics/edge_cases/rejected_break_outside"

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc here")


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    found = probe_sandboxes()
    if found.bubblewrap is None:
        pytest.skip(f"bubblewrap does not work here: {' '.join(found.notes)}")
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge")


@pytest.fixture
def judge(home: Path, support: SandboxSupport) -> Judge:
    return Judge(
        catalogue.find_environment("c_compiler"),
        support=support,
        home=home,
        environ=os.environ,
        jobs=2,
        timeout_s=120,
    )


def kinds(result: Result) -> dict[str, str | None]:
    return {case.id: case.failure_kind or case.status for case in result.every_case()}


def only(result: Result) -> Case:
    (case,) = result.every_case()
    return case


# An honest compiler


def test_an_honest_compiler_gets_what_it_can_do(judge: Judge, tmp_path: Path) -> None:
    found = kinds(judge.test(ccompiler.honest(tmp_path / "work"), SMOKE))
    assert found[ONE] == found[f"{SMOKE}/return_zero"] == "passed"
    assert found[f"{SMOKE}/while_sum"] == found[f"{SMOKE}/puts_hello"] == "compile_error"


def test_it_may_reject_where_something_valid_compiles(
    judge: Judge, tmp_path: Path, fixtures: Path
) -> None:
    work = ccompiler.honest(tmp_path / "work")
    found = kinds(judge.test(work, "wacct/chapter_1", params={"fixtures": str(fixtures)}))
    assert found == {
        "wacct/chapter_1/invalid_parse.missing": "passed",
        "wacct/chapter_1/valid.sum": "passed",
        "wacct/chapter_1/valid.two": "compile_error",
    }
    # In this shard it compiles nothing, and then it is no merit to reject.
    case = only(judge.test(work, WRONG))
    assert (case.status, case.failure_kind) == ("failed", "no_valid_program")


@pytest.fixture
def fixtures(tmp_path: Path) -> Path:
    """A tree that looks like those of others: one chapter, with what is expected beside it."""
    root = tmp_path / "fixtures" / "wacct"
    for name, text in {
        "valid/sum.c": "int main(void) { return 40 + 2; }\n",
        "valid/two.c": "int main(void) { int two = 2; return two; }\n",
        "invalid_parse/missing.c": "int main(void) { return 40 + ; }\n",
    }.items():
        file = root / "tests" / "chapter_1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    (root / "expected_results.json").write_text(
        '{"chapter_1/valid/sum.c": {"return_code": 42}, "chapter_1/valid/two.c": '
        '{"return_code": 2}}',
        encoding="ascii",
    )
    (root / "test_properties.json").write_text("{}", encoding="ascii")
    return tmp_path / "fixtures"


def test_what_is_expected_cannot_be_read(judge: Judge, tmp_path: Path, fixtures: Path) -> None:
    """A cc that looks for the results of its program, in the places where they are."""
    searching = (
        f"{TAKES_OUTPUT}\n"
        f"for place in {fixtures} {judge.place.directory} /opt/tests; do\n"
        '  ls "$place" >&2; find "$place" -type f >&2; done\n'
        f"cat {fixtures}/wacct/expected_results.json >&2\n"
        f"cat {judge.place.directory}/main.py >&2\nexit 1"
    )
    work = ccompiler.script(tmp_path / "work", searching)
    given: dict[str, Json] = {"fixtures": str(fixtures)}
    case = only(judge.test(work, "wacct/chapter_1/valid.sum", params=given))
    assert case.failure_kind == "compile_error"
    assert case.log is not None
    assert "No such file or directory" in case.log
    assert "return_code" not in case.log
    assert "expected_results.json\n" not in case.log.replace(
        "expected_results.json: No such file or directory\n", ""
    )
    assert "import" not in case.log


def test_fixtures_that_are_missing_are_said_to_be(judge: Judge, tmp_path: Path) -> None:
    given: dict[str, Json] = {"fixtures": str(tmp_path / "nowhere")}
    work = ccompiler.honest(tmp_path / "work")
    for path, name in (("wacct", "wacct"), ("c_testsuite", "c-testsuite"), ("torture", "torture")):
        result = judge.test(work, path, params=given)
        assert {case.name for case in result.every_case()} == {"fixtures_missing"}
        assert {case.status for case in result.every_case()} == {"skipped"}
        log = next(iter(result.every_case())).log or ""
        assert f"coilclaw env fixtures c_compiler install {name}" in log
        assert str(tmp_path / "nowhere") in log


# Other compilers


def _linked(work: Path) -> Path:
    return ccompiler.submit(work, {}, "ln -s /usr/bin/gcc cc\n")


def _copied(work: Path) -> Path:
    return ccompiler.script(
        work,
        'exec "$(dirname "$0")/tool" -B "$(dirname "$0")/" "$@"',
        'cp -L "$(command -v gcc)" tool\ncp "$(gcc -print-prog-name=cc1)" cc1\n',
    )


def _run_by_its_program(work: Path) -> Path:
    """What it makes carries the source, and has gcc compile it when it runs."""
    source = r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int main(int n, char **w) {
        char line[8192];
        const char *given = 0, *made = 0;
        for (int i = 1; i < n; i++)
            if (!strcmp(w[i], "-o")) made = w[++i]; else given = w[i];
        snprintf(line, sizeof line, "cp \"$(dirname %s)/late\" %s; cp %s given.c",
                 w[0], made, given);
        return system(line) != 0;
    }
    """
    late = (
        "#include <stdlib.h>\nint main(void) {\n"
        'return system("gcc given.c -o late.out 2>/dev/null && ./late.out") >> 8; }\n'
    )
    return ccompiler.submit(
        work, {"cc.c": source, "late.c": late}, "gcc -w cc.c -o cc\ngcc -w late.c -o late\n"
    )


CHEATS: Mapping[str, Callable[[Path], Path]] = {
    "a script": lambda work: ccompiler.script(work, 'exec gcc -w "$@"'),
    "a script that hides it": lambda work: ccompiler.script(
        work, 'sh -c \'gcc -w "$@" 2>/dev/null\' x "$@" || cpp -E /dev/null >/dev/null; exit 1'
    ),
    "a program": lambda work: ccompiler.program(
        work,
        "#include <unistd.h>\nint main(int n, char **w) "
        '{ w[0] = "gcc"; execv("/usr/bin/gcc", w); return 1; }\n',
    ),
    "the inner program": lambda work: ccompiler.script(
        work, '"$(echo /usr/lib/gcc/*/*/cc1)" -quiet "$1" -o x.s; exit 1'
    ),
    "read and run elsewhere": lambda work: ccompiler.script(
        work, 'cp /usr/bin/gcc "$TMPDIR/x"; "$TMPDIR/x" "$@"'
    ),
    "by the loader": lambda work: ccompiler.script(
        work, 'exec /lib64/ld-linux-x86-64.so.2 /usr/bin/gcc "$@"'
    ),
    "a link": _linked,
    "a copy": _copied,
    "by what was compiled": _run_by_its_program,
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_another_compiler_scores_nothing(judge: Judge, tmp_path: Path, cheat: str) -> None:
    result = judge.test(CHEATS[cheat](tmp_path / "work"), SMOKE)
    assert (result.passed, result.failed) == (0, result.total)
    told = (result.error or "") + "".join(case.log or "" for case in result.every_case())
    assert "another compiler" in told
    assert "gcc" in told or "cc1" in told


def test_a_wrapper_that_knows_the_probe_fails_in_every_case(judge: Judge, tmp_path: Path) -> None:
    """Seen only when it is asked for real work, it is seen then."""
    careful = 'case "$1" in *probe*) echo no >&2; exit 1;; esac\nexec gcc -w "$@"'
    result = judge.test(ccompiler.script(tmp_path / "work", careful), SMOKE)
    assert result.error is None
    assert set(kinds(result).values()) == {"another_compiler"}
    gcc = os.path.realpath("/usr/bin/gcc")
    assert {case.log for case in result.every_case()} == {f"another compiler was used: {gcc}"}


def test_looking_for_another_compiler_is_not_using_it(judge: Judge, tmp_path: Path) -> None:
    """The neighbour of every cheat: names may be looked up, and as and ld may be used."""
    looking = (
        "command -v gcc >/dev/null; test -x /usr/bin/gcc; ls -lL /usr/bin/gcc >/dev/null\n"
        'find /usr/lib/gcc -name cc1 >/dev/null; exec "$(dirname "$0")/real" "$@"'
    )
    work = ccompiler.submit(
        tmp_path / "work",
        {"cc": f"#!/bin/sh\n{looking}\n", "honest.c": ccompiler.HONEST},
        "gcc -w honest.c -o real\n",
    )
    assert only(judge.test(work, ONE)).status == "passed"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("tcc") is None, reason="tcc is not installed")
@pytest.mark.parametrize("way", ["wrapped", "run", "copied", "renamed"])
def test_tcc_scores_nothing(judge: Judge, tmp_path: Path, way: str) -> None:
    text = {
        "wrapped": 'exec tcc "$@"',
        "run": 'tcc -run "$1" >/dev/null 2>&1; exit 1',
        "copied": 'exec "$(dirname "$0")/t" "$@"',
        "renamed": 'exec "$(dirname "$0")/t" "$@"',
    }[way]
    build = {"copied": "cp /usr/bin/tcc t\n", "renamed": "cp /usr/bin/tcc t; echo >> t\n"}
    work = ccompiler.script(tmp_path / "work", text, build.get(way, ":\n"))
    result = judge.test(work, SMOKE)
    assert (result.passed, result.failed) == (0, result.total)
    assert "tcc" in (result.error or "")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_scores_nothing(judge: Judge, tmp_path: Path) -> None:
    result = judge.test(ccompiler.script(tmp_path / "work", 'exec clang "$@"'), SMOKE)
    assert (result.passed, result.failed) == (0, result.total)
    assert "clang" in (result.error or "")


def test_a_packed_copy_is_known_by_its_macros(judge: Judge, tmp_path: Path) -> None:
    """Nothing of it is on disk or covered, and it still defines what only that compiler does."""
    packed = 'base64 -d "$(dirname "$0")/cc1.b64" > "$TMPDIR/c"; chmod +x "$TMPDIR/c"\n'
    link = (
        '"$TMPDIR/c" -quiet "$1" -o "$TMPDIR/x.s" && as "$TMPDIR/x.s" -o "$TMPDIR/x.o" && '
        "ld -dynamic-linker /lib64/ld-linux-x86-64.so.2 -o $out $crt/crt1.o $crt/crti.o "
        '"$TMPDIR/x.o" -lc $crt/crtn.o'
    )
    text = f"{TAKES_OUTPUT}crt=/usr/lib/x86_64-linux-gnu\n{packed}{link}"
    build = 'base64 "$(gcc -print-prog-name=cc1)" > cc1.b64\n'
    result = judge.test(ccompiler.script(tmp_path / "work", text, build), ONE)
    assert result.passed == 0
    assert "cc is gcc: it defines the macros of that one" in (result.error or "")


def test_a_reference_is_kept_from_nothing(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = judge.test(tmp_path / "empty", SMOKE, params={"reference": "gcc"})
    assert (result.failed, result.error) == (0, None)
    assert result.passed >= 6
    for name in (WRONG, "basics/multi_file")[: scaled(full=2, default=1)]:
        assert judge.test(tmp_path / "empty", name, params={"reference": "gcc"}).failed == 0
    case = only(judge.test(tmp_path / "empty", ONE, params={"reference": "no-such-cc"}))
    assert case.failure_kind == "missing"


# Wrong in other ways

ELF = (
    'printf \'\\177ELF\\2\\1\\1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\2\\0\\%s\\0\' > "$out"; chmod +x "$out"'
)
BROKEN: Mapping[str, tuple[str, str, str]] = {
    # What its cc does, and what becomes of a valid program and of one that must be rejected.
    "crashes": ("kill -SEGV $$", "compile_crash", "compile_crash"),
    "ends as after a crash": ("exit 139", "compile_crash", "compile_crash"),
    "hangs": ("sleep 600", "compile_timeout", "compile_timeout"),
    "rejects everything": ("echo no >&2; exit 1", "compile_error", "no_valid_program"),
    "rejects without a word": ("exit 1", "compile_error", "no_diagnostic"),
    "cannot be executed": ("exit 127", "compile_error", "compile_error"),
    "rejects and leaves a file": (
        'echo no >&2; touch "$out"; exit 1', "compile_error", "left_output",
    ),
    "accepts and makes nothing": ("exit 0", "compile_error", "accepted"),
    "accepts everything": ('cp /bin/true "$out"', "wrong_exit_code", "accepted"),
    "makes a script": (
        'printf "#!/bin/sh\\nexit 42\\n" > "$out"; chmod +x "$out"', "wrong_arch", "accepted",
    ),
    "makes a link": ('ln -s /bin/true "$out"', "compile_error", "accepted"),
    "makes it for another machine": (ELF % "267", "wrong_arch", "accepted"),
    "makes something cut short": (ELF % "76", "wrong_arch", "accepted"),
    "makes what prints forever": ('cp "$(command -v yes)" "$out"', "timeout", "accepted"),
    "kills everybody": ("kill -9 -1", "compile_crash", "compile_crash"),
    "leaves something running": (
        "(setsid sleep 61 &) ; sleep 62 & echo no >&2; exit 1", "compile_error", "no_valid_program",
    ),
}  # fmt: skip
HANGING: Mapping[str, dict[str, Json]] = {
    "hangs": {"compile_s": 1.5},
    "makes what prints forever": {"run_s": 0.8},
}
SELDOM = ("ends as after a crash", "cannot be executed", "makes a link", "makes a script")


@pytest.mark.parametrize("way", [w for w in BROKEN if scaled(full=1, default=w not in SELDOM)])
def test_a_broken_compiler_fails_as_what_it_is(
    judge: Judge, tmp_path: Path, fixtures: Path, way: str
) -> None:
    text, valid, rejected = BROKEN[way]
    work = ccompiler.script(tmp_path / "work", f"{TAKES_OUTPUT}{text}")
    given = {"fixtures": str(fixtures), **HANGING.get(way, {})}
    assert kinds(judge.test(work, "wacct/chapter_1", params=given)) == {
        "wacct/chapter_1/valid.sum": valid,
        "wacct/chapter_1/valid.two": valid,
        "wacct/chapter_1/invalid_parse.missing": rejected,
    }


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("return 42;", "passed"),
        ("puts(); return 42;", "wrong_output"),
        ("return 41;", "wrong_exit_code"),
        ("fork(); fork(); setsid(); if (fork() == 0) for (;;) pause(); return 42;", "passed"),
        ("kill(0, 15); return 42;", "crash"),
        ("kill(-1, 9); return 42;", "crash"),
        ("for (;;) ;", "timeout"),
    ],
)
def test_what_a_program_does_is_judged(judge: Judge, tmp_path: Path, code: str, kind: str) -> None:
    """A cc whose output is always the same program."""
    source = f"int main(void) {{ {code.replace('puts()', 'puts(``x``)')} }}".replace("``", '"')
    includes = "#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n"
    work = ccompiler.submit(
        tmp_path / "work",
        {"cc": f'#!/bin/sh\n{TAKES_OUTPUT}cp "$(dirname "$0")/made" "$out"\n',
         "made.c": includes + source},
        "gcc -w made.c -o made\n",
    )  # fmt: skip
    case = only(judge.test(work, ONE, params={"run_s": 0.8} if kind == "timeout" else {}))
    assert (case.failure_kind or case.status) == kind


@pytest.mark.parametrize(
    ("files", "build", "said"),
    [
        ({}, "rm build.sh\n", "build.sh made no executable file cc"),
        ({}, "exit 3\n", "build.sh ended with exit code 3"),
        ({"cc": "no program"}, ":\n", "build.sh made no executable file cc"),
    ],
)
def test_a_build_that_fails_says_why(
    judge: Judge, tmp_path: Path, files: Mapping[str, str], build: str, said: str
) -> None:
    result = judge.test(ccompiler.submit(tmp_path / "work", files, build), SMOKE)
    assert {case.failure_kind for case in result.every_case()} == {"build"}
    assert said in (result.error or "")


def test_without_a_sandbox_that_covers_it_is_said(home: Path, tmp_path: Path) -> None:
    judge = Judge(
        catalogue.find_environment("c_compiler"),
        support=SandboxSupport(),
        home=home / "bare",
        environ=os.environ,
        timeout_s=120,
    )
    case = only(judge.test(ccompiler.honest(tmp_path / "work"), ONE))
    assert case.status == "passed"
    assert case.log == "note: this machine cannot show whether another compiler was used\n"
