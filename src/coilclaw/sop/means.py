"""What a run works with: the ways to a tool, to a model, to a person and to the evidence."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.domain.messages import Json, ToolCall
    from coilclaw.domain.toolcalls import Approve, ToolResult
    from coilclaw.domain.turns import TurnRecord
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.runtime.approvals import Desk, Question
    from coilclaw.runtime.estop import Estop
    from coilclaw.runtime.handle import TurnOutcome
    from coilclaw.tools.contract import Tool


class Call(Protocol):
    """Takes a call through the guard; ``approve`` is whom the guard asks."""

    def __call__(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class Means:
    """Everything that the engine does goes through one of these."""

    tools: Mapping[str, Tool]
    call: Call
    turn: Callable[[str, str], TurnOutcome]
    """Runs one turn: the message, and the conversation that it is said in."""
    said: Callable[[str], Sequence[TurnRecord]]
    """What a conversation holds."""
    in_place: Callable[[str, Mapping[str, Json]], bool | None]
    """Whether a call of a tool has had its effect, where one can look; ``None`` where not."""
    book: ReceiptBook | None
    estop: Estop
    desk: Desk
    approve: Approve | None
    """Asks the person at the terminal about a call; ``None`` when there is none."""
    confirm: Callable[[Question], bool | None] | None
    """The same for an approval stage; ``None`` as an answer is: not now."""
    halt: Callable[[str], None] = field(default=lambda _: None)
    """Ends every call that runs."""
    stopped: Callable[[], str | None] = field(default=lambda: None)
    """Why the run has to stop, once it has to."""
    pause: Callable[[float], None] = field(default=time.sleep)
    """Waits between two looks, where something is waited for."""
