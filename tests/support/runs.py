"""A repository, a home and an orchestrator: whole runs, with real git and scripted agents."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from coilclaw.app.drivers import open_orchestrator
from coilclaw.kernel.errors import ProviderError
from coilclaw.kernel.messages import ChatRequest, ChatResponse, Json, ProviderCapabilities
from coilclaw.runs.contracts.draft import complete_contract, draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import TaskContract
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run import RoleModel
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.engine.run_start import RunOptions
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.runs.orchestrator import Orchestrator, WaitTerms
from tests.support.sandboxes import UNCOVERED
from tests.support.snapshot_trees import Content, build, git

FILES: dict[str, Content] = {
    ".gitignore": b"build/\n*.log\n__pycache__/\n",
    "README.md": b"# Sums\n",
    "docs/guide.md": b"# How to sum\n",
    "pkg/__init__.py": b"",
    "pkg/calc.py": b"def add(a, b):\n    return a - b\n",
    "pkg/text.py": b"def shout(words):\n    return words\n",
    "pkg/names.py": b"def first(names):\n    return names[-1]\n",
    "other/outside.txt": b"not yours\n" * 20,
    "other/tool.sh": b"#!/bin/sh\nexit 0\n",
    "tests/check_calc.py": b"import sys\n\nsys.path.insert(0, '.')\nfrom pkg.calc import add\n\n"
    b"assert add(1, 2) == 3, 'add does not add'\nassert add(2, 2) == 4\n",
    "tests/check_text.py": b"import sys\n\nsys.path.insert(0, '.')\nfrom pkg.text import shout\n\n"
    b"assert shout('hey') == 'HEY', 'nobody shouts'\n",
    "tests/check_names.py": b"import sys\n\nsys.path.insert(0, '.')\n"
    b"from pkg.names import first\n\nassert first(['a', 'b']) == 'a', 'not the first'\n",
}
CALC, TEXT, NAMES = (f"python3 tests/check_{name}.py" for name in ("calc", "text", "names"))
ADDS = {"pkg/calc.py": "def add(a, b):\n    return a + b\n"}
SHOUTS = {"pkg/text.py": "def shout(words):\n    return words.upper()\n"}
FIRST = {"pkg/names.py": "def first(names):\n    return names[0]\n"}

Part: TypeAlias = Mapping[str, Any]
Turns: TypeAlias = Sequence[Sequence[Part]]
Said: TypeAlias = "Json | ProviderError"


@dataclass
class Answering:
    """A provider that gives the same answer each time; a text is said as it is."""

    answer: Said
    asked: list[ChatRequest] = field(default_factory=list)
    name: str = "answering"

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=False, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        self.asked.append(request)
        if isinstance(self.answer, ProviderError):
            raise self.answer
        said = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
        return ChatResponse(said)


@dataclass
class World:
    """One repository and everything that its runs need; nothing of it lies below ``/tmp``."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    models: dict[str, Answering] = field(default_factory=dict)
    terms: WaitTerms = field(default_factory=WaitTerms)
    changes: dict[str, Any] = field(default_factory=dict)
    """What replaces fields of the equipment."""
    events: list[Mapping[str, object]] = field(default_factory=list)
    """What the last run told."""

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def runtime(self) -> Path:
        return self.repo / ".runtime-cache" / "cortexpilot"

    def orchestrator(self) -> Orchestrator:
        made = open_orchestrator(self.repo, self.home, self.environ, terms=self.terms)
        models = {role: RoleModel(provider, "model-x") for role, provider in self.models.items()}
        equipment = replace(made.equipment, model=models.get, **self.changes)
        made.__dict__["equipment"] = equipment
        return made

    def script(self, *turns: Sequence[Part], name: str = "agent") -> str:
        """Keep a script for every task; return the name of the runner that plays it."""
        return self._script({"turns": turns}, name)

    def script_for(self, tasks: Mapping[str, Turns], name: str = "agent") -> str:
        """Keep a script for each task."""
        return self._script({"tasks": tasks}, name)

    def _script(self, value: Mapping[str, Any], name: str) -> str:
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(value))
        return f"scripted:{path}"

    def program(self, source: str, name: str = "agent") -> str:
        """Keep a Python program; return the name of the runner that starts it."""
        path = self.root / f"{name}.py"
        path.write_text(source)
        return f"process:{os.path.realpath(sys.executable)} -I {path}"

    def contract(
        self,
        paths: Sequence[str] = ("pkg/calc.py",),
        tests: Sequence[str] = (CALC,),
        *,
        spec: str = "Make add add.",
        task_id: str = "task-0001",
        change: Callable[[TaskContract], TaskContract] = lambda contract: contract,
        **options: Any,
    ) -> bytes:
        """Return a contract as somebody would write it; ``change`` has the last word."""
        policies = PolicySet.read_shipped()
        options = {"max_retries": 1, "timeout_sec": 60, **options}
        made = draft_contract(spec, paths, tests, policies=policies, task_id=task_id, **options)
        return json.dumps(complete_contract(change(made), policies).json()).encode()

    def run(
        self,
        contract: bytes | None = None,
        runner: str = "",
        *,
        sentence: str = "",
        reviewer: str = "rules",
        merge: bool = False,
        baseline: bool = False,
    ) -> RunOutcome:
        """Carry out a run; without a contract it is the usual one, unless there is a sentence."""
        if contract is None and not sentence:
            contract = self.contract()
        self.events = []
        agent = runner or self.script([{"write": ADDS}])
        options = RunOptions(agent, reviewer, merge, baseline=baseline)
        return self.orchestrator().start(
            RunRequest(contract, sentence), options, self.events.append
        )

    def resume(self, run_id: str) -> RunOutcome:
        self.events = []
        return self.orchestrator().resume(run_id, self.events.append)

    def bundle(self, run_id: str) -> Path:
        return self.runtime / "runs" / run_id

    def read(self, run_id: str, path: str) -> Any:
        """What a JSON file of a bundle holds."""
        return json.loads((self.bundle(run_id) / path).read_bytes())

    def recorded(self, run_id: str) -> list[dict[str, Any]]:
        lines = (self.bundle(run_id) / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def kinds(self, run_id: str) -> list[str]:
        return [str(event["event_type"]) for event in self.recorded(run_id)]

    def of(self, run_id: str, kind: str) -> list[dict[str, Any]]:
        """The payloads of all events of a kind."""
        found = self.recorded(run_id)
        return [event["payload"] for event in found if event["event_type"] == kind]

    def gates(self, run_id: str) -> dict[str, bool]:
        """The last word of each gate."""
        return {
            str(event["payload"]["gate"]): bool(event["payload"]["passed"])
            for event in self.recorded(run_id)
            if "passed" in event["payload"]
        }

    def git(self, *arguments: str) -> str:
        return git(self.repo, *arguments).decode(errors="replace").strip()

    def ended(self, outcome: RunOutcome) -> RunOutcome:
        """Check what holds for every run that has ended: its seal, and that nothing is left."""
        self.sealed(outcome)
        left = self.left(outcome.run_id)
        assert not left, left
        return outcome

    def sealed(self, outcome: RunOutcome) -> RunOutcome:
        """Check the seal alone."""
        report = verify_run(self.bundle(outcome.run_id), key_path=self.home / "keys/journal.key")
        assert not report.errors, report.errors
        assert outcome.manifest is not None
        return outcome

    def left(self, run_id: str) -> list[str]:
        """What a run left that is not evidence."""
        found = [
            str(path.relative_to(self.root))
            for place in ("worktrees", "homes", "active", "owners")
            for path in sorted((self.runtime / place).rglob("*"))
        ]
        found += [str(path) for path in (self.runtime / "locks").glob("*.lock")]
        found += [str(path) for path in (self.repo / ".git/worktrees").glob("*")]
        for place in ("worktrees", "objects"):
            found += [str(path) for path in (self.runtime / "git/coilclaw" / place).glob("*")]
        # Half of an atomic write in what all runs share may be that of a run that goes on.
        found += [str(path) for path in self.runtime.rglob(".coilclaw-gone-*")]
        found += [str(path) for path in (self.repo / ".git").glob(".coilclaw-*")]
        found += [str(path) for path in (self.repo / ".git").rglob("*.lock")]
        runs = os.listdir(self.runtime / "runs")
        assert run_id in runs
        allowed = ("refs/heads/", *(f"refs/coilclaw/runs/{name}/" for name in runs))
        refs = self.git("for-each-ref", "--format=%(refname)").splitlines()
        found += [ref for ref in refs if not ref.startswith(allowed)]
        return found


@contextmanager
def opened(files: Mapping[str, Content] = FILES, below: str = UNCOVERED) -> Iterator[World]:
    """Make a world, and remove it."""
    root = Path(tempfile.mkdtemp(dir=below, prefix="coilclaw-run-"))
    try:
        build(root / "repo", files)
        (root / "home").mkdir()
        interpreter = Path(os.path.realpath(sys.executable)).parent
        world = World(root, {"PATH": f"{interpreter}:/usr/bin:/bin", "HOME": str(root / "user")})
        world.git("init", "-q", "-b", "main")
        world.git("add", "-A")
        world.git("commit", "-q", "-m", "first")
        # As 'init --repo' does it: the runtime root is nobody's work.
        (root / "repo/.git/info").mkdir(exist_ok=True)
        (root / "repo/.git/info/exclude").write_text(".runtime-cache/\n")
        yield world
    finally:
        _remove(root)


def _remove(root: Path) -> None:
    for top, folders, _ in os.walk(root):
        for folder in folders:
            path = os.path.join(top, folder)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(root)


def task(name: str, paths: Sequence[str], tests: Sequence[str], **more: Any) -> dict[str, Json]:
    """One task of a Tech Lead's answer."""
    return {
        "name": name,
        "role": "WORKER",
        "spec": f"Do {name}.",
        "allowed_paths": list(paths),
        "acceptance_tests": [
            {"name": f"{name}-{number}", "cmd": cmd, "must_pass": True, "timeout_sec": 60}
            for number, cmd in enumerate(tests)
        ],
        "tool_permissions": {
            "filesystem": "workspace-write",
            "shell": "never",
            "network": "deny",
            "mcp_tools": [],
        },
        "locks": [],
        **more,
    }


def split(*tasks: Json) -> dict[str, Json]:
    """A Tech Lead's answer."""
    return {"tasks": list(tasks), "summary": "Apart.", "risks": []}
