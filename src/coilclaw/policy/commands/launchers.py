"""Launchers such as ``uv run`` and what they start; acceptance commands that test nothing."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Launcher:
    """How a launcher is called: its subcommand, then its own options, then the program."""

    subcommand: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    """Options without a value."""
    values: frozenset[str] = frozenset()
    """Options with one."""
    module: frozenset[str] = frozenset()
    """Options after which a module of Python stands instead of a program."""
    python_files: bool = False
    """Whether it gives a ``.py`` file to Python."""
    names_only: bool = False
    """Whether a word with a slash is not a program to it, but something to install."""


@dataclass(frozen=True, slots=True)
class LaunchedCommand:
    """A command that a launcher starts; ``argv`` is empty where ``refused`` is not."""

    launcher: str
    argv: tuple[str, ...]
    at: int
    """Where the program stands in the whole command."""
    refused: str = ""
    """The first word for the launcher that is not accepted."""


LAUNCHERS: Final[Mapping[str, Launcher]] = {
    "uv": Launcher(
        ("run",),
        frozenset(
            {"--frozen", "--locked", "--no-sync", "--offline", "--all-extras", "--all-groups"}
            | {"--dev", "--no-dev", "--exact", "--isolated", "--all-packages", "-q", "--quiet"}
        ),
        frozenset({"--extra", "--no-extra", "--group", "--no-group", "--only-group"}),
        frozenset({"-m", "--module"}),
        python_files=True,
    ),
    **dict.fromkeys(("poetry", "pdm", "hatch", "pipenv"), Launcher(("run",))),
    # Without --yes, npx asks before it fetches, and no one can answer.
    "npx": Launcher((), frozenset({"--no-install", "--offline"}), names_only=True),
    "pnpm": Launcher(("exec",)),
}


def read_launched(argv: Sequence[str]) -> LaunchedCommand | None:
    """Return what a launcher starts; ``None`` where the command is not one of a launcher."""
    known = LAUNCHERS.get(argv[0]) if argv else None
    start = 1 + len(known.subcommand) if known else 0
    if known is None or tuple(argv[1:start]) != known.subcommand:
        return None
    name = " ".join(argv[:start])
    at = start
    while at < len(argv) and argv[at].startswith("-"):
        word, _, value = argv[at].partition("=")
        at += 1
        if word == "--" and not value:
            break
        if word in known.module:
            return LaunchedCommand(name, ("python", "-m", *argv[at:]), at)
        if word in known.values:
            at += 0 if value else 1
        elif word not in known.flags or value:
            return LaunchedCommand(name, (), at - 1, argv[at - 1])
    inner = tuple(argv[at:])
    if known.names_only and inner and "/" in inner[0]:
        return LaunchedCommand(name, (), at, inner[0])
    if known.python_files and inner[:1] and inner[0].endswith(".py"):
        inner = ("python", *inner)
    return LaunchedCommand(name, inner, at)


PROGRAMS: Final = frozenset(
    {"", ":", "[", "cat", "cd", "date", "echo", "exit", "false", "hostname", "id", "ls"}
    | {"printf", "pwd", "sleep", "stat", "test", "touch", "true", "type", "uname", "which"}
    | {"whoami", "yes"}
)
"""They say the same whatever was changed, or only look."""
FLAGS: Final = frozenset(
    {"--version", "--help", "--collect-only", "--co", "--fixtures", "--markers", "--dry-run"}
    | {"--listTests", "--list-tests", "--no-run", "--just-print", "--setup-plan", "--setup-only"}
)
"""With them, a test runner runs no test."""
_PYTEST: Final = frozenset({"--ignore", "--ignore-glob", "--deselect", "--fixtures-per-test"})
_NODE_PACKAGES: Final = frozenset({"--if-present", "--ignore-scripts"})
_JAVASCRIPT: Final = frozenset({"--passWithNoTests", "--pass-with-no-tests", "-h", "-v"})
_MAVEN: Final = frozenset(
    {"-DskipTests", "-DskipITs", "-Dmaven.test.skip", "-Dmaven.test.failure.ignore", "-h", "-v"}
    | {"-fn", "--fail-never"}
)
_GRADLE: Final = frozenset({"-x", "--exclude-task", "-m", "-h", "-v"})
_BY_RUNNER: Final = {
    **dict.fromkeys(("pytest", "py.test"), _PYTEST),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _NODE_PACKAGES),
    **dict.fromkeys(("jest", "vitest"), _JAVASCRIPT),
    **dict.fromkeys(("mvn", "mvnw"), _MAVEN),
    **dict.fromkeys(("gradle", "gradlew"), _GRADLE),
    "cargo": frozenset({"--list"}),
    "ctest": frozenset({"-N", "-h", "-H", "--show-only"}),
    "hatch": _PYTEST | {"-s", "--show"},
    "just": frozenset({"-n", "-l", "--list", "--show", "-s", "--evaluate", "--summary"}),
    "ninja": frozenset({"-n", "-t", "-h"}),
    "bazel": frozenset({"--nobuild", "--check_up_to_date"}),
    "dotnet": frozenset({"-t", "-h", "-?"}),
}
"""With them it runs none, or leaves out those that it should run."""
_GO: Final = frozenset({"list", "c", "n", "h"})
_LETTERS: Final = {
    **dict.fromkeys(("pytest", "py.test"), ("hV", "kmnrpcoW")),
    **dict.fromkeys(("make", "gmake"), ("hnqtv", "CEIWfjlo")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), ("hv", "wC")),
    "unittest": ("h", "kspt"),
    "nose2": ("h", "spt"),
    "python": ("hV", "WXcm"),
    "ninja": ("hnt", "Cdfjklw"),
    "node": ("hv", "rI"),
    "cargo": ("hV", "pjFZ"),
    "tox": ("hla", "ecx"),
}
"""The letters that have the same effect, and those that the rest of the word is the value of."""
_ABBREVIATING: Final = frozenset(
    {"pytest", "py.test", "unittest", "nose2", "make", "gmake", "npm", "tox", "coverage"}
)
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")


def is_trivial(command: str) -> bool:
    """Whether a command cannot fail because of a change; what cannot be read counts as well."""
    try:
        words = shlex.split(command)
    except ValueError:
        return True
    return not words or _tests_nothing(words)


def _tests_nothing(words: Sequence[str]) -> bool:
    launched = read_launched(words)
    if launched is not None:
        return not launched.argv or _tests_nothing(launched.argv)
    program = words[0].rpartition("/")[2]
    if program in PROGRAMS or (program == "git" and not _looks(words[1:])):
        return True
    name, options = runner(words)
    if _PYTHON.fullmatch(program) and any(_runs_nothing("python", word) for word in words[1:2]):
        return True
    return any(_runs_nothing(name, word) for word in options) or any(
        word.partition("=")[0] in FLAGS for word in words[1:]
    )


def runner(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the program that a command runs and its arguments.

    For Python it is the module that it names, for a launcher the program behind it.
    """
    launched = read_launched(words)
    if launched is not None and launched.argv:
        return runner(launched.argv)
    name, rest = words[0].rpartition("/")[2], tuple(words[1:])
    if not _PYTHON.fullmatch(name):
        return name, rest
    at = _module(rest)
    if at is None:
        first = next((at for at, word in enumerate(rest) if not word.startswith("-")), len(rest))
        return "python", rest[:first]
    joined = rest[at][2:]
    name, rest = (joined, rest[at + 1 :]) if joined else (rest[at + 1], rest[at + 2 :])
    if name == "coverage" and rest[:1] == ("run",):
        at = _module(rest)
        return ("coverage", rest) if at is None else runner(("python", *rest[at:]))
    return name, rest


def _module(words: tuple[str, ...]) -> int | None:
    """Where ``-m`` and a module stand."""
    for at, word in enumerate(words):
        if (word == "-m" and at + 1 < len(words)) or (word.startswith("-m") and len(word) > 2):
            return at
    return None


def _runs_nothing(name: str, word: str) -> bool:
    option = word.partition("=")[0]
    if name == "go":
        return word.startswith("-") and option.lstrip("-") in _GO
    wanted = FLAGS | _BY_RUNNER.get(name, frozenset())
    if option in wanted:
        return True
    if word.startswith("--"):
        return (
            name in _ABBREVIATING
            and len(option) > len("--")
            and any(flag.startswith(option) for flag in wanted)
        )
    return word.startswith("-") and _has_letter(word[1:], *_LETTERS.get(name, ("", "")))


def _has_letter(bundle: str, wanted: str, values: str) -> bool:
    """Whether one of the letters is in a bundle of options, and not in the value of one."""
    for letter in bundle:
        if letter in wanted or letter in values:
            return letter in wanted
    return False


def _looks(words: Sequence[str]) -> bool:
    """Whether git is asked something that a change can answer differently."""
    checks = {"--check", "--exit-code", "--quiet"} & set(words)
    return bool(words) and (words[0] == "grep" or (words[0] == "diff" and bool(checks)))
