"""What is known about programs, whatever an allowlist says: a rule can add to it, not take away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS: Final = _set("""
    busybox builtin chroot chrt command dbus-run-session doas env eval exec expect fakeroot firejail
    flatpak flock gdb ionice ltrace nice nohup nsenter parallel pkexec prlimit proot runuser
    screen script setarch setpriv setsid source ssh-agent start-stop-daemon stdbuf strace su sudo
    systemd-run taskset time timeout tmux toybox unbuffer unshare valgrind watch xargs xvfb-run
    """)
"""Programs that run another one, which would be judged by the wrapper's name."""

INTERACTIVE: Final = _set(
    "emacs ftp gdb htop irb less man more mysql nano pdb psql sqlite3 telnet top vi vim"
)

NETWORK_PROGRAMS: Final = _set("""
    aria2c aws az curl docker ftp gcloud gh hub kubectl nc ncat netcat podman rsync scp sftp skopeo
    socat ssh telnet wget
    """)

NETWORK_COMMANDS: Final[Mapping[str, frozenset[str]]] = {
    "git": _set("clone fetch ls-remote pull push remote-http send-email submodule"),
    "npm": _set("add ci i install login publish update view audit exec init create"),
    "pnpm": _set("add dlx i import install publish update up exec create"),
    "yarn": _set("add dlx install publish up upgrade create"),
    "bun": _set("a add create i install publish update x"),
    "npx": frozenset(),
    "bunx": frozenset(),
    "uvx": frozenset(),
    "pip": _set("download install wheel index"),
    "pip3": _set("download install wheel index"),
    "uv": _set("add pip sync tool lock publish"),
    "poetry": _set("add install lock publish update"),
    "cargo": _set("add fetch install login owner publish search update"),
    "pdm": _set("add install lock publish sync update"),
    "pipenv": _set("install lock sync update upgrade"),
    "mvn": _set("dependency:go-offline dependency:resolve"),
    "mvnw": _set("dependency:go-offline dependency:resolve"),
    "go": frozenset({"get", "install", "mod download"}),
    "gem": _set("fetch install push update"),
    "bundle": _set("install update"),
    "composer": _set("install require update"),
    "dotnet": _set("add nuget restore tool"),
}
"""Subcommands, of one or two words, that fetch or send; an empty set means all of them."""

NETWORK_LAUNCHERS: Final = frozenset({"npx", "pnpm exec"})
"""Launchers that fetch what they are told to, if their own options say so."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How a program that runs code is called; an option that is not listed is refused."""

    letters: str = ""
    """Options without a value, which may be bundled."""
    values: str = ""
    """Options with one."""
    words: tuple[str, ...] = ()
    """Long options; one that ends in a dash stands for all that start like it."""
    module: str = ""
    """The option that names a module instead of a file."""
    testing: str = ""
    """The long option that makes files optional."""


_SHELL: Final = Interpreter(letters="euxvnf", values="o")
_PYTHON: Final = Interpreter(
    letters="bBdEIOPqsSuvVx", values="WX", words=("--version",), module="m"
)
_INTERPRETERS: Final = (
    (re.compile(r"(python|pypy)[0-9.]*"), _PYTHON),
    (re.compile(r"(ba|da|z|k|mk|a)?sh"), _SHELL),
    (
        re.compile(r"node(js)?"),
        Interpreter(
            words=(
                "--test",
                "--test-",
                "--version",
                "--no-warnings",
                "--enable-source-maps",
                "--experimental-test-coverage",
                "--experimental-strip-types",
            ),
            testing="--test",
        ),
    ),
    (re.compile(r"ruby[0-9.]*"), Interpreter(letters="wW", values="I", words=("--version",))),
    (re.compile(r"perl[0-9.]*"), Interpreter(letters="wW", values="I", words=("--version",))),
    (
        re.compile(r"(php|lua|luajit|Rscript|tclsh|guile|julia|osascript|pwsh|fish)[0-9.]*"),
        Interpreter(),
    ),
)


def interpreter(name: str) -> Interpreter | None:
    """Return how an interpreter is called, if the program is one."""
    for pattern, found in _INTERPRETERS:
        if pattern.fullmatch(name):
            return found
    return None


_PYTEST: Final = (
    *("-p", "-c", "-o", "--config-file", "--override-ini", "--rootdir", "--confcutdir"),
    *("--pdb", "--pdbcls", "--trace", "--pyargs", "--basetemp"),
)
_MAKE: Final = (
    *("-f", "--file", "--makefile", "-C", "--directory", "--eval", "-E", "-I", "--include-dir"),
)
_NODE_PACKAGES: Final = (
    *("--prefix", "--script-shell", "--node-options", "--globalconfig", "--userconfig"),
    *("--init-module", "-C", "--dir", "--cwd"),
)

FORBIDDEN_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    # What it does not know itself, it hands on to pytest.
    "hatch": _PYTEST,
    "git": (
        *("-c", "-C", "--exec-path", "--git-dir", "--work-tree", "--config-env", "--ext-diff"),
        *("--textconv", "--output", "-O", "--open-files-in-pager", "--upload-pack"),
        *("--receive-pack", "--global", "--system", "--paginate"),
    ),
    "make": _MAKE,
    "gmake": _MAKE,
    "ninja": ("-C", "-f", "-t", "-d"),
    "npm": _NODE_PACKAGES,
    "pnpm": _NODE_PACKAGES,
    "yarn": _NODE_PACKAGES,
    "cargo": ("--config", "-Z", "--registry", "--index", "--manifest-path"),
    "go": (
        *("-C", "-exec", "-toolexec", "-overlay", "-modfile", "-ldflags", "-gcflags", "-asmflags"),
    ),
    "mypy": ("--python-executable", "--install-types", "--config-file"),
    "tox": ("-c", "--conf", "-x", "--override", "--workdir", "--root"),
    "nox": ("-f", "--noxfile"),
    "cmake": ("-P", "-E"),
    "ctest": ("-S", "-SP", "--script", "-D", "--build-and-test"),
    "gradle": ("-I", "--init-script", "-b", "--build-file", "-c", "-g", "-p", "--include-build"),
    "gradlew": ("-I", "--init-script", "-b", "--build-file", "-c", "-g", "-p", "--include-build"),
    "mvn": ("-s", "--settings", "-gs", "-f", "--file", "-t"),
    "mvnw": ("-s", "--settings", "-gs", "-f", "--file", "-t"),
}
"""Options that load other code, other settings or another directory, as ``command_place`` does not
read them."""

PLAIN_AT_SIGN: Final = _set("git")
"""Programs that do not read a file of arguments for a word with ``@`` before it."""

TOOL_MODULES: Final = _set("""
    black build compileall coverage doctest flake8 hypothesis isort mypy nose2 nox pip pre_commit
    pyflakes pylint pyright pytest ruff tox twine unittest venv
    """)
"""Modules that are tools. One in the tree with such a name would take the tool's place."""
