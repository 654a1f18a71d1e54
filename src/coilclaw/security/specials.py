"""Programs whose words follow a grammar of their own; a rule names the one it needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.awk_programs import check_awk
from coilclaw.security.commandline import read_line
from coilclaw.security.findcommands import check_find
from coilclaw.security.sedscripts import check_sed
from coilclaw.security.shellscript import Word
from coilclaw.security.wordpaths import check_write, matches, spellings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coilclaw.security.commandclass import Classed
    from coilclaw.security.commandrule import Rule
    from coilclaw.security.wordpaths import Scene

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
    role = "path" if operator in _PAIR_TESTS else "text"
    found = []
    for word in (left, right):
        if role == "path":
            found += rule.check_word(word, "path", scene, literal=True)
        else:
            found += rule.check_word(word, "text", scene, literal=True)
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
    if not _is_directory(target.text, scene):
        return [*found, *rule.check_word(target, "write", scene, literal=True)]
    for source in sources:
        for text in spellings(source) if source.text is not None else ():
            name = text.rstrip("/").rpartition("/")[2]
            if name in {"", ".", ".."} or matches(name, ".git"):
                found.append(rule.against(f"what {source.raw!r} holds is not named"))
            found += check_write(f"{target.text.rstrip('/') or '/'}/{name}", scene)
    return found


def _is_directory(path: str, scene: Scene) -> bool:
    return (
        path.endswith("/")
        or path.rpartition("/")[2] in {".", ".."}
        or any(place.kind == "directory" for place in scene.places(path))
    )


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
        words = [*_unbundled(first, words[1:])]
    line = read_line(words, rule.table)
    found = rule.check_line(line, scene)
    if any(":" in (value.text or ":") for value in line.values("-f", "--file")):
        found.append(rule.against("an archive of another machine, or of no known name"))
    return found


def _unbundled(letters: str, rest: Sequence[Word]) -> Iterator[Word]:
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
