"""How an argv is compared with a rule of the command allowlist: word by word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import TreePath
from coilclaw.errors import PathRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coilclaw.contracts.policyfiles import CommandRule

_CLUSTER: Final = re.compile(r"-[A-Za-z0-9]+")
# Programs whose options are words after one dash, so that letters are never bundled.
_WORD_OPTIONS: Final = frozenset(
    {"bun", "cmake", "ctest", "deno", "dotnet", "go", "gradle", "gradlew", "java", "mvn", "mvnw"}
    | {"node"}
)


def fitting_rules(rules: Iterable[CommandRule], argv: tuple[str, ...]) -> list[CommandRule]:
    """Return the rules with the program of an argv and one of the prefixes that follow it.

    A rule for every program below a directory holds only for those without a rule of their own.
    """
    every = tuple(rules)
    own = [rule for rule in every if plain(rule.exec) == plain(argv[0])]
    below = [rule for rule in every if rule.exec.endswith("/") and _is_below(rule.exec, argv[0])]
    return [
        rule
        for rule in own or below
        if any(
            len(argv) > len(prefix) and all(map(_fits, prefix, argv[1:]))
            for prefix in rule.prefixes
        )
    ]


def _is_below(directory: str, program: str) -> bool:
    return "/" in program and _fits(directory, program)


def _fits(form: str, word: str) -> bool:
    if form.endswith("/"):
        directory, path = plain(form), plain(word)
        return in_tree(path) and path.startswith(directory) and path != directory
    return word == form


def in_tree(word: str) -> bool:
    """Whether a word is a plain path that stays inside the tree."""
    bare = plain(word)
    try:
        return str(TreePath.parse(bare)) == bare and not bare.startswith("-")
    except PathRefused:
        return False


def plain(name: str) -> str:
    """A path in the tree without the ``./`` before it."""
    return name.removeprefix("./")


def used_flags(argv: tuple[str, ...], flags: Iterable[str]) -> Iterator[str]:
    """Yield the words of an argv that are one of the flags, in any spelling.

    ``--flag=value``, a value joined to a letter, letters in a bundle, and abbreviations of a long
    flag count. What stands after ``--`` counts as well: many programs hand it on.
    """
    bundles = argv[0].rpartition("/")[2] not in _WORD_OPTIONS
    wanted = tuple(flags)
    for word in argv[1:]:
        if any(_is_flag(word, flag, bundles=bundles) for flag in wanted):
            yield word


def _is_flag(word: str, flag: str, *, bundles: bool) -> bool:
    name = word.partition("=")[0]
    if not word.startswith("-") or name in {"-", "--"}:
        return word == flag
    if not bundles:
        return name.lstrip("-") == flag.lstrip("-")
    if flag.startswith("--"):
        return name.startswith("--") and flag.startswith(name)
    if len(flag) == 2:
        found = None if word.startswith("--") else _CLUSTER.match(word)
        return found is not None and flag[1] in found[0][1:]
    return name == flag
