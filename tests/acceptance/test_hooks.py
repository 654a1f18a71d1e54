"""Hooks with real commits and real pushes: nothing goes in that no active contract allows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coilclaw.kernel.messages import Json
from coilclaw.workspace.git.commits import MAX_BLOB_BYTES
from tests.support.runcommands import Coilclaw, Done
from tests.support.runs import CALC, FILES, Answering, World, opened

PAUSES = ("pkg", "docs")
"""Somebody has to approve the second, so that the run is not finished."""

PLAN: dict[str, Json] = {
    "spec": "Make add add.",
    "allowed_paths": ["pkg/calc.py", "docs"],
    "acceptance_tests": [{"name": "sums", "cmd": CALC, "must_pass": True, "timeout_sec": 60}],
    "required_outputs": [{"name": "patch", "type": "patch", "acceptance": "the test is green"}],
    "forbidden_actions": [],
    "policy_pack": "low",
    "split": False,
    "timeout_sec": 60,
    "max_retries": 0,
    "summary": "One line.",
    "risks": [],
}


@pytest.fixture
def world() -> Iterator[World]:
    with opened({**FILES, "docs/guide.md": b"# Guide\n"}) as made:
        yield made


@pytest.fixture
def coilclaw(world: World) -> Coilclaw:
    return Coilclaw(world)


@pytest.fixture
def guarded(coilclaw: Coilclaw) -> Coilclaw:
    """The hooks are in place, and a run that is not finished may change ``pkg`` and ``docs``."""
    assert coilclaw("hooks", "install").code == 0
    outcome = coilclaw.world.run(coilclaw.world.contract(PAUSES))
    assert outcome.status == "paused"
    return coilclaw


def git(coilclaw: Coilclaw, *arguments: str, cwd: Path | None = None) -> Done:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=cwd or coilclaw.world.repo,
        env=coilclaw.env(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def commit(coilclaw: Coilclaw, *arguments: str) -> Done:
    return git(coilclaw, "commit", "-q", "-m", "work", *arguments)


def write(coilclaw: Coilclaw, path: str, data: bytes | str = "new\n") -> None:
    place = coilclaw.world.repo / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data if isinstance(data, bytes) else data.encode())
    git(coilclaw, "add", "-f", path)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


# commit


def test_without_an_active_contract_a_person_commits_and_pushes(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    assert coilclaw("hooks", "install").code == 0
    write(coilclaw, "other/new.txt")
    done = commit(coilclaw)
    assert done.code == 0, done.err
    assert world.git("show", "--format=", "--name-only") == "other/new.txt"
    place = world.root / "remote.git"
    git(coilclaw, "init", "-q", "--bare", str(place))
    assert git(coilclaw, "push", "-q", str(place), "main").code == 0
    # A first commit of a branch is one of a person as well.
    assert git(coilclaw, "switch", "-q", "--orphan", "pages").code == 0
    write(coilclaw, "index.html")
    done = commit(coilclaw)
    assert done.code == 0, done.err


def test_a_person_commits_again_once_the_run_has_ended(guarded: Coilclaw) -> None:
    world = guarded.world
    write(guarded, "other/new.txt")
    refused = commit(guarded)
    assert "[diff.out_of_scope]" in refused.err
    (run_id,) = os.listdir(world.runtime / "active")
    assert f"coilclaw runs abandon {run_id}" in refused.err
    assert guarded("runs", "abandon", run_id).code != 2
    done = commit(guarded)
    assert done.code == 0, done.err


def test_what_an_ended_run_left_behind_is_not_active(guarded: Coilclaw) -> None:
    """The contract of a run that is sealed, or that nobody can resume, binds nobody."""
    (active,) = guarded.world.runtime.glob("active/*/contract.json")
    contract, run_id = active.read_bytes(), active.parent.name
    guarded("runs", "abandon", run_id)
    for name in (run_id, "run_20260101_000000_0123456789abcdef"):
        place = active.parent.with_name(name) / "contract.json"
        place.parent.mkdir(parents=True)
        place.write_bytes(contract)
        write(guarded, f"other/{name}.txt")
        done = commit(guarded)
        assert done.code == 0, done.err
    assert guarded("hooks", "install", "--strict").code == 0
    write(guarded, "pkg/new.py")
    assert "there is no active contract" in commit(guarded).err


def test_in_a_worktree_of_a_run_nothing_is_committed_without_a_contract(
    guarded: Coilclaw,
) -> None:
    """An agent is held to its contract, and to nothing being allowed without one."""
    world = guarded.world
    moved = world.root / "elsewhere/worktrees/run_20260101_000000_0123456789abcdef/task"
    for tree in (world.runtime / "worktrees/run_of_a_test/task", moved):
        assert git(guarded, "worktree", "add", "-q", "--detach", str(tree)).code == 0
        (tree / "pkg/new.py").write_text("x = 1\n")
        git(guarded, "add", "-A", cwd=tree)
        done = git(guarded, "commit", "-q", "-m", "work", cwd=tree)
        assert done.code == 0, done.err
        (tree / "README.md").write_text("x\n")
        done = git(guarded, "commit", "-qam", "work", cwd=tree)
        assert "[diff.out_of_scope]" in done.err
    (run_id,) = os.listdir(world.runtime / "active")
    shutil.rmtree(world.runtime / "active" / run_id)
    write(guarded, "README.md")
    assert commit(guarded).code == 0
    for tree in (world.runtime / "worktrees/run_of_a_test/task", moved):
        done = git(guarded, "commit", "-qam", "work", cwd=tree)
        assert (done.code != 0, "there is no active contract" in done.err) == (True, True)


def test_strict_hooks_commit_nothing_without_an_active_contract(coilclaw: Coilclaw) -> None:
    assert coilclaw("hooks", "install", "--strict").code == 0
    write(coilclaw, "pkg/new.py")
    done = commit(coilclaw)
    assert done.code != 0
    assert "there is no active contract" in done.err
    assert "--no-verify" in done.err
    assert commit(coilclaw, "--no-verify").code == 0


def test_what_the_active_contract_allows_is_committed(guarded: Coilclaw) -> None:
    write(guarded, "pkg/new.py", "x = 1\n")
    write(guarded, "docs/guide.md", "# More\n")
    done = commit(guarded)
    assert done.code == 0, done.err


def test_what_it_does_not_allow_is_not(guarded: Coilclaw) -> None:
    repo = guarded.world.repo
    cases: dict[str, Callable[[], object]] = {
        "diff.out_of_scope": lambda: write(guarded, "other/new.txt"),
        "diff.binary": lambda: write(guarded, "pkg/data.bin", b"\0\1\2"),
        "diff.protected": lambda: write(guarded, "pkg/.env", "KEY=1\n"),
        "diff.symlink": lambda: git(guarded, "add", "pkg/link"),
        "diff.special": lambda: git(
            guarded, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},pkg/sub"
        ),
        "diff.case": lambda: write(guarded, "pkg/CALC.py"),
    }
    for rule, change in cases.items():
        os.symlink("/etc/passwd", repo / "pkg/link")
        change()
        done = commit(guarded)
        assert done.code != 0, rule
        assert f"[{rule}]" in done.err, (rule, done.err)
        git(guarded, "reset", "-q", "--hard")
        git(guarded, "clean", "-qfd", "pkg", "other")
    renamed = git(guarded, "mv", "other/outside.txt", "pkg/inside.txt")
    assert renamed.code == 0
    assert "[diff.out_of_scope]" in commit(guarded).err
    git(guarded, "reset", "-q", "--hard")
    removed = git(guarded, "rm", "-q", "other/tool.sh")
    assert removed.code == 0
    assert "[diff.out_of_scope]" in commit(guarded).err


def test_contents_that_are_too_large_to_be_read_count_as_binary(guarded: Coilclaw) -> None:
    write(guarded, "pkg/large.txt", b"x\n" * (MAX_BLOB_BYTES // 2 + 1))
    assert "[diff.binary]" in commit(guarded).err
    write(guarded, "pkg/large.txt", b"x\n" * 1000)
    assert commit(guarded).code == 0


def test_a_contract_that_only_reads_lets_nothing_in(guarded: Coilclaw) -> None:
    (active,) = guarded.world.runtime.glob("active/*/contract.json")
    active.write_bytes(guarded.world.contract(PAUSES, read_only=True))
    write(guarded, "pkg/new.py", "x = 1\n")
    assert "[diff.read_only]" in commit(guarded).err
    active.write_bytes(guarded.world.contract(PAUSES, role="TECH_LEAD"))
    done = commit(guarded)
    assert done.code == 0, done.err


def test_what_is_judged_is_what_would_be_committed(guarded: Coilclaw) -> None:
    """Also with an index of git's own: ``commit -a`` and ``commit PATH``."""
    (guarded.world.repo / "pkg/calc.py").write_text("def add(a, b):\n    return a + b\n")
    (guarded.world.repo / "other/outside.txt").write_text("not allowed\n")
    assert "[diff.out_of_scope]" in commit(guarded, "-a").err
    done = commit(guarded, "pkg/calc.py")
    assert done.code == 0, done.err
    assert guarded.world.git("status", "--porcelain") == "M other/outside.txt"


def test_an_active_contract_that_is_not_valid_rejects(guarded: Coilclaw) -> None:
    (active,) = guarded.world.runtime.glob("active/*/contract.json")
    value = json.loads(active.read_text())
    value["allowed_paths"] = ["other", "../up"]
    active.write_text(json.dumps(value))
    write(guarded, "other/new.txt")
    assert "is not valid" in commit(guarded).err
    active.write_text("{")
    assert "is not valid" in commit(guarded).err


def test_a_run_that_began_with_a_sentence_has_an_active_contract(coilclaw: Coilclaw) -> None:
    """The contract that the PM made counts as soon as there is one."""
    world = coilclaw.world
    world.models["PM"] = Answering(PLAN)
    outcome = world.run(sentence="Please make add add.")
    assert outcome.status == "paused", outcome.reason
    assert coilclaw("hooks", "install").code == 0
    write(coilclaw, "docs/new.md")
    assert commit(coilclaw).code == 0
    write(coilclaw, "other/new.txt")
    assert "[diff.out_of_scope]" in commit(coilclaw).err


def test_files_of_the_repository_are_not_imported_by_the_hook(guarded: Coilclaw) -> None:
    for name in ("coilclaw.py", "argparse.py"):
        (guarded.world.repo / name).write_text("raise SystemExit(0)\n")
    write(guarded, "other/new.txt")
    assert "[diff.out_of_scope]" in commit(guarded).err


def test_a_linked_worktree_asks_the_contracts_of_the_main_one(guarded: Coilclaw) -> None:
    side = guarded.world.root / "side"
    assert git(guarded, "worktree", "add", "-q", str(side), "-b", "side").code == 0
    (side / "pkg/new.py").write_text("x = 1\n")
    git(guarded, "add", "-A", cwd=side)
    done = git(guarded, "commit", "-q", "-m", "work", cwd=side)
    assert done.code == 0, done.err
    (side / "README.md").write_text("x\n")
    assert "[diff.out_of_scope]" in git(guarded, "commit", "-qam", "more", cwd=side).err


# push


@pytest.fixture
def remote(guarded: Coilclaw) -> Path:
    place = guarded.world.root / "remote.git"
    assert git(guarded, "init", "-q", "--bare", str(place)).code == 0
    assert git(guarded, "remote", "add", "origin", str(place)).code == 0
    return place


def test_commits_that_a_contract_allows_are_pushed(guarded: Coilclaw, remote: Path) -> None:
    write(guarded, "pkg/new.py", "x = 1\n")
    assert commit(guarded).code == 0
    done = git(guarded, "push", "-q", "origin", "main")
    assert done.code == 0, done.err
    assert git(guarded, "rev-parse", "main", cwd=remote).out.strip() == guarded.world.git(
        "rev-parse", "main"
    )
    again = git(guarded, "push", "origin", "main")
    assert again.code == 0


def test_a_commit_out_of_scope_is_not_pushed_even_if_a_later_one_takes_it_back(
    guarded: Coilclaw, remote: Path
) -> None:
    write(guarded, "other/secret.txt")
    assert commit(guarded, "--no-verify").code == 0
    assert "[diff.out_of_scope]" in git(guarded, "push", "origin", "main").err
    git(guarded, "rm", "-q", "other/secret.txt")
    assert commit(guarded, "--no-verify").code == 0
    done = git(guarded, "push", "origin", "main")
    assert done.code != 0
    assert "[diff.out_of_scope]" in done.err
    assert git(guarded, "branch", cwd=remote).out == ""
    assert git(guarded, "push", "-q", "--no-verify", "origin", "main").code == 0


def test_what_the_remote_has_is_not_judged_again(guarded: Coilclaw, remote: Path) -> None:
    """Somebody else's work comes in by a merge; only what the merge itself makes counts."""
    write(guarded, "other/theirs.txt")
    assert commit(guarded, "--no-verify").code == 0
    assert git(guarded, "push", "-q", "--no-verify", "origin", "main:theirs").code == 0
    git(guarded, "reset", "-q", "--hard", "HEAD~1")
    write(guarded, "pkg/new.py", "x = 1\n")
    assert commit(guarded).code == 0
    assert git(guarded, "merge", "-q", "--no-edit", "origin/theirs").code == 0
    done = git(guarded, "push", "-q", "origin", "main")
    assert done.code == 0, done.err


def test_strict_hooks_push_nothing_without_an_active_contract(coilclaw: Coilclaw) -> None:
    place = coilclaw.world.root / "remote.git"
    git(coilclaw, "init", "-q", "--bare", str(place))
    assert coilclaw("hooks", "install", "--strict").code == 0
    done = git(coilclaw, "push", str(place), "main")
    assert done.code != 0
    assert "there is no active contract" in done.err
    assert coilclaw("hooks", "uninstall").code == 0
    assert git(coilclaw, "push", "-q", str(place), "main").code == 0


def test_lines_that_git_would_not_write_are_refused(guarded: Coilclaw) -> None:
    done = guarded("hooks", "check", "pre-push", "origin", "url", "--json", stdin=b"main x y z\n")
    assert (done.code, done.json["rule"]) == (2, "hooks.refs")
    nothing = guarded("hooks", "check", "pre-push", "origin", "url", "--json", stdin=b"")
    assert (nothing.code, nothing.json["allowed"]) == (0, True)


# install


def test_existing_hooks_are_kept_and_run_first(guarded: Coilclaw) -> None:
    folder = guarded.world.repo / ".git/hooks"
    log = guarded.world.root / "log"
    assert guarded("hooks", "uninstall").code == 0
    script(folder / "pre-commit", f"echo before >> {log}; test ! -e {log}.no")
    script(folder / "pre-push", f"cat >> {log}")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = guarded("hooks", "install", "--json").json
    assert [(one["done"], one["chained"]) for one in done] == [("installed", True)] * 2
    write(guarded, "pkg/new.py", "x = 1\n")
    assert commit(guarded).code == 0
    assert log.read_text() == "before\n"
    write(guarded, "other/new.txt")
    assert "[diff.out_of_scope]" in commit(guarded).err
    git(guarded, "reset", "-q", "--hard")
    Path(f"{log}.no").touch()
    write(guarded, "pkg/more.py", "x = 1\n")
    assert commit(guarded).code != 0
    Path(f"{log}.no").unlink()
    bare = guarded.world.root / "remote.git"
    git(guarded, "init", "-q", "--bare", str(bare))
    assert git(guarded, "push", "-q", str(bare), "main").code == 0
    assert "refs/heads/main" in log.read_text()
    assert guarded("hooks", "uninstall").code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_installing_again_changes_nothing(coilclaw: Coilclaw) -> None:
    folder = coilclaw.world.repo / ".git/hooks"
    states = [one["state"] for one in coilclaw("hooks", "status", "--json").json]
    assert states == ["missing", "missing"]
    assert coilclaw("hooks", "install").code == 0
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = coilclaw("hooks", "install", "--json").json
    assert [one["done"] for one in done] == ["unchanged", "unchanged"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    (folder / "pre-commit").chmod(0o644)
    status = coilclaw("hooks", "status", "--json").json
    assert [one["state"] for one in status] == ["outdated", "installed"]
    done = coilclaw("hooks", "install", "--json").json
    assert [one["done"] for one in done] == ["updated", "unchanged"]
    assert coilclaw("hooks", "uninstall").code == 0
    again = coilclaw("hooks", "uninstall", "--json").json
    assert [one["done"] for one in again] == ["left", "left"]


def test_strict_hooks_stay_strict_until_they_are_taken_away(coilclaw: Coilclaw) -> None:
    def installed(*flags: str) -> list[tuple[str, bool]]:
        done = coilclaw("hooks", "install", *flags, "--json").json
        return [(one["done"], one["strict"]) for one in done]

    assert installed() == [("installed", False)] * 2
    assert installed("--strict") == [("updated", True)] * 2
    assert installed() == [("unchanged", True)] * 2
    hook = coilclaw.world.repo / ".git/hooks/pre-commit"
    hook.chmod(0o644)
    status = coilclaw("hooks", "status", "--json").json
    assert [(one["state"], one["strict"]) for one in status] == [
        ("outdated", True),
        ("installed", True),
    ]
    assert installed() == [("updated", True), ("unchanged", True)]
    assert coilclaw("hooks", "uninstall").code == 0
    assert installed() == [("installed", False)] * 2


def test_a_foreign_hook_is_never_taken_away(coilclaw: Coilclaw) -> None:
    folder = coilclaw.world.repo / ".git/hooks"
    script(folder / "pre-commit", "exit 0")
    assert coilclaw("hooks", "install").code == 0
    script(folder / "pre-commit", "exit 1")  # somebody else's installer came after us
    done = coilclaw("hooks", "install", "--json")
    assert (done.code, done.json["rule"]) == (2, "hooks.both")
    left = coilclaw("hooks", "uninstall", "--json").json
    assert left[0]["done"] == "left"
    assert (folder / "pre-commit").read_text() == "#!/bin/sh\nexit 1\n"


def test_the_place_that_git_looks_in_is_used(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    world.git("config", "core.hooksPath", ".githooks")
    assert coilclaw("hooks", "install", "--strict").code == 0
    assert (world.repo / ".githooks/pre-commit").exists()
    write(coilclaw, "pkg/new.py")
    assert "there is no active contract" in commit(coilclaw).err
    shutil.rmtree(world.repo / ".githooks")
    shared = world.root / "shared"
    world.git("config", "core.hooksPath", str(shared))
    done = coilclaw("hooks", "install", "--json")
    assert (done.code, done.json["rule"]) == (2, "hooks.shared")
    assert not shared.exists()


# doctor


def test_both_doctors_say_the_same_of_the_agents(coilclaw: Coilclaw) -> None:
    def told() -> tuple[dict[str, str | None], dict[str, str | None]]:
        agents = coilclaw("agents", "doctor", "--json").json
        findings = coilclaw("doctor", "--json").json["findings"]
        programs: dict[str, str | None] = {one["name"]: one["program"] for one in agents}
        return programs, {
            one["name"]: one["detail"] if one["ok"] else None
            for one in findings
            if one["name"] in programs
        }

    own, general = told()
    assert own == general
    place = coilclaw.world.home / "agents" / "codex"
    for program in (
        place / "bin" / "codex",
        place / "lib" / "python3.11" / "site-packages" / "codex_cli_bin" / "bin" / "codex",
    ):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho codex-cli 1.2.3\n")
        program.chmod(0o755)
        own, general = told()
        assert own["codex"] == str(program)
        assert own == general
