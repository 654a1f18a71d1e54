"""Our own endpoints: each asks the runtime in a thread, and answers JSON."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import to_thread
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, cast

from coilclaw.agent import is_abandoned
from coilclaw.gateway.agent import FinishedTurn, TurnTerms
from coilclaw.gateway.clients import check_role
from coilclaw.gateway.http import faults
from coilclaw.gateway.http.event_stream import EventStream, Mailbox, frame
from coilclaw.gateway.http.faults import METRICS_TYPE, json_response, refusal_error, text_response
from coilclaw.gateway.runs.run_endpoints import limit_of
from coilclaw.gateway.turns import outcome_fields, resumption
from coilclaw.kernel import CoilClawError
from coilclaw.workspace import check_conversation_id as conversation_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.agent import Approval, ApprovalQuestion
    from coilclaw.gateway.agent import ChainWatch
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.http.event_stream import Feed
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runs.run_endpoints import RunEndpoints
    from coilclaw.gateway.schemas import EndpointCall
    from coilclaw.gateway.served_agent import ServedAgent
    from coilclaw.gateway.turns import Conversing, Told
    from coilclaw.kernel import Json

MAX_RECORDS: Final = 1000
"""Newest records of a conversation that are shown."""

SEARCHES: Final = 2
_QUESTION: Final = (
    *("kind", "origin", "asker", "title", "tool", "arguments", "risk", "rule", "reason", "detail"),
    "digest",
)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Everything but ``/v1``."""

    agent: ServedAgent
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

    async def health(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """Whether it answers."""
        return json_response({"status": "ok"})

    async def whoami(self, call: EndpointCall) -> ASGIApp:
        """Name, role and expiry of the token."""
        client = call.client
        return json_response({**asdict(client), "expires": client.expires or None})

    async def status(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """Version, provider, policy and load."""
        from coilclaw import __version__

        described = await to_thread(self.agent.describe)
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

    async def tools(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """The active tools."""
        names = ("name", "description", "parameters_schema")
        found = await to_thread(self.agent.tools)
        return json_response({"tools": [_choose_fields(tool, names) for tool in found]})

    async def search(self, call: EndpointCall) -> ASGIApp:
        """Messages that contain every term, best first."""
        query, limit, owner = (
            str(call.query["q"]),
            limit_of(call),
            _owner(call),
        )
        async with self.searching:
            found = await to_thread(self.agent.memory.search, query, limit=limit, owner=owner)
        return json_response({"results": [asdict(one) for one in found]})

    async def receipts(self, call: EndpointCall) -> ASGIApp:
        """The newest receipts, oldest of them first."""
        found = await to_thread(self.agent.receipts, limit_of(call))
        # A record of a journal holds nothing that JSON does not.
        return json_response({"receipts": [cast("Json", dict(one)) for one in found]})

    async def conversations(self, call: EndpointCall) -> ASGIApp:
        """The newest conversations, newest first."""
        memory = self.agent.memory
        found = await to_thread(memory.conversations, limit_of(call), owner=_owner(call))
        return json_response({"conversations": [asdict(one) for one in found]})

    async def conversation(self, call: EndpointCall) -> ASGIApp:
        """One conversation, oldest record first."""
        from coilclaw.agent import fields

        name, client = conversation_id(call.path["conversation_id"]), call.client
        memory = self.agent.memory
        # Asked before the records are read: a turn that ends in between has them all.
        running = self.conversing.turns.busy(name)
        found = await to_thread(memory.conversation, name, last=MAX_RECORDS)
        hidden = not client.sees_all and not client.owns(await to_thread(memory.owner, name))
        if hidden or (not found and not running):
            raise refusal_error("conversation.unknown", "this conversation does not exist")
        records: list[Json] = [fields(record) for record in found]
        return json_response({"conversation_id": name, "running": running, "records": records})

    async def chat(self, call: EndpointCall) -> ASGIApp:
        """Run one turn."""
        message, given = str(call.body["message"]), call.body.get("conversation_id")
        name, terms = None if given is None else str(given), TurnTerms(call.client)
        if not call.body.get("stream"):
            finished = await self.conversing.answer(message, name, terms)
            return json_response(outcome_fields(finished))
        name, mailbox = await self.conversing.stream(message, name, terms)
        return EventStream(mailbox, _chat_frames, headers={"x-conversation-id": name})

    async def stop(self, call: EndpointCall) -> ASGIApp:
        """Stop all tools of all processes."""
        reason = str(call.body.get("reason") or "POST /estop")
        await _at_once(lambda: self.agent.estop.trigger(reason))
        return json_response({"estop": True})

    async def clear_stop(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """Let tools run again."""
        await _at_once(self.agent.estop.clear)
        return json_response({"estop": False})

    async def approvals(self, call: EndpointCall) -> ASGIApp:
        """What waits for an answer."""
        found, client = await to_thread(self.agent.desk.list), call.client
        seen = [x for x in found if client.role != "chat" or x.question.asker == client.label]
        return json_response({"approvals": [_approval_fields(one) for one in seen]})

    async def decide(self, call: EndpointCall) -> ASGIApp:
        """Answer what waits; the turn goes on."""
        answered = await to_thread(self._decide_approval, call)
        name, turns = answered.question.conversation_id, self.conversing.turns
        # A turn that a program left open when it ended waits here, unless too many others did.
        if is_abandoned(answered) and not turns.busy(name):
            asker = await to_thread(turns.asker, name)
            turns.submit(resumption(name, asker))
        return json_response(_approval_fields(answered))

    def _decide_approval(self, call: EndpointCall) -> Approval:
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

    def _check_answerer(
        self, question: ApprovalQuestion, client: Client, *, approved: bool
    ) -> None:
        """Refuse those who may not answer.

        Who asked for something may take it back, and tell the model what it wants to know: neither
        allows anything. A yes is for others to say.
        """
        own = question.asker == client.label
        if client.role == "chat" and not own:
            raise refusal_error("approval.unknown", "this approval does not exist")
        if question.kind == "question" or not approved:
            return
        check_role(client, {"approve"})
        if own and not self.self_approval:
            raise refusal_error(
                "approval.self",
                f"{client.name} asked for this, and cannot approve it",
                "approve it at the terminal with 'coilclaw approve ID', or with another token "
                "('coilclaw token new NAME --role approve'); gateway.self_approval = true in the "
                "configuration allows it",
            )

    async def events(self, call: EndpointCall) -> ASGIApp:
        """What is logged, as it happens."""
        mailbox: Mailbox[str] = Mailbox(self.queue_parts)
        stream = EventStream(mailbox, _event_frames)

        async def watch_feed(scope: Scope, receive: Receive, send: Send) -> None:
            self.feed.watch(mailbox, lambda line: self._may_see(call.client, line))
            try:
                await stream(scope, receive, send)
            finally:
                self.feed.leave(mailbox)

        return watch_feed

    def _may_see(self, client: Client, line: str) -> bool:
        """Tell whether a client may see what is logged: all of it, or that of its own turns."""
        if not self.admits(client):
            return False  # its token was revoked, or has expired, while it watched
        if client.sees_all:
            return True
        found = json.loads(line).get("conversation_id")
        return isinstance(found, str) and self.conversing.turns.client_of(found) == client

    async def render_metrics(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """Counters for Prometheus."""
        turns = self.conversing.turns
        state = self.chain.look()
        gauges: dict[str, float] = {
            "turns_running": turns.running,
            "turns_waiting": turns.waiting,
            "estop": self.agent.estop.set,
            "runs_active": self.runs.active,
            "approvals_pending": len(await to_thread(self.agent.desk.list)),
        }
        if state is not None:
            gauges |= {
                "receipt_chain_valid": state.valid,
                "receipt_chain_receipts": state.receipts,
                "receipt_open_intents": state.open_intents,
                "receipt_unsettled_intents": state.unsettled,
            }
        return text_response(self.metrics.text(gauges), METRICS_TYPE)


async def _at_once(do: Callable[[], object]) -> None:
    """Do it in a thread of its own, whatever all others are busy with."""
    pool = ThreadPoolExecutor(1, "at once")
    try:
        await asyncio.get_running_loop().run_in_executor(pool, do)
    finally:
        pool.shutdown(wait=False)


def _owner(call: EndpointCall) -> str | None:
    """Return whose conversations a client may see; ``None`` for all of them."""
    return None if call.client.sees_all else call.client.label


def _chat_frames(told: Told) -> Iterator[bytes]:
    if isinstance(told, FinishedTurn):
        yield frame(outcome_fields(told), "final")
    elif isinstance(told, CoilClawError):
        yield frame({**faults.form(told), "status": faults.status_of(told)}, "error")
    else:
        yield frame(asdict(told), told.name)


def _event_frames(line: str) -> Iterator[bytes]:
    yield f"data: {line.strip()}\n\n".encode("ascii", "backslashreplace")


def _approval_fields(approval: Approval) -> dict[str, Json]:
    return {
        **_choose_fields(approval, ("id", "state")),
        **_choose_fields(approval.question, _QUESTION),
        **_choose_fields(approval, ("created", "expires", "answered_by", "answered")),
    }


def _choose_fields(value: object, names: tuple[str, ...]) -> dict[str, Json]:
    return {name: getattr(value, name) for name in names}
