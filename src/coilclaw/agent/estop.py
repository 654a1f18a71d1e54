"""The emergency stop: a file in the home that every process checks before and during a call."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EnvironmentFault,
    Stopped,
    explain_os_errors,
    sync_directory,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.workspace import Cancellation

_log = logging.getLogger(__name__)

ESTOP_FILE: Final = "ESTOP"
ESTOP_RULE: Final = "estop"
ESTOP_REASON: Final = "the emergency stop is set"
ESTOP_HINT: Final = "'coilclaw estop --clear' lets tools run again"
LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Estop:
    """The switch: any entry at its path, even an unreadable one, means stop."""

    path: Path
    reason: str = ESTOP_REASON
    """The reason that stopped calls report."""
    look_every_s: float = LOOK_EVERY_S

    @classmethod
    def of(cls, home: Path) -> Estop:
        return cls(home / ESTOP_FILE)

    @property
    def set(self) -> bool:
        try:
            self.path.lstat()
        except OSError as problem:
            return not isinstance(problem, FileNotFoundError)
        return True

    def require_clear(self, what: str) -> Estop:
        """Return the switch; refuse to begin ``what`` while it is set."""
        if self.set:
            message = f"the emergency stop is set, so no {what} goes on"
            raise Stopped(message, rule=ESTOP_RULE, hint="clear it with 'coilclaw estop --clear'")
        return self

    def trigger(self, reason: str, *, log_level: int = logging.WARNING) -> None:
        """Stop every tool call of every process until ``clear`` is called."""
        with explain_os_errors(f"create {self.path}", rule="estop.create"):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                write_atomic(self.path, f"{reason}\n".encode("utf-8", "replace"), mode=0o600)
            except (OSError, EnvironmentFault):
                # A full disk still has room for a name, and the name alone is enough.
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
                sync_directory(self.path.parent)
        _log.log(log_level, "estop triggered: %s", reason, extra={"event": "estop_triggered"})

    def clear(self) -> bool:
        """Let tools run again; return whether the stop was set."""
        with explain_os_errors(f"remove {self.path}", rule="estop.clear"):
            try:
                self.path.unlink()
            except FileNotFoundError:
                return False
        sync_directory(self.path.parent)
        return True

    @contextmanager
    def watch_call(self, cancel: Cancellation, timeout_s: float) -> Iterator[None]:
        """Cancel when the stop is set or the time is up, for the duration of the block."""
        done = threading.Event()
        deadline = time.monotonic() + timeout_s

        def look() -> None:
            while not done.wait(self.look_every_s):
                if self.set:
                    cancel.cancel(self.reason)
                    return
                if time.monotonic() > deadline:
                    cancel.cancel(f"the tool took longer than {timeout_s:g} s")
                    return

        watcher = threading.Thread(target=look, name="estop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
