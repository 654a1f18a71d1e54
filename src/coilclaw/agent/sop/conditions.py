"""``when``: a condition on the outcome of earlier stages, parsed and never evaluated as code.

    condition = all { "or" all }
    all       = one { "and" one }
    one       = "not" one | "(" condition ")" | test
    test      = STAGE "." ("success" | "failure" | "skipped")
              | STAGE ".output" ("contains" | "equals") TEXT
              | "inputs." NAME ("contains" | "equals") TEXT

TEXT is in single or double quotes and has no escapes. Output is compared without surrounding white
space; an input that is not a text is compared in its JSON form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.agent.sop.inputs import TABLE as INPUTS
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.agent.sop.document import StageOutcome
    from coilclaw.kernel import Json

Field: TypeAlias = Literal["success", "failure", "skipped"]
How: TypeAlias = Literal["contains", "equals"]

MAX_CHARS: Final = 1000
MAX_DEPTH: Final = 20
LOST: Final = "sop.output_lost"

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<field>[A-Za-z][A-Za-z0-9_-]*\.[A-Za-z][A-Za-z0-9_-]*)(?![\w.-])"
    r"|(?P<word>and|or|not|contains|equals)(?![\w.-])"
    r"|(?P<sign>[()]))"
)


@dataclass(frozen=True, slots=True)
class Came:
    """Tests how a stage ended."""

    stage: str
    field: Field


@dataclass(frozen=True, slots=True)
class Says:
    """Tests whether the output of a stage, or an input, contains or equals a text."""

    name: str
    how: How
    text: str
    is_input: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """Negates a condition."""

    one: Condition


@dataclass(frozen=True, slots=True)
class Several:
    """Joins conditions by ``and`` or ``or``."""

    how: Literal["and", "or"]
    parts: tuple[Condition, ...]


Condition: TypeAlias = Came | Says | Not | Several


def parse(text: str) -> Condition:
    """Return the condition in a text; raise ``UsageError`` if it is invalid."""
    if len(text) > MAX_CHARS:
        raise _wrong(f"is longer than {MAX_CHARS} characters")
    parser = _Parser(tuple(_tokens(text)))
    condition = parser.either(MAX_DEPTH)
    if parser.next is not None:
        raise _wrong(f"{parser.next[1]!r} is not expected here")
    return condition


def list_sources(condition: Condition) -> Iterator[tuple[str, bool]]:
    """Yield each stage or input that a condition uses, and whether it is an input."""
    match condition:
        case Not(one):
            yield from list_sources(one)
        case Several(_, parts):
            for part in parts:
                yield from list_sources(part)
        case Came(stage):
            yield stage, False
        case Says(name, is_input=is_input):
            yield name, is_input


def holds(
    condition: Condition,
    outcomes: Mapping[str, StageOutcome],
    inputs: Mapping[str, Json] = MappingProxyType({}),
) -> bool:
    """Return whether a condition is true; raise ``UsageError`` if it needs a lost output."""
    match condition:
        case Not(one):
            return not holds(one, outcomes, inputs)
        case Several(how, parts):
            judged = (holds(part, outcomes, inputs) for part in parts)
            return all(judged) if how == "and" else any(judged)
        case Came(stage, field):
            outcome = outcomes[stage]
            return {"success": outcome.success, "failure": outcome.failure}.get(
                field, outcome.status == "skipped"
            )
        case Says(name, how, text, is_input):
            value = as_text(inputs[name]) if is_input else known_output(outcomes[name])
            return text in value.strip() if how == "contains" else text == value.strip()


def as_text(value: Json) -> str:
    """Return a value for display: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def known_output(outcome: StageOutcome) -> str:
    """Return the output of a stage; raise ``UsageError`` if it was lost."""
    if not outcome.output_known:
        message = f"the output of {outcome.stage} was lost when the run was interrupted"
        raise UsageError(message, rule=LOST)
    return outcome.output


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _wrong(f"{text[at:].strip()[:40]!r} is not understood")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, tokens: tuple[tuple[str, str], ...]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def either(self, depth: int) -> Condition:
        return self._parse_joined("or", depth)

    def _parse_joined(self, how: Literal["and", "or"], depth: int) -> Condition:
        parts = [self._part(how, depth)]
        while self.next == ("word", how):
            self._at += 1
            parts.append(self._part(how, depth))
        return parts[0] if len(parts) == 1 else Several(how, tuple(parts))

    def _part(self, how: str, depth: int) -> Condition:
        return self._parse_joined("and", depth) if how == "or" else self._one(depth)

    def _one(self, depth: int) -> Condition:
        if depth == 0:
            raise _wrong("is nested too deeply")
        kind, word = self._take()
        if (kind, word) == ("word", "not"):
            return Not(self._one(depth - 1))
        if (kind, word) == ("sign", "("):
            inside = self.either(depth - 1)
            if self._take() != ("sign", ")"):
                raise _wrong("a ')' is missing")
            return inside
        if kind != "field":
            raise _wrong(f"{word!r} is not expected here")
        return self._test(word)

    def _test(self, word: str) -> Condition:
        stage, _, field = word.partition(".")
        if field in {"success", "failure", "skipped"}:
            return Came(stage, cast("Field", field))
        if field != "output" and stage != INPUTS:
            raise _wrong(f"a stage has success, failure, skipped and output, not {field!r}")
        _, how = self._take()
        if how not in {"contains", "equals"}:
            raise _wrong(f"after {field} comes 'contains' or 'equals', and a text in quotes")
        kind, text = self._take()
        if kind != "text":
            raise _wrong(f"after {how} comes a text in quotes")
        is_input = field != "output"
        return Says(field if is_input else stage, cast("How", how), text[1:-1], is_input)

    def _take(self) -> tuple[str, str]:
        token = self.next
        if token is None:
            raise _wrong("ends too early")
        self._at += 1
        return token


def _wrong(what: str) -> UsageError:
    return UsageError(what, rule="sop.condition", hint='for example: "list.success"')
