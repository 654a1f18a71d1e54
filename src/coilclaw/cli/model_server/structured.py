"""Check schemas for answers as the real services do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server.dialect import mapping, refuse_shape, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NESTED: Final = ("items", "additionalProperties")
_LISTED: Final = ("anyOf", "oneOf", "allOf")
_NAMED: Final = ("properties", "$defs", "definitions")


def check_openai(bound: Body, where: str) -> None:
    """Raise ``UsageError`` for a name or a schema that OpenAI rejects; ``bound`` has both."""
    if not _NAME.fullmatch(text(bound.get("name"))):
        raise refuse_shape(f"{where}.name: must be 1 to 64 letters, digits, '_' or '-'")
    schema = _read_schema(bound, f"{where}.schema")
    if bound.get("strict") is True:
        if schema.get("type") != "object":
            raise refuse_shape(f"{where}.schema: must be of type 'object'")
        _require_closed(schema, f"{where}.schema", complete=True)


def check_anthropic(body: Body) -> None:
    """Raise ``UsageError`` for a format that Anthropic rejects."""
    bound = mapping(body.get("output_config")).get("format")
    if bound is None:
        return
    where = "output_config.format"
    if mapping(bound).get("type") != "json_schema":
        raise refuse_shape(f"{where}.type: must be 'json_schema'")
    schema = _read_schema(mapping(bound), f"{where}.schema")
    _require_closed(schema, f"{where}.schema", complete=False)


def check_gemini(body: Body) -> None:
    """Raise ``UsageError`` for a schema if the answer is not JSON."""
    settings = mapping(body.get("generationConfig") or body.get("generation_config"))
    schemas = [key for key in ("responseSchema", "responseJsonSchema") if key in settings]
    if not schemas:
        return
    if len(schemas) > 1:
        raise refuse_shape("generationConfig: has both responseSchema and responseJsonSchema")
    if settings.get("responseMimeType") not in {"application/json", "text/x.enum"}:
        raise refuse_shape(
            f"generationConfig.{schemas[0]}: needs responseMimeType application/json"
        )
    _read_schema({"schema": settings[schemas[0]]}, f"generationConfig.{schemas[0]}")


def _read_schema(bound: Body, where: str) -> Body:
    schema = bound.get("schema")
    if not isinstance(schema, dict):
        raise refuse_shape(f"{where}: must be an object")
    return schema


def _require_closed(schema: Body, where: str, *, complete: bool) -> None:
    """Raise ``UsageError`` for an open object; the depth of a body is bounded."""
    for place, each in _walk_schemas(schema, where):
        if each.get("type") != "object" and "properties" not in each:
            continue
        if each.get("additionalProperties") is not False:
            raise refuse_shape(f"{place}: additionalProperties must be present and false")
        required = each.get("required")
        listed = required if isinstance(required, list) else []
        left = [name for name in mapping(each.get("properties")) if name not in listed]
        if complete and left:
            raise refuse_shape(f"{place}: required must name every property, and lacks {left[0]!r}")


def _walk_schemas(schema: Body, where: str) -> Iterator[tuple[str, Body]]:
    yield where, schema
    for key in _NESTED:
        if isinstance(inner := schema.get(key), dict):
            yield from _walk_schemas(inner, f"{where}.{key}")
    for key in _LISTED:
        listed = schema.get(key)
        for number, each in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(each, dict):
                yield from _walk_schemas(each, f"{where}.{key}[{number}]")
    for key in _NAMED:
        for name, each in mapping(schema.get(key)).items():
            if isinstance(each, dict):
                yield from _walk_schemas(each, f"{where}.{key}.{name}")
