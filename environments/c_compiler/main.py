"""A C compiler, judged by the programs that it compiles and by those that it rejects."""

from __future__ import annotations

import os
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import basics as basics_programs
import copies
import ctestsuite
import disguise
import torture as torture_programs
import wacct as wacct_programs
from compilers import on_this_machine
from judge import COMPILE_S, RUN_S, Controls, compiler, fresh, judge, refuse_touched, works

from coilclaw.environments.authoring import (
    CaseSpec,
    Limits,
    case,
    check,
    expect_success,
    fail,
    hide,
    run,
    session_path,
    setup,
    skipped_case,
    suite,
)
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from programs import Program

BUILD_S: Final = 300.0
CASE_S: Final = 5 * (COMPILE_S + RUN_S)
BUILD_LIMITS: Final = Limits(memory_bytes=8 * 2**30, file_bytes=2**30)
TEST_SUITE_SHARDS: Final = 5
TEST_SUITE_SHARD: Final = 48
TORTURE_SHARDS: Final = 10
BASICS: Final = Path(__file__).parent / "basics"
INSTALLED: Final = Path("/opt/tests")
SOURCES: Final = Path("/usr/src")
"""Where the package lies that the programs of torture come from."""

controls = Controls()
basics = suite("basics").suite("{category}", category=basics_programs.CATEGORIES)
wacct = suite("wacct").suite("chapter_{n}", n=range(1, 21))
c_testsuite = suite("c_testsuite").suite("part_{n}", n=range(1, TEST_SUITE_SHARDS + 1))
torture = suite("torture").suite("part_{n}", n=range(1, TORTURE_SHARDS + 1))


@setup(timeout_s=BUILD_S + 2 * (COMPILE_S + RUN_S))
def build(
    fixtures: str = "",
    reference: str = "",
    compile_s: float = COMPILE_S,
    run_s: float = RUN_S,
) -> None:
    """Run build.sh, which has to make an executable cc that is no other compiler."""
    hide_fixtures(fixtures)
    if reference:
        return
    script = session_path() / "build.sh"
    check(script.is_file(), "there is no build.sh", kind="missing")
    done = run(["sh", str(script)], timeout_s=BUILD_S, limits=BUILD_LIMITS)
    expect_success(done, "build.sh")
    program = session_path() / "cc"
    if not program.is_file() or not os.access(program, os.X_OK):
        fail("build.sh made no executable file cc", kind="missing")
    refuse_copies()
    refuse_disguised(program, compile_s, run_s)
    refuse_copies()  # once more, because what ran meanwhile could still change it


def refuse_copies() -> None:
    """Look through everything that was built for compilers of the machine."""
    found = copies.another_compiler(session_path())
    if found is not None:
        fail(f"another compiler is part of it: {found}", kind="another_compiler")


def refuse_disguised(program: Path, compile_s: float, run_s: float) -> None:
    """Compile a program that shows what compiled it; one that does not compile shows nothing."""
    source = fresh(disguise.source())
    made = source.with_suffix(".out")
    try:
        without = on_this_machine()
        done = run([program, source, "-o", made], timeout_s=compile_s, without=without)
        refuse_touched(done)
        if not done.ok or made.is_symlink() or not made.is_file():
            return
        done = run([made], timeout_s=run_s, without=without)
        refuse_touched(done)
        name = disguise.recognized(done.stdout)
        if name is not None:
            fail(f"cc is {name}: it defines the macros of that one", kind="another_compiler")
    finally:
        for left in (source, made):
            left.unlink(missing_ok=True)


def fixtures_root(given: str) -> Path:
    """Where the programs are that others wrote: as given, or where they are installed."""
    if given:
        if not os.path.isabs(given) or os.path.realpath(given) == "/":
            raise UsageError(
                f"{given!r} is no directory of fixtures",
                rule="fixtures.directory",
                hint="give its whole path, or coilclaw env test --fixtures DIR",
            )
        return Path(os.path.normpath(given))
    if INSTALLED.is_dir():
        return INSTALLED
    home = os.environ.get("COILCLAW_HOME") or os.path.expanduser("~/.coilclaw")
    return Path(home) / "fixtures"


def hide_fixtures(given: str) -> None:
    """Keep programs and what is expected of them from everything that was submitted."""
    for place in (fixtures_root(given), *SOURCES.glob("gcc-*")):
        if place.exists():
            hide(place)


def cases_of(shard: str, programs: Sequence[Program]) -> Iterator[CaseSpec]:
    """Yield one case for each program of a shard."""
    for program in programs:
        yield case(program.name, judging(shard, program, programs))


def judging(shard: str, program: Program, programs: Sequence[Program]) -> Callable[..., None]:
    """Return the test of one program."""

    def judged(
        fixtures: str = "",
        reference: str = "",
        compile_s: float = COMPILE_S,
        run_s: float = RUN_S,
    ) -> None:
        hide_fixtures(fixtures)
        cc = compiler(reference, compile_s, run_s)

        def one_works() -> bool:
            return works(programs, cc)

        judge(program, cc, lambda: controls.hold(shard, one_works))

    return judged


def missing(name: str, root: Path) -> CaseSpec:
    """The one case of a shard whose programs are not there."""
    return skipped_case(
        "fixtures_missing",
        f"the programs of {name} are not in {root}: coilclaw env fixtures c_compiler install "
        f"{name}",
    )


@basics.cases(timeout_s=CASE_S)
def of_category(category: str, fixtures: str = "") -> Iterator[CaseSpec]:
    """Programs written for this environment."""
    fixtures_root(fixtures)  # a wrong one is refused before anything is built
    yield from cases_of(f"basics/{category}", _basics()[category])


@wacct.cases(timeout_s=CASE_S)
def of_chapter(n: int, fixtures: str = "") -> Iterator[CaseSpec]:
    """The programs of one chapter of "Writing a C Compiler", valid and invalid."""
    root = fixtures_root(fixtures)
    folder = wacct_programs.found(root)
    if folder is None:
        yield missing("wacct", root)
    else:
        yield from cases_of(f"wacct/chapter_{n}", wacct_programs.programs(folder, n))


@c_testsuite.cases(timeout_s=CASE_S)
def of_test_suite(n: int, fixtures: str = "") -> Iterator[CaseSpec]:
    """Small programs with the output of each."""
    root = fixtures_root(fixtures)
    folder = ctestsuite.found(root)
    if folder is None:
        yield missing("c-testsuite", root)
    else:
        programs = _test_suite(folder)
        size = max(TEST_SUITE_SHARD, ceil(len(programs) / TEST_SUITE_SHARDS))
        part = programs[(n - 1) * size : n * size]
        yield from cases_of(f"c_testsuite/part_{n}", part)


@torture.cases(timeout_s=CASE_S)
def of_torture(n: int, fixtures: str = "") -> Iterator[CaseSpec]:
    """Programs that are right if they say nothing and end well."""
    root = fixtures_root(fixtures)
    folder = torture_programs.found(root)
    if folder is None:
        yield missing("torture", root)
    else:
        yield from cases_of(f"torture/part_{n}", _slice(_torture(folder), n))


def _slice(programs: Sequence[Program], n: int) -> Sequence[Program]:
    """One of the equal shards, in the order of the programs; the first ones may have one more."""
    size, more = divmod(len(programs), TORTURE_SHARDS)
    begin = (n - 1) * size + min(n - 1, more)
    return programs[begin : begin + size + (n <= more)]


@cache
def _basics() -> dict[str, tuple[Program, ...]]:
    return basics_programs.programs(BASICS)


@cache
def _test_suite(folder: Path) -> tuple[Program, ...]:
    return ctestsuite.programs(folder)


@cache
def _torture(folder: Path) -> tuple[Program, ...]:
    return torture_programs.programs(folder, torture_programs.left_out())
