"""Differences between public releases, as diff and git write them, applied to the older one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.project_checkouts import ProjectStore

pytestmark = pytest.mark.full

RELEASES = [("toolz", "0.11.2", "0.12.0"), ("more-itertools", "10.1.0", "10.5.0")]


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize(("name", "before", "after"), RELEASES)
def test_a_release_becomes_the_next_one(
    store: ProjectStore, tmp_path: Path, name: str, before: str, after: str
) -> None:
    store.fetch_release(name, before, tmp_path / "old")
    store.fetch_release(name, after, tmp_path / "new")
    wanted = contents(tmp_path / "new")
    assert wanted != contents(tmp_path / "old")
    for writer, text in _written(tmp_path):
        tree, answer = tmp_path / f"tree-{writer}", tmp_path / "answer.patch"
        shutil.copytree(tmp_path / "old", tree)
        answer.write_bytes(text)
        command = Command(tmp_path / "home")
        done = command("apply", str(answer), "--root", str(tree))
        assert done.returncode == 0, (writer, done.stderr.decode())
        assert contents(tree) == wanted, writer
        again = command("apply", str(answer), "--root", str(tree))
        assert again.returncode != 0
        assert b"already" in again.stderr + again.stdout, (writer, again.stderr)
        assert contents(tree) == wanted, writer


def _written(place: Path) -> Iterator[tuple[str, bytes]]:
    """The difference of two trees, by GNU diff and by git."""
    made = subprocess.run(
        ["diff", "-ruN", "old", "new"], cwd=place, capture_output=True, check=False
    )
    assert made.returncode == 1, made.stderr
    yield "diff", made.stdout
    repo = place / "repo"
    shutil.copytree(place / "old", repo)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for argv in (("init", "-q"), ("add", "-fA"), (*identity, "commit", "-qm", "old")):
        subprocess.run(["git", *argv], cwd=repo, check=True)
    (repo / ".git").rename(place / "git")
    shutil.rmtree(repo)
    shutil.copytree(place / "new", repo)
    (place / "git").rename(repo / ".git")
    subprocess.run(["git", "add", "-fA"], cwd=repo, check=True)
    command = ["git", "diff", "--cached", "--binary", "HEAD"]
    yield "git", subprocess.run(command, cwd=repo, capture_output=True, check=True).stdout
