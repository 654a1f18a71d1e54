"""Read a configuration-like document and report every problem at once, each with its line.

``Document`` collects the problems of one text. ``Table`` takes typed values out of one of its
tables: a wrong value is noted and counts as absent, so that reading continues to the end.

    document = Document(text)
    table = document.read_toml()
    name = table.text("name", required=True)
    limit = table.number("limit_s", 30.0, least=0, most=3600)
    table.refuse_unknown()
    if document.problems: ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DocumentPlace: TypeAlias = "tuple[str | int, ...]"
"""A key as its parts, from the outside in; an item of a list is its index."""

Default = TypeVar("Default")

MAX_PROBLEMS: Final = 100
"""Problems reported for one document."""

_MAX_NAME_CHARS: Final = 64
_MAX_VALUE_CHARS: Final = 60
_AT_LINE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_TYPES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong thing; ``key`` is empty when it is the document itself."""

    key: str
    message: str
    line: int | None = None
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Describe the problem on one line, without the name of the file."""
        text = self._describe()
        return text if self.line is None else f"line {self.line}: {text}"

    def sentence(self, file: str) -> str:
        """Describe the problem on one line that begins with ``file:line``, as editors expect."""
        where = file if self.line is None else f"{file}:{self.line}"
        return f"{where}: {self._describe()}"

    def _describe(self) -> str:
        text = f"{self.key}: {self.message}" if self.key else self.message
        return f"{text} (allowed: {', '.join(self.allowed)})" if self.allowed else text


class Document:
    """The text of one document and the problems found in it."""

    def __init__(self, text: str = "", *, root: str = "") -> None:
        self.text = text
        self._root = root
        """What every key begins with, for example ``$`` in JSON documents."""
        self._noted: dict[tuple[DocumentPlace, str], tuple[str, ...]] = {}
        self._broken: Problem | None = None

    def note(self, place: DocumentPlace, message: str, allowed: Iterable[str] = ()) -> None:
        """Keep a problem, once, up to ``MAX_PROBLEMS``."""
        if len(self._noted) < MAX_PROBLEMS:
            self._noted.setdefault((place, message), tuple(allowed))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every problem with its line, in the order of the text."""
        if self._broken is not None:
            return (self._broken,)
        if not self._noted:
            return ()
        from coilclaw.kernel.toml_lines import lines_of

        lines = lines_of(self.text)
        found = []
        for (place, message), allowed in self._noted.items():
            known = place
            while known and known not in lines:
                known = known[:-1]  # a missing key is reported at the line of its table
            found.append(Problem(self.name(place), message, lines.get(known), allowed))
        return tuple(sorted(found, key=lambda problem: problem.line or 0))

    def name(self, place: DocumentPlace) -> str:
        """Write a place as a person would: ``security.forbidden_paths[2]``."""
        return write_place(place, self._root)

    def read_toml(self) -> Table:
        """Parse the text as TOML; a syntax error is its only problem, and the table is empty."""
        import tomllib

        try:
            return self.table(tomllib.loads(self.text))
        except RecursionError:
            self._broken = Problem("", "is nested too deeply")
        except tomllib.TOMLDecodeError as problem:
            found = _AT_LINE.search(str(problem))
            line = int(found[1]) if found and found[1] else None
            reason = _AT_LINE.sub("", str(problem))
            self._broken = Problem("", f"is not valid TOML: {reason[:1].lower()}{reason[1:]}", line)
        return self.table({})

    def table(self, value: object, place: DocumentPlace = ()) -> Table:
        """Return a table to read; anything that is not a table is a problem and reads as empty."""
        if not isinstance(value, dict):
            self.note(place, f"must be a table, not {describe_type(value)}")
        return Table(self, value if isinstance(value, dict) else {}, place)


class Table:
    """One table of a document; every method takes one key, or the default where it is absent."""

    def __init__(
        self, document: Document, values: Mapping[str, object], place: DocumentPlace
    ) -> None:
        self.document = document
        self.values = values
        self.place = place
        self._asked: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def note(self, key: str, message: str, allowed: Iterable[str] = ()) -> None:
        """Keep a problem with a key of this table."""
        self.document.note((*self.place, key), message, allowed)

    def take(self, key: str, *, required: bool = False) -> object:
        """Return a value of any type, or ``None``."""
        self._asked[key] = None
        if required and key not in self.values:
            self.note(key, "is missing")
        return self.values.get(key)

    def text(
        self,
        key: str,
        default: Default = "",  # type: ignore[assignment]
        *,
        required: bool = False,
        blank: bool = False,
        most: int | None = None,
        form: re.Pattern[str] | None = None,
        rule: str = "",
    ) -> str | Default:
        """Take a string; ``rule`` says in words what ``form`` demands ("a name such as 'a-b'")."""
        value = self._take_typed(key, str, required=required)
        if value is None:
            return default
        if not blank and not value.strip():
            self.note(key, "is empty")
        elif most is not None and len(value) > most:
            self.note(key, f"is longer than {most} characters")
        elif form is not None and not form.fullmatch(value):
            self.note(key, f"{quote(value)} is not {rule}")
        else:
            return value
        return default

    def choice(
        self, key: str, default: Default, allowed: Iterable[str], *, required: bool = False
    ) -> str | Default:
        """Take one of a fixed set of strings."""
        value, words = self._take_typed(key, str, required=required), tuple(allowed)
        if value is None or value in words:
            return default if value is None else value
        self.note(key, f"is {quote(value)}{suggest(value, words)}", words)
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Take true or false."""
        value = self._take_typed(key, bool)
        return default if value is None else value

    def integer(
        self, key: str, default: Default, *, least: int, most: int, required: bool = False
    ) -> int | Default:
        """Take a whole number within bounds."""
        value = self._take_typed(key, int, required=required)
        return default if value is None or not self._check_range(key, value, least, most) else value

    def number(
        self, key: str, default: Default, *, least: float, most: float, above: bool = False
    ) -> float | Default:
        """Take a number within bounds; ``above`` excludes the lower one."""
        value = self._take_typed(key, float)
        if value is None or not self._check_range(key, value, least, most, above=above):
            return default
        return float(value)

    def texts(
        self, key: str, default: tuple[str, ...] = (), *, most: int | None = None
    ) -> tuple[str, ...]:
        """Take a list of strings."""
        if (items := self._take_typed(key, list)) is None:
            return default
        if most is not None and len(items) > most:
            self.note(key, f"has {len(items)} items; at most {most} are allowed")
            return default
        place = (*self.place, key)
        for index, item in enumerate(items):
            if not isinstance(item, str):
                message = f"must be a string, not {describe_type(item)}"
                self.document.note((*place, index), message)
            elif not item.strip():
                self.document.note((*place, index), "is empty")
        return tuple(item for item in items if isinstance(item, str) and item.strip())

    def items(self, key: str, *, most: int | None = None) -> Iterator[tuple[DocumentPlace, object]]:
        """Take a list of anything: each item with its place."""
        items = self._take_typed(key, list) or []
        if most is not None and len(items) > most:
            self.note(key, f"has {len(items)} items; at most {most} are allowed")
            return
        for index, item in enumerate(items):
            yield (*self.place, key, index), item

    def pairs(self, key: str) -> dict[str, str]:
        """Take a table whose values are strings."""
        values = self._take_typed(key, dict) or {}
        for name, value in values.items():
            if not isinstance(value, str):
                place = (*self.place, key, name)
                self.document.note(place, f"must be a string, not {describe_type(value)}")
        return {name: value for name, value in values.items() if isinstance(value, str)}

    def table(self, key: str) -> Table:
        """Take a table below this one; an absent one reads as empty."""
        value = self.take(key)
        return self.document.table({} if value is None else value, (*self.place, key))

    def tables(
        self, key: str, *, most: int | None = None, required: bool = False
    ) -> tuple[Table, ...]:
        """Take a list of tables; a required one has at least one item."""
        found = tuple(
            self.document.table(item, place) for place, item in self.items(key, most=most)
        )
        if required and key not in self.values:
            self.note(key, "is missing")
        elif required and self.values[key] == []:
            self.note(key, "is empty")
        return found

    def refuse_unknown(self, known: Iterable[str] = ()) -> None:
        """Note every key that no method took and that is not in ``known``."""
        names = tuple(dict.fromkeys((*self._asked, *known)))
        for key in self.values:
            if key not in names:
                self.note(key, f"is not a known key{suggest(key, names)}", names)

    def _take_typed(
        self, key: str, kind: type[Default], *, required: bool = False
    ) -> Default | None:
        value = self.take(key, required=required)
        if value is None and self.values.get(key, self) is not None:
            return None
        if kind is float and type(value) is int:
            return value  # type: ignore[return-value]  # a whole number is a number
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.note(key, f"must be {_TYPES[kind]}, not {describe_type(value)}")
            return None
        return value

    def _check_range(
        self, key: str, value: float, least: float, most: float, *, above: bool = False
    ) -> bool:
        if (value > least if above else value >= least) and value <= most:  # NaN is in no bounds
            return True
        low = f"more than {least:.12g}" if above else f"at least {least:.12g}"
        self.note(key, f"is out of bounds: it must be {low} and at most {most:.12g}")
        return False


def write_place(place: DocumentPlace, root: str = "") -> str:
    """Write a place as a person would; a name that TOML cannot write bare is quoted."""
    import json

    text = root
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        short = part if len(part) <= _MAX_NAME_CHARS else f"{part[:_MAX_NAME_CHARS]}…"
        if not is_bare(part):
            short = json.dumps(short, ensure_ascii=not short.isprintable())
        text += f"{'.' if text else ''}{short}"
    return text


def is_bare(name: str) -> bool:
    """Tell whether a name can stand in TOML without quotes."""
    return name != "" and name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()


def suggest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the nearest known word, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def quote(value: str) -> str:
    """Quote a value for a message, shortened."""
    return repr(value if len(value) <= _MAX_VALUE_CHARS else value[:_MAX_VALUE_CHARS] + "…")


def describe_type(value: object) -> str:
    """Name the type of a value as a reader of TOML or JSON knows it."""
    return _TYPES.get(type(value), "a date or a time")


def list_problems(problems: Iterable[Problem], file: str) -> str:
    """Return ``a problem: …`` or ``N problems:`` with one line for each."""
    lines = [problem.sentence(file) for problem in problems]
    count = "a problem: " if len(lines) == 1 else f"{len(lines)} problems:\n"
    return count + "\n".join(lines)
