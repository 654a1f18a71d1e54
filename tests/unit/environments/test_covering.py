"""Programs run without files that they must not use, and what they did about it is known."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault
from coilclaw.traces.environments import containment
from coilclaw.traces.environments.authoring import anew, covers, hide
from coilclaw.traces.environments.containment import Cover, Limits, find_tools
from coilclaw.traces.environments.programs import (
    ProgramScope,
    RunResult,
    ScopeOver,
    enter_scope,
    run,
    start,
)
from coilclaw.traces.environments.sandbox_boxes import Slot
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S, given_time

TOOL = Path("/usr/bin/sort")
TOOLS = find_tools(os.environ["PATH"])
OTHER = Path("/usr/bin/cut")
REAL = os.path.realpath(TOOL)

Way = Callable[..., RunResult]


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    found = probe_sandboxes()
    if found.bubblewrap is None:
        pytest.skip(f"bubblewrap does not work here: {' '.join(found.notes)}")
    return found


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    made = Slot(tmp_path / "slot-0", tmp_path / "apart-0")
    yield made
    made.close()


@pytest.fixture
def scope(tmp_path: Path, slot: Slot, support: SandboxSupport) -> Iterator[ProgramScope]:
    yield from _entered(tmp_path, slot, support)


def _entered(tmp_path: Path, slot: Slot, support: SandboxSupport) -> Iterator[ProgramScope]:
    (tmp_path / "session").mkdir()
    scope = ProgramScope(
        tmp_path / "session", slot.case, slot.temporary, support, 10 * PATIENCE_S, TOOLS, slot=slot
    )
    with enter_scope(scope):
        yield scope


@pytest.fixture(params=["alone", "shared"])
def way(request: pytest.FixtureRequest, scope: ProgramScope) -> Way:
    """Run in a sandbox of its own, or in the one of the slot."""
    assert scope.slot is not None

    def started(command: str, *, stdin: bytes = b"", timeout_s: float = PATIENCE_S) -> RunResult:
        shared = request.param == "shared"
        without = (TOOL, OTHER)
        return run(command, stdin=stdin, timeout_s=timeout_s, without=without, shared=shared)

    return started


# What is used is known


@pytest.mark.parametrize(
    "command",
    [
        "sort /dev/null",
        f"{TOOL} /dev/null 2>/dev/null; exit 0",
        f"cat {TOOL} >/dev/null",
        f'cp {TOOL} "$TMPDIR/x"; exit 0',
        f"(setsid {TOOL} </dev/null >/dev/null 2>&1 &) ; sleep 0.2",
        f"exec /lib64/ld-linux-x86-64.so.2 {TOOL}",
        "find /usr/bin -name sort -exec {} \\; 2>/dev/null",
    ],
)
def test_what_is_opened_or_executed_is_told(way: Way, command: str) -> None:
    assert way(command).touched == (REAL,)


@pytest.mark.parametrize(
    "command",
    [
        "true",
        f"stat {TOOL}; test -x {TOOL}; test -r {TOOL}; ls -l {TOOL}",
        "command -v sort; command -v cut",
        "find /usr/bin -name sort",
        "head -n 1 /dev/null",
    ],
)
def test_what_is_only_looked_at_is_not(way: Way, command: str) -> None:
    done = way(command)
    assert (done.exit_code, done.touched) == (0, ())


def test_a_stand_in_says_why_and_does_nothing(way: Way) -> None:
    done = way("printf 'b\\na\\n' | sort")
    assert (done.exit_code, done.stdout) == (containment.REFUSED, "")
    assert done.stderr == f"{REAL}: not to be used while this is judged\n"


def test_every_one_of_them_is_told(way: Way) -> None:
    assert way("sort; cut").touched == tuple(sorted((os.path.realpath(OTHER), REAL)))


def test_each_program_answers_for_itself(way: Way) -> None:
    assert way("sort").touched == (REAL,)
    assert way("true").touched == ()


def test_the_cover_cannot_be_taken_away(way: Way) -> None:
    """Not even in namespaces of its own, where it is root."""
    undone = (
        f"umount {TOOL}; unshare -Urm umount -l {REAL}; "
        'mkdir -p "$TMPDIR/b"; unshare -Urm sh -c \'mount --bind /usr/bin "$TMPDIR/b" && '
        'printf "b\\na\\n" | "$TMPDIR/b/sort"\'; rm -f {TOOL}; mv {TOOL} {TOOL}.x; exit 0'
    )
    done = way(undone)
    assert "a\nb" not in done.stdout
    assert way("sort").exit_code == containment.REFUSED


def test_without_nothing_everything_is_there(scope: ProgramScope) -> None:
    for shared in (False, True):
        done = run("printf 'b\\na\\n' | sort", shared=shared)
        assert (done.exit_code, done.stdout, done.touched) == (0, "a\nb\n", ())


def test_what_is_spoken_with_is_covered_too(scope: ProgramScope) -> None:
    with start(["sh"], without=[TOOL]) as shell:
        shell.send("sort </dev/null; echo $?\n")
        assert shell.receive() == str(containment.REFUSED)
        assert shell.close().touched == (REAL,)
    with start(["cat"], without=[TOOL]) as cat:
        assert cat.ask("x") == "x"
        assert cat.close().touched == ()


def test_a_directory_is_hidden_as_a_whole(way: Way, scope: ProgramScope) -> None:
    done = run(["ls", "-A", "/etc/ssl"], without=[Path("/etc/ssl")])
    assert (done.exit_code, done.stdout) == (0, "")
    assert run(["ls", "-A", "/etc/ssl"], without=[Path("/etc/ssh")]).stdout != ""


def test_what_is_not_there_or_not_shown_is_no_matter(scope: ProgramScope, tmp_path: Path) -> None:
    unseen = tmp_path / "unseen"
    unseen.write_text("x", encoding="ascii")
    done = run("true", without=[Path("/usr/bin/no-such-program"), unseen])
    assert (done.exit_code, done.touched) == (0, ())


def test_too_many_to_cover_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        Cover(tmp_path / "cover", [TOOL] * (containment.MAX_COVERED + 1))
    assert caught.value.rule == "environment.cover"


def test_more_openings_than_can_be_kept_are_told(tmp_path: Path) -> None:
    cover = Cover(tmp_path / "cover", [TOOL, OTHER])
    try:
        for _ in range(20_000):
            for _, stand_in in cover.pairs:
                os.close(os.open(stand_in, os.O_RDONLY))
        told = cover.find_touched()
    finally:
        cover.close()
    assert {str(TOOL), str(OTHER)} < set(told)
    assert cover.find_touched() == ()


# Where it cannot be known


@pytest.mark.parametrize("shared", [False, True])
def test_landlock_withholds_what_it_cannot_cover(
    tmp_path: Path, slot: Slot, support: SandboxSupport, shared: bool
) -> None:
    if not support.landlock_abi:
        pytest.skip("this kernel has no Landlock")
    for _ in _entered(tmp_path, slot, replace(support, bubblewrap=None)):
        assert not covers()
        done = run(["sort", "/dev/null"], without=[TOOL], shared=shared)
        assert (done.exit_code, done.touched) == (126, ())
        assert run(["cut", "-c1", "/dev/null"], without=[TOOL], shared=shared).ok


def test_without_a_sandbox_nothing_is_known(tmp_path: Path, slot: Slot) -> None:
    for _ in _entered(tmp_path, slot, SandboxSupport()):
        assert not covers()
        done = run(["sort", "/dev/null"], without=[TOOL], shared=True)
        assert (done.exit_code, done.touched) == (0, ())


def test_with_bubblewrap_it_is_known(scope: ProgramScope) -> None:
    assert covers()


# A sandbox that programs share


in_box = partial(run, shared=True, timeout_s=10 * PATIENCE_S)


def test_nothing_outlives_a_program_in_the_box(scope: ProgramScope) -> None:
    began = time.monotonic()
    done = in_box("sleep 700 & (setsid nohup sleep 701 >/dev/null 2>&1 &); echo out; exit 5")
    assert (done.exit_code, done.stdout) == (5, "out\n")
    assert time.monotonic() - began < PATIENCE_S
    left = in_box("for f in /proc/[0-9]*/comm; do cat $f; done 2>/dev/null").stdout.split()
    assert "sleep" not in left


@pytest.mark.parametrize(
    ("command", "code", "number"),
    [
        ("exit 3", 3, None),
        ("kill -SEGV $$", 139, signal.SIGSEGV),
        ("kill -TERM 0; sleep 700", 143, signal.SIGTERM),
        ("kill -KILL -1", None, signal.SIGKILL),
        ("kill -KILL $PPID; sleep 700", None, signal.SIGKILL),
        ("echo 1 0 > /proc/$PPID/fd/1; exit 4", None, signal.SIGKILL),
    ],
)
def test_how_it_ended_is_told_and_the_next_one_runs(
    scope: ProgramScope, command: str, code: int | None, number: int | None
) -> None:
    done = in_box(command)
    assert (done.exit_code, done.signal, done.timed_out) == (code, number, False)
    assert in_box("exit 9").exit_code == 9


def test_who_forges_an_end_harms_nobody_else(scope: ProgramScope) -> None:
    forged = in_box(
        "(sleep 0.3; echo x 0 > /proc/$PPID/fd/1) & echo a 0 > /proc/$PPID/fd/1; exit 4"
    )
    assert (forged.exit_code, forged.signal) == (None, signal.SIGKILL)
    assert [in_box(f"exit {code}").exit_code for code in (5, 6, 7)] == [5, 6, 7]


def test_a_sandbox_that_does_not_come_up_is_no_fault_of_the_program(
    tmp_path: Path, slot: Slot, support: SandboxSupport
) -> None:
    for _ in _entered(tmp_path, slot, replace(support, bubblewrap="/bin/false")):
        with pytest.raises((EnvironmentFault, ProcessFault)):
            in_box("true")


def test_a_box_ends_with_whoever_put_it_up(scope: ProgramScope, tmp_path: Path) -> None:
    marker = f"7{random.randint(10**6, 10**7)}"
    child = os.fork()
    if child == 0:
        try:
            in_box(f"sleep {marker} & exec sleep {marker}", timeout_s=10 * PATIENCE_S)
        finally:
            os._exit(0)
    assert _eventually(lambda: len(_running(marker)) >= 2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert _eventually(lambda: _running(marker) == [])


def _running(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line == b"sleep\0" + marker.encode() + b"\0":
                found.append(int(entry.name))
    return found


def _eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_time_is_up_in_the_box(scope: ProgramScope) -> None:
    command = "echo begun; kill -STOP $PPID; sleep 700"
    done = given_time(
        0.5,
        lambda timeout_s: in_box(command, timeout_s=timeout_s),
        lambda done: done.stdout,
    )
    assert (done.stdout, done.exit_code, done.timed_out) == ("begun\n", None, True)
    assert in_box("exit 9").exit_code == 9


def test_the_time_of_the_case_is_up(tmp_path: Path, scope: ProgramScope) -> None:
    scope.timeout_s = time.monotonic() - scope.began + 0.4
    with pytest.raises(ScopeOver):
        in_box("sleep 700")


def test_a_cancelled_case_ends_in_the_box(scope: ProgramScope) -> None:
    scope.cancel = Cancellation()
    scope.cancel.cancel("no more")
    with pytest.raises(ScopeOver):
        in_box("sleep 700")


def test_output_is_bounded_and_input_is_given(scope: ProgramScope) -> None:
    done = in_box("cat; yes | head -c 3000000", stdin=b"given\0\n", output_bytes=1000)
    assert done.stdout_bytes.startswith(b"given\0\n")
    assert (len(done.stdout_bytes), done.truncated, done.exit_code) == (1000, True, 0)
    assert in_box("cat").stdout == ""


def test_limits_hold_in_the_box(scope: ProgramScope) -> None:
    limits = Limits(cpu_s=7, memory_bytes=64 * 2**20, file_bytes=4096)
    said = in_box("ulimit -t; ulimit -d; ulimit -f; ulimit -c", limits=limits).stdout.split()
    assert said == ["8", "65536", "8", "0"]
    done = in_box('head -c 9000 /dev/zero > "$TMPDIR/x"', limits=limits)
    assert done.signal == signal.SIGXFSZ or done.exit_code != 0
    assert os.stat(scope.temporary / "x").st_size == 4096


def test_words_and_variables_arrive_as_they_are(scope: ProgramScope) -> None:
    odd = "a'b\"c $HOME `id` \\ \n\tü;&|"
    done = run(["printf", "%s", odd], shared=True)
    assert done.stdout == odd
    done = run(["env"], shared=True, env={"ODD": odd, "LANG": "C"})
    assert f"ODD={odd}\n" in done.stdout
    assert f"HOME={scope.temporary}\n" in done.stdout
    assert run('printf %s "$LANG"', shared=True).stdout == "C.UTF-8"


def test_the_next_case_finds_nothing_of_the_last(scope: ProgramScope, slot: Slot) -> None:
    left = "touch /tmp/left /tmp/.left /dev/shm/left $HOME/left ./left; mkdir /tmp/d; ls /tmp"
    assert in_box(left).stdout.split() == ["d", "left", *_shown_in_tmp(slot)]
    # The same case still has it.
    assert "left" in in_box("ls /tmp; ls").stdout
    slot.tidy()
    assert [*slot.case.iterdir(), *slot.temporary.iterdir()] == []
    with enter_scope(replace(scope)):
        seen = in_box("touch mine; ls -A /tmp /dev/shm $HOME .").stdout
    assert "left" not in seen
    assert "mine" in seen


LEFT = (
    "mkdir -p /tmp/d/e /dev/shm/d; touch /tmp/d/e/f; chmod 0 /tmp/d/e /tmp/d /dev/shm/d; "
    "touch '/tmp/-rf' '/tmp/a b' '/tmp/.hidden'; ipcmk -M 64 -S 1 -Q >/dev/null"
)
FOUND = "ls -A /tmp /dev/shm; for k in shm sem msg; do tail -n +2 /proc/sysvipc/$k; done"


def test_what_is_hard_to_take_away_is_not_left_to_the_next_case(
    scope: ProgramScope, slot: Slot, support: SandboxSupport
) -> None:
    empty = in_box(FOUND).stdout
    assert in_box(LEFT).exit_code == 0
    assert in_box(FOUND).stdout != empty
    with enter_scope(
        ProgramScope(
            scope.session, slot.case, slot.temporary, support, 10 * PATIENCE_S, TOOLS, slot=slot
        )
    ):
        assert in_box(FOUND).stdout == empty
        assert in_box(LEFT).exit_code == 0
        anew()
        assert in_box(FOUND).stdout == empty


def test_the_directory_of_a_case_cannot_be_replaced(scope: ProgramScope, slot: Slot) -> None:
    """Whoever judges writes there: a link would lead that anywhere."""
    moved = in_box(f"cd /; mv {slot.case} {slot.case}.x; rmdir {slot.case}; ln -s / ../x; exit 0")
    assert "busy" in moved.stderr.lower() or "read-only" in moved.stderr.lower()
    assert slot.case.is_dir()
    assert not slot.case.is_symlink()
    assert in_box("chmod 0 . $HOME").ok
    slot.tidy()
    with enter_scope(replace(scope)):
        assert in_box("touch x").ok


def _shown_in_tmp(slot: Slot) -> list[str]:
    """What has to be in /tmp because the slot is below it."""
    place = os.path.realpath(slot.case)
    return [place.split("/")[2]] if place.startswith("/tmp/") else []


def test_the_box_shows_no_more_than_a_sandbox_does(
    scope: ProgramScope, tmp_path: Path, slot: Slot
) -> None:
    (tmp_path / "secret").write_text("secret", encoding="ascii")
    (tmp_path / "slot-1").mkdir()
    seen = in_box(f"cat {tmp_path}/secret; ls {tmp_path}; touch {tmp_path}/session/x; exit 0")
    assert "secret" not in seen.stdout
    assert "slot-1" not in seen.stdout
    assert list((tmp_path / "session").iterdir()) == []
    assert "cover" not in in_box(f"find {tmp_path}").stdout


def test_what_is_hidden_meanwhile_is_hidden(scope: ProgramScope) -> None:
    assert in_box("ls -A /etc/ssl").stdout != ""
    hide(Path("/etc/ssl"))
    assert in_box("ls -A /etc/ssl").stdout == ""
    assert run("ls -A /etc/ssl").stdout == ""
