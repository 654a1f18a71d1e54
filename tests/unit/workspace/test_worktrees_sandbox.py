"""What an agent can do with git in its worktree, tried in each sandbox of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.worktrees import Worktree, Worktrees
from coilclaw.workspace.process import command
from coilclaw.workspace.process.confinement import Kind, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import PATIENCE_S, marker
from tests.support.sandboxes import supported
from tests.support.snapshot_trees import Program, build, git, witness


@pytest.fixture(params=["bubblewrap", "landlock"], scope="module")
def offered(request: pytest.FixtureRequest) -> tuple[Kind, SandboxSupport]:
    return cast("Kind", request.param), supported(request.param)


class Agent:
    """An agent in a sandbox, with the worktree as its directory."""

    def __init__(self, root: Path, offered: tuple[Kind, SandboxSupport]) -> None:
        self.kind, self.support = offered
        self.tree = build(root / "tree", {"a.txt": b"one\n", "src/b.txt": b"two\n"})
        git(self.tree, "init", "-q", "-b", "main")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "first")
        trap = Program(b"#!/bin/sh\nexit 1\n")
        build(self.tree / ".git/hooks", {"pre-commit": trap, "commit-msg": trap})
        self.repository = Repository.open(self.tree)
        runtime = self.tree / ".runtime-cache/cortexpilot"
        self.worktrees = Worktrees(self.repository, runtime / "git", runtime / "worktrees")
        self.worktree: Worktree = self.worktrees.add(
            runtime / "worktrees/run-0001/task", self.repository.resolve("HEAD")
        )

    def sh(self, text: str) -> ProcessResult:
        common = self.repository.common_dir
        sandbox = Sandbox(self.kind, writable=self.worktree.writable, shown=(common,))
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **self.worktree.environ}
        return command.run(
            ["sh", "-c", text],
            cwd=self.worktree.path,
            env=env,
            sandbox=sandbox,
            support=self.support,
            timeout_s=PATIENCE_S,
        )


@pytest.fixture
def agent(offered: tuple[Kind, SandboxSupport]) -> Iterator[Agent]:
    # Not below /tmp, which a private one would cover; with a name that git has to be told apart.
    root = Path("/var/tmp") / f"coilclaw-test:{marker()}"
    root.mkdir(mode=0o755)
    yield Agent(root, offered)
    shutil.rmtree(root)


def test_the_repository_itself_cannot_be_written(agent: Agent) -> None:
    common, before = agent.tree / ".git", witness(agent.tree / ".git" / "refs")
    hooks = witness(common / "hooks")
    attempts = [
        f"echo x > {common}/hooks/post-commit",
        f"git --git-dir={common} config core.fsmonitor /bin/true",
        "git config core.hooksPath /x",
        "git config --worktree core.hooksPath /x",
        f"echo x >> {common}/config",
        f"echo '* filter=x' > {common}/info/attributes",
        f"echo x > {common}/packed-refs",
        "git branch mine",
        "git tag mine",
        "git checkout -b mine",
        "git update-ref refs/heads/main HEAD~0 && git update-ref -d refs/heads/main",
        f"echo x > {common}/refs/heads/mine",
        f"echo x > {common}/HEAD",
        f"echo x > {common}/index",
        f"echo x > {common}/objects/info/alternates",
        "git stash --include-untracked",
        "git remote add x http://x",
        f"mkdir {common}/worktrees/other",
        "git worktree add ../other",
        f"GIT_OBJECT_DIRECTORY={common}/objects git hash-object -w a.txt && exit 9",
    ]
    if agent.kind == "bubblewrap":
        attempts.append(f"chmod 777 {common}/hooks/pre-commit")  # Landlock knows no such right
    (agent.worktree.path / "a.txt").write_text("changed\n")
    agent.sh(f"echo x > {agent.tree}/a.txt")
    for attempt in attempts:
        result = agent.sh(attempt)
        assert result.exit_code not in {0, 9}, (attempt, result.stderr.text())
    assert witness(common / "refs") == before
    assert witness(common / "hooks") == hooks
    assert sorted(path.name for path in (common / "worktrees").iterdir()) == ["task"]
    assert git(agent.tree, "fsck", "--strict") == b""
    assert (agent.tree / "a.txt").read_text() == "one\n"


def test_git_works_in_the_worktree(agent: Agent) -> None:
    result = agent.sh(
        "set -e; git status --porcelain; git log --format=%s; echo new > new; echo more >> a.txt;"
        " git add -A; git status --porcelain; git commit -q -m mine; git log --format='%s %an';"
        " git diff HEAD~1 --stat | tail -1; git show HEAD:new; git reset -q --hard HEAD~1;"
        " git status --porcelain; cat a.txt; git rev-parse --abbrev-ref HEAD"
    )
    assert result.exit_code == 0, result.stderr.text()
    assert result.stdout.text().splitlines() == [
        "first",
        "M  a.txt",
        "A  new",
        "mine CoilClaw agent",
        "first Test",
        " 2 files changed, 2 insertions(+)",
        "new",
        "one",
        "HEAD",
    ]
    # What it committed is in its own store only.
    assert any(agent.worktree.objects.iterdir())
    assert git(agent.tree, "rev-list", "--all", "--count") == b"1\n"
    assert git(agent.tree, "status", "--porcelain", "--untracked-files=no") == b""
    agent.worktrees.remove(agent.worktree)
    assert not agent.worktree.objects.exists()
    assert git(agent.tree, "fsck", "--strict") == b""
