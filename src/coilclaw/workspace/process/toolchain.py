"""Where programs are installed: what a sandbox has to show so that a program can run.

A path is followed once, and what was found is used from then on: the child may change a link
meanwhile. Nothing in a place that the child may write says what else to show; a virtual environment
of its project may lead to a Python installation, and to nothing else.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import is_below, is_below_any
from coilclaw.workspace.process import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_LINKS: Final = 40
MAX_PROGRAMS: Final = 2000
RUST: Final = "RUSTUP_HOME"
USER_PROGRAMS: Final = "/.local/bin"
_MAX_HEAD: Final = 4096
_PROGRAM_FOLDERS: Final = ("bin", "sbin", "shims")
_SHARED_FOLDERS: Final = ("", ".local", ".cargo")
_GO: Final = "go"
_CREDENTIALS: Final = ("credentials", "credentials.toml", "etc/npmrc", ".npmrc", ".condarc")
"""What an installation may hold that opens a registry."""
_OF_PACKAGES: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
"""Only packages of the system put links here, and they stay within the system."""
_SOURCES: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl")
"""What an interpreter is given to run may need what lies beside it."""
_VIRTUAL_ENVIRONMENTS: Final = (".venv", "venv", "env")
_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")


@dataclass(frozen=True, slots=True)
class FollowedPath:
    """A path that was followed: where it ends, and the links on its way with their targets."""

    real: str
    links: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    """Whether nothing around it may be shown with it."""


def follow(
    path: str, untrusted: Sequence[str] = (), *, missing: bool = False
) -> FollowedPath | None:
    """Follow an absolute path to its end; ``None`` if there is none, or an untrusted one.

    With ``missing`` a name that is not there ends it, and the rest is as given, unless it climbs;
    and no link of /proc is followed: it means something else to every process.
    """
    current, ahead = "/", path.split("/")[::-1]
    links: list[tuple[str, str]] = []
    while ahead:
        name = ahead.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            current = os.path.dirname(current)
            continue
        current = os.path.join(current, name)
        try:
            target = os.readlink(current) if stat.S_ISLNK(os.lstat(current).st_mode) else None
        except (OSError, ValueError) as problem:
            absent = isinstance(problem, FileNotFoundError | NotADirectoryError)
            if not missing or not absent or ".." in ahead:
                return None
            return FollowedPath(os.path.normpath(os.path.join(current, *ahead[::-1])), tuple(links))
        if is_below_any(current, untrusted):
            return None
        if target is not None:
            links.append((current, target))
            if len(links) > MAX_LINKS or (missing and current.startswith("/proc/")):
                return None
            current = "/" if target.startswith("/") else os.path.dirname(current)
            ahead += target.split("/")[::-1]
    return FollowedPath(current, tuple(links))


def on_path(path: str, untrusted: Sequence[str] = ()) -> list[FollowedPath]:
    """Return the directories of a PATH, and what their programs need beside themselves."""
    found: list[FollowedPath] = []
    read: set[str] = set()
    left = MAX_PROGRAMS
    for entry in dict.fromkeys(path.split(":")):
        at = follow(entry, untrusted) if entry.startswith("/") else None
        if at is None or not os.path.isdir(at.real):
            continue
        found.append(at)
        if at.real in read:
            continue  # the same directory, reached by other links
        read.add(at.real)
        found += [*find_needed(at.real), *pythons(at.real, untrusted)]
        links = list(islice(_links_in(at.real), left))
        left -= len(links)
        found += filter(None, (follow(link, untrusted) for link in links))
    return found


def of_program(program: str, untrusted: Sequence[str] = ()) -> list[FollowedPath]:
    """Return where a program is, first, and what it needs to run: its interpreter."""
    at = follow(program, untrusted)
    if at is None:
        return []
    # The directory of a link is that of a virtual environment.
    own = [follow(os.path.dirname(link), untrusted) for link, _ in at.links]
    directories = [one.real for one in own if one is not None and _is_program_folder(one.real)]
    found = [at, *(FollowedPath(directory) for directory in directories)]
    for directory in (*directories, os.path.dirname(at.real)):
        found += pythons(directory, untrusted)
    head = _head(at.real)
    if head.startswith("#!/"):
        interpreter = follow(head[2:].split()[0], untrusted)
        if interpreter is not None:
            found.append(interpreter)
            found += pythons(os.path.dirname(interpreter.real), untrusted)
    return found


def pythons(directory: str, untrusted: Sequence[str] = ()) -> list[FollowedPath]:
    """Return the Python that a virtual environment with these programs was made with."""
    settings = _head(os.path.join(os.path.dirname(directory), "pyvenv.cfg"))
    ways = [os.path.join(directory, name) for name in ("python", "python3") if settings]
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip().startswith("/"):
            ways.append(value.strip())
    return [*filter(None, (follow(way, untrusted) for way in ways))]


def project_pythons(directory: str, untrusted: Sequence[str]) -> list[FollowedPath]:
    """Return the Python installations that virtual environments of a project lead to.

    The child may have made the links, so that only what is an installation counts, and of that only
    programs and libraries.
    """
    found: list[FollowedPath] = []
    for name in _VIRTUAL_ENVIRONMENTS:
        at = follow(os.path.join(directory, name, "bin", "python")) if directory else None
        if at is None or is_below_any(at.real, untrusted):
            continue
        folder, program = os.path.split(at.real)
        prefix, name = os.path.split(folder)
        if name == "bin" and _PYTHON.fullmatch(program) and _has_library(prefix):
            library = os.path.join(prefix, "lib")
            found += [FollowedPath(folder, at.links, exact=True), FollowedPath(library, exact=True)]
    return found


def find_needed(directory: str) -> list[FollowedPath]:
    """Return what the programs in a directory need elsewhere.

    Those of cargo are in the directory of rustup, and the packages of a user's own Python programs
    beside the directory.
    """
    if directory.endswith(USER_PROGRAMS):
        packages = user_packages(os.path.dirname(directory))
        return [FollowedPath(path, exact=True) for path in packages]
    at = follow(rustup() or "") if directory.endswith("/.cargo/bin") else None
    return [] if at is None or at.real == "/" else [at]


def user_packages(prefix: str) -> list[str]:
    """Return where Python keeps what a user installed for themselves."""
    own = [one for one in _scan(os.path.join(prefix, "lib")) if one.is_dir(follow_symlinks=False)]
    return sorted(one.path for one in own if _PYTHON.fullmatch(one.name))


def rustup() -> str | None:
    """Return the directory whose programs those of cargo start, if there is one."""
    place = environment.read_own(RUST) or os.path.expanduser("~/.rustup")
    return place if os.path.isabs(place) and os.path.isdir(place) else None


def find_installation(
    found: FollowedPath, apart: Iterable[str] = (), *, named: bool = True
) -> str | None:
    """Return what has to be shown of an installation for a program or directory.

    That is its prefix: ``bin`` alone is of no use. It is less where the prefix is shared with other
    things, as a home or /tmp is, or holds one of the places that are to be kept ``apart``. Unless
    the user ``named`` the program, it is also less where the prefix is a project.
    """
    kept = tuple(apart)
    for candidate in [found.real] if found.exact else _candidates(found.real):
        whole = not any(is_below(one, candidate) for one in kept)
        if whole and not _is_shared(candidate) and (named or not _is_project(candidate)):
            return candidate
    return None


def credentials_in(place: str) -> list[str]:
    """Return what of an installation opens a registry in the user's name."""
    ways = (os.path.join(place, name) for name in _CREDENTIALS)
    return [way for way in ways if os.path.isfile(way)]


def _candidates(real: str) -> Iterator[str]:
    """Yield the places that could be shown, the widest first."""
    whole = os.path.isdir(real)
    directory = real if whole else os.path.dirname(real)
    parts = directory.split("/")
    if whole or real.endswith(_SOURCES) or os.access(real, os.X_OK):
        if "node_modules" in parts:
            at = parts.index("node_modules")
            yield "/".join(parts[:at])
            yield "/".join(parts[: at + 1])
        elif _is_program_folder(directory):
            yield os.path.dirname(directory)
        yield directory
    if not whole:
        yield real


def _is_program_folder(directory: str) -> bool:
    return os.path.basename(directory) in _PROGRAM_FOLDERS


def _is_shared(path: str) -> bool:
    """Whether more lies in a directory than one installation."""
    name = os.path.basename(path)
    if name in _SHARED_FOLDERS:
        return True
    # Go itself is in a directory of this name as well; then it says its version.
    if name == _GO and not os.path.isfile(os.path.join(path, "VERSION")):
        return os.path.isdir(os.path.join(path, "pkg")) or os.path.isdir(os.path.join(path, "src"))
    if is_below(os.path.realpath(os.path.expanduser("~")), path):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True  # of what cannot be looked at, nothing is shown
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH)


def _is_project(path: str) -> bool:
    """Whether a directory is what the user works on: tools that are checkouts have a dot."""
    own = [os.path.join(path, name) for name in (".git", "node_modules")]
    return not os.path.basename(path).startswith(".") and any(map(os.path.exists, own))


def _links_in(directory: str) -> Iterator[str]:
    if directory not in _OF_PACKAGES and not _is_shared(directory):
        yield from [entry.path for entry in _scan(directory) if entry.is_symlink()]


def _scan(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []  # what we cannot list, the child cannot either


def _has_library(prefix: str) -> bool:
    """Whether a directory holds the library of a Python itself, and no link to one."""
    own = [one for one in _scan(os.path.join(prefix, "lib")) if one.is_dir(follow_symlinks=False)]
    files = [os.path.join(one.path, "os.py") for one in own if _PYTHON.match(one.name)]
    return any(os.path.realpath(file) == file and os.path.isfile(file) for file in files)


def _head(path: str) -> str:
    """Return the beginning of a regular file; nothing if it cannot be read."""
    if not os.path.isfile(path):
        return ""
    try:
        # It may have become a FIFO meanwhile.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(_MAX_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
