"""Any program as an agent: the contract in, one JSON object out."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault
from coilclaw.kernel.messages import Budget, Part
from coilclaw.runners.process import ProcessRunner
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.private_home import find_tool_variables
from tests.support.children import PATIENCE_S, PYTHON, marker, running, wait_for
from tests.support.performing import TASK, Performance, contract, finish
from tests.support.sandboxes import supported

RESULT = {"task_id": TASK, "status": "SUCCESS", "summary": "did", "failure": None}


@pytest.fixture
def stage(tmp_path: Path) -> Performance:
    supported("bubblewrap")
    return Performance.make(tmp_path)


def _python(source: str) -> ProcessRunner:
    return ProcessRunner((*PYTHON, source))


def _shell(source: str) -> ProcessRunner:
    return ProcessRunner(("/bin/sh", "-c", source))


def _gone(mark: str) -> bool:
    until = time.monotonic() + PATIENCE_S
    while running(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not running(mark)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "is not valid JSON"),
        ("done\\n", "is not valid JSON"),
        ('log\\n{"status": "SUCCESS"}', "is not valid JSON"),
        ('{"a": 1}{"b": 2}', "is not valid JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ("[1]", "not a JSON object"),
    ],
)
def test_output_that_is_not_one_object_has_failed(
    stage: Performance, written: str, reason: str
) -> None:
    parts, ending = stage.perform(_shell(f"printf '{written}'"))
    assert (parts, ending.status, ending.result) == ([], "failed", None)
    assert reason in ending.reason


def test_an_exit_code_other_than_0_has_failed_whatever_was_written(stage: Performance) -> None:
    _, ending = stage.perform(_shell(f"echo '{json.dumps(RESULT)}'; exit 7"))
    assert (ending.status, ending.reason) == ("failed", "the program ended with exit code 7")
    assert ending.result is None


def test_a_program_that_is_not_there_raises(stage: Performance) -> None:
    with pytest.raises(ProcessFault) as caught:
        stage.perform(ProcessRunner(("no-such-program-here",)))
    assert caught.value.rule == "process.not_found"
    assert caught.value.hint


def test_without_any_sandbox_nothing_is_started(stage: Performance) -> None:
    means = stage.means()
    bare = type(means)(means.approve, means.cancel, SandboxSupport())
    with pytest.raises(EnvironmentFault) as caught:
        finish(_shell("touch a").perform(stage.assignment(), bare))
    assert caught.value.rule == "sandbox.unavailable"
    assert stage.files() == {}


def test_the_contract_goes_in_and_a_result_comes_out(stage: Performance) -> None:
    given = contract("src", inputs={"spec": "ü"})
    source = (
        "import sys, json, os; c = json.load(sys.stdin); "
        "open('seen.json', 'w').write(json.dumps([c, os.getcwd(), dict(os.environ)])); "
        f"print('busy', file=sys.stderr); print(json.dumps({RESULT!r}))"
    )
    parts, ending = stage.perform(_python(source), stage.assignment(contract=given))
    assert parts == [
        Part("text", "busy\n", item_type="stderr"),
        Part("text", "did"),
    ]
    assert (ending.status, ending.result, ending.text) == ("done", RESULT, "did")
    assert [held.kind for held in ending.enforced] == ["bubblewrap"]
    seen, cwd, environ = json.loads((stage.worktree / "seen.json").read_text())
    assert (seen, cwd) == (given, str(stage.worktree))
    assert environ["HOME"] == str(stage.home)
    assert environ["TMPDIR"] == str(stage.home / "tmp")


def test_without_a_contract_the_instruction_goes_in(stage: Performance) -> None:
    _, ending = stage.perform(ProcessRunner(("cat",)))
    assert ending.result == {
        "task_id": TASK,
        "inputs": {"spec": "do it", "artifacts": []},
    }


def test_secrets_of_ours_do_not_reach_it(
    stage: Performance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-ours")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    _, ending = stage.perform(_python("import os, json; print(json.dumps(dict(os.environ)))"))
    assert ending.result is not None
    assert set(ending.result) <= {
        *("PATH", "HOME", "USER", "LOGNAME", "TZ", "LANG", "TERM", "NO_COLOR", "PAGER"),
        *("GIT_PAGER", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "TMPDIR"),
        *("COILCLAW_PROCESS", "LC_CTYPE", "PWD"),
        *find_tool_variables(os.environ, os.environ["PATH"]),
    }


def test_a_result_that_says_failed_has_failed(stage: Performance) -> None:
    said = {**RESULT, "status": "FAILED", "failure": {"message": "cannot"}}
    _, ending = stage.perform(_shell(f"echo '{json.dumps(said)}'"))
    assert (ending.status, ending.reason) == ("failed", "the agent says FAILED: cannot")
    assert ending.result == said


def test_floods_are_bounded(stage: Performance) -> None:
    parts, ending = stage.perform(_shell("yes | head -c 40000000; yes | head -c 40000000 >&2"))
    assert (ending.status, ending.reason) == (
        "failed",
        "the program wrote more than 8,388,608 bytes",
    )
    assert len(parts[0].text) < 2**20 + 100


def test_time_and_signals_that_are_ignored(stage: Performance) -> None:
    mark = marker()
    began = time.monotonic()
    _, ending = stage.perform(
        _shell(f"trap '' TERM INT HUP; (setsid sleep {mark} &); while :; do sleep {mark}; done"),
        stage.assignment(budget=Budget(wall_s=0.4)),
    )
    assert (ending.status, ending.reason) == ("exhausted", "the time of 0.4 s is used up")
    assert time.monotonic() - began < PATIENCE_S
    assert _gone(mark)


def test_cancelling_ends_it(stage: Performance) -> None:
    mark = marker()
    timer = threading.Timer(0.3, stage.cancel.cancel, ("enough",))
    timer.start()
    _, ending = stage.perform(_shell(f"sleep {mark}"))
    timer.join()
    assert (ending.status, ending.reason) == ("aborted", "cancelled: enough")
    assert _gone(mark)


def test_a_program_that_dies_is_no_success(tmp_path: Path) -> None:
    for kind in ("bubblewrap", "landlock"):
        folder = tmp_path / kind
        folder.mkdir()
        supported(kind)
        stage = Performance.make(folder, kind)
        _, ending = stage.perform(_shell(f"echo '{json.dumps(RESULT)}'; kill -9 $$"))
        assert (ending.status, ending.reason) == ("aborted", "the program was ended by signal 9")
        assert ending.result is None


def test_what_it_forks_away_does_not_stay(stage: Performance) -> None:
    mark = marker()
    _, ending = stage.perform(
        _shell(f"(setsid sh -c 'setsid sleep {mark} &' &); echo '{json.dumps(RESULT)}'")
    )
    assert ending.status == "done"
    assert _gone(mark)


def test_killing_the_parent_leaves_no_process(stage: Performance) -> None:
    mark = marker()
    runner = _shell(f"(setsid sleep {mark} &); echo > begun; sleep {mark}")
    assignment, means = stage.assignment(), stage.means()
    child = os.fork()
    if child == 0:
        try:
            finish(runner.perform(assignment, means))
        finally:
            os._exit(1)
    wait_for(stage.worktree / "begun")
    assert running(mark)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert _gone(mark)


def test_a_relative_program_is_relative_to_where_the_user_is(stage: Performance) -> None:
    (stage.home / "agent").write_text("#!/bin/sh\ncat >/dev/null; echo '{}'\n")
    (stage.home / "agent").chmod(0o755)
    _, ending = stage.perform(ProcessRunner(("./agent",), base=stage.home))
    assert (ending.status, ending.result) == ("done", {})
    with pytest.raises(ProcessFault):
        stage.perform(ProcessRunner(("./agent",)))
