"""How wrappers are written: the options of each, and where the command begins that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import CommandClass

if TYPE_CHECKING:
    from collections.abc import Mapping


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
