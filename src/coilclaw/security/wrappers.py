"""Programs that run another program: which words are theirs, and which are the other's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import Classed, CommandClass, forbidden, harmless, other
from coilclaw.security.commandline import read_line
from coilclaw.security.optiontable import option_table
from coilclaw.security.peeled import Peeled, joined, unclear
from coilclaw.security.shellscript import Word
from coilclaw.security.wrappertable import RUNNERS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.security.commandline import CommandLine
    from coilclaw.security.wrappertable import Wrapper

PRIVILEGE: Final = frozenset(
    {
        *("sudo", "sudoedit", "doas", "su", "runuser", "pkexec", "run0", "gosu", "su-exec", "sg"),
        *("setpriv", "capsh", "newgrp", "setuidgid", "please", "calife", "super"),
    }
)
CONTAINMENT: Final = frozenset(
    {
        *(
            "nsenter",
            "unshare",
            "chroot",
            "bwrap",
            "firejail",
            "proot",
            "systemd-run",
            "machinectl",
        ),
        *(
            "systemd-nspawn",
            "at",
            "batch",
            "crontab",
            "tmux",
            "screen",
            "lxc-attach",
            "lxc-execute",
        ),
    }
)
_TAKES_A_USER: Final = frozenset({"su", "runuser", "gosu", "su-exec", "sg", "newgrp", "setuidgid"})
_SUDO: Final = (
    "-u=<text> -g=<text> -h=<text> -p=<text> -C=<text> -D=<text> -T=<text> -r=<text> -t=<text> "
    "-c=<text> --user=<text> --group=<text> --command=<text> -A -b -E -e -H -K -k -l -n -P -S -s "
    "-v -i --login -L"
)
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl", "docker-compose", "lxc", "kubectl"})
_CONTAINER_WORDS: Final = frozenset(
    {
        *("run", "exec", "create", "start", "build", "buildx", "compose", "cp", "load", "import"),
        *("commit", "service", "stack", "swarm", "up", "apply", "attach", "container", "image"),
    }
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LOADER: Final = re.compile(r"ld(?:-linux[\w.-]*|-musl[\w.-]*)?\.so(?:\.\d+)*")
_ARCHITECTURE: Final = re.compile(
    r"(?:x86_64|i[3-6]86|linux(?:32|64)|uname26|[a-z]+64\w*|arm\w*|ppc\w*|s390x?)"
)
_PLAIN_TEXT: Final = re.compile(r"[^\"'\\$`#]*")


def peel_wrapper(name: str, words: Sequence[Word]) -> Peeled | None:
    """Return what a wrapper would run, or ``None`` when the program is none."""
    if name in PRIVILEGE:
        return _peel_privilege(name, words)
    if name in CONTAINMENT:
        return Peeled(forbidden("command.containment", f"{name} runs things outside the sandbox"))
    second = words[1].text if len(words) > 1 else None
    if name in _CONTAINERS and any(word.text in _CONTAINER_WORDS for word in words[1:]):
        return Peeled(
            forbidden("command.containment", f"{name} has things run outside the sandbox")
        )
    if name == "env":
        return _peel_env(words)
    if name == "command" and second is not None and re.fullmatch(r"-p?[vV]p?", second):
        return None
    if name == "coreutils" or _LOADER.fullmatch(name):
        return _peel_loader(name, words)
    if name in WRAPPERS:
        return _peel(name, WRAPPERS[name], words[1:])
    if second is not None and (name, second) in RUNNERS:
        return _peel(f"{name} {second}", RUNNERS[name, second], words[2:])
    return None


def runs_others(name: str, second: str | None) -> bool:
    """Whether a program only runs others, so that no rule about itself decides."""
    from coilclaw.security.shells import SHELLS

    named = {"env", "eval", "exec", "source", ".", "coreutils", "trap"}
    tables = (SHELLS, PRIVILEGE, CONTAINMENT, WRAPPERS, named)
    return any(name in table for table in tables) or (name, second) in RUNNERS


def _peel_privilege(name: str, words: Sequence[Word]) -> Peeled:
    """Forbidden as it is; what it would run is looked at so that the reason can name the worst."""
    line = read_line(words[1:], option_table(_SUDO), stop=True)
    rest = tuple(operand.word for operand in line.operands)
    floor = forbidden("command.privilege", f"{name} runs things as somebody else")
    return Peeled(
        floor,
        commands=(rest,) if rest and name not in _TAKES_A_USER else (),
        scripts=line.values("-c", "--command"),
    )


def _peel(name: str, wrapper: Wrapper, words: Sequence[Word]) -> Peeled:
    table = option_table(wrapper.options, wrapper.refused)
    line = read_line(words, table, stop=True)
    refused = [each.option.name for each in line.given if each.option.refused]
    if line.problems and len(line.problems) > len(refused):
        return unclear(f"what {name} would run cannot be told: {line.problems[0]}")
    more = wrapper.level > CommandClass.HARMLESS
    reason = f"{name} {'does more than run' if more else 'runs'} a command"
    floor = Classed(wrapper.level, "command.wrapper", reason)
    if refused:
        floor = other("command.wrapper", f"{name} with {refused[0]} does more than run a command")
    scripts = tuple(
        each.value
        for each in line.given
        if each.option.name in wrapper.script_options and each.value is not None
    )
    rest = tuple(operand.word for operand in line.operands[wrapper.skip :])
    if name == "setarch" and rest and _ARCHITECTURE.fullmatch(rest[0].text or ""):
        return _peel(name, wrapper, rest[1:])
    if wrapper.script and rest:
        return Peeled(floor, scripts=(*scripts, joined(_before_lists(rest))))
    if name == "flock" and rest and rest[0].text in {"-c", "--command"}:
        return Peeled(floor, scripts=tuple(rest[1:2]))
    if name == "xargs":
        return Peeled(floor, commands=(rest or (Word("echo", "echo"),),), passes_input=False)
    if name == "parallel":
        return unclear("parallel takes its commands from its input")
    return Peeled(floor, commands=(rest,) if rest else (), scripts=scripts)


def _before_lists(words: Sequence[Word]) -> Sequence[Word]:
    """Leave out the argument lists of ``parallel``."""
    for index, word in enumerate(words):
        if word.text in {":::", "::::", ":::+", "::::+"}:
            return words[:index]
    return words


def _peel_env(words: Sequence[Word]) -> Peeled:
    table = option_table(
        "-i --ignore-environment -0 --null -u=<text> --unset=<text> -C=<path> --chdir=<path> "
        "-S=<text> --split-string=<text> -v --debug --block-signal[=<text>] "
        "--default-signal[=<text>] --ignore-signal[=<text>] --list-signal-handling"
    )
    line = read_line(words[1:], table, stop=True)
    if line.problems:
        return unclear(f"what env would run cannot be told: {line.problems[0]}")
    rest = [operand.word for operand in line.operands]
    split = line.values("-S", "--split-string")
    if split:
        text = split[0].text
        if len(split) > 1 or text is None or not _PLAIN_TEXT.fullmatch(text):
            return unclear("what env makes of its -S text cannot be told")
        rest = [*(Word(part, part) for part in text.split()), *rest]
    return _past_assignments(rest, line)


def _past_assignments(rest: list[Word], line: CommandLine) -> Peeled:
    assignments = [(value.text or "?", Word("", "")) for value in line.values("-u", "--unset")]
    index = 0
    if rest and rest[0].text == "-":
        index = 1
    while index < len(rest):
        found = _ASSIGNMENT.fullmatch(rest[index].text or "")
        if found is None:
            break
        assignments.append((found[1], Word(found[2], found[2])))
        index += 1
    floor = harmless("command.wrapper", "env runs a command")
    bare = bool(rest) and rest[0].text == "-"
    if bare or line.has("-i", "--ignore-environment", "-u", "--unset"):
        floor = other("command.wrapper", "env takes away variables that keep programs quiet")
    if index >= len(rest):
        return Peeled(
            other("command.other", "env shows the whole environment"),
            assignments=tuple(assignments),
        )
    directory = next(iter(line.values("-C", "--chdir")), None)
    return Peeled(
        floor, commands=(tuple(rest[index:]),), assignments=tuple(assignments), directory=directory
    )


def _peel_loader(name: str, words: Sequence[Word]) -> Peeled:
    """Programs that are told in an option or an operand which program to be."""
    for index, word in enumerate(words[1:], start=1):
        text = word.text or ""
        if text.startswith("--coreutils-prog"):
            applet = text.partition("=")[2]
            return Peeled(
                other("command.wrapper", f"{name} stands in for another program"),
                commands=((Word(applet, applet), *words[index + 1 :]),),
            )
        if not text.startswith("-"):
            return Peeled(
                other("command.wrapper", f"{name} loads another program"),
                commands=(tuple(words[index:]),),
            )
    return unclear(f"what {name} would run cannot be told")
