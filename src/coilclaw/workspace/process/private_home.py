"""The private home of a child: nothing of the user's home but a few settings that hold no secret.

Those are the name and address under which commits are made, and where packages are looked for. What
opens a private registry is left out; the user shows it by naming it in ``sandbox.read``.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import explain_os_errors, is_below
from coilclaw.workspace.process import toolchain
from coilclaw.workspace.process.confinement import Layer
from coilclaw.workspace.tree.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.workspace.process.confinement import Sandbox


CACHES: Final = (
    (".cache/pip", False),
    (".cache/uv", False),
    (".npm", False),
    (".cargo/registry", True),
    (".cargo/git", True),
    ("go/pkg/mod", True),
    (".cache/go-build", False),
    (".m2/repository", True),
    (".gradle/caches", False),
    (".gradle/wrapper", True),
)
"""Where they are in a home, and whether each is of use to a program that cannot write it."""


@dataclass(frozen=True, slots=True)
class CacheFolders:
    """The caches of the user, and those of one workspace."""

    user_home: Path
    own: Path

    def lay(self, sandbox: Sandbox, home: Path, *, layers: bool) -> Sandbox:
        """Link the caches into a private home, and return the sandbox in which the links lead on.

        ``layers`` is whether bubblewrap can put a layer over a directory.
        """
        for name, readable_alone in CACHES:
            theirs, own = self.user_home / name, self.own / name
            filled = False
            with suppress(OSError):
                filled = bool(os.listdir(own))
            if not sandbox.network and not filled and not os.path.isdir(theirs):
                continue
            if not sandbox.network and not layers and not filled and readable_alone:
                _link(home / name, theirs)
                sandbox = replace(sandbox, readable=(*sandbox.readable, theirs))
                continue
            _make(own)
            _link(home / name, own)
            if layers and not sandbox.network and os.path.isdir(theirs):
                layer = Layer((theirs, own), own)
                sandbox = replace(sandbox, layers=(*sandbox.layers, layer))
            else:
                sandbox = replace(sandbox, writable=(*sandbox.writable, own))
        return sandbox


def _make(folder: Path) -> None:
    with explain_os_errors(f"create the cache {folder}", rule="sandbox.cache"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _link(link: Path, target: Path) -> None:
    _make(link.parent)
    with explain_os_errors(f"prepare the cache {link}", rule="sandbox.cache"):
        link.symlink_to(target)


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
    """Copy the safe settings of the user into a home; existing files stay."""
    with explain_os_errors(f"prepare the private home {home}", rule="sandbox.home"):
        (home / SCRATCH).mkdir(exist_ok=True, mode=0o700)
        user = Path(environ.get("HOME") or "/")
        files = [user / name for name in _GIT_FILES]
        # Not ``Path.is_file``, which raises where a folder above may not be searched.
        changed = tuple(file.stat().st_mtime_ns if os.path.isfile(file) else 0 for file in files)
        _put(home, ".gitconfig", _read_identity(user, environ.get("PATH", ""), changed))
        for name, pattern in _FILTERED.items():
            _put(home, name, "".join(_filter_lines(_read_settings(user / name), pattern)))
        for name in _WHOLE:
            text = _read_settings(user / name)
            _put(home, name, "" if _SECRET.search(text) else text)


def find_tool_variables(environ: Mapping[str, str], path: str) -> dict[str, str]:
    """Return where tools on a PATH are that would look for themselves in the home."""
    user = environ.get("HOME") or "/"
    entries = [os.path.realpath(entry) for entry in path.split(":") if entry.startswith("/")]
    found = {}
    for variable, folder in _TOOL_FOLDERS:
        place = environ.get(variable) or os.path.join(user, folder)
        real = os.path.realpath(place)
        if any(is_below(entry, real) for entry in entries):
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
    """Write a file of a home unless one exists, which may be a link that an agent made."""
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
    """Return the text of a settings file; nothing if it is missing or not readable."""
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


@lru_cache(maxsize=8)
def _read_identity(user: Path, path: str, changed: tuple[int, ...]) -> str:
    """Return settings of git with the user's name and address, and nothing else of theirs."""
    from coilclaw.workspace.process import command

    if not any(changed):
        return ""
    result = command.run(
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
