"""The code at every part: what is committed, what is left alone, and how it comes back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.trajectory import agent_workspace, bundles
from coilclaw.traces.trajectory.agent_workspace import Ignored, read_patterns
from coilclaw.traces.trajectory.checkpoints import BRANCH, Checkpoints
from coilclaw.traces.trajectory.trace import FileChange, RepoCheckpoint
from coilclaw.workspace.snapshot.store import SnapshotStore


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=where, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def checkpoints(tmp_path: Path, root: Path) -> Checkpoints:
    return made(tmp_path, root)


def made(tmp_path: Path, root: Path, *ignore: str) -> Checkpoints:
    return Checkpoints(
        tmp_path / "repo.git", root, ignored=Ignored(ignore), seconds=lambda: 1_700_000_000
    )


def test_what_did_not_change_is_not_committed(checkpoints: Checkpoints, root: Path) -> None:
    (root / "a").write_text("1\n")
    first = checkpoints.begin()
    assert checkpoints.take("part 1 checkpoint") is None
    (root / "a").touch()
    (root / "empty").mkdir()
    assert checkpoints.take("part 1 checkpoint") is None
    assert checkpoints.state == first


def test_every_change_is_committed_whoever_made_it(checkpoints: Checkpoints, root: Path) -> None:
    (root / "a").write_text("1\n2\n")
    (root / "gone").write_text("x\n")
    first = checkpoints.begin()
    (root / "a").write_text("1\n3\n4\n")
    (root / "gone").unlink()
    (root / "bin").write_bytes(b"\0\1")
    os.symlink("a", root / "link")
    os.mkdir(root / "d")
    (root / "d" / "run").write_text("#!/bin/sh\n")
    (root / "d" / "run").chmod(0o755)
    done = checkpoints.take("part 1 checkpoint")
    assert done == RepoCheckpoint(
        commit_before=first.commit,
        commit_after=checkpoints.state.commit,
        committed=True,
        changed_files=("a", "bin", "d/run", "gone", "link"),
        numstat=(
            FileChange(path="a", added=2, removed=1),
            FileChange(path="bin", added=None, removed=None),
            FileChange(path="d/run", added=1, removed=0),
            FileChange(path="gone", added=0, removed=1),
            FileChange(path="link", added=1, removed=0),
        ),
    )
    repo = checkpoints.git.git_dir
    assert git(repo, "log", "--format=%s|%an|%ct", BRANCH).splitlines() == [
        "part 1 checkpoint|CoilClaw trajectory|1700000000",
        "the workspace as it was given|CoilClaw trajectory|1700000000",
    ]
    assert git(repo, "ls-tree", "-r", "--format=%(objectmode) %(path)", BRANCH).splitlines() == [
        "100644 a",
        "100644 bin",
        "100755 d/run",
        "120000 link",
    ]
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


def test_the_agents_own_repository_is_not_touched(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    agent_workspace.prepare_workspace(root, None)
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit", "reference-transaction"):
        hook = root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
        hook.chmod(0o755)
    (root / ".gitattributes").write_text("* text eol=crlf filter=evil\n")
    git(root, "config", "filter.evil.clean", f"touch {tmp_path}/filtered; cat")
    git(root, "config", "core.fsmonitor", f"touch {tmp_path}/monitored; false")
    (root / ".gitignore").write_text("*\n")
    checkpoints = made(tmp_path, root)
    checkpoints.begin()
    before = {str(path): path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}
    (root / "a").write_bytes(b"1\r\n2\n")
    assert checkpoints.take("x") is not None
    after = {str(path): path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}
    assert after == before
    assert not list(tmp_path.glob("*ed"))
    blob = git(checkpoints.git.git_dir, "rev-parse", f"{BRANCH}:a")
    assert blob == git(tmp_path, "hash-object", "--no-filters", str(root / "a"))


def test_what_is_ignored_is_no_change(tmp_path: Path, root: Path) -> None:
    checkpoints = made(tmp_path, root, "target/", "*.o", "/out/*.log")
    checkpoints.begin()
    (root / "target" / "deep").mkdir(parents=True)
    (root / "target" / "deep" / "x").write_text("x")
    (root / "a.o").write_text("x")
    (root / "out").mkdir()
    (root / "out" / "a.log").write_text("x")
    assert checkpoints.take("x") is None
    assert checkpoints.take("x", ["a.o", "target/deep/x"]) is None
    (root / "deep").mkdir()
    (root / "deep" / "out.log").write_text("x")
    done = checkpoints.take("x")
    assert done is not None
    assert done.changed_files == ("deep/out.log",)


@pytest.mark.parametrize("pattern", ["!x", "../x", "a/../b", "x" * 501])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="cannot be a pattern"):
        Ignored((pattern,))


def test_patterns_are_read_as_from_a_gitignore() -> None:
    assert read_patterns("# outputs\n\n*.o \ntarget/\n") == ("*.o", "target/")
    with pytest.raises(UsageError, match="1001 patterns"):
        read_patterns("x\n" * 1001)


def test_paths_that_are_named_give_the_same_tree(checkpoints: Checkpoints, root: Path) -> None:
    (root / "d" / "e").mkdir(parents=True)
    for name in ("a", "d/b", "d/e/c", "d/x"):
        (root / name).write_text(name)
    checkpoints.begin()
    (root / "d" / "e" / "c").unlink()
    (root / "d" / "e").rmdir()
    (root / "d" / "b").write_text("new")
    (root / "new" / "er").mkdir(parents=True)
    (root / "new" / "er" / "f").write_text("f")
    done = checkpoints.take("x", ["d/e/c", "d/b", str(root / "new" / "er" / "f"), "never/was"])
    assert done is not None
    assert done.changed_files == ("d/b", "d/e/c", "new/er/f")
    assert checkpoints.tree() == checkpoints.state.tree
    assert git(checkpoints.git.git_dir, "fsck", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize("path", ["d", "link/x", "../x", ".git/config", "a\nb", "a\0b", "\ud800"])
def test_a_path_that_is_not_plain_has_the_whole_tree_looked_at(
    checkpoints: Checkpoints, root: Path, path: str
) -> None:
    (root / "d").mkdir()
    (root / "d" / "x").write_text("1")
    os.symlink("d", root / "link")
    checkpoints.begin()
    (root / "d" / "x").write_text("2")
    done = checkpoints.take("x", [path])
    assert done is not None
    assert done.changed_files == ("d/x",)


def test_what_was_not_recorded_is_kept_under_a_name(checkpoints: Checkpoints, root: Path) -> None:
    (root / "a").write_text("1")
    first = checkpoints.begin()
    assert checkpoints.leave(3) is None
    for number in range(2):
        (root / "a").write_text(f"unrecorded {number}")
        left = checkpoints.leave(3)
        assert left is not None
        commit, ref = left
        assert ref == f"refs/heads/leftover/after-part-3-{number}"
        repo = checkpoints.git.git_dir
        assert git(repo, "show", f"{ref}:a") == f"unrecorded {number}"
        assert git(repo, "rev-parse", f"{ref}^", ref).split() == [first.commit, commit]
    assert checkpoints.state == first


def test_the_workspace_comes_back_to_the_byte(tmp_path: Path, root: Path) -> None:
    checkpoints = made(tmp_path, root, "*.o")
    (root / ".gitattributes").write_text("* text eol=crlf ident\n")
    (root / "a").write_bytes(b"1\r\n2\n$Id$\n")
    (root / "d").mkdir()
    (root / "d" / "x").write_text("x")
    os.symlink("/etc", root / "link")
    (root / "swap").write_text("a file")
    state = checkpoints.begin()
    (root / "a").write_bytes(b"other")
    (root / "d" / "x").unlink()
    (root / "d").rmdir()
    os.symlink("/srv", root / "d")
    (root / "link").unlink()
    (root / "swap").unlink()
    (root / "swap").mkdir()
    (root / "swap" / "new").write_text("new")
    (root / "b.o").write_text("an output")
    checkpoints.restore()
    assert checkpoints.tree() == state.tree
    assert (root / "a").read_bytes() == b"1\r\n2\n$Id$\n"
    assert (root / "d" / "x").read_text() == "x"
    assert os.readlink(root / "link") == "/etc"
    assert (root / "swap").read_text() == "a file"
    assert (root / "b.o").read_text() == "an output"


def test_it_goes_on_at_the_commit_that_was_recorded(tmp_path: Path, root: Path) -> None:
    checkpoints = made(tmp_path, root)
    first = checkpoints.begin()
    (root / "a").write_text("ahead")
    checkpoints.take("part 1 checkpoint")
    again = made(tmp_path, root)
    assert again.open(first.commit) == first
    assert git(again.git.git_dir, "rev-parse", BRANCH) == first.commit
    with pytest.raises(EnvironmentFault, match="is not in"):
        again.open("0" * 40)


def test_pieces_and_the_whole_bundle_hold_the_same(tmp_path: Path, root: Path) -> None:
    checkpoints = made(tmp_path, root)
    checkpoints.begin()
    place = tmp_path / "bundles"
    bundles.write_piece(checkpoints.git, place / bundles.piece_name(0), None)
    commits = {checkpoints.state.commit}
    for number in (1, 3, 12):
        before = checkpoints.state.commit
        (root / "a").write_text(f"{number}")
        checkpoints.take("x")
        name = bundles.piece_name(number, 2 if number == 3 else None)
        (place / f"{name}.lock").touch()  # of one that was killed
        bundles.write_piece(checkpoints.git, place / name, before)
        commits.add(checkpoints.state.commit)
    (place / "notes.txt").touch()
    names = [piece.name for piece in bundles.pieces(place)]
    assert names == ["0.bundle", "1.bundle", "3-turn2.bundle", "12.bundle"]
    pieced = bundles.assemble(bundles.pieces(place), tmp_path / "pieced.git")
    assert bundles.commits(pieced) == commits
    bundles.write_whole(checkpoints.git, tmp_path / "repo.bundle")
    whole = bundles.assemble([tmp_path / "repo.bundle"], tmp_path / "whole.git")
    assert bundles.commits(whole) == commits
    git(tmp_path, "clone", "-q", "repo.bundle", "clone")
    assert (tmp_path / "clone" / "a").read_text() == "12"


def test_a_bundle_that_is_missing_or_cut_is_noticed(tmp_path: Path, root: Path) -> None:
    checkpoints = made(tmp_path, root)
    checkpoints.begin()
    place = tmp_path / "bundles"
    bundles.write_piece(checkpoints.git, place / "0.bundle", None)
    before = checkpoints.state.commit
    (root / "a").write_text("1")
    checkpoints.take("x")
    bundles.write_piece(checkpoints.git, place / "1.bundle", before)
    with pytest.raises(EnvironmentFault):
        bundles.assemble([place / "1.bundle"], tmp_path / "one.git")
    with pytest.raises(EnvironmentFault, match=r"2\.bundle does not exist"):
        bundles.assemble([place / "2.bundle"], tmp_path / "two.git")
    (place / "1.bundle").write_bytes((place / "1.bundle").read_bytes()[:-30])
    with pytest.raises(EnvironmentFault):
        bundles.assemble(bundles.pieces(place), tmp_path / "cut.git")


def test_the_agents_own_commits_are_seen_without_running_anything(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    agent_workspace.prepare_workspace(root, None)
    head = git(root, "rev-parse", "HEAD")
    assert agent_workspace.agent_head(root) == head
    git(root, "commit", "-q", "--allow-empty", "-m", "mine")
    moved = git(root, "rev-parse", "HEAD")
    assert agent_workspace.agent_head(root) == moved != head
    git(root, "pack-refs", "--all")
    assert agent_workspace.agent_head(root) == moved
    git(root, "checkout", "-q", "--detach", head)
    assert agent_workspace.agent_head(root) == head


@pytest.mark.parametrize(
    "head",
    ["", "junk", "ref: refs/heads/../../../x", "ref: refs/heads/none", "ref: ../x", "0" * 39],
)
def test_an_odd_head_tells_nothing(tmp_path: Path, head: str) -> None:
    root = tmp_path / "workspace"
    agent_workspace.prepare_workspace(root, None)
    (root / ".git" / "HEAD").write_text(head)
    assert agent_workspace.agent_head(root) is None


def test_a_link_or_a_pipe_as_head_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    agent_workspace.prepare_workspace(root, None)
    place = root / ".git" / "HEAD"
    (tmp_path / "commit").write_text("0" * 40)
    place.unlink()
    os.symlink(tmp_path / "commit", place)
    assert agent_workspace.agent_head(root) is None
    place.unlink()
    os.mkfifo(place)
    assert agent_workspace.agent_head(root) is None
    assert agent_workspace.agent_head(tmp_path / "nowhere") is None


def test_a_workspace_has_the_files_of_its_template(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "build.sh").write_text("#!/bin/sh\n")
    (template / "build.sh").chmod(0o755)
    os.symlink("build.sh", template / "link")
    root = tmp_path / "workspace"
    agent_workspace.prepare_workspace(root, template)
    assert os.access(root / "build.sh", os.X_OK)
    assert os.readlink(root / "link") == "build.sh"
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "--format=%an %s") == "Agent The workspace as it was given"
    with pytest.raises(EnvironmentFault, match="cannot make the workspace"):
        agent_workspace.prepare_workspace(root, template)


def test_a_tree_that_a_snapshot_has_is_not_kept_twice(checkpoints: Checkpoints, root: Path) -> None:
    (root / "a").write_text("1")
    checkpoints.begin()
    store = SnapshotStore(checkpoints.git.git_dir)
    (known,) = store.list()
    (root / "a").write_text("2")
    checkpoints.take("x")
    assert {store.take(root).tree, git(store.directory, "rev-parse", f"{known}^{{tree}}")} == set(
        git(store.directory, "log", "--format=%T", BRANCH).split()
    )
