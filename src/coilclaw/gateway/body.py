"""The body and the query of a request, read within their bounds and checked by their schemas."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import parse_qsl

from coilclaw.errors import UsageError
from coilclaw.gateway.faults import refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from starlette.types import Receive

    from coilclaw.domain.messages import Json
    from coilclaw.tools.schema import Validators

MAX_QUERY_FIELDS: Final = 16
_MAX_DIGITS: Final = 9
_NUL: Final = b"\\u0000"
"""How JSON writes NUL; as it is, it may not stand there."""


async def read(receive: Receive, *, max_bytes: int, timeout_s: float) -> bytes:
    """Return the whole body, if it comes in time and is not too large."""
    return b"".join([piece async for piece in pieces(receive, max_bytes, timeout_s)])


async def pieces(receive: Receive, max_bytes: int, timeout_s: float) -> AsyncIterator[bytes]:
    """Yield the body as it comes, if it comes in time and is not too large."""
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise refused("body.slow", "the client went away before its request ended")
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise refused("body.large", f"a body like this has at most {max_bytes} bytes")
                if piece:
                    yield piece
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        raise refused("body.slow", f"the body did not come within {timeout_s:g} s") from None


def parse(data: bytes, schema: Mapping[str, Json], validators: Validators) -> dict[str, Json]:
    """Return a body that fits its schema; all that is wrong with another is told at once."""
    try:
        value = json.loads(
            data.decode("utf-8") if data else "{}",
            parse_constant=no_constant,
            object_pairs_hook=no_twins,
        )
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON in UTF-8", rule="body.json") from None
    if not isinstance(value, dict):
        raise UsageError("the body is not a JSON object", rule="body.json")
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
    properties = schema["properties"]
    assert isinstance(properties, dict), "the schema of a query is one of ours"
    fields: dict[str, Json] = {
        name: _number(text) if _is_count(properties.get(name)) else text for name, text in pairs
    }
    problems = validators.check(schema, fields)
    if problems:
        raise UsageError("; ".join(problems), rule="query.schema", hint="see /openapi.json")
    return fields


def parse_headers(
    headers: Iterable[tuple[bytes, bytes]], schema: Mapping[str, Json], validators: Validators
) -> dict[str, Json]:
    """Return the headers that a schema names, numbers as numbers; all others mean nothing."""
    properties = schema["properties"]
    assert isinstance(properties, dict), "the schema of headers is one of ours"
    if not properties:
        return {}
    given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    found: dict[str, Json] = {
        name: _number(given[name.lower()]) if _is_count(form) else given[name.lower()]
        for name, form in properties.items()
        if name.lower() in given
    }
    problems = validators.check(schema, found)
    if problems:
        raise UsageError("; ".join(problems), rule="headers.schema", hint="see /openapi.json")
    return found


def wants_events(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a client names a stream of events among what it accepts."""
    return any(
        name == b"accept" and b"text/event-stream" in value.lower() for name, value in headers
    )


def _is_count(schema: Json) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "integer"


def _number(text: str) -> Json:
    """What is no number stays text, which the schema does not take."""
    plain = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if plain else text


def no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def no_twins(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Refuse a key that is there twice: two readers could take it for two things."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found
