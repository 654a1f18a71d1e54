"""``init --repo``, and ``run`` without it: a repository that a person can still work in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runcommands import Coilclaw, Done
from tests.support.runs import ADDS, World, opened


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


@pytest.fixture
def coilclaw(world: World) -> Coilclaw:
    return Coilclaw(world)


# init --repo


def test_init_sets_a_repository_up_and_can_be_repeated(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    (world.repo / ".git/info/exclude").unlink()
    (world.repo / ".gitignore").write_text("build/")
    mine = world.repo / "policies/forbidden_actions.json"
    mine.parent.mkdir()
    own = json.dumps(
        {"version": "v1", "forbidden_actions": ["sudo"], "protected_paths": []}, indent=1
    )
    mine.write_text(own)
    done = coilclaw("init", "--repo", "--json")
    assert done.code == 0, done.out
    assert [one["what"] for one in done.json["items"] if one["made"]] == [
        "runtime root",
        "ignore line",
        "policies",
    ]
    assert not (world.repo / ".git/hooks/pre-commit").exists()
    assert (world.repo / ".gitignore").read_text() == "build/\n/.runtime-cache/\n"
    assert mine.read_text() == own
    again = coilclaw("init", "--repo", str(world.repo / "pkg"), "--json").json
    assert [one["what"] for one in again["items"] if one["made"]] == []
    assert (world.repo / ".gitignore").read_text() == "build/\n/.runtime-cache/\n"
    assert coilclaw("runs", "list").code == 0


def test_init_can_leave_the_tree_and_the_hooks_alone(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    exclude = world.repo / ".git/info/exclude"
    exclude.write_text("# mine\n")
    script = "#!/bin/sh\nexit 0\n"
    (world.repo / ".git/hooks").mkdir(exist_ok=True)
    (world.repo / ".git/hooks/pre-commit").write_text(script)
    assert coilclaw("init", "--repo", "--exclude", "--no-hooks").code == 0
    assert exclude.read_text() == "# mine\n/.runtime-cache/\n"
    assert (world.repo / ".git/hooks/pre-commit").read_text() == script
    assert world.git("status", "--porcelain") == "?? policies/"


def test_init_installs_hooks_where_that_is_asked_for(coilclaw: Coilclaw) -> None:
    for flags, strict in ((("--hooks",), False), (("--hooks", "--strict"), True)):
        done = coilclaw("init", "--repo", *flags, "--json")
        made = {one["what"] for one in done.json["items"] if one["made"]}
        assert {"pre-commit hook", "pre-push hook"} <= made
        status = coilclaw("hooks", "status", "--json").json
        assert [(one["state"], one["strict"]) for one in status] == [("installed", strict)] * 2


def test_init_refuses_what_it_cannot_do(coilclaw: Coilclaw, tmp_path: Path) -> None:
    for arguments, rule in (
        (("--repo", str(tmp_path)), "repository.none"),
        (("--no-hooks",), "usage.init"),
        (("--hooks",), "usage.init"),
        (("--repo", "--strict"), "usage.init"),
        (("--repo", "--workspace", "x"), "usage.init"),
    ):
        done = coilclaw("init", *arguments, "--json")
        assert (done.code, done.json["rule"]) == (2, rule)
    world = coilclaw.world
    (world.repo / "policies").symlink_to(tmp_path)
    done = coilclaw("init", "--repo", "--json")
    assert (done.code, done.json["rule"]) == (2, "init.policies")
    assert list(tmp_path.iterdir()) == []


# doctor


def test_the_doctor_looks_at_the_repository(coilclaw: Coilclaw, tmp_path: Path) -> None:
    world = coilclaw.world
    good = coilclaw("doctor", "--json")
    names = {one["name"]: one["ok"] for one in good.json["findings"]}
    assert good.code == 0
    assert {"repository", "runtime root", "policies", "schemas", "hooks", "codex"} <= names.keys()
    assert (names["hooks"], names["policies"]) == (False, True)
    assert coilclaw("doctor", cwd=tmp_path).code == 0
    assert coilclaw("doctor", "--repo", str(tmp_path)).code == 1
    assert coilclaw("init", "--repo", "--hooks").code == 0
    assert {one["name"]: one["ok"] for one in coilclaw("doctor", "--json").json["findings"]}[
        "hooks"
    ]
    (world.repo / "policies/mcp_allowlist.json").write_text("{}")
    bad = coilclaw("doctor")
    assert bad.code == 1
    assert "FAILED   policies" in bad.out


# run without init


def carried_out(coilclaw: Coilclaw, cwd: Path | None = None) -> Done:
    """Carry out a contract that lies outside of the repository."""
    world = coilclaw.world
    runner = world.script([{"write": ADDS}])
    contract = coilclaw.keep(world.contract())
    return coilclaw("run", contract, "--runner", runner, cwd=cwd)


def status(place: Path) -> str:
    """What a person sees, with the configuration of the repository alone."""
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=place, capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode()


@pytest.mark.parametrize("before", [None, b"", b"# mine\n*.swp", b"/.runtime-cache/cortexpilot\n"])
def test_a_run_without_init_leaves_nothing_untracked(
    coilclaw: Coilclaw, before: bytes | None
) -> None:
    repo = coilclaw.world.repo
    exclude = repo / ".git/info/exclude"
    if before is None:
        shutil.rmtree(exclude.parent)
    else:
        exclude.write_bytes(before)
    covered = before is not None and b"runtime-cache" in before
    for _ in range(2):
        done = carried_out(coilclaw)
        assert done.code == 0, done.out + done.err
        assert status(repo) == ""
        glue = b"\n" if before and not before.endswith(b"\n") else b""
        line = b"" if covered else b"/.runtime-cache/\n"
        assert exclude.read_bytes() == (before or b"") + glue + line


def test_what_the_repository_ignores_itself_needs_no_line(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    exclude = world.repo / ".git/info/exclude"
    exclude.write_bytes(b"")
    (world.repo / ".gitignore").write_text(".runtime-cache\n__pycache__/\n")
    world.git("commit", "-qam", "ignore")
    assert carried_out(coilclaw).code == 0
    assert (status(world.repo), exclude.read_bytes()) == ("", b"")


def test_a_linked_worktree_and_a_submodule_stay_clean_too(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    (world.repo / ".git/info/exclude").write_bytes(b"")
    side = world.root / "side"
    world.git("worktree", "add", "-q", str(side))
    assert carried_out(coilclaw, side).code == 0
    assert (side / ".runtime-cache/cortexpilot/runs").is_dir()
    assert (status(side), status(world.repo)) == ("", "")
    assert (world.repo / ".git/info/exclude").read_bytes() == b"/.runtime-cache/\n"
    outer = world.root / "outer"
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    for arguments in (
        ("init", "-q"),
        (*identity, "submodule", "--quiet", "add", str(world.repo), "sub"),
        (*identity, "commit", "-q", "-m", "outer"),
    ):
        outer.mkdir(exist_ok=True)
        subprocess.run(["git", *arguments], cwd=outer, check=True, timeout=60)
    assert carried_out(coilclaw, outer / "sub").code == 0
    assert (outer / "sub/.runtime-cache").is_dir()
    assert (status(outer / "sub"), status(outer)) == ("", "")
    kept = (outer / ".git/modules/sub/info/exclude").read_text()
    assert kept.endswith("/.runtime-cache/\n")


def test_a_moved_runtime_root_is_named_as_it_is(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    exclude = world.repo / ".git/info/exclude"
    exclude.write_bytes(b"")
    world.environ["CORTEXPILOT_RUNTIME_ROOT"] = "my *runs [1]"
    assert carried_out(coilclaw).code == 0
    assert (world.repo / "my *runs [1]/runs").is_dir()
    assert status(world.repo) == ""
    assert exclude.read_bytes() == b"/my\\ \\*runs\\ \\[1]/\n"
    world.environ["CORTEXPILOT_RUNTIME_ROOT"] = str(world.root / "elsewhere")
    exclude.write_bytes(b"")
    assert carried_out(coilclaw).code == 0
    assert (status(world.repo), exclude.read_bytes()) == ('?? "my *runs [1]/"\n', b"")


def test_an_exclude_file_that_cannot_be_added_to_stops_no_run(coilclaw: Coilclaw) -> None:
    repo = coilclaw.world.repo
    exclude = repo / ".git/info/exclude"
    exclude.write_bytes(b"# mine\n")
    exclude.chmod(0o444)
    done = carried_out(coilclaw)
    assert done.code == 0, done.err
    assert f"{exclude} is read-only, so the line /.runtime-cache/ was not added" in done.err
    assert exclude.read_bytes() == b"# mine\n"
    exclude.unlink()
    exclude.symlink_to(repo / "README.md")
    done = carried_out(coilclaw)
    assert done.code == 0, done.err
    assert f"{exclude} is not a file that the line /.runtime-cache/ can be added to" in done.err
    assert os.readlink(exclude) == str(repo / "README.md")
    exclude.unlink()
    (repo / ".gitignore").write_text("!.runtime-cache/\n")
    for _ in range(2):
        done = carried_out(coilclaw)
        assert done.code == 0, done.err
        assert "a .gitignore takes it back" in done.err
        assert exclude.read_bytes() == b"/.runtime-cache/\n"
