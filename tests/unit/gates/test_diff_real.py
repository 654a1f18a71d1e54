"""The diff gate over real repositories and real snapshots, taken as the orchestrator takes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coilclaw.kernel.tree_files import RegularFile
from coilclaw.runs.gates.diff import Observed, binary_among, find_leavings, judge_diff
from coilclaw.runs.gates.result import GateResult
from coilclaw.runs.gates.scope import Scope
from coilclaw.workspace.git.client import Git
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Link, build, git

TEXT = b"".join(b"line %d\n" % number for number in range(60))
SCOPE = Scope(("src", "bin/tool.sh"))


@dataclass(frozen=True)
class World:
    """A repository with a worktree, and the snapshot from before anybody worked in it."""

    repository: Path
    tree: Path
    store: SnapshotStore
    before: str

    def git(self, *arguments: str) -> bytes:
        return git(self.tree, *arguments)

    def judged(self, scope: Scope = SCOPE) -> GateResult:
        after = self.store.take(self.tree, reread=True).id
        diff = self.store.diff(self.before, after, copies=True)
        new = [change.path for change in diff if change.old_type is None]
        hidden = Git(self.store.directory).find_ignored(
            self.repository, [path for path in new if path.isprintable()]
        )
        old_data, new_data = self._contents(self.before), self._contents(after)
        paths = {path for change in diff for path in change.paths}
        return judge_diff(
            diff,
            scope=scope,
            observed=Observed(
                binary=binary_among(paths, old_data, new_data),
                secrets=frozenset(),
                ignored=frozenset(hidden),
                modes=self.store.modes(after),
                tree=[path for path, _, _ in self.store.files(after)],
                submodules=(),
            ),
        )

    def _contents(self, snapshot: str) -> dict[str, bytes | None]:
        kinds = ("file", "executable")
        paths = [path for path, kind, _ in self.store.files(snapshot) if kind in kinds]
        states = self.store.read(snapshot, paths)
        return {
            path: state.content if isinstance(state, RegularFile) else None
            for path, state in states.items()
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    repository = build(
        tmp_path / "repository",
        {
            "src/a.py": TEXT,
            "src/deep/b.py": TEXT.upper(),
            "lib/c.py": TEXT[::-1],
            "lib/__init__.py": b"",
            "bin/tool.sh": b"#!/bin/sh\n",
            "assets/logo.png": b"\x89PNG\0\0" * 20,
            "src/link": Link("a.py"),
            ".gitignore": b"*.log\n__pycache__/\nbuild/\n",
        },
    )
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "baseline")
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", "--detach", str(tree))
    store = SnapshotStore(tmp_path / "store")
    return World(repository, tree, store, store.take(tree).id)


def rules(result: GateResult) -> list[tuple[str, str]]:
    return [(violation.rule, violation.path) for violation in result.violations]


def write(world: World, path: str, data: bytes) -> None:
    target = world.tree / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def test_nothing_done_is_fine(world: World) -> None:
    assert world.judged().passed


def untracked(world: World) -> None:
    pass


def staged(world: World) -> None:
    world.git("add", "-A", "-f")


def committed(world: World) -> None:
    world.git("add", "-A", "-f")
    world.git("commit", "-qm", "work")


def hidden_from_git(world: World) -> None:
    world.git("add", "-A")
    world.git("update-index", "--assume-unchanged", "src/a.py", "lib/c.py")
    world.git("update-index", "--skip-worktree", "src/a.py", "lib/c.py")


HOW = [untracked, staged, committed, hidden_from_git]


@pytest.mark.parametrize("how", HOW)
def test_defect_5_work_counts_however_git_knows_of_it(
    world: World, how: Callable[[World], None]
) -> None:
    write(world, "lib/c.py", b"changed\n")
    write(world, "lib/new.py", b"new\n")
    write(world, "src/a.py", TEXT + b"more\n")
    how(world)
    assert rules(world.judged()) == [
        ("diff.out_of_scope", "lib/c.py"),
        ("diff.out_of_scope", "lib/new.py"),
    ]


@pytest.mark.parametrize("how", HOW)
def test_defect_5_work_inside_passes_however_git_knows_of_it(
    world: World, how: Callable[[World], None]
) -> None:
    write(world, "src/a.py", TEXT + b"more\n")
    write(world, "src/new.py", b"new\n")
    how(world)
    result = world.judged()
    assert result.passed
    assert result.facts["names"] == ["src/a.py", "src/new.py"]


def test_work_that_was_stashed_is_not_there(world: World) -> None:
    write(world, "lib/c.py", b"changed\n")
    world.git("stash", "-q")
    assert world.judged().passed


def test_work_on_another_branch_is_judged_by_what_stands_there(world: World) -> None:
    world.git("checkout", "-q", "-b", "elsewhere")
    write(world, "lib/c.py", b"changed\n")
    world.git("commit", "-qam", "there")
    assert rules(world.judged())[:1] == [("diff.out_of_scope", "lib/c.py")]


def test_defect_4_ignored_files_are_left_out_and_listed(world: World) -> None:
    write(world, "lib/secret.log", b"x\n")
    write(world, "build/out", b"x\n")
    result = world.judged()
    assert rules(result) == []
    assert result.facts["leavings"] == ["build/out", "lib/secret.log"]


def test_ignore_rules_of_the_worker_hide_nothing(world: World) -> None:
    write(world, ".gitignore", b"*\n")
    write(world, "lib/new.py", b"x\n")
    found = rules(world.judged())
    assert ("diff.out_of_scope", "lib/new.py") in found
    assert ("diff.out_of_scope", ".gitignore") in found
    assert ("diff.unnamed", ".gitignore") in found


def test_leavings_are_set_aside_only_where_the_baseline_ignores_them(world: World) -> None:
    write(world, "src/__pycache__/a.cpython-311.pyc", b"\0\0")
    write(world, "lib/.other_cache/x.json", b"{}\n")
    result = world.judged()
    assert rules(result) == [("diff.out_of_scope", "lib/.other_cache/x.json")]
    assert result.facts["leavings"] == ["src/__pycache__/a.cpython-311.pyc"]


def test_removing_what_was_set_aside_leaves_a_patch_without_it(world: World) -> None:
    write(world, "src/__pycache__/a.cpython-311.pyc", b"\0\0")
    write(world, "src/a.py", TEXT + b"more\n")
    first = world.store.take(world.tree, reread=True).id
    diff = world.store.diff(world.before, first, copies=True)
    for path in find_leavings(diff, SCOPE, frozenset(change.path for change in diff)):
        (world.tree / path).unlink()
    after = world.store.take(world.tree, reread=True).id
    assert b"pycache" not in world.store.patch(world.before, after)
    assert b"more" in world.store.patch(world.before, after)


def test_a_rename_out_of_the_scope_and_into_it(world: World) -> None:
    os.rename(world.tree / "lib/c.py", world.tree / "src/c.py")
    os.rename(world.tree / "src/a.py", world.tree / "lib/a.py")
    assert sorted(rules(world.judged())) == [
        ("diff.out_of_scope", "lib/a.py"),
        ("diff.out_of_scope", "lib/c.py"),
    ]


def test_a_rename_with_changes_is_still_one(world: World) -> None:
    os.rename(world.tree / "lib/c.py", world.tree / "src/c.py")
    write(world, "src/c.py", TEXT[::-1] + b"and more\n")
    assert rules(world.judged()) == [("diff.out_of_scope", "lib/c.py")]


def test_a_copy_from_outside_is_one_end_too_many(world: World) -> None:
    write(world, "src/c.py", TEXT[::-1])
    assert rules(world.judged()) == [("diff.out_of_scope", "lib/c.py")]


def test_a_copy_inside_and_an_empty_file_are_fine(world: World) -> None:
    write(world, "src/deep/a.py", TEXT)
    write(world, "src/pkg/__init__.py", b"")
    assert world.judged().passed


def test_defect_3_links_of_every_kind(world: World) -> None:
    os.symlink("/etc/passwd", world.tree / "src/passwd")
    os.symlink("../..", world.tree / "src/up")
    os.unlink(world.tree / "src/link")
    os.symlink("deep/b.py", world.tree / "src/link")
    os.unlink(world.tree / "src/a.py")
    os.symlink("deep/b.py", world.tree / "src/a.py")
    assert [(rule, path) for rule, path in rules(world.judged()) if rule == "diff.symlink"] == [
        ("diff.symlink", "src/a.py"),
        ("diff.symlink", "src/link"),
        ("diff.symlink", "src/passwd"),
        ("diff.symlink", "src/up"),
    ]


def test_a_link_in_the_place_of_a_directory_of_the_scope(world: World) -> None:
    subprocess.run(["rm", "-r", world.tree / "src"], check=True)
    os.symlink("lib", world.tree / "src")
    found = [rule for rule, _ in rules(world.judged())]
    assert "diff.symlink" in found
    assert "diff.type" in found


def test_defect_3_a_nested_repository_with_and_without_commits(world: World) -> None:
    for name in ("src/one", "src/two"):
        (world.tree / name).mkdir()
        git(world.tree / name, "init", "-q")
    write(world, "src/one/x", b"x\n")
    git(world.tree / "src/one", "add", "-A")
    git(world.tree / "src/one", "commit", "-qm", "inner")
    found = rules(world.judged())
    assert ("diff.nested", "src/one/.git") in found
    assert ("diff.nested", "src/two/.git") in found


def test_a_bare_repository_is_one_whatever_its_name(world: World) -> None:
    git(world.tree, "init", "-q", "--bare", "src/one")
    git(world.tree, "clone", "-q", "--bare", ".", "src/a/two")
    found = rules(world.judged())
    assert ("diff.nested", "src/one") in found
    assert ("diff.nested", "src/a/two") in found


def test_a_file_that_is_called_head_makes_no_repository(world: World) -> None:
    write(world, "src/one/HEAD", b"ref: refs/heads/main\n")
    assert rules(world.judged()) == []


def test_a_git_file_that_points_elsewhere_is_a_nested_repository(world: World) -> None:
    write(world, "src/sub/.git", b"gitdir: /tmp/elsewhere\n")
    assert ("diff.nested", "src/sub/.git") in rules(world.judged())


def test_a_gitlink_that_is_only_staged_or_committed_leaves_no_trace(world: World) -> None:
    head = world.git("rev-parse", "HEAD").decode().strip()
    world.git("update-index", "--add", "--cacheinfo", f"160000,{head},src/module")
    world.git("commit", "-qm", "a gitlink")
    assert world.judged().passed
    write(world, ".gitmodules", b'[submodule "m"]\n\tpath = src/module\n')
    assert ("diff.protected", ".gitmodules") in rules(world.judged(Scope(("src", ".gitmodules"))))


def test_defect_2_binary_contents(world: World) -> None:
    write(world, "src/data.bin", b"text\n" * 2000 + b"\0")
    write(world, "src/packed.gz", bytes(range(1, 256)))
    write(world, "src/latin.txt", "größe\n".encode("latin-1"))
    assert rules(world.judged()) == [
        ("diff.binary", "src/data.bin"),
        ("diff.binary", "src/packed.gz"),
    ]
    assert world.judged(Scope(("src",), binary_paths=("src/data.bin", "src/packed.gz"))).passed


def test_a_binary_file_that_is_removed_or_becomes_text(world: World) -> None:
    scope = Scope(("assets",))
    write(world, "assets/logo.png", b"no logo\n")
    assert rules(world.judged(scope)) == [("diff.binary", "assets/logo.png")]
    os.unlink(world.tree / "assets/logo.png")
    assert rules(world.judged(scope)) == [("diff.binary", "assets/logo.png")]


def test_modes(world: World) -> None:
    os.chmod(world.tree / "bin/tool.sh", 0o755)
    result = world.judged()
    assert result.passed
    assert result.facts["mode_changes"] == ["bin/tool.sh"]
    os.chmod(world.tree / "bin/tool.sh", 0o4755)
    os.chmod(world.tree / "lib/c.py", 0o755)
    assert rules(world.judged()) == [
        ("diff.mode", "bin/tool.sh"),
        ("diff.out_of_scope", "lib/c.py"),
    ]


def test_special_files(world: World) -> None:
    os.mkfifo(world.tree / "src/pipe")
    assert rules(world.judged()) == [("diff.special", "src/pipe")]


def test_odd_names(world: World) -> None:
    names = [b"src/a\nb", b"src/\xff\xfe", b"src/ends.", b"src/aux.py", b"src/a\\b", b"src/-rf"]
    for name in names:
        with open(os.path.join(os.fsencode(world.tree), name), "wb") as file:
            file.write(b"x\n")
    found = [rule for rule, _ in rules(world.judged())]
    assert found == ["diff.name"] * 5


def test_names_that_differ_in_case_only(world: World) -> None:
    write(world, "src/A.py", b"other\n")
    assert rules(world.judged()) == [("diff.case", "src/A.py")]
    os.unlink(world.tree / "src/a.py")
    assert rules(world.judged()) == [("diff.case", "src/A.py")]


def test_a_directory_in_the_place_of_a_file(world: World) -> None:
    os.unlink(world.tree / "src/a.py")
    write(world, "src/a.py/x", b"x\n")
    assert rules(world.judged()) == [("diff.type", "src/a.py")]


def test_what_an_agent_plants_for_git_never_runs_and_is_seen(world: World, tmp_path: Path) -> None:
    """Hooks, filters, a file system monitor and attributes, in every place git reads them from."""
    trap = tmp_path / "ran"
    command = f"touch {trap}"
    git(world.repository, "config", "core.fsmonitor", command)
    git(world.repository, "config", "filter.evil.clean", command)
    git(world.repository, "config", "diff.external", command)
    git(world.repository, "config", "core.hooksPath", str(tmp_path / "hooks"))
    hook = world.repository / ".git/hooks/post-index-change"
    hook.write_text(f"#!/bin/sh\n{command}\n")
    hook.chmod(0o755)
    write(world, "src/.gitattributes", b"* filter=evil diff=evil\n")
    write(world, "src/a.py", TEXT + b"more\n")
    # The ignore rules are asked through our own git, which knows nothing of all this.
    assert rules(world.judged()) == [("diff.unnamed", "src/.gitattributes")]
    assert not trap.exists()


def test_a_main_worktree_shows_what_was_planted_in_its_git(world: World, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "other")
    before = store.take(world.repository).id
    git(world.repository, "config", "core.fsmonitor", "true")
    (world.repository / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    (world.repository / ".git/info").mkdir(exist_ok=True)
    (world.repository / ".git/info/attributes").write_text("* filter=evil\n")
    git(world.repository, "update-ref", "refs/heads/other", "HEAD")
    diff = store.diff(before, store.take(world.repository).id, copies=True)
    nothing = Observed(frozenset(), frozenset(), frozenset(), {}, (), ())
    result = judge_diff(diff, scope=SCOPE, observed=nothing)
    assert rules(result) == [
        ("diff.git", ".git:attributes"),
        ("diff.git", ".git:config"),
        ("diff.git", ".git:hooks"),
        ("diff.git", ".git:refs"),
    ]


def test_a_worktree_pointer_that_was_bent_is_seen(world: World) -> None:
    (world.tree / ".git").write_text("gitdir: /tmp/elsewhere\n")
    after = world.store.take(world.tree, reread=True).id
    diff = world.store.diff(world.before, after, copies=True)
    nothing = Observed(frozenset(), frozenset(), frozenset(), {}, (), ())
    assert rules(judge_diff(diff, scope=SCOPE, observed=nothing)) == [("diff.git", ".git:pointer")]
