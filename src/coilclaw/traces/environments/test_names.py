"""Names of suites and tests, templates such as ``chapter_{n}``, and paths made of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import UsageError, quote_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    """The error for a path that matches nothing, with what may have been meant."""
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
