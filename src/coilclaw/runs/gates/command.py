"""The tool gate: whether the orchestrator may run a command for a contract.

Words are compared with words, never with parts of them. An allowlist has to name the command, and
what is known about programs (``commandtable``) holds whatever the allowlist says.

``tool.allowlist`` there is none · ``tool.not_allowed`` no rule names the command ·
``tool.flag`` an option that a rule forbids, or that is not known where all have to be ·
``tool.argument_file`` a word that stands for the words of a file · ``tool.wrapper`` a program that
runs another, or a launcher that is given none · ``tool.interactive`` ·
``tool.inline_code`` an interpreter that is given code · ``tool.script`` a script that is not a file
of the tree · ``tool.shadowed`` a file of the tree in the place of a tool · ``tool.program_path`` a
program given by a path that is not a file of the tree · ``tool.path`` a word that leads out of the
tree, or a place to work in that is not in it · ``tool.network`` · ``tool.forbidden_action`` ·
``tool.forbidden_action_unreadable`` · ``tool.timeout``; and those of ``commandline``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import PathRefused, TreePath, quote_text
from coilclaw.policy import (
    FORBIDDEN_FLAGS,
    INTERACTIVE,
    NETWORK_COMMANDS,
    NETWORK_LAUNCHERS,
    NETWORK_PROGRAMS,
    PLAIN_AT_SIGN,
    TOOL_MODULES,
    WRAPPERS,
    interpreter,
    is_label,
    is_offline,
    read_launched,
    read_placed,
    refused_words,
    runner,
)
from coilclaw.runs.gates.command_line import ForbiddenAction, parse_command
from coilclaw.runs.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.policy import Interpreter, PlacedCommand
    from coilclaw.runs.contracts.policy_files import CommandRule

NAME: Final = "tool_gate"
MAX_TIMEOUT_S: Final = 86_400
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)|[\w.-]+@[\w.-]+:(?!:)")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])(?!file:)[A-Za-z][A-Za-z0-9+.-]*://.*")
_LOOPBACK: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_ATTACHED: Final = re.compile(r"-[A-Za-z]+(?=[/~]|\.\.?/)")
_PIECES: Final = re.compile(r"[=,]|::|:(?!\\)")
_CLUSTER: Final = re.compile(r"-[A-Za-z0-9]+")
# Programs whose options are words after one dash, so that letters are never bundled.
_WORD_OPTIONS: Final = frozenset(
    {"bun", "cmake", "ctest", "deno", "dotnet", "go", "gradle", "gradlew", "java", "mvn", "mvnw"}
    | {"node"}
)


@dataclass(frozen=True, slots=True)
class CommandTerms:
    """What commands of a run are judged by."""

    rules: tuple[CommandRule, ...]
    """Those of the kinds that the policy pack lets run."""
    forbidden_actions: tuple[str, ...]
    is_file: Callable[[str], bool]
    """Whether a path is a regular file of the tree; it is asked about relative paths only."""
    is_directory: Callable[[str], bool] = lambda _: False
    """Whether a relative path is a directory of the tree, or can become one."""
    network: bool = False
    """Whether the contract allows the network, or an approval does."""


def judge_argv(
    argv: tuple[str, ...], *, terms: CommandTerms, timeout_sec: float | None
) -> GateResult:
    """Judge a command as the words it consists of."""
    if not argv or not argv[0]:
        found = [Violation("tool.empty", "the command is empty")]
    else:
        found = [*_of_command(argv, terms), *_of_words(argv)]
        if timeout_sec is None or not 0 < timeout_sec <= MAX_TIMEOUT_S:
            limit = f"a command has to end in 0 to {MAX_TIMEOUT_S} seconds"
            found.append(Violation("tool.timeout", limit))
    return _result(argv, tuple(found))


def judge_text(text: str, *, terms: CommandTerms, timeout_sec: float | None) -> GateResult:
    """Judge a command as written."""
    line = parse_command(text)
    if line.violations:
        return _result((), line.violations)
    return judge_argv(line.argv, terms=terms, timeout_sec=timeout_sec)


def _result(argv: tuple[str, ...], violations: tuple[Violation, ...]) -> GateResult:
    return GateResult(NAME, violations, {"argv": [*argv]})


def _blame(rule: str, text: str, *words: str, path: str = "") -> Violation:
    """Return a violation; the words are quoted where the text has braces."""
    return Violation(rule, text.format(*map(quote_text, words)), path)


def _of_command(
    argv: tuple[str, ...], terms: CommandTerms, *, named: bool = False
) -> Iterator[Violation]:
    """Judge a program with its arguments, and the one that it launches like any other.

    ``named``: the rule for the launcher names the program as well.
    """
    placed = read_placed(argv)
    misplaced = [*_of_place(placed, terms)]
    yield from misplaced
    whole, argv = argv, argv if misplaced else placed.argv
    yield from _of_allowlist(argv, terms, placed.options, named=named)
    yield from _of_program(argv, terms)
    yield from _of_actions(argv, terms, whole)
    launched = read_launched(argv)
    if launched is None:
        return
    if launched.refused:
        yield _blame("tool.flag", "{} is not run with {}", launched.launcher, launched.refused)
    elif not launched.argv:
        yield Violation("tool.wrapper", f"{quote_text(launched.launcher)} is given no program")
    else:
        reach = _measure_reach(_fitting_rules(terms.rules, argv), argv)
        yield from _of_command(launched.argv, terms, named=reach >= launched.at)


def _of_place(placed: PlacedCommand, terms: CommandTerms) -> Iterator[Violation]:
    """Where a command is to work has to be in the tree, and no link."""
    directory, file = placed.directory, placed.file
    if placed.repeated:
        yield Violation("tool.path", f"{quote_text(placed.repeated)} is there twice")
    if directory is not None:
        directory = directory.rstrip("/") or directory
        if directory != "." and not (_in_tree(directory) and terms.is_directory(_plain(directory))):
            yield Violation("tool.path", f"{quote_text(directory)} is not a directory of the tree")
        elif read_launched(placed.argv) is not None:
            yield Violation("tool.path", f"{quote_text(placed.argv[0])} launches nothing elsewhere")
    if file is not None:
        below = "" if directory in {None, "."} else f"{directory}/"
        if not _in_tree(file) or not _is_of_tree(f"{below}{_plain(file)}", terms):
            yield Violation("tool.path", f"{quote_text(below + file)} is not a file of the tree")


def _of_allowlist(
    argv: tuple[str, ...], terms: CommandTerms, placing: tuple[str, ...], *, named: bool
) -> Iterator[Violation]:
    """``placing`` are the options that say where it works, which a rule may forbid as well."""
    if not terms.rules:
        yield Violation("tool.allowlist", "the policies have no command allowlist")
    fitting = _fitting_rules(terms.rules, argv)
    if not fitting and not named:
        yield Violation("tool.not_allowed", f"no rule of the allowlist names {_show_argv(argv)}")
    flags = {flag for rule in fitting for flag in rule.forbidden_flags}
    used = _used_flags(argv, flags | set(_known_flags(argv)))
    for word in dict.fromkeys((*used, *_used_flags((argv[0], *placing), flags))):
        yield _blame("tool.flag", "the option {} is forbidden for {}", word, argv[0])
    if read_launched(argv) is None:
        for word in refused_words(argv):
            yield _blame("tool.flag", "{} is not known for {}", word, argv[0])
    if argv[0].rpartition("/")[2] not in PLAIN_AT_SIGN:
        # What such a file says is not judged, and may change until the command runs.
        for word in argv[1 + _measure_reach(fitting, argv) :]:
            if word.startswith("@"):
                yield _blame("tool.argument_file", "{} may be a file of arguments", word)


def _measure_reach(fitting: Iterable[CommandRule], argv: tuple[str, ...]) -> int:
    """Return how many of the first words the rules name exactly as they are."""
    prefixes = (prefix for rule in fitting for prefix in rule.prefixes)
    named = (len(prefix) for prefix in prefixes if argv[1 : 1 + len(prefix)] == prefix)
    return max(named, default=0)


def _known_flags(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The options that are forbidden for the program, or for the module that Python runs."""
    name = argv[0].rpartition("/")[2]
    known = interpreter(name)
    if known is not None and known.module:
        call = _call(argv, known)
        return FORBIDDEN_FLAGS.get(call.module, ()) if not call.wrong else ()
    return FORBIDDEN_FLAGS.get(name, ())


def _of_program(argv: tuple[str, ...], terms: CommandTerms) -> Iterator[Violation]:
    name = argv[0].rpartition("/")[2]
    if name in WRAPPERS:
        yield Violation("tool.wrapper", f"{quote_text(name)} runs another program")
    if name in INTERACTIVE:
        yield Violation("tool.interactive", f"{quote_text(name)} talks to a person")
    if "/" in argv[0] and not _is_of_tree(argv[0], terms):
        yield _blame("tool.program_path", "{} is not a program of the tree or of the PATH", argv[0])
    known = interpreter(name)
    if known is not None:
        yield from _of_interpreter(argv, known, terms)
    if not terms.network:
        yield from _of_network(name, argv)


@dataclass(frozen=True, slots=True)
class _Call:
    """How an interpreter is called."""

    module: str = ""
    script: str = ""
    testing: bool = False
    informing: bool = False
    wrong: str = ""


def _call(argv: tuple[str, ...], known: Interpreter) -> _Call:
    testing = informing = False
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            return _Call(script=next(words, ""), testing=testing)
        if not word.startswith("-") or word == "-":
            return _Call(script=word, testing=testing)
        if word.startswith("--"):
            name = word.partition("=")[0]
            if not any(name == w or (w.endswith("-") and name.startswith(w)) for w in known.words):
                return _Call(wrong=word)
            testing = testing or name == known.testing
            informing = informing or name == "--version"
            continue
        for at, letter in enumerate(word[1:], 2):
            if letter == known.module:
                return _Call(module=word[at:] or next(words, ""))
            if letter in known.values:
                if not word[at:]:
                    next(words, "")
                break
            if letter not in known.letters:
                return _Call(wrong=word)
    return _Call(testing=testing, informing=informing)


def _of_interpreter(
    argv: tuple[str, ...], known: Interpreter, terms: CommandTerms
) -> Iterator[Violation]:
    call = _call(argv, known)
    if call.wrong:
        yield _blame("tool.inline_code", "{} may give {} code to run", call.wrong, argv[0])
    elif call.module:
        for path in (f"{call.module}.py", f"{call.module}/__init__.py"):
            if call.module in TOOL_MODULES and terms.is_file(path):
                what = "{} stands in the place of a tool"
                yield _blame("tool.shadowed", what, path, path=path)
    elif call.script == "-" or not (call.script or call.testing or call.informing):
        yield Violation("tool.inline_code", f"{quote_text(argv[0])} would read code from its input")
    elif call.script and not call.testing and not _is_of_tree(call.script, terms):
        yield _blame("tool.script", "{} is not a file of the tree", call.script, path=call.script)


def _is_of_tree(word: str, terms: CommandTerms) -> bool:
    return _in_tree(word) and terms.is_file(_plain(word))


def _of_network(name: str, argv: tuple[str, ...]) -> Iterator[Violation]:
    if name in NETWORK_PROGRAMS or _fetches(argv):
        yield Violation("tool.network", f"{_show_argv(argv)} needs the network")
    for word in argv[1:]:
        for found in _ADDRESS.finditer(word):
            if not (found[1] and _LOOPBACK.fullmatch(found[1])):
                yield Violation("tool.network", f"{quote_text(word)} is an address")
                break


def _fetches(argv: tuple[str, ...]) -> bool:
    """Whether a command is known to fetch or send, unless it launches what is judged by itself."""
    launched = read_launched(argv)
    if launched is not None:
        return bool(launched.refused) and launched.launcher in NETWORK_LAUNCHERS
    name, rest = runner(argv)
    commands = NETWORK_COMMANDS.get(name)
    if commands is None or is_offline(argv):
        return False
    # Options before the subcommand may have values that look like one.
    words = rest if rest[:1] and rest[0].startswith("-") else (*rest[:1], " ".join(rest[:2]))
    return not commands or not commands.isdisjoint(words)


def _of_words(argv: tuple[str, ...]) -> Iterator[Violation]:
    for word in argv[1:]:
        if not is_label(argv, word) and any(_leads_out(piece) for piece in _paths_in(word)):
            yield Violation("tool.path", f"{quote_text(word)} leads out of the tree")
        if "\0" in word or "\n" in word or "\r" in word:
            yield Violation("tool.character", f"{quote_text(word)} holds a control character")


def _paths_in(word: str) -> Iterator[str]:
    attached = _ATTACHED.match(word)
    bare = _URL.sub("", word[attached.end() :] if attached else word)
    yield bare
    yield from _PIECES.split(bare)


def _leads_out(path: str) -> bool:
    leads = path.startswith(("/", "~", "\\")) or ".." in path.split("/")
    return leads and path != "/dev/null"


def _of_actions(
    argv: tuple[str, ...], terms: CommandTerms, whole: tuple[str, ...]
) -> Iterator[Violation]:
    for text in terms.forbidden_actions:
        action = ForbiddenAction.of(text)
        if action is None:
            what = "{} is neither a command nor a path"
            yield _blame("tool.forbidden_action_unreadable", what, text)
        elif action.matches(argv) or action.matches(whole):
            shown = " ".join(argv[:6])
            yield _blame("tool.forbidden_action", "{} is forbidden by {}", shown, text)


def _show_argv(argv: tuple[str, ...]) -> str:
    return quote_text(" ".join(argv[:6]))


def _fitting_rules(rules: Iterable[CommandRule], argv: tuple[str, ...]) -> list[CommandRule]:
    """Return the rules with the program of an argv and one of the prefixes that follow it.

    A rule for every program below a directory holds only for those without a rule of their own.
    """
    every, program = tuple(rules), argv[0]
    own = [rule for rule in every if _plain(rule.exec) == _plain(program)]
    places = [rule for rule in every if rule.exec.endswith("/") and "/" in program]
    below = [rule for rule in places if _fits(rule.exec, program)]
    return [
        rule
        for rule in own or below
        if any(
            len(argv) > len(prefix) and all(map(_fits, prefix, argv[1:]))
            for prefix in rule.prefixes
        )
    ]


def _fits(form: str, word: str) -> bool:
    if form.endswith("/"):
        directory, path = _plain(form), _plain(word)
        return _in_tree(path) and path.startswith(directory) and path != directory
    return word == form


def _in_tree(word: str) -> bool:
    """Whether a word is a plain path that stays inside the tree."""
    bare = _plain(word)
    try:
        return str(TreePath.parse(bare)) == bare and not bare.startswith("-")
    except PathRefused:
        return False


def _plain(name: str) -> str:
    """A path in the tree without the ``./`` before it."""
    return name.removeprefix("./")


def _used_flags(argv: tuple[str, ...], flags: Iterable[str]) -> Iterator[str]:
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
