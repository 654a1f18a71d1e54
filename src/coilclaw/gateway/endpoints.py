"""Our own endpoints: each asks the runtime in a thread, and answers JSON."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.errors import CoilClawError
from coilclaw.gateway import faults
from coilclaw.gateway.agent import Finished, TurnTerms
from coilclaw.gateway.answers import METRICS_TYPE, json_response, text_response
from coilclaw.gateway.conversing import outcome_fields
from coilclaw.gateway.faults import refused
from coilclaw.gateway.mailbox import Mailbox
from coilclaw.gateway.mount import check_role
from coilclaw.gateway.parts import fields as part_fields
from coilclaw.gateway.sse import EventStream, frame
from coilclaw.gateway.turns import resumption
from coilclaw.runtime.identity import conversation as conversation_id
from coilclaw.runtime.open_turns import is_abandoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.agent import Agent
    from coilclaw.gateway.chain import ChainWatch
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.conversing import Conversing, Told
    from coilclaw.gateway.endpoint import Call
    from coilclaw.gateway.feed import Feed
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runs import RunEndpoints
    from coilclaw.runtime.approvals import Approval, Question

DEFAULT_LIMIT: Final = 20
MAX_RECORDS: Final = 1000
"""Newest records of a conversation that are shown."""

Found = TypeVar("Found")


SEARCHES: Final = 2


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Everything but ``/v1``."""

    agent: Agent
    conversing: Conversing
    metrics: Metrics
    feed: Feed
    chain: ChainWatch
    queue_parts: int
    runs: RunEndpoints
    self_approval: bool = False
    """Whether a client may approve what it asked for itself."""
    admits: Callable[[Client], bool] = lambda _: True
    """Tells whether the token of a client still holds."""
    began: float = field(default_factory=time.monotonic)
    searching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SEARCHES))
    """A search may take long; few at once leave threads for everything else."""

    async def health(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        return json_response({"status": "ok"})

    async def whoami(self, call: Call) -> ASGIApp:
        client = call.client
        return json_response(
            {"name": client.name, "role": client.role, "expires": client.expires or None}
        )

    async def status(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        from coilclaw import __version__

        described = await _in_thread(self.agent.describe)
        turns = self.conversing.turns
        return json_response(
            {
                "version": __version__,
                "uptime_s": round(time.monotonic() - self.began, 3),
                **described,
                "estop": self.agent.estop.set,
                "turns_running": turns.running,
                "turns_waiting": turns.waiting,
            }
        )

    async def tools(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        found = await _in_thread(self.agent.tools)
        return json_response(
            {
                "tools": [
                    {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters_schema": dict(tool.parameters_schema),
                    }
                    for tool in found
                ]
            }
        )

    async def search(self, call: Call) -> ASGIApp:
        query, limit, owner = str(call.query["q"]), _limit(call), _owner(call)
        async with self.searching:
            found = await _in_thread(
                lambda: self.agent.memory.search(query, limit=limit, owner=owner)
            )
        return json_response({"results": [asdict(one) for one in found]})

    async def receipts(self, call: Call) -> ASGIApp:
        found = await _in_thread(lambda: self.agent.receipts(_limit(call)))
        return json_response({"receipts": [_plain(dict(one)) for one in found]})

    async def conversations(self, call: Call) -> ASGIApp:
        found = await _in_thread(
            lambda: self.agent.memory.conversations(_limit(call), owner=_owner(call))
        )
        return json_response({"conversations": [asdict(one) for one in found]})

    async def conversation(self, call: Call) -> ASGIApp:
        from coilclaw.memory.rows import fields

        name, client = conversation_id(call.path["conversation_id"]), call.client
        # Asked before the records are read: a turn that ends in between has them all.
        running = self.conversing.turns.busy(name)
        found = await _in_thread(lambda: self.agent.memory.conversation(name, last=MAX_RECORDS))
        hidden = not client.sees_all and not client.owns(
            await _in_thread(lambda: self.agent.memory.owner(name))
        )
        if hidden or (not found and not running):
            raise refused("conversation.unknown", "there is no such conversation")
        return json_response(
            {
                "conversation_id": name,
                "running": running,
                "records": [fields(record) for record in found],
            }
        )

    async def chat(self, call: Call) -> ASGIApp:
        """Run one turn; a stream tells its parts as they come."""
        message, given = str(call.body["message"]), call.body.get("conversation_id")
        name, terms = None if given is None else str(given), TurnTerms(call.client)
        if not call.body.get("stream"):
            finished = await self.conversing.answer(message, name, terms)
            return json_response(outcome_fields(finished))
        name, mailbox = await self.conversing.stream(message, name, terms)
        return EventStream(mailbox, _chat_frames, headers={"x-conversation-id": name})

    async def stop(self, call: Call) -> ASGIApp:
        reason = str(call.body.get("reason") or "POST /estop")
        await _at_once(lambda: self.agent.estop.trigger(reason))
        return json_response({"estop": True})

    async def go_on(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        await _at_once(self.agent.estop.clear)
        return json_response({"estop": False})

    async def approvals(self, call: Call) -> ASGIApp:
        found, client = await _in_thread(self.agent.desk.list), call.client
        return json_response(
            {
                "approvals": [
                    _approval_fields(one)
                    for one in found
                    if client.role != "chat" or one.question.asker == client.label
                ]
            }
        )

    async def decide(self, call: Call) -> ASGIApp:
        """Answer an approval; the turn that waits for it goes on."""
        answered = await _in_thread(lambda: self._decided(call))
        name, turns = answered.question.conversation_id, self.conversing.turns
        # A turn that a program left open when it ended waits here, unless too many others did.
        if is_abandoned(answered) and not turns.busy(name):
            asker = await _in_thread(lambda: turns.asker(name))
            turns.submit(resumption(name, asker))
        return json_response(_approval_fields(answered))

    def _decided(self, call: Call) -> Approval:
        body, answer = call.body, call.body.get("answer")
        approval = self.agent.desk.find(str(body["id"]))
        approved = body["decision"] == "approve"
        self._check_answerer(approval.question, call.client, approved=approved)
        return self.agent.desk.answer(
            approval.id,
            approved=approved,
            by=call.client.label,
            words=None if answer is None else str(answer),
        )

    def _check_answerer(self, question: Question, client: Client, *, approved: bool) -> None:
        """Refuse those who may not answer.

        Who asked for something may take it back, and tell the model what it wants to know: neither
        allows anything. A yes is for others to say.
        """
        own = question.asker == client.label
        if client.role == "chat" and not own:
            raise refused("approval.unknown", "there is no such approval")
        if question.kind == "question" or not approved:
            return
        check_role(client, {"approve"})
        if own and not self.self_approval:
            raise refused(
                "approval.self",
                f"{client.name} asked for this, and cannot approve it",
                "approve it at the terminal with 'coilclaw approve ID', or with another token "
                "('coilclaw token new NAME --role approve'); gateway.self_approval = true in the "
                "configuration allows it",
            )

    async def events(self, call: Call) -> ASGIApp:
        mailbox: Mailbox[str] = Mailbox(self.queue_parts)
        stream = EventStream(mailbox, _event_frames)

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            self.feed.watch(mailbox, lambda line: self._may_see(call.client, line))
            try:
                await stream(scope, receive, send)
            finally:
                self.feed.leave(mailbox)

        return watched

    def _may_see(self, client: Client, line: str) -> bool:
        """Tell whether a client may see what is logged: all of it, or that of its own turns."""
        if not self.admits(client):
            return False  # its token was revoked, or has expired, while it watched
        if client.sees_all:
            return True
        found = json.loads(line).get("conversation_id")
        return isinstance(found, str) and self.conversing.turns.client_of(found) == client

    async def measured(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        turns = self.conversing.turns
        state = self.chain.look()
        gauges: dict[str, float] = {
            "turns_running": turns.running,
            "turns_waiting": turns.waiting,
            "estop": self.agent.estop.set,
            "runs_active": self.runs.active,
            "approvals_pending": len(await _in_thread(self.agent.desk.list)),
        }
        if state is not None:
            gauges["receipt_chain_valid"] = state.valid
            gauges["receipt_chain_receipts"] = state.receipts
            gauges["receipt_open_intents"] = state.open_intents
            gauges["receipt_unsettled_intents"] = state.unsettled
        return text_response(self.metrics.text(gauges), METRICS_TYPE)


async def _at_once(do: Callable[[], object]) -> None:
    """Do it in a thread of its own, whatever all others are busy with."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(problem: BaseException | None) -> None:
        if done.cancelled():
            return
        if problem is None:
            done.set_result(None)
        else:
            done.set_exception(problem)

    def work() -> None:
        try:
            do()
        except BaseException as problem:  # noqa: BLE001 - raised again where it is waited for
            loop.call_soon_threadsafe(tell, problem)
        else:
            loop.call_soon_threadsafe(tell, None)

    threading.Thread(target=work, name="at once", daemon=True).start()
    await done


async def _in_thread(ask: Callable[[], Found]) -> Found:
    """Ask what reads files or waits for a lock, away from the event loop."""
    return await asyncio.to_thread(ask)


def _owner(call: Call) -> str | None:
    """Return whose conversations a client may see; ``None`` for all of them."""
    return None if call.client.sees_all else call.client.label


def _limit(call: Call) -> int:
    limit = call.query.get("limit", DEFAULT_LIMIT)
    assert isinstance(limit, int), "the schema says so"
    return limit


def _chat_frames(told: Told) -> Iterator[bytes]:
    if isinstance(told, Finished):
        yield frame(outcome_fields(told), "final")
    elif isinstance(told, CoilClawError):
        yield frame({**faults.form(told), "status": faults.status_of(told)}, "error")
    else:
        yield frame(part_fields(told), told.name)


def _event_frames(line: str) -> Iterator[bytes]:
    yield f"data: {line.strip()}\n\n".encode("ascii", "backslashreplace")


def _approval_fields(approval: Approval) -> dict[str, Json]:
    question = approval.question
    return {
        "id": approval.id,
        "state": approval.state,
        "kind": question.kind,
        "origin": question.origin,
        "asker": question.asker,
        "title": question.title,
        "tool": question.tool,
        "arguments": question.arguments,
        "risk": question.risk,
        "rule": question.rule,
        "reason": question.reason,
        "detail": list(question.detail),
        "digest": question.digest,
        "created": approval.created,
        "expires": approval.expires,
        "answered_by": approval.answered_by,
        "answered": approval.answered,
    }


def _plain(record: dict[str, object]) -> dict[str, Json]:
    """A record of a journal holds nothing that JSON does not."""
    return record  # type: ignore[return-value]
