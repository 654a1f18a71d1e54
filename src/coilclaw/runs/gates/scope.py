"""``Scope``: what a contract lets a worker change, compared name by name and never normalised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import fold_name, quote_text, valid_text
from coilclaw.runs.contracts.paths import find_path_flaw
from coilclaw.runs.gates.result import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

RUNTIME_ROOT: Final = ".runtime-cache/cortexpilot"
CONTROL_PATHS: Final = ("policies", "schemas")
"""Where a control root keeps what judges the work."""
_STRAY: Final = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class Scope:
    """The limits of one task."""

    allowed_paths: tuple[str, ...]
    """Files, or directories with all that is below; a slash at the end means a directory only."""
    binary_paths: tuple[str, ...] = ()
    """Where binary contents may change; they have to be allowed as well."""
    protected: tuple[str, ...] = ()
    """More paths that may not change, whatever is allowed."""
    control: tuple[str, ...] = CONTROL_PATHS
    """What judges the work; no contract can allow it."""
    runtime_root: str = RUNTIME_ROOT
    """Relative to the tree; the usual place is guarded as well."""
    read_only: bool = False
    """Whether nothing at all may change."""
    max_changes: int | None = None
    """How many paths may change, where a pack limits it."""
    max_patch_bytes: int | None = None
    """The longest patch; the maker of the patch compares."""


@dataclass(frozen=True, slots=True)
class ScopePlaces:
    """Entries such as ``allowed_paths``; those that are malformed cover nothing."""

    _entries: tuple[tuple[list[str], bool], ...]

    @classmethod
    def of(cls, entries: Iterable[str]) -> ScopePlaces:
        sound = (entry for entry in entries if find_path_flaw(entry) is None)
        return cls(tuple((entry.rstrip("/").split("/"), entry.endswith("/")) for entry in sound))

    def cover(self, path: str, *, directory: bool = False) -> bool:
        """Whether an entry is the path or a directory above it, segment by segment.

        ``directory`` says that a directory stands there: one above an entry is covered as well.
        """
        names = path.split("/")
        if not _STRAY.isdisjoint(names):
            return False
        for entry, below_only in self._entries:
            if names[: len(entry)] == entry and (
                directory or not below_only or len(names) > len(entry)
            ):
                return True
            if directory and entry[: len(names)] == names:
                return True
        return False


def lies_at(place: str, path: str) -> bool:
    """Whether the path is the place or below it for the least discerning file system."""
    above = [folded(name) for name in place.strip("/").split("/")]
    return [folded(name) for name in path.split("/")[: len(above)]] == above


def folded(name: str) -> str:
    """Fold a name as ``TreePath`` does, quickly where it is ASCII."""
    return (name.lower().rstrip(". ") or name) if name.isascii() else fold_name(name)


def blame(rule: str, path: str, what: str) -> Violation:
    """Return the violation that something is wrong with a path."""
    return Violation(rule, f"{quote_text(path)} {what}", valid_text(path))


CACHES: Final = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
    | {".gradle"}
)
"""Directories that tools fill by themselves."""
CACHES_BELOW: Final = {".cache": "node_modules"}
"""Directories that are caches below another one only."""
FILES: Final = frozenset({".coverage"})
_METADATA: Final = ".egg-info"
"""What an install writes beside the sources ends like this."""


def cache_above(path: str, *, directory: bool) -> str:
    """Return the outermost well-known cache that a path is or lies in; empty if there is none.

    ``directory`` is whether a directory stands at the path.
    """
    names = path.split("/")
    folders = len(names) if directory else len(names) - 1
    for count, name in enumerate(names, 1):
        below = CACHES_BELOW.get(name)
        known = name in CACHES or (below is not None and names[count - 2 : count - 1] == [below])
        if count <= folders and (known or name.endswith(_METADATA)):
            return "/".join(names[:count])
    return path if not directory and names[-1] in FILES else ""


def is_named(cache: str, allowed_paths: tuple[str, ...]) -> bool:
    """Whether a contract names a cache, or something in it; a directory above is not enough."""
    return named_places(cache, allowed_paths).cover(cache, directory=True)


def named_places(place: str, allowed_paths: tuple[str, ...]) -> ScopePlaces:
    """Return what a contract names of a place: the place itself, or something in it."""
    return ScopePlaces.of(
        entry for entry in allowed_paths if f"{entry.rstrip('/')}/".startswith(f"{place}/")
    )


ENV_EXAMPLE: Final = ".env.example"
_STATE_PREFIX: Final = ".coilclaw"
_NAMED: Final = frozenset(
    {".gitignore", ".gitattributes", ".pre-commit-config.yaml", "pytest.ini", ".pytest.ini"}
    | {"pytest.toml", ".pytest.toml", "tox.ini", "noxfile.py", "conftest.py", ".coveragerc"}
    | {"sitecustomize.py", "usercustomize.py", ".npmrc", ".yarnrc", ".yarnrc.yml"}
    | {".pnpmfile.cjs"}
)
"""May change where the contract names the very file; a directory above it is not enough."""
_NAMED_SUFFIX: Final = ".pth"
ENVIRONMENT_FILE: Final = "may hold secrets"
"""Why no contract can allow a file of variables."""
_GIT_KINDS: Final = (frozenset({"head", "refs"}), frozenset({"head", "commondir"}))
_GIT_PARTS: Final = frozenset[str]().union(*_GIT_KINDS)


def find_reason(path: str) -> str | None:
    """Say why no contract can allow a path, wherever in the tree it is; or nothing."""
    for name in path.split("/"):
        folded = fold_name(name)
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
            folded = fold_name(name)
            if folded in _GIT_PARTS:
                held.setdefault(parent, set()).add(folded)
            parent = f"{parent}/{name}" if parent else name
    return frozenset(place for place, names in held.items() if any(k <= names for k in _GIT_KINDS))


def only_by_name(path: str) -> bool:
    """Whether a contract has to name this very file to allow it."""
    name = fold_name(path.rpartition("/")[2])
    return name in _NAMED or name.endswith(_NAMED_SUFFIX)
