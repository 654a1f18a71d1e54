"""The published description of every endpoint, made from the table that routes them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from coilclaw.gateway.answers import OPENAI_PREFIX
from coilclaw.gateway.runs import TAR
from coilclaw.gateway.runschemas import RUN_ID
from coilclaw.gateway.schemas import (
    BINARY,
    CONVERSATION_ID,
    ERROR,
    EVENT,
    EVENTS,
    OPENAI_ERROR,
    TEXT,
    Schema,
)
from coilclaw.gateway.sop_schemas import SOP_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.endpoint import Endpoint

PATH: Final = "/openapi.json"
_ALWAYS: Final = (400, 401, 403, 413, 429, 431, 500, 503)
_WITH_BODY: Final = (408, 415)
_OPEN: Final = (400, 403, 413, 431)
_PATH_SCHEMAS: Final = {
    "conversation_id": CONVERSATION_ID,
    "run_id": RUN_ID,
    "sop_name": SOP_NAME,
}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Json]:
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
        "summary": endpoint.summary,
        "operationId": _name(endpoint),
        "responses": _responses(endpoint, statuses, error),
    }
    parameters = [
        *_path_parameters(endpoint),
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


def _path_parameters(endpoint: Endpoint) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]


def _named_parameters(form: Schema, place: str) -> list[Json]:
    properties, required = form["properties"], form["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    return [
        {"name": name, "in": place, "required": name in required, "schema": schema}
        for name, schema in properties.items()
    ]


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])
