"""What a turn reports to the gateway, and what is known of the chain of receipts."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.agent import TurnOutcome
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.served_agent import ServedAgent
    from coilclaw.kernel import Json


@dataclass(frozen=True, slots=True)
class DraftedText:
    """A piece of text; the answer is the one that ``final`` carries."""

    name: ClassVar[str] = "draft"
    text: str


@dataclass(frozen=True, slots=True)
class ToolRequested:
    """The model asks for a call; nothing is decided yet."""

    name: ClassVar[str] = "tool_request"
    call_id: str
    tool: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """What became of a call."""

    name: ClassVar[str] = "tool_result"
    call_id: str
    tool: str
    success: bool
    status: str
    output: str
    error: str | None
    receipt_id: str | None


@dataclass(frozen=True, slots=True)
class ApprovalPending:
    """The turn waits for an answer at ``/approvals``."""

    name: ClassVar[str] = "approval"
    id: str
    kind: str
    title: str


Part: TypeAlias = DraftedText | ToolRequested | ToolAnswered | ApprovalPending


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A turn that came to its end; tokens are known only where the provider tells."""

    outcome: TurnOutcome
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChainState:
    """What the last verification of the receipts found."""

    valid: bool
    receipts: int
    open_intents: int
    unsettled: int = 0
    """Calls that a crash ended and that are not settled."""


@dataclass(frozen=True, slots=True)
class TurnTerms:
    """For whom a turn runs, and how long its calls wait for an approval."""

    client: Client
    wait_s: float | None = None
    """``None`` for as long as an approval lasts; at 0 every request is refused at once."""
    pending: Callable[[ApprovalPending], None] | None = None
    """Told of each approval that the turn waits for, beside those who follow its parts."""


_log = logging.getLogger(__name__)

LEAST_PAUSE_S: Final = 5.0
PAUSE_FACTOR: Final = 20.0
"""A verification of so many seconds is not repeated for this many times as long."""


class ChainWatch:
    """Remembers what the last verification found; a look begins another when there is news."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._mutex = threading.Lock()
        self._state: ChainState | None = None
        self._size = -1
        self._not_before = 0.0
        self._busy = False

    def look(self) -> ChainState | None:
        """Return what is known, without waiting; ``None`` before anything was verified."""
        size = self._agent.receipts_size()
        with self._mutex:
            if not self._busy and size != self._size and time.monotonic() >= self._not_before:
                self._busy = True
                self._size = size
                threading.Thread(target=self._verify, name="verify", daemon=True).start()
            return self._state

    def _verify(self) -> None:
        began = time.monotonic()
        try:
            found = self._agent.verify_receipts()
        except (CoilClawError, OSError):
            _log.exception("the receipts could not be verified", extra={"event": "verify_fault"})
            found = ChainState(valid=False, receipts=0, open_intents=0)
        took = time.monotonic() - began
        with self._mutex:
            self._state = found
            self._not_before = time.monotonic() + max(LEAST_PAUSE_S, took * PAUSE_FACTOR)
            self._busy = False
        if not found.valid:
            _log.error("the chain of receipts is broken", extra={"event": "receipts_broken"})
