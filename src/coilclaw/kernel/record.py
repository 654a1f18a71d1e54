"""``Record``: a frozen dataclass whose fields are those of a JSON schema, by the same names.

A field without a default is required; ``X | None`` without one may be ``null``. A field with the
default ``None`` is optional, and absent from the JSON when it is ``None``. Modules of records do
without postponed annotations, because the types are read when a record is built.
"""

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)
from typing import get_type_hints as type_hints

from coilclaw.kernel import schemas
from coilclaw.kernel.errors import UsageError

if TYPE_CHECKING:
    from coilclaw.kernel.messages import Json

JSON_NAME: Final = "json"
"""Key of a field's metadata: its name in the JSON, where Python cannot have the same."""
MAX_LISTED: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One field of a record: how it is called here and there, and what it is."""

    attribute: str
    name: str
    type: object
    required: bool


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
class Record:
    """What every record can do; a class that names its ``schema`` is made a dataclass."""

    __slots__ = ()

    SCHEMA: ClassVar[str] = ""
    """The name of its schema, such as ``task_contract.v1``, or ``task_contract.v1#Agent``."""

    def __init_subclass__(cls, *, schema: str = "") -> None:
        if schema:
            cls.SCHEMA = schema
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def of(cls, value: object) -> Self:
        """Build it from JSON that its schema accepts; anything else is a ``UsageError``."""
        found = schemas.find_schema_problems(cls.SCHEMA, value)
        if found:
            raise UsageError(
                f"this is no {cls.SCHEMA}: " + list_problems(found),
                rule="contract.schema",
                hint="the schemas are in schemas/",
            )
        return cast("Self", _build_value(cls, value))

    def json(self) -> dict[str, "Json"]:
        """Return it as JSON; optional fields that are absent are left out."""
        return cast("dict[str, Json]", _plain(self))


def list_problems(found: "tuple[schemas.SchemaProblem, ...]") -> str:
    """All problems in one sentence; of very many only the first, and how many more there are."""
    shown = "; ".join(map(str, found[:MAX_LISTED]))
    more = len(found) - MAX_LISTED
    return shown if more <= 0 else f"{shown}; and {more} more"


def shape(record: type[Record]) -> tuple[Shape, ...]:
    """Return the fields of a class of records."""
    return _shape(cast("Any", record))


@cache
def _shape(record: Any) -> tuple[Shape, ...]:
    hints = type_hints(record)
    return tuple(
        Shape(
            attribute=field.name,
            name=field.metadata.get(JSON_NAME, field.name),
            type=hints[field.name],
            required=field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(record)
    )


def _build_value(kind: object, value: object) -> object:
    """Turn JSON, already known to be valid, into a value of a type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        inner = [item for item in get_args(kind) if item is not NoneType]
        return value if value is None or len(inner) != 1 else _build_value(inner[0], value)
    if origin is tuple:
        assert isinstance(value, list | tuple)
        return tuple(_build_value(get_args(kind)[0], item) for item in value)
    if origin is not None and isinstance(value, Mapping):
        inner_type = get_args(kind)[1]
        return {str(key): _build_value(inner_type, item) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Record):
        assert isinstance(value, Mapping)
        given = {
            field.attribute: _build_value(field.type, value[field.name])
            for field in shape(kind)
            if field.name in value
        }
        return kind(**given)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(cast("str", value))
    # JSON has one kind of number: 3.0 is a valid integer, and becomes one here.
    return int(value) if kind is int and isinstance(value, float) else value


def _plain(value: object) -> object:
    if isinstance(value, Record):
        fields = ((field, getattr(value, field.attribute)) for field in shape(type(value)))
        return {
            field.name: _plain(item) for field, item in fields if field.required or item is not None
        }
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
