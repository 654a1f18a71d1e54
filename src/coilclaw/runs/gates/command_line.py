"""``ForbiddenAction``: something that no command may do, as words and never as a part of a text."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from unicodedata import category

from coilclaw.kernel import quote_text
from coilclaw.runs.gates.result import Violation
from coilclaw.runs.gates.scope import ENV_EXAMPLE, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MAX_COMMAND: Final = 8192
"""Characters."""
MAX_ARGUMENTS: Final = 512
_META: Final = frozenset(";|&<>()$`*?[]{}~!#")
_ACTING_IN_DOUBLE_QUOTES: Final = frozenset("$`")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class ContractCommand:
    """What a text says; the argv is empty where something is against it."""

    argv: tuple[str, ...]
    violations: tuple[Violation, ...] = ()


def parse_command(text: str) -> ContractCommand:
    """Read a command; whatever a shell would make more of than an argv is a violation.

    A POSIX shell reads every accepted text as the same words.
    """
    if len(text) > MAX_COMMAND:
        return _make_refusal("tool.length", f"the command is longer than {MAX_COMMAND} characters")
    # A blank other than the plain one is a part of a word, and looks as if it were not.
    hidden = {char for char in text if category(char) in _HIDDEN or char.isspace()} - {" "}
    found = [
        Violation("tool.character", f"the command holds the character U+{ord(char):04X}")
        for char in sorted(hidden)
    ]
    if found:
        return ContractCommand((), tuple(found))
    found = [*_metacharacters(text)]
    try:
        argv = tuple(shlex.split(text))
    except ValueError:
        found.append(Violation("tool.quotes", "a quote or an escape is not ended"))
        argv = ()
    if found:
        return ContractCommand((), tuple(found))
    if not argv or not argv[0]:
        return _make_refusal("tool.empty", "the command is empty")
    if len(argv) > MAX_ARGUMENTS:
        return _make_refusal("tool.length", f"the command has more than {MAX_ARGUMENTS} words")
    if _ASSIGNMENT.match(argv[0]):
        return _make_refusal(
            "tool.assignment", f"{quote_text(argv[0])} sets a variable for the command"
        )
    return ContractCommand(argv)


def _make_refusal(rule: str, message: str) -> ContractCommand:
    return ContractCommand((), (Violation(rule, message),))


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


_VERBS: Final = frozenset(
    {"change", "changing", "edit", "editing", "modify", "modifying", "touch", "touching"}
    | {"write", "writing"}
)
_SPLIT: Final = re.compile(r"[=:,]")
_LONG: Final = {
    "rm": {"--recursive": "r", "--force": "f", "--dir": "d", "-R": "r"},
    "chmod": {"--recursive": "R"},
    "chown": {"--recursive": "R"},
    "git": {"--force": "f", "--hard": "--hard", "--delete": "d"},
}


@dataclass(frozen=True, slots=True)
class ForbiddenAction:
    """Either a command, as the words and options it starts with, or a path."""

    text: str
    words: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()
    path: str = ""

    @classmethod
    def of(cls, text: str) -> ForbiddenAction | None:
        """Read ``rm -rf``, ``git push``, ``.env`` or ``editing .env``; ``None``: unreadable."""
        argv = parse_command(text.strip()).argv
        if len(argv) > 1 and argv[0].lower() in _VERBS and _is_path(argv[-1]):
            argv = argv[-1:]
        if not argv:
            return None
        if len(argv) == 1 and _is_path(argv[0]):
            return cls(text, path=argv[0].removeprefix("./").rstrip("/"))
        return cls(text, tuple(_words(argv)), frozenset(_flags(argv)))

    def matches(self, argv: tuple[str, ...]) -> bool:
        if self.path:
            return any(_names(word, self.path) for word in argv)
        name = argv[0].rpartition("/")[2]
        if name != self.words[0] or not self.flags <= frozenset(_flags(argv)):
            return False
        rest, wanted = [*_words(argv)][1:], self.words[1:]
        if tuple(rest[: len(wanted)]) == wanted:
            return True
        # Options before the subcommand may have values that look like words.
        return len(argv) > 1 and argv[1].startswith("-") and _in_order(wanted, rest)


def forbidden_paths(actions: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that some actions forbid to change."""
    read = (ForbiddenAction.of(text) for text in actions)
    return tuple(action.path for action in read if action is not None and action.path)


def _is_path(word: str) -> bool:
    return not word.startswith("-") and (word.startswith(".") or "/" in word.removeprefix("./"))


def _words(argv: tuple[str, ...]) -> Iterator[str]:
    return (word for word in argv if not word.startswith("-"))


def _flags(argv: tuple[str, ...]) -> Iterator[str]:
    """Options by their meaning: bundled letters apart, long names by the letter they stand for."""
    same = _LONG.get(argv[0].rpartition("/")[2], {})
    for word in argv[1:]:
        if word in {"-", "--"} or not word.startswith("-"):
            continue
        name = word.partition("=")[0]
        if name.startswith("--"):
            whole = [full for full in same if full.startswith(name)]
            yield same[whole[0]] if len(whole) == 1 else name
        else:
            for letter in name[1:]:
                yield same.get(f"-{letter}", letter)


def _in_order(wanted: tuple[str, ...], words: list[str]) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)


def _names(word: str, path: str) -> bool:
    """Whether a word, or what stands after ``=``, ``:`` or ``,`` in it, is or leads to a path."""
    wanted = path.split("/")
    for piece in (word, *_SPLIT.split(word)):
        parts = piece.rstrip("/").split("/")
        for at in range(len(parts) - len(wanted) + 1):
            if all(map(_same_name, parts[at : at + len(wanted)], wanted)):
                return True
    return False


def _same_name(part: str, name: str) -> bool:
    if name == ".env":
        return folded(part).startswith(name) and part != ENV_EXAMPLE
    return folded(part) == folded(name)
