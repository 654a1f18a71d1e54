"""A scripted agent: real effects, in a real sandbox, and nothing of it stays."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.messages import Budget, Json, Part
from coilclaw.runners.script import read as read_script
from coilclaw.runners.scripted import ScriptedRunner
from coilclaw.workspace.process.confinement import Kind
from tests.support.children import (
    PATIENCE_S,
    alive,
    given_time,
    marker,
    open_fds,
    running,
    wait_for,
)
from tests.support.performing import TASK, Performance, finish, scripted, support
from tests.support.sandboxes import supported

KINDS: tuple[Kind, ...] = ("bubblewrap", "landlock")


@pytest.fixture
def stage(tmp_path: Path) -> Performance:
    supported("bubblewrap")
    return Performance.make(tmp_path)


@pytest.fixture(params=KINDS)
def confined(tmp_path: Path, request: pytest.FixtureRequest) -> Performance:
    supported(request.param)
    return Performance.make(tmp_path, request.param)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that no sandbox covers, unlike those below /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="coilclaw-outside-") as made:
        path = Path(made)
        (path / "kept").write_text("kept")
        yield path


def _tree(path: Path) -> dict[str, str]:
    return {str(p.relative_to(path)): p.read_text() for p in path.rglob("*") if p.is_file()}


def _gone(mark: str) -> bool:
    until = time.monotonic() + PATIENCE_S
    while running(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_a_hostile_script_changes_nothing_outside(confined: Performance, outside: Path) -> None:
    secret = outside / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    (confined.worktree / "way-out").symlink_to(outside)
    before = _tree(outside)
    up = os.path.relpath(outside, confined.worktree)
    parts, ending = confined.perform(
        scripted(
            [
                {"write": {f"{outside}/a": "x"}},
                {"write": {f"{up}/b": "x"}},
                {"write": {"way-out/c": "x"}},
                {"write": {"/etc/coilclaw-was-here": "x"}},
                {"write": {"/root/coilclaw-was-here": "x"}},
                {"delete": [f"{outside}/kept", "way-out/kept"]},
                {"shell": f"echo x > {outside}/d; rm -rf {outside}/kept way-out/kept"},
                {"shell": f"cat {secret}/key"},
                {"write": {"in/side": "y"}},
            ]
        ),
        confined.assignment(hidden=(secret,)),
    )
    assert ending.status == "done"
    assert _tree(outside) == before
    assert not Path("/etc/coilclaw-was-here").exists()
    assert os.geteuid() != 0 or not Path("/root/coilclaw-was-here").exists()
    # A private /var/tmp can be written, and is gone with the command.
    assert [part.exit_code for part in parts[3:6]] == [1] * 3
    assert [part.files for part in parts[3:6]] == [()] * 3
    assert "key" not in parts[7].output.replace(str(secret / "key"), "")
    assert parts[8].files == ("in/side",)
    assert (confined.worktree / "in/side").read_text() == "y"


def test_a_write_below_tmp_stays_in_the_sandbox(stage: Performance) -> None:
    target = Path("/tmp") / f"coilclaw-beside-{os.getpid()}"
    parts, _ = stage.perform(scripted([{"write": {str(target): "x"}}]))
    assert parts[0].exit_code == 0
    assert not target.exists()


def test_read_only_lets_nothing_be_written(confined: Performance) -> None:
    (confined.worktree / "a").write_text("old")
    parts, ending = confined.perform(
        scripted(
            [
                {"write": {"a": "new", "b": "new"}},
                {"delete": ["a"]},
                {"shell": "cat a; echo new > a"},
            ]
        ),
        confined.assignment(filesystem="read-only"),
    )
    assert confined.files() == {"a": "old"}
    assert [part.exit_code != 0 for part in parts] == [True, True, True]
    assert parts[2].output.startswith("old")
    assert ending.status == "done"


@pytest.fixture
def server() -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"reached")

        def log_message(self, *_: object) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield listening.server_address[1]
    listening.shutdown()
    listening.server_close()


def _asking(port: int) -> str:
    return (
        "python3 -I -S -c \"import socket; s = socket.create_connection(('127.0.0.1', "
        f"{port}), 5); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); "
        "print(s.makefile('rb').read()[-7:])\""
    )


@pytest.mark.parametrize("network", ["deny", "on-request"])
def test_without_network_a_server_cannot_be_reached(
    confined: Performance, server: int, network: str
) -> None:
    parts, _ = confined.perform(
        scripted([{"shell": _asking(server)}]), confined.assignment(network=network)
    )
    assert parts[0].exit_code != 0
    assert "reached" not in parts[0].output


def test_with_network_it_can(confined: Performance, server: int) -> None:
    parts, ending = confined.perform(
        scripted([{"shell": _asking(server)}]), confined.assignment(network="allow")
    )
    assert (parts[0].output, parts[0].exit_code) == ("b'reached'\n", 0)
    assert {held.network for held in ending.enforced} == {"open"}


def test_a_denied_shell_is_a_part_that_says_so(stage: Performance) -> None:
    parts, ending = stage.perform(
        scripted([{"shell": "touch a"}, {"commit": "all"}, {"write": {"b": ""}}]),
        stage.assignment(shell="deny"),
    )
    denied = "denied by tool_permissions.shell = deny"
    assert parts[:2] == [
        Part("tool", "", "shell", "call-0", '{"command":"touch a"}', denied, 126),
        Part("tool", "", "git commit", "call-1", '{"message":"all"}', denied, 126),
    ]
    assert stage.files() == {"b": ""}
    assert ending.status == "done"


def test_untrusted_asks_for_every_command_and_silence_is_a_no(stage: Performance) -> None:
    stage.overseer.answers = [True]
    parts, _ = stage.perform(
        scripted([{"shell": "echo a"}, {"shell": "touch b"}]), stage.assignment(shell="untrusted")
    )
    assert [(part.output, part.exit_code) for part in parts] == [
        ("a\n", 0),
        ("denied: the request was not approved", 126),
    ]
    first, second = stage.overseer.asked
    assert (first.task_id, first.kind) == (TASK, "command")
    assert first.detail == ('argv: ["/bin/sh", "-c", "echo a"]', f"in: {stage.worktree}")
    assert first.digest != second.digest
    assert stage.files() == {}


@pytest.mark.parametrize("shell", ["never", "on-request"])
def test_a_contained_command_runs_unasked(stage: Performance, shell: str) -> None:
    parts, _ = stage.perform(scripted([{"shell": "echo a"}]), stage.assignment(shell=shell))
    assert parts[0].output == "a\n"
    assert stage.overseer.asked == []


@pytest.mark.parametrize(("shell", "asked"), [("never", 0), ("on-request", 1)])
def test_a_command_without_a_sandbox_does_not(tmp_path: Path, shell: str, asked: int) -> None:
    free = Performance.make(tmp_path, "none")
    parts, _ = free.perform(scripted([{"shell": "touch a"}]), free.assignment(shell=shell))
    assert parts[0].exit_code == 126
    assert len(free.overseer.asked) == asked
    assert free.files() == {}


def test_parts_come_whole_and_in_order(stage: Performance) -> None:
    result: dict[str, Json] = {
        "status": "SUCCESS",
        "summary": "s",
        "evidence_refs": {},
        "failure": None,
    }
    ran: list[str] = []

    def run_tests(path: str) -> str:
        ran.append(path)
        return "2 passed"

    parts, ending = stage.perform(
        scripted(
            [
                {"reasoning": "hm"},
                {"write": {"a/b.txt": "ü\n", "c": ""}},
                {"shell": "cat a/b.txt; echo oops >&2; exit 3"},
                {"delete": ["c", "missing"]},
                {"run_tests": "unit"},
                {"sleep_s": 0.01},
                {"text": "done"},
                {"result": result},
            ]
        ),
        run_tests=run_tests,
    )
    assert parts == [
        Part("reasoning", "hm"),
        Part(
            "tool",
            "",
            "write",
            "call-1",
            '{"files":{"a/b.txt":"ü\\n","c":""}}',
            "a/b.txt: 3 bytes written\nc: 0 bytes written",
            0,
            ("a/b.txt", "c"),
        ),
        Part(
            "tool",
            "",
            "shell",
            "call-2",
            '{"command":"cat a/b.txt; echo oops >&2; exit 3"}',
            "ü\n[stderr]\noops\n",
            3,
        ),
        Part(
            "tool",
            "",
            "delete",
            "call-3",
            '{"paths":["c","missing"]}',
            "c: deleted\nmissing: No such file or directory",
            1,
            ("c",),
        ),
        Part("tool", "", "run_tests", "call-4", '{"path":"unit"}', "2 passed"),
        Part("tool", "", "sleep_s", "call-5", '{"seconds":0.01}', "slept 0.01 s", 0),
        Part("text", "done"),
    ]
    assert (ending.status, ending.reason, ending.text) == ("done", "", "done")
    assert ending.result == {"task_id": TASK, **result}
    assert ran == ["unit"]
    assert stage.files() == {"a/b.txt": "ü\n"}
    assert {held.kind for held in ending.enforced} == {"bubblewrap"}


def test_the_tree_at_a_part_is_what_the_part_left(stage: Performance) -> None:
    runner = scripted([{"write": {"a": "1"}}, {"write": {"a": "2"}}, {"shell": "echo 3 > a"}])
    seen = []
    for _ in runner.perform(stage.assignment(), stage.means()):
        time.sleep(0.05)
        seen.append(stage.files()["a"])
    assert seen == ["1", "2", "3\n"]


def test_a_commit_is_made_with_an_identity_of_its_own(stage: Performance) -> None:
    git = ["git", "-C", str(stage.worktree)]
    subprocess.run([*git, "init", "-q"], check=True)
    parts, _ = stage.perform(
        scripted([{"write": {"a": "x"}}, {"commit": "first"}, {"commit": "nothing"}])
    )
    assert [part.exit_code for part in parts] == [0, 0, 1]
    log = subprocess.run(
        [*git, "log", "--format=%an %s"], capture_output=True, text=True, check=True
    )
    assert log.stdout == "Scripted Agent first\n"


def test_without_tests_run_tests_says_so(stage: Performance) -> None:
    parts, _ = stage.perform(scripted([{"run_tests": ""}]))
    assert (parts[0].output, parts[0].exit_code) == ("this task has no tests to run", 1)


def test_each_performance_plays_the_next_turn_and_then_the_script_is_over(
    stage: Performance,
) -> None:
    runner = scripted([{"text": "first"}], [{"text": "second"}])
    said = []
    for task_id in (TASK, f"{TASK}-fix-1", f"{TASK}-fix-2"):
        parts, ending = stage.perform(runner, stage.assignment(task_id=task_id))
        said.append(([part.text for part in parts], ending.status, ending.reason))
    over = "the script is over: it has 2 turns for this task"
    assert said == [(["first"], "done", ""), (["second"], "done", ""), ([], "failed", over)]
    chosen, _ = stage.perform(ScriptedRunner(runner.script, turn=lambda _: 1))
    assert [part.text for part in chosen] == ["second"]


def test_a_script_that_says_failed_has_failed(stage: Performance) -> None:
    result = {"status": "FAILED", "summary": "no", "failure": {"message": "cannot"}}
    _, ending = stage.perform(scripted([{"result": result}]))
    assert (ending.status, ending.reason) == ("failed", "the agent says FAILED: cannot")


def test_a_crash_is_no_end(confined: Performance) -> None:
    parts, ending = confined.perform(
        scripted([{"write": {"a": "x"}}, {"crash": True}, {"write": {"b": "x"}}])
    )
    assert [part.tool for part in parts] == ["write"]
    assert ending.status == "aborted"
    assert "crashed" in ending.reason
    assert ending.result is None
    assert confined.files() == {"a": "x"}


def test_the_time_of_the_budget_ends_a_turn(stage: Performance) -> None:
    mark = marker()
    sleeps = {"sleep_s": 4000}
    waits = {"shell": f"trap '' TERM; sleep {mark} & sleep {mark}"}

    def attempt(wall_s: float, action: Mapping[str, Any]) -> list[str]:
        began = time.monotonic()
        parts, ending = stage.perform(
            scripted([{"text": "a"}, action, {"text": "b"}]),
            stage.assignment(budget=Budget(wall_s=wall_s)),
        )
        reason = f"the time of {wall_s:g} s is used up"
        assert (ending.status, ending.reason) == ("exhausted", reason)
        assert time.monotonic() - began < wall_s + PATIENCE_S
        return [part.text for part in parts]

    assert given_time(0.5, lambda wall_s: attempt(wall_s, sleeps), bool) == ["a"]
    assert given_time(0.5, lambda wall_s: attempt(wall_s, waits), bool) == ["a"]
    assert _gone(mark)


def test_the_number_of_parts_of_the_budget_ends_a_turn(stage: Performance) -> None:
    parts, ending = stage.perform(
        scripted([{"text": "a"}, {"text": "b"}, {"text": "c"}]),
        stage.assignment(budget=Budget(parts=2)),
    )
    assert [part.text for part in parts] == ["a", "b"]
    assert (ending.status, ending.reason) == ("exhausted", "the budget of 2 parts is used up")
    _, ending = stage.perform(
        scripted([{"text": "a"}, {"text": "b"}]), stage.assignment(budget=Budget(parts=2))
    )
    assert ending.status == "done"


def test_a_command_has_a_time_limit_of_its_own(stage: Performance) -> None:
    turn: list[Mapping[str, Any]] = [{"shell": "echo begun; sleep 4000"}, {"text": "on"}]
    parts, ending = given_time(
        0.3,
        lambda seconds: stage.perform(scripted(turn, command_timeout_s=seconds)),
        lambda done: done[0][0].output,
    )
    assert (parts[0].output, parts[0].exit_code) == ("begun\n", 124)
    assert (parts[1].text, ending.status) == ("on", "done")


def test_cancelling_ends_it(confined: Performance, tmp_path: Path) -> None:
    mark = marker()
    for action in ({"sleep_s": 4000}, {"shell": f"echo > begun; sleep {mark}"}):
        timer = threading.Timer(0.4, confined.cancel.cancel, ("enough",))
        runner = scripted([{"text": "a"}, action, {"text": "b"}])
        performance = runner.perform(confined.assignment(), confined.means())
        assert next(performance).text == "a"
        timer.start()
        parts, ending = finish(performance)
        assert parts == []
        assert (ending.status, ending.reason) == ("aborted", "cancelled: enough")
        timer.join()
        confined.cancel = type(confined.cancel)()
    assert _gone(mark)
    confined.cancel.cancel("before")
    assert confined.perform(scripted([{"text": "a"}]))[1].reason == "cancelled: before"


def test_nothing_that_a_command_started_outlives_it(confined: Performance) -> None:
    mark = marker()
    parts, ending = confined.perform(
        scripted(
            [
                {"shell": f"(setsid sleep {mark} &) ; (trap '' TERM HUP; sleep {mark}) & echo x"},
                {"shell": f"setsid sh -c 'setsid sleep {mark} >/dev/null 2>&1 &' >/dev/null 2>&1"},
                {"text": "after"},
            ]
        )
    )
    assert ending.status == "done"
    assert parts[0].output.startswith("x\n")
    assert _gone(mark)


def test_a_flood_is_bounded(stage: Performance) -> None:
    parts, _ = stage.perform(scripted([{"shell": "yes | head -c 30000000; echo end"}]))
    assert len(parts[0].output) < 2**20 + 100
    assert "bytes dropped" in parts[0].output
    assert parts[0].output.endswith("end\n")


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


def test_closing_ends_everything_and_leaves_nothing_open(stage: Performance) -> None:
    before = open_fds()
    generator = scripted([{"write": {"a": "b"}}, {"sleep_s": 4000}]).perform(
        stage.assignment(), stage.means()
    )
    assert next(generator).files == ("a",)
    # Those of other tests, which run at the same time, are not ours.
    players = [
        pid for pid in running("The hands of a scripted agent") if parent(pid) == os.getpid()
    ]
    assert players
    generator.close()
    assert not any(alive(pid) for pid in players)
    assert open_fds() == before


def test_killing_the_parent_leaves_no_process(stage: Performance) -> None:
    mark = marker()
    begun = stage.worktree / "begun"
    runner = scripted([{"shell": f"(setsid sleep {mark} &); echo > begun; sleep {mark}"}])
    assignment, means = stage.assignment(), stage.means()
    child = os.fork()
    if child == 0:
        try:
            finish(runner.perform(assignment, means))
        finally:
            os._exit(1)
    wait_for(begun)
    assert running(mark)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert _gone(mark)


def test_many_at_once_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    supported("bubblewrap")
    runner = ScriptedRunner(
        read_script(
            json.dumps(
                {"tasks": {f"task-{n}": [[{"shell": f"echo {n} > a"}]] for n in range(6)}}
            ).encode()
        )
    )
    stages = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        stages.append(Performance.make(folder))
    support()
    threads = [
        threading.Thread(
            target=each.perform, args=(runner, each.assignment(task_id=f"task-{number}"))
        )
        for number, each in enumerate(stages)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [each.files() for each in stages] == [{"a": f"{n}\n"} for n in range(6)]
