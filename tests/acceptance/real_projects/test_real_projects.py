"""Public projects as people have them: a bug, an agent that runs their tests, and a verdict.

The right fix is merged and nothing else is; a wrong one is not; and what the evidence says of both
can be repeated.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from tests.support.codexconfig import CODEX_CONFIG
from tests.support.project_checkouts import LONG_S, Checkout, ProjectStore
from tests.support.public_projects import BY_NAME, PROJECTS
from tests.support.runcommands import Coilclaw, Done
from tests.support.sandboxes import supported

pytestmark = pytest.mark.full

AGENT = Path(__file__).parents[2] / "support" / "repair_agent.py"
RUNNERS = [(project.name, runner) for project in PROJECTS for runner in ("builtin", "process")]
RUNNERS.append(("iniconfig", "codex"))
TASK = "task-0001"
RESULT: dict[str, object] = {
    "task_id": TASK,
    "status": "SUCCESS",
    "summary": "The condition is another one.",
    "evidence_refs": {},
    "failure": None,
}
RUNTIME_ROOT = "!! .runtime-cache/"


@dataclass(frozen=True)
class Trial:
    """One run on a checkout, and how to look at it."""

    checkout: Checkout
    done: Done

    @property
    def run_id(self) -> str:
        (bundle,) = (self.checkout.world.runtime / "runs").iterdir()
        return bundle.name

    @property
    def evidence(self) -> str:
        """What the agent said and did."""
        (events,) = self.checkout.world.bundle(self.run_id).glob("codex/*/events.jsonl")
        return events.read_text()

    def ask(self, *words: str) -> Done:
        return ask(self.checkout, *words)


def ask(checkout: Checkout, *words: str) -> Done:
    """Type a command in the checkout."""
    with Coilclaw(checkout.world).start(*words) as process:
        try:
            out, err = process.communicate(timeout=LONG_S)
        finally:
            process.kill()
    return Done(process.returncode, out.decode(), err.decode())


@contextmanager
def playing(checkout: Checkout, new: str, runner: str) -> Iterator[str]:
    """Have an agent ready that puts ``new`` where the bug is; yield the name of its runner."""
    world, project = checkout.world, checkout.project
    if runner == "process":
        edit = {"path": project.bug.path, "old": project.bug.broken, "new": new}
        program, data = world.root / "agent.py", world.root / "agent.json"
        shutil.copy(AGENT, program)
        data.write_text(json.dumps(edit))
        yield f"process:{os.path.realpath(sys.executable)} -I {program} {data}"
        return
    script: list[Any] = [
        {"text": "What do the tests say?", "shell": project.test},
        {"write": {"path": project.bug.path, "content": checkout.text(new)}},
        {"text": "And now?", "shell": project.test},
        {"text": json.dumps(RESULT)},
    ]
    with ModelServer(script) as server:
        if runner == "codex":
            base = world.root / "user" / "codex"
            base.mkdir()
            (base / "config.toml").write_text(CODEX_CONFIG.format(url=server.url))
            world.environ["CORTEXPILOT_CODEX_BASE_HOME"] = str(base)
            world.environ["SCRIPTED_KEY"] = "sk-scripted-key"
            world.environ["COILCLAW_CODEX"] = os.environ["COILCLAW_CODEX"]
        else:
            (world.home / "config.toml").write_text(
                'default_provider = "scripted"\n[providers.models.scripted]\n'
                f'kind = "openai-compatible"\nmodel = "m"\nbase_url = "{server.url}/v1"\n'
            )
        yield runner


def attempt(
    checkout: Checkout,
    new: str,
    runner: str,
    sandbox: str = "bubblewrap",
    *,
    proposed: bool = False,
) -> Trial:
    """Do what a user does: make a contract, and have it carried out and merged.

    With ``proposed``, test and set-up are what the product finds; else the user's own.
    """
    project = checkout.project
    contract = str(checkout.world.root / "contract.json")
    with playing(checkout, new, runner) as name:
        config = checkout.world.home / "config.toml"
        settings = config.read_text() if config.exists() else ""
        config.write_text(f'{settings}[security]\nsandbox = "{sandbox}"\n')
        spec = f"Make the tests of {project.name} pass again."
        words = ["--spec", spec, "--path", project.bug.path, "--task-id", TASK]
        words += [] if proposed else ["--test", project.test, "--no-setup"]
        words += ["--max-retries", "0", "--force"]
        made = ask(checkout, "contract", "init", contract, *words)
        assert made.code == 0, made
        return Trial(checkout, ask(checkout, "run", contract, "--runner", name, "--merge"))


@pytest.fixture
def checkout(
    request: pytest.FixtureRequest, store: ProjectStore, sandbox: str
) -> Iterator[Checkout]:
    supported(sandbox)
    with store.checkout(BY_NAME[request.param]) as made:
        yield made


@pytest.fixture
def sandbox() -> str:
    return "bubblewrap"


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "codex" and not os.environ.get("COILCLAW_CODEX"):
        pytest.skip("the real Codex is not tested with: COILCLAW_CODEX does not name it")
    return name


by_runner = pytest.mark.parametrize(("checkout", "runner"), RUNNERS, indirect=True)
by_project = pytest.mark.parametrize("checkout", BY_NAME, indirect=True)
under_landlock = pytest.mark.parametrize("sandbox", ["landlock"])


def check_evidence(trial: Trial) -> None:
    """The seal holds, and the same commands on the same tree say the same once more."""
    verified = trial.ask("runs", "verify", trial.run_id)
    assert verified.code == 0, verified
    repeated = trial.ask("runs", "reexec", trial.run_id)
    assert repeated.code == 0, repeated


@by_runner
def test_the_right_fix_is_merged_and_nothing_else(checkout: Checkout, runner: str) -> None:
    before = checkout.status()
    trial = attempt(checkout, checkout.project.bug.right, runner)
    assert trial.done.code == 0, trial.done
    world = checkout.world
    # The tree as it was released: nothing of ours is in it, no cache and no build.
    assert world.git("diff", "--name-status", checkout.released, "HEAD") == ""
    assert world.git("rev-list", "--count", f"{checkout.broken}..HEAD") == "1"
    assert sorted({*checkout.status()} - {RUNTIME_ROOT}) == sorted(before)
    own = checkout.own_tests()
    assert own.returncode == 0, own.stdout + own.stderr
    # What the agent ran in its worktree was the worktree as well.
    if runner == "process":
        assert "tests red before, green after" in trial.evidence
    check_evidence(trial)


@by_runner
def test_a_wrong_fix_is_refused(checkout: Checkout, runner: str) -> None:
    before = checkout.status()
    trial = attempt(checkout, checkout.project.bug.wrong, runner)
    assert trial.done.code == 1, trial.done
    world = checkout.world
    assert world.git("rev-parse", "HEAD") == checkout.broken
    assert sorted({*checkout.status()} - {RUNTIME_ROOT}) == sorted(before)
    assert world.gates(trial.run_id)["tests_gate"] is False
    check_evidence(trial)


@pytest.mark.parametrize("checkout", ["no-case"], indirect=True)
def test_what_is_not_installed_is_set_up_as_proposed(checkout: Checkout) -> None:
    with checkout.uninstalled():
        before = checkout.status()
        trial = attempt(checkout, checkout.project.bug.right, "process", proposed=True)
        assert trial.done.code == 0, trial.done
        assert "tests red before, green after" in trial.evidence
        world = checkout.world
        assert "SETUP_RESULT" in world.kinds(trial.run_id)
        assert world.git("diff", "--name-status", checkout.released, "HEAD") == ""
        assert sorted({*checkout.status()} - {RUNTIME_ROOT}) == sorted(before)
        check_evidence(trial)


@under_landlock
@by_project
def test_under_landlock_a_wrong_fix_is_never_merged(checkout: Checkout, sandbox: str) -> None:
    trial = attempt(checkout, checkout.project.bug.wrong, "process", sandbox)
    assert trial.done.code != 0, trial.done
    assert checkout.world.git("rev-parse", "HEAD") == checkout.broken


@under_landlock
@by_project
def test_under_landlock_what_cannot_be_tested_is_refused_with_the_reason(
    checkout: Checkout, sandbox: str
) -> None:
    trial = attempt(checkout, checkout.project.bug.right, "process", sandbox)
    if checkout.project.self_contained:
        assert trial.done.code == 0, trial.done
        assert checkout.world.git("diff", "--name-status", checkout.released, "HEAD") == ""
    else:
        assert trial.done.code != 0, trial.done
        assert checkout.world.git("rev-parse", "HEAD") == checkout.broken
        said = trial.done.out + trial.done.err
        assert f"the checkout {checkout.repo} cannot be read" in said, trial.done
        assert "Install bubblewrap" in said
