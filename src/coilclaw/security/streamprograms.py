"""Programs that are told in an option which file to run: that file must not be a stream.

What comes from a pipe or a substitution is a program that nobody has seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.security.commandclass import Classed
    from coilclaw.security.shellscript import Word

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
    "ninja": ("-f",),
    "samu": ("-f",),
    "just": ("-f", "--justfile"),
    "task": ("-t", "--taskfile"),
    "rake": ("-f", "--rakefile"),
    "ant": ("-f", "-file", "-buildfile"),
    "gradle": ("-b", "--build-file", "-I", "--init-script"),
    "cmake": ("-P", "-C"),
    "sed": ("-f", "--file"),
    "gsed": ("-f", "--file"),
    "gdb": ("-x", "--command", "-ix"),
    "lldb": ("-s", "--source"),
    "emacs": ("-l", "--load", "--script"),
    "sqlite": ("-init",),
    "psql": ("-f", "--file"),
    "php": ("-f", "--file"),
    "octave": ("--eval",),
    "invoke": ("-c",),
    "fab": ("-f",),
    "doit": ("-f", "--file"),
    "scons": ("-f", "--file"),
    "bc": (),
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
    found = [word for word in _values(name, words[1:]) if is_stream(word)]
    if name in _FIRST_IS_PROGRAM:
        first = next((w for w in words[1:] if not (w.text or "").startswith("-")), None)
        reads = name in {"source", "."} and first is not None and is_stream(first)
        if first is not None and (reads or first.raw.startswith("<(")):
            found.append(first)
    return [
        unknown("shell.stdin", f"{name} would run what {word.raw!r} brings, which nobody can see")
        for word in found
    ]


def _values(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """Yield what may be the value of an option that names a program: attached, or the next word."""
    from coilclaw.security.commandline import piece

    for option in _PROGRAM_OPTIONS.get(name, ()):
        for index, word in enumerate(words):
            text = word.text if word.text is not None else _before_substitution(word.raw)
            following = words[index + 1 : index + 2]
            key, equals, value = text.partition("=")
            long = option.startswith("--") and len(key) > 2 and option.startswith(key)
            if text == option or (long and not equals):
                yield from following
            elif long or (equals and key == option):
                yield piece(word, value or word.raw[len(key) + 1 :])
            elif len(option) == 2 and text[:1] == "-" and text[:2] != "--" and option[1] in text:
                rest = text[text.index(option[1]) + 1 :]
                yield from [piece(word, rest)] if rest else following


def _before_substitution(raw: str) -> str:
    return raw.partition("<(")[0]
