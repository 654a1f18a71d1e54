"""The typed inputs of a SOP: how they are declared, and what a run is given for them."""

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
"""What a condition says of a stage: no input may be called so."""

_NATURAL: Final[dict[str, Json]] = {"string": "", "boolean": False, "list": []}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")
_RULE: Final = "sop.inputs"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input as it is declared."""

    name: str
    type: InputType
    default: Json = None
    """What counts when nothing is given; ``None`` where something has to be."""
    choices: tuple[Json, ...] = ()
    description: str = ""

    @property
    def required(self) -> bool:
        return self.default is None


def read_inputs(top: Table) -> dict[str, InputSpec]:
    """Read the table of inputs; what is wrong with it is noted."""
    tables = top.table(TABLE)
    if len(tables.values) > MAX_INPUTS:
        top.note(TABLE, f"there are {len(tables.values)} inputs; {MAX_INPUTS} is the most")
        return {}
    found = {}
    for name in tables.values:
        if not NAME.fullmatch(name) or name in RESERVED:
            message = "is no name of an input: a letter, then letters, digits, '_', '-'"
            tables.note(name, message)
        else:
            found[name] = _read_input(name, tables.table(name))
    return found


def _read_input(name: str, table: Table) -> InputSpec:
    said = table.choice("type", None, TYPES, required=True)
    kind = cast("InputType", said or "string")
    choices = table.take("choices")
    if "choices" in table and (not isinstance(choices, list) or not choices):
        table.note("choices", "is no list of values")
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
        table.note("required", "has a default, so that it is not required")
    if not required and not has_default:
        default = _NATURAL.get(kind)
        if kind not in _NATURAL:
            message = f"is false, and there is no default to stand for the {kind}"
            table.note("required", message)
    spec = InputSpec(name, kind, default, tuple(values), table.text("description", blank=True))
    if has_default and said and (problem := _refusal(spec, default)):
        table.note("default", problem)
    table.refuse_unknown()
    return spec


def check_inputs(
    declared: Mapping[str, InputSpec], given: Mapping[str, Json], problems: Sequence[str] = ()
) -> dict[str, Json]:
    """Return the value of every input; a ``UsageError`` names everything that is wrong."""
    found = [*problems, *_problems(declared, given)]
    if found:
        known = ", ".join(f"{spec.name} ({spec.type})" for spec in declared.values())
        raise UsageError(
            f"the inputs do not fit: {'; '.join(found)}",
            rule=_RULE,
            hint=f"this SOP takes {known}" if known else "this SOP takes no inputs",
        )
    return {name: given.get(name, spec.default) for name, spec in declared.items()}


def parse_inputs(declared: Mapping[str, InputSpec], texts: Sequence[str]) -> dict[str, Json]:
    """Do the same with texts of the form ``NAME=VALUE``; a list takes one value from each."""
    given: dict[str, Json] = {}
    problems: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        spec = declared.get(name)
        if not equals:
            problems.append(f"{_short(text)!r} is not of the form NAME=VALUE")
        elif spec is not None and spec.type == "list":
            listed = given.setdefault(name, [])
            assert isinstance(listed, list), "only lists are put there"
            listed.append(value)
        elif name in given:
            problems.append(f"{name} is given twice")
        else:
            given[name] = value if spec is None else _parsed(spec.type, value)
    return check_inputs(declared, given, problems)


def _parsed(kind: InputType, text: str) -> Json:
    """Return what a text says in a type; where it says nothing, the text itself is a misfit."""
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
            yield f"there is no input {_short(name)!r}{suggest(name, declared)}"
        elif problem := _refusal(declared[name], value):
            yield f"{name} {problem}"
    for name, spec in declared.items():
        if spec.required and name not in given:
            yield f"{name} is missing"


def _refusal(spec: InputSpec, value: object) -> str:
    """Say why an input cannot have a value; nothing when it can."""
    problem = _misfit(spec.type, value)
    if problem or not spec.choices or value in spec.choices:
        return problem
    return f"is {_short(str(value))!r}, and may be {', '.join(map(str, spec.choices))}"


def _misfit(kind: InputType, value: object) -> str:
    if kind == "list":
        return _list_misfit(value)
    if isinstance(value, str) and len(value) > MAX_CHARS:
        return f"is longer than {MAX_CHARS} characters"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and kind in {"integer", "number"} and abs(cast("int", value)) > MAX_INTEGER:
        return f"is beyond {MAX_INTEGER}"
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": whole,
        "number": whole or (isinstance(value, float) and math.isfinite(value)),
    }[kind]
    return "" if fits else f"is {_short(str(value))!r}, which is no {kind}"


def _list_misfit(value: object) -> str:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return "is no list of texts"
    if len(value) > MAX_ITEMS:
        return f"has {len(value)} items; {MAX_ITEMS} is the most"
    if any(len(item) > MAX_CHARS for item in value):
        return f"has an item of more than {MAX_CHARS} characters"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 64 else f"{text[:64]}…"
