"""The user's service manager: install our unit there, start it, ask after it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import DeniedError, EnvironmentFault, UsageError, sync_directory, write_atomic
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.workspace import ProcessResult

TIMEOUT_S: Final = 60.0
FOLLOW_S: Final = 7 * 24 * 3600.0
MAX_UNIT_BYTES: Final = 2**20

_PASSED: Final = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_TEXTS: Final = {
    "load": "LoadState",
    "active": "ActiveState",
    "sub": "SubState",
    "enabled": "UnitFileState",
    "result": "Result",
}
_NUMBERS: Final = {"pid": "MainPID", "restarts": "NRestarts"}
"""Fields of the status, and what the manager calls them."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What is installed, and what the manager says of it."""

    path: Path
    installed: bool
    edited: bool
    """Whether the file is not as we wrote it."""
    reachable: bool
    """Whether a service manager answered."""
    load: str = ""
    active: str = ""
    sub: str = ""
    enabled: str = ""
    pid: int = 0
    restarts: int = 0
    result: str = ""

    @property
    def running(self) -> bool:
        return self.active == "active"


class Systemd:
    """``systemctl --user`` for our one unit. Making it touches nothing."""

    def __init__(self, user_home: Path, environ: Mapping[str, str]) -> None:
        self.folder = user_home / ".config" / "systemd" / "user"
        self.path = self.folder / NAME
        self._user_home = user_home
        # What systemctl needs to find the manager; keys and tokens of ours are not among it.
        kept = {name: environ[name] for name in _PASSED if name in environ}
        kept.setdefault("PATH", os.defpath)
        usual = f"/run/user/{os.getuid()}"
        if "XDG_RUNTIME_DIR" not in kept and os.path.isdir(usual):
            kept["XDG_RUNTIME_DIR"] = usual
        fixed = {"HOME": str(user_home), "LANG": "C.UTF-8", "SYSTEMD_COLORS": "0"}
        self._env = {**kept, **fixed}

    def install(self, unit: Unit, *, force: bool = False, offline: bool = False) -> bool:
        """Write and enable the unit; say whether anything had to be written.

        ``offline`` needs no running manager. A unit that was changed stays, unless forced.
        """
        text = unit.text()
        self._require(offline=offline)
        written = self._current() != text
        if written:
            self._refuse_edited(force=force)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, text.encode("utf-8"), mode=0o644)
        if not offline:
            self._do("daemon-reload")
        self._do("enable", NAME)
        return written

    def uninstall(self, *, force: bool = False) -> bool:
        """Stop, disable and remove the unit; say whether there was one."""
        if not os.path.lexists(self.path):
            return False
        self._refuse_edited(force=force)
        self._program()
        reachable = self._reachable()
        self._do("disable", *(["--now"] if reachable else []), NAME)
        self.path.unlink()
        sync_directory(self.folder)
        if reachable:
            self._do("daemon-reload")
            # A unit that had failed would be listed for ever.
            self._ask("reset-failed", NAME)
        return True

    def start(self) -> None:
        self._require_installed()
        self._do("start", NAME)

    def stop(self) -> None:
        self._require_installed()
        self._do("stop", NAME)

    def status(self) -> ServiceStatus:
        """Look, and change nothing."""
        current = self._current()
        installed = os.path.lexists(self.path)
        edited = installed and (current is None or not is_ours(current))
        asked = (f"--property={name}" for name in (*_TEXTS.values(), *_NUMBERS.values()))
        found = which("systemctl", path=self._env["PATH"]) is not None
        shown = self._ask("show", NAME, *asked) if found else None
        if shown is None or not shown.ok:
            return ServiceStatus(self.path, installed, edited, reachable=False)
        facts = dict(
            line.split("=", 1)
            for line in shown.stdout.data.decode("utf-8", "replace").splitlines()
            if "=" in line
        )
        said: dict[str, Any] = {field: facts.get(name, "") for field, name in _TEXTS.items()}
        for field, name in _NUMBERS.items():
            said[field] = int(facts[name]) if facts.get(name, "").isdigit() else 0
        return ServiceStatus(self.path, installed, edited, reachable=True, **said)

    def logs(self, lines: int, *, follow: bool, show: Callable[[bytes], None]) -> None:
        """Show what the service wrote last; ``follow`` continues until it is stopped."""
        argv = ["journalctl", "--user", "--unit", NAME, "--lines", str(lines), "--no-pager"]
        if which("journalctl", path=self._env["PATH"]) is None:
            raise _missing("journalctl")
        done = command.run(
            [*argv, "--follow"] if follow else argv,
            cwd=self._user_home,
            timeout_s=FOLLOW_S if follow else TIMEOUT_S,
            env=self._env,
            observe=show,
        )
        if not done.ok and not follow:
            raise _failed_error("journalctl", done)

    def _current(self) -> str | None:
        """The unit as it is; ``None`` where there is none that we could have written."""
        if self.path.is_symlink() or not self.path.is_file():
            return None
        with self.path.open("rb") as file:
            data = file.read(MAX_UNIT_BYTES + 1)
        return data.decode("utf-8", "surrogateescape")

    def _refuse_edited(self, *, force: bool) -> None:
        current = self._current()
        if force or not os.path.lexists(self.path) or (current is not None and is_ours(current)):
            return
        raise DeniedError(
            f"{self.path} is not as we wrote it",
            rule="service.edited",
            hint="move your changes to a drop-in (systemctl --user edit coilclaw), or use --force",
        )

    def _require(self, *, offline: bool) -> None:
        """Refuse before anything is written where nothing could come of it."""
        self._program()
        if not offline and not self._reachable():
            raise EnvironmentFault(
                "no service manager of this user answers",
                rule="service.unreachable",
                hint="log in normally, or 'loginctl enable-linger'; --offline installs for later",
            )

    def _program(self) -> None:
        if which("systemctl", path=self._env["PATH"]) is None:
            raise _missing("systemctl")

    def _require_installed(self) -> None:
        self._require(offline=False)
        if not os.path.lexists(self.path):
            raise EnvironmentFault(
                f"there is no {self.path}",
                rule="service.missing",
                hint="'coilclaw service install' writes it",
            )

    def _reachable(self) -> bool:
        return self._ask("show", "--property=Version").ok

    def _do(self, *words: str) -> None:
        done = self._ask(*words)
        if not done.ok:
            raise _failed_error(f"systemctl --user {' '.join(words)}", done)

    def _ask(self, *words: str) -> ProcessResult:
        argv = ["systemctl", "--user", "--no-pager", "--no-ask-password", *words]
        return command.run(argv, cwd=self._user_home, timeout_s=TIMEOUT_S, env=self._env)


def _missing(program: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"this machine has no {program}, and services are run by systemd only",
        rule="service.systemd",
        hint="run 'coilclaw serve' under the service manager you have",
    )


def _failed_error(what: str, done: ProcessResult) -> EnvironmentFault:
    said = (done.stderr.data or done.stdout.data).decode("utf-8", "replace").strip()
    return EnvironmentFault(
        f"{what} failed ({done.outcome}, {done.exit_code}): {said[:500]}", rule="service.failed"
    )


def program(called: str, interpreter: str) -> tuple[str, ...]:
    """Return the words that start this program again; ``called`` is how it was started now."""
    path = Path(os.path.abspath(called))
    if not path.is_file() or path.name == "__main__.py":
        return os.path.abspath(interpreter), "-m", "coilclaw"
    if os.access(path, os.X_OK):
        return (str(path),)
    return os.path.abspath(interpreter), str(path)


NAME: Final = "coilclaw.service"
PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - what the unit hides, not uses
_MARK: Final = "# Written by 'coilclaw service install'. Changes go into a drop-in: "
_MARKED: Final = re.compile(
    r"\A" + re.escape(_MARK) + r"systemctl --user edit coilclaw\n# sha256 ([0-9a-f]{64})\n"
)

_UNSAFE: Final = "\"'\\"
_HARDENING: Final = """\
UMask=0077
NoNewPrivileges=yes
PrivateUsers=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectControlGroups=yes
ProtectKernelModules=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service @mount
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""
_LIMITS: Final = """\
LimitCORE=0
LimitNOFILE=8192
TasksMax=2048
MemoryMax=75%
OOMPolicy=continue
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the service runs, and where it may write."""

    command: tuple[str, ...]
    home: Path
    workspace: Path
    jit: bool = False
    """Whether memory may be writable and executable at once, as node and java need it."""

    def text(self) -> str:
        """Return the whole file, with the mark that tells whether it was changed since."""
        self._check()
        writable = " ".join(
            quote_word(str(path)) for path in dict.fromkeys((self.home, self.workspace))
        )
        # A colon keeps '$' in the words as it is.
        words = " ".join(
            quote_word(f":{word}" if index == 0 else word)
            for index, word in enumerate(self.command)
        )
        jit = "" if self.jit else "MemoryDenyWriteExecute=yes\n"
        home = quote_word(f"COILCLAW_HOME={self.home}")
        body = (
            "[Unit]\n"
            "Description=CoilClaw, a governed agent runtime\n"
            "StartLimitIntervalSec=60\n"
            "StartLimitBurst=5\n"
            "\n[Service]\n"
            "Type=exec\n"
            f"ExecStart={words}\n"
            f"Environment={home}\n"
            "Restart=on-failure\n"
            "RestartSec=1\n"
            "TimeoutStopSec=30\n"
            "KillMode=mixed\n"
            f"{_HARDENING}{jit}"
            f"ReadWritePaths={writable}\n"
            f"{_LIMITS}"
            "\n[Install]\n"
            "WantedBy=default.target\n"
        )
        return f"{_MARK}systemctl --user edit coilclaw\n# sha256 {_hash(body)}\n{body}"

    def _check(self) -> None:
        """Refuse what the manager would not start, and what the service could not see."""
        if any(char in _UNSAFE for char in self.command[0]):
            raise UsageError(
                f"the program {self.command[0]} has a quote or a backslash in its name, which "
                "systemd does not start",
                rule="service.program",
            )
        named = (("program", self.command[0]), ("home", self.home), ("workspace", self.workspace))
        for what, path in named:
            for hidden in PRIVATE:
                if str(path) == hidden or str(path).startswith(f"{hidden}/"):
                    raise UsageError(
                        f"the {what} {path} is below {hidden}, of which a service has its own",
                        rule="service.private",
                        hint=f"put the {what} somewhere else",
                    )


def quote_word(word: str) -> str:
    """Write one word as the service manager reads it back."""
    if not word.isprintable() and any(ord(char) < 0x20 or ord(char) == 0x7F for char in word):
        raise UsageError(f"{word!r} holds a control character", rule="service.path")
    try:
        word.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(f"{word!r} is not written in UTF-8", rule="service.path") from problem
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{inside}"'


def is_ours(text: str) -> bool:
    """Tell whether a unit is as we wrote it."""
    found = _MARKED.match(text)
    return found is not None and found[1] == _hash(text[found.end() :])


def _hash(body: str) -> str:
    return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
