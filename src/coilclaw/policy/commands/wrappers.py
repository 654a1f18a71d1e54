"""Programs that run another program: which words are theirs, and which are the other's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import (
    Classed,
    CommandClass,
    UnwrappedCommand,
    forbidden,
    harmless,
    join_words,
    other,
    refuse_unclear,
)
from coilclaw.policy.commands.options import option_table, read_line
from coilclaw.policy.shell.script import Word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.policy.commands.options import CommandLine


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How one wrapper is written."""

    options: str = ""
    refused: str = ""
    """Options that make more of it than a wrapper."""
    skip: int = 0
    """Operands of its own before the command."""
    level: CommandClass = CommandClass.OTHER
    script: bool = False
    """Whether the rest is given to a shell as one text."""
    script_options: tuple[str, ...] = ()


_PASS: Final = CommandClass.HARMLESS
_XARGS: Final = (
    "-0 --null -a=<path> --arg-file=<path> -d=<text> --delimiter=<text> -E=<text> -e[=<text>] "
    "--eof[=<text>] -I=<text> -i[=<text>] --replace[=<text>] -L=<number> -l[=<number>] "
    "--max-lines[=<number>] -n=<number> --max-args=<number> -P=<number> "
    "--max-procs=<number> -r --no-run-if-empty -s=<number> --max-chars=<number> "
    "-t --verbose -x --exit --process-slot-var=<text>"
)
_STRACE: Final = (
    "-f -ff -c -C -d -i -k -q -r -t -T -v -w -x -y -Y -z -Z -a=<number> -b=<text> -e=<text> "
    "-E=<text> -I=<text> -l=<text> -n=<text> -o=<write> -O=<text> -p=<number> -P=<path> "
    "-s=<number> -S=<text> -u=<text> -U=<text> -X=<text> --trace=<text> --output=<write> "
    "--follow-forks"
)

WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "nice": Wrapper("-n=<number> --adjustment=<number> -<number>", level=_PASS),
    "ionice": Wrapper(
        "-c=<text> -n=<number> -t --class=<text> --classdata=<number> --ignore", level=_PASS
    ),
    "timeout": Wrapper(
        "-k=<text> --kill-after=<text> -s=<text> --signal=<text> -v --verbose --foreground "
        "--preserve-status",
        skip=1,
        level=_PASS,
    ),
    "stdbuf": Wrapper(
        "-i=<text> --input=<text> -o=<text> --output=<text> -e=<text> --error=<text>", level=_PASS
    ),
    "time": Wrapper(
        "-p --portability -v --verbose -f=<text> --format=<text> -q --quiet",
        refused="-o=<write> --output=<write> -a --append",
        level=_PASS,
    ),
    "command": Wrapper("-p", level=_PASS),
    "builtin": Wrapper(level=_PASS),
    "exec": Wrapper("-c -l -a=<text>"),
    "nohup": Wrapper(),
    "setsid": Wrapper("-c --ctty -f --fork -w --wait"),
    "busybox": Wrapper(refused="--list --list-full --install[=<text>] --help"),
    "toybox": Wrapper(refused="--list --help"),
    "xargs": Wrapper(_XARGS, refused="-o --open-tty -p --interactive", level=_PASS),
    "parallel": Wrapper(
        "-j=<text> --jobs=<text> -k --keep-order -0 --null -q --quote -X -m -n=<number> "
        "-N=<number> --bar --progress --dry-run -t --verbose -I=<text> --halt=<text> --no-notice "
        "--will-cite",
        script=True,
    ),
    "watch": Wrapper(
        "-n=<number> --interval=<number> -d[=<text>] --differences[=<text>] -t --no-title -b "
        "--beep -e --errexit -g --chgexit -c --color -x --exec -p --precise",
        script=True,
    ),
    "script": Wrapper(
        "-a --append -e --return -f --flush -q --quiet -E=<text> -t[=<text>] -T=<write> -B=<write> "
        "-I=<write> -O=<write> -m=<text> -o=<text> -c=<text> --command=<text>",
        skip=9,
        script_options=("-c", "--command"),
    ),
    "flock": Wrapper(
        "-s --shared -x -e --exclusive -u --unlock -n --nb --nonblock -w=<number> --wait=<number> "
        "--timeout=<number> -o --close -E=<number> -F --no-fork --verbose",
        skip=1,
    ),
    "strace": Wrapper(_STRACE),
    "ltrace": Wrapper(_STRACE),
    "valgrind": Wrapper(
        "-q -v --tool=<text> --leak-check=<text> --log-file=<write> --error-exitcode=<number>"
    ),
    "gdb": Wrapper("--args -q -batch --batch -ex=<text> --nx -n"),
    "perf": Wrapper("-e=<text> -a -g -o=<write> -r=<number> -d", skip=1),
    "taskset": Wrapper("-c --cpu-list -a --all-tasks", skip=1),
    "chrt": Wrapper("-f -o -r -b -i -R --fifo --other --rr --batch --idle", skip=1),
    "numactl": Wrapper("-m=<text> --membind=<text> -N=<text> --cpunodebind=<text> -i=<text> -l"),
    "setarch": Wrapper("-R --addr-no-randomize -v -3 -B -F -I -L -S -T -X -Z"),
    "linux32": Wrapper("-R --addr-no-randomize"),
    "linux64": Wrapper("-R --addr-no-randomize"),
    "xvfb-run": Wrapper("-a --auto-servernum -n=<number> -s=<text> --server-args=<text>"),
    "fakeroot": Wrapper(),
    "eatmydata": Wrapper(),
    "chronic": Wrapper("-v -e"),
    "unbuffer": Wrapper("-p"),
    "rlwrap": Wrapper("-a -c -n -r"),
    "faketime": Wrapper("-f -m", skip=1),
    "proxychains": Wrapper("-q -f=<path>"),
    "torsocks": Wrapper(),
    "dbus-run-session": Wrapper(),
    "tini": Wrapper("-s -g -v"),
    "dumb-init": Wrapper("-c -v"),
    "entr": Wrapper("-a -c -d -n -p -r -s -z"),
    "npx": Wrapper(
        "-q --quiet --no --no-install",
        refused="-y --yes -p=<text> --package=<text> -c=<text> --call=<text>",
        level=CommandClass.ALLOWED,
        script_options=("-c", "--call"),
    ),
    "bunx": Wrapper("--bun"),
    "uvx": Wrapper("--from=<text> -p=<text> --python=<text> -q"),
}
"""Wrappers whose command simply follows; what is not a ``_PASS`` does more than run it."""

RUNNERS: Final[Mapping[tuple[str, str], Wrapper]] = {
    ("uv", "run"): Wrapper(
        "-q --quiet --offline --frozen --locked --no-sync --isolated --active --no-project "
        "--with=<text> --package=<name> --no-dev --dev "
        "-p=<text> --python=<text> --extra=<text> --group=<text> --all-extras",
        level=CommandClass.ALLOWED,
    ),
    ("poetry", "run"): Wrapper(level=CommandClass.ALLOWED),
    ("pipenv", "run"): Wrapper(level=CommandClass.ALLOWED),
    ("pdm", "run"): Wrapper(level=CommandClass.ALLOWED),
    ("hatch", "run"): Wrapper(),
    ("bundle", "exec"): Wrapper(level=CommandClass.ALLOWED),
    ("conda", "run"): Wrapper(
        "-n=<text> --name=<text> -p=<path> --no-capture-output --live-stream"
    ),
    ("npm", "exec"): Wrapper("-y --yes -c=<text> --call=<text>", script_options=("-c", "--call")),
    ("npm", "x"): Wrapper("-y --yes -c=<text> --call=<text>", script_options=("-c", "--call")),
    ("yarn", "dlx"): Wrapper("-p=<text> -q"),
    ("yarn", "exec"): Wrapper(),
    ("pnpm", "exec"): Wrapper("-r"),
    ("pnpm", "dlx"): Wrapper(),
    ("pipx", "run"): Wrapper("--spec=<text>"),
    ("rye", "run"): Wrapper(level=CommandClass.ALLOWED),
    ("pixi", "run"): Wrapper(),
    ("rustup", "run"): Wrapper(skip=1),
    ("direnv", "exec"): Wrapper(skip=1),
    ("mise", "exec"): Wrapper(),
    ("asdf", "exec"): Wrapper(),
}
"""Programs of which one subcommand is a wrapper; those of ``ALLOWED`` run what the project pins."""


PRIVILEGE: Final = frozenset(
    {
        *("sudo", "sudoedit", "doas", "su", "runuser", "pkexec", "run0", "gosu", "su-exec", "sg"),
        *("setpriv", "capsh", "newgrp", "setuidgid", "please", "calife", "super"),
    }
)
CONTAINMENT: Final = frozenset(
    {
        *("nsenter", "unshare", "chroot", "bwrap", "firejail", "proot", "systemd-run", "at"),
        *("machinectl", "systemd-nspawn", "batch", "crontab", "tmux", "screen", "lxc-attach"),
        *("lxc-execute",),
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


def peel_wrapper(name: str, words: Sequence[Word]) -> UnwrappedCommand | None:
    """Return what a wrapper would run, or ``None`` when the program is none."""
    if name in PRIVILEGE:
        return _peel_privilege(name, words)
    if name in CONTAINMENT:
        return UnwrappedCommand(
            forbidden("command.containment", f"{name} runs things outside the sandbox")
        )
    second = words[1].text if len(words) > 1 else None
    if name in _CONTAINERS and any(word.text in _CONTAINER_WORDS for word in words[1:]):
        return UnwrappedCommand(
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
    from coilclaw.policy.commands.interpreters import SHELLS

    named = {"env", "eval", "exec", "source", ".", "coreutils", "trap"}
    tables = (SHELLS, PRIVILEGE, CONTAINMENT, WRAPPERS, named)
    return any(name in table for table in tables) or (name, second) in RUNNERS


def _peel_privilege(name: str, words: Sequence[Word]) -> UnwrappedCommand:
    """Forbidden as it is; what it would run is looked at so that the reason can name the worst."""
    line = read_line(words[1:], option_table(_SUDO), stop=True)
    rest = tuple(operand.word for operand in line.operands)
    floor = forbidden("command.privilege", f"{name} runs things as another user")
    return UnwrappedCommand(
        floor,
        commands=(rest,) if rest and name not in _TAKES_A_USER else (),
        scripts=line.values("-c", "--command"),
    )


def _peel(name: str, wrapper: Wrapper, words: Sequence[Word]) -> UnwrappedCommand:
    table = option_table(wrapper.options, wrapper.refused)
    line = read_line(words, table, stop=True)
    refused = [each.option.name for each in line.given if each.option.refused]
    if line.problems and len(line.problems) > len(refused):
        return refuse_unclear(f"what {name} would run cannot be told: {line.problems[0]}")
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
        return UnwrappedCommand(floor, scripts=(*scripts, join_words(_before_lists(rest))))
    if name == "flock" and rest and rest[0].text in {"-c", "--command"}:
        return UnwrappedCommand(floor, scripts=tuple(rest[1:2]))
    if name == "xargs":
        return UnwrappedCommand(
            floor, commands=(rest or (Word("echo", "echo"),),), passes_input=False
        )
    if name == "parallel":
        return refuse_unclear("parallel takes its commands from its input")
    return UnwrappedCommand(floor, commands=(rest,) if rest else (), scripts=scripts)


def _before_lists(words: Sequence[Word]) -> Sequence[Word]:
    """Leave out the argument lists of ``parallel``."""
    for index, word in enumerate(words):
        if word.text in {":::", "::::", ":::+", "::::+"}:
            return words[:index]
    return words


def _peel_env(words: Sequence[Word]) -> UnwrappedCommand:
    table = option_table(
        "-i --ignore-environment -0 --null -u=<text> --unset=<text> -C=<path> --chdir=<path> "
        "-S=<text> --split-string=<text> -v --debug --block-signal[=<text>] "
        "--default-signal[=<text>] --ignore-signal[=<text>] --list-signal-handling"
    )
    line = read_line(words[1:], table, stop=True)
    if line.problems:
        return refuse_unclear(f"what env would run cannot be told: {line.problems[0]}")
    rest = [operand.word for operand in line.operands]
    split = line.values("-S", "--split-string")
    if split:
        text = split[0].text
        if len(split) > 1 or text is None or not _PLAIN_TEXT.fullmatch(text):
            return refuse_unclear("what env makes of its -S text cannot be told")
        rest = [*(Word(part, part) for part in text.split()), *rest]
    return _past_assignments(rest, line)


def _past_assignments(rest: list[Word], line: CommandLine) -> UnwrappedCommand:
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
        return UnwrappedCommand(
            other("command.other", "env shows the whole environment"),
            assignments=tuple(assignments),
        )
    directory = next(iter(line.values("-C", "--chdir")), None)
    return UnwrappedCommand(
        floor, commands=(tuple(rest[index:]),), assignments=tuple(assignments), directory=directory
    )


def _peel_loader(name: str, words: Sequence[Word]) -> UnwrappedCommand:
    """Programs that are told in an option or an operand which program to be."""
    for index, word in enumerate(words[1:], start=1):
        text = word.text or ""
        if text.startswith("--coreutils-prog"):
            applet = text.partition("=")[2]
            return UnwrappedCommand(
                other("command.wrapper", f"{name} stands in for another program"),
                commands=((Word(applet, applet), *words[index + 1 :]),),
            )
        if not text.startswith("-"):
            return UnwrappedCommand(
                other("command.wrapper", f"{name} loads another program"),
                commands=(tuple(words[index:]),),
            )
    return refuse_unclear(f"what {name} would run cannot be told")
