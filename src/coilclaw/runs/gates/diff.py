"""The diff gate: what changed between two snapshots, against what the contract allows.

Rules, all of which are looked at for every change:

1. ``diff.scope``          an entry of ``allowed_paths`` is malformed, or there is none
2. ``diff.read_only``      something changed where nothing may
3. ``diff.out_of_scope``   a path, or either end of a rename or copy, is not allowed
4. ``diff.protected``      no contract can allow the path
5. ``diff.unnamed``        the contract has to name this very file, and does not
6. ``diff.name``           a name that is unsafe on some file system
7. ``diff.case``           two names that are one on some file system
8. ``diff.symlink``        a symbolic link came, went or changed
9. ``diff.nested``         a repository inside the tree came, went or changed
10. ``diff.special``       a FIFO, a socket or a device
11. ``diff.submodule``     something at or below a submodule changed
12. ``diff.type``          a file became a directory or the reverse
13. ``diff.mode``          set-user-id, set-group-id or sticky bits
14. ``diff.binary``        binary contents, where the contract does not allow it
15. ``diff.secret``        contents that hold a known secret
16. ``diff.git``           the tree's own ``.git`` changed
17. ``diff.many``          more paths changed than the policies allow
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ChangeKind, EntryType, PathRefused, TreePath, quote_text, valid_text
from coilclaw.runs.contracts.paths import find_path_flaw
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.gates.scope import (
    ENVIRONMENT_FILE,
    RUNTIME_ROOT,
    ScopePlaces,
    blame,
    find_git_directories,
    find_reason,
    folded,
    lies_at,
    only_by_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from coilclaw.kernel import Json, TreeChange, TreeDiff
    from coilclaw.runs.gates.scope import Scope


NAME: Final = "diff_gate"
_CONTROLS: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def is_binary(data: bytes) -> bool:
    """Whether contents are binary.

    git looks for a NUL in the first 8000 bytes; here one anywhere counts, so that padding does not
    help. Beyond that, bytes that are neither UTF-8 nor free of control characters are binary; an
    old eight-bit encoding is.
    """
    if b"\0" in data:
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return _CONTROLS.search(data) is not None
    return False


def binary_among(
    paths: Iterable[str], old: Mapping[str, bytes | None], new: Mapping[str, bytes | None]
) -> frozenset[str]:
    """Return the paths whose contents were or are binary: what a patch shows no text for."""
    found = set()
    for path in paths:
        for side in (old.get(path), new.get(path)):
            if side is not None and is_binary(side):
                found.add(path)
    return frozenset(found)


MAX_VIOLATIONS: Final = 500
"""Most that are listed one by one; how many there are is in the facts."""
MAX_LISTED: Final = 2000
"""Most paths in one list of facts."""
_EMPTY_BLOB: Final = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_SPECIAL_BITS: Final = 0o7000
_PROTECTED: Final = "is protected"
NEW: Final = frozenset({ChangeKind.ADDED, ChangeKind.RENAMED, ChangeKind.COPIED})
"""Kinds of change after which a path is there that was not."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the caller found out about the changed paths; nothing has a default."""

    binary: frozenset[str]
    """Paths whose contents were or are binary; see ``binary_among``."""
    secrets: frozenset[str]
    """Paths whose contents hold a known secret."""
    ignored: frozenset[str]
    """New paths that the ignore rules of the baseline name, or that lie in well-known caches."""
    modes: Mapping[str, int]
    """Unusual permission bits after the work: ``SnapshotStore.modes``."""
    tree: Collection[str]
    """Every path after the work."""
    submodules: Collection[str]
    """Paths of the baseline's gitlinks."""


def judge_diff(diff: TreeDiff, *, scope: Scope, observed: Observed) -> GateResult:
    """Judge all that changed; what tools left behind is set aside, see ``leavings``."""
    dropped = frozenset(find_leavings(diff, scope, observed.ignored))
    changes = [change for change in diff if change.path not in dropped]
    found = [*_scope_problems(scope)]
    if scope.read_only:
        found += [
            blame("diff.read_only", change.path, "changed, and nothing may change")
            for change in changes
        ]
    if scope.max_changes is not None and len(changes) > scope.max_changes:
        message = f"{len(changes)} paths changed, and {scope.max_changes} are the most"
        found.append(Violation("diff.many", message))
    allowed, binary = ScopePlaces.of(scope.allowed_paths), ScopePlaces.of(scope.binary_paths)
    for change in changes:
        for path in _ends(change):
            found += _of_path(path, change, scope, allowed)
        found += _of_entry(change, observed)
        found += _of_content(change, binary, observed)
    found += _collisions(changes, observed.tree)
    found += _repositories(changes, observed.tree)
    found += [
        Violation("diff.git", f"'{part}' of the tree's own .git changed", f".git:{part}")
        for part in diff.git_changes
    ]
    return GateResult(NAME, _limit_violations(found), _facts(diff, changes, dropped, scope, found))


def find_leavings(diff: TreeDiff, scope: Scope, ignored: Collection[str]) -> tuple[str, ...]:
    """Return what work left behind that the repository does not keep, to be left out of the tree.

    Only what is new: then it cannot stand for anything that the repository keeps. The caller leaves
    it out before the patch is made, so that nothing of it is tested or merged, whatever it is. Of a
    rename the old path is judged then, as what was removed.
    """
    return tuple(
        change.path
        for change in diff
        if change.kind in NEW and change.path in ignored and is_droppable(change.path, scope)
    )


def is_droppable(path: str, scope: Scope) -> bool:
    """Whether a path may be left out unjudged: not what the runtime, git or the policies keep.

    A cache below a protected directory may: running protected tests leaves one there.
    """
    reason = _forbidden(path, scope)
    if reason == _PROTECTED:
        return not any(lies_at(path, place) for place in scope.protected)
    return reason is None or reason == ENVIRONMENT_FILE


def _ends(change: TreeChange) -> tuple[str, ...]:
    """The paths that have to be allowed; an empty file is a copy of every other and of none."""
    if change.kind is ChangeKind.COPIED and change.new_id == _EMPTY_BLOB:
        return (change.path,)
    return change.paths


def _scope_problems(scope: Scope) -> Iterator[Violation]:
    if not scope.allowed_paths:
        yield Violation("diff.scope", "the contract allows no path", "allowed_paths")
    for key, entries in (
        ("allowed_paths", scope.allowed_paths),
        ("binary_paths", scope.binary_paths),
    ):
        for entry in entries:
            wrong = find_path_flaw(entry)
            if wrong is not None:
                yield Violation("diff.scope", f"{key}: {wrong}", key)


def _of_path(
    path: str, change: TreeChange, scope: Scope, allowed: ScopePlaces
) -> Iterator[Violation]:
    types = {change.old_type, change.new_type} - {None}
    if not allowed.cover(path, directory=types == {EntryType.DIRECTORY}):
        end = "" if change.old_path is None else f" as one end of a {_PAIR[change.kind]}"
        listed = ", ".join(scope.allowed_paths[:10])
        yield blame(
            "diff.out_of_scope", path, f"was {change.kind}{end}; allowed: {listed or 'nothing'}"
        )
    reason = _forbidden(path, scope)
    if reason is not None:
        yield blame("diff.protected", path, f"may not change: it {reason}")
    elif only_by_name(path) and path not in scope.allowed_paths:
        yield blame("diff.unnamed", path, "may change only where the contract names it itself")
    wrong = _name_problem(path)
    if wrong is not None and reason != "belongs to git":
        yield blame("diff.name", path, f"has an unsafe name: {wrong}")


_PAIR: Final = {ChangeKind.RENAMED: "rename", ChangeKind.COPIED: "copy"}


def _forbidden(path: str, scope: Scope) -> str | None:
    reason = find_reason(path)
    if reason is not None:
        return reason
    if any(lies_at(place, path) for place in (RUNTIME_ROOT, scope.runtime_root) if place):
        return "is kept by the runtime"
    if any(lies_at(place, path) for place in scope.control):
        return "judges the work"
    if any(lies_at(place, path) for place in scope.protected):
        return _PROTECTED
    return None


def _name_problem(path: str) -> str | None:
    try:
        TreePath.parse(path)
    except PathRefused as refused:
        return refused.message
    return None


def _of_entry(change: TreeChange, observed: Observed) -> Iterator[Violation]:
    types = {change.old_type, change.new_type}
    if EntryType.SYMLINK in types:
        yield blame("diff.symlink", change.path, f"is a symbolic link that was {change.kind}")
    if folded(change.path.rpartition("/")[2]) == ".git":
        yield blame(
            "diff.nested", change.path, f"is a repository of its own that was {change.kind}"
        )
    elif EntryType.OPAQUE in types:
        yield blame("diff.special", change.path, "is not a file, a link or a directory")
    if change.kind is ChangeKind.TYPE:
        yield blame("diff.type", change.path, f"was a {change.old_type} and is a {change.new_type}")
    bits = observed.modes.get(change.path, 0)
    if bits & _SPECIAL_BITS:
        yield blame("diff.mode", change.path, f"has the permission bits {bits:04o}")
    for path in change.paths:
        if any(lies_at(place, path) for place in observed.submodules):
            yield blame("diff.submodule", path, "belongs to a submodule")


def _of_content(change: TreeChange, binary: ScopePlaces, observed: Observed) -> Iterator[Violation]:
    for path in change.paths:
        if path in observed.binary and not binary.cover(path):
            yield blame(
                "diff.binary", path, "is not text, and the contract allows no binary change there"
            )
        if path in observed.secrets:
            yield blame("diff.secret", path, "holds a secret")


def _repositories(changes: list[TreeChange], tree: Collection[str]) -> Iterator[Violation]:
    """Yield directories that are repositories by what they hold, in which something changed.

    What was removed counts as well. The top of a tree that was laid out like one before stays as
    it is: all work lies below it.
    """
    touched = {path for change in changes for path in change.paths}
    new = {change.path for change in changes if change.kind in NEW}
    places = find_git_directories({*tree, *touched})
    above = {parent[1:] for path in touched for parent, _ in _pieces(path)}
    if "" in find_git_directories({*tree, *touched} - new):
        above.discard("")
    for place in sorted(places & above):
        what = "is a repository of its own: it holds HEAD beside refs or commondir"
        yield blame("diff.nested", place or ".", what)


def _collisions(changes: list[TreeChange], tree: Collection[str]) -> Iterator[Violation]:
    """New names that are the name of something else on a file system that ignores case.

    What was removed counts as well: a rename in nothing but case is lost there.
    """
    new = {change.path for change in changes if change.kind in NEW}
    if not new:
        return
    gone = {path for change in changes for path in change.paths}
    interesting = {"": set[str]()}
    for path in new:
        for parent, _ in _pieces(path):
            interesting.setdefault(parent, set())
    seen: dict[tuple[str, str], set[str]] = {}
    for path in (*tree, *gone):
        for parent, name in _pieces(path):
            if parent in interesting and name not in interesting[parent]:
                interesting[parent].add(name)
                seen.setdefault((parent, folded(name)), set()).add(name)
    for path in sorted(new):
        for parent, name in _pieces(path):
            others = seen[parent, folded(name)] - {name}
            if others:
                listed = ", ".join(quote_text(other) for other in sorted(others)[:5])
                yield blame(
                    "diff.case",
                    path,
                    f"has the name {quote_text(name)} beside {listed}: one on disk",
                )


def _pieces(path: str) -> Iterator[tuple[str, str]]:
    """Every directory on the way to a path, each with the name that follows."""
    parent = ""
    for name in path.split("/"):
        yield parent, name
        parent = f"{parent}/{name}"


def _limit_violations(found: list[Violation]) -> tuple[Violation, ...]:
    if len(found) <= MAX_VIOLATIONS:
        return tuple(found)
    more = Violation("diff.more", f"there are {len(found) - MAX_VIOLATIONS} more violations")
    return (*found[:MAX_VIOLATIONS], more)


def _facts(
    diff: TreeDiff,
    changes: list[TreeChange],
    dropped: frozenset[str],
    scope: Scope,
    found: list[Violation],
) -> dict[str, Json]:
    directories = {c.path for c in changes if EntryType.DIRECTORY in (c.old_type, c.new_type)}
    return {
        "changes": len(changes),
        "names": _list_paths({path for change in changes for path in change.paths}),
        "mode_changes": _list_paths({c.path for c in changes if c.kind is ChangeKind.MODE}),
        "empty_directories": _list_paths(directories),
        "leavings": _list_paths(dropped),
        "leavings_count": len(dropped),
        "git_changes": [*diff.git_changes],
        "allowed_paths": _list_paths(scope.allowed_paths),
        "violations_count": len(found),
    }


def _list_paths(paths: Collection[str]) -> list[Json]:
    return [valid_text(path) for path in sorted(paths)[:MAX_LISTED]]
