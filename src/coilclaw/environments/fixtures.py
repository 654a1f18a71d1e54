"""Fixtures: named sets of files that tests need and that are not ours to ship, pinned by hash."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE: Final = "fixtures.toml"
"""Beside an environment's ``main.py``: which sets there are."""
SHARED: Final = Path("/opt/tests")
"""Where fixtures are for everybody on the machine."""
FOLDER: Final = "fixtures"
"""Below our home: where they are for one user."""
MAX_SETS: Final = 64
MAX_DECLARED_BYTES: Final = 2**18
MAX_FILES: Final = 20_000
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_BYTES: Final = 256 * 2**20
"""Bounds of one set, as it is on disk."""

State: TypeAlias = Literal["pinned", "other", "missing"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_]+\.json")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_URL: Final = re.compile(r"https://[A-Za-z0-9.:/_-]{1,300}")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,100}")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~-]{0,100}")


@dataclass(frozen=True, slots=True)
class GitOrigin:
    """A commit of a public repository."""

    url: str
    commit: str


@dataclass(frozen=True, slots=True)
class DebianOrigin:
    """A Debian package, and the archive in it that holds the files."""

    package: str
    version: str
    archive: str
    """A pattern of its name in the package."""


@dataclass(frozen=True, slots=True)
class FixtureSet:
    """One set of files, as an environment declares it."""

    name: str
    suite: str
    """The suite that needs it."""
    purpose: str
    licence: str
    places: tuple[str, ...]
    """Patterns of directories below the fixtures' own; the first, a plain name, is ours."""
    files: tuple[str, ...]
    """Patterns of the names, below such a place, of what is read: ``*`` and ``**/``."""
    anchor: str
    """A file that tells such a place from any other."""
    sha256: str
    programs: int
    """How many cases it gives."""
    left_out: str | None = None
    """The file of the environment that names the cases which a self-check found impossible."""
    git: GitOrigin | None = None
    debian: DebianOrigin | None = None

    @property
    def folder(self) -> str:
        """The directory that it is installed as."""
        return self.places[0]


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a set."""

    wanted: FixtureSet
    state: State
    place: Path | None = None
    sha256: str | None = None
    files: int = 0


def declared(directory: Path) -> tuple[FixtureSet, ...]:
    """The sets that the environment in a directory declares; none if it has no such file."""
    import tomllib

    file = directory / FILE
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_DECLARED_BYTES + 1)
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {file}: {problem.strerror}", rule="fixtures.unreadable"
        ) from problem
    try:
        if len(data) > MAX_DECLARED_BYTES:
            raise ValueError(f"it is larger than {MAX_DECLARED_BYTES} bytes")
        document = tomllib.loads(data.decode())
        sets = _list(document, "set", dict)
        if set(document) != {"set"} or len(sets) > MAX_SETS:
            raise ValueError(f"it holds 1 to {MAX_SETS} tables named set, and nothing else")
        made = tuple(_set_of(given) for given in sets)
        for names in ([one.name for one in made], [one.folder for one in made]):
            if len(set(names)) < len(names):
                raise ValueError("a name stands there twice")
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{file}: {problem}", rule="fixtures.declared") from problem
    return made


def chosen(sets: tuple[FixtureSet, ...], names: list[str]) -> tuple[FixtureSet, ...]:
    """The sets of these names, all of them if there are no names."""
    known = {one.name: one for one in sets}
    for name in names:
        if name not in known:
            raise UsageError(
                f"there are no fixtures {shown(name[:100])}",
                rule="fixtures.unknown",
                hint=f"there are {', '.join(known) or '(none)'}",
            )
    return tuple(one for one in sets if not names or one.name in names)


def default_root(home: Path, *, to_write: bool = False) -> Path:
    """Where fixtures are looked for, or installed, unless somebody names a directory."""
    own = home / FOLDER
    if SHARED.is_dir() or (to_write and not own.is_dir() and os.access(SHARED.parent, os.W_OK)):
        return SHARED
    return own


def find(wanted: FixtureSet, root: Path) -> Found:
    """Look what there is of a set below a directory, and whether it is what is pinned."""
    place = locate(wanted, root)
    if place is None:
        return Found(wanted, "missing")
    names = selected(wanted, place)
    digest = fingerprint(place, names)
    state: State = "pinned" if digest == wanted.sha256 else "other"
    return Found(wanted, state, place, digest, len(names))


def locate(wanted: FixtureSet, root: Path) -> Path | None:
    """The first place below a directory that holds the set's anchor."""
    for pattern in wanted.places:
        for place in sorted(root.glob(pattern)):
            if (place / wanted.anchor).is_file():
                return place
    return None


def selected(wanted: FixtureSet, place: Path) -> tuple[str, ...]:
    """The names of the files of a set, as they are hashed."""
    matching = matcher(wanted.files)
    names = sorted(name for name in _below(place) if matching.fullmatch(name))
    if len(names) > MAX_FILES:
        raise UsageError(f"{place} has more than {MAX_FILES} files", rule="fixtures.bounds")
    return tuple(names)


def fingerprint(place: Path, names: tuple[str, ...]) -> str:
    """SHA-256 over names and contents: two places with the same files have the same."""
    whole = hashlib.sha256(b"coilclaw fixtures 1\0")
    size = 0
    for name in names:
        data = _contents(place / name)
        size += len(data)
        if size > MAX_BYTES:
            raise UsageError(f"{place} is larger than {MAX_BYTES} bytes", rule="fixtures.bounds")
        whole.update(os.fsencode(name) + b"\0" + hashlib.sha256(data).digest())
    return whole.hexdigest()


def matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern of names: ``*`` is anything but a slash, ``**/`` any number of directories."""
    made = []
    for pattern in patterns:
        pieces = re.split(r"(\*\*/|\*)", pattern)
        meaning = {"**/": "(?:[^/]+/)*", "*": "[^/]*"}
        made.append("".join(meaning.get(piece) or re.escape(piece) for piece in pieces))
    return re.compile("|".join(made))


def _below(place: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != ".git"]
        below = os.path.relpath(folder, place)
        for name in names:
            yield os.path.normpath(os.path.join(below, name))


def _contents(file: Path) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"{file} is no regular file", rule="fixtures.kind")
            data = opened.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise UsageError(
            f"cannot read {file}: {problem.strerror}", rule="fixtures.unreadable"
        ) from problem
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{file} is larger than {MAX_FILE_BYTES} bytes", rule="fixtures.bounds")
    return data


def _set_of(given: Mapping[str, object]) -> FixtureSet:
    known = set(FixtureSet.__slots__)
    if unknown := sorted(set(given) - known):
        raise ValueError(f"{unknown[0]!r} is not known")
    git, debian = given.get("git"), given.get("debian")
    made = FixtureSet(
        name=_text(given, "name", _NAME),
        suite=_text(given, "suite", _NAME),
        purpose=_text(given, "purpose"),
        licence=_text(given, "licence"),
        places=tuple(_list(given, "places", str)),
        files=tuple(_list(given, "files", str)),
        anchor=_text(given, "anchor"),
        sha256=_text(given, "sha256", _SHA256),
        programs=_count(given, "programs"),
        left_out=_text(given, "left_out", _FILE_NAME) if "left_out" in given else None,
        git=None if git is None else _git_of(git),
        debian=None if debian is None else _debian_of(debian),
    )
    for name in (*made.places, *made.files, made.anchor):
        if name.startswith("/") or not name or {"", ".", ".."} & set(name.split("/")):
            raise ValueError(f"{name!r} is no name or pattern below a directory")
    if not _NAME.fullmatch(made.folder):
        raise ValueError(f"{made.folder!r}, the first of the places, has to be a plain name")
    if not matcher(made.files).fullmatch(made.anchor):
        raise ValueError(f"{made.anchor!r} is not one of the files")
    return made


def _git_of(given: object) -> GitOrigin:
    if not isinstance(given, dict) or set(given) != {"url", "commit"}:
        raise ValueError("git is a table of url and commit")
    return GitOrigin(_text(given, "url", _URL), _text(given, "commit", _COMMIT))


def _debian_of(given: object) -> DebianOrigin:
    if not isinstance(given, dict) or set(given) != {"package", "version", "archive"}:
        raise ValueError("debian is a table of package, version and archive")
    return DebianOrigin(
        _text(given, "package", _PACKAGE),
        _text(given, "version", _VERSION),
        _text(given, "archive"),
    )


def _text(given: Mapping[str, object], key: str, form: re.Pattern[str] | None = None) -> str:
    value = given.get(key)
    if not isinstance(value, str) or not value or (form and not form.fullmatch(value)):
        raise ValueError(f"{key} is {value!r}, which it cannot be")
    return value


def _count(given: Mapping[str, object], key: str) -> int:
    value = given.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} is {value!r}, which is no number of programs")
    return value


def _list(given: Mapping[str, object], key: str, kind: type) -> list:  # type: ignore[type-arg]
    value = given.get(key)
    if not isinstance(value, list) or not value or not all(type(one) is kind for one in value):
        raise ValueError(f"{key} is no list of {kind.__name__} values")
    return value
