"""Work out of scope, in every way that git and a file system offer, in whole runs.

The tasks of one run work side by side, each in its own worktree, so one run shows many of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.runs import CALC, FILES, Answering, Part, World, opened, split, task
from tests.support.sandboxes import UNCOVERED
from tests.support.snapshot_trees import Content

PLANT_HOOK = (
    'd=$(git rev-parse --git-dir); mkdir -p "$d/hooks" 2>/dev/null;'
    ' printf "#!/bin/sh\\ntouch /var/tmp/coilclaw-hooked" > "$d/hooks/post-checkout";'
    ' chmod +x "$d/hooks/post-checkout"; '
)

VIOLATIONS: dict[str, tuple[str, list[Part]]] = {
    "tracked": ("diff.out_of_scope", [{"write": {"other/outside.txt": "mine now\n"}}]),
    "staged": (
        "diff.out_of_scope",
        [{"shell": "echo mine > other/outside.txt && git add other/outside.txt"}],
    ),
    "committed": (
        "diff.out_of_scope",
        [{"write": {"other/outside.txt": "mine now\n"}}, {"commit": "mine"}],
    ),
    "untracked": ("diff.out_of_scope", [{"write": {"other/new.txt": "new\n"}}]),
    "deleted": ("diff.out_of_scope", [{"delete": ["other/outside.txt"]}]),
    "renamed-in": (
        "diff.out_of_scope",
        [{"shell": "git mv other/outside.txt area/renamed-in/f2.txt"}],
    ),
    "renamed-out": ("diff.out_of_scope", [{"shell": "mv area/renamed-out/f.txt other/f.txt"}]),
    "copied": ("diff.out_of_scope", [{"shell": "cp other/outside.txt area/copied/f2.txt"}]),
    "mode": ("diff.out_of_scope", [{"shell": "chmod +x other/outside.txt"}]),
    "symlink": ("diff.symlink", [{"shell": "ln -s /etc/passwd area/symlink/link"}]),
    "link-inside": ("diff.symlink", [{"shell": "ln -s f.txt area/link-inside/link"}]),
    "nested": (
        "diff.nested",
        [{"shell": "git init -q area/nested/sub && echo x > area/nested/sub/x"}],
    ),
    "binary": ("diff.binary", [{"shell": "printf 'a\\000b' > area/binary/data"}]),
}
MORE_VIOLATIONS: dict[str, tuple[str, list[Part]]] = {
    "setuid": ("diff.mode", [{"shell": "chmod u+s area/setuid/f.txt"}]),
    "newline": ("diff.name", [{"write": {"area/newline/a\nb": "x\n"}}]),
    "case": ("diff.case", [{"write": {"area/case/F.txt": "x\n"}}]),
    "fifo": ("diff.special", [{"shell": "mkfifo area/fifo/pipe"}]),
    "ignore-rule": ("diff.out_of_scope", [{"write": {".gitignore": "*\n", "other/x.txt": "x\n"}}]),
    "attributes": ("diff.out_of_scope", [{"write": {".gitattributes": "* filter=evil\n"}}]),
    "workflow": ("diff.out_of_scope", [{"write": {".github/workflows/x.yml": "on: push\n"}}]),
    "dotenv": ("diff.protected", [{"write": {"area/dotenv/.env": "A=b\n"}}]),
    "policies": (
        "diff.out_of_scope",
        [{"write": {"policies/command_allowlist.json": '{"version": "v1", "allow": []}'}}],
    ),
    "submodule": (
        "diff.out_of_scope",
        [{"write": {".gitmodules": '[submodule "s"]\n\tpath = area/submodule/s\n\turl = ./x\n'}}],
    ),
    "type": ("diff.type", [{"shell": "rm area/type/f.txt && mkdir area/type/f.txt"}]),
}
ALLOWED: dict[str, list[Part]] = {
    "untracked": [{"write": {"area/untracked/new.txt": "new\n"}}],
    "staged": [{"shell": "echo new > area/staged/new.txt && git add -A"}],
    "committed": [{"write": {"area/committed/f.txt": "new\n"}}, {"commit": "mine"}],
    "several": [
        {"write": {"area/several/a.txt": "a\n"}},
        {"commit": "one"},
        {"write": {"area/several/b.txt": "b\n"}},
        {"shell": "git add -A; echo c > area/several/c.txt"},
    ],
    "deleted": [{"delete": ["area/deleted/f.txt"]}],
    "renamed": [{"shell": "git mv area/renamed/f.txt area/renamed/g.txt"}],
    "copied": [{"shell": "cp area/copied/f.txt area/copied/g.txt"}],
    "mode": [{"shell": "chmod +x area/mode/f.txt"}],
    "odd-names": [{"write": {"area/odd-names/größe und $x.txt": "new\n"}}],
    "branch": [{"shell": "git checkout -q -b mine; echo new > area/branch/new.txt"}],
    "hooks": [{"shell": PLANT_HOOK + "echo new > area/hooks/new.txt"}],
    "config": [
        {
            "shell": "for k in core.fsmonitor core.hooksPath filter.x.clean filter.x.smudge;"
            " do git config $k 'touch /var/tmp/coilclaw-hooked' 2>/dev/null; done;"
            " echo new > area/config/new.txt"
        }
    ],
    "leavings": [
        {"write": {"area/leavings/new.txt": "n\n", "area/leavings/__pycache__/m.pyc": "x\n"}}
    ],
}


def world_of(names: list[str]) -> dict[str, Content]:
    return {**FILES, **{f"area/{name}/f.txt": f"{name}\n".encode() * 9 for name in names}}


@pytest.fixture
def bad() -> Iterator[World]:
    with opened(world_of([*VIOLATIONS, *MORE_VIOLATIONS])) as world:
        yield world


def tasks_run(world: World, parts: dict[str, list[Part]], *, merge: bool = False) -> RunOutcome:
    """One run with a task for each of some workers."""
    scopes = [f"area/{name}" for name in parts]
    contract = world.contract(scopes, [CALC], role="TECH_LEAD", max_retries=0)
    world.models["TECH_LEAD"] = Answering(
        split(*(task(name, [f"area/{name}"], []) for name in parts))
    )
    runner = world.script_for({f"task-0001-{name}": [turn] for name, turn in parts.items()})
    return world.run(contract, runner, merge=merge)


@pytest.mark.parametrize("cases", [VIOLATIONS, MORE_VIOLATIONS], ids=["usual", "odd"])
def test_no_work_out_of_scope_is_ever_accepted(
    bad: World, cases: dict[str, tuple[str, list[Part]]]
) -> None:
    outcome = bad.ended(tasks_run(bad, {name: parts for name, (_, parts) in cases.items()}))
    assert (outcome.status, outcome.state.value) == ("failed", "FAILED")
    kinds = bad.kinds(outcome.run_id)
    assert {"policy_violation", "gate_failed", "ROLLBACK_APPLIED"} <= set(kinds)
    # Nothing of it got as far as a review, a test, a candidate or a branch.
    assert not {"REVIEW_RESULT", "TEST_RESULT", "CANDIDATE_PREPARED", "MERGE_STARTED"} & set(kinds)
    assert list((bad.bundle(outcome.run_id) / "patches").iterdir()) == []
    assert (bad.bundle(outcome.run_id) / "patch.diff").read_bytes() == b""
    assert bad.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    for name, (rule, _) in cases.items():
        _check_rolled_back(bad, outcome.run_id, f"task-0001-{name}", rule)


def _check_rolled_back(world: World, run_id: str, task_id: str, rule: str) -> None:
    events = [e for e in world.recorded(run_id) if e["task_id"] == task_id]

    def payloads(kind: str) -> list[dict[str, Any]]:
        return [event["payload"] for event in events if event["event_type"] == kind]

    assert rule in {each["rule"] for each in payloads("policy_violation")}, task_id
    assert [each["gate"] for each in payloads("gate_failed")] == ["diff_gate"], task_id
    (result,) = payloads("TASK_RESULT_RECORDED")
    assert (result["status"], result["patch_sha256"]) == ("FAILED", "")
    (rollback,) = payloads("ROLLBACK_APPLIED")
    assert rollback["snapshot"] == result["snapshot"]
    # The offending tree is kept, whole.
    store = SnapshotStore(world.runtime / "snapshots")
    kept = {path for path, _, _ in store.files(rollback["snapshot"])}
    assert "pkg/calc.py" in kept
    assert (world.bundle(run_id) / f"artifacts/rejected/{task_id}.diff").is_file()
    report = world.read(run_id, f"results/{task_id}/result.json")
    assert (report["status"], report["gates"]["diff_gate"]["passed"]) == ("FAILED", False)


@pytest.mark.parametrize("below", [UNCOVERED, "/tmp"])
def test_what_is_in_scope_is_accepted_however_it_was_made(below: str) -> None:
    hooked = Path("/var/tmp/coilclaw-hooked")
    hooked.unlink(missing_ok=True)
    with opened(world_of(list(ALLOWED)), below) as world:
        build = {**ALLOWED}
        world.git("checkout", "-q", "-b", "work")
        (world.repo / "pkg/calc.py").write_text("def add(a, b):\n    return a + b\n")
        world.git("commit", "-q", "-am", "green")
        outcome = world.ended(tasks_run(world, build, merge=True))
        assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
        assert not hooked.exists()
        changed = world.git("diff", "--name-status", "--no-renames", "HEAD@{1}", "HEAD")
        assert sorted(changed.splitlines()) == [
            'A\t"area/odd-names/gr\\303\\266\\303\\237e und $x.txt"',
            "A\tarea/branch/new.txt",
            "A\tarea/config/new.txt",
            "A\tarea/copied/g.txt",
            "A\tarea/hooks/new.txt",
            "A\tarea/leavings/new.txt",
            "A\tarea/renamed/g.txt",
            "A\tarea/several/a.txt",
            "A\tarea/several/b.txt",
            "A\tarea/several/c.txt",
            "A\tarea/staged/new.txt",
            "A\tarea/untracked/new.txt",
            "D\tarea/deleted/f.txt",
            "D\tarea/renamed/f.txt",
            "M\tarea/committed/f.txt",
            "M\tarea/mode/f.txt",
        ]
        assert world.git("status", "--short") == ""
        assert world.git("branch", "--list", "mine") == ""
        # The patch of the run is the work of its tasks, byte for byte the same on any machine.
        names = (world.bundle(outcome.run_id) / "diff_name_only.txt").read_text().splitlines()
        assert len(names) == 16
