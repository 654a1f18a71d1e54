"""The typed inputs of a SOP: how they are declared, and what a run is given for them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.domain.canonical import MAX_INTEGER
from coilclaw.errors import UsageError
from coilclaw.sop.problem import closest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.domain.messages import Json
    from coilclaw.sop.problem import Place
    from coilclaw.sop.table_reader import TableReader

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

_KEYS: Final = ("type", "default", "required", "choices", "description")
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


def read_inputs(reader: TableReader, table: dict[str, object]) -> dict[str, InputSpec]:
    """Read the table of inputs; ``reader`` notes what is wrong with it."""
    given = table.get(TABLE, {})
    if not isinstance(given, dict):
        reader.note((TABLE,), "is no table")
        return {}
    if len(given) > MAX_INPUTS:
        reader.note((TABLE,), f"there are {len(given)} inputs; {MAX_INPUTS} is the most")
        return {}
    found = {}
    for name, one in given.items():
        place: Place = (TABLE, name)
        if not NAME.fullmatch(name) or name in RESERVED:
            reader.note(place, "is no name of an input: a letter, then letters, digits, '_', '-'")
        elif not isinstance(one, dict):
            reader.note(place, "is no table")
        else:
            found[name] = _read_input(reader, place, name, one)
    return found


def _read_input(
    reader: TableReader, place: Place, name: str, table: dict[str, object]
) -> InputSpec:
    reader.refuse_unknown(place, table, _KEYS, _KEYS)
    said = reader.take_text(place, table, "type")
    if said and said not in TYPES:
        reader.note(
            (*place, "type"), f"{said!r} is none of {', '.join(TYPES)}{closest(said, TYPES)}"
        )
    kind: InputType = next((one for one in TYPES if one == said), "string")
    choices = table.get("choices", [])
    if not isinstance(choices, list) or ("choices" in table and not choices):
        reader.note((*place, "choices"), "is no list of values")
        choices = []
    if kind == "list" and choices:
        reader.note((*place, "choices"), "does not belong to an input of type 'list'")
    for choice in choices:
        if said in TYPES and (problem := _misfit(kind, choice)):
            reader.note((*place, "choices"), problem)
    default = _read_default(reader, place, table, kind)
    spec = InputSpec(
        name,
        kind,
        default,
        tuple(choices),
        reader.take_text(place, table, "description", required=False),
    )
    if "default" in table and said in TYPES and (problem := _refusal(spec, table["default"])):
        reader.note((*place, "default"), problem)
    return spec


def _read_default(
    reader: TableReader, place: Place, table: dict[str, object], kind: InputType
) -> Json:
    has_default = "default" in table
    required = reader.take_flag(place, table, "required", default=not has_default)
    if required and has_default:
        reader.note((*place, "required"), "has a default, so that it is not required")
    if has_default:
        return cast("Json", table["default"])
    if not required and kind not in _NATURAL:
        reader.note(
            (*place, "required"), f"is false, and there is no default to stand for the {kind}"
        )
    return None if required else _NATURAL.get(kind)


def check_inputs(declared: Mapping[str, InputSpec], given: Mapping[str, Json]) -> dict[str, Json]:
    """Return the value of every input; a ``UsageError`` names everything that is wrong."""
    return _complete(declared, given, ())


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
    return _complete(declared, given, problems)


def _parsed(kind: InputType, text: str) -> Json:
    """Return what a text says in a type; where it says nothing, the text itself is a misfit."""
    if kind == "boolean" and text in {"true", "false"}:
        return text == "true"
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text) if math.isfinite(float(text)) else text
    return text


def _complete(
    declared: Mapping[str, InputSpec], given: Mapping[str, Json], problems: Sequence[str]
) -> dict[str, Json]:
    found = [*problems, *_problems(declared, given)]
    if found:
        known = ", ".join(f"{spec.name} ({spec.type})" for spec in declared.values())
        raise UsageError(
            f"the inputs do not fit: {'; '.join(found)}",
            rule=_RULE,
            hint=f"this SOP takes {known}" if known else "this SOP takes no inputs",
        )
    return {name: given.get(name, spec.default) for name, spec in declared.items()}


def _problems(declared: Mapping[str, InputSpec], given: Mapping[str, Json]) -> Iterator[str]:
    for name, value in given.items():
        if name not in declared:
            yield f"there is no input {_short(name)!r}{closest(name, declared)}"
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
