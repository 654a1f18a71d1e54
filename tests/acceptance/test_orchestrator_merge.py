"""Merging in whole runs: a branch that moved, a conflict, local changes, and no branch at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coilclaw.runs.engine import merge_stage
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.workspace.git.landing import MOVED, Landed, LandingRefused, land_branch
from tests.support.runs import ADDS, CALC, SHOUTS, TEXT, World, opened


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def moved(world: World, files: dict[str, str], *, tests: list[str] | None = None) -> RunOutcome:
    """A run from the first commit, merged into a branch that somebody moved meanwhile."""
    first = world.git("rev-parse", "HEAD")
    contract = world.contract(tests=tests or [CALC], baseline_ref=first, max_retries=0)
    for name, text in files.items():
        (world.repo / name).write_text(text)
    world.git("commit", "-q", "-am", "meanwhile")
    return world.ended(world.run(contract, merge=True))


def refused(world: World, outcome: RunOutcome, head: str) -> str:
    assert (outcome.status, outcome.state.value) == ("failed", "FAILED")
    assert outcome.merge != "merged"
    assert world.gates(outcome.run_id)["merge_gate"] is False
    assert world.git("rev-parse", "HEAD") == head
    assert "MERGE_COMPLETED" not in world.kinds(outcome.run_id)
    return str(world.of(outcome.run_id, "gate_failed")[-1]["rule"])


def pending(world: World, outcome: RunOutcome, head: str) -> str:
    """The work is accepted; what is in the way of the merge is not its fault."""
    assert (outcome.status, outcome.merge) == ("passed", "pending")
    assert world.git("rev-parse", "HEAD") == head
    assert "MERGE_COMPLETED" not in world.kinds(outcome.run_id)
    return str(world.of(outcome.run_id, "MERGE_PENDING")[-1]["reason"])


def test_a_branch_that_moved_is_joined_and_the_joined_tree_is_tested(world: World) -> None:
    outcome = moved(world, {"README.md": "# Sums, and more\n"})
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    parents = world.git("rev-list", "--parents", "-1", "HEAD").split()
    assert len(parents) == 3
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    assert (world.repo / "README.md").read_text() == "# Sums, and more\n"
    assert world.git("status", "--short") == ""
    tested = world.of(outcome.run_id, "TEST_RESULT")
    assert [each["where"] for each in tested] == ["candidate", "merged"]
    assert tested[1]["tree"] == world.git("rev-parse", "HEAD^{tree}")


def test_a_branch_that_moves_while_the_work_is_joined_is_joined_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another run does it that is merged at the same time."""
    texts = ["# Once\n", "# Twice\n"]

    def land_later(*arguments: Any, **more: Any) -> Landed | LandingRefused:
        if texts:
            (world.repo / "README.md").write_text(texts.pop(0))
            world.git("commit", "-q", "-am", "meanwhile")
        return land_branch(*arguments, **more)

    monkeypatch.setattr(merge_stage, "land_branch", land_later)
    outcome = world.ended(world.run(merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    assert (world.repo / "README.md").read_text() == "# Twice\n"
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    assert world.git("status", "--short") == ""
    tested = world.of(outcome.run_id, "TEST_RESULT")
    assert [each["where"] for each in tested] == ["candidate", "merged", "merged"]
    assert tested[-1]["tree"] == world.git("rev-parse", "HEAD^{tree}")


def test_a_branch_that_never_stands_still_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def refuse(*_: Any, **__: Any) -> LandingRefused:
        tries.append("")
        return LandingRefused(MOVED, "it moved")

    monkeypatch.setattr(merge_stage, "land_branch", refuse)
    head = world.git("rev-parse", "HEAD")
    assert pending(world, world.ended(world.run(merge=True)), head) == "it moved"
    assert len(tries) == merge_stage.MAX_JOINS


def test_work_that_is_red_together_with_the_branch_is_not_merged(world: World) -> None:
    """Each alone is green: the branch made another part what the work relies on."""
    broken = "def shout(words):\n    return words.lower()\n"
    check = (
        "import sys\n\nsys.path.insert(0, '.')\nfrom pkg.calc import add\n\nassert add(1, 2) == 4\n"
    )
    outcome = moved(world, {"pkg/text.py": broken, "tests/check_calc.py": check})
    rule = refused(world, outcome, world.git("rev-parse", "main"))
    assert rule == "merge.tests"
    assert [each["status"] for each in world.of(outcome.run_id, "TEST_RESULT")] == ["PASS", "FAIL"]


def test_a_conflict_merges_nothing(world: World) -> None:
    outcome = moved(world, {"pkg/calc.py": "def add(a, b):\n    return b - a\n"})
    rule = refused(world, outcome, world.git("rev-parse", "main"))
    assert rule == "merge.conflict"
    assert "pkg/calc.py" in outcome.reason
    assert (world.repo / "pkg/calc.py").read_text() == "def add(a, b):\n    return b - a\n"


def test_local_changes_in_the_way_are_kept(world: World) -> None:
    head = world.git("rev-parse", "HEAD")
    (world.repo / "pkg/calc.py").write_text("# mine, and not committed\n")
    outcome = world.ended(world.run(merge=True))
    assert "local changes" in pending(world, outcome, head)
    assert (world.repo / "pkg/calc.py").read_text() == "# mine, and not committed\n"
    # The work itself is not lost: its commit is kept.
    kept = world.git("rev-parse", f"refs/coilclaw/runs/{outcome.run_id}/candidate")
    assert world.git("show", f"{kept}:pkg/calc.py") == ADDS["pkg/calc.py"].strip()


def test_local_changes_elsewhere_are_no_obstacle(world: World) -> None:
    (world.repo / "README.md").write_text("mine, and not committed\n")
    (world.repo / "new.txt").write_text("mine, and not added\n")
    outcome = world.ended(world.run(merge=True))
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    assert (world.repo / "README.md").read_text() == "mine, and not committed\n"
    assert world.git("status", "--short").split() == ["M", "README.md", "??", "new.txt"]


def test_a_detached_head_has_no_branch_to_merge_into(world: World) -> None:
    head = world.git("rev-parse", "HEAD")
    world.git("checkout", "-q", "--detach")
    outcome = world.ended(world.run(merge=True))
    assert "no branch" in pending(world, outcome, head)
    assert world.git("rev-parse", "main") == head


def test_what_the_user_edits_during_the_run_is_no_part_of_it(world: World) -> None:
    """The run works on the commit; the files of the user's worktree are never looked at."""
    (world.repo / "tests/check_calc.py").write_text("raise SystemExit(1)\n")
    (world.repo / "pkg/text.py").write_text("half an edit\n")
    outcome = world.ended(world.run())
    assert outcome.status == "passed", outcome.reason
    assert (world.bundle(outcome.run_id) / "diff_name_only.txt").read_text() == "pkg/calc.py\n"


def test_hooks_and_filters_of_the_repository_do_not_run(world: World) -> None:
    mark = world.root / "hooked"
    for name in ("pre-commit", "post-checkout", "post-merge", "reference-transaction"):
        hook = world.repo / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    world.git("config", "core.fsmonitor", f"touch {mark}")
    world.git("config", "filter.x.clean", f"touch {mark}; cat")
    world.git("config", "filter.x.smudge", f"touch {mark}; cat")
    (world.repo / ".git/info/attributes").write_text("* diff=x\n")
    mark.unlink(missing_ok=True)
    orchestrator = world.orchestrator()
    del orchestrator
    outcome = world.run(merge=True)
    assert not mark.exists()
    assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
    assert not mark.exists()


def test_two_runs_are_merged_one_after_the_other(world: World) -> None:
    first = world.ended(world.run(merge=True))
    contract = world.contract(["pkg/text.py"], [CALC, TEXT], task_id="task-0002")
    second = world.ended(world.run(contract, world.script([{"write": SHOUTS}]), merge=True))
    assert [first.status, second.status] == ["passed", "passed"]
    assert world.git("log", "--format=%s", "-2").splitlines() == [
        "task-0002: Make add add.",
        "task-0001: Make add add.",
    ]
