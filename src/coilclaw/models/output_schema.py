"""The part of a JSON Schema that model services accept for structured answers.

They know a part of JSON Schema only, and refuse a request whose schema holds more. What goes out is
therefore another schema: each object is closed and all its properties are required, and whatever
bounds a value (lengths, patterns, ranges, conditions) is left out. An answer can fit that one and
not the whole one: the caller checks it against the whole one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Json

NAME: Final = "answer"
"""What the schema is called where a service wants a name for it."""
MAX_DEPTH: Final = 32

_KEPT: Final = ("type", "description", "enum")
_DEFINITIONS: Final = ("$defs", "definitions")


def narrow_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema that goes out; one that no service could take is a ``UsageError``."""
    if schema.get("type") != "object":
        raise _unusable("is not that of one object")
    return _object(schema, MAX_DEPTH)


def _schema(value: Json, depth: int) -> Json:
    return _object(value, depth) if isinstance(value, dict) else {}


def _object(schema: Mapping[str, Json], depth: int) -> dict[str, Json]:
    if depth == 0:
        raise _unusable(f"is nested more than {MAX_DEPTH} levels deep")
    out: dict[str, Json] = {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith("#"):
            raise _unusable("refers to another document")
        # Services take nothing beside a reference.
        return {"$ref": reference}
    out |= {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        out["enum"] = [schema["const"]]
    if "enum" in out and "type" not in out:
        out["type"] = _type(out["enum"])
    properties = schema.get("properties")
    if isinstance(properties, dict) or "object" in _list_kinds(schema.get("type")):
        inner = properties if isinstance(properties, dict) else {}
        out["properties"] = {name: _schema(each, depth - 1) for name, each in inner.items()}
        out["required"] = list(inner)
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = _schema(schema["items"], depth - 1)
    choices = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(choices, list):
        out["anyOf"] = [_schema(each, depth - 1) for each in choices]
    for key in _DEFINITIONS:
        named = schema.get(key)
        if isinstance(named, dict):
            out[key] = {name: _schema(each, depth - 1) for name, each in named.items()}
    return out


def _list_kinds(kind: Json) -> list[Json]:
    return kind if isinstance(kind, list) else [kind]


def _type(values: Json) -> Json:
    """Services want a type beside the values."""
    found: list[Json] = []
    for value in _list_kinds(values):
        name = _NAMES.get(type(value), "object")
        if name not in found:
            found.append(name)
    return found[0] if len(found) == 1 else found


_NAMES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
}


def _unusable(what: str) -> UsageError:
    return UsageError(f"the schema of the answer {what}", rule="provider.output_schema")
