"""The user's repository is read as it is, and nothing that it configures runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.workspace.git.repository import Repository, branch_ref, read_pointer
from tests.support.snapshot_trees import Content, Link, Program, build, git

FILES: dict[str, Content] = {
    "README.md": b"hello\n",
    "src/a.py": b"a = 1\n",
    "src/deep/run.sh": Program(b"#!/bin/sh\n"),
    "link": Link("README.md"),
    "odd \n name\t\xc3\xa9": b"odd\n",
    ":(top)magic": b"magic\n",
}


def repository_at(root: Path, entries: dict[str, Content] | None = None) -> Path:
    build(root, FILES if entries is None else entries)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository_at(tmp_path / "tree")


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").decode().strip()


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a git repository") as caught:
        Repository.open(tmp_path)
    assert caught.value.rule == "repository.none"


def test_a_bare_repository_is_refused(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", "tree", "bare.git")
    for path in (tmp_path / "bare.git", root / ".git"):
        with pytest.raises(UsageError, match="bare") as caught:
            Repository.open(path)
        assert caught.value.rule == "repository.bare"
    git(root, "config", "core.bare", "true")
    with pytest.raises(UsageError, match="bare repository"):
        Repository.open(root)


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(UsageError, match="has no commit yet") as caught:
        Repository.open(tmp_path)
    assert caught.value.rule == "repository.empty"
    assert caught.value.hint is not None


def test_a_git_file_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    build(tmp_path, {".git": b"gitdir: nowhere\n"})
    with pytest.raises(UsageError, match="does not lead to a git directory") as caught:
        Repository.open(tmp_path)
    assert caught.value.rule == "repository.pointer"


def test_other_object_names_than_sha1_are_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    with pytest.raises(UsageError, match="sha256") as caught:
        Repository.open(tmp_path)
    assert caught.value.rule == "repository.format"


def test_it_is_found_from_below_and_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "door").symlink_to(root)
    for path in (root, root / "src" / "deep", tmp_path / "door" / "src"):
        found = Repository.open(path)
        assert (found.top, found.git_dir, found.common_dir) == (root, root / ".git", root / ".git")


def modified(repository: Repository, *paths: str) -> tuple[str, ...]:
    options = ("--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=all")
    found = repository.git.list_names("status", *options, "--", *paths, work_tree=repository.top)
    return tuple(sorted(row[3:] for row in found))


def test_a_linked_worktree_and_a_submodule_are_repositories_too(root: Path, tmp_path: Path) -> None:
    git(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    linked = Repository.open(tmp_path / "side")
    assert linked.head() == ("side", head(root))
    assert linked.git_dir == root / ".git" / "worktrees" / "side"
    assert linked.common_dir == root / ".git"
    outer = repository_at(tmp_path / "outer", {"x": b"x"})
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(root), "sub")
    inner = Repository.open(outer / "sub" / "src")
    assert inner.top == outer / "sub"
    assert inner.common_dir == outer / ".git" / "modules" / "sub"
    assert not modified(inner)
    (outer / "sub" / "README.md").write_text("changed\n")
    assert modified(inner) == ("README.md",)


def test_head_names_the_branch_unless_it_is_detached(root: Path) -> None:
    repository = Repository.open(root)
    assert repository.head() == ("main", head(root))
    git(root, "checkout", "-q", "--detach")
    assert repository.head() == (None, head(root))


@pytest.mark.parametrize("ref", ["", "-q", "--all", "a\nb", "x" * 600, "--output=/tmp/x"])
def test_what_is_no_name_is_not_asked_about(root: Path, ref: str) -> None:
    with pytest.raises(UsageError) as caught:
        Repository.open(root).resolve(ref)
    assert caught.value.rule == "repository.ref"


@pytest.mark.parametrize("ref", ["nothing", "0" * 40, "HEAD:README.md", "HEAD^{tree}", "HEAD~7"])
def test_a_name_of_no_commit_is_refused(root: Path, ref: str) -> None:
    with pytest.raises(UsageError) as caught:
        Repository.open(root).resolve(ref)
    assert caught.value.rule == "repository.unknown_ref"


def test_every_name_of_a_commit_gives_its_full_id(root: Path) -> None:
    git(root, "tag", "-a", "-m", "t", "v1")
    repository, commit = Repository.open(root), head(root)
    for ref in ("HEAD", "main", "refs/heads/main", commit[:10], commit, "v1", "@"):
        assert repository.resolve(ref) == commit
    assert repository.branch("main") == commit
    assert repository.branch("other") is None


@pytest.mark.parametrize(
    "name", ["", "-x", "a..b", "a b", "a~1", "a.lock", "/a", "a//b", "a/.b", "x@{1}", "a\\b", "a:b"]
)
def test_what_no_branch_can_be_called_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        branch_ref(name)


def test_branches_with_slashes_and_dots_are_branches() -> None:
    assert branch_ref("feature/v1.2=x") == "refs/heads/feature/v1.2=x"


def test_a_commit_is_listed_and_read(root: Path) -> None:
    repository, commit = Repository.open(root), head(root)
    assert set(repository.files(commit)) == set(FILES)
    assert set(repository.directories(commit)) == {"src", "src/deep"}
    assert repository.tree(commit) == git(root, "rev-parse", "HEAD^{tree}").decode().strip()
    for name in ("README.md", "odd \n name\t\xc3\xa9", ":(top)magic"):
        assert repository.read(commit, name, 100) == FILES[name]
    assert repository.read(commit, "src/deep/run.sh", 100) == b"#!/bin/sh\n"
    assert repository.read(commit, "missing", 100) is None
    assert repository.read(commit, "src/*.py", 100) is None


def test_what_is_no_file_or_too_large_is_not_read(root: Path) -> None:
    repository, commit = Repository.open(root), head(root)
    for name in ("src", "link"):
        with pytest.raises(UsageError) as caught:
            repository.read(commit, name, 100)
        assert caught.value.rule == "repository.not_a_file"
    assert repository.read(commit, "README.md", 6) == b"hello\n"
    with pytest.raises(UsageError) as caught:
        repository.read(commit, "README.md", 5)
    assert caught.value.rule == "repository.file_large"
    with pytest.raises(UsageError, match="not the full id"):
        repository.tree("HEAD")


def test_ancestors_and_modified_files(root: Path) -> None:
    first = head(root)
    (root / "src/a.py").write_text("a = 2\n")
    (root / "untracked").write_text("x")
    repository = Repository.open(root)
    assert modified(repository) == ("src/a.py",)
    assert not modified(repository, "README.md")
    assert modified(repository, "src")
    git(root, "commit", "-q", "-am", "second")
    assert not modified(repository)
    assert repository.is_ancestor(first, head(root))
    assert not repository.is_ancestor(head(root), first)


def test_nothing_that_the_repository_configures_runs(root: Path, tmp_path: Path) -> None:
    trap = build(
        tmp_path, {"trap": Program(b"#!/bin/sh\necho ran >> '%s/ran'\ncat\n" % bytes(tmp_path))}
    )
    program = str(trap / "trap")
    for name in (
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "diff.external",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "diff.x.textconv",
        "diff.x.command",
        "alias.status",
        "alias.rev-parse",
    ):
        git(root, "config", name, f"!{program}" if name.startswith("alias") else program)
    git(root, "config", "filter.x.required", "true")
    build(root / ".git", {"info/attributes": b"* filter=x diff=x\n"})
    # A file that has to be read again, because its times moved.
    os.utime(root / "README.md", (1, 1))
    repository, commit = Repository.open(root), head(root)
    assert repository.head() == ("main", commit)
    assert not modified(repository)
    assert repository.read(commit, "README.md", 100) == b"hello\n"
    assert set(repository.files(commit)) == set(FILES)
    assert not (tmp_path / "ran").exists()
    # The trap works: without our care it is run.
    with pytest.raises(AssertionError, match="clean filter 'x' failed"):
        git(root, "status")
    assert (tmp_path / "ran").exists()


def test_a_pointer_is_a_small_plain_file(tmp_path: Path) -> None:
    build(tmp_path, {"good": b"line\n", "long": b"x" * 20_000, "link": Link("good"), "nul": b"\0"})
    os.mkfifo(tmp_path / "fifo")
    found = {
        name: read_pointer(tmp_path / name) for name in ("good", "long", "link", "nul", "fifo")
    }
    assert found == {"good": "line", "long": None, "link": None, "nul": None, "fifo": None}
