"""Messages and their turns, as the event loop sees them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from coilclaw.channels.visible import visible
from coilclaw.errors import CoilClawError
from coilclaw.gateway.agent import Finished
from coilclaw.gateway.faults import refused
from coilclaw.gateway.mailbox import Mailbox
from coilclaw.gateway.parts import Part
from coilclaw.gateway.turns import Job, Turns
from coilclaw.runtime.identity import conversation, new_id

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.gateway.agent import TurnTerms
    from coilclaw.gateway.parts import ApprovalPending

Told: TypeAlias = Part | Finished | CoilClawError
"""What comes out of a turn: its parts, and as the last thing how it ended."""


@dataclass(frozen=True, slots=True)
class Conversing:
    """Hands messages to the threads that run turns.

    A turn does not depend on its client: who goes away finds the answer in the conversation.
    """

    turns: Turns
    queue_parts: int

    async def answer(
        self,
        message: str,
        conversation_id: str | None,
        terms: TurnTerms,
        *,
        waits: bool = True,
    ) -> Finished:
        """Run one turn and return how it ended; an error is raised.

        Without ``waits`` the first approval is such an error, and the turn goes on by itself.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Finished | CoilClawError] = loop.create_future()

        def done(ended: Finished | CoilClawError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve, result, ended)

        name = new_id("conv") if conversation_id is None else conversation(conversation_id)
        if not waits:
            terms = replace(terms, pending=lambda part: done(_waiting(part, name)))
        self.turns.submit(Job(name, message, conversation_id is None, None, done, terms))
        ended = await result
        if isinstance(ended, CoilClawError):
            raise ended
        return ended

    async def stream(
        self, message: str, conversation_id: str | None, terms: TurnTerms
    ) -> tuple[str, Mailbox[Told]]:
        """Begin one turn; return its conversation, and where its parts come."""
        mailbox: Mailbox[Told] = Mailbox(self.queue_parts)
        if conversation_id is None:
            name = new_id("conv")
        else:
            name = conversation(conversation_id)
            # Asked here, where a refusal still has a status of its own.
            await asyncio.to_thread(self.turns.check_owner, name, terms.client)
        self.turns.submit(
            Job(name, message, conversation_id is None, mailbox.put, mailbox.put_last, terms)
        )
        return name, mailbox


def _waiting(part: ApprovalPending, conversation_id: str) -> CoilClawError:
    return refused(
        "approval.waiting",
        f"the turn waits for approval {part.id}: {visible(part.title)}",
        f"answer it with 'coilclaw approve {part.id}' or POST /approvals; the turn then goes on, "
        f"and its answer is at GET /conversations/{conversation_id}",
    )


def _resolve(
    future: asyncio.Future[Finished | CoilClawError], ended: Finished | CoilClawError
) -> None:
    if not future.done():
        future.set_result(ended)


def outcome_fields(finished: Finished) -> dict[str, Json]:
    """Return how a turn ended, as JSON."""
    outcome = finished.outcome
    return {
        "conversation_id": outcome.conversation_id,
        "turn_id": outcome.turn_id,
        "text": outcome.text,
        "tool_rounds": outcome.tool_rounds,
        "tool_calls": outcome.tool_calls,
        "denials": outcome.denials,
        "provider": outcome.provider,
        "model": outcome.model,
        "exhausted": outcome.exhausted,
    }
