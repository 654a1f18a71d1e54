"""A ref whose commits hold one small file each: a history that git itself chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.workspace.git import Git
from coilclaw.workspace.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TIMEOUT_S: Final = 30.0
_NOBODY: Final = "0" * 40
_DURABLE: Final = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "committed,reference",
}


def open_foreign(directory: Path) -> Git:
    """Return git on the repository of a directory, with a worktree or without."""
    if (directory / "HEAD").is_file() and (directory / "objects").is_dir():
        return Git(directory, foreign=True)
    return Git(Repository.open(directory, unborn=True).common_dir, foreign=True)


def append_file(git: Git, ref: str, name: str, data: bytes, message: str) -> str:
    """Add a commit that holds only this file to a ref, and return its id.

    A ref that moves meanwhile is a ``GitFailed``: nothing of what somebody else added is lost.
    """
    if "/" in name or not name.isprintable():
        raise UsageError(f"{name!r} is not the name of a file", rule="git.name")
    variables = {**_DURABLE, **_identity()}
    found = git.answer(
        "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", accept=(0, 1), timeout_s=TIMEOUT_S
    )
    parent = found.stdout.decode("ascii").strip()
    blob = _run(git, variables, "hash-object", "-w", "--stdin", stdin=data)
    tree = _run(git, variables, "mktree", stdin=f"100644 blob {blob}\t{name}\n".encode())
    after = ("-p", parent) if parent else ()
    commit = _run(git, variables, "commit-tree", tree, *after, stdin=message.encode("utf-8"))
    _run(git, variables, "update-ref", "--no-deref", ref, commit, parent or _NOBODY)
    return commit


def _run(git: Git, variables: Mapping[str, str], *words: str, stdin: bytes | None = None) -> str:
    answer = git.run(*words, stdin=stdin, timeout_s=TIMEOUT_S, variables=variables)
    return answer.decode("ascii").strip()


def _identity() -> dict[str, str]:
    return {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "coilclaw"), ("EMAIL", "coilclaw@localhost"))
    }
