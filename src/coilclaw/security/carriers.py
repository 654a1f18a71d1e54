"""Programs that take a command as the value of an option, or hide one in their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.security.findcommands import FindCommand
from coilclaw.security.sedscripts import sed_commands
from coilclaw.security.shellscript import Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHORTEST_NAME: Final = 4

CARRIERS: Final[Mapping[str, tuple[str, ...]]] = {
    "tar": (
        *("--to-command", "--checkpoint-action", "--use-compress-program", "-I", "--rsh-command"),
        *("--rmt-command", "-F", "--info-script", "--new-volume-script"),
    ),
    "bsdtar": ("--use-compress-program",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "scp": ("-S", "-o"),
    "sftp": ("-S", "-o"),
    "ssh": ("-o",),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "man": ("-P", "--pager", "-H", "--html", "-B"),
    "less": ("-o", "-O", "--log-file"),
    "zip": ("-TT", "--unzip-command"),
    "tcpdump": ("-z",),
    "fd": ("-x", "--exec", "-X", "--exec-batch"),
    "fdfind": ("-x", "--exec", "-X", "--exec-batch"),
    "fzf": ("--preview", "--bind"),
    "nodemon": ("-x", "--exec"),
    "cargo": ("--config", "-s", "--shell"),
    "hyperfine": ("-p", "--prepare", "-c", "--cleanup", "-s", "--setup"),
    "nix": ("-c", "--command"),
    "nix-shell": ("--run", "--command"),
    "vagrant": ("-c", "--command"),
    "go": ("-exec", "-toolexec", "-vettool"),
    "gcc": ("-wrapper",),
    "cc": ("-wrapper",),
    "g++": ("-wrapper",),
    "make": ("--eval", "-E"),
    "pytest": ("--pastebin",),
    "curl": (),
    "wget": ("--use-askpass",),
    "nc": ("-e", "-c"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "netcat": ("-e", "-c"),
    "socat": (),
    "xterm": ("-e",),
    "gnome-terminal": ("-e", "--command"),
    "tshark": (),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "apt": ("-o",),
    "apt-get": ("-o",),
    "pip": (),
    "strace": (),
    "mosh": ("--ssh", "--server"),
    "hg": ("--config",),
    "svn": ("--diff-cmd", "--editor-cmd", "--config-option"),
}
"""Which options are followed by a command, attached, abbreviated or as the next word."""


def carried(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """Yield the texts in a program's words that it would have run."""
    for option in CARRIERS.get(name, ()):
        yield from (_as_command(text) for text in _values(words[1:], option))
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


def _values(words: Sequence[Word], option: str) -> Iterator[str]:
    for index, word in enumerate(words):
        text = word.text or ""
        name, equals, value = text.partition("=")
        if option.startswith("--"):
            whole = name == option
            if whole or (len(name) >= _SHORTEST_NAME and option.startswith(name)):
                if equals:
                    yield value
                else:
                    yield from _following(words, index)
        elif text == option:
            yield from _following(words, index)
        elif text.startswith(option) and len(option) == 2:
            yield text[2:]
        elif len(option) == 2 and text[:1] == "-" and text[1:2] != "-" and text.endswith(option[1]):
            yield from _following(words, index)


def _following(words: Sequence[Word], index: int) -> Iterator[str]:
    for word in words[index + 1 : index + 2]:
        if word.text is not None:
            yield word.text


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
