"""A command as text, read into an argv: quotes only, nothing that a shell would act on."""

from __future__ import annotations

import re
import shlex
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_COMMAND: Final = 8192
"""Characters."""
MAX_ARGUMENTS: Final = 512
_META: Final = frozenset(";|&<>()$`*?[]{}~!#")
_ACTING_IN_DOUBLE_QUOTES: Final = frozenset("$`")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a text says; the argv is empty where something is against it."""

    argv: tuple[str, ...]
    violations: tuple[Violation, ...] = ()


def parse(text: str) -> CommandLine:
    """Read a command; whatever a shell would make more of than an argv is a violation.

    A POSIX shell reads every accepted text as the same words.
    """
    if len(text) > MAX_COMMAND:
        return _refused("tool.length", f"the command is longer than {MAX_COMMAND} characters")
    found = [*_characters(text)]
    if found:
        return CommandLine((), tuple(found))
    found = [*_metacharacters(text)]
    try:
        argv = tuple(shlex.split(text))
    except ValueError:
        found.append(Violation("tool.quotes", "a quote or an escape is not ended"))
        argv = ()
    if found:
        return CommandLine((), tuple(found))
    if not argv or not argv[0]:
        return _refused("tool.empty", "there is no command")
    if len(argv) > MAX_ARGUMENTS:
        return _refused("tool.length", f"the command has more than {MAX_ARGUMENTS} words")
    if _ASSIGNMENT.match(argv[0]):
        return _refused("tool.assignment", f"{shown(argv[0])} sets a variable for the command")
    return CommandLine(argv)


def _refused(rule: str, message: str) -> CommandLine:
    return CommandLine((), (Violation(rule, message),))


def _characters(text: str) -> Iterator[Violation]:
    hidden = {char for char in text if char != " " and _is_hidden(char)}
    for char in sorted(hidden):
        yield Violation("tool.character", f"the command holds the character U+{ord(char):04X}")


def _is_hidden(char: str) -> bool:
    # A blank other than the plain one is a part of a word, and looks as if it were not.
    return unicodedata.category(char) in _HIDDEN or (char != " " and char.isspace())


def _metacharacters(text: str) -> Iterator[Violation]:
    seen: set[str] = set()
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
            continue
        elif char in "'\"" and quote in {"", char}:
            quote = "" if quote else char
            continue
        elif not quote and char in _META:
            seen.add(char)
        if quote == '"' and char in _ACTING_IN_DOUBLE_QUOTES:
            seen.add(char)
    for char in sorted(seen):
        yield Violation("tool.metacharacter", f"a shell would act on {char!r}")
