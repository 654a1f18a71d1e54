from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, GitFailed
from coilclaw.workspace.git.client import Git
from tests.support.snapshot_trees import build


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "store")


def test_a_failure_carries_what_git_said(git: Git) -> None:
    with pytest.raises(
        GitFailed, match=r"cat-file .* exit code 128: fatal: Not a valid object name"
    ):
        git.run("cat-file", "commit", "nothing")


def test_output_beyond_the_bound_is_an_error_not_a_short_answer(git: Git) -> None:
    name = git.run("hash-object", "-w", "--stdin", stdin=b"x" * 1000).decode().strip()
    assert git.run("cat-file", "blob", name, limit_bytes=1000) == b"x" * 1000
    with pytest.raises(GitFailed, match="wrote 1000 bytes, more than the 999") as caught:
        git.run("cat-file", "blob", name, limit_bytes=999)
    assert caught.value.rule == "git.output"


def test_git_is_stopped_when_it_takes_too_long(git: Git) -> None:
    git.create()
    nobody_writes = git.git_dir / "fifo"
    os.mkfifo(nobody_writes)
    with pytest.raises(GitFailed, match=r"hash-object in .* took longer than 0\.2 s"):
        git.run("hash-object", "--no-filters", str(nobody_writes), timeout_s=0.2)


def test_a_git_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    build(tmp_path, {"file": b""})
    with pytest.raises(EnvironmentFault, match=r"cannot create the git directory .*file/store"):
        Git(tmp_path / "file" / "store").run("rev-parse", "--git-dir")


def test_the_git_directory_is_made_on_first_use_and_is_private(git: Git) -> None:
    assert git.run("rev-parse", "--is-bare-repository") == b"true\n"
    assert stat.S_IMODE(git.git_dir.stat().st_mode) == 0o700
    assert not (git.git_dir / "hooks").exists()


def test_input_may_be_a_stream(git: Git) -> None:
    data = os.urandom(300_000)
    direct = git.run("hash-object", "--stdin", stdin=data)
    assert git.run("hash-object", "--stdin", stdin=io.BytesIO(data)) == direct


def test_no_variable_and_no_configuration_of_the_user_reaches_git(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = build(tmp_path / "home", {".gitconfig": b"[user]\n\tname = Somebody\n"})
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(home / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'user.email'='a@b'")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.signingkey")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "x")
    known = git.run("config", "--list", "--name-only").decode().split()
    assert not [name for name in known if name.startswith("user.")]
    assert git.run("rev-parse", "--absolute-git-dir").decode().strip() == str(git.git_dir)
