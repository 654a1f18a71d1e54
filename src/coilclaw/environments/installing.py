"""Installing fixtures: gathered beside their place, checked by hash, then put there at once."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.environments import fixtures, gathering
from coilclaw.environments.gathering import Gathering
from coilclaw.errors import EnvironmentFault, ProcessFault, UsageError
from coilclaw.storage.lock import FileLock
from coilclaw.workspace import environment, process
from coilclaw.workspace.removal import remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from coilclaw.environments.fixtures import FixtureSet, Found

RECORD: Final = ".coilclaw-fixtures.json"
"""In an installed set: what it is and where it came from."""
DOWNLOAD_S: Final = 1800.0
_LOCK: Final = ".coilclaw-fixtures.lock"
_STAGING: Final = ".coilclaw-fixtures-"
_REPLACED: Final = "replaced"
_EXCHANGE: Final = 2
_HERE: Final = -100


@dataclass(frozen=True, slots=True)
class Installed:
    """What an installation came to."""

    found: Found
    done: bool
    """Whether anything was put there; ``False``: it was there already."""
    source: str = ""


def install(
    wanted: FixtureSet,
    root: Path,
    *,
    origin: Path | None = None,
    force: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Installed:
    """Put a set below a directory, from a source given or the public one.

    Another version than the pinned one is neither installed nor replaced unless ``force`` says so.
    Whenever it ends, even by a kill, the set is there whole or as it was.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make {root}: {problem.strerror}",
            rule="fixtures.root",
            hint="name another directory with --fixtures",
        ) from problem
    with FileLock(root / _LOCK, timeout_s=DOWNLOAD_S):
        _sweep(root)
        there = fixtures.find(wanted, root)
        if there.state == "pinned" and not (origin and force):
            return Installed(there, done=False)
        target = root / wanted.folder
        if os.path.lexists(target) and not force:
            raise _in_the_way(wanted, target, there)
        with _staging(root, wanted) as staging:
            made, source = _gathered(wanted, staging, origin, tell)
            _check(wanted, made, source, force=force)
            _record(made, wanted, source)
            _put(made, target, staging)
        return Installed(fixtures.find(wanted, root), done=True, source=source)


def by_hand(wanted: FixtureSet, environment_name: str) -> str:
    """How somebody gets a set without us."""
    ways = []
    give = f"coilclaw env fixtures {environment_name} install --from {wanted.name}=PATH"
    if wanted.git is not None:
        ways.append(
            f"git clone {wanted.git.url} (commit {wanted.git.commit}), "
            f"then {give} with the directory"
        )
    if wanted.debian is not None:
        ways.append(
            f"apt-get download {wanted.debian.package} (version {wanted.debian.version}), "
            f"then {give} with the .deb file"
        )
    return "; or ".join(ways) or f"{give} with a directory or archive that holds {wanted.anchor}"


def _in_the_way(wanted: FixtureSet, target: Path, there: Found) -> UsageError:
    if there.state == "other":
        what = f"another version of {wanted.name} ({there.sha256}, pinned is {wanted.sha256})"
    else:
        what = f"something that is not {wanted.name}: it has no file {wanted.anchor}"
    return UsageError(
        f"{target} is there, and it is {what}",
        rule="fixtures.other",
        hint="--force replaces it",
    )


@contextmanager
def _staging(root: Path, wanted: FixtureSet) -> Iterator[Path]:
    staging = root / f"{_STAGING}{wanted.name}-{os.urandom(8).hex()}"
    try:
        staging.mkdir(0o755)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot write in {root}: {problem.strerror}",
            rule="fixtures.root",
            hint="name another directory with --fixtures",
        ) from problem
    try:
        yield staging
    finally:
        remove_tree(staging)


def _sweep(root: Path) -> None:
    """Take away what an installation that was killed left behind; only one runs at a time."""
    sweep_remainders(root)
    for entry in root.glob(f"{_STAGING}*"):
        if entry.is_dir() and not entry.is_symlink():
            _put_back(entry, root)
            remove_tree(entry)


def _put_back(staging: Path, root: Path) -> None:
    """Bring back what was moved aside for something that did not come."""
    for old in staging.glob(f"{_REPLACED}/*"):
        if not os.path.lexists(root / old.name):
            os.rename(old, root / old.name)


def _gathered(
    wanted: FixtureSet, staging: Path, origin: Path | None, tell: Callable[[str], None]
) -> tuple[Path, str]:
    if origin is not None:
        return _from_given(wanted, staging, origin, tell)
    if wanted.debian is not None:
        return _from_debian(wanted, staging, tell)
    if wanted.git is not None:
        tell(f"fetching {wanted.git.url}")
        taking = Gathering(wanted, staging / "files")
        gathering.from_repository(taking, wanted, wanted.git.url, staging, local=False)
        return taking.taken(wanted.git.url), f"{wanted.git.url}@{wanted.git.commit}"
    raise UsageError(f"nothing says where {wanted.name} comes from", rule="fixtures.source")


def _from_given(
    wanted: FixtureSet, staging: Path, origin: Path, tell: Callable[[str], None]
) -> tuple[Path, str]:
    source = origin.absolute()
    tell(f"reading {source}")
    taking = Gathering(wanted, staging / "files")
    if source.is_file():
        inner = None if wanted.debian is None else wanted.debian.archive
        gathering.from_archive(taking, source, inner)
        return taking.taken(str(source)), str(source)
    if not source.is_dir():
        raise UsageError(f"there is no {shown(str(source))}", rule="fixtures.source")
    if wanted.git is not None and ((source / ".git").exists() or (source / "objects").is_dir()):
        try:
            gathering.from_repository(taking, wanted, str(source), staging, local=True)
            return taking.taken(str(source)), f"{source}@{wanted.git.commit}"
        except (EnvironmentFault, UsageError) as problem:
            tell(f"not from the commit that is pinned, but from the files: {problem}")
            taking = Gathering(wanted, staging / "worktree")
    gathering.from_directory(taking, source)
    return taking.taken(str(source)), str(source)


def _from_debian(
    wanted: FixtureSet, staging: Path, tell: Callable[[str], None]
) -> tuple[Path, str]:
    assert wanted.debian is not None
    package = wanted.debian.package
    folder = staging / "package"
    folder.mkdir()
    said = ""
    for name in (f"{package}={wanted.debian.version}", package):
        tell(f"apt-get download {name}")
        said = _downloaded(name, folder)
        files = sorted(folder.glob("*.deb"))
        if files:
            break
    else:
        raise EnvironmentFault(
            f"apt-get cannot download {package}: {said}", rule="fixtures.download"
        )
    tell(f"unpacking {files[0].name}")
    taking = Gathering(wanted, staging / "files")
    gathering.from_archive(taking, files[0], wanted.debian.archive)
    return taking.taken(files[0].name), f"Debian package {files[0].name}"


def _downloaded(name: str, folder: Path) -> str:
    """Have apt-get download a package; what it said if it could not."""
    env = {**environment.minimal(), **gathering.network()}
    try:
        result = process.run(
            ["apt-get", "-q", "download", name], cwd=folder, timeout_s=DOWNLOAD_S, env=env
        )
    except ProcessFault as problem:
        return str(problem)
    if result.exit_code == 0:
        return ""
    lines = result.stderr.text().strip().splitlines() or [f"exit code {result.exit_code}"]
    return lines[-1][:300]


def _check(wanted: FixtureSet, made: Path, source: str, *, force: bool) -> None:
    digest = fixtures.fingerprint(made, fixtures.selected(wanted, made))
    if digest != wanted.sha256 and not force:
        raise UsageError(
            f"{shown(source)} holds another version of {wanted.name}: its hash is {digest}, "
            f"pinned is {wanted.sha256}",
            rule="fixtures.other",
            hint="--force installs it all the same; figures then differ from those that are known",
        )


def _record(made: Path, wanted: FixtureSet, source: str) -> None:
    names = fixtures.selected(wanted, made)
    record = {
        "name": wanted.name,
        "licence": wanted.licence,
        "source": source,
        "sha256": fixtures.fingerprint(made, names),
        "files": len(names),
    }
    (made / RECORD).write_text(json.dumps(record, indent=2) + "\n")


def _put(made: Path, target: Path, staging: Path) -> None:
    """Move what was made to its place; what stood there is gone the same instant."""
    made.chmod(0o755)
    try:
        if not os.path.lexists(target):
            os.rename(made, target)
            return
        if not _exchanged(made, target):
            (staging / _REPLACED).mkdir()
            os.rename(target, staging / _REPLACED / target.name)
            os.rename(made, target)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot put {target} in place: {problem.strerror}", rule="fixtures.root"
        ) from problem


def _exchanged(one: Path, other: Path) -> bool:
    """Have two names change places, if the file system can."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code))
