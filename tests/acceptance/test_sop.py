"""SOPs and approvals through the executable, as a user meets them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.agents import AgentHome, says
from tests.support.children import PATIENCE_S
from tests.support.command import Command

EXAMPLE = """\
name = "daily-check"
description = "Run a daily workspace check"

[[steps]]
id = "list"
kind = "tool"
tool = "file_list"
args = { path = "." }

[[steps]]
id = "summarize"
kind = "agent"
prompt = "Summarize the file list from the previous step."

[[steps]]
id = "approval"
kind = "approval"
prompt = "Continue to write report?"

[[steps]]
id = "write"
kind = "tool"
tool = "file_write"
args = { path = "daily-check.txt", content_from = "summarize" }
"""
FULL = '[security]\nautonomy = "full"\n'


@pytest.fixture
def agent(tmp_path: Path) -> AgentHome:
    made = AgentHome.make(tmp_path, FULL, [says("a fine report")])
    folder = made.home / "workspace" / "sops" / "daily-check"
    folder.mkdir(parents=True)
    (folder / "SOP.toml").write_text(EXAMPLE)
    return made


@pytest.fixture
def coilclaw(agent: AgentHome) -> Command:
    return Command(agent.home)


def told(done: subprocess.CompletedProcess[bytes]) -> object:
    return json.loads(done.stdout)


def test_a_run_stops_at_an_approval_until_it_is_approved(
    agent: AgentHome, coilclaw: Command
) -> None:
    begun = coilclaw("sop", "run", "daily-check")
    assert begun.returncode == 3, begun.stderr
    hint = begun.stderr.decode().strip().splitlines()[-1]
    assert hint.startswith("next: coilclaw approve approval-")
    approve, resume = (part.split() for part in hint.removeprefix("next: ").split(" && "))
    assert not (agent.workspace / "daily-check.txt").exists()
    (waiting,) = json.loads(coilclaw("approvals", "list", "--json").stdout)
    assert (waiting["id"], waiting["state"], waiting["detail"]) == (
        approve[2],
        "pending",
        ["Continue to write report?"],
    )
    assert b"| Continue to write report?" in coilclaw("approvals", "list").stdout
    assert coilclaw(*resume[1:]).returncode == 3
    approved = coilclaw(*approve[1:])
    assert approved.returncode == 0, approved.stderr
    ended = coilclaw(*resume[1:])
    assert ended.returncode == 0, ended.stderr
    assert (agent.workspace / "daily-check.txt").read_text() == "a fine report"
    assert coilclaw("approvals", "list").stdout == b""
    (used,) = json.loads(coilclaw("approvals", "list", "--all", "--json").stdout)
    assert used["state"] == "used"
    assert coilclaw(*resume[1:]).returncode == 2
    (run,) = json.loads(coilclaw("sop", "status", "--json").stdout)
    assert (run["status"], [stage["status"] for stage in run["stages"]]) == ("done", ["done"] * 4)
    assert coilclaw("receipt", "verify").returncode == 0


def test_a_rejected_run_has_ended(agent: AgentHome, coilclaw: Command) -> None:
    begun = json.loads(coilclaw("sop", "run", "daily-check", "--json").stdout)
    assert begun["status"] == "waiting"
    done = coilclaw("reject", begun["approval"], "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["state"], answer["run_ended"]) == (0, "rejected", True)
    run = json.loads(coilclaw("sop", "status", begun["id"], "--json").stdout)
    assert run["status"] == "rejected"
    for arguments in (
        ("approve", begun["approval"]),
        ("reject", begun["approval"]),
        ("approve", "approval-0000000000000000"),
        ("sop", "resume", begun["id"]),
    ):
        assert coilclaw(*arguments).returncode == 2
    assert not (agent.workspace / "daily-check.txt").exists()


def test_a_sop_that_changed_is_refused(agent: AgentHome, coilclaw: Command) -> None:
    begun = json.loads(coilclaw("sop", "run", "daily-check", "--json").stdout)
    coilclaw("approve", begun["approval"])
    path = agent.home / "workspace" / "sops" / "daily-check" / "SOP.toml"
    path.write_text(EXAMPLE.replace("daily-check.txt", "elsewhere.txt"))
    done = coilclaw("sop", "resume", begun["id"], "--json")
    assert (done.returncode, json.loads(done.stdout)["rule"]) == (3, "sop.changed")
    assert sorted(os.listdir(agent.workspace)) == []


def test_what_is_wrong_is_said_with_its_line(agent: AgentHome, coilclaw: Command) -> None:
    good = coilclaw("sop", "validate")
    assert (good.returncode, good.stdout) == (0, b"daily-check is valid: 4 stages\n")
    path = agent.home / "workspace" / "sops" / "daily-check" / "SOP.toml"
    path.write_text(
        EXAMPLE.replace('"file_write"', '"file_wirte"').replace('"summarize" }', '"x" }')
    )
    done = coilclaw("sop", "validate", "daily-check", "--json")
    (found,) = json.loads(done.stdout)
    assert (done.returncode, found["ok"]) == (2, False)
    assert found["problems"] == [
        {
            "key": "steps[3].tool",
            "line": 23,
            "message": "unknown tool 'file_wirte'; did you mean 'file_write'?",
        },
        {
            "key": "steps[3].args.content_from",
            "line": 24,
            "message": "unknown earlier stage 'x'",
        },
    ]
    assert f"{path}:23: ".encode() in coilclaw("sop", "validate").stdout
    assert coilclaw("sop", "run", "daily-check").returncode == 2
    assert b"2 problems" in coilclaw("sop", "list").stdout
    assert coilclaw("sop", "validate", "nothing").returncode == 2
    assert agent.records() == []


def test_a_stage_that_fails_is_exit_1_and_one_that_is_denied_is_exit_3(
    agent: AgentHome, coilclaw: Command
) -> None:
    for name, path, code in (("failing", "gone", 1), ("denied", "/etc/shadow", 3)):
        folder = agent.workspace / "sops" / name
        folder.mkdir(parents=True)
        (folder / "SOP.toml").write_text(
            f'name = "{name}"\n[[steps]]\nid = "read"\nkind = "tool"\ntool = "file_read"\n'
            f'args = {{ path = "{path}" }}\n'
        )
        assert coilclaw("sop", "run", name).returncode == code
    listed = json.loads(coilclaw("sop", "list", "--json").stdout)
    assert [one["name"] for one in listed] == ["daily-check", "denied", "failing"]


def test_at_a_terminal_it_asks_right_there(agent: AgentHome, coilclaw: Command) -> None:
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "coilclaw", "sop", "run", "daily-check"],
        env={**coilclaw.env(), "TERM": "dumb"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=agent.home,
    ) as child:
        os.close(slave)
        shown = b""
        until = time.monotonic() + PATIENCE_S
        answered = False
        while time.monotonic() < until:
            ready, _, _ = select.select([master], [], [], 0.1)
            if ready:
                try:
                    shown += os.read(master, 4096)
                except OSError:
                    break
            if b"Approve? [y/n" in shown and not answered:
                answered = True
                os.write(master, b"y\n")
            if child.poll() is not None and not ready:
                break
        child.wait(PATIENCE_S)
    os.close(master)
    assert child.returncode == 0, shown
    assert b"| Continue to write report?" in shown
    assert (agent.workspace / "daily-check.txt").read_text() == "a fine report"


def test_what_is_asked_cannot_pass_for_something_else(agent: AgentHome, coilclaw: Command) -> None:
    agent.answer(says("harmless\x1b[2J\u202etxt"))
    path = agent.home / "workspace" / "sops" / "daily-check" / "SOP.toml"
    path.write_text(EXAMPLE.replace("Continue to write report?", "Write {{summarize.output}}?"))
    coilclaw("sop", "run", "daily-check")
    shown = coilclaw("approvals", "list").stdout
    assert b"| Write harmless<ESC>[2J<U+202E>txt?" in shown
    assert b"\x1b" not in shown


KILLS = """\
name = "kills"
[inputs.word]
type = "string"
[[steps]]
id = "w"
kind = "tool"
tool = "shell"
args = { argv = ["sh", "-c", "echo x >> log; test -e again || kill -9 $PPID"] }
"""


def test_a_killed_run_is_resumed_with_a_decision_and_inputs_are_checked(
    agent: AgentHome, coilclaw: Command
) -> None:
    agent.configure(FULL + 'sandbox = "none"\n')
    folder = agent.home / "workspace" / "sops" / "kills"
    folder.mkdir()
    (folder / "SOP.toml").write_text(KILLS)
    wrong = coilclaw("sop", "run", "kills", "--input", "wrd=a")
    assert wrong.returncode == 2
    assert b"unknown input 'wrd'" in wrong.stderr
    assert b"word is missing" in wrong.stderr
    if coilclaw("sop", "run", "kills", "--input", "word=a").returncode != -9:
        pytest.skip("the command runs below another parent here")
    (run,) = json.loads(coilclaw("sop", "status", "--json").stdout)
    refused = coilclaw("sop", "resume", run["id"])
    assert refused.returncode == 3
    assert b"whether it had an effect is unknown" in refused.stderr
    assert b"--redo" in refused.stderr
    assert coilclaw("sop", "resume", run["id"], "--note", "x").returncode == 2
    done = coilclaw("sop", "resume", run["id"], "--accept", "--note", "it\x1b is", "--json")
    assert done.returncode == 0, done.stderr
    (said,) = json.loads(done.stdout)["settlements"]
    assert (said["stage"], said["how"], said["note"]) == ("w", "accept", "it\x1b is")
    shown = coilclaw("sop", "status", run["id"]).stdout
    assert b"accepted by person " in shown
    assert b"\x1b" not in shown
    assert (agent.workspace / "log").read_text() == "x\n"


def test_status_and_lists_of_nothing(agent: AgentHome, coilclaw: Command) -> None:
    for arguments in (("sop", "status"), ("approvals", "list")):
        done = coilclaw(*arguments)
        assert (done.returncode, done.stdout) == (0, b"")
        assert told(coilclaw(*arguments, "--json")) == []
    assert coilclaw("sop", "status", "sop-1").returncode == 2
    assert not (agent.home / "sops").exists()
