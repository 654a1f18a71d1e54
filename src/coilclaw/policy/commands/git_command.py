"""``git``: its options before the subcommand, and the programs that its words make it run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import (
    Classed,
    harmless,
    join_words,
    other,
    refuse_unclear,
)
from coilclaw.policy.commands.options import option_table, option_values, read_line
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.policy.commands.command_class import UnwrappedCommand

_OPTIONS: Final = (
    "-C=<path> -P --no-pager --no-optional-locks --no-replace-objects --literal-pathspecs "
    "--glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-lazy-fetch --version --help "
    "-v -h --html-path --man-path --info-path -c=<text>"
)
_REFUSED: Final = (
    "-p --paginate --bare --exec-path[=<path>] --git-dir=<path> --work-tree=<path> "
    "--namespace=<text> --super-prefix=<text> --config-env=<text> --attr-source=<text> "
    "--list-cmds=<text> --shallow-file=<path>"
)
_HARMLESS_KEYS: Final = re.compile(
    r"(?:color\.\w+|color\.\w+\.\w+|core\.(?:quotepath|abbrev|whitespace|ignorecase|precomposeunicode)"
    r"|diff\.(?:renames|renamelimit|noprefix|context|algorithm|colormoved|wserrorhighlight)"
    r"|log\.(?:date|decorate|abbrevcommit)|blame\.date|column\.\w+"
    r"|advice\.\w+|grep\.\w+|status\.\w+|user\.(?:name|email)|init\.defaultbranch"
    r"|commit\.gpgsign|tag\.gpgsign)"
)
_RUNNING_KEYS: Final = re.compile(
    r"alias\..*|.*\.(?:command|cmd|textconv|clean|smudge|process|driver|program|helper|path)"
    r"|core\.(?:pager|editor|sshcommand|fsmonitor|askpass|gitproxy|hookspath|attributesfile"
    r"|alternaterefscommand)|diff\.external|sequence\.editor|pager\..*|include\..*|includeif\..*"
    r"|interactive\.difffilter|gpg\..*|credential\..*|man\..*|web\..*|uploadpack\..*"
    r"|receive\..*|remote\..*\.(?:uploadpack|receivepack|vcs|proxy)|protocol\..*|url\..*"
)
_SCRIPT_OPTIONS: Final = {
    "rebase": ("-x", "--exec"),
    "grep": ("-O", "--open-files-in-pager"),
    "difftool": ("-x", "--extcmd"),
    "fetch": ("--upload-pack",),
    "pull": ("--upload-pack",),
    "clone": ("-u", "--upload-pack"),
    "ls-remote": ("--upload-pack", "--exec"),
    "push": ("--receive-pack", "--exec"),
    "archive": ("--exec",),
    "send-email": ("--to-cmd", "--cc-cmd", "--header-cmd", "--smtp-server"),
    "filter-branch": (
        *("--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter"),
        *("--commit-filter", "--tag-name-filter", "--setup"),
    ),
}


@dataclass(frozen=True, slots=True)
class GitCommand:
    """A ``git`` command line without the options that stand before its subcommand."""

    words: tuple[Word, ...]
    """``git`` and what follows its global options."""
    directories: tuple[Word, ...]
    """The directories of ``-C``, in order."""
    floor: Classed
    scripts: tuple[Word, ...] = ()
    """What its words make it run, as texts for a shell."""
    commands: tuple[tuple[Word, ...], ...] = ()

    @classmethod
    def read(cls, words: Sequence[Word]) -> GitCommand | UnwrappedCommand:
        """Tell the words apart; what cannot be told is unclear."""
        table = option_table(_OPTIONS, _REFUSED)
        line = read_line(words[1:], table, stop=True)
        refused = [each.option.name for each in line.given if each.option.refused]
        if len(line.problems) > len(refused):
            return refuse_unclear(f"what git would do cannot be told: {line.problems[0]}")
        floor = harmless("command.git", "git alone")
        if refused:
            floor = other("command.git", f"git with {refused[0]} may run other programs")
        scripts = []
        for setting in line.values("-c"):
            found, script = _setting(setting)
            floor = found if found.level > floor.level else floor
            scripts += [script] if script is not None else []
        rest = tuple(operand.word for operand in line.operands)
        if not rest and line.given:
            rest = tuple(word for word in words[1:] if word.text in {"--version", "--help"})
        return cls(
            (Word("git", "git"), *rest),
            line.values("-C"),
            floor,
            (*scripts, *_scripts(rest)),
            tuple(_commands(rest)),
        )


def is_harmless_setting(texts: Sequence[str]) -> bool:
    """Whether ``git config`` with these words only looks, or sets what runs nothing."""
    plain = [each for each in texts if not each.startswith("-")]
    options = {each for each in texts if each.startswith("-")} - {"--local", "--add", "--unset"}
    if options & {"--get", "--get-all", "--list", "-l", "--get-regexp"}:
        return True
    key = plain[0].casefold() if plain else ""
    return not options and _HARMLESS_KEYS.fullmatch(key) is not None


def _setting(word: Word) -> tuple[Classed, Word | None]:
    """Judge one ``-c name=value``; a value that git would run is a text for a shell."""
    if word.text is None:
        return other("command.git", f"git -c {word.raw} cannot be told"), None
    key, _, value = word.text.partition("=")
    section, _, name = key.casefold().partition(".")
    whole = f"{section}.{name}"
    if _HARMLESS_KEYS.fullmatch(whole):
        return harmless("command.git", f"git -c {key} changes how it looks"), None
    reason = other("command.git", f"git -c {key} may run other programs")
    if _RUNNING_KEYS.fullmatch(whole):
        text = value.removeprefix("!")
        return reason, Word(text, text)
    return reason, None


def _scripts(words: Sequence[Word]) -> Iterator[Word]:
    """Find the options of a subcommand whose values git gives to a shell."""
    subcommand = words[0].text if words else None
    if subcommand == "submodule":
        yield from _each_submodule(words)
    if subcommand == "config":
        yield from _find_running_keys(words)
    for index, word in enumerate(words[1:], start=1):
        text = word.text or ""
        if text.startswith("ext::"):
            yield Word(word.raw, text.removeprefix("ext::").replace("% ", " "))
        if subcommand == "clone":
            yield from _find_clone_settings(text, words[index + 1 : index + 2])
    yield from option_values(words[1:], _SCRIPT_OPTIONS.get(subcommand or "", ()))


def _find_clone_settings(text: str, following: Sequence[Word]) -> Iterator[Word]:
    """Find what ``git clone -c name=value`` would run."""
    attached = re.fullmatch(r"(?:-c|--config=)(.+)", text, re.DOTALL)
    values = [Word(attached[1], attached[1])] if attached is not None else []
    if text in {"-c", "--config"}:
        values += following
    for value in values:
        script = _setting(value)[1]
        if script is not None:
            yield script


def _find_running_keys(words: Sequence[Word]) -> Iterator[Word]:
    for key, value in pairwise(words):
        if key.text is not None and _RUNNING_KEYS.fullmatch(key.text.casefold()):
            text = None if value.text is None else value.text.removeprefix("!")
            yield Word(value.raw, text)


def _each_submodule(words: Sequence[Word]) -> Iterator[Word]:
    texts = [word.text for word in words]
    if "foreach" in texts:
        rest = list(words[texts.index("foreach") + 1 :])
        while rest and (rest[0].text or "").startswith("-"):
            rest.pop(0)
        if rest:
            yield join_words(rest)


def _commands(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Find the commands that follow a subcommand as words of their own."""
    texts = [word.text for word in words]
    if texts[:2] == ["bisect", "run"]:
        yield tuple(words[2:])
    elif texts[:1] == ["for-each-repo"]:
        yield (Word("git", "git"), *(word for word in words[1:] if word.text != "--config"))
