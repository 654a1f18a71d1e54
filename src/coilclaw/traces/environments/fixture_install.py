"""Install fixtures: files gathered beside their place, checked by hash, then put there at once."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    GitFailed,
    ProcessFault,
    UsageError,
    explain_os_errors,
    quote_text,
)
from coilclaw.traces.environments import archives, fixtures
from coilclaw.traces.environments.archives import Member, map_archive_errors, refuse_archive
from coilclaw.traces.environments.fixtures import MAX_BYTES, MAX_FILE_BYTES, MAX_FILES, matcher
from coilclaw.workspace import command as process
from coilclaw.workspace import environment, remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.traces.environments.archives import Readable
    from coilclaw.traces.environments.fixtures import FixtureSet, FoundFixture

RECORD: Final = ".coilclaw-fixtures.json"
"""In an installed set: what it is and where it came from."""
DOWNLOAD_S: Final = 1800.0
MAX_ROOTS: Final = 256
"""Directories of a source that look a little like the set's own."""
_LOCK: Final = ".coilclaw-fixtures.lock"
_STAGING: Final = ".coilclaw-fixtures-"
_REPLACED: Final = "replaced"
_EXCHANGE: Final = 2
_HERE: Final = -100
_CHUNK: Final = 2**20
_NETWORK: Final = (
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
)
_ELSEWHERE: Final = "name another directory with --fixtures"


@dataclass(frozen=True, slots=True)
class InstalledFixture:
    """What an installation came to."""

    found: FoundFixture
    done: bool
    """Whether anything was put there; ``False``: it was there already."""
    source: str = ""


def install_fixtures(
    wanted: FixtureSet,
    root: Path,
    *,
    origin: Path | None = None,
    force: bool = False,
    environ: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> InstalledFixture:
    """Put a set below a directory, from a source given or the public one.

    Another version than the pinned one is neither installed nor replaced unless ``force`` says so.
    Whenever it ends, even by a kill, the set is there whole or as it was. ``environ`` says how the
    network is reached.
    """
    network = {name: value for name, value in (environ or {}).items() if name in _NETWORK}
    with explain_os_errors(f"make {root}", rule="fixtures.root", hint=_ELSEWHERE):
        root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / _LOCK, timeout_s=DOWNLOAD_S):
        _sweep(root)
        there = fixtures.find(wanted, root)
        if there.state == "pinned" and not (origin and force):
            return InstalledFixture(there, done=False)
        target = root / wanted.folder
        if os.path.lexists(target) and not force:
            raise _refuse_replacing(wanted, target, there)
        staging = root / f"{_STAGING}{wanted.name}-{os.urandom(8).hex()}"
        with explain_os_errors(f"write in {root}", rule="fixtures.root", hint=_ELSEWHERE):
            staging.mkdir(0o755)
        try:
            made, source = _Source(wanted, staging, network, tell).gather(origin)
            _check_and_record(wanted, made, source, force=force)
            with explain_os_errors(f"put {target} in place", rule="fixtures.root"):
                _put_in_place(made, target, staging)
        finally:
            remove_tree(staging)
        return InstalledFixture(fixtures.find(wanted, root), done=True, source=source)


def by_hand(wanted: FixtureSet, environment_name: str) -> str:
    """Describe how to get a set without this program."""
    ways = []
    give = f"coilclaw env fixtures {environment_name} install --from {wanted.name}=PATH"
    if (git := wanted.git) is not None:
        ways.append(f"git clone {git.url} (commit {git.commit}), then {give} with the directory")
    if (debian := wanted.debian) is not None:
        download = f"apt-get download {debian.package} (version {debian.version})"
        ways.append(f"{download}, then {give} with the .deb file")
    return "; or ".join(ways) or f"{give} with a directory or archive that holds {wanted.anchor}"


class Gathering:
    """Collects the files of a set from a source below a private directory.

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
            raise refuse_archive(f"{quote_text(member.name)} is a {member.kind}, not a file", what)
        prefix, name = matched[1], matched[2]
        if prefix not in self._roots:
            if len(self._roots) >= MAX_ROOTS:
                raise refuse_archive("too many of its directories look like the fixtures", what)
            self._roots[prefix] = self._folder / str(len(self._roots))
        self._files += 1
        if self._files > MAX_FILES:
            raise refuse_archive(f"it has more than {MAX_FILES} files of this set", what)
        path, size = self._roots[prefix] / name, 0
        with _create(path, what) as file:
            while data := member.contents.read(_CHUNK):
                size += len(data)
                self._bytes += len(data)
                if size > MAX_FILE_BYTES or self._bytes > MAX_BYTES:
                    large = f"{quote_text(path.name)} or the sum of all files is too large"
                    raise refuse_archive(large, what)
                # Trouble of our own, such as a full disk, is not trouble with the source.
                with explain_os_errors(f"write {path}", rule="fixtures.write"):
                    file.write(data)
                    file.flush()

    def offer_archive(self, stream: Readable, what: str, inner: str | None = None) -> None:
        """Take files of a tar archive or Debian package; ``inner``: also of an archive in it."""
        wanted = None if inner is None else matcher((inner,))
        with map_archive_errors(what):
            for member in archives.read_members(stream, what):
                if wanted is None or not wanted.fullmatch(member.name):
                    self.offer(member, what)
                elif member.contents is not None:
                    wanted = None
                    for nested in archives.read_members(member.contents, what):
                        self.offer(nested, f"{what}: {member.name}")

    def offer_directory(self, folder: Path) -> None:
        """Take files of a directory; no link in it is followed, and none is taken."""
        what, count = str(folder), 0
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != ".git")
            for name in sorted(names):
                count += 1
                if count > archives.MAX_MEMBERS:
                    raise refuse_archive(f"it has more than {archives.MAX_MEMBERS} files", what)
                path = os.path.join(place, name)
                self._offer_file(path, os.path.relpath(path, folder), what)

    def _offer_file(self, path: str, name: str, what: str) -> None:
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                self.offer(Member(name, "link"), what)
                return
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                self.offer(Member(name, "file", file), what)
        except OSError as problem:
            raise refuse_archive(
                f"{quote_text(name)}: {problem.strerror or problem}", what
            ) from problem

    def finish(self, what: str) -> Path:
        """Return the directory with the set; raise if it was not found exactly once."""
        anchor, name = self._wanted.anchor, self._wanted.name
        found = {at: root for at, root in self._roots.items() if (root / anchor).is_file()}
        if not found:
            raise UsageError(
                f"{quote_text(what)} does not hold the fixtures {name}: it has no file {anchor}",
                rule="fixtures.source",
            )
        if len(found) > 1:
            places = ", ".join(quote_text(prefix or ".") for prefix in sorted(found)[:5])
            message = f"{quote_text(what)} holds the fixtures {name} more than once: {places}"
            raise UsageError(message, rule="fixtures.source", hint="give the directory itself")
        return next(iter(found.values()))


def _create(path: Path, what: str) -> BinaryIO:
    with explain_os_errors(f"write {path}", rule="fixtures.write"):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except (FileExistsError, NotADirectoryError) as problem:
            raise refuse_archive(f"it names {quote_text(path.name)} twice", what) from problem


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a set comes from; each way returns the directory that holds it, and its name."""

    wanted: FixtureSet
    staging: Path
    network: Mapping[str, str]
    tell: Callable[[str], None]

    def gather(self, origin: Path | None) -> tuple[Path, str]:
        if origin is not None:
            return self._read_given(origin.absolute())
        if self.wanted.debian is not None:
            return self._download_package(self.wanted.debian.package, self.wanted.debian.version)
        if (git := self.wanted.git) is not None:
            self.tell(f"fetching {git.url}")
            return self._fetch(git.url, git.commit, "https"), f"{git.url}@{git.commit}"
        message = f"the fixtures {self.wanted.name} declare no source"
        raise UsageError(message, rule="fixtures.source")

    def _begin(self, name: str = "files") -> Gathering:
        return Gathering(self.wanted, self.staging / name)

    def _read_given(self, source: Path) -> tuple[Path, str]:
        self.tell(f"reading {source}")
        name, git = str(source), self.wanted.git
        if source.is_file():
            return self._read_archive(source, name), name
        if not source.is_dir():
            raise UsageError(f"{quote_text(name)} does not exist", rule="fixtures.source")
        if git is not None and ((source / ".git").exists() or (source / "objects").is_dir()):
            try:
                return self._fetch(name, git.commit, "file"), f"{source}@{git.commit}"
            except (EnvironmentFault, UsageError) as problem:
                self.tell(f"not from the commit that is pinned, but from the files: {problem}")
        gathering = self._begin("worktree")
        gathering.offer_directory(source)
        return gathering.finish(name), name

    def _read_archive(self, file: Path, name: str) -> Path:
        gathering, debian = self._begin(), self.wanted.debian
        with map_archive_errors(str(file)), file.open("rb") as raw:
            gathering.offer_archive(raw, str(file), debian.archive if debian else None)
        return gathering.finish(name)

    def _fetch(self, source: str, commit: str, protocol: str) -> Path:
        """Gather from the pinned commit of a git repository, of which no file is checked out."""
        from coilclaw.workspace import Git

        variables = {**self.network, "GIT_ALLOW_PROTOCOL": protocol}
        git = Git(self.staging / "git", variables=variables)
        try:
            git.run("fetch", "--quiet", "--no-tags", "--depth=1", "--", source, commit)
        except GitFailed:
            # Some servers give branches only.
            git.run("fetch", "--quiet", "--", source, "+refs/heads/*:refs/fetched/*")
        data = git.run("archive", "--format=tar", commit, limit_bytes=2 * MAX_BYTES)
        gathering = self._begin()
        gathering.offer_archive(io.BytesIO(data), f"{source}@{commit[:12]}")
        return gathering.finish(source)

    def _download_package(self, package: str, version: str) -> tuple[Path, str]:
        folder, said = self.staging / "package", ""
        folder.mkdir()
        for name in (f"{package}={version}", package):
            self.tell(f"apt-get download {name}")
            said = _download(name, folder, self.network)
            if files := sorted(folder.glob("*.deb")):
                self.tell(f"unpacking {files[0].name}")
                made = self._read_archive(files[0], files[0].name)
                return made, f"Debian package {files[0].name}"
        message = f"apt-get cannot download {package}: {said}"
        raise EnvironmentFault(message, rule="fixtures.download")


def _download(name: str, folder: Path, network: Mapping[str, str]) -> str:
    """Download a package with apt-get; return its error message, empty on success."""
    env = {**environment.minimal(), **network}
    command = ["apt-get", "-q", "download", name]
    try:
        result = process.run(command, cwd=folder, timeout_s=DOWNLOAD_S, env=env)
    except ProcessFault as problem:
        return str(problem)
    lines = result.stderr.text().strip().splitlines() or [f"exit code {result.exit_code}"]
    return lines[-1][:300] if result.exit_code else ""


def _refuse_replacing(wanted: FixtureSet, target: Path, there: FoundFixture) -> UsageError:
    what = f"something that is not {wanted.name}: it has no file {wanted.anchor}"
    if there.state == "other":
        what = f"another version of {wanted.name} ({there.sha256}, pinned is {wanted.sha256})"
    message = f"{target} already exists and is {what}"
    return UsageError(message, rule="fixtures.other", hint="--force replaces it")


def _sweep(root: Path) -> None:
    """Remove what a killed installation left, and bring back what it had moved aside."""
    sweep_remainders(root)
    for entry in root.glob(f"{_STAGING}*"):
        if entry.is_dir() and not entry.is_symlink():
            for old in entry.glob(f"{_REPLACED}/*"):
                if not os.path.lexists(root / old.name):
                    os.rename(old, root / old.name)
            remove_tree(entry)


def _check_and_record(wanted: FixtureSet, made: Path, source: str, *, force: bool) -> None:
    names = fixtures.select_files(wanted, made)
    digest = fixtures.fingerprint(made, names)
    if digest != wanted.sha256 and not force:
        raise UsageError(
            f"{quote_text(source)} holds another version of {wanted.name}: its hash is {digest}, "
            f"pinned is {wanted.sha256}",
            rule="fixtures.other",
            hint="--force installs it all the same; figures then differ from those that are known",
        )
    record = {
        "name": wanted.name,
        "licence": wanted.licence,
        "source": source,
        "sha256": digest,
        "files": len(names),
    }
    (made / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _put_in_place(made: Path, target: Path, staging: Path) -> None:
    """Move what was made to its place; what stood there is gone the same instant."""
    made.chmod(0o755)
    if os.path.lexists(target):
        if _exchange(made, target):
            return
        (staging / _REPLACED).mkdir()
        os.rename(target, staging / _REPLACED / target.name)
    os.rename(made, target)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; return ``False`` if the file system cannot."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code))
