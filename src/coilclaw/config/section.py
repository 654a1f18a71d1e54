"""One table of the configuration while it is read: takes values out, and notes what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from coilclaw.config import expand
from coilclaw.config.keys import Key, is_secret, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.config.problem import Place

Default = TypeVar("Default")

MAX_NOTED: Final = 100
"""Problems that are told of one file; who has more has another problem."""

_SHOWN: Final = 60
_TYPES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


class Noted(NamedTuple):
    """A problem whose line is not known yet."""

    place: Place
    message: str
    allowed: tuple[str, ...] = ()


class Reading:
    """What reading one file needs to know, and what it found."""

    __slots__ = ("environ", "folder", "noted", "warnings")

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        """Where the file is; relative paths are below it."""
        self.environ = environ
        self.noted: list[Noted] = []
        self.warnings: list[str] = []

    @property
    def full(self) -> bool:
        """Whether no further problem is kept."""
        return len(self.noted) >= MAX_NOTED

    def note(self, place: Place, message: str, allowed: tuple[str, ...] = ()) -> None:
        """Keep a problem, once."""
        problem = Noted(place, message, allowed)
        if not self.full and problem not in self.noted:
            self.noted.append(problem)


class Section:
    """One table; every method takes the value of one key, or the default where it is absent."""

    __slots__ = ("_keys", "_table", "place", "reading")

    def __init__(
        self, reading: Reading, table: Mapping[str, object], place: Place, keys: Mapping[str, Key]
    ) -> None:
        self.reading = reading
        self.place = place
        self._table = table
        self._keys = keys

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def note(self, name: str, message: str, allowed: tuple[str, ...] = ()) -> None:
        self.reading.note((*self.place, name), message, allowed)

    def refuse_unknown(self) -> None:
        """Note every key that has no meaning here."""
        names = tuple(dict.fromkeys((*self._keys, *known(_names(self.place)))))
        for name in self._table:
            if name not in names and not self.reading.full:
                self.note(name, *unknown(name, names))

    def text(self, name: str, default: Default) -> str | Default:
        """Take a string that a person can read."""
        value = self._typed(name, str)
        if value is None:
            return default
        return value if self._readable(name, value) else default

    def choice(self, name: str, default: Default) -> str | Default:
        value = self._typed(name, str)
        if value is None:
            return default
        allowed = self._keys[name].allowed
        if value not in allowed:
            self.note(name, f"is {shown(value)}{meant(value, allowed)}", allowed)
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._typed(name, bool)
        return default if value is None else value

    def count(self, name: str, default: int) -> int:
        value = self._typed(name, int)
        return default if value is None or not self._within(name, value) else value

    def number(self, name: str, default: Default) -> float | Default:
        value = self._typed(name, float)
        return default if value is None or not self._within(name, value) else float(value)

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Take a list of strings; the same one twice counts once."""
        return tuple(dict.fromkeys(item for _, item in self.items(name, default)))

    def items(self, name: str, default: tuple[str, ...]) -> list[tuple[int, str]]:
        """Take a list of strings, each with its index in the file."""
        listed = self._typed(name, list)
        if listed is None:
            return list(enumerate(default))
        taken = []
        for index, item in enumerate(listed):
            if not isinstance(item, str):
                self.item(name, index, f"must be a string, not {_type_name(item)}")
            elif self._readable(name, item, index):
                taken.append((index, item))
        return taken

    def item(self, name: str, index: int, message: str, allowed: tuple[str, ...] = ()) -> None:
        """Note what is wrong with one item of a list."""
        self.reading.note((*self.place, name, index), message, allowed)

    def is_empty(self, name: str) -> bool:
        """Tell whether a key is absent, or holds nothing."""
        return self._table.get(name) in (None, "", [], {})

    def path(self, name: str, default: Default) -> Path | Default:
        """Take a path; a relative one is below the folder of the file."""
        value = self._typed(name, str)
        if value is None:
            return default
        found = self.as_path(value, (*self.place, name))
        return default if found is None else self.reading.folder / found

    def as_path(self, value: str, place: Place) -> Path | None:
        """Expand a path, or note why that cannot be."""
        expanded = expand.path(value, self.reading.environ)
        problems = list(expanded.problems)
        if not problems and not expanded.text:
            problems.append("is empty; it must be a path")
        if "\0" in expanded.text:
            problems.append("holds a NUL character")
        for problem in problems:
            self.reading.note(place, problem)
        return None if problems else Path(expanded.text)

    def map(self, name: str) -> dict[str, str]:
        """Take a table whose values are strings."""
        taken = {}
        for key, value in (self._typed(name, dict) or {}).items():
            if isinstance(value, str) and value:
                taken[key] = value
            else:
                self.reading.note((*self.place, name, key), "must be the name of a provider")
        return taken

    def _typed(self, name: str, kind: type[Default]) -> Default | None:
        value = self._table.get(name)
        if value is None:
            return None
        if kind is float and type(value) is int:
            return value  # type: ignore[return-value]  # a whole number is a number
        if type(value) is not kind:
            self.note(name, f"must be {_TYPES[kind]}, not {_type_name(value)}")
            return None
        return value

    def _readable(self, name: str, value: str, index: int | None = None) -> bool:
        place = (*self.place, name) if index is None else (*self.place, name, index)
        if not value.strip():
            self.reading.note(place, "is empty")
        elif not value.isprintable():
            self.reading.note(place, "holds control characters")
        else:
            return True
        return False

    def _within(self, name: str, value: float) -> bool:
        key = self._keys[name]
        low = value > key.least if key.exclusive else value >= key.least
        if low and value <= key.most:  # neither holds of what is no number
            return True
        least = f"more than {key.least:g}" if key.exclusive else f"at least {key.least:g}"
        self.note(name, f"is out of bounds: it must be {least} and at most {key.most:.12g}")
        return False


def unknown(name: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Say what is wrong with a key that has no meaning, and what would have one."""
    if is_secret(name):
        message = (
            "a key is not written into this file: name the variable that holds it with "
            "api_key_env, or the file with api_key_file"
        )
        return message, ()
    return f"is no known key{meant(name, names)}", names


def meant(word: str, known_words: Iterable[str]) -> str:
    """Suggest what was probably meant, if anything is near."""
    from coilclaw.config.problem import closest

    near = closest(word, known_words)
    return f"; did you mean {near}?" if near else ""


def is_variable(name: str) -> bool:
    """Tell whether a text can be the name of a variable."""
    return name.isascii() and name.isidentifier()


def shown(value: str) -> str:
    """Quote a value for a message, shortened."""
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")


def _type_name(value: object) -> str:
    return next((said for kind, said in _TYPES.items() if type(value) is kind), "a date or a time")


def _names(place: Place) -> tuple[str, ...]:
    return tuple(str(part) for part in place)
