"""``Rule``: one entry of the policy file about commands, and whether a command keeps to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.policy.commands.carriers import is_stream
from coilclaw.policy.commands.command_class import other
from coilclaw.policy.commands.options import read_line
from coilclaw.policy.commands.word_paths import (
    STREAMS,
    check_mentions,
    check_pattern,
    check_read,
    check_revision,
    check_write,
    matches,
    pattern_problem,
    spellings,
)
from coilclaw.policy.settings import USUAL, SecretFiles
from coilclaw.policy.shell.expansions import is_explained, may_be_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.policy.commands.command_class import Classed
    from coilclaw.policy.commands.options import CommandLine, Operand, OptionTable, Role
    from coilclaw.policy.commands.word_paths import Scene
    from coilclaw.policy.shell.script import Word


RuleClass: TypeAlias = Literal["harmless", "allow"]

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?[A-Za-z]{0,3}")
_SIGNATURES: Final = re.compile(r"%[-+ ]?G|%[<>|(]+[^)]*\)%?[-+ ]?G|%\(\*?signature")
_PARAMETERS: Final = re.compile(
    r"(?:[^$`<>\\]|\$[?#$]|\$PWD\b|\$\{PWD\}|\$\(\([0-9 +*/%()-]*\)\))*"
)
_HERE: Final = re.compile(r"(\"?)\$(?:PWD|\{PWD\})((?:/[\w.-]+)*)/?\1")
_PLAIN: Final = re.compile(r"[\w./-]+")
_SUBSTITUTION: Final = re.compile(r"<\([^()\"'\\]*\)")


def _objection(text: str, role: Role) -> str | None:
    """Say why a text cannot have a role, by its form alone."""
    if role == "number" and not _NUMBER.fullmatch(text):
        return "is not a number"
    if role == "format" and not text.startswith("+"):
        return "is not a format; it sets something"
    if role == "pretty" and _SIGNATURES.search(text):
        return "asks for signatures, which another program checks"
    if role == "name" and ("=" in text or text.startswith("@")):
        return "is more than a name"
    if role == "write" and any(matches(name, ".git") for name in text.split("/")):
        return "also means '.git'"
    return None


@dataclass(frozen=True, slots=True)
class Roles:
    """What the operands are, in order; ``rest`` is for as many as stand between the others."""

    first: tuple[Role, ...] = ()
    rest: Role | None = None
    last: tuple[Role, ...] = ()

    def assign(self, operands: Sequence[Operand], skip: int) -> list[tuple[Operand, Role | None]]:
        """Give every operand its role; one too many has none. ``skip`` roles are already taken."""
        first = self.first[skip:]
        ends = len(operands) - len(self.last)
        assigned: list[tuple[Operand, Role | None]] = []
        for index, operand in enumerate(operands):
            if index >= max(ends, len(first)) and self.last:
                assigned.append((operand, self.last[min(index - ends, len(self.last) - 1)]))
            else:
                role = first[index] if index < len(first) else self.rest
                assigned.append((operand, role))
        return assigned


@dataclass(frozen=True, slots=True)
class Rule:
    """A program, the options it may have, and what its operands are."""

    id: str
    cls: RuleClass
    commands: tuple[tuple[str, ...], ...]
    """Names with their subcommands, each as words."""
    table: OptionTable
    roles: Roles
    instead: tuple[str, ...] = ()
    """Options that take the place of the first operand."""
    needs: tuple[str, ...] = ()
    """Options of which one must be there."""
    least: int = 0
    """How many operands there must be."""
    special: str | None = None
    tree: bool = False
    """Whether it walks the directories it is given, or the current one."""
    any_option: bool = False
    """Whether no option of the program can do harm, so that a pattern may become one."""
    first_ends: bool = False
    """Whether the first operand ends the options."""
    network: bool = False
    reason: str = ""

    def check(self, words: Sequence[Word], scene: Scene) -> list[Classed]:
        """Say everything that speaks against this rule permitting the words after the name."""
        if self.special is not None:
            from coilclaw.policy.commands.specials import SPECIALS

            return SPECIALS[self.special](self, words, scene)
        return self.check_line(read_line(words, self.table, stop=self.first_ends), scene)

    def check_line(self, line: CommandLine, scene: Scene) -> list[Classed]:
        """Likewise, for words that have been told apart."""
        found = [self.against(problem) for problem in line.problems]
        if self.needs and not line.has(*self.needs):
            found.append(self.against(f"it needs {' or '.join(self.needs)}"))
        if len(line.operands) < self.least:
            found.append(self.against("it lacks an operand"))
        for given in line.given:
            if given.value is not None and given.option.role is not None:
                found += self.check_word(given.value, given.option.role, scene, literal=True)
        read = False
        for operand, role in self.roles.assign(line.operands, 1 if line.has(*self.instead) else 0):
            if role is None:
                found.append(self.against(f"{operand.word.raw!r} is one operand too many"))
                found += check_mentions(operand.word, scene)
                continue
            read = read or role in {"path", "write"}
            if operand.word.globs and role != "text" and self.roles.rest is None:
                found.append(self.against(f"{operand.word.raw!r} may become several operands"))
            found += self.check_word(operand.word, role, scene, literal=operand.literal)
        if self.tree and not read:
            found += check_read(".", scene, tree=True)
        return found

    def check_word(self, word: Word, role: Role, scene: Scene, *, literal: bool) -> list[Classed]:
        """Check one word in its role."""
        if word.text is None:
            return list(self._check_unknown(word, role, scene, literal=literal))
        found = []
        problem = pattern_problem(word, literal=literal, any_option=self.any_option)
        if problem is not None:
            found.append(self.against(problem))
        found += check_pattern(word, scene)
        objection = _objection(word.text, role)
        if objection is not None:
            found.append(self.against(f"{word.raw!r} {objection}"))
        match role:
            case "name" | "argument":
                found += check_mentions(word, scene)
            case "revision":
                found += check_revision(word, scene)
            case "path":
                if self.cls == "allow" and is_stream(word):
                    found.append(self.against(f"{word.raw!r} is not a file of the workspace"))
                for text in spellings(word):
                    found += check_read(text, scene, tree=self.tree)
            case "write" if word.text not in STREAMS:
                for text in spellings(word):
                    found += check_write(text, scene)
        return found

    def _check_unknown(
        self, word: Word, role: Role, scene: Scene, *, literal: bool
    ) -> Iterator[Classed]:
        if role == "text" and _PARAMETERS.fullmatch(word.raw):
            return
        if role == "path" and self.cls == "harmless" and _SUBSTITUTION.fullmatch(word.raw):
            return
        if self._permits_expansion(word, scene, literal=literal):
            # The sandbox of a harmless command shows nothing but the workspace.
            yield from check_mentions(word, scene)
            return
        here = _HERE.fullmatch(word.raw)
        # Without quotes a directory's name with a blank or a star in it becomes other words.
        if here and role == "path" and (here[1] or _PLAIN.fullmatch(scene.settings.workspace)):
            yield from check_read(f".{here[2]}", scene, tree=self.tree)
            return
        yield self.against(f"what {word.raw!r} becomes is known only when it runs")
        yield from check_mentions(word, scene)

    def _permits_expansion(self, word: Word, scene: Scene, *, literal: bool) -> bool:
        """Whether a word comes from harmless commands of the same line, and stays what it is."""
        if self.cls != "harmless" or not is_explained(word, scene.variables):
            return False
        quoted = word.raw.startswith('"') and word.raw.endswith('"')
        fixed = self.any_option or (literal and quoted)
        return fixed or not may_be_option(word, scene.variables)

    def against(self, problem: str) -> Classed:
        return other("command.other", f"{self.id} does not permit it: {problem}")


SHORTEST_ABBREVIATION = 4


@dataclass(frozen=True, slots=True)
class DenyRule:
    """A program with words that must all stand behind it; any of the lists is enough."""

    id: str
    reason: str
    commands: tuple[tuple[str, ...], ...] = ()
    """Each a program and the words that make it denied: ``git push --force``."""

    def denies(self, argv: Sequence[str]) -> bool:
        """Whether the rule covers a command; flags count in clusters and abbreviated, too."""
        return any(
            argv[:1] == command[:1] and all(_has(argv[1:], word) for word in command[1:])
            for command in (list(each) for each in self.commands)
        )


def _has(argv: Sequence[str], wanted: str) -> bool:
    if wanted.startswith("--"):
        return any(
            (name := word.partition("=")[0]) == wanted
            or (len(name) >= SHORTEST_ABBREVIATION and wanted.startswith(name))
            for word in argv
        )
    if wanted.startswith("-") and len(wanted) == 2:
        return any(
            word.startswith("-") and not word.startswith("--") and wanted[1] in word
            for word in argv
        )
    return wanted in argv


@dataclass(frozen=True, slots=True)
class Examples:
    """The commands that a rule must match and must not."""

    rule: str
    match: tuple[str, ...]
    no_match: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """One example with what was expected of it and what came."""

    rule: str
    example: str
    expected: bool
    """Whether the rule must match."""
    came: str
    """The rule that the judge named."""
    holds: bool


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a file; the tables are looked up by the program's name."""

    harmless: Mapping[str, tuple[Rule, ...]]
    allow: Mapping[str, tuple[Rule, ...]]
    deny: tuple[DenyRule, ...]
    examples: tuple[Examples, ...]
    contained: bool = False
    """Whether the file holds the rule ``allow.contained``."""
    secrets: SecretFiles = USUAL
