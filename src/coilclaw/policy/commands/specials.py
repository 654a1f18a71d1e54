"""Programs whose words follow a grammar of their own; a rule names the one it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.options import read_line
from coilclaw.policy.commands.stream_editors import check_awk, check_sed
from coilclaw.policy.commands.word_paths import check_mentions, check_write, matches, spellings
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coilclaw.policy.commands.command_class import Classed
    from coilclaw.policy.commands.options import Role
    from coilclaw.policy.commands.rule import Rule
    from coilclaw.policy.commands.word_paths import Scene

_FILE_TESTS: Final = frozenset("-" + letter for letter in "abcdefghkprstuwxGLNOS")
_STRING_TESTS: Final = frozenset({"-n", "-z"})
_PAIR_TESTS: Final = frozenset({"-nt", "-ot", "-ef"})
_NUMBER_TESTS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_EQUAL_TESTS: Final = frozenset({"=", "==", "!=", "<", ">"})
_JOINTS: Final = frozenset({"!", "(", ")", "-a", "-o", "&&", "||", "]", "]]"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_OUTSIDE_FILTER: Final = re.compile(
    r"\b(?:import|include)\s+\"|\$ENV\b|\$__prog|(?<![.\w\"])(?:env|input_filename|get_search_list)\b"
)
_BUNDLED_VALUES: Final = frozenset("bfgCFHIKLNTVX")
_ASSIGNING: Final = re.compile(r"%[^%A-Za-z]*n")


def check_test(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``test`` and its brackets: nothing that is evaluated once more, as ``-v`` and ``=~`` are."""
    found = []
    index = 0
    while index < len(words):
        text = words[index].text
        following = words[index + 1] if index + 1 < len(words) else None
        second = words[index + 2] if index + 2 < len(words) else None
        operator = following.text if following is not None else None
        opens = index == 0 or words[index - 1].text in {"!", "(", "-a", "-o", "&&", "||"}
        if second is not None and operator in _PAIR_TESTS | _NUMBER_TESTS | _EQUAL_TESTS:
            found += _check_pair(rule, words[index], operator or "", second, scene)
            index += 3
        elif text in _FILE_TESTS and following is not None and (text != "-a" or opens):
            found += rule.check_word(following, "path", scene, literal=True)
            index += 2
        elif text in _STRING_TESTS and following is not None:
            found += rule.check_word(following, "text", scene, literal=True)
            index += 2
        elif text in _JOINTS:
            index += 1
        elif text is not None and text.startswith("-"):
            found.append(rule.against(f"{text} is not in the table"))
            index += 1
        else:
            found += rule.check_word(words[index], "text", scene, literal=True)
            index += 1
    return found


def _check_pair(rule: Rule, left: Word, operator: str, right: Word, scene: Scene) -> list[Classed]:
    role: Role = "path" if operator in _PAIR_TESTS else "text"
    found = []
    for word in (left, right):
        found += rule.check_word(word, role, scene, literal=True)
        if operator in _NUMBER_TESTS and not _INTEGER.fullmatch(word.text or ""):
            found.append(rule.against(f"{word.raw!r} is not a number; it would be evaluated"))
    return found


def check_echo(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``echo``: every word is text, whatever it looks like."""
    return [each for word in words for each in rule.check_word(word, "text", scene, literal=True)]


def check_printf(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``printf`` only prints, unless its format assigns."""
    line = read_line(words, rule.table, stop=True)
    found = rule.check_line(line, scene)
    form = line.operands[0].word.text if line.operands else ""
    if form is None or _ASSIGNING.search(form.replace("%%", "")):
        found.append(rule.against("its format may assign a variable"))
    return found


def check_copy(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``cp`` and ``mv``: what lands in a directory is written there under its own name."""
    line = read_line(words, rule.table)
    found = [rule.against(problem) for problem in line.problems]
    into = line.values("-t", "--target-directory")
    if len(line.operands) + len(into) < 2:
        return [*found, rule.against("it needs a source and a target")]
    operands = line.operands if into else line.operands[:-1]
    sources = [operand.word for operand in operands]
    source_role = rule.roles.rest or "path"
    for operand in operands:
        found += rule.check_word(operand.word, source_role, scene, literal=operand.literal)
    for target in into or (line.operands[-1].word,):
        found += _check_target(rule, target, sources, scene)
    return found


def _check_target(rule: Rule, target: Word, sources: Sequence[Word], scene: Scene) -> list[Classed]:
    found: list[Classed] = []
    if target.text is None or target.globs:
        return [*found, rule.against(f"where {target.raw!r} leads is known only when it runs")]
    if not (
        target.text.endswith("/")
        or target.text.rpartition("/")[2] in {".", ".."}
        or any(place.kind == "directory" for place in scene.places(target.text))
    ):
        return [*found, *rule.check_word(target, "write", scene, literal=True)]
    for source in sources:
        for text in spellings(source) if source.text is not None else ():
            name = text.rstrip("/").rpartition("/")[2]
            if name in {"", ".", ".."} or matches(name, ".git"):
                found.append(rule.against(f"what {source.raw!r} holds is not named"))
            found += check_write(f"{target.text.rstrip('/') or '/'}/{name}", scene)
    return found


def check_jq(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``jq``: a filter that neither takes in other files nor shows the environment."""
    line = read_line(words, rule.table)
    found = rule.check_line(line, scene)
    program = line.operands[0].word.text if line.operands else ""
    if program is not None and _OUTSIDE_FILTER.search(program):
        found.append(rule.against("its filter reads more than its input"))
    return found


def check_tar(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``tar``: also with its first word as a bundle; ``host:file`` would be fetched."""
    first = words[0].text if words else None
    if first is not None and first.isalpha():
        words = [*_unbundle_letters(first, words[1:])]
    line = read_line(words, rule.table)
    found = rule.check_line(line, scene)
    if any(":" in (value.text or ":") for value in line.values("-f", "--file")):
        found.append(rule.against("an archive of another machine, or of no known name"))
    return found


def _unbundle_letters(letters: str, rest: Sequence[Word]) -> Iterator[Word]:
    """Spell a bundle out: its values are the next words, in the order of the letters."""
    values = iter(rest)
    for letter in letters:
        yield Word(f"-{letter}", f"-{letter}")
        if letter in _BUNDLED_VALUES and (value := next(values, None)) is not None:
            yield value
    yield from values


def check_strings(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``strings``: a word with ``@`` before it names a file of further words."""
    found = rule.check_line(read_line(words, rule.table), scene)
    if any((word.text or "").startswith("@") for word in words):
        found.append(rule.against("'@' names a file of further words"))
    return found


def check_cd(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """``cd`` to a directory that is named; ``-`` is one that only the shell knows."""
    line = read_line(words, rule.table)
    found = rule.check_line(line, scene)
    if any(operand.word.text == "-" for operand in line.operands):
        found.append(rule.against("where '-' leads is known only when it runs"))
    return found


RUNNERS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
WRITERS: Final = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_REFUSED: Final = RUNNERS | WRITERS | {"-files0-from", "-follow", "-L", "-D"}
_PATHS: Final = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_VALUES: Final = _PATHS | {
    *("-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex"),
    *("-lname", "-ilname", "-type", "-xtype", "-size", "-perm", "-user", "-group", "-uid", "-gid"),
    *("-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-maxdepth", "-mindepth"),
    *("-inum", "-links", "-used", "-fstype", "-context", "-newermt", "-newerat", "-newerct"),
    *("-regextype", "-printf"),
}
_PLAIN: Final = frozenset(
    {
        *("-print", "-print0", "-ls", "-prune", "-quit", "-empty", "-depth", "-d", "-xdev"),
        *("-mount", "-true", "-false", "-not", "-and", "-or", "-a", "-o", "-executable"),
        *("-readable", "-writable", "-nouser", "-nogroup", "-daystart", "-noleaf", "-warn"),
        *("-nowarn", "-ignore_readdir_race", "-noignore_readdir_race", "(", ")", "!", ","),
    }
)


@dataclass(frozen=True, slots=True)
class FindCommand:
    """The words of a ``find``: where it starts, and the commands that it runs."""

    starts: tuple[Word, ...]
    expression: tuple[Word, ...]

    @classmethod
    def read(cls, words: Sequence[Word]) -> FindCommand:
        index = 0
        while index < len(words) and words[index].text in {"-H", "-L", "-P", "-D", "-O"}:
            index += 1
        first = index
        while index < len(words) and not _starts_expression(words[index]):
            index += 1
        return cls(tuple(words[first:index]), (*words[:first], *words[index:]))

    def runs(self) -> tuple[tuple[Word, ...], ...]:
        """Return the words of every command that an action starts."""
        found = []
        index = 0
        while index < len(self.expression):
            index += 1
            if self.expression[index - 1].text in RUNNERS:
                begin, index = index, self.after_command(index)
                found.append(self.expression[begin : index - 1])
        return tuple(found)

    def after_command(self, index: int) -> int:
        """Return the place behind the command that begins at a place of the expression."""
        first = index
        while index < len(self.expression) and not self._ends(self.expression[first:index], index):
            index += 1
        return index + 1

    def _ends(self, inner: Sequence[Word], index: int) -> bool:
        text = self.expression[index].text
        return text == ";" or (text == "+" and bool(inner) and inner[-1].text == "{}")


def check_find(rule: Rule, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """Say what speaks against a ``find`` that only looks."""
    command = FindCommand.read(words)
    found = []
    for start in command.starts or ():
        found += rule.check_word(start, "path", scene, literal=False)
    if not command.starts:
        found += rule.check_word(Word(".", "."), "path", scene, literal=True)
    expression = command.expression
    index = 0
    while index < len(expression):
        word = expression[index]
        index += 1
        if word.text in {"-H", "-P"} or word.text in _PLAIN:
            continue
        if word.text in _VALUES and index < len(expression):
            found += _check_value(rule, word.text or "", expression[index], scene)
            index += 1
            continue
        if word.text in {"-exec", "-execdir"}:
            # Each of these commands is judged by itself.
            index = command.after_command(index)
            continue
        found.append(rule.against(_objection(word)))
        found += check_mentions(word, scene)
    return found


def _check_value(rule: Rule, test: str, value: Word, scene: Scene) -> list[Classed]:
    if value.text is None and test not in _PATHS:
        return rule.check_word(value, "text", scene, literal=True)
    if value.text is None:
        return [rule.against(f"what {value.raw!r} becomes is known only when it runs")]
    if value.globs and any(matches(value.text, action) for action in _REFUSED):
        return [rule.against(f"the unquoted pattern {value.raw!r} may become an action")]
    if test in _PATHS:
        return rule.check_word(value, "path", scene, literal=True)
    return []


def _objection(word: Word) -> str:
    if word.text in RUNNERS:
        return f"{word.text} runs a program"
    if word.text in WRITERS:
        return f"{word.text} changes files"
    return f"{word.raw!r} is not in the table"


def _starts_expression(word: Word) -> bool:
    return word.text in {"(", ")", "!", ","} or (word.text or "").startswith("-")


SPECIALS: Final[Mapping[str, Callable[[Rule, Sequence[Word], Scene], list[Classed]]]] = {
    "awk": check_awk,
    "cd": check_cd,
    "copy": check_copy,
    "echo": check_echo,
    "find": check_find,
    "jq": check_jq,
    "printf": check_printf,
    "sed": check_sed,
    "strings": check_strings,
    "tar": check_tar,
    "test": check_test,
}
