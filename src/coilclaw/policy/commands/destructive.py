"""Commands that destroy: built in, so that no policy file and no level lets them through.

Three looks at a command line: each command by its words, the commands of a line together, and,
for text that is run and cannot be judged word by word, patterns in the text itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import family_name, forbidden
from coilclaw.policy.commands.interpreters import INTERPRETERS, SHELLS
from coilclaw.policy.commands.options import option_table, read_line
from coilclaw.policy.commands.word_paths import check_read, is_real, looks_like_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coilclaw.policy.commands.command_class import Classed
    from coilclaw.policy.commands.word_paths import Scene
    from coilclaw.policy.shell.script import Word

DOWNLOADERS: Final = frozenset(
    {"curl", "wget", "fetch", "aria2c", "http", "https", "lwp-request", "ftp", "nc", "ncat"}
)
_REASONS: Final = {
    "destructive.remove": "removes everything below a directory that holds much more than the task",
    "destructive.format": "makes a file system, or wipes one",
    "destructive.dd": "dd copies raw bytes over files and devices",
    "destructive.forkbomb": "starts processes without end",
    "destructive.power": "stops or restarts the machine",
    "destructive.chmod": "gives everybody the right to write everything",
    "destructive.chown": "gives whole trees to another owner",
    "destructive.download": "runs what it downloads, unseen",
    "destructive.device": "writes to a device",
    "destructive.kill": "ends all processes at once",
}
BUILT_IN: Final = frozenset(_REASONS)

_HOME: Final = re.compile(r"(?:~[\w.-]*|\$HOME|\$\{HOME\}|\$PWD|\$\{PWD\}|`pwd`|\$\(pwd\))(?=/|\Z)")
_ANY_NAME: Final = re.compile(r"[*?.\[\]!^{},]*\*[*?.\[\]!^{},]*")
_LARGE: Final = frozenset({"home", "Users", "usr", "var", "opt"})
_DEVICE: Final = re.compile(
    r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|loop|md|dm-|mapper/|sr|ram|mem|kmem|port|kmsg).*"
    r"|/proc/sysrq-trigger|/proc/(?:sys|kcore|mem).*|/sys/.*"
)
_POWER: Final = frozenset({"shutdown", "reboot", "halt", "poweroff", "kexec", "telinit"})
_POWER_WORDS: Final = {
    **dict.fromkeys(
        ("systemctl", "loginctl"),
        frozenset(
            {"poweroff", "reboot", "halt", "kexec", "suspend", "hibernate", "rescue", "emergency"}
            | {
                "hybrid-sleep",
                "soft-reboot",
                "suspend-then-hibernate",
                "default",
                "isolate",
                "exit",
            }
        ),
    ),
    "init": frozenset({"0", "1", "6", "s", "S"}),
}
_FORMAT: Final = frozenset(
    {"mkfs", "mke2fs", "mkswap", "wipefs", "blkdiscard", "sfdisk", "fdisk", "cfdisk", "gdisk"}
    | {"sgdisk", "parted", "newfs", "hdparm", "cryptsetup", "pvcreate", "zpool", "diskutil"}
)
_OPEN_MODE: Final = re.compile(r"[0-7]{0,3}[2367]|(?:[ugoa,+=rwxXst-]*,)?[ug]*[oa]*[+=][rxXst]*w.*")
_MODE: Final = re.compile(r"-[rwxXst]+")
_TREE: Final = option_table(
    "-R -r -f -i -v -c -d -h -H -L -P -I --recursive --force --interactive[=<text>] --verbose "
    "--dir --one-file-system --no-preserve-root --preserve-root[=<text>] --silent --quiet "
    "--changes --reference=<path> --dereference --no-dereference --from=<text> --help --version"
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One command of a line, as far as the commands together matter."""

    name: str
    words: tuple[Word, ...]
    piped_into: bool
    nested: bool
    targets: tuple[str, ...] = ()
    """What it writes by redirection."""


def destructive_command(words: Sequence[Word]) -> Classed | None:
    """Judge one command, without its wrappers, by its words."""
    name = family_name((words[0].text or "").rpartition("/")[2])
    rule = None
    powers = _POWER_WORDS.get(name, frozenset[str]())
    if name in _POWER or any(word.text in powers for word in words[1:]):
        rule = "destructive.power"
    elif name in _FORMAT or name.partition(".")[0] == "mkfs":
        rule = "destructive.format"
    elif name in {"dd", "gdd"}:
        copies = any(_show_word(word).startswith(("if=", "of=")) for word in words[1:])
        rule = "destructive.dd" if copies else None
    elif name in {"chown", "chgrp"}:
        whole = read_line(words[1:], _TREE).has("-R", "--recursive")
        rule = "destructive.chown" if whole else None
    elif (judge := _BY_NAME.get(name)) is not None:
        rule = judge(words[1:])
    if rule is None and name in {"tee", "cp", "mv", "install", "shred", "truncate", "ln"}:
        rule = (
            "destructive.device" if any(is_device(_show_word(word)) for word in words[1:]) else None
        )
    return None if rule is None else denial(rule, " ".join(_show_word(word) for word in words))


def destructive_line(commands: Iterable[Ran]) -> Classed | None:
    """Judge the commands of one line together: what is downloaded must not be run."""
    ran = list(commands)
    downloads = [each for each in ran if each.name in DOWNLOADERS]
    if downloads:
        downloads += [each for each in ran if each.name == "tee" and each.piped_into]
    for each in ran if downloads else ():
        runs_text = each.name in SHELLS or each.name in _READERS or _runs_input(each)
        program = each.words[0].text or "" if each.words else ""
        started = "/" in program and _plain(program) in _find_written(downloads)
        if started or (runs_text and (each.piped_into or _takes(each, downloads))):
            return denial("destructive.download", f"{downloads[0].name} … {each.name}")
    return None


def destructive_text(text: str) -> Classed | None:
    """Find the worst in text that is run, but not judged word by word."""
    for rule, pattern in _TEXTS:
        found = pattern.search(text)
        if found is not None:
            return denial(rule, found[0].strip())
    return None


def is_broad(path: str) -> bool:
    """Whether a path means a whole home, system or workspace, however it is spelled."""
    bare, at_home = _HOME.subn("", path, count=1)
    absolute = bare.startswith("/") and not at_home
    names: list[str] = []
    for name in bare.split("/"):
        if name == ".." and names and names[-1] != "..":
            names.pop()
        elif name not in {"", "."} and not (name == ".." and absolute):
            names.append(name)
    while names and _ANY_NAME.fullmatch(names[-1]):
        names.pop()
    if absolute:
        return len(names) <= (2 if names[:1] and names[0] in _LARGE else 1)
    return bool(path) and all(name == ".." for name in names)


def is_device(path: str) -> bool:
    return _DEVICE.fullmatch(path) is not None


def denial(rule: str, what: str) -> Classed:
    shown = what if len(what) <= 80 else what[:80] + "…"
    return forbidden(rule, f"{shown!r} {_REASONS[rule]}")


_FILTERS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
_RUNS_DATA: Final = re.compile(
    r"exec|eval|compile|system|popen|spawn|subprocess|child_process|Function|import\s*\(|__|pickle"
    r"|marshal|runpy|require|open|write|load(?!s?\s*\(\s*sys\.stdin)|`",
    re.IGNORECASE,
)
"""What may make a program of the data that it reads."""


def _runs_input(each: Ran) -> bool:
    """Whether an interpreter takes its program from its input, or may run what it reads there."""
    if each.name not in INTERPRETERS or each.name in _FILTERS:
        return False
    texts = [word.text for word in each.words[1:]]
    if " ".join(text or "" for text in texts[:2]) == "-m json.tool":
        return False
    given = texts[:1] == ["-c"] and len(texts) > 1 and each.name in {"python", "pypy"}
    return not given or texts[1] is None or _RUNS_DATA.search(texts[1] or "") is not None


_READERS: Final = frozenset({"eval", "source", "."})


def _show_word(word: Word) -> str:
    return word.raw.replace('"', "") if word.text is None else word.text


def _takes(each: Ran, downloads: Sequence[Ran]) -> bool:
    """Whether a command runs what another one downloads, from a substitution or from a file."""
    if any(word.text is None for word in each.words) and any(d.nested for d in downloads):
        return True
    written = _find_written(downloads)
    return any(word.text is not None and _plain(word.text) in written for word in each.words[1:])


def _find_written(downloads: Sequence[Ran]) -> set[str]:
    """Every word of a download may be the file that it writes, and so may the end of an address."""
    words = {word.text for d in downloads for word in d.words[1:] if word.text}
    words |= {target for d in downloads for target in d.targets}
    ends = {word.rpartition("/")[2] for word in words if "://" in word}
    attached = {word[2:] for word in words if word.startswith("-") and not word.startswith("--")}
    return {_plain(word) for word in words | ends | attached} - {"", "."}


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _removes(words: Sequence[Word]) -> str | None:
    line = read_line(words, _TREE)
    recursive = line.has("-r", "-R", "--recursive")
    if line.has("--no-preserve-root"):
        return "destructive.remove"
    broad = any(is_broad(_show_word(operand.word)) for operand in line.operands)
    devices = any(is_device(_show_word(operand.word)) for operand in line.operands)
    forced = line.has("-f", "--force")
    stars = any(_show_word(operand.word).endswith("*") for operand in line.operands)
    if broad and (recursive or (forced and stars)):
        return "destructive.remove"
    return "destructive.device" if devices else None


def _changes_mode(words: Sequence[Word]) -> str | None:
    # A mode such as ``-w`` looks like an option.
    line = read_line([word for word in words if not _MODE.fullmatch(word.text or "")], _TREE)
    if not line.has("-R", "--recursive") or not line.operands:
        return None
    mode, *targets = [_show_word(operand.word) for operand in line.operands]
    broad = any(is_broad(target) for target in targets)
    return "destructive.chmod" if broad and _OPEN_MODE.fullmatch(mode) else None


def _ends_all(words: Sequence[Word]) -> str | None:
    targets = [word.text for word in words[1:] or words]
    return "destructive.kill" if "-1" in targets[-1:] and len(words) > 1 else None


_BY_NAME: Final[Mapping[str, Callable[[Sequence[Word]], str | None]]] = {
    "rm": _removes,
    "grm": _removes,
    "chmod": _changes_mode,
    "kill": _ends_all,
    "pkill": _ends_all,
}

_START: Final = r"(?:^|[;&|(`'\"!\s/\\])"
_END: Final = r"(?=$|[;&|)`'\"\s\\,])"
_TEXTS: Final = (
    (
        "destructive.remove",
        re.compile(
            _START
            + r"rm['\",\s]+(?:-[\w-]+['\",\s]+)*(?:-\w*[rRf]\w*|--recursive|--force)['\",\s]+"
            r"(?:-[\w-]+['\",\s]+)*(?:/|\*|~|\.\.?|\$HOME)[/*.]*" + _END
        ),
    ),
    ("destructive.format", re.compile(_START + r"mkfs(?:\.\w+)?" + _END)),
    ("destructive.dd", re.compile(_START + r"dd['\",\s]+(?:\S+\s+)*?(?:if|of)=")),
    ("destructive.forkbomb", re.compile(r"([\w:.]+)\s*\(\s*\)\s*\{[^}]*\1\s*\|\s*\1\s*&")),
    ("destructive.forkbomb", re.compile(r"function\s+(\S+)[^{]*\{[^}]*\1\s*\|\s*\1")),
    (
        "destructive.power",
        re.compile(
            r"(?:^|[;&|(`'\"]\s*|\bsystemctl\s+|\bsudo\s+|/)(?:shutdown|reboot|halt|poweroff)"
            r"(?=\s*(?:$|[;&|)`'\"\n])|\s+(?:-|now|\+|\d))"
        ),
    ),
    (
        "destructive.chmod",
        re.compile(
            _START + r"chmod['\",\s]+(?:-\w*R\w*|--recursive)['\",\s]+(?:0?777|a\+rwx)['\",\s]+/"
        ),
    ),
    ("destructive.chown", re.compile(_START + r"chown['\",\s]+(?:-\w*R\w*|--recursive)" + _END)),
    (
        "destructive.download",
        re.compile(
            r"\b(?:curl|wget)\b[^|;&\n]*\|[&\s]*(?:(?:sudo|env|command|exec)\s+)*(?:\S*/)?"
            r"(?:(?:ba|z|da|k|a|fi|c|tc)?sh|python[\d.]*|perl|ruby|node|php)\b"
        ),
    ),
    ("destructive.device", re.compile(r">[>|]?\s*/dev/(?:sd|hd|vd|nvme|mmcblk|disk|mem|kmem)")),
)


MAX_STRINGS: Final = 200
_STRINGS: Final = re.compile(r"\"([^\"\n]{2,4000})\"|'([^'\n]{2,4000})'|`([^`\n]{2,4000})`")
_BARE_PATHS: Final = re.compile(r"(?<![\w./~])/[\w.-]+(?:/[\w.-]+)+")
"""Of paths without quotes only those of two names or more: ``/sys/`` may be a pattern."""
_ALWAYS: Final = frozenset({"path.forbidden", "path.state"})
_COMMAND: Final = r"(?:\A|[\"'`;&|(!]\s*|\n\s*)(?:[\w./-]*/)?({names})(?=[\"'`\s;&|)]|\Z)"


_SPAWNED: Final = (
    r"(?:\bexec|\bspawn|\.shell|\.system|\\!|:!|\bsystem)\s+(?:-\S+\s+)*(?:[\w./-]*/)?({names})"
    r"(?=[\"'`\s;&|)\]]|\Z)"
)
"""Languages that start programs without quotes: Tcl, and the shells of databases and editors."""


def check_code(text: str, scene: Scene) -> list[Classed]:
    """Say what in a program's text is forbidden; silence says nothing about the rest."""
    found = []
    worst = destructive_text(text)
    if worst is not None:
        found.append(worst)
    names = "|".join(map(re.escape, scene.settings.forbidden_commands))
    named = re.search(_COMMAND.format(names=names), text) if names else None
    if named is not None:
        found.append(
            forbidden("command.forbidden", f"the program text names {named[1]!r} as a command")
        )
    spawned = re.search(_SPAWNED.format(names=names), text) if names else None
    if spawned is not None:
        found.append(forbidden("command.forbidden", f"the program text would start {spawned[1]!r}"))
    return [*found, *_paths(text, scene)]


def _paths(text: str, scene: Scene) -> list[Classed]:
    found = []
    for index, match in enumerate(_STRINGS.finditer(text)):
        value = next(group for group in match.groups() if group is not None)
        if index >= MAX_STRINGS:
            break
        for piece in dict.fromkeys((value, *value.split())):
            if looks_like_path(piece) and piece != "/" and is_real(piece, scene):
                found += [each for each in check_read(piece, scene) if each.forbidden]
    for bare in dict.fromkeys(_BARE_PATHS.findall(text)[:MAX_STRINGS]):
        found += [each for each in check_read(bare, scene) if each.rule in _ALWAYS]
    return found
