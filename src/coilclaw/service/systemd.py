"""The user's service manager: install our unit there, start it, ask after it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from shutil import which
from typing import TYPE_CHECKING, Final

from coilclaw.errors import DeniedError, EnvironmentFault
from coilclaw.service.unit import NAME, is_ours
from coilclaw.storage.atomic import sync_directory, write_atomic
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.service.unit import Unit
    from coilclaw.workspace.process import ProcessResult

TIMEOUT_S: Final = 60.0
FOLLOW_S: Final = 7 * 24 * 3600.0
MAX_UNIT_BYTES: Final = 2**20

_PASSED: Final = ("PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_SHOWN: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "Result",
)


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
        self._env = _environment(user_home, environ)

    def install(self, unit: Unit, *, force: bool = False, offline: bool = False) -> bool:
        """Write and enable the unit; say whether anything had to be written.

        ``offline`` needs no running manager. A unit that somebody changed stays, unless forced.
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
        if which("systemctl", path=self._env["PATH"]) is None:
            return ServiceStatus(self.path, installed, edited, reachable=False)
        shown = self._ask("show", NAME, *(f"--property={name}" for name in _SHOWN))
        if not shown.ok:
            return ServiceStatus(self.path, installed, edited, reachable=False)
        facts = dict(
            line.split("=", 1)
            for line in shown.stdout.data.decode("utf-8", "replace").splitlines()
            if "=" in line
        )
        return ServiceStatus(
            self.path,
            installed,
            edited,
            reachable=True,
            load=facts.get("LoadState", ""),
            active=facts.get("ActiveState", ""),
            sub=facts.get("SubState", ""),
            enabled=facts.get("UnitFileState", ""),
            pid=_number(facts.get("MainPID")),
            restarts=_number(facts.get("NRestarts")),
            result=facts.get("Result", ""),
        )

    def logs(self, lines: int, *, follow: bool, show: Callable[[bytes], None]) -> None:
        """Show what the service wrote last; ``follow`` goes on until somebody stops it."""
        argv = ["journalctl", "--user", "--unit", NAME, "--lines", str(lines), "--no-pager"]
        if which("journalctl", path=self._env["PATH"]) is None:
            raise _missing("journalctl")
        done = process.run(
            [*argv, "--follow"] if follow else argv,
            cwd=self._user_home,
            timeout_s=FOLLOW_S if follow else TIMEOUT_S,
            env=self._env,
            observe=show,
        )
        if not done.ok and not follow:
            raise _failed("journalctl", done)

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
            raise _failed(f"systemctl --user {' '.join(words)}", done)

    def _ask(self, *words: str) -> ProcessResult:
        argv = ["systemctl", "--user", "--no-pager", "--no-ask-password", *words]
        return process.run(argv, cwd=self._user_home, timeout_s=TIMEOUT_S, env=self._env)


def _environment(user_home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What systemctl needs to find the manager; keys and tokens of ours are not among it."""
    kept = {name: environ[name] for name in _PASSED if name in environ}
    kept["HOME"] = str(user_home)
    kept.setdefault("PATH", os.defpath)
    usual = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in kept and os.path.isdir(usual):
        kept["XDG_RUNTIME_DIR"] = usual
    return {**kept, "LANG": "C.UTF-8", "SYSTEMD_COLORS": "0"}


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _missing(program: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"this machine has no {program}, and services are run by systemd only",
        rule="service.systemd",
        hint="run 'coilclaw serve' under the service manager you have",
    )


def _failed(what: str, done: ProcessResult) -> EnvironmentFault:
    said = (done.stderr.data or done.stdout.data).decode("utf-8", "replace").strip()
    return EnvironmentFault(
        f"{what} failed ({done.outcome}, {done.exit_code}): {said[:500]}", rule="service.failed"
    )
