"""Values that a schema accepts, made by hypothesis from the schema itself."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
_PATTERNS = {
    "^[a-fA-F0-9]{64}$": st.text("0123456789abcdefABCDEF", min_size=64, max_size=64),
    "^[a-f0-9]{64}$": st.text("0123456789abcdef", min_size=64, max_size=64),
    "^([a-f0-9]{40}|[a-f0-9]{64})$": st.text("0123456789abcdef", min_size=40, max_size=40),
    "^[A-Za-z0-9._-]+$": st.text("abcXYZ019._-", min_size=1, max_size=9),
    "^[A-Z_]+$": st.text("ABC_", min_size=1, max_size=5),
    "^-": st.text("abc", max_size=5).map("-".__add__),
}
_TIMES = st.datetimes().map(lambda moment: moment.isoformat() + "Z")
MOST_ITEMS = 3


def values(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a schema; conditions (``if``, ``allOf``) are not looked at."""
    if schema is True:
        return JSON
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return st.deferred(lambda: values(root["$defs"][name], root))
    if "anyOf" in schema:
        return st.one_of([values(one, root) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([values({**schema, "type": one}, root) for one in kind])
    return _of_kind(kind, schema, root)


def _of_kind(kind: object, schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            most = schema.get("maximum", 2**53 - 1)
            return st.integers(schema.get("minimum", -(2**53) + 1), most)
        case "number":
            most = schema.get("maximum", 1e9)
            return st.floats(schema.get("minimum", -1e9), most, allow_nan=False)
        case "string":
            return _text(schema)
        case "array":
            least = schema.get("minItems", 0)
            unique = repr if schema.get("uniqueItems") else None
            inner = values(schema["items"], root)
            most = max(least, min(MOST_ITEMS, schema.get("maxItems", MOST_ITEMS)))
            return st.lists(inner, min_size=least, max_size=most, unique_by=unique)
        case "object" if "properties" in schema:
            return _object(schema, root)
        case "object":
            return _map(schema, root)
    raise AssertionError(schema)


def _text(schema: Any) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return _PATTERNS[schema["pattern"]]
    if schema.get("format") == "date-time":
        return _TIMES
    least = schema.get("minLength", 0)
    return st.text(min_size=least, max_size=max(least, 12))


def _object(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    required = set(schema.get("required", ()))
    fields = {name: values(inner, root) for name, inner in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: inner for name, inner in fields.items() if name in required},
        optional={name: inner for name, inner in fields.items() if name not in required},
    )


def _map(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    names = values({"type": "string", **schema.get("propertyNames", {})}, root)
    rest = schema.get("additionalProperties", True)
    least = schema.get("minProperties", 0)
    return st.dictionaries(names, values(rest, root), min_size=least, max_size=MOST_ITEMS)
