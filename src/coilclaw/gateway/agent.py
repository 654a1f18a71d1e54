"""What the gateway needs of the runtime; ``app`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.domain.messages import Json, ToolSpec
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.parts import ApprovalPending, Part
    from coilclaw.memory.store import Memory
    from coilclaw.runtime.approvals import Desk
    from coilclaw.runtime.estop import Estop
    from coilclaw.runtime.handle import TurnOutcome


@dataclass(frozen=True, slots=True)
class Finished:
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
    """``None`` for as long as an approval lasts; at 0 nobody is asked, and the answer is no."""
    pending: Callable[[ApprovalPending], None] | None = None
    """Told of each approval that the turn waits for, beside those who follow its parts."""


class Agent(Protocol):
    """The runtime, safe to be used by many threads."""

    @property
    def memory(self) -> Memory: ...

    @property
    def desk(self) -> Desk: ...

    @property
    def estop(self) -> Estop: ...

    def turn(
        self,
        message: str,
        conversation_id: str,
        *,
        terms: TurnTerms,
        new: bool = False,
        listen: Callable[[Part], None] | None = None,
    ) -> Finished:
        """Run one turn in this thread; ``listen`` is told its parts.

        ``new`` says that nobody else can know this conversation.
        """

    def resume(self, conversation_id: str, terms: TurnTerms) -> Finished | None:
        """Finish the turn that the end of a program left open; ``None`` where there is none."""

    def open_conversations(self) -> tuple[str, ...]:
        """Return the conversations whose turn waited for an approval when a program ended."""

    def halt(self, reason: str) -> frozenset[str]:
        """Cancel all turns that run, and let none begin: their calls end, their receipts follow.

        Return the conversations that wait for a model: nothing of theirs is left to put in order.
        """

    def tools(self) -> tuple[ToolSpec, ...]: ...

    def receipts(self, limit: int) -> Sequence[Mapping[str, object]]: ...

    def describe(self) -> Mapping[str, Json]:
        """Provider, model and policy in force."""

    def verify_receipts(self) -> ChainState:
        """Replay the chain, which may take long; one without any receipt holds."""

    def receipts_size(self) -> int:
        """How long the logs of receipts are, so that one can tell whether to verify again."""
