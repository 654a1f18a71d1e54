"""Judging one program: compile it, look at what came out, run that, compare."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from compilers import on_this_machine
from laying import lay
from programs import Program
from referenceflags import understood
from twins import is_silent, twin

from coilclaw.environments.authoring import (
    CaseFailed,
    Limits,
    RunResult,
    anew,
    case_path,
    covers,
    fail,
    run,
    session_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPILE_S: Final = 45.0
RUN_S: Final = 15.0
CONTROLS: Final = 3
"""Valid programs of which one has to work before a rejection counts."""
OUTPUT: Final = "program.out"
LIMITS: Final = Limits(file_bytes=64 * 2**20)
_OUTPUT_BYTES: Final = 2**18
_DIAGNOSTIC_EXITS: Final = range(1, 126)
_CRASHED: Final = 128
_TWIN_EXITS: Final = range(3, 120)
_ELF_HEAD: Final = 64
_KIND: Final = slice(4, 6)
"""Where an ELF file says its class and byte order."""
_MACHINE: Final = slice(18, 20)
_EXECUTABLE: Final = (2, 3)
_WIDE: Final = 2
_SEGMENT: Final = 56
_TOLD: Final = 2000


@dataclass(frozen=True, slots=True)
class Compiler:
    """What is judged: the submission's compiler, or a reference that nothing is kept from."""

    program: str
    reference: bool = False
    compile_s: float = COMPILE_S
    run_s: float = RUN_S

    def run(self, command: Sequence[str | Path], cwd: Path, timeout_s: float) -> RunResult:
        """Run something without any other compiler of the machine."""
        without = () if self.reference else on_this_machine()
        done = run(
            command,
            cwd=cwd,
            timeout_s=timeout_s,
            limits=LIMITS,
            output_bytes=_OUTPUT_BYTES,
            without=without,
            shared=True,
        )
        refuse_touched(done)
        return done


class Controls:
    """Whether a compiler compiles valid programs at all: found out once for each shard."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._known: dict[str, bool] = {}

    def hold(self, shard: str, works: Callable[[], bool]) -> bool:
        """Return what ``works`` says, which is asked the first time only."""
        with self._lock:
            lock = self._locks.setdefault(shard, threading.Lock())
        with lock:
            if shard not in self._known:
                self._known[shard] = works()
            return self._known[shard]


def compiler(reference: str, compile_s: float, run_s: float) -> Compiler:
    """Return the compiler that is judged."""
    if not reference:
        return Compiler(str(session_path() / "cc"), False, compile_s, run_s)
    found = shutil.which(reference)
    if found is None:
        fail(f"there is no compiler {reference!r} on this machine", kind="missing")
    return Compiler(found, True, compile_s, run_s)


def judge(program: Program, cc: Compiler, works: Callable[[], bool]) -> None:
    """Fail the case unless a program is compiled, or rejected, as it has to be."""
    # What a case prints is its log.
    if cc.reference:
        print(f"note: {cc.program} was judged, not what was submitted")  # noqa: T201
    elif not covers():
        print("note: this machine cannot show whether another compiler was used")  # noqa: T201
    if program.rejected:
        _rejected(program, cc, works)
        return
    accepted(program, cc, case_path())
    if is_silent(program) and not cc.reference:
        _refuse_ignored(program, cc)


def accepted(program: Program, cc: Compiler, place: Path) -> None:
    """Compile and run a valid program in a directory of its own."""
    compiled = _compile(program, cc, place)
    if compiled.timed_out:
        fail(f"the compiler took more than {cc.compile_s:g} seconds", kind="compile_timeout")
    if _crashed(compiled):
        fail(f"the compiler crashed ({_how(compiled)}){_said(compiled)}", kind="compile_crash")
    if compiled.exit_code != 0:
        fail(f"it does not compile ({_how(compiled)}){_said(compiled)}", kind="compile_error")
    made = place / OUTPUT
    if not _is_program(made):
        fail(f"the compiler made no program{_said(compiled)}", kind="compile_error")
    _refuse_other_machine(made)
    _compare(program, cc.run([made], place, cc.run_s), cc.run_s)


def _refuse_ignored(program: Program, cc: Compiler) -> None:
    """Fail the case if the compiler makes the same of a program that ends otherwise.

    One that knows too little of C for the twin has to compile the simplest program instead.
    """
    code = secrets.choice(_TWIN_EXITS)
    other = twin(program, code)
    ended = _end_of(program, cc, other) if other else None
    if ended is None:
        simplest = f"int main(void) {{ return {code}; }}\n".encode()
        ended = _end_of(
            Program("simplest", program.sources[:1]), cc, {program.sources[0]: simplest}
        )
    if ended != code:
        told = "nothing that can be run" if ended is None else f"one that ends with {ended}"
        fail(
            "the program does what it has to, which is nothing; but the compiler does not look at "
            f"it: of one whose main returns {code} it makes {told}",
            kind="not_compiled",
        )


def _end_of(program: Program, cc: Compiler, instead: dict[Path, bytes]) -> int | None:
    """The exit code of a program; ``None`` if it does not compile."""
    anew()
    place = case_path()
    if not _compile(program, cc, place, instead).ok or not _is_program(place / OUTPUT):
        return None
    return cc.run([place / OUTPUT], place, cc.run_s).exit_code


def works(programs: Sequence[Program], cc: Compiler) -> bool:
    """Whether one of the first valid programs of a shard compiles and runs right."""
    valid = [program for program in programs if not program.rejected][:CONTROLS]
    if not valid:
        simplest = fresh("int main(void) { return 7; }\n")
        valid = [Program("simplest", (simplest,), exit_code=7, stdout=None)]
    for program in valid:
        # What ran before may have left a link at any name that it can foresee.
        place = case_path() / f"control-{secrets.token_hex(8)}"
        place.mkdir()
        try:
            accepted(program, cc, place)
            if not cc.reference:
                _refuse_ignored(program, cc)
        except CaseFailed as problem:
            if problem.kind == "another_compiler":
                raise
        else:
            return True
    return False


def fresh(text: str) -> Path:
    """Write a source file where nobody can have put a link."""
    path = case_path() / f"probe-{secrets.token_hex(8)}.c"
    with open(path, "x", encoding="ascii") as file:
        file.write(text)
    return path


def refuse_touched(done: RunResult) -> None:
    """Fail the case if another compiler was used, whatever came of it."""
    if done.touched:
        fail(f"another compiler was used: {', '.join(done.touched)}", kind="another_compiler")


def _rejected(program: Program, cc: Compiler, works: Callable[[], bool]) -> None:
    place = case_path()
    done = _compile(program, cc, place)
    if done.timed_out:
        fail(f"the compiler took more than {cc.compile_s:g} seconds", kind="compile_timeout")
    if done.exit_code == 0:
        fail("the program is wrong and was accepted", kind="accepted")
    if _crashed(done):
        fail(f"the compiler crashed ({_how(done)}){_said(done)}", kind="compile_crash")
    if done.exit_code not in _DIAGNOSTIC_EXITS:
        fail(f"the compiler could not be run ({_how(done)}){_said(done)}", kind="compile_error")
    if _is_there(place / OUTPUT):
        fail("the program was rejected, and an output file was left", kind="left_output")
    if not (done.stderr.strip() or done.stdout.strip()):
        fail("the program was rejected without a word about why", kind="no_diagnostic")
    if not works():
        fail(
            "the program was rejected, but no valid program of this shard compiles and runs right",
            kind="no_valid_program",
        )


def _compile(
    program: Program, cc: Compiler, place: Path, instead: dict[Path, bytes] | None = None
) -> RunResult:
    sources = lay(program, place, instead)
    flags = understood(cc.program, program.reference_flags) if cc.reference else ()
    command = [cc.program, *flags, *sources, "-o", OUTPUT, *program.link]
    return cc.run(command, place, cc.compile_s)


def _is_there(path: Path) -> bool:
    """Whether anything is at a path, or it cannot be known because of what a compiler did."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _is_program(made: Path) -> bool:
    try:
        plain = stat.S_ISREG(os.lstat(made).st_mode)
        return plain and os.access(made, os.X_OK | os.R_OK, effective_ids=True)
    except OSError:
        return False  # not there, or not to be looked at


def _refuse_other_machine(made: Path) -> None:
    head, own = _head(made), _own_head()
    if head[:4] != b"\x7fELF" or len(head) < _MACHINE.stop:
        fail("what the compiler made is no ELF file", kind="wrong_arch")
    if head[_KIND] != own[_KIND] or head[_MACHINE] != own[_MACHINE]:
        fail("what the compiler made is for another kind of machine", kind="wrong_arch")
    # What the kernel takes for no program, a shell would run as a script.
    size = made.stat().st_size
    if head[16] not in _EXECUTABLE or (head[4] == _WIDE and not _has_segments(head, size)):
        fail("what the compiler made is no executable file", kind="wrong_arch")


def _has_segments(head: bytes, size: int) -> bool:
    """Whether the table of segments of a 64-bit file lies in it."""
    if len(head) < _ELF_HEAD:
        return False
    order: Literal["little", "big"] = "little" if head[5] == 1 else "big"
    table, entry, count = (
        int.from_bytes(head[begin:end], order) for begin, end in ((32, 40), (54, 56), (56, 58))
    )
    return entry == _SEGMENT and count >= 1 and table + count * entry <= size


def _head(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_ELF_HEAD)


@cache
def _own_head() -> bytes:
    return _head(Path(os.path.realpath(sys.executable)))


def _compare(program: Program, done: RunResult, run_s: float) -> None:
    if done.timed_out:
        fail(f"the program took more than {run_s:g} seconds", kind="timeout")
    if _crashed(done) and done.exit_code != program.exit_code:
        fail(f"the program crashed ({_how(done)}){_said(done)}", kind="crash")
    if program.stdout is not None:
        wanted, got = program.stdout, done.stdout_bytes
        if program.trailing:
            wanted, got = wanted.rstrip(), got.rstrip()
        if got != wanted or done.truncated:
            raise CaseFailed(
                "the output of the program is wrong",
                kind="wrong_output",
                expected=wanted.decode("utf-8", "backslashreplace"),
                actual=got.decode("utf-8", "backslashreplace"),
            )
    if done.exit_code != program.exit_code:
        raise CaseFailed(
            f"the program ended with exit code {done.exit_code}, not {program.exit_code}",
            kind="wrong_exit_code",
            expected=str(program.exit_code),
            actual=str(done.exit_code),
        )


def _crashed(done: RunResult) -> bool:
    return done.signal is not None or done.exit_code is None or done.exit_code >= _CRASHED


def _how(done: RunResult) -> str:
    if done.signal is not None:
        return f"signal {int(done.signal)}"
    return f"exit code {done.exit_code}"


def _said(done: RunResult) -> str:
    text = (done.stderr.strip() or done.stdout.strip())[-_TOLD:]
    return f"; it said:\n{text}" if text else ""
