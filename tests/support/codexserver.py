"""A Codex app-server that plays a script: a real process that speaks the real protocol.

Each action of a script is a dictionary with one key:

    send     a message, sent as it is
    raw      a text, written without anything added
    filler   so many bytes without a line feed
    ask      [method, params]: a request; the answer to it is awaited
    until    wait for a request of this method, and answer it with an empty result
    sleep    seconds
    spawn    start `sleep NUMBER` as a process of its own session
    touch    make an empty file
    complain a line on standard error
    die      a signal for itself
    exit     an exit code

``$T`` and ``$U`` in messages stand for the ids of the thread and the turn. Everything that comes in
is written to ``received.jsonl`` beside the home; the environment and the files of the home to
``seen.json``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply, Budget, Part, Usage
from coilclaw.runners.agent_requests import Denial
from coilclaw.runners.codex.runner import CodexRunner
from coilclaw.runners.runner import AgentRequest, Assignment, Ending, Means
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import Sandbox, SandboxSupport

THREAD = "thread-1"
TURN = "turn-1"
VERSION = "9.8.7"

_SERVER = """
import json, os, signal, subprocess, sys, time
script = json.loads({script!r})
home = os.environ["CODEX_HOME"]
log = open(os.path.join(home, "..", "received.jsonl"), "a")
modes = {{}}
for name in sorted(os.listdir(home)):
    full = os.path.join(home, name)
    if os.path.isdir(full):
        continue
    with open(full) as file:
        modes[name] = [oct(os.stat(full).st_mode & 0o777), file.read()]
with open(os.path.join(home, "..", "seen.json"), "w") as file:
    json.dump({{"argv": sys.argv[1:], "environ": dict(os.environ), "home": modes}}, file)
ids = 0

def send(message):
    text = json.dumps(message).replace("$T", {thread!r}).replace("$U", {turn!r})
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()

def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    log.write(line)
    log.flush()
    return json.loads(line)

def await_method(method):
    while True:
        message = receive()
        if message.get("method") == method:
            return message

def act(action):
    global ids
    (word, value), = action.items()
    if word == "send":
        send(value)
    elif word == "raw":
        sys.stdout.write(value)
        sys.stdout.flush()
    elif word == "filler":
        sys.stdout.write("x" * value)
        sys.stdout.flush()
    elif word == "ask":
        given = value[1]
        if isinstance(given, dict):
            given = {{"threadId": "$T", "turnId": "$U", **given}}
        send({{"id": ids, "method": value[0], "params": given}})
        ids += 1
        while "method" in receive():
            pass
    elif word == "until":
        send({{"id": await_method(value)["id"], "result": {{}}}})
    elif word == "sleep":
        time.sleep(value)
    elif word == "spawn":
        subprocess.Popen(["sleep", value], start_new_session=True)
    elif word == "touch":
        with open(value, "w"):
            pass
    elif word == "complain":
        print(value, file=sys.stderr, flush=True)
    elif word == "die":
        os.kill(os.getpid(), value)
    elif word == "exit":
        os._exit(value)

start = await_method("initialize")
for action in script["first"]:
    act(action)
send({{"id": start["id"], "result": {{"userAgent": "coilclaw/{version} (Test)"}}}})
while True:
    message = receive()
    if message.get("method") in ("thread/start", "thread/resume"):
        break
send({{"id": message["id"], **script["thread"]}})
message = await_method("turn/start")
with open(os.path.join(home, "..", "later.json"), "w") as file:
    json.dump(sorted(os.listdir(home)), file)
send({{"id": message["id"], **script["turn"]}})
for action in script["actions"]:
    act(action)
while True:
    receive()
"""


def item(kind: str, name: str = "i1", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, **fields}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"send": {"method": method, "params": {"threadId": "$T", "turnId": "$U", **params}}}


def started(value: dict[str, Any]) -> dict[str, Any]:
    return notice("item/started", item=value)


def completed(value: dict[str, Any]) -> dict[str, Any]:
    return notice("item/completed", item=value)


def raw_item(**fields: Any) -> dict[str, Any]:
    return notice("rawResponseItem/completed", item=fields)


def usage(total: tuple[int, int], last: tuple[int, int], turn: str = "$U") -> dict[str, Any]:
    counted = {
        name: {"inputTokens": read, "outputTokens": written}
        for name, (read, written) in (("total", total), ("last", last))
    }
    return notice("thread/tokenUsage/updated", tokenUsage=counted, turnId=turn)


def end(status: str = "completed", message: str = "") -> dict[str, Any]:
    error = {"message": message} if message else None
    return notice("turn/completed", turn={"id": "$U", "status": status, "error": error})


def raw_of(action: dict[str, Any]) -> str:
    """The line that a ``send`` action becomes."""
    return json.dumps(action["send"]).replace("$T", THREAD).replace("$U", TURN)


@dataclass
class World:
    """A worktree, a home, and a server to play scripts."""

    root: Path
    support: SandboxSupport
    asked: list[AgentRequest] = field(default_factory=list)
    denied: list[Denial] = field(default_factory=list)
    counted: list[Usage] = field(default_factory=list)
    approve: bool = True
    cancel: Cancellation = field(default_factory=Cancellation)
    base: Path | None = None
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in (self.tree, self.home):
            path.mkdir()
        if self.base is None:
            self.base = self.root / "base"
            self.base.mkdir()
            (self.base / "config.toml").write_text(
                'model_provider = "p"\n[model_providers.p]\nbase_url = "http://127.0.0.1:40009/v1"\n'
            )

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def received(self) -> list[dict[str, Any]]:
        lines = (self.home / "received.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What the server's requests were answered with."""
        return [message for message in self.received if "method" not in message]

    def seen(self, name: str = "seen.json") -> Any:
        return json.loads((self.home / name).read_text())

    def assignment(self, **changes: Any) -> Assignment:
        given: dict[str, Any] = {
            "task_id": "task-1",
            "instruction": "Do it.",
            "contract": {},
            "directory": self.tree,
            "home": self.home,
            "sandbox": Sandbox("bubblewrap", writable=(self.tree, self.home), private_tmp=False),
            "environ": {"PATH": os.environ["PATH"], "HOME": str(self.home)},
            "budget": Budget(wall_s=600.0),
        }
        return Assignment(**(given | changes))

    def program(self, *actions: dict[str, Any], **script: Any) -> Path:
        played: dict[str, Any] = {
            "first": [],
            "thread": {"result": {"thread": {"id": "$T"}}},
            "turn": {"result": {"turn": {"id": "$U"}}},
            "actions": list(actions),
        }
        text = _SERVER.format(
            script=json.dumps(played | script), thread=THREAD, turn=TURN, version=VERSION
        )
        path = self.root / "codex"
        path.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{text}")
        path.chmod(0o755)
        return path

    def begin(
        self,
        program: Path,
        approve: Callable[[AgentRequest], ApprovalAnswer] | None = None,
        **changes: Any,
    ) -> Generator[Part, None, Ending]:
        runner = CodexRunner(executable=program, base_home=self.base)
        means = Means(
            approve=approve or self._approve,
            cancel=self.cancel,
            support=self.support,
            on_denied=self.denied.append,
            on_usage=self.counted.append,
        )
        return runner.perform(self.assignment(**changes), means)

    def play(self, *actions: dict[str, Any], **changes: Any) -> Ending:
        """Play a script to its end; ``script`` among the changes replaces parts of it."""
        script = changes.pop("script", {})
        return self.through(self.begin(self.program(*actions, **script), **changes))

    def through(self, performance: Generator[Part, None, Ending]) -> Ending:
        while True:
            try:
                self.parts.append(next(performance))
            except StopIteration as stop:
                ending: Ending = stop.value
                return ending

    def _approve(self, request: AgentRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(ApprovalReply.YES if self.approve else ApprovalReply.NO, "person ann")
