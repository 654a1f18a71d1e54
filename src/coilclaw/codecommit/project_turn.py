"""Runs in one project take turns: the answers of one are never built with those of another."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.errors import DeniedError, LockTimeout
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from coilclaw.codecommit.interrupts import Interrupts

LOCK: Final = "code-commit.lock"
HOLDER: Final = "code-commit.json"
_LOOK_S: Final = 0.5
"""How long the lock is waited for between two looks at the signals."""


@contextmanager
def take_turn(
    directory: Path, interrupts: Interrupts, tell: Callable[[str, str], None], *, wait: bool
) -> Iterator[None]:
    """Hold the project while its run goes on; wait for another run, or refuse if not to wait."""
    lock = FileLock(directory / LOCK, timeout_s=0)
    try:
        lock.acquire()
    except LockTimeout as problem:
        holder = _holder(directory)
        if not wait:
            raise DeniedError(
                f"another code-commit works in this project: {holder}",
                rule="commit.busy",
                hint="wait until it ends, or leave out --no-wait",
            ) from problem
        tell(f"waiting for another code-commit in this project: {holder}", "yellow")
        lock.timeout_s = _LOOK_S
        _wait(lock, interrupts)
    try:
        record = {
            "pid": os.getpid(),
            "since": datetime.now().astimezone().isoformat("T", "seconds"),
        }
        write_atomic(directory / HOLDER, json.dumps(record).encode("ascii"), sync=False)
        yield
    finally:
        lock.release()


def _wait(lock: FileLock, interrupts: Interrupts) -> None:
    while not lock.held:
        interrupts.check()
        try:
            lock.acquire()
        except LockTimeout:
            continue


def _holder(directory: Path) -> str:
    """Say who holds the project, as far as it said so itself."""
    try:
        record = json.loads((directory / HOLDER).read_bytes())
        return f"process {int(record['pid'])}, since {str(record['since'])[:40]}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has just begun"
