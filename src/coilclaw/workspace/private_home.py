"""The private home of a child: nothing of the user's home but a few settings that hold no secret.

Those are the name and address under which commits are made, and where packages are looked for. What
opens a private registry is left out; the user shows it by naming it in ``sandbox.read``.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import process, toolchain
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCRATCH: Final = "tmp"
"""Below the home: where temporary files go, where /tmp is not private."""
MAX_SETTINGS_BYTES: Final = 64 * 2**10
_GIT_TIMEOUT_S: Final = 10.0
_GIT_FILES: Final = (".gitconfig", ".config/git/config")
_GIT_KEYS: Final = r"^(user\.(name|email)|safe\.directory)$"
_FILTERED: Final = {
    ".config/pip/pip.conf": re.compile(
        r"\s*(\[\w+\]|(index-url|extra-index-url|find-links|no-index|trusted-host|cert|timeout)\s*=)"
    ),
    ".npmrc": re.compile(r"\s*((@[\w.-]+:)?registry|cafile|strict-ssl|nodedir)\s*="),
}
"""Settings of which single lines are taken: those of these keys, and what continues them."""
_WHOLE: Final = (
    *(".config/uv/uv.toml", ".cargo/config.toml", ".m2/settings.xml"),
    *(".tool-versions", ".config/mise/config.toml"),
)
"""Settings that are taken if nothing in them looks like a secret."""
_SECRET: Final = re.compile(
    r"://[^/\s\"']*@|\$\{|token|passw|passphrase|secret|credential|_auth|\bauth\b|apikey|api[_-]key"
    r"|private[_-]?key|cookie|\[env\]|<servers>",
    re.IGNORECASE,
)
_TOOL_FOLDERS: Final = (
    ("PYENV_ROOT", ".pyenv"),
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("MISE_DATA_DIR", ".local/share/mise"),
    ("SDKMAN_DIR", ".sdkman"),
)
"""Variables that say where a tool is which looks for itself in the home."""


@contextmanager
def open_home(environ: Mapping[str, str]) -> Iterator[Path]:
    """Make a home for one command; it is removed with all that was put there."""
    import tempfile

    home = Path(os.path.realpath(tempfile.mkdtemp(prefix="coilclaw-")))
    try:
        fill_home(home, environ)
        yield home
    finally:
        remove_tree(home)


def fill_home(home: Path, environ: Mapping[str, str]) -> None:
    """Put into a home what it takes of the user's; what is there already stays as it is."""
    try:
        (home / SCRATCH).mkdir(exist_ok=True, mode=0o700)
        user = Path(environ.get("HOME") or "/")
        _put(home, ".gitconfig", _read_identity(user, environ.get("PATH", ""), _stamp(user)))
        for name, pattern in _FILTERED.items():
            _put(home, name, "".join(_filter_lines(_read_settings(user / name), pattern)))
        for name in _WHOLE:
            text = _read_settings(user / name)
            _put(home, name, "" if _SECRET.search(text) else text)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot prepare the private home {home}: {problem.strerror}", rule="sandbox.home"
        ) from problem


def find_tool_variables(environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Return where tools on a PATH are that would look for themselves in the home."""
    user = environ.get("HOME") or "/"
    entries = [os.path.realpath(entry) for entry in path.split(":") if entry.startswith("/")]
    found = {}
    for variable, folder in _TOOL_FOLDERS:
        place = environ.get(variable) or os.path.join(user, folder)
        real = os.path.realpath(place)
        if any(toolchain.is_below(entry, real) for entry in entries):
            found[variable] = place
    cargo = [entry for entry in entries if entry.endswith("/.cargo/bin")]
    rust = environ.get(toolchain.RUST) or os.path.join(user, ".rustup")
    if cargo and os.path.isdir(rust):
        found[toolchain.RUST] = rust
    for entry in entries:
        prefix = os.path.dirname(entry)
        if entry.endswith(toolchain.USER_PROGRAMS) and toolchain.user_packages(prefix):
            found["PYTHONUSERBASE"] = prefix
    return found


def _put(home: Path, name: str, text: str) -> None:
    """Write a file of a home, unless there is something: it may be a link that an agent made."""
    if not text:
        return
    folder = home
    for part in Path(name).parent.parts:
        folder /= part
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if folder.is_symlink() or not folder.is_dir():
            return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        fd = os.open(home / name, flags, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)


def _read_settings(path: Path) -> str:
    """Return the text of a file of settings; nothing if there is none, or it is no such file."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_SETTINGS_BYTES:
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _filter_lines(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    taken = False
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        continued = line[0].isspace() and taken
        taken = (continued or bool(pattern.match(line))) and not _SECRET.search(line)
        if taken:
            yield f"{line}\n"


def _stamp(user: Path) -> tuple[int, ...]:
    """Tell when the user's settings of git last changed."""
    stamp = []
    for name in _GIT_FILES:
        try:
            stamp.append((user / name).stat().st_mtime_ns)
        except OSError:
            stamp.append(0)
    return tuple(stamp)


@lru_cache(maxsize=8)
def _read_identity(user: Path, path: str, stamp: tuple[int, ...]) -> str:
    """Return settings of git with the user's name and address, and nothing else of theirs."""
    if not any(stamp):
        return ""
    result = process.run(
        ["git", "config", "--global", "--includes", "--null", "--get-regexp", _GIT_KEYS],
        cwd="/",
        timeout_s=_GIT_TIMEOUT_S,
        env={"PATH": path or os.defpath, "HOME": str(user), "LANG": "C.UTF-8"},
        limit_bytes=MAX_SETTINGS_BYTES,
    )
    if result.exit_code != 0 or result.stdout.dropped:
        return ""
    lines = []
    for entry in os.fsdecode(result.stdout.data).split("\0"):
        key, newline, value = entry.partition("\n")
        if newline:
            section, _, name = key.partition(".")
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'[{section}]\n\t{name} = "{quoted}"\n')
    return "".join(lines)
