"""A person with a home directory, a terminal and the installed executable."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("coilclaw"))


@dataclass(frozen=True)
class User:
    """A person with a home directory and the executable."""

    directory: Path
    program: str = PROGRAM

    @property
    def home(self) -> Path:
        return self.directory / ".coilclaw"

    @property
    def workspace(self) -> Path:
        return self.directory / "coilclaw-workspace"

    @property
    def receipts(self) -> Path:
        return self.home / "tool_receipts.log"

    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.directory), "TERM": "dumb"}

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments],
            env={**self.env(), **more},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def good(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def scripted(self, *answers: object, config: str = "") -> None:
        """Set up with ``init``, then let the model answer by script."""
        self.good("init")
        (self.home / "fixture.json").write_text(json.dumps(list(answers)))
        (self.home / "config.toml").write_text(
            'default_provider = "local"\n'
            f'[providers.models.local]\nkind = "mock"\nmodel = "mock"\n'
            f'fixture = "{self.home}/fixture.json"\n{config}'
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start without waiting."""
        return subprocess.Popen(
            [PROGRAM, *arguments],
            env=self.env(),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_terminal(self, *arguments: str) -> Terminal:
        """Start at a terminal of its own."""
        return Terminal([PROGRAM, *arguments], self.env(), self.directory)

    def answering(self, reply: str, *arguments: str) -> tuple[int, str]:
        """Run at a terminal and type ``reply`` when asked for approval."""
        terminal = self.at_terminal(*arguments)
        terminal.until("Approve? [")
        # What was typed before the question is thrown away, as it must be.
        time.sleep(0.2)
        terminal.type(reply)
        return terminal.ended(), terminal.seen

    def statuses(self) -> list[tuple[object, object]]:
        listed = json.loads(self.good("receipt", "list", "--json"))
        return [(one["tool"], one["status"]) for one in listed]


class Terminal:
    """A program at a pseudo-terminal."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        self._master, slave = os.openpty()
        self.child = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_controlling,  # noqa: PLW1509 - there are no threads in these tests
        )
        os.close(slave)
        self._raw = b""

    @property
    def seen(self) -> str:
        return self._raw.decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str, *, after: int = 0, patience_s: float = 60) -> None:
        """Wait until ``text`` is seen, behind what was seen so far if ``after`` says so."""
        self._read(lambda: text in self.seen[after:], patience_s)
        assert text in self.seen[after:], self.seen

    def ended(self, patience_s: float = 60) -> int:
        """Wait for the end and return the exit code."""
        self._read(lambda: False, patience_s)
        os.close(self._master)
        return self.child.wait(timeout=patience_s)

    def _read(self, enough: Callable[[], bool], patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while not enough() and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    piece = os.read(self._master, 65536)
                except OSError:
                    return
                if not piece:
                    return
                self._raw += piece


def _controlling() -> None:
    """Make the terminal the one whose Ctrl-C reaches us."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
