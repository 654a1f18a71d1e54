"""The body and the query of a request, read within their bounds and checked by their schemas."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coilclaw.gateway.http.faults import refusal_error
from coilclaw.kernel import JsonFault, UsageError, read_json_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from coilclaw.agent import Validators
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json

MAX_QUERY_FIELDS: Final = 16
MAX_DEPTH: Final = 200
_MAX_DIGITS: Final = 9
_NUL: Final = b"\\u0000"
"""How JSON writes NUL; as it is, it may not stand there."""


async def read(receive: Receive, settings: GatewaySettings, max_bytes: int | None = None) -> bytes:
    """Return the whole body, if it comes in time and is not too large."""
    most = settings.max_body_bytes if max_bytes is None else max_bytes
    return b"".join([piece async for piece in pieces(receive, most, settings.body_timeout_s)])


async def pieces(receive: Receive, max_bytes: int, timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the body as it comes, if it comes in time and is not too large."""
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise refusal_error(
                        "body.slow", "the client went away before its request ended"
                    )
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise refusal_error(
                        "body.large", f"a body like this has at most {max_bytes} bytes"
                    )
                if piece:
                    yield piece
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        raise refusal_error("body.slow", f"the body did not come within {timeout_s:g} s") from None


def parse(data: bytes, schema: Mapping[str, Json], validators: Validators) -> dict[str, Json]:
    """Parse a body and validate it against its schema; the error lists every problem."""
    try:
        value = read_json_object(data or b"{}", max_depth=MAX_DEPTH)
    except JsonFault as problem:
        raise UsageError(f"the body {problem}", rule="body.json") from None
    problems = validators.check(schema, value)
    # Whoever reads an object that the schema leaves open judges what is in it.
    texts: list[Json] = [each for each in value.values() if isinstance(each, str)]
    if problems or schema.get("additionalProperties") is False:
        _refuse_nul(value if problems else texts, data)
    if problems:
        raise UsageError("; ".join(problems), rule="body.schema", hint="see /openapi.json")
    return value


def check_text(data: bytes) -> None:
    """Refuse a body that is not UTF-8 or holds NUL, for an application that parses it itself."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("the body is not JSON in UTF-8", rule="body.json") from None
    if _NUL in data:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError("the body is not JSON in UTF-8", rule="body.json") from None
        _refuse_nul(value, data)


def _refuse_nul(value: Json, data: bytes) -> None:
    """Refuse NUL in any text of a body: neither files, databases nor programs hold it alike."""
    if _NUL not in data:
        return
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and "\0" in value:
            raise UsageError("the body holds the character NUL", rule="text.nul")


def parse_query(
    query: bytes, schema: Mapping[str, Json], validators: Validators
) -> dict[str, Json]:
    """Return the fields of a query that fits its schema, numbers as numbers."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError:
        raise UsageError("the query cannot be read", rule="query.malformed") from None
    if len(dict(pairs)) < len(pairs):
        raise UsageError("the query names a field twice", rule="query.malformed")
    if any("\0" in text for pair in pairs for text in pair):
        raise UsageError("the query holds the character NUL", rule="text.nul")
    return _check_fields(dict(pairs), schema, validators, "query.schema")


def parse_headers(
    headers: Iterable[tuple[bytes, bytes]], schema: Mapping[str, Json], validators: Validators
) -> dict[str, Json]:
    """Return the headers that a schema names, numbers as numbers; all others mean nothing."""
    names = {name.lower(): name for name in _properties(schema)}
    found = {
        names[lower]: value.decode("latin-1")
        for name, value in headers
        if (lower := name.decode("latin-1")) in names
    }
    return _check_fields(found, schema, validators, "headers.schema")


def _properties(schema: Mapping[str, Json]) -> dict[str, Json]:
    properties = schema["properties"]
    assert isinstance(properties, dict), "the schema is one of ours"
    return properties


def _check_fields(
    texts: Mapping[str, str], schema: Mapping[str, Json], validators: Validators, rule: str
) -> dict[str, Json]:
    """Return fields that fit, numbers as numbers; any other text stays text and does not fit."""
    found: dict[str, Json] = dict(texts)
    for name, form in _properties(schema).items():
        text = texts.get(name, "")
        plain = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
        if plain and isinstance(form, dict) and form.get("type") == "integer":
            found[name] = int(text)
    problems = validators.check(schema, found)
    if problems:
        raise UsageError("; ".join(problems), rule=rule, hint="see /openapi.json")
    return found


def wants_events(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a client names a stream of events among what it accepts."""
    return any(
        name == b"accept" and b"text/event-stream" in value.lower() for name, value in headers
    )


DRAIN_S: Final = 30.0
IDLE_S: Final = 2.0
"""A client that sends nothing for so long is waiting for its answer."""
_UNADMITTED: Final = frozenset({401, 403, 429})
"""A client that was not admitted holds its connection for ``IDLE_S`` at most."""
_NO_DRAIN: Final = frozenset({408, 503})
"""The server has waited for the body already, or is stopping."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Wraps an application; before an answer, the rest of the body is taken and thrown away."""

    app: ASGIApp
    max_bytes: int
    timeout_s: float = DRAIN_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, asks_first=_asks_first(scope))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and body.is_coming(message["status"]):
                with suppress(TimeoutError):
                    refused = message["status"] in _UNADMITTED
                    async with asyncio.timeout(IDLE_S if refused else self.timeout_s):
                        await body.drain(self.max_bytes)
            await send(message)

        await self.app(scope, body.receive, answer)


class _Body:
    def __init__(self, receive: Receive, *, asks_first: bool) -> None:
        self._receive = receive
        self._held_back = asks_first
        self.ended = False

    def is_coming(self, status: int) -> bool:
        """Whether there is more to take before an answer with this status."""
        # One who asked whether to send it was not told to.
        return not self.ended and not self._held_back and status not in _NO_DRAIN

    async def receive(self) -> Message:
        self._held_back = False
        message = await self._receive()
        if not message.get("more_body", False):
            self.ended = True
        return message

    async def drain(self, most: int) -> None:
        while not self.ended and most > 0:
            async with asyncio.timeout(IDLE_S):
                message = await self.receive()
            most -= len(message.get("body", b""))


def _asks_first(scope: Scope) -> bool:
    """Whether the client waits to be told before it sends the body."""
    return any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )
