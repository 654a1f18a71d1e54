"""Every ``next`` line that a command prints, pasted into a real shell: it works as it stands."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.children import PATIENCE_S
from tests.support.runcommands import Done
from tests.support.sandboxes import UNCOVERED

PROGRAMS = f"{Path(sys.executable).parent}:{Path(os.path.realpath(sys.executable)).parent}"
FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/check.py": "import sys\n\nsys.path.insert(0, '.')\nfrom calc import add\n\n"
    "assert add(1, 2) == 3\n",
    "docs/guide.md": "# How to sum\n",
    ".gitignore": "__pycache__/\n",
}
FIXED = "def add(a, b):\n    return a + b\n"
SPEC = "Make add add."
TEST = "python3 tests/check.py"
WANTED = ("--spec", SPEC, "--path", "calc.py", "--test", TEST)
REPORT: dict[str, Json] = {
    "task_id": draft_contract(
        SPEC, ("calc.py",), (TEST,), policies=PolicySet.read_shipped()
    ).task_id,
    "status": "SUCCESS",
    "summary": "add adds.",
    "evidence_refs": {},
    "failure": None,
}
MODEL = [
    {"when": "Say ok.", "text": "ok"},
    {"when": SPEC, "write": {"path": "calc.py", "content": FIXED}},
    {"when": SPEC, "text": json.dumps(REPORT)},
]


@dataclass
class Shell:
    """A user with a shell, an empty home, and a project at a path that needs quoting."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / "it's a $project"

    @property
    def user(self) -> Path:
        return self.root / "user"

    def __call__(self, line: str, cwd: Path | None = None) -> Done:
        """Have ``sh`` carry out a line, with nobody at a terminal."""
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=cwd or self.repo,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def coilclaw(self, *words: str, cwd: Path | None = None) -> Done:
        return self(shlex.join(("coilclaw", *words)), cwd)

    def typing(self, line: str, answers: str, cwd: Path | None = None) -> Done:
        """As a call, but at a terminal where a person types these answers."""
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answers.encode())
            done = subprocess.run(
                ["/bin/sh", "-c", line],
                cwd=cwd or self.repo,
                env=self.env(),
                stdin=theirs,
                capture_output=True,
                timeout=2 * PATIENCE_S,
                check=False,
            )
        finally:
            os.close(theirs)
            os.close(ours)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def env(self) -> dict[str, str]:
        return {
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "HOME": str(self.user),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LANG": "C.UTF-8",
            **self.variables,
        }

    def script(self, *parts: object) -> str:
        path = self.root / "agent.json"
        path.write_text(json.dumps([parts]))
        return f"scripted:{path}"

    def status(self) -> str:
        return self("git status --porcelain").out


@pytest.fixture
def shell() -> Iterator[Shell]:
    root = Path(tempfile.mkdtemp(dir=UNCOVERED, prefix="coilclaw-next-"))
    made = Shell(root)
    made.repo.mkdir()
    made.user.mkdir()
    for name, text in FILES.items():
        (made.repo / name).parent.mkdir(exist_ok=True)
        (made.repo / name).write_text(text)
    done = made(
        "git config --global user.name User && git config --global user.email user@example.org && "
        "git init -q -b main && git add -A && git commit -q -m 'A project'"
    )
    assert done.code == 0, done.err
    yield made
    remove_tree(root)


@contextmanager
def model(shell: Shell) -> Iterator[None]:
    """Let a scripted model listen, and the environment name it as that of other clients does."""
    script = shell.root / "model.json"
    script.write_text(json.dumps(MODEL))
    words = ["-m", "coilclaw", "mock-server", "--script", str(script), "--port", "0"]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("listening on ").strip()
            shell.variables |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "scripted"}
            yield
        finally:
            process.kill()


def next_lines(done: Done) -> list[str]:
    """What a command says to type next; a typed answer's line end is not in its output."""
    return re.findall(r"(?:^|[?\]] )next:? +(.*)$", done.out + done.err, re.MULTILINE)


# init --repo


@pytest.mark.parametrize("flags", [(), ("--hooks",), ("--hooks", "--strict"), ("--exclude",)])
def test_after_init_the_policies_are_committed_and_a_contract_written(
    shell: Shell, flags: tuple[str, ...]
) -> None:
    done = shell.coilclaw("init", "--repo", str(shell.repo), *flags, cwd=shell.user)
    assert done.code == 0, done.err
    commit, contract = next_lines(done)
    pasted = shell(commit, cwd=shell.user)
    assert pasted.code == 0, pasted.err
    assert shell.status() == ""
    assert "policies/agent_registry.json" in shell("git show --name-only --format=").out
    pasted = shell.typing(contract, f"{SPEC}\ncalc.py\n{TEST}\n", cwd=shell.user)
    assert pasted.code == 0, pasted.err
    assert next_lines(shell.coilclaw("init", "--repo")) == ["coilclaw contract init"]
    (shell.repo / "notes.txt").write_text("mine\n")
    person = shell("git add notes.txt && git commit -q -m mine")
    assert (person.code == 0) == ("--strict" not in flags), person.err


def test_what_a_person_has_staged_stays_out_of_the_commit_of_the_policies(shell: Shell) -> None:
    (shell.repo / "calc.py").write_text("# mine\n")
    assert shell("git add calc.py").code == 0
    commit, _ = next_lines(shell.coilclaw("init", "--repo"))
    assert commit.startswith("git add ")
    assert shell(commit).code == 0
    assert shell.status() == "M  calc.py\n"


# from nothing to a merged fix


def test_from_onboarding_to_a_merged_fix_by_the_lines_that_are_printed(shell: Shell) -> None:
    first = shell.coilclaw("init", cwd=shell.user)
    assert next_lines(first) == ["coilclaw onboard"]
    with model(shell):
        (line,) = next_lines(first)
        refused = shell(line)
        assert (refused.code, "--yes" in refused.err) == (2, True)  # it would change a file
        done = shell.typing(line, "\n" * 10)
        assert done.code == 0, done.err
        assert next_lines(done) == ["coilclaw contract init"]
        done = shell.typing(next_lines(done)[0], f"{SPEC}\ncalc.py\n{TEST}\n")
        assert done.code == 0, done.err
        assert next_lines(done) == ["coilclaw run contract.json"]
        done = shell(next_lines(done)[0])
        assert done.code == 0, done.out + done.err
        for _ in range(2):  # once merged, it is merged already
            (line,) = next_lines(done)
            assert line.startswith("coilclaw runs apply ")
            assert shell(line).code == 0
        assert (shell.repo / "calc.py").read_text() == FIXED


def test_three_commands_lead_from_an_empty_home_to_a_merged_fix(shell: Shell) -> None:
    """Without a terminal, without a home, without ``init``, and without a git identity."""
    (shell.user / ".gitconfig").unlink()
    with model(shell):
        done = [
            shell.coilclaw(*words)
            for words in (
                ("onboard",),
                ("contract", "init", *WANTED),
                ("run", "contract.json", "--merge"),
            )
        ]
    assert [each.code for each in done] == [0, 0, 0], done
    assert (shell.repo / "calc.py").read_text() == FIXED
    assert shell("git show --name-only --format=").out == "calc.py\n"
    assert shell.status() == "?? contract.json\n"
    (line,) = next_lines(done[-1])
    assert line.startswith("coilclaw runs verify ")
    assert shell(line).code == 0


def test_a_first_conversation_begins_outside_of_a_repository(shell: Shell) -> None:
    done = shell.coilclaw("onboard", "--provider", "mock", cwd=shell.user)
    assert next_lines(done) == ["coilclaw agent"]
    assert shell("coilclaw agent", cwd=shell.user).code == 0


# contract, run, runs


def test_a_contract_without_a_model_leads_to_one_first(shell: Shell) -> None:
    file = "-my contract.json"
    flags = ("init", *WANTED, "--repo", str(shell.repo), "--", file)
    done = shell.coilclaw("contract", *flags, cwd=shell.user)
    assert done.code == 0, done.err
    onboard, run = next_lines(done)
    assert onboard == "coilclaw onboard"
    with model(shell):
        assert shell(onboard).code == 0
        done = shell(run, cwd=shell.user)
        assert done.code == 0, done.out + done.err
    wanted = (*WANTED[:-1], "python3 -m unittest")
    elsewhere = shell.coilclaw("contract", "init", "x.json", *wanted, cwd=shell.user)
    assert (elsewhere.code, next_lines(elsewhere)) == (0, []), elsewhere.err
    named = shell.coilclaw("contract", "init", "y.json", *WANTED, "--runner", "process")
    assert (named.code, next_lines(named)) == (0, []), named.err


@pytest.mark.parametrize("inside", [True, False])
def test_after_a_run(shell: Shell, inside: bool) -> None:
    """Whatever became of it, and also from another directory with ``--repo``."""
    cwd = shell.repo if inside else shell.user
    place = () if inside else ("--repo", str(shell.repo))
    good = shell.script({"write": {"calc.py": FIXED}})
    shell.coilclaw("contract", "init", "a contract.json", *WANTED, *place, cwd=cwd)
    contract = cwd / "a contract.json"
    whole = contract.read_text()

    def run(*more: str) -> str:
        done = shell.coilclaw("run", "a contract.json", *more, *place, cwd=cwd)
        (line,) = next_lines(done)
        return line

    def pasted(line: str) -> Done:
        return shell(line, cwd=cwd)

    broken = json.loads(whole)
    broken["allowed_paths"] = ["../up"]
    contract.write_text(json.dumps(broken))
    line = run("--runner", good)
    assert (pasted(line).code, "../up" in pasted(line).out) == (2, True)
    contract.write_text(whole)
    assert pasted(line).code == 0, line

    line = run("--runner", shell.script({"write": {"tests/check.py": "pass\n"}}))
    assert (pasted(line).code, line.split()[:3]) == (0, ["coilclaw", "runs", "show"])

    good = shell.script({"write": {"calc.py": FIXED}})
    (shell.repo / "calc.py").write_text("# in the way\n")
    line = run("--runner", good, "--merge")
    assert "runs apply" in line
    assert pasted(line).code == 1
    assert shell("git checkout -q calc.py").code == 0
    assert pasted(line).code == 0, line

    shell.coilclaw(
        *("contract", "init", "a contract.json", "--force", "--spec", SPEC, "--path", "docs"),
        *("--test", TEST, "--max-retries", "0", *place),
        cwd=cwd,
    )
    line = run("--runner", shell.script({"write": {"docs/notes.txt": "It adds.\n"}}))
    shown = shell.coilclaw("runs", "show", "last", *place, cwd=cwd)
    assert next_lines(shown) == [line]
    assert re.match(r"coilclaw approve \S+ && coilclaw runs resume ", line), line
    done = pasted(line)
    assert done.code == 0, done.out + done.err
    shown = shell.coilclaw("runs", "show", "last", *place, cwd=cwd)
    assert [pasted(each).code for each in next_lines(shown)] == [0]
