"""The tool gate: whether the orchestrator may run a command on somebody's behalf.

Words are compared with words, never with parts of them. An allowlist has to name the command, and
what is known about programs (``commandtable``) holds whatever the allowlist says.

``tool.allowlist`` there is none · ``tool.not_allowed`` no rule names the command ·
``tool.flag`` an option that a rule forbids, or that is not known where all have to be ·
``tool.argument_file`` a word that stands for the words of a file · ``tool.wrapper`` a program that
runs another, or a launcher that is given none · ``tool.interactive`` ·
``tool.inline_code`` an interpreter that is given code · ``tool.script`` a script that is no file of
the tree · ``tool.shadowed`` a file of the tree in the place of a tool · ``tool.program_path`` a
program given by a path that is no file of the tree · ``tool.path`` a word that leads out of the
tree, or a place to work in that is not in it · ``tool.network`` · ``tool.forbidden_action`` ·
``tool.forbidden_action_unreadable`` · ``tool.timeout``; and those of ``commandline``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.command_launcher import read_launched
from coilclaw.contracts.trivial import runner
from coilclaw.domain.treepath import shown
from coilclaw.gates.command_options import is_label, is_offline, refused_words
from coilclaw.gates.command_place import read_placed
from coilclaw.gates.commandline import parse
from coilclaw.gates.commandrule import fitting_rules, in_tree, plain, used_flags
from coilclaw.gates.commandtable import (
    FORBIDDEN_FLAGS,
    INTERACTIVE,
    NETWORK_COMMANDS,
    NETWORK_LAUNCHERS,
    NETWORK_PROGRAMS,
    PLAIN_AT_SIGN,
    TOOL_MODULES,
    WRAPPERS,
    interpreter,
)
from coilclaw.gates.forbiddenaction import ForbiddenAction
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.contracts.policyfiles import CommandRule
    from coilclaw.gates.command_place import PlacedCommand
    from coilclaw.gates.commandtable import Interpreter

MAX_TIMEOUT_S: Final = 86_400
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)|[\w.-]+@[\w.-]+:(?!:)")
_URL: Final = re.compile(r"(?<![A-Za-z0-9+.-])(?!file:)[A-Za-z][A-Za-z0-9+.-]*://.*")
_LOOPBACK: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_ATTACHED: Final = re.compile(r"-[A-Za-z]+(?=[/~]|\.\.?/)")
_PIECES: Final = re.compile(r"[=,]|::|:(?!\\)")
_HARMLESS: Final = frozenset({"/dev/null"})


@dataclass(frozen=True, slots=True)
class Terms:
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


def judge(argv: tuple[str, ...], *, terms: Terms, timeout_sec: float | None) -> GateResult:
    """Judge a command as the words it consists of."""
    if not argv or not argv[0]:
        found = [Violation("tool.empty", "there is no command")]
    else:
        found = [*_of_command(argv, terms), *_of_words(argv), *_of_timeout(timeout_sec)]
    return _result(argv, tuple(found))


def judge_text(text: str, *, terms: Terms, timeout_sec: float | None) -> GateResult:
    """Judge a command as somebody wrote it."""
    line = parse(text)
    if line.violations:
        return _result((), line.violations)
    return judge(line.argv, terms=terms, timeout_sec=timeout_sec)


def _result(argv: tuple[str, ...], violations: tuple[Violation, ...]) -> GateResult:
    return GateResult("tool_gate", violations, {"argv": [*argv]})


def _of_command(argv: tuple[str, ...], terms: Terms, *, named: bool = False) -> Iterator[Violation]:
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
        message = f"{shown(launched.launcher)} is not run with {shown(launched.refused)}"
        yield Violation("tool.flag", message)
    elif not launched.argv:
        yield Violation("tool.wrapper", f"{shown(launched.launcher)} is given no program")
    else:
        fitting = fitting_rules(terms.rules, argv)
        reach = max((len(form) for rule in fitting for form in _forms(rule, argv)), default=0)
        yield from _of_command(launched.argv, terms, named=reach >= launched.at)


def _of_place(placed: PlacedCommand, terms: Terms) -> Iterator[Violation]:
    """Where a command is to work has to be in the tree, and no link."""
    directory, file = placed.directory, placed.file
    if placed.repeated:
        yield Violation("tool.path", f"{shown(placed.repeated)} is there twice")
    if directory is not None:
        directory = directory.rstrip("/") or directory
        if directory != "." and not (in_tree(directory) and terms.is_directory(plain(directory))):
            yield Violation("tool.path", f"{shown(directory)} is not a directory of the tree")
        elif read_launched(placed.argv) is not None:
            yield Violation("tool.path", f"{shown(placed.argv[0])} launches nothing elsewhere")
    if file is not None:
        below = "" if directory in {None, "."} else f"{directory}/"
        if not in_tree(file) or not _is_of_tree(f"{below}{plain(file)}", terms):
            yield Violation("tool.path", f"{shown(below + file)} is not a file of the tree")


def _of_allowlist(
    argv: tuple[str, ...], terms: Terms, placing: tuple[str, ...], *, named: bool
) -> Iterator[Violation]:
    """``placing`` are the options that say where it works, which a rule may forbid as well."""
    if not terms.rules:
        yield Violation("tool.allowlist", "there is no command allowlist")
    fitting = fitting_rules(terms.rules, argv)
    if not fitting and not named:
        yield Violation("tool.not_allowed", f"no rule of the allowlist names {_shown(argv)}")
    flags = {flag for rule in fitting for flag in rule.forbidden_flags}
    used = used_flags(argv, flags | set(_known_flags(argv)))
    for word in dict.fromkeys((*used, *used_flags((argv[0], *placing), flags))):
        yield Violation("tool.flag", f"the option {shown(word)} is forbidden for {shown(argv[0])}")
    if read_launched(argv) is None:
        for word in refused_words(argv):
            yield Violation("tool.flag", f"{shown(word)} is not known for {shown(argv[0])}")
    if argv[0].rpartition("/")[2] not in PLAIN_AT_SIGN:
        yield from _of_argument_files(argv, fitting)


def _of_argument_files(argv: tuple[str, ...], fitting: list[CommandRule]) -> Iterator[Violation]:
    """What such a file says is judged by nobody, and may change until the command runs."""
    longest = max((len(form) for rule in fitting for form in _forms(rule, argv)), default=0)
    for word in argv[1 + longest :]:
        if word.startswith("@"):
            yield Violation("tool.argument_file", f"{shown(word)} may be a file of arguments")


def _forms(rule: CommandRule, argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The prefixes of a rule that name the first words exactly as they are."""
    for form in rule.prefixes:
        if argv[1 : 1 + len(form)] == form:
            yield form


def _known_flags(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The options that are forbidden for the program, or for the module that Python runs."""
    name = argv[0].rpartition("/")[2]
    known = interpreter(name)
    if known is not None and known.module:
        call = _call(argv, known)
        return FORBIDDEN_FLAGS.get(call.module, ()) if not call.wrong else ()
    return FORBIDDEN_FLAGS.get(name, ())


def _of_program(argv: tuple[str, ...], terms: Terms) -> Iterator[Violation]:
    name = argv[0].rpartition("/")[2]
    if name in WRAPPERS:
        yield Violation("tool.wrapper", f"{shown(name)} runs another program")
    if name in INTERACTIVE:
        yield Violation("tool.interactive", f"{shown(name)} talks to a person")
    if "/" in argv[0] and not _is_of_tree(argv[0], terms):
        yield Violation(
            "tool.program_path", f"{shown(argv[0])} is no program of the tree or of the PATH"
        )
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


def _of_interpreter(argv: tuple[str, ...], known: Interpreter, terms: Terms) -> Iterator[Violation]:
    call = _call(argv, known)
    if call.wrong:
        yield Violation(
            "tool.inline_code", f"{shown(call.wrong)} may give {shown(argv[0])} code to run"
        )
    elif call.module:
        if call.module in TOOL_MODULES:
            for path in (f"{call.module}.py", f"{call.module}/__init__.py"):
                if terms.is_file(path):
                    yield Violation(
                        "tool.shadowed", f"{shown(path)} stands in the place of a tool", path
                    )
    elif call.script == "-" or not (call.script or call.testing or call.informing):
        yield Violation("tool.inline_code", f"{shown(argv[0])} would read code from its input")
    elif call.script and not call.testing and not _is_of_tree(call.script, terms):
        yield Violation("tool.script", f"{shown(call.script)} is no file of the tree", call.script)


def _is_of_tree(word: str, terms: Terms) -> bool:
    return in_tree(word) and terms.is_file(plain(word))


def _of_network(name: str, argv: tuple[str, ...]) -> Iterator[Violation]:
    if name in NETWORK_PROGRAMS or _fetches(argv):
        yield Violation("tool.network", f"{_shown(argv)} needs the network")
    for word in argv[1:]:
        for found in _ADDRESS.finditer(word):
            if not (found[1] and _LOOPBACK.fullmatch(found[1])):
                yield Violation("tool.network", f"{shown(word)} is an address")
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
            yield Violation("tool.path", f"{shown(word)} leads out of the tree")
        if "\0" in word or "\n" in word or "\r" in word:
            yield Violation("tool.character", f"{shown(word)} holds a control character")


def _paths_in(word: str) -> Iterator[str]:
    bare = word
    attached = _ATTACHED.match(word)
    if attached is not None:
        bare = word[attached.end() :]
    bare = _URL.sub("", bare)
    yield bare
    yield from _PIECES.split(bare)


def _leads_out(path: str) -> bool:
    if path in _HARMLESS:
        return False
    return path.startswith(("/", "~", "\\")) or ".." in path.split("/")


def _of_actions(argv: tuple[str, ...], terms: Terms, whole: tuple[str, ...]) -> Iterator[Violation]:
    for text in terms.forbidden_actions:
        action = ForbiddenAction.of(text)
        if action is None:
            yield Violation(
                "tool.forbidden_action_unreadable", f"{shown(text)} is no command and no path"
            )
        elif action.matches(argv) or action.matches(whole):
            yield Violation(
                "tool.forbidden_action", f"{_shown(argv)} is forbidden by {shown(text)}"
            )


def _of_timeout(timeout_sec: float | None) -> Iterator[Violation]:
    if (
        timeout_sec is None
        or not math.isfinite(timeout_sec)
        or not 0 < timeout_sec <= MAX_TIMEOUT_S
    ):
        yield Violation("tool.timeout", f"a command has to end in 0 to {MAX_TIMEOUT_S} seconds")


def _shown(argv: tuple[str, ...]) -> str:
    return shown(" ".join(argv[:6]))
