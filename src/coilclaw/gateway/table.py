"""The table of endpoints: what is routed is what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gateway import openaiforms, runtable, schemas, sop_table
from coilclaw.gateway.clients import CHAT, EVERYBODY, READ
from coilclaw.gateway.endpoint import Endpoint

if TYPE_CHECKING:
    from coilclaw.gateway.completions import Completions
    from coilclaw.gateway.endpoints import Endpoints
    from coilclaw.gateway.runs import RunEndpoints
    from coilclaw.gateway.sop_endpoints import SopEndpoints

_BOTH: Final = ("application/json", schemas.EVENTS)
_TURN_ERRORS: Final = (500, 502, 503, 504)


def table(
    ours: Endpoints, door: Completions, runs: RunEndpoints, sops: SopEndpoints
) -> tuple[Endpoint, ...]:
    """Return every endpoint but the one that publishes them."""
    return (
        *_looking(ours),
        *_recorded(ours),
        *_acting(ours),
        *runtable.table(runs),
        *sop_table.table(sops),
        *_openai(door),
    )


def _looking(ours: Endpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint("GET", "/health", "Whether it answers.", ours.health, schemas.HEALTH, open=True),
        Endpoint(
            "GET",
            "/whoami",
            "Name, role and expiry of the token.",
            ours.whoami,
            schemas.WHOAMI,
            roles=EVERYBODY,
        ),
        Endpoint(
            "GET",
            "/status",
            "Version, provider, policy and load.",
            ours.status,
            schemas.STATUS,
            roles=EVERYBODY,
        ),
        Endpoint("GET", "/tools", "The active tools.", ours.tools, schemas.TOOLS, roles=EVERYBODY),
    )


def _recorded(ours: Endpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/memory/search",
            "Messages that contain every term, best first.",
            ours.search,
            schemas.RECOLLECTIONS,
            schemas.SEARCH_QUERY,
            roles=CHAT | READ,
        ),
        Endpoint(
            "GET",
            "/receipts",
            "The newest receipts, oldest of them first.",
            ours.receipts,
            schemas.RECEIPTS,
            schemas.LIMIT_QUERY,
            roles=READ,
        ),
        Endpoint(
            "GET",
            "/conversations",
            "The newest conversations, newest first.",
            ours.conversations,
            schemas.CONVERSATIONS,
            schemas.LIMIT_QUERY,
            roles=CHAT | READ,
        ),
        Endpoint(
            "GET",
            "/conversations/{conversation_id}",
            "One conversation, oldest record first.",
            ours.conversation,
            schemas.CONVERSATION,
            errors=(404,),
            roles=CHAT | READ,
        ),
        Endpoint(
            "GET",
            "/metrics",
            "Counters for Prometheus.",
            ours.measured,
            media=("text/plain",),
            roles=READ,
        ),
        Endpoint(
            "GET",
            "/events",
            "What is logged, as it happens.",
            ours.events,
            media=(schemas.EVENTS,),
            roles=CHAT | READ,
        ),
    )


def _acting(ours: Endpoints) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/chat",
            "Run one turn.",
            ours.chat,
            schemas.OUTCOME,
            body=schemas.CHAT,
            media=_BOTH,
            errors=_TURN_ERRORS,
            roles=CHAT,
        ),
        Endpoint(
            "POST",
            "/estop",
            "Stop all tools of all processes.",
            ours.stop,
            schemas.ESTOP,
            body=schemas.ESTOP_REASON,
            body_needed=False,
        ),
        Endpoint("DELETE", "/estop", "Let tools run again.", ours.go_on, schemas.ESTOP),
        Endpoint(
            "GET",
            "/approvals",
            "What waits for an answer.",
            ours.approvals,
            schemas.APPROVALS,
            roles=EVERYBODY,
        ),
        Endpoint(
            "POST",
            "/approvals",
            "Answer what waits; the turn goes on.",
            ours.decide,
            schemas.APPROVAL,
            body=schemas.DECISION,
            errors=(404, 409),
            roles=frozenset({"approve", "chat"}),
        ),
    )


def _openai(door: Completions) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/v1/models",
            "The one model.",
            door.models,
            openaiforms.MODELS,
            roles=EVERYBODY,
        ),
        Endpoint(
            "POST",
            "/v1/chat/completions",
            "Run one turn, for clients of the OpenAI protocol.",
            door.complete,
            openaiforms.COMPLETION,
            body=openaiforms.REQUEST,
            media=_BOTH,
            errors=(404, 409, *_TURN_ERRORS),
            roles=CHAT,
        ),
    )
