"""``trace`` with the real Codex and the real opencode, as a user runs it, against a scripted model.

They need the programs: ``$COILCLAW_CODEX`` and ``$COILCLAW_OPENCODE`` name where they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import UsageError
from coilclaw.runners import agent_program, runner
from coilclaw.traces.trajectory.plan import TracePlaces
from coilclaw.traces.trajectory.trace import Trace, load_trace
from tests.support.children import PATIENCE_S, marker, running
from tests.support.codexconfig import CODEX_CONFIG
from tests.support.environments import BUILD, STORE
from tests.support.sandboxes import UNCOVERED, supported

pytestmark = pytest.mark.full

ID = "real"
KEY = "sk-real-test-key-9"
TRACE = [sys.executable, "-c", "from coilclaw.cli.traces.trace import main; main()"]
COILCLAW = [sys.executable, "-m", "coilclaw"]
PATCH = "*** Begin Patch\n*** Update File: build.sh\n@@\n-exit 1\n+exit 9\n*** End Patch\n"


@dataclass(frozen=True)
class Agent:
    """What is different from agent to agent."""

    name: str
    variable: str
    edit: dict[str, Any]
    """Has it change ``exit 1`` in build.sh to ``exit 9``."""
    edited: str
    """The tool that the part of the edit names."""
    tests: str
    """How its model calls the tests, and how the part names them."""
    tested: str
    patience_s: int
    """How long to wait for a model that hangs."""
    commits: bool
    """Whether it lets its commands make a repository."""
    model: tuple[str, ...] = ()
    """What has it offer the tests without a search."""


CODEX_EDIT = {"shell": f"apply_patch <<'EOF'\n{PATCH}EOF\n"}
AGENTS = {
    "codex": Agent(
        "codex",
        "COILCLAW_CODEX",
        CODEX_EDIT,
        "apply_patch",
        "mcp__coilclaw/run_tests",
        "coilclaw/run_tests",
        5,
        False,
        ("--model", "scripted"),
    ),
    "codex-exec": Agent(
        "codex-exec",
        "COILCLAW_CODEX",
        CODEX_EDIT,
        "apply_patch",
        "mcp__coilclaw/run_tests",
        "coilclaw/run_tests",
        5,
        False,
        ("--model", "scripted"),
    ),
    "opencode": Agent(
        "opencode",
        "COILCLAW_OPENCODE",
        {
            "tool_calls": [
                {
                    "name": "edit",
                    "arguments": {
                        "filePath": "build.sh",
                        "oldString": "exit 1",
                        "newString": "exit 9",
                    },
                }
            ]
        },
        "edit",
        "coilclaw_run_tests",
        "coilclaw_run_tests",
        8,
        True,
    ),
}
SOLVES = [
    {"write": {"path": "kv.py", "content": STORE}},
    {"text": "Now the build.", "shell": f"printf %s {shlex.quote(BUILD)} > build.sh"},
    {"text": "Done."},
]


@dataclass
class World:
    """A home and settings of both agents, outside of /tmp, which sandboxes cover."""

    folder: Path
    agent: Agent
    program: Path
    requests: list[Any] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def workspace(self) -> Path:
        return TracePlaces(self.home, ID).workspace

    @property
    def trace(self) -> Trace:
        return load_trace(TracePlaces(self.home, ID).document)

    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "COILCLAW_HOME": str(self.home),
            "CORTEXPILOT_CODEX_BASE_HOME": str(self.folder / "codex"),
            "COILCLAW_OPENCODE_SETTINGS": str(self.folder / "opencode.json"),
            self.agent.variable: os.environ[self.agent.variable],
            "SCRIPTED_KEY": KEY,
        }

    @contextmanager
    def model(self, script: Any) -> Iterator[None]:
        """Have the agents' model play a script."""
        with ModelServer(script) as server:
            (self.folder / "codex" / "config.toml").write_text(CODEX_CONFIG.format(url=server.url))
            (self.folder / "opencode.json").write_text(json.dumps(_opencode(server.url)))
            yield
            self.requests = list(server.requests)

    @contextmanager
    def recording(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Record in the background; whatever happens, it ends with the block."""
        words = words if "--resume" in words else ("--agent", self.agent.name, *words)
        process = subprocess.Popen(
            [*TRACE, "--trajectory-id", ID, "--json", *words],
            cwd=self.folder,
            env=self.environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def record(self, *words: str) -> tuple[int, Any, str]:
        """Record to the end: exit code, how the session ended, what was said."""
        if "--resume" not in words:
            words = ("--environment", "kv_store", *words)
        with self.recording(*words) as process:
            out, err = process.communicate(timeout=4 * PATIENCE_S)
        assert '"session_end"' in out, (process.returncode, out, err)
        return process.returncode, json.loads(out)["session_end"], err

    def verified(self) -> bool:
        words = [*COILCLAW, "trace", "verify", ID]
        done = subprocess.run(words, env=self.environ(), capture_output=True, check=False)
        assert done.returncode == 0, done
        return KEY not in TracePlaces(self.home, ID).document.read_text()

    def agents_of(self, process: subprocess.Popen[str]) -> list[int]:
        """The processes of the agent that a recording has started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _exe(int(entry.name)) == str(self.program):
                pid = int(entry.name)
                while pid > 1 and pid != process.pid:
                    pid = _parent(pid)
                found += [int(entry.name)] if pid == process.pid else []
        return found


def _opencode(url: str) -> dict[str, Any]:
    model = {"name": "S", "tool_call": True, "limit": {"context": 128000, "output": 8192}}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:SCRIPTED_KEY}"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": options,
        "models": {"scripted": model},
    }
    return {"model": "scripted/scripted", "provider": {"scripted": provider}}


def _exe(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _until(what: Any) -> None:
    end = time.monotonic() + 4 * PATIENCE_S  # Agents take long to start on a busy machine.
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _world(name: str) -> Iterator[World]:
    agent = AGENTS[name]
    supported("bubblewrap")
    if not os.environ.get(agent.variable):
        pytest.skip(f"the real {name} is not traced: {agent.variable} does not name it")
    folder = Path(tempfile.mkdtemp(prefix="coilclaw-agents-", dir=UNCOVERED))
    try:
        try:
            program = agent_program.require(runner.parse(name), os.environ, folder)
        except UsageError as missing:
            pytest.skip(f"the real {name} is not traced: {missing.message}")
        assert program is not None
        (folder / "home").mkdir(mode=0o700)
        (folder / "codex").mkdir()
        yield World(folder, agent, program)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=AGENTS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from _world(request.param)


@pytest.fixture(params=["codex", "opencode"])
def either(request: pytest.FixtureRequest) -> Iterator[World]:
    yield from _world(request.param)


@pytest.mark.parametrize(
    ("name", "missing"), [("codex", "codex"), ("codex-exec", "codex"), ("opencode", "opencode")]
)
def test_an_agent_that_is_not_there_is_asked_for_before_anything_is_made(
    name: str, missing: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [*TRACE, "--agent", name, "--environment", "kv_store"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "COILCLAW_HOME": str(tmp_path / "h")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"coilclaw agents install {missing}" in done.stderr
    assert "TRAJECTORY_ID" not in done.stderr
    assert not list(tmp_path.rglob("trajectories"))


def test_texts_commands_edits_failures_and_tests_are_parts(world: World) -> None:
    agent = world.agent
    call = {"name": agent.tests, "arguments": {"test_path": "basics"}}
    script = [
        {"text": "I look.", "shell": "cat build.sh"},
        agent.edit,
        {"shell": "echo no; exit 3"},
        {"shell": "git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm x"},
        {"tool_calls": [call]},
        {"text": "That is all."},
    ]
    with world.model(script):
        code, end, said = world.record("--max-turns", "1", "--raw", *agent.model)
    assert (code, end["reason"], end["total_parts"]) == (1, "turn_limit", 7), (end, said)
    parts = world.trace.parts
    assert [(part.part_type, part.tool_name, part.tool_exit_code) for part in parts] == [
        ("text", None, None),
        ("tool", "shell", 0),
        ("patch", agent.edited, None),
        ("tool", "shell", 3),
        ("tool", "shell", 0 if agent.commits else 128),
        ("tool", agent.tested, None),
        ("text", None, None),
    ]
    look, edit, failed, committed, tested = parts[1:6]
    assert "nothing to build yet" in str(look.tool_output)
    assert edit.files == ("build.sh",)
    changed = [part.repo_checkpoint for part in parts]
    assert [None if one is None else one.changed_files for one in changed] == [
        *(None, None, ("build.sh",)),
        *[None] * 4,
    ]
    assert failed.tool_output == "no\n"
    noticed = [*[False] * 4, agent.commits, False, False]
    assert [part.agent_commit is not None for part in parts] == noticed
    assert committed.git_commit == edit.git_commit
    (envoi,) = tested.envoi_calls
    assert envoi.path == "basics"
    assert "build" in str(tested.tool_output)
    assert json.loads(str(tested.tool_input)) == {"test_path": "basics"}
    assert all(json.loads(str(part.raw)) for part in parts)
    trace = world.trace
    assert trace.versions["agent"] in str(agent_program.version_of(world.program, os.environ))
    # From the first part on, for the agent names its session before it works.
    assert {part.session_id for part in parts} == {trace.session_id}
    assert not trace.session_id.startswith("pending-")
    assert trace.turns[0].token_usage is not None
    assert world.verified()


def test_the_harness_is_killed_in_the_first_turn_and_the_session_goes_on(world: World) -> None:
    mark = marker()
    first = [
        {"text": "I begin.", "write": {"path": "note", "content": "1\n"}},
        {"shell": f"echo 2 > lost; sleep {mark}"},
        {"text": "Never."},
    ]
    with world.model({"turns": [first, SOLVES]}):
        with world.recording("--environment", "kv_store") as process:
            _until(lambda: running(mark) and (world.workspace / "lost").exists())
            process.send_signal(signal.SIGKILL)
            process.wait()
            _until(lambda: not running(mark))
        code, end, said = world.record("--resume")
    assert (code, end["reason"], end["total_turns"]) == (0, "solved", 2), (end, said)
    trace = world.trace
    assert [part.part for part in trace.parts] == list(range(1, end["total_parts"] + 1))
    killed, solved = trace.turns
    assert (killed.status, solved.part_start) == ("killed", (killed.part_end or 0) + 1)
    assert [part.content for part in trace.parts[:1]] == ["I begin."]
    assert trace.parts[-1].content == "Done."
    # The second question of one session: the model is sent what was said before.
    assert killed.session_id == solved.session_id == trace.session_id
    assert "I begin." in json.dumps(world.requests[-1].body)
    (resumption,) = trace.resumptions
    assert resumption.leftover is not None
    assert world.verified()


def test_the_agent_is_killed_in_the_first_turn_and_goes_on_later(either: World) -> None:
    mark = marker()
    turns = [
        [{"text": "One.", "shell": f"sleep {mark}"}],
        [{"text": "Two."}],
    ]
    world = either
    with world.model({"turns": turns}):
        with world.recording("--environment", "kv_store", "--max-turns", "1") as process:
            _until(lambda: running(mark))
            for pid in world.agents_of(process):
                # The others may die with the first one.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, _ = process.communicate(timeout=2 * PATIENCE_S)
        end = json.loads(out)["session_end"]
        assert (process.returncode, end["reason"]) == (4, "agent_error")
        assert "did not finish" in end["detail"]
        assert running(mark) == []
        code, end, _ = world.record("--resume", "--max-turns", "2")
    assert (code, end["reason"]) == (1, "turn_limit")
    trace = world.trace
    assert [turn.status for turn in trace.turns] == ["aborted", "done"]
    texts = [part.content for part in trace.parts if part.part_type == "text"]
    assert texts == ["One.", "Two."]
    assert len({turn.session_id for turn in trace.turns}) == 1
    assert world.verified()


def test_a_model_that_refuses(either: World) -> None:
    refusal = {"text": "I will not.", "stop": "content_filter"}
    with either.model([refusal, {"text": "No."}]):
        code, end, said = either.record("--max-turns", "1")
    texts = [part.content for part in either.trace.parts]
    if either.agent.name == "opencode":
        assert (code, end["reason"], texts) == (4, "agent_error", ["I will not."]), said
        assert end["detail"] == "The agent refused to continue."
    else:  # Codex asks the model once more.
        assert (code, end["reason"], texts) == (1, "turn_limit", ["I will not.", "No."]), said
    assert either.verified()


@pytest.mark.parametrize("name", ["codex", "codex-exec"])
def test_a_model_that_refuses_with_an_error_ends_it(name: str) -> None:
    body = {"error": {"message": "this is against the rules", "type": "policy"}}
    with contextmanager(_world)(name) as world:
        with world.model([{"status": 400, "body": body}]):
            code, end, said = world.record()
        assert (code, end["reason"], end["total_parts"]) == (4, "agent_error", 0), (end, said)
        assert "this is against the rules" in end["detail"]
        assert world.verified()


def test_a_model_that_hangs_is_left_when_time_is_up(either: World) -> None:
    script = [{"text": "One.", "shell": "echo 1 > one"}, {"hang": True}]
    with either.model(script):
        code, end, said = either.record("--timeout", str(either.agent.patience_s))
    assert (code, end["reason"]) == (1, "timeout"), (end, said)
    assert 0 <= end["elapsed_ms"] - either.agent.patience_s * 1000 < PATIENCE_S * 1000
    # What came before is kept, as far as it came: on a busy machine an agent takes long to start.
    kinds = [part.part_type for part in either.trace.parts]
    assert kinds == ["text", "tool"][: len(kinds)]
    assert either.trace.turns[0].status in ("aborted", "exhausted")
    assert either.verified()


def test_a_stream_that_is_cut_costs_nothing_that_was_told(either: World) -> None:
    faults, whole = [{"cut": {"after_events": 3}}], "A text that is cut in its middle."
    script = [
        {"text": "One.", "shell": "echo 1 > one"},
        {"text": whole, "faults": faults},
    ]
    with either.model({"stateful": True, "answers": script}):
        code, end, said = either.record("--max-turns", "1")
    assert (code, end["reason"]) == (1, "turn_limit"), (end, said)
    first, second = [part.content for part in either.trace.parts if part.part_type == "text"]
    assert (first, second.endswith(whole)) == ("One.", True)
    # opencode may tell what it got before the cut, and then all of it again.
    assert whole.startswith(second.removesuffix(whole))
    assert either.verified()


@pytest.mark.parametrize("name", ["codex", "codex-exec"])
def test_a_stream_that_is_always_cut_ends_it(name: str) -> None:
    """opencode tries again for longer than anybody waits: there the time is what ends it."""
    script = [{"text": "One.", "shell": "echo 1 > one"}, {"text": "A text.", "cut": True}]
    with contextmanager(_world)(name) as world:
        with world.model(script):
            code, end, said = world.record("--timeout", "600")
        assert (code, end["reason"]) == (4, "agent_error"), (end, said)
        assert end["detail"].startswith("Codex failed: stream disconnected before completion")
        assert [part.part_type for part in world.trace.parts] == ["text", "tool"]
        assert world.verified()
