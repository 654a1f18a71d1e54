"""Commands of which every option is known: one that is not listed is refused.

A test runner of another ecosystem and an installer have hundreds of options, of which some load
code, write elsewhere or fetch something else. What is listed does none of that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.trivial import runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OFFLINE: Final = frozenset({"--offline", "--no-index", "--local"})
"""Options with which an installer takes only what is there already."""
_ANYTHING: Final = re.compile(r".*", re.DOTALL)
_NOTHING: Final = re.compile(r"(?!)")
_PATH: Final = re.compile(r"(?!-)[\w./+-]+(\[[\w,.-]+\])?")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of a command, and what may stand beside them."""

    flags: frozenset[str]
    """Options without a value, or with one that may be anything."""
    paths: frozenset[str] = frozenset()
    """Options whose value is a path of the tree."""
    operands: re.Pattern[str] = _NOTHING
    """What a word that is no option may be."""


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
    names = {_folded(flag) for flag in options.flags}
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
        elif _folded(name) not in names:
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


def _folded(name: str) -> str:
    """Return a long option as readers do who take ``--testTimeout`` and ``--test-timeout``."""
    return name if not name.startswith("--") else name.replace("-", "").casefold()
