"""Judging: what a submission does wrong is a result, and nothing of it is left behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.builds import MAX_BUILDS
from coilclaw.traces.environments.judge import Judge
from coilclaw.traces.environments.results import Case, Result
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S, given_time
from tests.support.environments import write_environment

HEAD = """\
from __future__ import annotations
import asyncio, os, sys, time
from pathlib import Path
from coilclaw.environments.authoring import *
"""


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return probe_sandboxes()


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    place = tmp_path / "submission"
    place.mkdir()
    (place / "hello.txt").write_text("hello\n", encoding="utf-8")
    return place


@pytest.fixture
def judge(tmp_path: Path, support: SandboxSupport) -> Callable[..., Judge]:
    def made(text: str, *, jobs: int = 2, timeout_s: float = 10 * PATIENCE_S) -> Judge:
        write_environment(tmp_path / "environment", HEAD + text)
        place = catalogue.find_environment(str(tmp_path / "environment"))
        return Judge(
            place,
            support=support,
            home=tmp_path / "home",
            environ=os.environ,
            jobs=jobs,
            timeout_s=timeout_s,
        )

    return made


def cases_of(result: Result) -> dict[str, Case]:
    return {case.id: case for case in result.every_case()}


def kinds(result: Result) -> dict[str, tuple[str, str | None]]:
    return {case.id: (case.status, case.failure_kind) for case in result.every_case()}


def running(marker: str) -> list[int]:
    """The processes that carry a text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(int(entry.name))
    return found


# What is refused


def test_a_path_that_matches_nothing_is_refused_before_anything_is_built(
    judge: Callable[..., Judge], submission: Path, tmp_path: Path
) -> None:
    text = f"@setup\ndef b(): Path({str(tmp_path / 'ran')!r}).touch()\n@test\ndef basics(): ...\n"
    with pytest.raises(UsageError) as caught:
        judge(text).test(submission, "basic")
    assert (caught.value.rule, caught.value.hint) == ("environment.path", "did you mean basics?")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({}, "environment.parameter.missing"),
        ({"n": "1"}, "environment.parameter.type"),
        ({"n": 1, "m": 2}, "environment.parameter.unknown"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    judge: Callable[..., Judge], submission: Path, params: dict[str, int | str], rule: str
) -> None:
    with pytest.raises(UsageError) as caught:
        judge("@test\ndef a(n: int): ...\n").test(submission, params=params)
    assert caught.value.rule == rule


def test_parameters_reach_the_tests_and_the_setup(
    judge: Callable[..., Judge], submission: Path
) -> None:
    text = """
@setup
def build(level: int, where: Documents):
    check(where.dir == session_path(), "another directory")
    (session_path() / "level").write_text(str(level))

@test
def a(n: list[str], level: int):
    expect((n, (session_path() / "level").read_text()), (["x"], str(level)))
"""
    made = judge(text)
    assert made.test(submission, params={"n": ["x"], "level": 1}).solved
    assert made.test(submission, params={"n": ["x"], "level": 2}).solved


def test_a_file_that_cannot_be_loaded_is_refused(
    judge: Callable[..., Judge], submission: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        judge("print('noise')\n1/0\n").test(submission)
    assert caught.value.rule == "environment.load"
    assert "ZeroDivisionError" in caught.value.message
    assert "main.py:6" in caught.value.message


def test_a_file_that_ends_the_process_is_a_fault(
    judge: Callable[..., Judge], submission: Path
) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        judge("os._exit(7)\n").test(submission)
    assert caught.value.rule == "environment.worker"
    assert "exit code 7" in caught.value.message


@pytest.mark.parametrize("jobs", [0, -1, 257])
def test_a_number_of_jobs_that_cannot_be_is_refused(judge: Callable[..., Judge], jobs: int) -> None:
    with pytest.raises(UsageError) as caught:
        judge("", jobs=jobs)
    assert caught.value.rule == "environment.jobs"


def test_what_is_no_directory_is_refused(judge: Callable[..., Judge], submission: Path) -> None:
    with pytest.raises(UsageError) as caught:
        judge("@test\ndef a(): ...\n").test(submission / "hello.txt")
    assert caught.value.rule == "environment.submission"


# What a submission does wrong is a result


OUTCOMES = """
@test
def good():
    print("said")
    assert True

@test
async def good_async():
    await asyncio.sleep(0)
    done = await asyncio.to_thread(run, ["cat", session_path() / "hello.txt"])
    expect_output(done, "hello\\n")

@test
def wrong():
    expect_output(run(["echo", "no"]), "yes\\n", "echo")

@test
async def wrong_async():
    fail("not good")

@test
def asserted():
    assert 1 == 2, "sums"

@test
def raised():
    print("before")
    raise ValueError("oops")

@test
def exits():
    sys.exit(0)

@test
def misused():
    run([])

@test
def skipped():
    skip("not here")

@test(timeout_s=1)
def hangs_in_a_program():
    run(["sleep", "314.159"], timeout_s=200)

@test(timeout_s=1)
def hangs_in_python():
    time.sleep(500)

@test
def slow_program():
    expect_success(run(["sleep", "200"], timeout_s=0.3), "sleep")

@test
def no_program():
    expect_success(run(["no-such-program"]))

@test
def crashes():
    expect_success(run("kill -SEGV $$"), "it")
"""


def test_every_outcome_is_a_case_of_its_kind(judge: Callable[..., Judge], submission: Path) -> None:
    result = judge(OUTCOMES, jobs=4).test(submission)
    assert kinds(result) == {
        "good": ("passed", None),
        "good_async": ("passed", None),
        "wrong": ("failed", "wrong_output"),
        "wrong_async": ("failed", "check"),
        "asserted": ("failed", "assertion"),
        "raised": ("error", "exception"),
        "exits": ("error", "exception"),
        "misused": ("error", "exception"),
        "skipped": ("skipped", None),
        "hangs_in_a_program": ("timeout", "timeout"),
        "hangs_in_python": ("timeout", "timeout"),
        "slow_program": ("timeout", "timeout"),
        "no_program": ("failed", "wrong_exit_code"),
        "crashes": ("failed", "crash"),
    }
    assert (result.passed, result.failed, result.total, result.error) == (2, 11, 13, None)
    found = cases_of(result)
    assert found["good"].log == "said\n"
    assert (found["wrong"].expected, found["wrong"].actual) == ("yes\n", "no\n")
    assert found["wrong"].difference == "line 1, column 1:\nexpected 'yes'\nactual   'no'"
    assert "sums" in (found["asserted"].log or "")
    raised = found["raised"].log or ""
    assert raised.startswith("before\nValueError: oops\n")
    assert "main.py" in raised
    assert running("314.159") == []
    assert Result.of(result.json()) == result


def test_each_path_answers_in_the_same_shape(judge: Callable[..., Judge], submission: Path) -> None:
    text = """
s = suite("s")
@s.test
def one(): ...
@s.test("n_{n}", n=(1, 2))
def many(n: int): check(n == 1, "no")
"""
    made = judge(text)
    whole = made.test(submission)
    assert (whole.cases, list(whole.children)) == ((), ["s"])
    assert (whole.passed, whole.failed, whole.total) == (2, 1, 3)
    suite = made.test(submission, "s")
    assert [case.id for case in suite.cases] == ["s/one", "s/n_1", "s/n_2"]
    assert (suite.passed, suite.failed, suite.total) == (2, 1, 3)
    shard = made.test(submission, "s/n_{n}")
    assert [case.id for case in shard.cases] == ["s/n_1", "s/n_2"]
    alone = made.test(submission, "s/n_2")
    assert [case.status for case in alone.cases] == ["failed"]
    assert (alone.passed, alone.failed, alone.total) == (0, 1, 1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("expect_success(run('echo broken >&2; exit 3'), 'build.sh')", "broken"),
        ("raise ValueError('oops')", "ValueError: oops"),
        ("assert False, 'sums'", "sums"),
        ("skip('not here')", "not here"),
        ("run(['sleep', '300'], timeout_s=300)", "more than 1 seconds"),
    ],
)
def test_a_failed_build_is_a_result(
    judge: Callable[..., Judge], submission: Path, body: str, said: str
) -> None:
    seconds = 1 if "more than" in said else 60
    text = f"@setup(timeout_s={seconds})\ndef build():\n    {body}\n"
    text += "@suite('s').test\ndef a(): ...\n"
    made = judge(text)
    for _ in range(2):
        result = made.test(submission)
        assert kinds(result) == {"s/a": ("failed", "build")}
        assert (result.passed, result.failed, result.total) == (0, 1, 1)
        assert result.error is not None
        assert result.error.startswith("the build failed: ")
        assert said in result.error


def test_a_build_that_failed_is_tried_again(
    judge: Callable[..., Judge], submission: Path, tmp_path: Path
) -> None:
    """What was missing may be there now, though the submission is the same."""
    tool = tmp_path / "tool"
    text = f"@setup\ndef build():\n    check(Path({str(tool)!r}).exists(), 'no tool')\n"
    made = judge(f"{text}@test\ndef a(): ...\n")
    assert made.test(submission).error == "the build failed: no tool"
    assert os.listdir(tmp_path / "home" / "builds") == []
    tool.touch()
    assert made.test(submission).solved


def test_a_test_that_ends_the_process_leaves_the_others_without_outcome(
    judge: Callable[..., Judge], submission: Path
) -> None:
    text = "@test\ndef a(): ...\n@test\ndef b(): os._exit(9)\n@test\ndef c(): ...\n"
    result = judge(text, jobs=1).test(submission)
    assert kinds(result) == {
        "a": ("passed", None),
        "b": ("error", "judge_lost"),
        "c": ("error", "judge_lost"),
    }
    assert result.error == "the process that ran the tests ended with exit code 9"


def test_the_time_for_everything_is_bounded(judge: Callable[..., Judge], submission: Path) -> None:
    text = "@test\ndef a(): ...\n@test(timeout_s=600)\ndef b(): "
    text += "run(['sleep', '2718.28'], timeout_s=600)\n"

    def attempt(timeout_s: float) -> Result:
        result = judge(text, jobs=1, timeout_s=timeout_s).test(submission)
        assert result.error == f"the tests took more than {timeout_s:g} seconds"
        assert running("2718.28") == []
        return result

    result = given_time(6.0, attempt, lambda result: result.passed)
    assert kinds(result) == {"a": ("passed", None), "b": ("timeout", "time_limit")}


def test_a_failed_teardown_is_told(judge: Callable[..., Judge], submission: Path) -> None:
    text = "@teardown\ndef down(): fail('stuck')\n@test\ndef a(): ...\n"
    result = judge(text).test(submission)
    assert (result.passed, result.total, result.solved) == (1, 1, False)
    assert result.error == "the teardown failed: stuck"


def test_testing_can_be_stopped(judge: Callable[..., Judge], submission: Path) -> None:
    cancel = Cancellation()
    seen = threading.Event()
    text = "@test\ndef a(): ...\n@test(timeout_s=600)\ndef b(): "
    text += "run(['sleep', '1618.03'], timeout_s=600)\n"

    def stop() -> None:
        seen.wait(PATIENCE_S)
        cancel.cancel("enough")

    threading.Thread(target=stop).start()
    with pytest.raises(Stopped) as caught:
        judge(text, jobs=1).test(submission, cancel=cancel, observe=lambda _: seen.set())
    assert caught.value.rule == "environment.stopped"
    assert running("1618.03") == []


# What a submission can reach


def test_nothing_that_a_case_started_outlives_it(
    judge: Callable[..., Judge], submission: Path
) -> None:
    text = """
KEPT = []

@test
def detached():
    run("setsid sleep 14.1421 >/dev/null 2>&1 & disown 2>/dev/null; exit 0")

@test
def left_open():
    KEPT.append(start(["sleep", "14.1421"]))

@test
def afterwards():
    # Tests themselves are not confined: they see every process.
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    check(not [line for line in lines if b"14.1421" in line], "something is left")
"""
    result = judge(text, jobs=1).test(submission)
    assert {case.id: case.log for case in result.every_case() if not case.passed} == {}
    assert running("14.1421") == []


CONFINED = """
@setup
def build():
    (session_path() / "made").write_text("here")
    expect_success(run("echo more > also; test -f hello.txt"))

@test
def session_is_read_only():
    done = run("echo x > hello.txt || echo no", cwd=session_path())
    expect_output(done, "no\\n")

@test
def own_directory_is_writable():
    expect_output(run("echo x > f; cat f; pwd; mktemp >/dev/null"), f"x\\n{case_path()}\\n")
    expect(os.listdir(case_path()), ["f"])

@test
def directories_are_not_shared():
    check(list(case_path().iterdir()) == [], "something is there")

@test
def build_is_seen():
    expect_output(run(["cat", session_path() / "made", session_path() / "also"]), "heremore\\n")

@test
def environment_is_hidden():
    check(not run(["cat", Path(__file__)]).ok, "it reads the tests")

@test
def home_is_hidden():
    check(not run(["ls", OUTSIDE]).ok, "it reads a directory of the user")

@test
def no_secrets():
    check("HUSH" not in run(["env"]).stdout, "it knows a secret")

@test
def no_network():
    check(not run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"]).ok, "it has a network")
"""


def test_a_submission_is_confined(
    judge: Callable[..., Judge],
    submission: Path,
    support: SandboxSupport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if support.bubblewrap is None:
        pytest.skip("without bubblewrap less is enforced")
    monkeypatch.setenv("MY_TOKEN", "HUSH")
    outside = tmp_path / "outside"
    outside.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        facts = f"OUTSIDE, PORT = {str(outside)!r}, {port}\n"
        result = judge(facts + CONFINED, jobs=3).test(submission)
    assert {case.id: case.log for case in result.every_case() if not case.passed} == {}
    assert result.total == 8
    # What is judged is a copy.
    assert sorted(os.listdir(submission)) == ["hello.txt"]


def test_resources_are_limited(judge: Callable[..., Judge], submission: Path) -> None:
    text = """
PYTHON = "/usr/bin/python3"

@test
def memory():
    small = Limits(memory_bytes=64 * 2**20)
    code = "x = bytearray(256 * 2**20)"
    check(not run(["python3", "-c", code], limits=small).ok, "it got the memory")
    expect_success(run(["python3", "-c", code]), "python")

@test
def file_size():
    done = run("head -c 2000000 /dev/zero > big", limits=Limits(file_bytes=10**6))
    check(not done.ok and (case_path() / "big").stat().st_size <= 10**6, "it wrote more")

@test
def processor_time():
    done = run(["sh", "-c", "while :; do :; done"], limits=Limits(cpu_s=0), timeout_s=60)
    check(not done.timed_out and not done.ok, "it went on")

@test
def output():
    done = run("head -c 5000000 /dev/zero", output_bytes=1000)
    expect((done.truncated, len(done.stdout_bytes), done.exit_code), (True, 1000, 0))
    expect_success(done)
"""
    result = judge(text).test(submission)
    assert kinds(result) == {
        "memory": ("passed", None),
        "file_size": ("passed", None),
        "processor_time": ("passed", None),
        "output": ("failed", "output_limit"),
    }


def test_a_program_can_be_spoken_with_and_killed(
    judge: Callable[..., Judge], submission: Path
) -> None:
    text = """
LOOP = 'trap "echo tidied > tidied" TERM EXIT; while read -r line; do echo "got $line"; done'

@test
def spoken():
    with start(["bash", "-c", LOOP]) as program:
        expect(program.ask("one"), "got one")
        program.send(b"two\\nthree\\n")
        expect((program.receive(), program.receive()), ("got two", "got three"))
        expect_success(program.close(), "the program")
    check((case_path() / "tidied").exists(), "it did not end by itself")

@test
def killed():
    with start(["bash", "-c", LOOP]) as program:
        expect(program.ask("one"), "got one")
        program.kill()
    check(not (case_path() / "tidied").exists(), "it could tidy up")

@test
def silent():
    with start(["sleep", "200"]) as program:
        program.receive(0.2)

@test
def gone():
    with start(["sh", "-c", "echo bye >&2; exit 1"]) as program:
        program.receive()

@test
def missing():
    start(["no-such-program"])

@test
def not_ending():
    with start(["sleep", "200"]) as program:
        expect_success(program.close(0.2), "sleep")
"""
    result = judge(text, jobs=3).test(submission)
    assert kinds(result) == {
        "spoken": ("passed", None),
        "killed": ("passed", None),
        "silent": ("timeout", "timeout"),
        "gone": ("failed", "crash"),
        "missing": ("failed", "missing"),
        "not_ending": ("timeout", "timeout"),
    }
    assert "bye" in (cases_of(result)["gone"].log or "")


# Builds


STAMP = """
@setup
def build(): (session_path() / "stamp").write_text(str(time.time_ns()))

@test
def a(): print((session_path() / "stamp").read_text(), end="")

@test
def b(): ...
"""


def stamp(result: Result) -> str:
    log = cases_of(result)["a"].log
    assert log
    return log


def test_a_build_is_reused_while_nothing_changed(
    judge: Callable[..., Judge], submission: Path
) -> None:
    made = judge(STAMP)
    first = stamp(made.test(submission))
    assert stamp(made.test(submission, "a")) == first
    (submission / ".git").mkdir()
    (submission / ".git" / "HEAD").write_text("ref: x", encoding="utf-8")
    assert stamp(judge(STAMP).test(submission)) == first
    (submission / "hello.txt").chmod(0o755)
    second = stamp(made.test(submission))
    assert second != first
    (submission / "hello.txt").chmod(0o644)
    assert stamp(made.test(submission)) == first
    assert stamp(judge(STAMP + "# changed\n").test(submission)) not in {first, second}


def test_with_a_teardown_every_call_builds_anew(
    judge: Callable[..., Judge], submission: Path, tmp_path: Path
) -> None:
    made = judge(STAMP + f"@teardown\ndef down(): Path({str(tmp_path / 'down')!r}).touch()\n")
    assert stamp(made.test(submission)) != stamp(made.test(submission))
    assert (tmp_path / "down").exists()
    assert os.listdir(tmp_path / "home" / "builds") == []


def test_only_the_latest_builds_are_kept(
    judge: Callable[..., Judge], submission: Path, tmp_path: Path
) -> None:
    made = judge(STAMP)
    stamps = []
    for n in range(MAX_BUILDS + 1):
        (submission / "n").write_text(str(n), encoding="utf-8")
        stamps.append(stamp(made.test(submission)))
    assert len(os.listdir(tmp_path / "home" / "builds")) == MAX_BUILDS
    assert os.listdir(tmp_path / "home" / "scratch") == []
    assert stamp(made.test(submission)) == stamps[-1]
    (submission / "n").write_text("0", encoding="utf-8")
    assert stamp(made.test(submission)) not in stamps


def test_a_copy_holds_exactly_what_was_submitted(
    judge: Callable[..., Judge], submission: Path
) -> None:
    (submission / ".git").mkdir()
    (submission / ".git" / "config").write_text("[core]", encoding="utf-8")
    os.symlink("/etc/passwd", submission / "absolute")
    os.symlink("hello.txt", submission / "relative")
    (submission / "empty").mkdir()
    (submission / "deep" / "er").mkdir(parents=True)
    (submission / "deep" / "er" / "run.sh").write_text("#!/bin/sh\necho ran\n", encoding="utf-8")
    (submission / "deep" / "er" / "run.sh").chmod(0o755)
    (submission / "bytes").write_bytes(bytes(range(256)))
    text = """
@test
def a():
    here = session_path()
    names = ["absolute", "bytes", "deep", "empty", "hello.txt", "relative"]
    expect(sorted(os.listdir(here)), names)
    expect(os.readlink(here / "absolute"), "/etc/passwd")
    expect(os.readlink(here / "relative"), "hello.txt")
    expect((here / "bytes").read_bytes(), bytes(range(256)))
    expect(os.listdir(here / "empty"), [])
    expect_output(run([here / "deep" / "er" / "run.sh"]), "ran\\n")
"""
    result = judge(text).test(submission)
    assert {case.id: case.log for case in result.every_case() if not case.passed} == {}


def test_one_judge_serves_several_threads(judge: Callable[..., Judge], submission: Path) -> None:
    made = judge(STAMP)
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda: results.append(made.test(submission))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stamp(result) for result in results}) == 1
    assert all(result.solved for result in results)


def test_cases_run_side_by_side_up_to_the_number_of_jobs(
    judge: Callable[..., Judge], submission: Path
) -> None:
    text = """
import threading
inside, most, lock = 0, 0, threading.Lock()
together = threading.Barrier(JOBS)

@suite("s").test("n_{n}", n=range(6))
def many(n: int):
    global inside, most
    with lock:
        inside += 1
        most = max(most, inside)
    together.wait(60)
    time.sleep(0.1)
    with lock:
        inside -= 1

@test
def last():
    print(most, end="")
"""
    for jobs in (3, 1):
        result = judge(text.replace("JOBS", str(jobs)), jobs=jobs).test(submission)
        assert cases_of(result)["last"].log == str(jobs)


def test_cases_are_told_when_they_are_over(judge: Callable[..., Judge], submission: Path) -> None:
    seen: list[str] = []
    text = "@test\ndef a(): ...\n@test\ndef b(): fail('x')\n"
    judge(text, jobs=1).test(submission, observe=lambda case: seen.append(case.id))
    assert seen == ["a", "b"]


def test_the_schema_is_told_without_a_submission(judge: Callable[..., Judge]) -> None:
    schema = judge("print('noise')\n@test\ndef a(): ...\n").schema()
    assert schema["cases"] == ["a"]


def test_what_a_killed_judge_left_is_cleared(
    judge: Callable[..., Judge], submission: Path, tmp_path: Path
) -> None:
    made = judge(STAMP)
    first = stamp(made.test(submission))
    left = tmp_path / "home" / "scratch" / "999999999-abc"
    (left / "case-0").mkdir(parents=True)
    # A build that was never finished is no build.
    (build,) = (tmp_path / "home" / "builds").iterdir()
    (build / "built.json").unlink()
    (build / "tree" / "stamp").write_text("stale", encoding="utf-8")
    began = time.time_ns()
    assert int(stamp(made.test(submission))) >= began > int(first)
    assert not left.exists()
