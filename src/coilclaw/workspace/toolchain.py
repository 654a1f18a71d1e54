"""Where programs are installed: what a sandbox has to show so that a program can run.

Nothing in a directory that the child may write is trusted to say what else to show. Its links and
its ``pyvenv.cfg`` lead to a Python installation, or nowhere.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REACHED: Final = 32
MAX_PROGRAMS: Final = 2000
_MAX_HEAD: Final = 4096
_PROGRAM_FOLDERS: Final = ("bin", "sbin", "shims")
_SHARED_FOLDERS: Final = ("", ".local")
_OF_PACKAGES: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
"""Only packages of the system put links here, and they stay within the system."""
RUST: Final = "RUSTUP_HOME"
_VIRTUAL_ENVIRONMENTS: Final = (".venv", "venv")


def reached(program: str) -> list[str]:
    """Return ``program``, an absolute path, and the files that it leads to.

    A link leads to its target, a script to its interpreter, and what lies in a virtual environment
    to the Python that the environment was made with.
    """
    found: list[str] = []
    ahead = [program]
    while ahead and len(found) < MAX_REACHED:
        path = ahead.pop()
        if path not in found and os.path.exists(path):
            found.append(path)
            ahead += _leads_to(path)
    return found


def on_path(path: str) -> list[str]:
    """Return the directories of a PATH, and what the links in them lead to."""
    found: dict[str, None] = {}
    for entry in path.split(":"):
        if not entry.startswith("/") or not os.path.isdir(entry):
            continue
        found |= dict.fromkeys((entry, *needed_beside(entry)))
        for program in _links_in(entry):
            found |= dict.fromkeys(reached(program))
    return list(found)


def needed_beside(entry: str) -> list[str]:
    """Return what the programs in a directory of a PATH need besides their own installation."""
    rust = rustup() if os.path.realpath(entry).endswith("/.cargo/bin") else None
    return [rust] if rust else []


def rustup() -> str | None:
    """Return the directory whose programs those of cargo start, if there is one."""
    place = os.environ.get(RUST) or os.path.expanduser("~/.rustup")
    return place if os.path.isabs(place) and os.path.isdir(place) else None


def pythons_of(directory: str) -> list[str]:
    """Return the interpreters of the virtual environments of a project, if there is one.

    Only what belongs to a Python installation: whoever writes the project chooses the links.
    """
    if not directory:
        return []
    return [
        path
        for name in _VIRTUAL_ENVIRONMENTS
        for path in reached(os.path.join(directory, name, "bin", "python"))
        if (home := place(path)) is not None and any(Path(home).glob("lib*/python3*/os.py"))
    ]


def place(path: str) -> str | None:
    """Return what has to be shown of an installation for the program, or directory, ``path``.

    That is its prefix: ``bin`` alone is of no use. ``None`` for a directory that other things
    share, such as a home or /tmp; a program there is shown by itself.
    """
    whole = os.path.isdir(path)
    # Of a link, its own directory: what it leads to has a place of its own.
    directory = os.path.realpath(path if whole else os.path.dirname(path))
    above = os.path.dirname(directory)
    parts = directory.split("/")
    if "node_modules" in parts:
        modules = parts.index("node_modules")
        directory = "/".join(parts[: modules + 1])
        above = "/".join(parts[:modules])
        return directory if _is_shared(above) else above
    if os.path.basename(directory) in _PROGRAM_FOLDERS and not _is_shared(above):
        return above
    if not _is_shared(directory):
        return directory
    return None if whole or os.path.islink(path) else f"{directory}/{os.path.basename(path)}"


def _is_shared(directory: str) -> bool:
    """Whether more lies in a directory than one installation."""
    if os.path.basename(directory) in _SHARED_FOLDERS:
        return True
    home = os.path.realpath(os.path.expanduser("~"))
    if home == directory or home.startswith(f"{directory}/"):
        return True
    try:
        return bool(os.stat(directory).st_mode & stat.S_IWOTH)
    except OSError:
        return True  # of what cannot be looked at, nothing is shown


def _links_in(directory: str) -> Iterator[str]:
    if directory in _OF_PACKAGES:
        return
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, MAX_PROGRAMS):
                if entry.is_symlink():
                    yield entry.path
    except OSError:
        return  # what we cannot list, the child cannot either


def _leads_to(path: str) -> Iterator[str]:
    directory = os.path.realpath(os.path.dirname(path))
    if os.path.islink(path):
        yield os.path.normpath(os.path.join(directory, os.readlink(path)))
    elif _head(path).startswith("#!/"):
        yield _head(path)[2:].split()[0]
    for line in _head(os.path.join(os.path.dirname(directory), "pyvenv.cfg")).splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and value.strip().startswith("/"):
            yield os.path.join(value.strip(), "python3")


def _head(path: str) -> str:
    """The beginning of a regular file; nothing if there is none to be read."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_HEAD).decode("utf-8", "replace")
    except OSError:
        return ""
