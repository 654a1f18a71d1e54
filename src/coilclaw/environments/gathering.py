"""Picking the files of a fixture set out of a directory, an archive or a repository."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.domain.treepath import shown
from coilclaw.environments import archives
from coilclaw.environments.archives import refused, understood
from coilclaw.environments.fixtures import MAX_BYTES, MAX_FILE_BYTES, MAX_FILES, matcher
from coilclaw.errors import EnvironmentFault, GitFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.environments.archives import Member, Readable
    from coilclaw.environments.fixtures import FixtureSet

MAX_ROOTS: Final = 256
"""Directories of a source that look a little like the set's own."""
_CHUNK: Final = 2**20


class Gathering:
    """The files of a set, as they are found in a source; written below a directory of ours.

    Where in the source the set's directory is shows only at the end: it is where its anchor is.
    """

    def __init__(self, wanted: FixtureSet, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._pattern = re.compile(f"((?:.*?/)??)({matcher(wanted.files).pattern})", re.DOTALL)
        self._roots: dict[str, Path] = {}
        self._files = 0
        self._bytes = 0

    def offer(self, member: Member, what: str) -> None:
        """Take a member if it may be one of the set's files."""
        matched = self._pattern.fullmatch(member.name)
        if matched is None or member.kind == "directory":
            return
        if member.contents is None:
            raise refused(f"{shown(member.name)} is a {member.kind}, not a file", what)
        prefix, name = matched[1], matched[2]
        if prefix not in self._roots:
            if len(self._roots) >= MAX_ROOTS:
                raise refused("too many of its directories look like the fixtures", what)
            self._roots[prefix] = self._folder / str(len(self._roots))
        self._files += 1
        if self._files > MAX_FILES:
            raise refused(f"it has more than {MAX_FILES} files of this set", what)
        self._write(self._roots[prefix] / name, member.contents, what)

    def taken(self, what: str) -> Path:
        """The directory of ours that holds the set."""
        found = {
            prefix: root
            for prefix, root in self._roots.items()
            if (root / self._wanted.anchor).is_file()
        }
        if not found:
            raise UsageError(
                f"{shown(what)} does not hold the fixtures {self._wanted.name}: "
                f"there is no file {self._wanted.anchor} in it",
                rule="fixtures.source",
            )
        if len(found) > 1:
            raise UsageError(
                f"{shown(what)} holds the fixtures {self._wanted.name} more than once: "
                + ", ".join(shown(prefix or ".") for prefix in sorted(found)[:5]),
                rule="fixtures.source",
                hint="give the directory itself",
            )
        return next(iter(found.values()))

    def _write(self, path: Path, contents: Readable, what: str) -> None:
        size = 0
        with _created(path, what) as file:
            while data := contents.read(_CHUNK):
                size += len(data)
                self._bytes += len(data)
                if size > MAX_FILE_BYTES or self._bytes > MAX_BYTES:
                    raise refused(f"{shown(path.name)} or all of it is too large", what)
                with _writing(path):
                    file.write(data)
                    file.flush()


def _created(path: Path, what: str) -> BinaryIO:
    with _writing(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except (FileExistsError, NotADirectoryError) as problem:
            raise refused(f"it names {shown(path.name)} twice", what) from problem


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Tell trouble of our own, such as a full disk, from trouble with the source."""
    try:
        yield
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot write {path}: {problem.strerror}", rule="fixtures.write"
        ) from problem


def from_archive(gathering: Gathering, file: Path, inner: str | None = None) -> None:
    """Gather from a tar archive or Debian package; ``inner`` is a pattern of an archive in it."""
    what = str(file)
    wanted = None if inner is None else matcher((inner,))
    seen = False
    with understood(what), file.open("rb") as raw:
        for member in archives.members(raw, what):
            if wanted is None or not wanted.fullmatch(member.name):
                gathering.offer(member, what)
            elif member.contents is not None and not seen:
                seen = True
                for nested in archives.members(member.contents, what):
                    gathering.offer(nested, f"{what}: {member.name}")


def from_stream(gathering: Gathering, stream: Readable, what: str) -> None:
    """Gather from a tar archive that is not a file."""
    with understood(what):
        for member in archives.members(stream, what):
            gathering.offer(member, what)


def from_directory(gathering: Gathering, folder: Path) -> None:
    """Gather from a directory; no link in it is followed, and none is taken."""
    what = str(folder)
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            count += 1
            if count > archives.MAX_MEMBERS:
                raise refused(f"it has more than {archives.MAX_MEMBERS} files", what)
            path = os.path.join(place, name)
            _offer_file(gathering, path, os.path.relpath(path, folder), what)


def _offer_file(gathering: Gathering, path: str, name: str, what: str) -> None:
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            gathering.offer(archives.Member(name, "link"), what)
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            gathering.offer(archives.Member(name, "file", file), what)
    except OSError as problem:
        raise refused(f"{shown(name)}: {problem.strerror or problem}", what) from problem


def from_repository(
    gathering: Gathering, wanted: FixtureSet, source: str, scratch: Path, *, local: bool
) -> None:
    """Gather from the pinned commit of a git repository, of which no file is ever checked out."""
    import io

    from coilclaw.workspace.git import Git

    assert wanted.git is not None
    commit = wanted.git.commit
    allowed = {"GIT_ALLOW_PROTOCOL": "file" if local else "https"}
    git = Git(scratch / "git", variables={**network(), **allowed})
    try:
        git.run("fetch", "--quiet", "--no-tags", "--depth=1", "--", source, commit)
    except GitFailed:
        # Some servers give branches only.
        git.run("fetch", "--quiet", "--", source, "+refs/heads/*:refs/fetched/*")
    data = git.run("archive", "--format=tar", commit, limit_bytes=2 * MAX_BYTES)
    from_stream(gathering, io.BytesIO(data), f"{source}@{commit[:12]}")


def network() -> dict[str, str]:
    """What says how the network is reached from here."""
    names = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    certificates = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")
    return {name: os.environ[name] for name in (*names, *certificates) if name in os.environ}
