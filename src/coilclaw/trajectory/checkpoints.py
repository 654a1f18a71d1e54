"""``Checkpoints``: the code at every part, as commits in a repository that only we write.

The repository is also the store of the snapshots that the commits are made from, so that a tree is
kept once. The agent's own repository, with its index, branch, hooks and identity, is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, GitFailed
from coilclaw.storage.atomic import write_atomic
from coilclaw.trajectory import namedpaths, treefiles
from coilclaw.trajectory.gitobjects import LooseObjects, encode_commit
from coilclaw.trajectory.ignoring import Ignored
from coilclaw.trajectory.texts import within
from coilclaw.trajectory.trace import FileChange, RepoCheckpoint
from coilclaw.workspace.git import Git
from coilclaw.workspace.removal import remove_tree
from coilclaw.workspace.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

BRANCH: Final = "refs/heads/trajectory"
LEFTOVER: Final = "refs/heads/leftover"
"""What an agent that was killed did after the last part that was recorded stands below this."""
MAX_LISTED_FILES: Final = 2000
MAX_LISTED_BYTES: Final = 2**19
"""A part names each of them twice, and takes one line of the journal."""
MAX_DIFF_BYTES: Final = 2**28
RESTORE_TIMEOUT_S: Final = 3600.0
STOPPED: Final = "git.stopped"
MAX_LOOKS: Final = 3
"""How often a workspace in which something keeps writing is looked at."""
UNKEEPABLE: Final = frozenset(
    f"snapshot.{name}"
    for name in (
        "changing",
        "depth",
        "entries",
        "file_bytes",
        "read_bytes",
        "root",
        "special",
        "unreadable",
    )
)
"""Rules of what an agent can make of its workspace so that it cannot be kept."""

# It stands above every .gitattributes, so that what is put back has the exact bytes of the blobs.
_ATTRIBUTES: Final = (
    b"* -text -crlf !eol -ident -filter !working-tree-encoding !merge !diff !whitespace\n"
)


@dataclass(frozen=True, slots=True)
class State:
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
        self._objects = LooseObjects(git_dir / "objects")
        self._state: State | None = None
        self._files = git_dir / "coilclaw" / "judged"
        self._index = git_dir / "coilclaw" / "judged-index"

    @property
    def state(self) -> State:
        """The last commit."""
        if self._state is None:
            raise EnvironmentFault(
                f"{self.git.git_dir} has no checkpoint yet", rule="checkpoint.state"
            )
        return self._state

    def begin(self, message: str = "the workspace as it was given") -> State:
        """Make the repository with its first commit."""
        self._prepare()
        tree = self.tree()
        return self._commit(tree, (), message)

    def open(self, commit: str) -> State:
        """Go on at a commit that was recorded; the branch may have run ahead of the record."""
        self._prepare()
        self._state = State(commit, self.tree_of(commit))
        self._set_branch(commit)
        return self._state

    def tree(self) -> str:
        """The tree of the workspace as it is now; its objects are kept."""
        exclude = self._ignored if self._ignored.patterns else ()
        looks = 1
        while True:
            try:
                return self._store.take(self.root, exclude=exclude).tree
            except EnvironmentFault as problem:
                if problem.rule != "snapshot.changing" or looks == MAX_LOOKS:
                    raise
                looks += 1

    def take(self, message: str, paths: Sequence[str] | None = None) -> RepoCheckpoint | None:
        """Commit what changed since the last commit; ``None`` if nothing did.

        ``paths`` names every path that may have changed, and saves looking at the others. Without
        it the whole workspace is looked at.
        """
        before = self.state
        tree = self._named(before.tree, paths) if paths is not None else None
        if tree is None:
            tree = self.tree()
        if tree == before.tree:
            return None
        after = self._commit(tree, (before.commit,), message)
        return self.between(before, after)

    def between(self, before: State, after: State) -> RepoCheckpoint:
        """Say what lies between two commits."""
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
        """The files of a tree in a directory of ours, where no agent can change them.

        There is one such directory, which goes from tree to tree.
        """
        if not self._index.exists():
            self.forget_files()
            try:
                self._files.mkdir(mode=0o700, parents=True)
            except OSError as problem:
                raise EnvironmentFault(
                    f"cannot create {self._files}: {problem.strerror}", rule="checkpoint.store"
                ) from problem
        treefiles.write(self.git, tree, self._files, self._index, "--reset")
        return self._files

    def forget_files(self) -> None:
        """Remove what ``files_of`` made."""
        for left in (self._index, self._index.with_name(f"{self._index.name}.lock")):
            left.unlink(missing_ok=True)
        remove_tree(self._files)

    def leave(self, number: int) -> tuple[str, str] | None:
        """Keep what stands in the workspace beside the last commit: its commit and its name."""
        tree = self.tree()
        if tree == self.state.tree:
            return None
        data = encode_commit(
            tree,
            (self.state.commit,),
            f"left in the workspace after part {number}, not recorded",
            self._seconds(),
        )
        commit = self._objects.put(b"commit", data)
        taken = 0
        while self._ref_path(ref := f"{LEFTOVER}/after-part-{number}-{taken}").exists():
            taken += 1
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
        index.unlink(missing_ok=True)
        variables = {"GIT_INDEX_FILE": str(index)}
        try:
            self.git.run("read-tree", now, variables=variables)
            self.git.run(
                "read-tree",
                "--reset",
                "-u",
                self.state.tree,
                work_tree=self.root,
                timeout_s=RESTORE_TIMEOUT_S,
                variables=variables,
            )
        except GitFailed as problem:
            if problem.rule == STOPPED:
                raise
            treefiles.write_ourselves(self.git, self.state.tree, self.root)
        finally:
            for left in (index, index.with_name(f"{index.name}.lock")):
                left.unlink(missing_ok=True)
        if self.tree() != self.state.tree:
            raise EnvironmentFault(
                f"{self.root} could not be put back to commit {self.state.commit}",
                rule="checkpoint.restore",
            )

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        try:
            said = self.git.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
        except GitFailed as problem:
            raise EnvironmentFault(
                f"commit {commit} is not in {self.git.git_dir}", rule="checkpoint.missing"
            ) from problem
        return said.decode("ascii").strip()

    def _named(self, base: str, paths: Sequence[str]) -> str | None:
        seen = [path for path in paths if not self._ignored.covers(path)]
        return namedpaths.tree_after(self.git, self.root, base, seen, self._objects.put)

    def _commit(self, tree: str, parents: tuple[str, ...], message: str) -> State:
        data = encode_commit(tree, parents, message, self._seconds())
        commit = self._objects.put(b"commit", data)
        self._set_branch(commit)
        self._state = State(commit, tree)
        return self._state

    def _changes(self, old: str, new: str) -> tuple[tuple[FileChange, ...], int]:
        raw = self.git.run(
            "diff-tree",
            "-r",
            "-z",
            "--numstat",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            old,
            new,
            limit_bytes=MAX_DIFF_BYTES,
        )
        rows = [row for row in raw.split(b"\0") if row]
        changes = [_change(row) for row in rows[:MAX_LISTED_FILES]]
        listed = len(within((change.path for change in changes), MAX_LISTED_BYTES))
        return tuple(changes[:listed]), len(rows) - listed

    def _prepare(self) -> None:
        self.git.create()
        self.forget_files()
        info = self.git.git_dir / "info"
        try:
            info.mkdir(mode=0o700, exist_ok=True)
            (self.git.git_dir / "refs" / "heads").mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {info}: {problem.strerror}", rule="checkpoint.store"
            ) from problem
        for path, content in (
            (info / "attributes", _ATTRIBUTES),
            (self.git.git_dir / "HEAD", f"ref: {BRANCH}\n".encode("ascii")),
        ):
            if not path.exists() or path.read_bytes() != content:
                write_atomic(path, content)

    def _set_branch(self, commit: str) -> None:
        self._set_ref(BRANCH, commit)

    def _set_ref(self, ref: str, commit: str) -> None:
        path = self._ref_path(ref)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, f"{commit}\n".encode("ascii"), sync=False)

    def _ref_path(self, ref: str) -> Path:
        return self.git.git_dir / ref


def _change(row: bytes) -> FileChange:
    added, removed, name = row.split(b"\t", 2)
    return FileChange(path=readable(name), added=_count(added), removed=_count(removed))


def _count(text: bytes) -> int | None:
    return None if text == b"-" else int(text)


def readable(name: bytes | str) -> str:
    """A file name as text that JSON can hold: what is not UTF-8 in it is escaped."""
    return (_encoded(name) if isinstance(name, str) else name).decode("utf-8", "backslashreplace")


def _encoded(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace")
