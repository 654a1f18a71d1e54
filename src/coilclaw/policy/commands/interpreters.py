"""Shells and other interpreters: where their program text stands, and whether it can be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import (
    CommandInput,
    UnwrappedCommand,
    harmless,
    join_words,
    other,
    refuse_unclear,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.policy.shell.script import Word

SHELLS: Final = frozenset(
    {
        *("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "yash", "fish", "csh"),
        *("tcsh", "pwsh", "powershell", "hush", "rksh", "oksh", "loksh", "elvish", "nu", "xonsh"),
    }
)
INTERPRETERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("python", "pypy", "ipython", "guile", "expect"), ("-c",)),
    "perl": ("-e", "-E"),
    **dict.fromkeys(("node", "nodejs"), ("-e", "--eval", "-p", "--print", "-pe")),
    "bun": ("-e", "--eval", "-p"),
    "deno": ("eval",),
    "php": ("-r", "-B", "-R", "-E"),
    **dict.fromkeys(("lua", "luajit", "rscript", "r", "scala", "groovy"), ("-e",)),
    "julia": ("-e", "-E", "--eval"),
    "elixir": ("-e", "--eval"),
    "erl": ("-eval",),
    "octave": ("--eval",),
    **dict.fromkeys(("osascript", "ghc", "dc", "ruby"), ("-e",)),
    **dict.fromkeys(("tclsh", "wish", "awk", "gawk", "mawk", "nawk", "ed", "m4", "jshell"), ()),
    "emacs": ("--eval", "-eval", "--execute", "-f", "--funcall"),
    **dict.fromkeys(("vim", "vi", "nvim", "view", "vimdiff", "ex"), ("-c", "--cmd", "-S")),
    "gdb": ("-ex", "--eval-command", "-iex"),
    "lldb": ("-o", "--one-line"),
    "sqlite": ("-cmd", "--cmd"),
    "psql": ("-c", "--command"),
    "mysql": ("-e", "--execute"),
}
"""Programs that run text of a language, and the options which that text follows."""

_SHELL_FILES: Final = frozenset({"--rcfile", "--init-file"})
_SHELL_TEXTS: Final = frozenset({"-Command", "-command", "--command", "--commands"})
_FIRST_IS_CODE: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
_TAKES_A_FILE: Final = frozenset(
    {"python", "pypy", "node", "nodejs", "perl", "ruby", "php", "lua", "luajit", "rscript", "julia"}
)
_PLAIN_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "rbash"})
_INPUTS: Final = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_CLUSTER: Final = re.compile(r"[-+][A-Za-z]+")


def peel_shell(name: str, words: Sequence[Word], given: CommandInput) -> UnwrappedCommand | None:
    """Return what a shell would run, or ``None`` when the program is none."""
    if name == "eval":
        return UnwrappedCommand(
            other("shell.eval", "eval reads its words once more as a command line"),
            scripts=(join_words(words[1:]),) if len(words) > 1 else (),
        )
    if name == "trap":
        texts = [word for word in words[1:] if not (word.text or "").startswith("-")]
        return UnwrappedCommand(
            other("shell.trap", "trap keeps a command for later"), scripts=tuple(texts[:1])
        )
    if name in {"source", "."}:
        if any(word.text is None for word in words[1:2]):
            return refuse_unclear("which file the shell would read commands from cannot be told")
        reason = "the shell would run the commands of a file"
        return UnwrappedCommand(other("shell.source", reason), itself=True)
    if name in SHELLS:
        return _peel_shell(name, words, given)
    return None


def peel_interpreter(
    name: str, words: Sequence[Word], given: CommandInput
) -> UnwrappedCommand | None:
    """Return the program text that an interpreter is given, or ``None`` without one."""
    options = INTERPRETERS.get(name)
    if options is None:
        return None
    own = _before_program(words[1:]) if name in _TAKES_A_FILE else words[1:]
    codes = tuple(_codes(own, options))
    if name in _FIRST_IS_CODE:
        codes = tuple(_awk_program(words[1:]))
    floor = harmless("command.interpreter", f"{name} runs what its rule permits")
    if name == "sqlite":
        codes = (*codes, *(word for word in words[2:] if word not in codes))
    if codes and name in _FIRST_IS_CODE:
        return UnwrappedCommand(floor, codes=codes, itself=True)
    if codes:
        return UnwrappedCommand(
            other("command.interpreter", f"{name} runs program text of the command line"),
            codes=codes,
        )
    if _reads_its_input(words[1:]) and given.source != "nothing":
        return _from_input(name, given)
    return UnwrappedCommand(floor, itself=True)


def _from_input(name: str, given: CommandInput) -> UnwrappedCommand:
    if given.source == "file":
        return UnwrappedCommand(
            other("command.interpreter", f"{name} runs the text of a file"), itself=True
        )
    if given.text is None or given.text.text is None:
        return _unseen(name)
    return UnwrappedCommand(
        other("command.interpreter", f"{name} runs program text of the command line"),
        codes=(given.text,),
    )


def _unseen(name: str) -> UnwrappedCommand:
    reason = f"{name} would run text from a pipe, which cannot be seen"
    return UnwrappedCommand(unknown("shell.stdin", reason))


def _reads_its_input(words: Sequence[Word]) -> bool:
    """Whether no operand names the program: only options, or ``-``."""
    for word in words:
        if word.text == "-" or word.text in _INPUTS:
            return True
        if word.text in {"-m", "--version", "-V", "-v", "--help", "-h"}:
            return False
        if not (word.text or "").startswith("-"):
            return False
    return True


def _before_program(words: Sequence[Word]) -> Sequence[Word]:
    """Leave out what follows the name of a program file: that is given to the program."""
    for index, word in enumerate(words):
        before = (words[index - 1].text or "-") if index else ""
        if not (word.text or "-").startswith(("-", "+")) and not before.startswith("-"):
            return words[:index]
    return words


def _codes(words: Sequence[Word], options: tuple[str, ...]) -> Iterator[Word]:
    """Find the texts that follow the options, also attached and at the end of a cluster."""
    from coilclaw.policy.commands.options import piece

    letters = {option[1] for option in options if len(option) == 2 and option.startswith("-")}
    for index, word in enumerate(words):
        text = word.text or ""
        following = words[index + 1 : index + 2]
        name, equals, value = text.partition("=")
        if text in options:
            yield from following
        elif equals and name in options:
            yield piece(word, value)
        elif text.startswith("+") and len(text) > 1:
            yield piece(word, text[1:])
        elif text.startswith("-") and not text.startswith("--"):
            found = [at for at, letter in enumerate(text[1:], start=1) if letter in letters]
            if found and (rest := text[found[0] + 1 :]):
                yield piece(word, rest)
                if found[-1] == len(text) - 1:
                    # A copy: if it is not code after all, it is looked at as a path as well.
                    yield from map(replace, following)
            elif found:
                yield from following


def _awk_program(words: Sequence[Word]) -> Iterator[Word]:
    index = 0
    while index < len(words):
        text = words[index].text
        if text in {"-f", "--file", "-i", "--include", "-l", "--load"}:
            return
        if text in {"-F", "-v", "--field-separator", "--assign", "-e", "--source"}:
            if text in {"-e", "--source"}:
                yield from words[index + 1 : index + 2]
            index += 2
        elif text is not None and text.startswith("-") and text != "-":
            if text.startswith("-F"):
                yield words[index]
            index += 1
        else:
            yield words[index]
            return


@dataclass(slots=True)
class _ShellOptions:
    """What a shell's options say about where its text is."""

    rest: Sequence[Word]
    takes_text: bool = False
    reads_input: bool = False
    more: str | None = None
    """What it does besides running the text."""
    problem: str | None = None


def _shell_options(words: Sequence[Word]) -> _ShellOptions:
    found = _ShellOptions(())
    index = 0
    while index < len(words) and found.problem is None:
        text = words[index].text
        if text is None or not text.startswith(("-", "+")) or text in {"-", "--"}:
            index += text in {"-", "--"}
            break
        index += 1
        if text in _SHELL_TEXTS:
            found.takes_text = True
            break
        if text.partition("=")[0] in _SHELL_FILES:
            found.more = "reads a file of commands first"
            index += "=" not in text
        elif not text.startswith("--"):
            index += _letters(text, found)
    found.rest = words[index:]
    return found


def _letters(text: str, found: _ShellOptions) -> int:
    """Take a cluster of letters in; return how many of the next words are values."""
    if not _CLUSTER.fullmatch(text) or text.casefold().startswith("-enc"):
        found.problem = f"option {text}"
    found.takes_text = found.takes_text or (text.startswith("-") and "c" in text)
    found.reads_input = found.reads_input or "s" in text
    if "i" in text:
        found.more = "would be interactive"
    return sum(text.count(letter) for letter in "oO")


def _peel_shell(name: str, words: Sequence[Word], given: CommandInput) -> UnwrappedCommand:
    options = _shell_options(words[1:])
    if options.problem is not None:
        return refuse_unclear(f"what {name} would run cannot be told: {options.problem}")
    floor = harmless("command.wrapper", f"{name} runs a command line")
    if name not in _PLAIN_SHELLS:
        floor = other(
            "command.shell", f"{name} understands more than the grammar that is used here"
        )
    elif options.more is not None:
        floor = other("command.shell", f"{name} {options.more}")
    if options.takes_text:
        lacks = refuse_unclear(f"{name} lacks its text")
        return UnwrappedCommand(floor, scripts=(options.rest[0],)) if options.rest else lacks
    if options.rest and not options.reads_input and options.rest[0].text not in _INPUTS:
        if options.rest[0].text is None:
            return refuse_unclear(f"which text {name} would run cannot be told")
        reason = f"{name} would run the commands of a file"
        return UnwrappedCommand(other("command.shell", reason), itself=True)
    if given.source == "text" and given.text is not None:
        return UnwrappedCommand(
            other("shell.stdin", f"{name} takes its commands from its input"),
            scripts=(given.text,),
            passes_input=False,
        )
    if given.source == "pipe":
        return _unseen(name)
    return UnwrappedCommand(
        other("command.shell", f"{name} would run commands of its input"), itself=True
    )
