"""What environment files declare: names with templates such as ``chapter_{n}``, and parameters.

A path is made of names. The type of a parameter is its annotation, and what is given for it must
fit that type.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import types
import typing
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Union

from coilclaw.kernel import Json, UsageError, quote_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

MAX_NAME: Final = 100
MAX_PATH: Final = 400
MAX_VALUES: Final = 10_000
"""Names that one template may stand for."""
MAX_SUGGESTIONS: Final = 5

Value: TypeAlias = int | str

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PIECE: Final = re.compile(r"\{([^{}]*)\}|([^{}]+)|([{}])")


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a suite or test: plain, or a template with the values that it stands for."""

    text: str
    values: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for field, _ in self.values)

    def expand(self) -> Iterator[tuple[str, dict[str, Value]]]:
        """Yield each name that this stands for, with the values that make it."""
        for chosen in product(*(values for _, values in self.values)):
            given = dict(zip(self.fields, chosen, strict=True))
            yield self.text.format(**given), given


def name_of(text: str, values: Mapping[str, Iterable[Value]]) -> Name:
    """Check a name and the values of its fields."""
    if not text or len(text) > MAX_NAME or "/" in text:
        raise _refuse_name(text, ", without a slash")
    fields = []
    for piece in _PIECE.finditer(text):
        field, _, brace = piece.groups()
        if brace or (field is not None and (not field.isidentifier() or field in fields)):
            hint = "each {field} is an identifier and stands there once"
            raise _refuse_template(f"the template {quote_text(text)} is malformed", hint)
        if field is not None:
            fields.append(field)
    if set(fields) != set(values):
        has, given = (", ".join(names) or "(none)" for names in (fields, values))
        raise _refuse_template(
            f"the template {quote_text(text)} has the fields {has}, and values are given "
            f"for {given}",
            "give the values of each field: test('batch_{n}', n=(10, 100))",
        )
    name = Name(text, tuple((one, _check_values(text, one, values[one])) for one in fields))
    _check_expansion(name)
    return name


def check_path(text: str) -> str:
    """Return a path that was asked for in the form that paths have."""
    path = text.strip().strip("/")
    if len(path) > MAX_PATH or "\0" in path or "//" in path:
        message = f"{quote_text(text[:MAX_PATH])} is not a path of tests"
        raise UsageError(message, rule="environment.path.malformed")
    return path


def unknown_path(path: str, known: Iterable[str]) -> UsageError:
    """Return the error for a path that matches nothing, with close matches."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(path, names, MAX_SUGGESTIONS, 0.5)
    if not close:
        last = path.rpartition("/")[2]
        close = [name for name in names if last and last in name][:MAX_SUGGESTIONS]
    top = [name for name in names if "/" not in name][:20]
    hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(top)}"
    return UsageError(f"no tests match {quote_text(path)}", rule="environment.path", hint=hint)


def _check_values(text: str, field: str, given: Iterable[Value]) -> tuple[Value, ...]:
    where = f"{field} in {quote_text(text)}"
    if isinstance(given, str | bytes):
        raise _refuse_template(f"the values of {where} are one text, not several values")
    values: list[Value] = []
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | str):
            hint = "values are integers or texts"
            raise _refuse_template(f"{value!r} cannot be a value of {where}", hint)
        values.append(value)
        if len(values) > MAX_VALUES:
            raise _refuse_template(f"{where} has more than {MAX_VALUES} values")
    if not values:
        raise _refuse_template(f"{where} has no values")
    return tuple(values)


def _check_expansion(name: Name) -> None:
    seen: set[str] = set()
    for index, (text, _) in enumerate(name.expand()):
        if index >= MAX_VALUES:
            raise _refuse_template(
                f"{quote_text(name.text)} stands for more than {MAX_VALUES} names"
            )
        if not _PLAIN.fullmatch(text) or len(text) > MAX_NAME:
            raise _refuse_name(text, ", not beginning with . + or -")
        if text in seen:
            message = f"{quote_text(name.text)} stands for {quote_text(text)} twice"
            raise UsageError(message, rule="environment.twice")
        seen.add(text)


def _refuse_name(text: str, more: str) -> UsageError:
    message = f"{quote_text(text[:MAX_NAME])} is not a name of a test or suite"
    hint = f"1 to {MAX_NAME} letters, digits and _ . + -{more}"
    return UsageError(message, rule="environment.name", hint=hint)


def _refuse_template(message: str, hint: str | None = None) -> UsageError:
    return UsageError(message, rule="environment.template", hint=hint)


MAX_DEPTH: Final = 16
_JSON_TYPES: Final[dict[object, str]] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    types.NoneType: "null",
}


@dataclass(frozen=True, slots=True)
class Documents:
    """What was submitted, as a handler gets it that asks for it by this annotation."""

    dir: Path


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a handler."""

    name: str
    type: object
    default: object = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def is_documents(self) -> bool:
        return self.type is Documents


def parameters_of(handler: Callable[..., object], what: str) -> tuple[Parameter, ...]:
    """Read the parameters of a handler; each needs a name and an annotation that can be held."""
    try:
        # The annotations of the parameters; what is returned may be a name known to checkers only.
        whole = inspect.unwrap(handler)
        named = {key: one for key, one in inspect.get_annotations(whole).items() if key != "return"}
        holder = types.SimpleNamespace(__annotations__=named)
        hints = typing.get_type_hints(holder, globalns=getattr(whole, "__globals__", {}))
        signature = inspect.signature(handler)
    except (NameError, TypeError, ValueError) as problem:
        message = f"the parameters of {what} cannot be read: {problem}"
        raise UsageError(message, rule="environment.parameter") from problem
    found = []
    for name, given in signature.parameters.items():
        if given.kind not in {given.POSITIONAL_OR_KEYWORD, given.KEYWORD_ONLY}:
            message = f"{what} takes {given}, which has no name to give it by"
            raise UsageError(message, rule="environment.parameter")
        if name not in hints:
            message = f"the parameter {name} of {what} has no annotation"
            hint = f"say what it is, such as {name}: int"
            raise UsageError(message, rule="environment.parameter", hint=hint)
        parameter = Parameter(name, hints[name], given.default)
        if not parameter.is_documents:
            schema_of(parameter.type, f"{name} of {what}")
        found.append(parameter)
    return tuple(found)


def schema_of(kind: object, where: str, depth: int = 0) -> dict[str, Json]:
    """Return the JSON schema of an annotation; one that cannot be held is refused."""
    if kind in _JSON_TYPES:
        return {"type": _JSON_TYPES[kind]}
    if kind in {list, tuple, dict} or depth > MAX_DEPTH:
        raise _refuse_type(kind, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(one, where, depth + 1) for one in arguments]}
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": schema_of(arguments[0], where, depth + 1)}
    if origin is dict and arguments[0] is str:
        inner = schema_of(arguments[1], where, depth + 1)
        return {"type": "object", "additionalProperties": inner}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                field.name: schema_of(hints[field.name], where, depth + 1) for field in fields
            },
            "required": [field.name for field in fields if _is_required(field)],
        }
    raise _refuse_type(kind, where)


def parameters_schema(parameters: tuple[Parameter, ...]) -> dict[str, Json]:
    """Return the JSON schema of all that can be given to a handler."""
    named = [parameter for parameter in parameters if not parameter.is_documents]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {one.name: schema_of(one.type, one.name) for one in named},
        "required": [one.name for one in named if one.required],
    }


def value_of(kind: object, value: object, where: str) -> object:
    """Return a JSON value as an annotation wants it; nothing is converted silently."""
    if kind in _JSON_TYPES:
        if kind is float and type(value) is int:
            with suppress(OverflowError):
                return float(value)
        if type(value) is kind:
            return value
        raise _refuse_value(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if any(type(one) is type(value) and one == value for one in arguments):
            return value
        raise _refuse_value(kind, value, where)
    if origin in (Union, types.UnionType):
        for one in arguments:
            with suppress(UsageError):
                return value_of(one, value, where)
        raise _refuse_value(kind, value, where)
    if origin in (list, tuple) and isinstance(value, list | tuple):
        items = [value_of(arguments[0], item, f"{where}[{at}]") for at, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is dict and isinstance(value, dict):
        return {
            str(key): value_of(arguments[1], one, f"{where}.{key}") for key, one in value.items()
        }
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return _build(kind, value, where)
    raise _refuse_value(kind, value, where)


def bind(
    parameters: tuple[Parameter, ...],
    fixed: Mapping[str, object],
    given: Mapping[str, Json],
    documents: Documents,
    what: str,
) -> dict[str, object]:
    """Return the arguments of a call: ``fixed`` come from the path and from the author."""
    arguments: dict[str, object] = {}
    for parameter in parameters:
        where = f"the parameter {parameter.name} of {what}"
        if parameter.is_documents:
            arguments[parameter.name] = documents
        elif parameter.name in fixed:
            arguments[parameter.name] = fixed[parameter.name]
        elif parameter.name in given:
            arguments[parameter.name] = value_of(parameter.type, given[parameter.name], where)
        elif parameter.required:
            message = f"{where} is not given"
            hint = f"--param {parameter.name}=VALUE"
            raise UsageError(message, rule="environment.parameter.missing", hint=hint)
    return arguments


def bind_named(
    parameters: tuple[Parameter, ...], given: Mapping[str, Json], what: str
) -> dict[str, object]:
    """Return the arguments among these that were given, each as its annotation wants it."""
    return {
        one.name: value_of(one.type, given[one.name], f"the parameter {one.name} of {what}")
        for one in parameters
        if one.name in given and not one.is_documents
    }


def _build(kind: type, value: Mapping[str, object], where: str) -> object:
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - set(fields))
    missing = [name for name, one in fields.items() if _is_required(one) and name not in value]
    if unknown or missing:
        said = f"has no field {unknown[0]!r}" if unknown else f"lacks the field {missing[0]!r}"
        raise UsageError(f"{where} {said}", rule="environment.parameter.type")
    given = {name: value_of(hints[name], value[name], f"{where}.{name}") for name in value}
    return kind(**given)


def _is_required(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _describe_type(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def _refuse_value(kind: object, value: object, where: str) -> UsageError:
    given = f"{str(value)[:80]!r} ({type(value).__name__})"
    message = f"{where} is {given}, and {_describe_type(kind)} is wanted"
    return UsageError(message, rule="environment.parameter.type")


def _refuse_type(kind: object, where: str) -> UsageError:
    message = f"the annotation {_describe_type(kind)} of {where} is of no kind that can be given"
    hint = "use int, float, str, bool, Literal, list[…], dict[str, …], a dataclass, or a union"
    return UsageError(message, rule="environment.parameter", hint=hint)
