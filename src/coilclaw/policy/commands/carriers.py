"""Programs that take a command as the value of an option, or hide one in their operands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import unknown
from coilclaw.policy.commands.options import option_values
from coilclaw.policy.commands.specials import FindCommand
from coilclaw.policy.commands.stream_editors import sed_commands
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.policy.commands.command_class import Classed

CARRIERS: Final[Mapping[str, tuple[str, ...]]] = {
    "tar": (
        *("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command"),
        *("--rmt-command", "-F", "--info-script", "--new-volume-script"),
    ),
    "bsdtar": ("--use-compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    **dict.fromkeys(("scp", "sftp"), ("-S", "-o")),
    **dict.fromkeys(("ssh", "apt", "apt-get"), ("-o",)),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "man": ("-P", "--pager", "-H", "--html", "-B"),
    "less": ("-o", "-O", "--log-file"),
    "zip": ("-TT", "--unzip-command"),
    "tcpdump": ("-z",),
    **dict.fromkeys(("fd", "fdfind"), ("-x", "--exec", "-X", "--exec-batch")),
    "fzf": ("--preview", "--bind"),
    "nodemon": ("-x", "--exec"),
    "cargo": ("--config", "-s", "--shell"),
    "hyperfine": ("-p", "--prepare", "-c", "--cleanup", "-s", "--setup"),
    "nix": ("-c", "--command"),
    "nix-shell": ("--run", "--command"),
    "vagrant": ("-c", "--command"),
    "go": ("-exec", "-toolexec", "-vettool"),
    **dict.fromkeys(("gcc", "cc", "g++"), ("-wrapper",)),
    "make": ("--eval", "-E"),
    "pytest": ("--pastebin",),
    "wget": ("--use-askpass",),
    **dict.fromkeys(("nc", "netcat"), ("-e", "-c")),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "xterm": ("-e",),
    "gnome-terminal": ("-e", "--command"),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "mosh": ("--ssh", "--server"),
    "hg": ("--config",),
    "svn": ("--diff-cmd", "--editor-cmd", "--config-option"),
}
"""Which options are followed by a command, attached, abbreviated or as the next word."""


def carried_texts(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """Yield the texts in a program's words that it would have run."""
    for value in option_values(words[1:], CARRIERS.get(name, ())):
        if value.text is not None:
            yield _as_command(value.text)
    if name in {"less", "more", "man"}:
        for word in words[1:]:
            if (word.text or "").startswith(("+!", "+|")):
                yield Word(word.raw, (word.text or "")[2:])
    if name in {"sed", "gsed"}:
        yield from sed_commands(words[1:])
    if name == "socat":
        yield from _addresses(words[1:])
    if name == "ssh":
        yield from _remote(words[1:])


def carried_commands(name: str, words: Sequence[Word]) -> tuple[tuple[Word, ...], ...]:
    """Return the commands that stand in a program's words as words of their own."""
    if name in {"find", "gfind"}:
        return FindCommand.read(words[1:]).runs()
    if name in {"fd", "fdfind"}:
        for index, word in enumerate(words):
            if word.text in {"-x", "-X", "--exec", "--exec-batch"}:
                return (tuple(words[index + 1 :]),)
    return ()


def _addresses(words: Sequence[Word]) -> Iterator[Word]:
    """Yield what ``socat`` would start: ``EXEC:command`` and ``SYSTEM:command``."""
    for word in words:
        kind, colon, rest = (word.text or "").partition(":")
        if colon and kind.casefold() in {"exec", "system", "shell"}:
            yield Word(word.raw, rest)


def _as_command(text: str) -> Word:
    """Take away what some options put before the command: ``exec=``, ``ProxyCommand=``."""
    key, equals, rest = text.partition("=")
    bare = rest if equals and key.replace("-", "").replace(".", "").isalnum() else text
    return Word(text, bare.strip("\"'"))


def _remote(words: Sequence[Word]) -> Iterator[Word]:
    """Yield the command line that ``ssh`` gives to a shell elsewhere."""
    takes_value = set("BbcDEeFIiJLlmOopQRSWw")
    index = 0
    while index < len(words) and (words[index].text or "").startswith("-"):
        text = words[index].text or ""
        index += 2 if len(text) == 2 and text[1] in takes_value else 1
    rest = words[index + 1 :]
    if rest and all(word.text is not None for word in rest):
        text = " ".join(word.text or "" for word in rest)
        yield Word(text, text)


_STREAM: Final = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/(?:self|\$\$|\d+)/fd/\d+")
_MAKE: Final = ("-f", "--file", "--makefile", "--eval", "-I", "--include-dir")
_AWK: Final = ("-f", "--file", "-i", "--include", "-l", "--load", "-E", "--exec")
_VI: Final = ("-S", "-s", "-u")
_PROGRAM_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("make", "gmake", "bmake", "remake"), _MAKE),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("vim", "vi", "nvim", "view", "vimdiff", "ex"), _VI),
    **dict.fromkeys(("node", "nodejs"), ("-r", "--require", "--import", "--loader")),
    **dict.fromkeys(("bash", "sh", "ksh", "zsh"), ("--rcfile", "--init-file")),
    **dict.fromkeys(("ninja", "samu", "fab"), ("-f",)),
    **dict.fromkeys(("sed", "gsed", "psql", "php", "doit", "scons"), ("-f", "--file")),
    "just": ("-f", "--justfile"),
    "task": ("-t", "--taskfile"),
    "rake": ("-f", "--rakefile"),
    "ant": ("-f", "-file", "-buildfile"),
    "gradle": ("-b", "--build-file", "-I", "--init-script"),
    "cmake": ("-P", "-C"),
    "gdb": ("-x", "--command", "-ix"),
    "lldb": ("-s", "--source"),
    "emacs": ("-l", "--load", "--script"),
    "sqlite": ("-init",),
    "octave": ("--eval",),
    "invoke": ("-c",),
}
_FIRST_IS_PROGRAM: Final = frozenset(
    {
        *("source", ".", "python", "pypy", "perl", "ruby", "node", "nodejs", "php", "lua"),
        *("luajit", "rscript", "julia", "tclsh", "wish", "expect", "sh", "bash", "dash", "zsh"),
        *("ksh", "mksh", "ash", "fish", "tsx", "ts-node", "guile", "groovy", "scala", "bc", "m4"),
    }
)


def is_stream(word: Word) -> bool:
    """Whether a word names what comes from a pipe, a descriptor or a substitution."""
    if word.text is None:
        return word.raw.startswith("<(")
    return _STREAM.fullmatch(word.text) is not None


def check_stream_program(name: str, words: Sequence[Word]) -> list[Classed]:
    """Say whether a program would run text from a stream; ``name`` is that of its family."""
    options = _PROGRAM_OPTIONS.get(name, ())
    found = [word for word in option_values(words[1:], options) if is_stream(word)]
    if name in _FIRST_IS_PROGRAM:
        first = next((w for w in words[1:] if not (w.text or "").startswith("-")), None)
        reads = name in {"source", "."} and first is not None and is_stream(first)
        if first is not None and (reads or first.raw.startswith("<(")):
            found.append(first)
    return [
        unknown("shell.stdin", f"{name} would run what {word.raw!r} brings, which cannot be seen")
        for word in found
    ]
