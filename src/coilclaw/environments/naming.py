"""Names of suites and tests, templates such as ``chapter_{n}``, and paths made of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

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
            yield _filled(self.text, given), given


def name_of(text: str, values: Mapping[str, Iterable[Value]]) -> Name:
    """Check a name and the values of its fields."""
    if not text or len(text) > MAX_NAME or "/" in text:
        raise UsageError(
            f"{shown(text[:MAX_NAME])} is no name of a test or suite",
            rule="environment.name",
            hint=f"1 to {MAX_NAME} letters, digits and _ . + -, without a slash",
        )
    fields = []
    for piece in _PIECE.finditer(text):
        field, _, brace = piece.groups()
        if brace or (field is not None and (not field.isidentifier() or field in fields)):
            raise UsageError(
                f"the template {shown(text)} is malformed",
                rule="environment.template",
                hint="each {field} is an identifier and stands there once",
            )
        if field is not None:
            fields.append(field)
    if set(fields) != set(values):
        raise UsageError(
            f"the template {shown(text)} has the fields {_listed(fields)}, "
            f"and values are given for {_listed(values)}",
            rule="environment.template",
            hint="give the values of each field: test('batch_{n}', n=(10, 100))",
        )
    name = Name(text, tuple((field, _values(text, field, values[field])) for field in fields))
    _refuse_bad_expansion(name)
    return name


def check_path(text: str) -> str:
    """Return a path that was asked for in the form that paths have."""
    path = text.strip().strip("/")
    if len(path) > MAX_PATH or "\0" in path or "//" in path:
        raise UsageError(
            f"{shown(text[:MAX_PATH])} is no path of tests", rule="environment.path.malformed"
        )
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
    return UsageError(f"no tests match {shown(path)}", rule="environment.path", hint=hint)


def _values(text: str, field: str, given: Iterable[Value]) -> tuple[Value, ...]:
    if isinstance(given, str | bytes):
        raise UsageError(
            f"the values of {field} in {shown(text)} are one text, not several values",
            rule="environment.template",
        )
    values: list[Value] = []
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise UsageError(
                f"{value!r} cannot be a value of {field} in {shown(text)}",
                rule="environment.template",
                hint="values are integers or texts",
            )
        values.append(value)
        if len(values) > MAX_VALUES:
            raise UsageError(
                f"{field} in {shown(text)} has more than {MAX_VALUES} values",
                rule="environment.template",
            )
    if not values:
        raise UsageError(f"{field} in {shown(text)} has no values", rule="environment.template")
    return tuple(values)


def _refuse_bad_expansion(name: Name) -> None:
    seen: set[str] = set()
    for index, (text, _) in enumerate(name.expand()):
        if index >= MAX_VALUES:
            raise UsageError(
                f"{shown(name.text)} stands for more than {MAX_VALUES} names",
                rule="environment.template",
            )
        if not _PLAIN.fullmatch(text) or len(text) > MAX_NAME:
            raise UsageError(
                f"{shown(text)} is no name of a test or suite",
                rule="environment.name",
                hint=f"1 to {MAX_NAME} letters, digits and _ . + -, not beginning with . + or -",
            )
        if text in seen:
            raise UsageError(
                f"{shown(name.text)} stands for {shown(text)} twice", rule="environment.twice"
            )
        seen.add(text)


def _filled(text: str, given: Mapping[str, Value]) -> str:
    return _PIECE.sub(
        lambda piece: str(given[piece[1]]) if piece[1] is not None else piece[0], text
    )


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(fields) or "(none)"
