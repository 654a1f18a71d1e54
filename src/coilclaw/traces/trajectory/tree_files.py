"""Write the files of a commit byte for byte into a private directory, whatever their names.

Git writes them, but refuses names that could be its own directory on some file system (``.GIT``,
``git~1``), a link ``.gitmodules``, and paths that are too long to be named at once. An agent can
make all of these. Then we write them, from open directory to open directory.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, GitFailed, explain_os_errors
from coilclaw.workspace import Git, read_objects, remove_index, remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TIMEOUT_S: Final = 3600.0
MAX_LISTING_BYTES: Final = 2**30
CHUNK_BYTES: Final = 64 * 2**20
CHUNK_FILES: Final = 10_000
_REFUSED: Final = frozenset({b"", b".", b"..", b".git"})
_LINK: Final = b"120000"
_PROGRAM: Final = b"100755"
_KINDS: Final = frozenset({_LINK, _PROGRAM, b"100644", b"100664"})
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: bytes
    blob: str
    size: int
    path: bytes


def write(
    git: Git, commit: str, directory: Path, index: Path, *how: str, present: str | None = None
) -> None:
    """Write the files of a commit or tree; ``how`` tells git what to do with an existing index.

    ``present`` is the tree that the directory holds now: a new index is made from it. Where git
    refuses a name, empty the directory except for its ``.git``, leave no index, and write the files
    without git.
    """
    variables = {"GIT_INDEX_FILE": str(index.absolute())}
    try:
        if present is not None:
            remove_index(index)
            git.run("read-tree", present, variables=variables)
        git.run(
            *("read-tree", *how, "-u", "--end-of-options", commit),
            work_tree=directory,
            timeout_s=TIMEOUT_S,
            variables=variables,
        )
    except GitFailed as problem:
        if problem.rule == "git.stopped":
            raise
        remove_index(index)
        _write_without_git(git, commit, directory)


def _write_without_git(git: Git, commit: str, directory: Path) -> None:
    what = f"write the files of {commit} into {directory}"
    with explain_os_errors(what, rule="checkout.write"), ExitStack() as held:
        for name in os.listdir(directory):
            if name != ".git":
                remove_tree(directory / name)
        root = os.open(directory, _DIRECTORY)
        held.callback(os.close, root)
        made: set[tuple[bytes, ...]] = set()
        for chunk in _split_entries(_list_entries(git, commit)):
            sizes = {entry.blob: entry.size for entry in chunk}
            contents = dict(read_objects(git, sizes, timeout_s=TIMEOUT_S))
            for entry in chunk:
                _put(root, entry, contents[entry.blob], made)


def _list_entries(git: Git, commit: str) -> Iterator[_Entry]:
    flags = ("-r", "-z", "-l", "--full-tree", "--end-of-options")
    said = git.run("ls-tree", *flags, commit, timeout_s=TIMEOUT_S, limit_bytes=MAX_LISTING_BYTES)
    for row in said.split(b"\0")[:-1]:
        told, _, path = row.partition(b"\t")
        mode, kind, blob, size = told.split()
        # None of our checkpoints holds such an entry, but a bundle may come from anywhere.
        if kind != b"blob" or mode not in _KINDS or _REFUSED & set(path.split(b"/")):
            raise EnvironmentFault(
                f"{commit} holds {os.fsdecode(path)!r}, which cannot be written as a file",
                rule="checkout.entry",
            )
        yield _Entry(mode, blob.decode("ascii"), int(size), path)


def _split_entries(entries: Iterator[_Entry]) -> Iterator[list[_Entry]]:
    chunk: list[_Entry] = []
    size = 0
    for entry in entries:
        if chunk and (size + entry.size > CHUNK_BYTES or len(chunk) == CHUNK_FILES):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += entry.size
    if chunk:
        yield chunk


def _put(root: int, entry: _Entry, content: bytes, made: set[tuple[bytes, ...]]) -> None:
    """Write one file; every directory on the way is one that was made here."""
    *above, leaf = entry.path.split(b"/")
    with ExitStack() as held:
        directory, way = root, tuple[bytes, ...]()
        for part in above:
            way = (*way, part)
            if way not in made:
                os.mkdir(part, 0o777, dir_fd=directory)
                made.add(way)
            directory = os.open(part, _DIRECTORY, dir_fd=directory)
            held.callback(os.close, directory)
        if entry.mode == _LINK:
            os.symlink(content, leaf, dir_fd=directory)
            return
        mode = 0o777 if entry.mode == _PROGRAM else 0o666
        with open(os.open(leaf, _NEW, mode, dir_fd=directory), "wb") as file:
            file.write(content)
