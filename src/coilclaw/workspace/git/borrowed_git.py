"""``BorrowingGit``: a git directory of ours that works on another repository's objects.

Nothing that the other repository configures is there: no attribute, filter, driver, hook or
end-of-line rule. What is checked out through it has the exact bytes of the blobs, and what is put
together in it comes out the same on every machine.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import explain_os_errors, write_atomic
from coilclaw.workspace.git.client import Git, name_author
from coilclaw.workspace.git.repository import check_commit_id
from coilclaw.workspace.process.owner import process_exists

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from coilclaw.workspace.git.repository import Repository

CHECKOUT_TIMEOUT_S: Final = 3600.0
IDENTITY: Final = ("CoilClaw", "run@coilclaw.invalid")
"""Who authors the commits that are made here."""

# It stands above every .gitattributes. git refuses a false working-tree-encoding, so it is unset.
EXACT_BYTES: Final = (
    b"* -text -crlf !eol -ident -filter !working-tree-encoding !merge !diff !whitespace\n"
)
_INDEX: Final = "index-"


def remove_index(index: Path) -> None:
    """Remove an index, and the lock that a killed git may have left beside it."""
    for left in (index, index.with_name(f"{index.name}.lock")):
        left.unlink(missing_ok=True)


class BorrowingGit:
    """Objects are read from and written to the repository's own store, and nothing else of it is.

    Any number of threads and processes may use one directory: each has an index of its own.
    """

    def __init__(self, directory: Path, repository: Repository) -> None:
        self.repository = repository
        self.own = directory / "coilclaw"
        """What is ours and not git's."""
        self._git = Git(directory, variables={"GIT_OBJECT_DIRECTORY": str(repository.objects)})

    @property
    def git(self) -> Git:
        self.prepare()
        return self._git

    def prepare(self) -> None:
        """Make the directory, with its attributes in place, unless it is there."""
        self._git.create()
        info = self._git.git_dir / "info"
        place = info / "attributes"
        with explain_os_errors(f"create the git directory {self._git.git_dir}", rule="git.create"):
            if not place.is_file() or place.read_bytes() != EXACT_BYTES:
                info.mkdir(mode=0o700, exist_ok=True)
                write_atomic(place, EXACT_BYTES)
            self.own.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def index(self) -> Iterator[dict[str, str]]:
        """Yield the variables that give git an index for this occasion, empty at first."""
        self.prepare()
        path = self.own / f"{_INDEX}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            yield {"GIT_INDEX_FILE": str(path)}
        finally:
            remove_index(path)

    def check_out(self, commit: str, path: Path, git_dir: Path, guard: BinaryIO) -> None:
        """Put the exact bytes of a commit's files into a directory that holds none of them.

        The index of ``git_dir`` knows them afterwards. Submodules become empty directories.
        ``guard`` is held by git as well.
        """
        self.git.run(
            *("read-tree", "--reset", "-u", check_commit_id(commit)),
            stdin=guard,
            work_tree=path,
            timeout_s=CHECKOUT_TIMEOUT_S,
            variables={"GIT_INDEX_FILE": str(git_dir / "index")},
        )

    def exact_tree(self, commit: str) -> str:
        """Return the tree that a snapshot of an untouched checkout has: without submodules."""
        gone = self.repository.gitlinks(commit)
        if not gone:
            return self.repository.tree(commit)
        rows = b"".join(b"0 %s\t%s\0" % (b"0" * 40, os.fsencode(path)) for path in gone)
        with self.index() as index:
            self.git.run("read-tree", check_commit_id(commit), variables=index)
            self.git.run("update-index", "-z", "--index-info", stdin=rows, variables=index)
            return self.git.read_line("write-tree", variables=index)

    def commit(
        self,
        tree: str,
        parents: tuple[str, ...],
        message: str,
        *,
        seconds: int,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """Make a commit that depends on nothing but what is given here."""
        ancestry = [option for parent in parents for option in ("-p", check_commit_id(parent))]
        text = message.replace("\0", "").rstrip("\n").encode("utf-8", "replace") + b"\n"
        named = {**name_author(*IDENTITY, seconds=seconds), **(variables or {})}
        command = ("commit-tree", *ancestry, check_commit_id(tree))
        return self.git.read_line(*command, stdin=text, variables=named)

    def sweep(self) -> None:
        """Remove the indexes of processes that were killed."""
        if not self.own.is_dir():
            return
        for path in self.own.glob(f"{_INDEX}*"):
            pid = path.name.removeprefix(_INDEX).partition("-")[0]
            # An id that was given out again only keeps the file a little longer.
            if not pid.isdigit() or not process_exists(int(pid)):
                path.unlink(missing_ok=True)
