"""No credit without compiling: what a cc can learn, what it can leave out, what it can bring."""

from __future__ import annotations

import os
import shutil
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

ONE = "basics/smoke/return_42"

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


@pytest.fixture
def fixtures(tmp_path: Path) -> dict[str, Json]:
    """Programs that are right if they say nothing and end well, and one that is wrong."""
    files = {
        "torture/execute/five.c": "int main(void) { return 5 - 5; }\n",
        "torture/execute/more.c": "int main(void) { int a = 1; return a - 1; }\n",
        "c-testsuite/tests/single-exec/00001.c": "int main(void) { return 0; }\n",
        "c-testsuite/tests/single-exec/00001.c.expected": "",
        "wacct/tests/chapter_1/valid/zero.c": "int main(void) { return 0; }\n",
        "wacct/tests/chapter_1/invalid_parse/missing.c": "int main(void) { return 0 }\n",
        "wacct/expected_results.json": '{"chapter_1/valid/zero.c": {"return_code": 0}}',
        "wacct/test_properties.json": "{}",
    }
    for name, text in files.items():
        file = tmp_path / "fixtures" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    return {"fixtures": str(tmp_path / "fixtures")}


def kinds(*results: Result) -> dict[str, str | None]:
    return {
        case.id: case.failure_kind or case.status
        for result in results
        for case in result.every_case()
    }


def only(result: Result) -> Case:
    (case,) = result.every_case()
    return case


SILENT = ("torture/part_1", "torture/part_2", "c_testsuite/part_1", "wacct/chapter_1")
MADE = "echo 'int main(void) { return 0; }' > made.c; gcc made.c -o made\n"
SAME = f'{TAKES_OUTPUT}cp "$(dirname "$0")/made" "$out"'


def test_to_make_the_same_of_everything_is_not_to_compile(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    work = ccompiler.script(tmp_path / "work", SAME, MADE)
    assert kinds(*(judge.test(work, path, params=fixtures) for path in SILENT)) == {
        "torture/part_1/five": "not_compiled",
        "torture/part_2/more": "not_compiled",
        "c_testsuite/part_1/00001": "not_compiled",
        "wacct/chapter_1/valid.zero": "not_compiled",
        "wacct/chapter_1/invalid_parse.missing": "accepted",
    }


def test_who_knows_little_and_makes_nothing_up_gets_what_it_compiles(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    """It cannot compile the twins, whose main has two statements."""
    work = ccompiler.honest(tmp_path / "work")
    assert kinds(*(judge.test(work, path, params=fixtures) for path in SILENT)) == {
        "torture/part_1/five": "passed",
        "torture/part_2/more": "compile_error",
        "c_testsuite/part_1/00001": "passed",
        "wacct/chapter_1/valid.zero": "passed",
        "wacct/chapter_1/invalid_parse.missing": "passed",
    }


def test_what_cannot_be_compiled_cannot_be_made_up(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    """An honest compiler that makes an empty program of what it does not understand."""
    text = f'"$(dirname "$0")/real" "$@" 2>/dev/null && exit\n{SAME}'
    work = ccompiler.submit(
        tmp_path / "work",
        {"cc": f"#!/bin/sh\n{text}\n", "honest.c": ccompiler.HONEST},
        f"gcc -O1 -w honest.c -o real\n{MADE}",
    )
    found = kinds(*(judge.test(work, path, params=fixtures) for path in SILENT[:2]))
    assert found["torture/part_2/more"] == "not_compiled"


def test_to_reject_all_but_one_known_program_is_no_merit(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    text = f'{TAKES_OUTPUT}grep -q "return 0;" "$1" || {{ echo no >&2; exit 1; }}\n{SAME}'
    work = ccompiler.script(tmp_path / "work", text, MADE)
    found = kinds(judge.test(work, "wacct/chapter_1", params=fixtures))
    assert found["wacct/chapter_1/invalid_parse.missing"] == "no_valid_program"


def test_a_twin_cannot_be_told_by_what_was_left_before_it(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    """A cc that does its work only if it was asked before in the same case."""
    marks = '"$TMPDIR/seen" /tmp/seen /dev/shm/seen "$PWD/seen"'
    text = (
        f"for mark in {marks}; do\n"
        '  [ -e "$mark" ] && exec "$(dirname "$0")/real" "$@"; done\n'
        f"touch {marks}\n{SAME}"
    )
    work = ccompiler.submit(
        tmp_path / "work",
        {"cc": f"#!/bin/sh\n{text}\n", "honest.c": ccompiler.HONEST},
        f"gcc -O1 -w honest.c -o real\n{MADE}",
    )
    found = kinds(judge.test(work, "torture/part_1", params=fixtures))
    assert found == {"torture/part_1/five": "not_compiled"}


def test_names_do_not_say_what_has_to_be_rejected(
    judge: Judge, tmp_path: Path, fixtures: dict[str, Json]
) -> None:
    """Every name that it is given, and every name that it finds."""
    work = ccompiler.script(tmp_path / "work", 'echo "$@" >&2; pwd >&2; find . >&2; exit 200')
    for name in (
        "wacct/chapter_1/invalid_parse.missing",
        "wacct/chapter_1/valid.zero",
        "basics/edge_cases/rejected_break_outside",
        "basics/multi_file/rejected_missing_symbol",
    ):
        log = only(judge.test(work, name, params=fixtures)).log or ""
        assert "-o program.out" in log
        assert "valid" not in log
        assert "reject" not in log


def test_the_judge_cannot_be_read(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed in a directory of tools on PATH, which submissions may read."""
    tools = tmp_path / "tools"
    package = tools / "lib" / "python3.11" / "site-packages" / "coilclaw"
    (tools / "bin").mkdir(parents=True)
    package.mkdir(parents=True)
    (package / "secret.expect").write_text("expect_exit: 42\n")
    (package.parent / "other.py").write_text("allowed = 1\n")
    monkeypatch.setenv("PATH", f"{tools}/bin:/usr/bin:/bin")
    text = f"cat {package.parent}/other.py >&2; cat {package}/* >&2; exit 1"
    log = only(judge.test(ccompiler.script(tmp_path / "work", text), ONE)).log or ""
    assert "allowed = 1" in log
    assert "expect_exit" not in log


# Copies that were changed


DRIVER = 'cp -L "$(command -v gcc)" t\n'
CHANGED = {
    "here and there": (
        f"{DRIVER}sed -i 's/COLLECT_GCC/COLLECT_XXX/g; s/cc1_options/cc9_options/g' t\n"
        "python3 - <<'X'\nimport re\nd = open('t', 'rb').read()\nat = d.find(b'GNU\\0')\n"
        "d = re.sub(rb'\\x14\\0\\0\\0\\x03\\0\\0\\0GNU\\0.{20}', "
        "b'\\x14\\0\\0\\0\\x03\\0\\0\\0GNU\\0' + b'x' * 20, d, flags=re.S)\n"
        "open('t', 'wb').write(d)\nX\n"
    ),
    "at its beginning": f"{DRIVER}printf x | dd of=t conv=notrunc 2>/dev/null\n",
    "inside another file": f"{DRIVER}(echo '#!/bin/sh'; cat t) > u; rm t\n",
    "packed": f"{DRIVER}gzip -1 t\n",
    "in a place that cannot be looked into": f"{DRIVER}mkdir d; mv t d; chmod 0 d\n",
    "too deep to be found": (
        f"{DRIVER}cp t /tmp/t; rm t; python3 - <<'X'\nimport os, shutil\nfor n in range(40):\n"
        "    os.mkdir('d' * 200); os.chdir('d' * 200)\nshutil.copy('/tmp/t', 't')\nX\n"
    ),
}


@pytest.mark.parametrize("way", CHANGED)
def test_a_copy_that_was_changed_is_one(judge: Judge, tmp_path: Path, way: str) -> None:
    work = ccompiler.script(tmp_path / "work", "exit 1", CHANGED[way])
    result = judge.test(work, ONE)
    assert "another compiler is part of it" in (result.error or "")
    assert result.passed == 0


def test_a_copy_that_appears_after_the_build_is_found(judge: Judge, tmp_path: Path) -> None:
    """The first time that it is called, cc unpacks what it will be."""
    text = (
        'cd "$(dirname "$0")"; [ -e hidden ] && base64 -d hidden > real && rm hidden\n'
        "chmod +x real; exit 1"
    )
    build = 'base64 "$(readlink -f "$(command -v gcc)")" > hidden\n'
    result = judge.test(ccompiler.script(tmp_path / "work", text, build), ONE)
    assert "another compiler is part of it: real" in (result.error or "")
