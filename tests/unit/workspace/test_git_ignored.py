from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import GitFailed, UsageError
from coilclaw.workspace.git import client as git_module
from coilclaw.workspace.git.client import Git
from tests.support.snapshot_trees import Empty, Link, build, git

ODD = os.fsdecode(b"odd \xff\nname")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def ask(root: Path, *paths: str) -> frozenset[str]:
    return Git(root.parent / "store").find_ignored(root, paths)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a\0b"])
def test_what_is_no_plain_relative_path_is_refused(root: Path, path: str) -> None:
    build(root, {".gitignore": b"*\n"})
    with pytest.raises(UsageError, match="not a plain relative path"):
        ask(root, path)


def test_too_many_paths_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(root, {".gitignore": b"*\n"})
    monkeypatch.setattr(git_module, "MAX_CANDIDATES", 2)
    assert ask(root, "a", "b") == {"a", "b"}
    with pytest.raises(UsageError, match="3 paths are more than the 2"):
        ask(root, "a", "b", "c")


def test_a_missing_root_is_an_error_not_an_empty_answer(root: Path) -> None:
    with pytest.raises(GitFailed):
        ask(root, "a")


@pytest.mark.parametrize(
    ("rules", "named", "not_named"),
    [
        (b"*.log\n", ["a.log", "deep/er/b.log"], ["a.log.txt", "log"]),
        (b"*.log\n!keep.log\n", ["a.log"], ["keep.log", "d/keep.log"]),
        (b"/build\n", ["build", "build/x"], ["d/build"]),
        (b"out/\n", ["out/x", "d/out/deep/x", "made", "made/x"], ["out", "d/out"]),
        (b"a/b\n", ["a/b", "a/b/c"], ["d/a/b"]),
        (b"**/cache/*.bin\n", ["cache/a.bin", "x/y/cache/a.bin"], ["cache/d/a.bin"]),
        (b"docs/**/*.tmp\n", ["docs/a.tmp", "docs/x/y/a.tmp"], ["a.tmp", "x/docs/a.tmp"]),
        (b"top/*\n!top/kept\n", ["top/x"], ["top/kept", "top/kept/y"]),
        (b"shut/\n!shut/kept\n", ["shut/kept"], ["open/kept"]),
        (b"\\#x\n# comment\n\\!y\ntrail  \n", ["#x", "!y", "trail"], ["# comment", "x", "trail  "]),
        (b"", [], ["a", ".gitignore"]),
    ],
)
def test_git_semantics(root: Path, rules: bytes, named: list[str], not_named: list[str]) -> None:
    build(root, {".gitignore": rules + b"made/\n", "made": Empty()})
    assert ask(root, *named, *not_named) == frozenset(named)


def test_files_of_every_level_count_and_the_nearest_wins(root: Path) -> None:
    build(
        root,
        {".gitignore": b"*.o\n", "lib/.gitignore": b"!*.o\n/gen\n", "lib/x/y/.gitignore": b"*\n"},
    )
    paths = ["a.o", "src/a.o", "lib/a.o", "lib/gen", "lib/d/gen", "lib/x/y/z", "lib/x/z"]
    assert ask(root, *paths) == {"a.o", "src/a.o", "lib/gen", "lib/x/y/z"}


def test_tracked_files_count_and_only_the_trees_own_rules_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(root, {".gitignore": b"secret\n", "secret": b"", "other": b"", "more": b""})
    git(root, "init", "-q")
    git(root, "add", "-f", "secret")
    build(root.parent, {"excludes": b"*\n", "home/.config/git/ignore": b"*\n"})
    git(root, "config", "core.excludesFile", str(root.parent / "excludes"))
    build(root, {".git/info/exclude": b"*\n"})
    monkeypatch.setenv("HOME", str(root.parent / "home"))
    assert ask(root, "secret", "other", "more") == {"secret"}


def test_names_of_any_kind(root: Path) -> None:
    names = [ODD, ":(top)x", ":!x", "*", "-n", "a b", "ü", '"quoted"', "[ab]", "\x1b[31m"]
    build(root, {".gitignore": b"hidden/\n"})
    assert ask(root, *names) == frozenset()
    inside = [f"hidden/{name}" for name in names]
    assert ask(root, *names, *inside) == frozenset(inside)


def test_more_paths_than_a_pipe_holds(root: Path) -> None:
    build(root, {".gitignore": b"*.log\n"})
    names = [
        f"directory-{number}/{'x' * 60}.{end}" for number in range(4000) for end in ("log", "c")
    ]
    assert ask(root, *names) == frozenset(name for name in names if name.endswith(".log"))


def test_a_path_through_a_link_counts_as_the_link_or_the_place_it_leads_to(root: Path) -> None:
    outside = build(root.parent / "outside", {"x": b""})
    build(
        root,
        {
            ".gitignore": b"/hidden-link\n/real/secret\n",
            "real/secret": b"",
            "real/open": b"",
            "link": Link("real"),
            "hidden-link": Link("real"),
            "out": Link(str(outside)),
        },
    )
    paths = ["link/secret", "link/open", "hidden-link/open", "out/x", "link"]
    assert ask(root, *paths) == {"link/secret", "hidden-link/open"}


def test_nothing_to_ask_starts_nothing(root: Path) -> None:
    store = root.parent / "store"
    assert Git(store).find_ignored(root, []) == frozenset()
    assert not store.exists()


def test_planted_configuration_runs_nothing(root: Path) -> None:
    marker = root.parent / "marker"
    build(root, {".gitignore": b"x\n"})
    git(root, "init", "-q")
    git(root, "config", "core.fsmonitor", f"touch {marker}; false")
    git(root, "config", "core.hooksPath", str(root))
    assert ask(root, "x") == {"x"}
    assert not marker.exists()
