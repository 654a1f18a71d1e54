"""Public projects that runs are tried on: where they come from, and a bug to put into each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["python", "npm", "c"]

PYTEST = "python -m pytest -q"
IGNORED = ".gitignore"
CACHES = "__pycache__/\n.pytest_cache/\n"
_LEAST_USED = (
    '        """Remove and return the `(key, value)` pair least recently used."""\n        try:\n'
)


@dataclass(frozen=True, slots=True)
class Bug:
    """One place of a project's source, as released and in two ways that its tests refuse."""

    path: str
    right: str
    broken: str
    wrong: str
    """What an agent might write that has not understood the bug."""


@dataclass(frozen=True, slots=True)
class Project:
    """A release of a project with its own tests, and how a user works on it."""

    name: str
    version: str
    kind: Kind
    test: str
    bug: Bug
    folder: str = ""
    """Where in the archive the project lies, if it is not all of it."""
    appended: Mapping[str, str] = field(default_factory=dict)
    """What its files lack in an archive, above all ignore rules, by the path of the file."""
    inside: bool = False
    """Whether the virtual environment is ``.venv`` in the checkout."""
    self_contained: bool = False
    """Whether its tests find the worktree wherever it lies: nothing leads them to the checkout."""


PROJECTS = (
    # src layout, setuptools; pytest itself imports it.
    Project(
        "iniconfig",
        "2.3.1",
        "python",
        PYTEST,
        Bug(
            "src/iniconfig/_parse.py",
            "            if section in sections_data:\n",
            "            if name in sections_data:\n",
            "            if False:\n",
        ),
    ),
    # src layout, flit.
    Project(
        "itsdangerous",
        "2.2.0",
        "python",
        PYTEST,
        Bug(
            "src/itsdangerous/timed.py",
            "            if age > max_age:\n",
            "            if age < max_age:\n",
            "            if False:\n",
        ),
        appended={IGNORED: CACHES},
    ),
    # src layout, setuptools, the environment in the checkout.
    Project(
        "cachetools",
        "8.0.0",
        "python",
        PYTEST,
        Bug(
            "src/cachetools/__init__.py",
            f"{_LEAST_USED}            key = next(iter(self.__order))\n",
            f"{_LEAST_USED}            key = next(reversed(self.__order))\n",
            f"{_LEAST_USED}            key = min(self.__order, default=None)\n",
        ),
        appended={IGNORED: f"/.venv/\n{CACHES}"},
        inside=True,
    ),
    # Flat layout, setuptools, no ignore rules at all.
    Project(
        "python-slugify",
        "9.1.3",
        "python",
        PYTEST,
        Bug(
            "slugify/slugify.py",
            "            if next_length <= max_length:\n",
            "            if next_length < max_length:\n",
            "            if True:\n",
        ),
        self_contained=True,
    ),
    # Flat layout, hatchling.
    Project(
        "sqlparse",
        "0.6.1",
        "python",
        f"{PYTEST} tests/test_format.py tests/test_split.py",
        Bug(
            "sqlparse/filters/tokens.py",
            "            if len(inner) > self.width:\n",
            "            if len(inner) < self.width:\n",
            "            if False:\n",
        ),
    ),
    Project(
        "no-case",
        "3.0.4",
        "npm",
        "npx jest dist/",
        Bug(
            "dist/index.js",
            '    while (result.charAt(end - 1) === "\\0")\n',
            '    while (result.charAt(end) === "\\0")\n',
            "    while (false)\n",
        ),
        appended={IGNORED: "/node_modules/\n"},
        self_contained=True,
    ),
    # A library in C, with the Makefile and the tests of its authors.
    Project(
        "pybase64",
        "1.5.1",
        "c",
        "make check",
        Bug(
            "lib/lib.c",
            "\t*outlen = s + t;\n",
            "\t*outlen = s;\n",
            "\t*outlen = t;\n",
        ),
        folder="base64",
        appended={
            IGNORED: "*.o\nconfig.h\nexports.build.txt\n/test/benchmark\n/test/test_base64\n",
            # Its authors type 'make -C test', which times it as well.
            "Makefile": "\n.PHONY: check\ncheck:\n"
            "\t$(MAKE) -B -C test test_base64\n\ttest/test_base64\n",
        },
        self_contained=True,
    ),
)
BY_NAME = {project.name: project for project in PROJECTS}
