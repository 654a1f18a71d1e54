"""``find``: its expression, word by word. What it can run or write is never harmless."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.security.wordpaths import check_mentions, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.commandclass import Classed
    from coilclaw.security.commandrule import Rule
    from coilclaw.security.shellscript import Word
    from coilclaw.security.wordpaths import Scene

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
            if self.expression[index].text in RUNNERS:
                inner: list[Word] = []
                index += 1
                while index < len(self.expression) and not self._ends(inner, index):
                    inner.append(self.expression[index])
                    index += 1
                found.append(tuple(inner))
            index += 1
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
        found += rule.check_word(_here(), "path", scene, literal=True)
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


def _here() -> Word:
    from coilclaw.security.shellscript import Word as Written

    return Written(raw=".", text=".")
