"""``Scope``: where a handler runs, for how long, and what it has started and said."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.environments.results import MAX_LOG
from coilclaw.errors import UsageError
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.environments.slots import Slot
    from coilclaw.workspace.sandbox import SandboxSupport

_KEPT: Final = 4 * MAX_LOG
_scope: ContextVar[Scope] = ContextVar("scope")


class Running(Protocol):
    """A program that was started and has to end with its scope."""

    def kill(self) -> None: ...


class ScopeOver(Exception):
    """The time of a handler is up; whatever it tries next ends it."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Scope:
    """One call of one handler."""

    session: Path
    """The submission as it was built."""
    directory: Path
    """Where programs may write: the case's own, or while it is being built, the session."""
    temporary: Path
    """The home and the temporary files of programs; made when one is started."""
    support: SandboxSupport
    timeout_s: float
    hidden: tuple[Path, ...] = ()
    slot: Slot | None = None
    """Where the cases run among which this is one, if it is."""
    began: float = field(default_factory=time.monotonic)
    cancel: Cancellation = field(default_factory=Cancellation)
    started: list[Running] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    size: int = 0
    covers: int = 0

    def remaining(self) -> float:
        """Seconds left; with none left it is over."""
        left = self.began + self.timeout_s - time.monotonic()
        if left <= 0 or self.cancel.cancelled:
            raise ScopeOver
        return left

    @property
    def apart(self) -> Path:
        """A place of the judge's own, which programs do not see."""
        above = self.slot.apart if self.slot is not None else self.temporary.parent
        return above / f"{self.temporary.name}.apart"

    def hide(self, path: Path) -> None:
        """Keep a place from the programs that are started from now on."""
        if path not in self.hidden:
            self.hidden = (*self.hidden, path)

    def say(self, text: str) -> None:
        """Add to the log, which keeps its beginning."""
        room = _KEPT - self.size
        if room > 0:
            self.said.append(text[:room])
            self.size += len(text[:room])

    def log(self) -> str:
        return "".join(self.said)

    def end(self) -> None:
        """End everything that was started in it."""
        self.cancel.cancel("the case is over")
        while self.started:
            self.started.pop().kill()


def current() -> Scope:
    """The scope of the handler that is running."""
    try:
        return _scope.get()
    except LookupError:
        raise UsageError(
            "this is for a setup, a test or a teardown that is running", rule="environment.scope"
        ) from None


def talking() -> Scope | None:
    """The scope that what is printed now belongs to."""
    return _scope.get(None)


@contextmanager
def entered(scope: Scope) -> Iterator[Scope]:
    """Run a handler in a scope, and leave nothing of it behind."""
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)
        scope.end()
