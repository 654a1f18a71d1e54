"""``Checkpoints``: the code at every part, as commits in a repository that only we write.

The repository is also the store of the snapshots that the commits are made from, so that a tree is
kept once. The agent's own repository, with its index, branch, hooks and identity, is not touched.
"""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import EnvironmentFault, GitFailed, explain_os_errors, write_atomic
from coilclaw.traces.trajectory import tree_files
from coilclaw.traces.trajectory.agent_workspace import Ignored
from coilclaw.traces.trajectory.trace import FileChange, RepoCheckpoint, take_within_bytes
from coilclaw.workspace import (
    EXACT_BYTES,
    TREE,
    Git,
    SnapshotStore,
    encode_tree,
    git_mode,
    make_commit,
    parse_tree,
    put_object,
    remove_index,
    remove_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.workspace import Entries

MAX_PATHS: Final = 1000
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_TREES_BYTES: Final = 2**28
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_Parts: TypeAlias = "tuple[bytes, ...]"
_Leaf: TypeAlias = "tuple[bytes, bytes] | None"
"""Mode and content; ``None`` is nothing."""


class _Unexpected(Exception):
    """What is there needs the long way; it never leaves this module."""


def tree_after(git: Git, root: Path, base: str, paths: Iterable[str]) -> str | None:
    """Return the tree that ``base`` became, if nothing but these paths changed; ``None``: look."""
    try:
        wanted = {parts: _read_leaf(root, parts) for parts in _split_paths(root, paths)}
        return _apply(git, base, wanted) if wanted else base
    except (_Unexpected, UnicodeEncodeError):
        return None


def _split_paths(root: Path, paths: Iterable[str]) -> list[_Parts]:
    found = []
    for path in paths:
        relative = os.path.relpath(path, root) if os.path.isabs(path) else path
        raw = os.fsencode(os.path.normpath(relative))
        found.append(tuple(raw.split(b"/")))
        if b"\n" in raw or b"\0" in raw or {b"", b".", b"..", b".git"} & set(found[-1]):
            raise _Unexpected
    if len(found) > MAX_PATHS:
        raise _Unexpected
    return found


def _read_leaf(root: Path, parts: _Parts) -> _Leaf:
    """Return what stands at a path; every directory on the way is a real one."""
    *above, name = parts
    with ExitStack() as held:
        try:
            directory = os.open(root, _DIRECTORY)
            held.callback(os.close, directory)
            for part in above:
                directory = os.open(part, _DIRECTORY, dir_fd=directory)
                held.callback(os.close, directory)
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return git_mode(mode), os.readlink(name, dir_fd=directory)
            if not stat.S_ISREG(mode):
                raise _Unexpected
            file = held.enter_context(open(os.open(name, _FILE, dir_fd=directory), "rb"))
            mode, data = os.fstat(file.fileno()).st_mode, file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise _Unexpected from problem
    if not stat.S_ISREG(mode) or len(data) > MAX_FILE_BYTES:
        raise _Unexpected
    return git_mode(mode), data


def _apply(git: Git, base: str, wanted: Mapping[_Parts, _Leaf]) -> str:
    above = {parts[:depth] for parts in wanted for depth in range(len(parts))}
    # A path below another named one: the two cannot both be files, so something is moving.
    if above & wanted.keys():
        raise _Unexpected
    trees = _read_trees(git, base, sorted(above))
    for parts, leaf in wanted.items():
        entries, name = trees[parts[:-1]], parts[-1]
        entries.pop(name, None)
        if leaf is not None:
            mode, content = leaf
            entries[name] = (mode, bytes.fromhex(put_object(git.git_dir, b"blob", content)))
    for folder in sorted(above - {()}, key=len, reverse=True):
        parent, name = trees[folder[:-1]], folder[-1]
        if trees[folder]:
            parent[name] = (TREE, bytes.fromhex(_put_tree(git, trees[folder])))
        elif parent.get(name, (TREE,))[0] == TREE:
            parent.pop(name, None)
    return _put_tree(git, trees[()])


def _put_tree(git: Git, entries: Entries) -> str:
    return put_object(git.git_dir, b"tree", encode_tree(entries))


def _read_trees(git: Git, base: str, folders: list[_Parts]) -> dict[_Parts, Entries]:
    """Fetch the directories above the paths; one that was none is empty."""
    asked = b"".join(b"%s:%s\n" % (base.encode("ascii"), b"/".join(folder)) for folder in folders)
    answer = git.run("cat-file", "--batch", stdin=asked, limit_bytes=MAX_TREES_BYTES)
    found: dict[_Parts, Entries] = {}
    at = 0
    for folder in folders:
        end = answer.index(b"\n", at)
        kind, size = answer[at:end].split(b" ")[-2:]
        at, found[folder] = end + 1, {}
        if size in {b"missing", b"ambiguous"}:
            continue
        end = at + int(size)
        if kind == b"tree":
            found[folder] = parse_tree(answer[at:end])
        at = end + 1
    return found


BRANCH: Final = "refs/heads/trajectory"
LEFTOVER: Final = "refs/heads/leftover"
"""What an agent that was killed did after the last part that was recorded stands below this."""
IDENTITY: Final = "CoilClaw trajectory <trajectory@coilclaw.invalid>"
"""Who authors checkpoints; the agent's own identity is not touched."""
MAX_LISTED_FILES: Final = 2000
MAX_LISTED_BYTES: Final = 2**19
"""A part names each of them twice, and takes one line of the journal."""
MAX_DIFF_BYTES: Final = 2**28
MAX_LOOKS: Final = 3
"""How often a workspace in which something keeps writing is looked at."""
UNKEEPABLE: Final = frozenset(
    f"snapshot.{name}"
    for name in (
        *("changing", "depth", "entries", "file_bytes"),
        *("read_bytes", "root", "special", "unreadable"),
    )
)
"""Rules of what an agent can make of its workspace so that it cannot be kept."""


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """Where the repository stands: a commit, and its tree."""

    commit: str
    tree: str


class Checkpoints:
    """Makes the checkpoints of one workspace; one writer at a time."""

    def __init__(
        self,
        git_dir: Path,
        root: Path,
        *,
        ignored: Ignored | None = None,
        seconds: Callable[[], int],
    ) -> None:
        self.git = Git(git_dir)
        self.root = root
        self._ignored = ignored or Ignored()
        self._seconds = seconds
        self._store = SnapshotStore(git_dir)
        self._state: CheckpointState | None = None
        self._files = git_dir / "coilclaw" / "judged"
        self._index = git_dir / "coilclaw" / "judged-index"

    @property
    def state(self) -> CheckpointState:
        """The last commit."""
        if self._state is None:
            raise EnvironmentFault(
                f"{self.git.git_dir} has no checkpoint yet", rule="checkpoint.state"
            )
        return self._state

    def begin(self, message: str = "the workspace as it was given") -> CheckpointState:
        """Make the repository with its first commit."""
        self._prepare()
        return self._commit(self.tree(), (), message)

    def open(self, commit: str) -> CheckpointState:
        """Resume at a recorded commit; the branch may have run ahead of the record."""
        self._prepare()
        self._state = CheckpointState(commit, self.tree_of(commit))
        self._set_ref(BRANCH, commit)
        return self._state

    def tree(self) -> str:
        """Store the workspace as it is now, and return its tree."""
        exclude = self._ignored if self._ignored.patterns else ()
        for looks_left in reversed(range(MAX_LOOKS)):
            try:
                return self._store.take(self.root, exclude=exclude).tree
            except EnvironmentFault as problem:
                if problem.rule != "snapshot.changing" or not looks_left:
                    raise
        raise AssertionError

    def take(self, message: str, paths: Sequence[str] | None = None) -> RepoCheckpoint | None:
        """Commit what changed since the last commit; ``None`` if nothing did.

        ``paths`` names every path that may have changed, and saves looking at the others. Without
        it the whole workspace is looked at.
        """
        before = self.state
        tree = None
        if paths is not None:
            seen = [path for path in paths if not self._ignored.covers(path)]
            tree = tree_after(self.git, self.root, before.tree, seen)
        if tree is None:
            tree = self.tree()
        if tree == before.tree:
            return None
        after = self._commit(tree, (before.commit,), message)
        return self.between(before, after)

    def between(self, before: CheckpointState, after: CheckpointState) -> RepoCheckpoint:
        """Return what changed between two commits."""
        changes, more = self._changes(before.tree, after.tree)
        made = RepoCheckpoint(
            commit_before=before.commit,
            commit_after=after.commit,
            committed=True,
            changed_files=tuple(change.path for change in changes),
            numstat=changes,
        )
        return replace(made, more_files=more) if more else made

    def files_of(self, tree: str) -> Path:
        """Write the files of a tree to a directory that no agent can change.

        There is one such directory, which goes from tree to tree.
        """
        if not self._index.exists():
            self.forget_files()
            with explain_os_errors(f"create {self._files}", rule="checkpoint.store"):
                self._files.mkdir(mode=0o700, parents=True)
        tree_files.write(self.git, tree, self._files, self._index, "--reset")
        return self._files

    def forget_files(self) -> None:
        """Remove what ``files_of`` made."""
        remove_index(self._index)
        remove_tree(self._files)

    def leave(self, number: int) -> tuple[str, str] | None:
        """Keep what stands in the workspace beside the last commit: its commit and its name."""
        tree = self.tree()
        if tree == self.state.tree:
            return None
        message = f"left in the workspace after part {number}, not recorded"
        commit = self._write_commit(tree, (self.state.commit,), message)
        refs = (f"{LEFTOVER}/after-part-{number}-{taken}" for taken in itertools.count())
        ref = next(ref for ref in refs if not (self.git.git_dir / ref).exists())
        self._set_ref(ref, commit)
        return commit, ref

    def restore(self) -> None:
        """Make the workspace what the last commit holds; what is ignored stays as it is.

        Not so where there are names that git refuses: then only the agent's ``.git`` stays.
        """
        now = self.tree()
        if now == self.state.tree:
            return
        index = self.git.git_dir / "coilclaw" / "restore-index"
        try:
            tree_files.write(self.git, self.state.tree, self.root, index, "--reset", present=now)
        finally:
            remove_index(index)
        if self.tree() != self.state.tree:
            raise EnvironmentFault(
                f"{self.root} could not be put back to commit {self.state.commit}",
                rule="checkpoint.restore",
            )

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit, or raise if it is missing."""
        try:
            said = self.git.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
        except GitFailed as problem:
            raise EnvironmentFault(
                f"commit {commit} is not in {self.git.git_dir}", rule="checkpoint.missing"
            ) from problem
        return said.decode("ascii").strip()

    def _commit(self, tree: str, parents: tuple[str, ...], message: str) -> CheckpointState:
        commit = self._write_commit(tree, parents, message)
        self._set_ref(BRANCH, commit)
        self._state = CheckpointState(commit, tree)
        return self._state

    def _write_commit(self, tree: str, parents: tuple[str, ...], message: str) -> str:
        """Write a commit that depends on nothing but what is given here."""
        text, author = message.encode("utf-8"), IDENTITY.encode("ascii")
        commit = make_commit(tree, parents, text, author, self._seconds())
        return put_object(self.git.git_dir, b"commit", commit)

    def _changes(self, old: str, new: str) -> tuple[tuple[FileChange, ...], int]:
        flags = ("-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
        raw = self.git.run("diff-tree", *flags, old, new, limit_bytes=MAX_DIFF_BYTES)
        rows = [row for row in raw.split(b"\0") if row]
        changes = [_read_change(row) for row in rows[:MAX_LISTED_FILES]]
        listed = len(take_within_bytes((change.path for change in changes), MAX_LISTED_BYTES))
        return tuple(changes[:listed]), len(rows) - listed

    def _prepare(self) -> None:
        self.git.create()
        self.forget_files()
        info = self.git.git_dir / "info"
        with explain_os_errors(f"create {info}", rule="checkpoint.store"):
            info.mkdir(mode=0o700, exist_ok=True)
            (self.git.git_dir / "refs" / "heads").mkdir(mode=0o700, parents=True, exist_ok=True)
        head = f"ref: {BRANCH}\n".encode("ascii")
        for path, content in (
            (info / "attributes", EXACT_BYTES),
            (self.git.git_dir / "HEAD", head),
        ):
            if not path.exists() or path.read_bytes() != content:
                write_atomic(path, content)

    def _set_ref(self, ref: str, commit: str) -> None:
        path = self.git.git_dir / ref
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, f"{commit}\n".encode("ascii"), sync=False)


def _read_change(row: bytes) -> FileChange:
    added, removed, name = row.split(b"\t", 2)
    counts = [None if text == b"-" else int(text) for text in (added, removed)]
    return FileChange(path=readable(name), added=counts[0], removed=counts[1])


def readable(name: bytes | str) -> str:
    """Return a file name as text that JSON can hold: what is not UTF-8 in it is escaped."""
    if isinstance(name, str):
        try:
            raw = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raw = name.encode("utf-8", "replace")
    else:
        raw = name
    return raw.decode("utf-8", "backslashreplace")
