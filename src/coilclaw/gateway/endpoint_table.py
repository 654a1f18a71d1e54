"""The table of endpoints: what is routed is what is published."""

from __future__ import annotations

import re
from http import HTTPStatus
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Final

from coilclaw.gateway import completions, schemas
from coilclaw.gateway.clients import CHAT, EVERYBODY, READ
from coilclaw.gateway.http.faults import OPENAI_PREFIX
from coilclaw.gateway.runs.run_endpoints import DIFF, TAR
from coilclaw.gateway.schemas import (
    BINARY,
    CONVERSATION_ID,
    ERROR,
    EVENT,
    EVENTS,
    OPENAI_ERROR,
    RUN_ID,
    SOP_NAME,
    TEXT,
    Endpoint,
    Schema,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.gateway.clients import Role
    from coilclaw.gateway.completions import Completions
    from coilclaw.gateway.endpoints import Endpoints
    from coilclaw.gateway.runs.run_endpoints import RunEndpoints, SopEndpoints
    from coilclaw.kernel import Json

_BOTH: Final = ("application/json", schemas.EVENTS)
_TURN_ERRORS: Final = (500, 502, 503, 504)
_LOOK: Final[frozenset[Role]] = frozenset({"read", "approve"})
"""Who approves what a run asks for has to see what it did."""
_SEE: Final = CHAT | READ
_ANSWER: Final[frozenset[Role]] = frozenset({"approve", "chat"})
_STARTED: Final[dict[str, Any]] = {"status": 202, "errors": (404, 409)}


def table(
    ours: Endpoints, door: Completions, runs: RunEndpoints, sops: SopEndpoints
) -> tuple[Endpoint, ...]:
    """Return every endpoint but the one that publishes them."""
    return (*_agent(ours), *run_table(runs), *_sops(sops), *_openai(door))


def _agent(ours: Endpoints) -> tuple[Endpoint, ...]:
    one = "/conversations/{conversation_id}"
    limit = schemas.LIMIT_QUERY
    return (
        Endpoint("GET", "/health", ours.health, schemas.HEALTH, open=True),
        Endpoint("GET", "/whoami", ours.whoami, schemas.WHOAMI, roles=EVERYBODY),
        Endpoint("GET", "/status", ours.status, schemas.STATUS, roles=EVERYBODY),
        Endpoint("GET", "/tools", ours.tools, schemas.TOOLS, roles=EVERYBODY),
        Endpoint(
            *("GET", "/memory/search", ours.search, schemas.RECOLLECTIONS, schemas.SEARCH_QUERY),
            roles=_SEE,
        ),
        Endpoint("GET", "/receipts", ours.receipts, schemas.RECEIPTS, limit, roles=READ),
        Endpoint(
            "GET", "/conversations", ours.conversations, schemas.CONVERSATIONS, limit, roles=_SEE
        ),
        Endpoint("GET", one, ours.conversation, schemas.CONVERSATION, errors=(404,), roles=_SEE),
        Endpoint("GET", "/metrics", ours.render_metrics, media=("text/plain",), roles=READ),
        Endpoint("GET", "/events", ours.events, media=(schemas.EVENTS,), roles=_SEE),
        Endpoint(
            *("POST", "/chat", ours.chat, schemas.OUTCOME),
            body=schemas.CHAT,
            media=_BOTH,
            errors=_TURN_ERRORS,
            roles=CHAT,
        ),
        Endpoint(
            *("POST", "/estop", ours.stop, schemas.ESTOP),
            body=schemas.ESTOP_REASON,
            body_needed=False,
        ),
        Endpoint("DELETE", "/estop", ours.clear_stop, schemas.ESTOP),
        Endpoint("GET", "/approvals", ours.approvals, schemas.APPROVALS, roles=EVERYBODY),
        Endpoint(
            *("POST", "/approvals", ours.decide, schemas.APPROVAL),
            body=schemas.DECISION,
            errors=(404, 409),
            roles=_ANSWER,
        ),
    )


def run_table(runs: RunEndpoints) -> tuple[Endpoint, ...]:
    """Return every endpoint below ``/runs``."""
    one = "/runs/{run_id}"
    return (
        Endpoint(
            "GET", "/runs", runs.list, schemas.RUNS, schemas.RUNS_QUERY, errors=(404,), roles=_LOOK
        ),
        Endpoint("GET", one, runs.show, schemas.RUN, errors=(404, 409), roles=_LOOK),
        Endpoint(
            *("GET", f"{one}/events", runs.events, schemas.RUN_EVENTS, schemas.EVENTS_QUERY),
            headers=schemas.EVENTS_HEADERS,
            media=_BOTH,
            errors=(404,),
            roles=_LOOK,
        ),
        Endpoint(
            *("GET", f"{one}/diff", runs.diff, None, schemas.DIFF_QUERY),
            media=(DIFF,),
            errors=(404,),
            roles=_LOOK,
        ),
        Endpoint("GET", f"{one}/bundle", runs.bundle, media=(TAR,), errors=(404, 409), roles=_LOOK),
        Endpoint("POST", "/runs", runs.start, schemas.BEGUN, body=schemas.RUN_REQUEST, **_STARTED),
        Endpoint(
            *("POST", f"{one}/resume", runs.resume, schemas.BEGUN),
            body=schemas.RESUME_REQUEST,
            body_needed=False,
            **_STARTED,
        ),
        Endpoint("POST", f"{one}/cancel", runs.cancel, schemas.BEGUN, **_STARTED),
        Endpoint(
            *("POST", f"{one}/verify", runs.verify, schemas.VERIFIED),
            body=schemas.VERIFY_REQUEST,
            body_needed=False,
            errors=(404,),
        ),
    )


def _sops(sops: SopEndpoints) -> tuple[Endpoint, ...]:
    one = "/sops/runs/{run_id}"
    return (
        Endpoint("GET", "/sops", sops.sops, schemas.SOPS, errors=(404,)),
        Endpoint(
            *("GET", "/sops/runs", sops.list, schemas.SOP_RUNS, schemas.RUNS_QUERY),
            errors=(404,),
            summary="The newest runs of SOPs, newest first.",
        ),
        Endpoint(
            *("GET", one, sops.show, schemas.SOP_RUN),
            errors=(404,),
            summary="How far one run of a SOP is.",
        ),
        Endpoint(
            *("GET", f"{one}/events", sops.events, schemas.SOP_EVENTS, schemas.EVENTS_QUERY),
            headers=schemas.EVENTS_HEADERS,
            media=_BOTH,
            errors=(404,),
            summary="Its events from number 'since' on: one page, or as they come until it ends or "
            "waits.",
        ),
        Endpoint(
            *("POST", "/sops/{sop_name}/runs", sops.start, schemas.BEGUN),
            body=schemas.SOP_START,
            body_needed=False,
            status=202,
            errors=(404,),
        ),
        Endpoint(
            *("POST", f"{one}/resume", sops.resume, schemas.BEGUN),
            body=schemas.SOP_RESUME,
            body_needed=False,
            **_STARTED,
        ),
    )


def _openai(door: Completions) -> tuple[Endpoint, ...]:
    return (
        Endpoint("GET", "/v1/models", door.models, completions.MODELS, roles=EVERYBODY),
        Endpoint(
            *("POST", "/v1/chat/completions", door.complete, completions.COMPLETION),
            body=completions.REQUEST,
            media=_BOTH,
            errors=(404, 409, *_TURN_ERRORS),
            roles=CHAT,
        ),
    )


OPENAPI_PATH: Final = "/openapi.json"
_ALWAYS: Final = (400, 401, 403, 413, 429, 431, 500, 503)
_WITH_BODY: Final = (408, 415)
_OPEN: Final = (400, 403, 413, 431)
_PATH_SCHEMAS: Final = {
    "conversation_id": CONVERSATION_ID,
    "run_id": RUN_ID,
    "sop_name": SOP_NAME,
}


def describe_endpoints(endpoints: Iterable[Endpoint]) -> dict[str, Json]:
    """Return the whole description."""
    from coilclaw import __version__

    paths: dict[str, dict[str, Json]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "CoilClaw gateway", "version": __version__},
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint) -> dict[str, Json]:
    statuses = {*(_OPEN if endpoint.open else _ALWAYS), *endpoint.errors}
    if endpoint.body is not None:
        statuses.update(_WITH_BODY)
    error = OPENAI_ERROR if endpoint.path.startswith(OPENAI_PREFIX) else ERROR
    operation: dict[str, Json] = {
        "summary": endpoint.summary or (getdoc(endpoint.answer) or "").partition("\n")[0],
        "operationId": "_".join([endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)]),
        "responses": _responses(endpoint, statuses, error),
    }
    parameters: list[Json] = [
        *(
            {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ),
        *_named_parameters(endpoint.query, "query"),
        *_named_parameters(endpoint.headers, "header"),
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_needed,
            "content": {"application/json": {"schema": endpoint.body}},
        }
    if endpoint.open:
        operation["security"] = []
    else:
        operation["x-roles"] = [*sorted(endpoint.roles), "admin"]
    return operation


def _responses(endpoint: Endpoint, statuses: Iterable[int], error: Schema) -> dict[str, Json]:
    shapes: dict[str, Json] = {"application/json": endpoint.result, EVENTS: EVENT, TAR: BINARY}
    content: dict[str, Json] = {kind: {"schema": shapes.get(kind, TEXT)} for kind in endpoint.media}
    good = HTTPStatus(endpoint.status)
    responses: dict[str, Json] = {str(good.value): {"description": good.phrase, "content": content}}
    for status in sorted(set(statuses)):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": error}},
        }
    return responses


def _named_parameters(form: Schema, place: str) -> list[Json]:
    properties, required = form["properties"], form["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    return [
        {"name": name, "in": place, "required": name in required, "schema": schema}
        for name, schema in properties.items()
    ]
