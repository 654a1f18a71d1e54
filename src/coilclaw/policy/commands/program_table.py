"""What is known about programs, whatever an allowlist says: a rule can add to it, not take away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.launchers import runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_ENDS: Final = frozenset({"--", "-args"})
"""What follows is for another program."""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """The options of a program that name a directory to work in, or its file there."""

    directory: tuple[str, ...] = ()
    file: tuple[str, ...] = ()
    attached: bool = False
    """Whether a value may follow a letter at once."""
    equals: bool = False
    """Whether ``=`` may stand behind one dash as well."""


@dataclass(frozen=True, slots=True)
class PlacedCommand:
    """A command without what says where it works."""

    argv: tuple[str, ...]
    directory: str | None = None
    file: str | None = None
    """Relative to the directory."""
    options: tuple[str, ...] = ()
    """Those that were taken out, without their values."""
    repeated: str = ""
    """An option that is there twice."""


_MAKE_PLACES: Final = PlaceOptions(
    ("-C", "--directory"), ("-f", "--file", "--makefile"), attached=True
)
PLACE_OPTIONS: Final[Mapping[str, PlaceOptions]] = {
    "make": _MAKE_PLACES,
    "gmake": _MAKE_PLACES,
    "ninja": PlaceOptions(("-C",), ("-f",), attached=True),
    "npm": PlaceOptions(("--prefix", "-C")),
    "pnpm": PlaceOptions(("--dir", "-C")),
    "yarn": PlaceOptions(("--cwd",)),
    "cargo": PlaceOptions(file=("--manifest-path",)),
    "go": PlaceOptions(("-C",), equals=True),
}


def read_placed(argv: tuple[str, ...]) -> PlacedCommand:
    """Take out of a command what says where it works; any other command is returned as it is."""
    known = PLACE_OPTIONS.get(argv[0]) if argv else None
    if known is None:
        return PlacedCommand(argv)
    found: dict[bool, str] = {}
    options: list[str] = []
    rest, at = [argv[0]], 1
    while at < len(argv) and argv[at] not in _ENDS:
        option, value, length = _read_option(argv[at : at + 2], known)
        if not option:
            rest.append(argv[at])
        elif (option in known.file) in found:
            return PlacedCommand(argv, repeated=option)
        else:
            found[option in known.file] = value
            options.append(option)
        at += length
    placed = (*rest, *argv[at:])
    return PlacedCommand(placed, found.get(False), found.get(True), tuple(options))


def _read_option(words: tuple[str, ...], known: PlaceOptions) -> tuple[str, str, int]:
    """Return the option that the first word is, its value, and how many words both are."""
    word = words[0]
    options = (*known.directory, *known.file)
    name, given, value = word.partition("=")
    if word in options:
        return word, words[1] if len(words) > 1 else "", 2
    if given and name in options and (name.startswith("--") or known.equals):
        return name, value, 1
    if known.attached and not word.startswith("--") and word[:2] in options:
        return word[:2], word[2:], 1
    return "", "", 1


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
    **dict.fromkeys(("npx", "bunx", "uvx"), frozenset()),
    **dict.fromkeys(("pip", "pip3"), _set("download install wheel index")),
    "uv": _set("add pip sync tool lock publish"),
    "poetry": _set("add install lock publish update"),
    "cargo": _set("add fetch install login owner publish search update"),
    "pdm": _set("add install lock publish sync update"),
    "pipenv": _set("install lock sync update upgrade"),
    **dict.fromkeys(("mvn", "mvnw"), _set("dependency:go-offline dependency:resolve")),
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
                *("--test", "--test-", "--version", "--no-warnings", "--enable-source-maps"),
                *("--experimental-test-coverage", "--experimental-strip-types"),
            ),
            testing="--test",
        ),
    ),
    (re.compile(r"(ruby|perl)[0-9.]*"), Interpreter("wW", "I", ("--version",))),
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


FORBIDDEN_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    # What hatch does not know itself, it hands on to pytest.
    **dict.fromkeys(
        ("pytest", "py.test", "hatch"),
        (
            *("-p", "-c", "-o", "--config-file", "--override-ini", "--rootdir", "--confcutdir"),
            *("--pdb", "--pdbcls", "--trace", "--pyargs", "--basetemp"),
        ),
    ),
    "git": (
        *("-c", "-C", "--exec-path", "--git-dir", "--work-tree", "--config-env", "--ext-diff"),
        *("--textconv", "--output", "-O", "--open-files-in-pager", "--upload-pack"),
        *("--receive-pack", "--global", "--system", "--paginate"),
    ),
    **dict.fromkeys(
        ("make", "gmake"),
        ("-f", "--file", "--makefile", "-C", "--directory", "--eval", "-E", "-I", "--include-dir"),
    ),
    "ninja": ("-C", "-f", "-t", "-d"),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn"),
        (
            *("--prefix", "--script-shell", "--node-options", "--globalconfig", "--userconfig"),
            *("--init-module", "-C", "--dir", "--cwd"),
        ),
    ),
    "cargo": ("--config", "-Z", "--registry", "--index", "--manifest-path"),
    "go": (
        *("-C", "-exec", "-toolexec", "-overlay", "-modfile", "-ldflags", "-gcflags", "-asmflags"),
    ),
    "mypy": ("--python-executable", "--install-types", "--config-file"),
    "tox": ("-c", "--conf", "-x", "--override", "--workdir", "--root"),
    "nox": ("-f", "--noxfile"),
    "cmake": ("-P", "-E"),
    "ctest": ("-S", "-SP", "--script", "-D", "--build-and-test"),
    **dict.fromkeys(
        ("gradle", "gradlew"),
        ("-I", "--init-script", "-b", "--build-file", "-c", "-g", "-p", "--include-build"),
    ),
    **dict.fromkeys(("mvn", "mvnw"), ("-s", "--settings", "-gs", "-f", "--file", "-t")),
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

# Commands of which every option is known: one that is not listed is refused. A test runner of
# another ecosystem and an installer have hundreds of options, of which some load code, write
# elsewhere or fetch something else. What is listed does none of that.
OFFLINE: Final = frozenset({"--offline", "--no-index", "--local"})
"""Options with which an installer takes only what is there already."""
_ANYTHING: Final = re.compile(r".*", re.DOTALL)
_NOTHING: Final = re.compile(r"(?!)")
_PATH: Final = re.compile(r"(?!-)[\w./+-]+(\[[\w,.-]+\])?")


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of a command, and what may stand beside them."""

    flags: frozenset[str]
    """Options without a value, or with one that may be anything."""
    paths: frozenset[str] = frozenset()
    """Options whose value is a path of the tree."""
    operands: re.Pattern[str] = _NOTHING
    """What a word that is not an option may be."""


_PIP: Final = CommandOptions(
    _set("""
        --no-deps --no-build-isolation --no-index --no-input --no-cache-dir --require-hashes
        --disable-pip-version-check -q --quiet
        """),
    _set("-e --editable -r --requirement -c --constraint"),
    re.compile(r"\.(/[\w./-]*)?(\[[\w,.-]+\])?"),
)
_NPM: Final = CommandOptions(
    _set("""
        --ignore-scripts --no-audit --no-fund --prefer-offline --offline --include --omit
        --legacy-peer-deps --no-save --no-package-lock --silent --no-progress
        """)
)
_BAZEL: Final = CommandOptions(
    _set("""
        --test_output --test_filter --test_tag_filters --test_size_filters --test_timeout
        --test_summary --build_tests_only --runs_per_test --nocache_test_results --jobs --config
        --compilation_mode -c --keep_going -k --color --curses --noshow_progress --verbose_failures
        --lockfile_mode
        """),
    operands=_ANYTHING,
)
_JUST: Final = CommandOptions(
    _set("-q --quiet -v --verbose --color --yes --timestamp"), operands=_ANYTHING
)

_KNOWN: Final[Mapping[tuple[str, ...], CommandOptions]] = {
    ("jest",): CommandOptions(
        _set("""
            --ci --coverage --runInBand -i --maxWorkers -w --maxConcurrency --testPathPattern
            --testPathPatterns --runTestsByPath -t --testNamePattern --testTimeout --verbose
            --silent --bail -b --no-cache --color --colors --no-color --no-colors --forceExit
            --detectOpenHandles --selectProjects --watchAll --watch --randomize --expand
            --logHeapUsage --errorOnDeprecated
            """),
        operands=_ANYTHING,
    ),
    ("vitest",): CommandOptions(
        _set("""
            --run --coverage --no-coverage --reporter --bail -t --testNamePattern --silent
            --no-file-parallelism --maxWorkers --minWorkers --pool --project --testTimeout
            --hookTimeout --no-isolate --hideSkippedTests --globals --no-watch --watch --no-color
            """),
        operands=_ANYTHING,
    ),
    ("bazel", "test"): _BAZEL,
    ("bazelisk", "test"): _BAZEL,
    ("just",): _JUST,
    ("npm", "ci"): _NPM,
    ("npm", "install"): _NPM,
    ("pnpm", "install"): CommandOptions(
        _set("--frozen-lockfile --offline --prefer-offline --ignore-scripts --silent")
    ),
    ("yarn", "install"): CommandOptions(
        _set("""
            --frozen-lockfile --immutable --immutable-cache --offline --ignore-scripts
            --non-interactive --silent
            """)
    ),
    ("bun", "install"): CommandOptions(_set("--frozen-lockfile --ignore-scripts --silent")),
    ("pip", "install"): _PIP,
    ("pip3", "install"): _PIP,
    ("uv", "pip", "install"): _PIP,
    ("uv", "sync"): CommandOptions(
        _set("""
            --frozen --locked --all-extras --all-groups --extra --no-extra --group --no-group
            --only-group --dev --no-dev --offline --no-install-project --inexact --all-packages
            -q --quiet
            """),
        operands=re.compile(r"[\w-]+"),
    ),
    ("poetry", "install"): CommandOptions(
        _set("""
            --no-root --no-interaction -n --sync --with --without --only --all-extras --all-groups
            --extras -E --no-ansi -q --quiet
            """),
        operands=re.compile(r"[\w,-]+"),
    ),
    ("pdm", "sync"): CommandOptions(_set("--no-self --no-editable --dev -d --prod -q --quiet")),
    ("pipenv", "sync"): CommandOptions(_set("--dev -d")),
    ("cargo", "fetch"): CommandOptions(_set("--locked --offline -q --quiet")),
    ("go", "mod", "download"): CommandOptions(_set("-x")),
    ("bundle", "install"): CommandOptions(_set("--local --quiet --jobs --retry")),
    ("composer", "install"): CommandOptions(
        _set("--no-interaction -n --no-scripts --no-progress --prefer-dist -q --quiet")
    ),
    ("dotnet", "restore"): CommandOptions(
        _set("--locked-mode --verbosity"), operands=re.compile(r"[\w./-]+")
    ),
}
_LABEL: Final = re.compile(r"-?//[\w.,+=~@/:-]*")


def options_of(argv: tuple[str, ...]) -> tuple[CommandOptions, tuple[str, ...]] | None:
    """Return the options of a command that is known to the last one, and the words to judge."""
    name, rest = runner(argv)
    words = (name, *rest)
    for length in (3, 2, 1):
        found = _KNOWN.get(words[:length])
        if found is not None:
            return found, words[length:]
    return None


def refused_words(argv: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command that are not among what is known of it."""
    known = options_of(argv)
    if known is None:
        return
    options, words = known
    names = {_fold_option(flag) for flag in options.flags}
    rest = iter(words)
    for word in rest:
        name, given, value = word.partition("=")
        if word == "--":
            # What follows are operands, whatever they start with.
            yield from (each for each in rest if not options.operands.fullmatch(each))
        elif not word.startswith("-"):
            if not options.operands.fullmatch(word):
                yield word
        elif name in options.paths:
            if not _PATH.fullmatch(value if given else next(rest, "")):
                yield word
        elif _fold_option(name) not in names:
            yield word


def is_offline(argv: tuple[str, ...]) -> bool:
    """Whether an installer is told to take only what is there already."""
    known = options_of(argv)
    return known is not None and not OFFLINE.isdisjoint(known[1])


def is_label(argv: tuple[str, ...], word: str) -> bool:
    """Whether a word names a target of Bazel: ``//`` is the top of the tree there."""
    return (
        argv[:2] in {("bazel", "test"), ("bazelisk", "test")}
        and _LABEL.fullmatch(word) is not None
        and ".." not in re.split(r"[/:]", word)
    )


def _fold_option(name: str) -> str:
    """Return a long option as readers do who take ``--testTimeout`` and ``--test-timeout``."""
    return name if not name.startswith("--") else name.replace("-", "").casefold()
