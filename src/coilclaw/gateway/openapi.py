"""The published description of every endpoint, made from the table that routes them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from coilclaw.gateway.answers import OPENAI_PREFIX
from coilclaw.gateway.schemas import (
    CONVERSATION_ID,
    ERROR,
    EVENT,
    EVENTS,
    OPENAI_ERROR,
    TEXT,
    Schema,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.endpoint import Endpoint

PATH: Final = "/openapi.json"
_ALWAYS: Final = (400, 401, 403, 413, 429, 431, 500, 503)
_WITH_BODY: Final = (408, 415)
_OPEN: Final = (400, 403, 413, 431)
_PATH_SCHEMAS: Final = {"conversation_id": CONVERSATION_ID}


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
        "responses": _responses(endpoint.result, endpoint.media, statuses, error),
    }
    parameters = [*_path_parameters(endpoint), *_query_parameters(endpoint)]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.body_needed,
            "content": {"application/json": {"schema": endpoint.body}},
        }
    if endpoint.open:
        operation["security"] = []
    return operation


def _responses(
    result: Schema | None, media: Iterable[str], statuses: Iterable[int], error: Schema
) -> dict[str, Json]:
    shapes: dict[str, Json] = {"application/json": result, EVENTS: EVENT}
    content: dict[str, Json] = {kind: {"schema": shapes.get(kind, TEXT)} for kind in media}
    responses: dict[str, Json] = {"200": {"description": "OK", "content": content}}
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


def _query_parameters(endpoint: Endpoint) -> list[Json]:
    properties, required = endpoint.query["properties"], endpoint.query["required"]
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in properties.items()
    ]


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])
