"""What an orchestrated run costs besides agent and tests, and how well its workers share time."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.measurement import Measurement
from coilclaw.app.drivers import open_orchestrator
from coilclaw.kernel.messages import ChatRequest, ChatResponse, ProviderCapabilities
from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run import RoleModel
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.engine.run_start import RunOptions

DIRECTORIES = 200
FILES_EACH = 100
FILE_BYTES = 2000
ROUNDS = 3
WORKERS = 8
SLEEP_S = 8.0
OVERHEAD_TARGET = 3.0
PARALLEL_TARGET = 1.5
TEST = "python3 tests/check.py"


@contextmanager
def _place() -> Iterator[Path]:
    # The sandbox covers /tmp.
    place = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="coilclaw-bench-"))
    try:
        yield place
    finally:
        for top, folders, _ in os.walk(place):
            for folder in folders:
                if not os.path.islink(os.path.join(top, folder)):
                    os.chmod(os.path.join(top, folder), 0o700)
        shutil.rmtree(place)


def _git(root: Path, *arguments: str) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Bench",
        "GIT_AUTHOR_EMAIL": "bench@example.invalid",
        "GIT_COMMITTER_NAME": "Bench",
        "GIT_COMMITTER_EMAIL": "bench@example.invalid",
    }
    subprocess.run(
        ["git", *arguments], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL
    )


def _repository(root: Path, directories: int, files_each: int) -> None:
    chance = random.Random(1)
    words = [f"word{number}" for number in range(3000)]
    for number in range(directories):
        directory = root / f"area{number % 14}" / f"part{number}"
        directory.mkdir(parents=True)
        for index in range(files_each):
            text = " ".join(chance.choices(words, k=FILE_BYTES // 5)).encode()[:FILE_BYTES]
            (directory / f"file{index}.txt").write_bytes(text + b"\n")
    (root / "tests").mkdir()
    (root / "tests/check.py").write_text("assert True\n")
    (root / ".gitignore").write_text(".runtime-cache/\n")
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "everything")


def _floor(root: Path, place: Path) -> float:
    """What git needs for a worktree with one change in it."""
    worktree = place / "worktree"
    begun = time.perf_counter()
    _git(root, "worktree", "add", "-q", "--detach", str(worktree))
    worktree.joinpath("area0/part0/file0.txt").write_text("changed\n")
    _git(worktree, "status", "--short")
    _git(worktree, "diff")
    took = time.perf_counter() - begun
    _git(root, "worktree", "remove", "--force", str(worktree))
    return took


@dataclass
class _Fixed:
    """A Tech Lead that always says the same."""

    answer: str
    name: str = "fixed"

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=False, streaming=False)

    def chat(self, _: ChatRequest) -> ChatResponse:
        return ChatResponse(self.answer)


@dataclass
class _Watch:
    """Adds up how long agents and commands took, from what a run tells."""

    begun: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def __call__(self, event: Mapping[str, object]) -> None:
        now = time.perf_counter()
        kind, task = str(event["event_type"]), str(event["task_id"])
        if kind == "COMMAND_STARTED":
            self.begun[task] = now
        elif kind == "COMMAND_FINISHED" and task in self.begun:
            self.seconds += now - self.begun.pop(task)


def _run(
    root: Path,
    home: Path,
    contract: bytes,
    script: Mapping[str, Any],
    watch: _Watch,
    answer: str = "",
) -> RunOutcome:
    path = home / "script.json"
    path.write_text(json.dumps(script))
    interpreter = Path(os.path.realpath(sys.executable)).parent
    orchestrator = open_orchestrator(root, home, {"PATH": f"{interpreter}:/usr/bin:/bin"})
    lead = RoleModel(_Fixed(answer), "fixed")
    made = orchestrator.equipment

    def timed(name: str, contract: Any) -> Any:
        return _Timed(made.runner(name, contract), watch)

    equipment = replace(made, model=lambda _: lead, runner=timed)
    orchestrator.__dict__["equipment"] = equipment
    outcome = orchestrator.start(RunRequest(contract), RunOptions(f"scripted:{path}"), watch)
    assert outcome.status == "passed", outcome.reason
    return outcome


@dataclass
class _Timed:
    """A runner that tells how long it was at work."""

    runner: Any
    watch: _Watch

    @property
    def name(self) -> str:
        return str(self.runner.name)

    def perform(self, assignment: Any, means: Any) -> Any:
        begun = time.perf_counter()
        ending = yield from self.runner.perform(assignment, means)
        self.watch.seconds += time.perf_counter() - begun
        return ending


def _overhead(place: Path) -> Measurement:
    root, home = place / "large", place / "home"
    root.mkdir()
    home.mkdir()
    _repository(root, DIRECTORIES, FILES_EACH)
    written = "area0/part0/file0.txt"
    contract = draft_contract(
        "Change a line.", [written], [TEST], policies=PolicySet.read_shipped()
    )
    data = json.dumps(contract.json()).encode()
    pairs = []
    for number in range(ROUNDS):
        theirs = _floor(root, place)
        watch = _Watch()
        script = {"turns": [[{"write": {written: f"changed {number}\n"}}]]}
        begun = time.perf_counter()
        _run(root, home, data, script, watch)
        pairs.append((time.perf_counter() - begun - watch.seconds, theirs))
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = ours / theirs
    return Measurement(
        "run without agent and tests / git worktree add + status + diff",
        ratio,
        f"<= {OVERHEAD_TARGET:g}",
        ratio <= OVERHEAD_TARGET,
        f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms, {DIRECTORIES * FILES_EACH} files",
    )


def _parallel(place: Path) -> Measurement:
    root, home = place / "small", place / "home2"
    root.mkdir()
    home.mkdir()
    _repository(root, WORKERS, 4)
    scopes = [f"area{number}/part{number}" for number in range(WORKERS)]
    contract = draft_contract(
        "Change a line each.", scopes, [TEST], policies=PolicySet.read_shipped(), role="TECH_LEAD"
    )
    permissions = {
        "filesystem": "workspace-write",
        "shell": "never",
        "network": "deny",
        "mcp_tools": [],
    }
    answer = {
        "tasks": [
            {
                "name": f"w{number}",
                "role": "WORKER",
                "spec": "Change a line.",
                "allowed_paths": [scope],
                "acceptance_tests": [],
                "tool_permissions": permissions,
                "locks": [],
            }
            for number, scope in enumerate(scopes)
        ],
        "summary": "Apart.",
        "risks": [],
    }
    turns = {
        f"*-w{number}": [[{"sleep_s": SLEEP_S}, {"write": {f"{scope}/file0.txt": "changed\n"}}]]
        for number, scope in enumerate(scopes)
    }
    data = json.dumps(contract.json()).encode()
    begun = time.perf_counter()
    _run(root, home, data, {"tasks": turns}, _Watch(), json.dumps(answer))
    took = time.perf_counter() - begun
    ratio = took / SLEEP_S
    return Measurement(
        f"{WORKERS} sleeping workers / the slowest",
        ratio,
        f"<= {PARALLEL_TARGET:g}",
        ratio <= PARALLEL_TARGET,
        f"{took:.1f} s for a whole run with workers of {SLEEP_S:g} s",
    )


def run() -> list[Measurement]:
    """Compare a run on a large repository with plain git, and eight workers with one."""
    with _place() as place:
        return [_overhead(place), _parallel(place)]
