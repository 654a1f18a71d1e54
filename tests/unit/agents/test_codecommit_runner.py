"""The repair loop as a runner: the build runs in the sandbox, and attempts become parts."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import CoilClawError, ProviderNetwork
from coilclaw.kernel.messages import Budget, ChatResponse, Part, Usage
from coilclaw.kernel.secret import Secret
from coilclaw.policy.redaction import SecretRedactor
from coilclaw.runners.code_commit import CodeCommitRunner
from tests.support.children import PATIENCE_S, given_time, marker, running, when
from tests.support.performing import TASK, Model, Performance, says
from tests.support.sandboxes import supported

FENCE = "^^^"


def answer(path: str, content: str, usage: Usage | None = None) -> ChatResponse:
    return says(f"{FENCE}{path}\n{content}{FENCE}end\n", usage)


class World:
    def __init__(self, folder: Path, build: str = "#!/bin/sh\ngrep -q good a.txt\n") -> None:
        supported("bubblewrap")
        self.stage = Performance.make(folder)
        (self.stage.worktree / "a.txt").write_text("bad\n")
        self.build(build)

    def build(self, text: str) -> None:
        (self.stage.worktree / "build.sh").write_text(text)
        (self.stage.worktree / "build.sh").chmod(0o755)

    def runner(self, *answers: ChatResponse | CoilClawError, **options: Any) -> CodeCommitRunner:
        self.model = Model(list(answers))
        return CodeCommitRunner(
            self.model, "m-1", SecretRedactor((Secret("sk-secret-key"),)), **options
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shell": "deny"}, "denied by tool_permissions.shell = deny"),
        ({"shell": "untrusted"}, "denied: the request was not approved"),
        (
            {"filesystem": "read-only"},
            "the contract says filesystem = read-only, and code-commit writes",
        ),
    ],
)
def test_what_the_contract_does_not_permit_is_not_begun(
    world: World, changes: dict[str, Any], reason: str
) -> None:
    parts, ending = world.stage.perform(
        world.runner(answer("a.txt", "good\n")), world.stage.assignment(**changes)
    )
    assert (parts, ending.status, ending.reason) == ([], "failed", reason)
    assert world.model.asked == []


def test_a_tree_without_a_build_is_refused(world: World) -> None:
    (world.stage.worktree / "build.sh").chmod(0o644)
    _, ending = world.stage.perform(world.runner())
    assert (ending.status, ending.reason) == (
        "failed",
        "build.sh does not exist or is not executable",
    )


def test_the_build_is_held_by_the_sandbox(world: World) -> None:
    beside = world.stage.worktree.parent / "beside"
    world.build(f"#!/bin/sh\necho x > /etc/coilclaw-was-here; echo x > {beside}; env\nexit 0\n")
    parts, ending = world.stage.perform(world.runner(answer("a.txt", "good\n")))
    assert ending.status == "done"
    assert not beside.exists()
    assert not Path("/etc/coilclaw-was-here").exists()
    assert f"HOME={world.stage.home}" in parts[2].output


def test_the_model_cannot_change_the_build(world: World) -> None:
    before = (world.stage.worktree / "build.sh").read_text()
    runner = world.runner(answer("build.sh", "#!/bin/sh\ntrue\n"), repairs=0)
    parts, ending = world.stage.perform(runner)
    assert ending.status == "failed"
    assert (world.stage.worktree / "build.sh").read_text() == before
    assert (parts[1].tool, parts[1].exit_code) == ("apply_changes", 1)


def test_it_repairs_until_the_build_passes(world: World) -> None:
    first, second = answer("a.txt", "worse\n", Usage(3, 1)), answer("a.txt", "good\n", Usage(5, 2))
    parts, ending = world.stage.perform(world.runner(first, second))
    assert [(p.kind, p.tool, p.exit_code, p.files) for p in parts] == [
        ("text", "", None, ()),
        ("patch", "apply_changes", None, ("a.txt",)),
        ("tool", "build", 1, ()),
        ("text", "", None, ()),
        ("patch", "apply_changes", None, ("a.txt",)),
        ("tool", "build", 0, ()),
    ]
    assert "-bad" in parts[1].text
    assert parts[2] == Part(
        "tool",
        "",
        "build",
        "build-0",
        '{"argv":["./build.sh"]}',
        "--- stdout ---\n--- stderr ---\nexit code: 1\n",
        1,
    )
    assert ending.status == "done"
    assert ending.usage == Usage(8, 3)
    assert ending.result == {
        "task_id": TASK,
        "status": "SUCCESS",
        "summary": "the build passed at attempt 2",
        "evidence_refs": {},
        "failure": None,
    }
    assert world.stage.files() == {"a.txt": "good\n", "build.sh": "#!/bin/sh\ngrep -q good a.txt\n"}
    asked = world.model.asked[0].messages[0].content
    assert "do it\n" in asked
    assert "--- FILE a.txt ---\nbad\n" in asked


def test_attempts_are_a_limit(world: World) -> None:
    runner = world.runner(answer("a.txt", "1\n"), answer("a.txt", "2\n"), answer("a.txt", "3\n"))
    _, ending = world.stage.perform(runner, world.stage.assignment(budget=Budget(attempts=2)))
    assert (ending.status, ending.reason) == ("failed", "the build did not pass in 2 attempts")
    assert ending.result is not None
    assert ending.result["status"] == "FAILED"
    assert len(world.model.asked) == 2


def test_untrusted_asks_for_the_build_once(world: World) -> None:
    world.stage.overseer.answers = [True]
    _, ending = world.stage.perform(
        world.runner(answer("a.txt", "good\n")), world.stage.assignment(shell="untrusted")
    )
    assert ending.status == "done"
    (asked,) = world.stage.overseer.asked
    assert asked.detail == ('argv: ["./build.sh"]', f"in: {world.stage.worktree}")


def test_a_provider_that_fails_raises(world: World) -> None:
    with pytest.raises(ProviderNetwork):
        world.stage.perform(world.runner(ProviderNetwork("gone", provider="model")))


def test_a_key_is_not_sent_and_not_applied(world: World) -> None:
    runner = world.runner(answer("a.txt", "good sk-secret-key\n"), repairs=0)
    _, ending = world.stage.perform(runner, world.stage.assignment(instruction="use sk-secret-key"))
    assert "sk-secret-key" not in world.model.asked[0].messages[0].content
    assert ending.status == "failed"
    assert world.stage.files()["a.txt"] == "bad\n"


@pytest.mark.parametrize("how", ["cancel", "time"])
def test_a_build_that_hangs_is_ended(world: World, how: str) -> None:
    stage = world.stage
    mark = marker()
    world.build(f"#!/bin/sh\ntrap '' TERM\nsleep {mark}\n")
    if how == "cancel":
        stopping = when(lambda: running(mark), lambda: stage.cancel.cancel("enough"))
        parts, ending = stage.perform(world.runner(answer("a.txt", "good\n")))
        stopping.join()
        assert ending.status == "aborted"
    else:

        def attempt(wall_s: float) -> list[Part]:
            began = time.monotonic()
            parts, ending = stage.perform(
                world.runner(answer("a.txt", "good\n")),
                stage.assignment(budget=Budget(wall_s=wall_s)),
            )
            assert ending.status == "exhausted"
            assert time.monotonic() - began < wall_s + PATIENCE_S
            return parts

        parts = given_time(0.7, attempt, lambda parts: len(parts) > 1)
    assert [part.kind for part in parts] == ["text", "patch"]
    assert running(mark) == []


def test_it_works_in_a_linked_worktree(tmp_path: Path, world: World) -> None:
    repository = tmp_path / "repository"
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@t.invalid", "-C", str(repository))
    world.stage.worktree.rename(repository)
    (repository / ".gitignore").write_text("ignored.txt\n")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    tree = str(world.stage.worktree)
    subprocess.run([*git, "worktree", "add", "-q", "--detach", tree], check=True)
    (world.stage.worktree / "ignored.txt").write_text("not for models")
    _, ending = world.stage.perform(world.runner(answer("a.txt", "good\n")))
    assert (ending.status, ending.reason) == ("done", "")
    asked = world.model.asked[0].messages[0].content
    assert "--- FILE a.txt ---" in asked
    assert "not for models" not in asked
    assert "gitdir" not in asked


def test_nothing_of_it_stays_in_the_tree(world: World) -> None:
    world.stage.perform(world.runner(answer("a.txt", "good\n")))
    assert sorted(world.stage.files()) == ["a.txt", "build.sh"]
    logs = world.stage.home / "code-commit" / "logs"
    assert sorted(path.name for path in logs.iterdir()) == [
        "initial-build.txt",
        "initial-query-response.json",
        "initial-query-response.txt",
        "initial-query.txt",
    ]
