"""A command line read as the shell reads it, into every simple command that it would run.

What is not written after the shell's rules here is not understood, and neither is anything that
only running could give a meaning to.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from coilclaw.policy.shell import expressions
from coilclaw.policy.shell.constructs import ShellReader
from coilclaw.policy.shell.script import MAX_EXCERPT, Reading, Script, Unreadable, unfold

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from coilclaw.policy.shell.script import Simple, Word

MAX_BYTES: Final = 32 * 1024

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Letters and marks that are drawn as nothing at all, beside the categories below.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_EMOJI_PRESENTATION: Final = "\ufe0f"


def read_script(command: str) -> Reading:
    """Return every simple command that a command line would run, or why that is not known."""
    try:
        _check_text(command)
        reader = ShellReader(command)
        script = Script(unfold(command, reader.script()))
        check_meaning(script, reader.numbers, reader.splitting)
    except Unreadable as problem:
        return problem.fault
    return script


def _check_text(command: str) -> None:
    """Refuse text that is too long or that shows otherwise than it is."""
    if len(command) > MAX_BYTES or len(command.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        reason = f"the command is longer than {MAX_BYTES} bytes"
        raise Unreadable("shell.bound", reason, command[:40])
    control = _CONTROL.search(command)
    unseen = control.start() if control is not None else _find_invisible(command)
    if unseen is not None:
        name = f"U+{ord(command[unseen]):04X}"
        reason = f"the command holds the invisible character {name}"
        raise Unreadable("shell.text", reason, name)


def _find_invisible(command: str) -> int | None:
    if command.isascii():
        return None
    from unicodedata import category

    for at, char in enumerate(command):
        emoji = char == _EMOJI_PRESENTATION and at and category(command[at - 1]) == "So"
        if char.isascii() or emoji:
            continue
        if category(char) in _UNSEEN or _INVISIBLE.match(char):
            return at
    return None


_PREFIXES: Final = frozenset({"builtin", "command"})

_RENAMING: Final = frozenset({"alias", "unalias", "enable", "hash"})
_RENAMING_VARIABLES: Final = frozenset({"BASH_ALIASES", "BASH_CMDS"})

_SAFE_SHOPTS: Final = frozenset(
    {"-s", "-u", "-q", "-p", "globstar", "nullglob", "dotglob", "failglob", "lastpipe"}
    | {"nocaseglob", "nocasematch", "inherit_errexit"}
)
_SAFE_FLAGS: Final = re.compile(r"[-+][abCefhmnuvx]*o?")
_SAFE_OPTIONS: Final = frozenset(
    {"allexport", "errexit", "errtrace", "functrace", "nounset", "noclobber", "noglob", "pipefail"}
    | {"verbose", "xtrace"}
)

# Builtins that run, or evaluate as arithmetic, text among their words.
_EVALUATING: Final = frozenset({"let", "compgen", "complete", "bind", "fc"})
# Builtins that take names of variables, whose subscripts they evaluate.
_DECLARING: Final = frozenset({"declare", "typeset", "local", "export", "readonly"})
_NAMING: Final = frozenset({"unset", "read", "mapfile", "readarray", "getopts"})
_TESTING: Final = frozenset({"test", "["})
_NAMED_VALUE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What a format begins with when it cannot be an option.
_FORMAT: Final = re.compile(r"[\"']?[^-$`*?\[{~\\'\"]")
_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_ORDINARY: Final = re.compile(r"[A-Za-z0-9_./-]+")
# Numbers and references: values of such variables mean something else than they say.
_DECLARED_OTHERWISE: Final = re.compile(r"[-+].*[in].*")

_SETTING: Final = _DECLARING | _NAMING | _PREFIXES | {"eval", "source", ".", "exec", "wait"}
_COMPUTED: Final = re.compile(r"\$\(\(.*\)\)|\{-?[0-9]+\.\.-?[0-9]+\}", re.DOTALL)


def check_meaning(script: Script, numbers: AbstractSet[str], splitting: AbstractSet[str]) -> None:
    """Refuse a script that changes how it is to be read.

    ``numbers`` are the variables that arithmetic uses, ``splitting`` the words, as written, with
    an expansion outside of quotes.
    """
    for command in script.commands:
        _check_command(command)
        _check_test(command, script, splitting)
    for name in sorted(numbers):
        if not _is_number(name, script):
            raise Unreadable(
                "shell.construct", "arithmetic with a variable that may hold no number", name
            )


def _check_command(command: Simple) -> None:
    reason = None
    name, arguments = _without_prefixes(command.words)
    texts = [None if word.globs else word.text for word in arguments]
    if any(variable in _RENAMING_VARIABLES for variable, _ in command.assignments) or (
        name in _RENAMING and (name, texts) != ("hash", ["-r"])
    ):
        reason = "it gives a later name another meaning"
    elif (name == "shopt" and not _SAFE_SHOPTS.issuperset(texts)) or (
        name == "set" and not _is_safe_set(texts)
    ):
        reason = "it changes how the rest is read"
    elif _evaluates(name, arguments):
        reason = "it evaluates one of its words"
    if reason is not None:
        raise Unreadable("shell.construct", reason, command.raw[:MAX_EXCERPT])


def _without_prefixes(words: Sequence[Word]) -> tuple[str | None, Sequence[Word]]:
    """Return the name and the arguments behind ``builtin`` and ``command``."""
    while words and words[0].text in _PREFIXES:
        words = words[1:]
        while words and (words[0].text or "").startswith("-"):
            words = words[1:]
    return (words[0].text, words[1:]) if words else ("", ())


def _is_safe_set(arguments: list[str | None]) -> bool:
    """Tell whether ``set`` leaves the way of reading alone."""
    expects_option = False
    for argument in arguments:
        if expects_option:
            if argument not in _SAFE_OPTIONS:
                return False
            expects_option = False
        elif argument in ("--", "-"):
            return True
        elif argument is None:
            return False
        elif argument[:1] in ("-", "+"):
            if not _SAFE_FLAGS.fullmatch(argument):
                return False
            expects_option = argument.endswith("o")
        else:
            return True
    return True


def _evaluates(name: str | None, arguments: Sequence[Word]) -> bool:
    """Tell whether a builtin may run one of its words, or a subscript in one."""
    if name in _EVALUATING:
        return True
    if name in _DECLARING:
        return not all(_is_declaration(word) for word in arguments)
    if name in _NAMING:
        return not all(_is_plain(word) for word in arguments) or (
            name in ("mapfile", "readarray")
            and any((word.text or "").startswith("-C") for word in arguments)
        )
    if name == "wait":
        return any(not _is_plain(w) and w.raw != "$!" for w in arguments) or any(
            (word.text or "").startswith("-p") for word in arguments
        )
    if name == "printf":
        return _prints_to_variable(arguments)
    return name in _TESTING and any(
        _names_variable(flag, operand) for flag, operand in pairwise(arguments)
    )


def _is_plain(word: Word) -> bool:
    """Tell whether a word is what it says, and no element of an array."""
    return word.text is not None and not word.globs and "[" not in word.text


def _prints_to_variable(arguments: Sequence[Word]) -> bool:
    """Tell whether ``printf`` may take one of its words for a variable with a subscript."""
    if not arguments or _FORMAT.match(arguments[0].raw):
        return False
    first = arguments[0].text
    if first is not None and not arguments[0].globs and not first.startswith("-v"):
        return False
    return not all(_is_plain(word) for word in arguments[:2])


def _names_variable(flag: Word, operand: Word) -> bool:
    """Tell whether two words may be ``-v`` and the name of a variable with a subscript."""
    if flag.text in ("-v", "-R"):
        return not _PLAIN_NAME.fullmatch(operand.text or "")
    return flag.text is None and not _is_plain(operand)


def _check_test(command: Simple, script: Script, splitting: AbstractSet[str]) -> None:
    """Refuse a ``test`` that may get ``-v`` and a subscript from a word that becomes several."""
    name, arguments = _without_prefixes(command.words)
    if name == "[" and (not arguments or arguments[-1].text != "]"):
        raise Unreadable("shell.syntax", "a [ without an end", command.raw[:MAX_EXCERPT])
    for word in arguments if name in _TESTING else ():
        if word.raw in splitting:
            variable = _VARIABLE.fullmatch(word.raw)
            if variable is None or not _is_number(variable[1] or variable[2], script):
                raise Unreadable(
                    "shell.construct", "a test with an expansion outside of quotes", word.raw
                )
        literal = (word.text or "").replace("*", "")
        if word.globs and (len(literal) <= 2 or not _ORDINARY.fullmatch(literal)):
            raise Unreadable("shell.construct", "a test of a pattern", word.raw)


def _is_declaration(word: Word) -> bool:
    """Tell whether a word declares a plain variable that holds what it is given."""
    if _NAMED_VALUE.match(word.raw):
        return True
    return _is_plain(word) and not _DECLARED_OTHERWISE.fullmatch(word.text or "")


def _is_number(name: str, script: Script) -> bool:
    """Tell whether a variable can only hold numbers that stand in the script."""
    values = [value for c in script.commands for n, value in c.assignments if n == name]
    return (
        bool(values)
        and not any(_may_set(command) for command in script.commands)
        and all(
            expressions.NUMBER.fullmatch(value.text or value.raw) or _COMPUTED.fullmatch(value.raw)
            for value in values
        )
    )


def _may_set(command: Simple) -> bool:
    """Tell whether a command may set a variable whose name is one of its words."""
    if not command.words:
        return False
    name, *arguments = (word.text for word in command.words)
    if name is None or command.words[0].globs or name in _SETTING:
        return True
    return name == "printf" and any(a is None or a.startswith("-v") for a in arguments[:1])
