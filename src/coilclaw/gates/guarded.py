"""Files that decide over more than themselves: what git does, what tests run, what stays secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

ENV_EXAMPLE: Final = ".env.example"
_STATE_PREFIX: Final = ".coilclaw"
_NAMED: Final = frozenset(
    {
        ".gitignore",
        ".gitattributes",
        ".pre-commit-config.yaml",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        ".pytest.toml",
        "tox.ini",
        "noxfile.py",
        "conftest.py",
        ".coveragerc",
        "sitecustomize.py",
        "usercustomize.py",
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
    }
)
"""May change where the contract names the very file; a directory above it is not enough."""
_NAMED_SUFFIX: Final = ".pth"
ENVIRONMENT_FILE: Final = "may hold secrets"
"""Why no contract can allow a file of variables."""
_GIT_KINDS: Final = (frozenset({"head", "refs"}), frozenset({"head", "commondir"}))
_GIT_PARTS: Final = frozenset[str]().union(*_GIT_KINDS)


def never(path: str) -> str | None:
    """Say why no contract can allow a path, wherever in the tree it is; or nothing."""
    for name in path.split("/"):
        folded = fold(name)
        if folded == ".git":
            return "belongs to git"
        if folded == ".gitmodules":
            return "declares submodules"
        if folded.startswith(_STATE_PREFIX):
            return "is state of CoilClaw"
        if folded.startswith(".env") and name != ENV_EXAMPLE:
            return ENVIRONMENT_FILE
    return None


def find_git_directories(paths: Iterable[str]) -> frozenset[str]:
    """Return the directories that git takes for a repository by what they hold, whatever they are
    called; the top of the tree is the empty name.

    A bare repository holds HEAD and refs, and objects unless a variable says that they are
    elsewhere, as for an agent; the git directory of a worktree holds HEAD and commondir.
    """
    held: dict[str, set[str]] = {}
    for path in paths:
        parent = ""
        for name in path.split("/"):
            folded = fold(name)
            if folded in _GIT_PARTS:
                held.setdefault(parent, set()).add(folded)
            parent = f"{parent}/{name}" if parent else name
    return frozenset(place for place, names in held.items() if any(k <= names for k in _GIT_KINDS))


def only_by_name(path: str) -> bool:
    """Whether a contract has to name this very file to allow it."""
    name = fold(path.rpartition("/")[2])
    return name in _NAMED or name.endswith(_NAMED_SUFFIX)
