"""The typed inputs of a SOP: their declarations and their values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.kernel import MAX_INTEGER, UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import Json, Table

InputType: TypeAlias = Literal["string", "integer", "number", "boolean", "list"]

TYPES: Final[tuple[InputType, ...]] = ("string", "integer", "number", "boolean", "list")
TABLE: Final = "inputs"
MAX_INPUTS: Final = 50
MAX_ITEMS: Final = 100
"""Items of a list, and rounds of a loop."""
MAX_CHARS: Final = 16 * 2**10
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
RESERVED: Final = frozenset({"output", "success", "failure", "skipped"})
"""The fields of a stage in conditions, which are not allowed as names of inputs."""

_NATURAL: Final[dict[str, Json]] = {"string": "", "boolean": False, "list": []}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")
_RULE: Final = "sop.inputs"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The declaration of one input."""

    name: str
    type: InputType
    default: Json = None
    """The value of an input that is not given; ``None`` if it is required."""
    choices: tuple[Json, ...] = ()
    description: str = ""

    @property
    def required(self) -> bool:
        return self.default is None


def read_inputs(top: Table) -> dict[str, InputSpec]:
    """Return the declared inputs, and note the problems in their table."""
    tables = top.table(TABLE)
    if len(tables.values) > MAX_INPUTS:
        top.note(TABLE, f"has {len(tables.values)} inputs; the maximum is {MAX_INPUTS}")
        return {}
    found = {}
    for name in tables.values:
        if not NAME.fullmatch(name) or name in RESERVED:
            message = "is not a valid input name: a letter, then letters, digits, '_', '-'"
            tables.note(name, message)
        else:
            found[name] = _read_input(name, tables.table(name))
    return found


def _read_input(name: str, table: Table) -> InputSpec:
    said = table.choice("type", None, TYPES, required=True)
    kind = cast("InputType", said or "string")
    choices = table.take("choices")
    if "choices" in table and (not isinstance(choices, list) or not choices):
        table.note("choices", "is not a list of values")
    values = choices if isinstance(choices, list) else []
    if kind == "list" and values:
        table.note("choices", "does not belong to an input of type 'list'")
    for choice in values:
        if said and (problem := _misfit(kind, choice)):
            table.note("choices", problem)
    has_default = "default" in table
    default = cast("Json", table.take("default"))
    required = table.flag("required", default=not has_default)
    if required and has_default:
        table.note("required", "is true, but the input has a default")
    if not required and not has_default:
        default = _NATURAL.get(kind)
        if kind not in _NATURAL:
            message = f"is false, but the {kind} has no default"
            table.note("required", message)
    spec = InputSpec(name, kind, default, tuple(values), table.text("description", blank=True))
    if has_default and said and (problem := _refusal(spec, default)):
        table.note("default", problem)
    table.refuse_unknown()
    return spec


def check_inputs(
    declared: Mapping[str, InputSpec], given: Mapping[str, Json], problems: Sequence[str] = ()
) -> dict[str, Json]:
    """Return the value of every input; raise a ``UsageError`` with all problems."""
    found = [*problems, *_problems(declared, given)]
    if found:
        known = ", ".join(f"{spec.name} ({spec.type})" for spec in declared.values())
        raise UsageError(
            f"the inputs are invalid: {'; '.join(found)}",
            rule=_RULE,
            hint=f"this SOP takes {known}" if known else "this SOP takes no inputs",
        )
    return {name: given.get(name, spec.default) for name, spec in declared.items()}


def parse_inputs(declared: Mapping[str, InputSpec], texts: Sequence[str]) -> dict[str, Json]:
    """Check inputs of the form ``NAME=VALUE``; each text adds one item to a list."""
    given: dict[str, Json] = {}
    problems: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        spec = declared.get(name)
        if not equals:
            problems.append(f"{_short(text)!r} is not of the form NAME=VALUE")
        elif spec is not None and spec.type == "list":
            listed = given.setdefault(name, [])
            assert isinstance(listed, list), "an input of type list holds a list"
            listed.append(value)
        elif name in given:
            problems.append(f"{name} is given twice")
        else:
            given[name] = value if spec is None else _parse_value(spec.type, value)
    return check_inputs(declared, given, problems)


def _parse_value(kind: InputType, text: str) -> Json:
    """Return the value of a text in a type, or the text itself if it has none."""
    if kind == "boolean" and text in {"true", "false"}:
        return text == "true"
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text) if math.isfinite(float(text)) else text
    return text


def _problems(declared: Mapping[str, InputSpec], given: Mapping[str, Json]) -> Iterator[str]:
    for name, value in given.items():
        if name not in declared:
            yield f"unknown input {_short(name)!r}{suggest(name, declared)}"
        elif problem := _refusal(declared[name], value):
            yield f"{name} {problem}"
    for name, spec in declared.items():
        if spec.required and name not in given:
            yield f"{name} is missing"


def _refusal(spec: InputSpec, value: object) -> str:
    """Return why a value is invalid for an input, or an empty text."""
    problem = _misfit(spec.type, value)
    if problem or not spec.choices or value in spec.choices:
        return problem
    return f"is {_short(str(value))!r}, but must be one of {', '.join(map(str, spec.choices))}"


def _misfit(kind: InputType, value: object) -> str:
    if kind == "list":
        return _list_misfit(value)
    if isinstance(value, str) and len(value) > MAX_CHARS:
        return f"is longer than {MAX_CHARS} characters"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and kind in {"integer", "number"} and abs(cast("int", value)) > MAX_INTEGER:
        return f"exceeds {MAX_INTEGER}"
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": whole,
        "number": whole or (isinstance(value, float) and math.isfinite(value)),
    }[kind]
    return "" if fits else f"is {_short(str(value))!r}, not of type {kind}"


def _list_misfit(value: object) -> str:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return "is not a list of texts"
    if len(value) > MAX_ITEMS:
        return f"has {len(value)} items; the maximum is {MAX_ITEMS}"
    if any(len(item) > MAX_CHARS for item in value):
        return f"has an item of more than {MAX_CHARS} characters"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"
