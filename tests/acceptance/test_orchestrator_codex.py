"""The real Codex in whole runs: git and the project's own tests work in its shell, and no key does.

It needs the program: on PATH, or named by ``$COILCLAW_CODEX``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.runners import agent_program
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run_start import RunOptions
from tests.support.codexconfig import CODEX_CONFIG
from tests.support.runs import ADDS, FILES, World, opened
from tests.support.sandboxes import supported

pytestmark = pytest.mark.full

KEY = "sk-real-test-key-5"
TEST = (
    b"import sys\n\nsys.path.insert(0, '.')\nfrom pkg.calc import add\n\n\n"
    b"def test_add() -> None:\n    assert add(1, 2) == 3\n"
)
ACCEPTANCE = "pytest -q tests/test_calc.py"
PYTEST = f"{ACCEPTANCE} -p no:cacheprovider"
PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
ANSWER = json.dumps(
    {
        "task_id": "task-0001",
        "status": "SUCCESS",
        "summary": "It adds.",
        "evidence_refs": {},
        "failure": None,
    }
)


@dataclass
class Project:
    """A repository whose tests run in a virtual environment that only PATH leads to."""

    world: World

    @property
    def base(self) -> Path:
        return self.world.root / "codex-base"

    def install(self) -> None:
        """Make the environment; its pytest is that of these tests, and comes from no network."""
        place = self.world.root / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        (packages,) = place.glob("lib/python*/site-packages")
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None
            assert found.origin is not None
            origin = Path(found.origin)
            if origin.name == "__init__.py":
                shutil.copytree(origin.parent, packages / name)
            else:
                shutil.copy(origin, packages)
        script = place / "bin" / "pytest"
        script.write_text(f"#!{place}/bin/python\nimport pytest\nraise SystemExit(pytest.main())\n")
        script.chmod(0o755)
        self.world.environ["PATH"] = f"{place / 'bin'}:{self.world.environ['PATH']}"

    def outputs(self, runner: str, *commands: str) -> list[tuple[int | None, str]]:
        """Have Codex run commands, mend the sum and run the tests; what each command printed."""
        script: list[Any] = [{"shell": command} for command in commands]
        fix = {"path": "pkg/calc.py", "content": ADDS["pkg/calc.py"]}
        script += [{"write": fix}, {"shell": PYTEST}, {"text": ANSWER}]
        world = self.world
        with ModelServer(script) as server:
            self.base.mkdir()
            (self.base / "config.toml").write_text(CODEX_CONFIG.format(url=server.url))
            contract = world.contract(tests=[ACCEPTANCE], max_retries=0, timeout_sec=600)
            options = RunOptions(runner, "rules", merge=True, diagnostic=True)
            outcome = world.orchestrator().start(RunRequest(contract), options)
        world.ended(outcome)
        assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
        assert world.git("show", "--name-only", "--format=", "main") == "pkg/calc.py"
        told = (world.bundle(outcome.run_id) / "codex/task-0001/events.jsonl").read_text()
        parts = [json.loads(line) for line in told.splitlines()]
        shell = [part for part in parts if part.get("tool") == "shell"]
        return [(part.get("exit_code"), part.get("output", "")) for part in shell]


@pytest.fixture
def project() -> Iterator[Project]:
    supported("bubblewrap")
    try:
        program = agent_program.find(agent_program.KNOWN["codex"], os.environ)
    except EnvironmentFault as fault:
        pytest.skip(f"the real Codex is not tested with: {fault.message}")
    with opened({**FILES, "tests/test_calc.py": TEST}) as world:
        made = Project(world)
        made.install()
        world.environ |= {
            "COILCLAW_CODEX": str(program),
            "CORTEXPILOT_CODEX_BASE_HOME": str(made.base),
            "SCRIPTED_KEY": KEY,
        }
        yield made


@pytest.mark.parametrize("runner", ["codex", "codex-exec"])
def test_codex_uses_git_and_runs_the_tests_of_the_project(project: Project, runner: str) -> None:
    look = "git status --short && git log --format=%s && git config core.hooksPath"
    mine = (
        "echo x >> README.md && git add README.md && git diff --cached --stat && git restore -S ."
    )
    before = f"{PYTEST}; command -v pytest"
    outputs = project.outputs(runner, look, mine, "git restore README.md", before, "env")
    assert outputs[0] == (0, "first\n/dev/null\n")
    assert outputs[1][0] == 0
    assert "README.md | 1 +" in outputs[1][1]
    assert outputs[2] == (0, "")
    assert "1 failed" in outputs[3][1]
    assert outputs[3][1].endswith(f"{project.world.root}/venv/bin/pytest\n")
    assert KEY not in outputs[4][1]
    assert "SCRIPTED_KEY" not in outputs[4][1]
    assert outputs[5][0] == 0
    assert "1 passed" in outputs[5][1]
