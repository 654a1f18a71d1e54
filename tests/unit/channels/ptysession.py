"""A program at a real terminal, with somebody typing."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.children import PATIENCE_S
from tests.support.repository import ROOT

WORLD = Path(__file__).parent / "world.py"


def _own_terminal() -> None:
    """Make the terminal the one whose keys send signals to the program."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class PtySession:
    """Runs the world with its standard streams on a terminal of its own."""

    def __init__(
        self,
        *arguments: str,
        term: str = "xterm",
        columns: int = 80,
        stderr: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.seen = ""
        self._at = 0
        self._master, slave = os.openpty()
        self.resize(columns, 24)
        keep = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "INPUTRC": "/dev/null",
        }
        errors = open(stderr, "wb") if stderr else None  # noqa: SIM115 - handed to the child
        self.process = subprocess.Popen(
            [sys.executable, "-X", "utf8", str(WORLD), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=errors or slave,
            env={**keep, "TERM": term, **(environment or {})},
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - nothing else runs between fork and exec
        )
        if errors:
            errors.close()
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self, expected: str) -> str:
        """Press Ctrl-C, and wait as ``expect`` does.

        The line editor may miss a signal that comes between its prompt and its waiting for keys, so
        it is pressed again, as a person would.
        """
        for _ in range(int(PATIENCE_S)):
            self.send("\x03")
            with suppress(AssertionError):
                return self.expect(expected, patience_s=1.0)
        return self.expect(expected)

    def expect(self, text: str, *, patience_s: float = PATIENCE_S) -> str:
        """Wait for text that was not waited for yet; return all that came up to its end."""
        until = time.monotonic() + patience_s
        while text not in self.seen[self._at :]:
            if not self._read(until):
                raise AssertionError(f"{text!r} did not come; this did:\n{self.seen[self._at :]!r}")
        begin = self._at
        self._at = self.seen.index(text, begin) + len(text)
        return self.seen[begin : self._at]

    def end(self) -> int:
        """Wait until the program has ended and everything is read; return its exit status."""
        until = time.monotonic() + PATIENCE_S
        while self._read(until):
            pass
        return self.process.wait(PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        data = b""
        with suppress(OSError):  # the other side is closed
            data = os.read(self._master, 65536)
        self.seen += data.decode("utf-8", "replace")
        return bool(data)
