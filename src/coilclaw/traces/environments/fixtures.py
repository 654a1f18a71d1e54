"""Fixtures: named sets of files that tests need and that are not ours to ship, pinned by hash."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from coilclaw.kernel import Document, UsageError, explain_os_errors, list_problems, quote_text

if TYPE_CHECKING:
    from coilclaw.kernel import Table

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
_FORMS: Final = {
    "url": re.compile(r"https://[A-Za-z0-9.:/_-]{1,300}"),
    "commit": re.compile(r"[0-9a-f]{40}"),
    "package": re.compile(r"[a-z0-9][a-z0-9+.-]{1,100}"),
    "version": re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:~-]{0,100}"),
}


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


Origin = TypeVar("Origin", GitOrigin, DebianOrigin)


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
        return self.places[0] if self.places else ""


@dataclass(frozen=True, slots=True)
class FoundFixture:
    """What there is of a set."""

    wanted: FixtureSet
    state: State
    place: Path | None = None
    sha256: str | None = None
    files: int = 0


def read_declared(directory: Path) -> tuple[FixtureSet, ...]:
    """Return the sets that the environment in a directory declares; none without such a file."""
    file = directory / FILE
    if not file.exists():
        return ()
    with explain_os_errors(f"read {file}", rule="fixtures.unreadable"), file.open("rb") as opened:
        data = opened.read(MAX_DECLARED_BYTES + 1)
    document, made = Document(data.decode("utf-8", "replace")), tuple[FixtureSet, ...]()
    if len(data) > MAX_DECLARED_BYTES:
        document.note((), f"is larger than {MAX_DECLARED_BYTES} bytes")
    else:
        top = document.read_toml()
        made = tuple(map(_read_set, top.tables("set", most=MAX_SETS, required=True)))
        top.refuse_unknown()
        for names in ([one.name for one in made], [one.folder for one in made]):
            if len(set(names)) < len(names):
                document.note(("set",), "has a name or a first place twice")
    if document.problems:
        raise UsageError(list_problems(document.problems, str(file)), rule="fixtures.declared")
    return made


def choose_sets(sets: tuple[FixtureSet, ...], names: list[str]) -> tuple[FixtureSet, ...]:
    """Return the sets with these names, all sets if no name is given."""
    known = {one.name: one for one in sets}
    for name in names:
        if name not in known:
            message = f"the fixtures {quote_text(name[:100])} do not exist"
            hint = f"there are {', '.join(known) or '(none)'}"
            raise UsageError(message, rule="fixtures.unknown", hint=hint)
    return tuple(one for one in sets if not names or one.name in names)


def default_root(home: Path, *, to_write: bool = False) -> Path:
    """Return the default directory to find or install fixtures in."""
    own = home / FOLDER
    if SHARED.is_dir() or (to_write and not own.is_dir() and os.access(SHARED.parent, os.W_OK)):
        return SHARED
    return own


def find(wanted: FixtureSet, root: Path) -> FoundFixture:
    """Find a set below a directory and compare it with the pinned hash."""
    place = locate(wanted, root)
    if place is None:
        return FoundFixture(wanted, "missing")
    names = select_files(wanted, place)
    digest = fingerprint(place, names)
    state: State = "pinned" if digest == wanted.sha256 else "other"
    return FoundFixture(wanted, state, place, digest, len(names))


def locate(wanted: FixtureSet, root: Path) -> Path | None:
    """Return the first place below a directory that holds the set's anchor."""
    for pattern in wanted.places:
        for place in sorted(root.glob(pattern)):
            if (place / wanted.anchor).is_file():
                return place
    return None


def select_files(wanted: FixtureSet, place: Path) -> tuple[str, ...]:
    """Return the sorted names of the files of a set, as they are hashed."""
    names: list[str] = []
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name != ".git"]
        below = os.path.relpath(folder, place)
        names += (os.path.normpath(os.path.join(below, name)) for name in files)
    names = sorted(filter(matcher(wanted.files).fullmatch, names))
    if len(names) > MAX_FILES:
        raise UsageError(f"{place} has more than {MAX_FILES} files", rule="fixtures.bounds")
    return tuple(names)


def fingerprint(place: Path, names: tuple[str, ...]) -> str:
    """Return the SHA-256 over names and contents of these files."""
    whole = hashlib.sha256(b"coilclaw fixtures 1\0")
    size = 0
    for name in names:
        file = place / name
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as opened:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise UsageError(f"{file} is not a regular file", rule="fixtures.kind")
                data = opened.read(MAX_FILE_BYTES + 1)
        except OSError as problem:
            message = f"cannot read {file}: {problem.strerror}"
            raise UsageError(message, rule="fixtures.unreadable") from problem
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"{file} is larger than {MAX_FILE_BYTES} bytes", rule="fixtures.bounds"
            )
        size += len(data)
        if size > MAX_BYTES:
            raise UsageError(f"{place} is larger than {MAX_BYTES} bytes", rule="fixtures.bounds")
        whole.update(os.fsencode(name) + b"\0" + hashlib.sha256(data).digest())
    return whole.hexdigest()


def matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Compile patterns: ``*`` is anything but a slash, ``**/`` any directories."""
    made = []
    for pattern in patterns:
        pieces = re.split(r"(\*\*/|\*)", pattern)
        meaning = {"**/": "(?:[^/]+/)*", "*": "[^/]*"}
        made.append("".join(meaning.get(piece) or re.escape(piece) for piece in pieces))
    return re.compile("|".join(made))


def _read_set(table: Table) -> FixtureSet:
    made = FixtureSet(
        name=_read_text(table, "name", _NAME),
        suite=_read_text(table, "suite", _NAME),
        purpose=_read_text(table, "purpose"),
        licence=_read_text(table, "licence"),
        places=table.texts("places"),
        files=table.texts("files"),
        anchor=_read_text(table, "anchor"),
        sha256=_read_text(table, "sha256", re.compile(r"[0-9a-f]{64}")),
        programs=table.integer("programs", 1, least=1, most=2**31, required=True),
        left_out=_read_text(table, "left_out", _FILE_NAME) if "left_out" in table else None,
        git=_read_origin(table, "git", GitOrigin),
        debian=_read_origin(table, "debian", DebianOrigin),
    )
    table.refuse_unknown()
    for key, names in (("places", made.places), ("files", made.files), ("anchor", (made.anchor,))):
        if not names:
            table.note(key, "is missing or empty")
        for name in names:
            if name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
                table.note(key, f"{name!r} is not a name or pattern below a directory")
    if made.places and not _NAME.fullmatch(made.folder):
        table.note("places", f"{made.folder!r}, the first, has to be a plain name")
    if not matcher(made.files).fullmatch(made.anchor):
        table.note("anchor", f"{made.anchor!r} is not one of the files")
    return made


def _read_origin(table: Table, key: str, kind: type[Origin]) -> Origin | None:
    if key not in table:
        return None
    inner = table.table(key)
    values = {one.name: _read_text(inner, one.name, _FORMS.get(one.name)) for one in fields(kind)}
    inner.refuse_unknown()
    return kind(**values)


def _read_text(table: Table, key: str, form: re.Pattern[str] | None = None) -> str:
    rule = f"of the form {form.pattern}" if form else ""
    return table.text(key, required=True, form=form, rule=rule)
