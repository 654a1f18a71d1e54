"""The tree after a change of which somebody names every path: only those are looked at.

Whatever does not look as expected (a directory where a file is named, a link on the way, a name
that git has no line for) is no answer: then the whole tree is looked at instead.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.trajectory.gitobjects import TREE, encode_tree, parse_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from coilclaw.trajectory.gitobjects import Entries
    from coilclaw.workspace.git import Git

MAX_PATHS: Final = 1000
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_TREES_BYTES: Final = 2**28

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_Leaf: TypeAlias = "tuple[bytes, bytes] | None"
"""Mode and content; ``None`` is nothing."""
Put: TypeAlias = "Callable[[bytes, bytes], str]"


class _Unexpected(Exception):
    """What is there needs the long way; it never leaves this module."""


def tree_after(git: Git, root: Path, base: str, paths: Iterable[str], put: Put) -> str | None:
    """Return the tree that ``base`` became, if nothing but these paths changed; ``None``: look."""
    try:
        wanted = {name: _leaf(root, name) for name in _checked(root, paths)}
        return _applied(git, base, wanted, put) if wanted else base
    except _Unexpected:
        return None


def _checked(root: Path, paths: Iterable[str]) -> list[tuple[bytes, ...]]:
    found = []
    for path in paths:
        relative = os.path.relpath(path, root) if os.path.isabs(path) else path
        try:
            raw = os.fsencode(os.path.normpath(relative))
        except UnicodeEncodeError as problem:
            raise _Unexpected from problem
        parts = tuple(raw.split(b"/"))
        if b"\n" in raw or b"\0" in raw or {b"", b".", b"..", b".git"} & set(parts):
            raise _Unexpected
        found.append(parts)
    if len(found) > MAX_PATHS:
        raise _Unexpected
    return found


def _leaf(root: Path, parts: tuple[bytes, ...]) -> _Leaf:
    """What stands at a path; every directory on the way is a real one."""
    held = [os.open(root, _DIRECTORY)]
    try:
        for part in parts[:-1]:
            held.append(os.open(part, _DIRECTORY, dir_fd=held[-1]))
        return _content(held[-1], parts[-1])
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise _Unexpected from problem
    finally:
        for descriptor in held:
            os.close(descriptor)


def _content(directory: int, name: bytes) -> _Leaf:
    mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return b"120000", os.readlink(name, dir_fd=directory)
    if not stat.S_ISREG(mode):
        raise _Unexpected
    descriptor = os.open(name, _FILE, dir_fd=directory)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            raise _Unexpected
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _Unexpected
    return (b"100755" if status.st_mode & stat.S_IXUSR else b"100644"), data


def _applied(git: Git, base: str, wanted: Mapping[tuple[bytes, ...], _Leaf], put: Put) -> str:
    above = {parts[:depth] for parts in wanted for depth in range(len(parts))}
    trees = _trees(git, base, sorted(above))
    # A path below another named one: the two cannot both be files, so something is moving.
    if above & wanted.keys():
        raise _Unexpected
    for parts, leaf in wanted.items():
        entries = trees[parts[:-1]]
        if leaf is None:
            entries.pop(parts[-1], None)
        else:
            mode, content = leaf
            entries[parts[-1]] = (mode, bytes.fromhex(put(b"blob", content)))
    for folder in sorted(above, key=len, reverse=True):
        entries = trees[folder]
        if not folder:
            continue
        if entries:
            name = put(b"tree", encode_tree(entries))
            trees[folder[:-1]][folder[-1]] = (TREE, bytes.fromhex(name))
        elif trees[folder[:-1]].get(folder[-1], (TREE,))[0] == TREE:
            trees[folder[:-1]].pop(folder[-1], None)
    return put(b"tree", encode_tree(trees[()]))


def _trees(
    git: Git, base: str, folders: list[tuple[bytes, ...]]
) -> dict[tuple[bytes, ...], Entries]:
    """Fetch the directories above the paths; one that was none is empty."""
    asked = b"".join(b"%s:%s\n" % (base.encode("ascii"), b"/".join(folder)) for folder in folders)
    answer = git.run("cat-file", "--batch", stdin=asked, limit_bytes=MAX_TREES_BYTES)
    found: dict[tuple[bytes, ...], Entries] = {}
    at = 0
    for folder in folders:
        end = answer.index(b"\n", at)
        words = answer[at:end].rsplit(b" ", 2)
        at = end + 1
        found[folder] = {}
        if words[-1] in {b"missing", b"ambiguous"}:
            continue
        kind, size = words[-2], int(words[-1])
        if kind == b"tree":
            found[folder] = parse_tree(answer[at : at + size])
        at += size + 1
    return found
