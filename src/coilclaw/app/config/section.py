"""One table of the configuration while it is read, by the keys that it may hold."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coilclaw.app.config.keys import TABLES, general, is_secret, known_names
from coilclaw.kernel import MAX_PROBLEMS, Document, Table, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel import DocumentPlace


class ConfigDocument(Document):
    """The text of a configuration, and what reading it needs to know and found."""

    def __init__(self, text: str, folder: Path, environ: Mapping[str, str]) -> None:
        super().__init__(text)
        self.folder = folder
        """Where the file is; relative paths are below it."""
        self.environ = environ
        self.warnings: list[str] = []

    @property
    def full(self) -> bool:
        """Whether no further problem is kept."""
        return len(self._noted) >= MAX_PROBLEMS

    def find(self, data: Mapping[str, object], place: tuple[str, ...]) -> Mapping[str, object]:
        """Return the table at a place; an absent one says nothing."""
        for depth, name in enumerate(place, start=1):
            if depth > 1:
                self.refuse_unknown(data, place[: depth - 1], known_names(place[: depth - 1]))
            data = self.table(data.get(name, {}), place[:depth]).values
        return data

    def section(self, data: Mapping[str, object], *place: str) -> Section:
        return Section(self, self.find(data, place), place)

    def refuse_unknown(
        self, values: Mapping[str, object], place: DocumentPlace, names: tuple[str, ...]
    ) -> None:
        """Note every key that has no meaning in a table."""
        for name in islice((name for name in values if name not in names), MAX_PROBLEMS):
            self.note((*place, name), *describe_unknown(name, names))


class Section(Table):
    """One table; its keys are read as ``TABLES`` describes them."""

    document: ConfigDocument

    def __init__(
        self, document: ConfigDocument, values: Mapping[str, object], place: tuple[str, ...]
    ) -> None:
        super().__init__(document, values, place)
        self.keys = TABLES[general(place)]
        names = tuple(dict.fromkeys((*self.keys, *known_names(place))))
        document.refuse_unknown(values, place, names)

    def read(self, *names: str) -> dict[str, Any]:
        """Take the keys of these names, or all, that are there and right, each by its form."""
        wanted = [name for name in names or self.keys if name in self]
        found = {name: self._read(name) for name in wanted}
        return {name: value for name, value in found.items() if value is not None}

    def _read(self, name: str) -> Any:
        key = self.keys[name]
        match key.form:
            case "choice":
                return self.choice(name, None, key.allowed)
            case "flag":
                return self.flag(name)
            case "count":
                return self.integer(name, None, least=int(key.least), most=int(key.most))
            case "number":
                bounds = {"least": key.least, "most": key.most}
                return self.number(name, None, **bounds, above=key.exclusive)
            case "path":
                value = self._take_typed(name, str)
                path = None if value is None else self.as_path(value, name)
                return None if path is None else self.document.folder / path
            case "list":
                return tuple(dict.fromkeys(item for _, item in self.strings(name)))
            case "map":
                return self.pairs(name)
            case _:
                return self.read_text(name, expanded=key.form == "url")

    def read_text(self, name: str, *, expanded: bool = False) -> str | None:
        """Take a string that a person can read; an address with its variables put in."""
        value = self.text(name, None)
        if value is not None and not value.isprintable():
            self.note(name, "holds control characters")
        if value is None or not expanded:
            return value
        found = expand_variables(value, self.document.environ)
        for problem in found.problems:
            self.note(name, problem)
        return found.text

    def strings(self, name: str, default: tuple[str, ...] = ()) -> list[tuple[int, str]]:
        """Take a list of strings, each with its index in the file."""
        if name not in self:
            return list(enumerate(default))
        self.texts(name)  # notes what is wrong with them
        items = enumerate(item for _, item in self.items(name))
        found = [(index, item) for index, item in items if isinstance(item, str) and item.strip()]
        for index, item in found:
            if not item.isprintable():
                self.note_item(name, index, "holds control characters")
        return found

    def note_item(self, name: str, index: int, message: str, allowed: tuple[str, ...] = ()) -> None:
        """Note what is wrong with one item of a list."""
        self.document.note((*self.place, name, index), message, allowed)

    def is_empty(self, name: str) -> bool:
        """Tell whether a key is absent, or holds nothing."""
        return self.values.get(name) in (None, "", [], {})

    def paths(
        self,
        name: str,
        default: tuple[str, ...] = (),
        find_problem: Callable[[Path, str], str] = lambda _, __: "",
    ) -> tuple[Path, ...]:
        """Take a list of paths; ``find_problem`` says what is wrong with one as it is written."""
        found = []
        for index, raw in self.strings(name, default):
            path = self.as_path(raw, name, index)
            problem = "" if path is None else find_problem(path, raw)
            if problem:
                self.note_item(name, index, problem)
            elif path is not None:
                found.append(path)
        return tuple(found)

    def as_path(self, value: str, *place: str | int) -> Path | None:
        """Expand a path, or note why that cannot be."""
        expanded = expand_path(value, self.document.environ)
        problems = list(expanded.problems)
        if not problems and not expanded.text:
            problems.append("is empty; it must be a path")
        if "\0" in expanded.text:
            problems.append("holds a NUL character")
        for problem in problems:
            self.document.note((*self.place, *place), problem)
        return None if problems else Path(expanded.text)


def describe_unknown(name: str, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Say what is wrong with a key that has no meaning, and what would have one."""
    if is_secret(name):
        message = (
            "a key is not written into this file: name the variable that holds it with "
            "api_key_env, or the file with api_key_file"
        )
        return message, ()
    return f"is not a known key{suggest(name, names)}", names


def is_variable(name: str) -> bool:
    """Tell whether a text can be the name of a variable."""
    return name.isascii() and name.isidentifier()


_VARIABLE: Final = r"\$(?:(?P<dollar>\$)|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*)|)"


class Expanded(NamedTuple):
    """The text with everything in its place; ``problems`` say what could not be."""

    text: str
    problems: tuple[str, ...] = ()


def expand_variables(text: str, environ: Mapping[str, str]) -> Expanded:
    """Put the variables of the environment in; what they hold is not expanded again."""
    problems: list[str] = []

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        name = found["braced"] or found["plain"]
        if not name:
            problems.append("has a $ that names no variable; a dollar sign is written $$")
            return ""
        held = environ.get(name)
        if not held:
            state = "not set" if held is None else "empty"
            problems.append(f"names the variable {name}, which is {state}")
            return ""
        return held

    if "$" not in text:
        return Expanded(text)
    whole = re.sub(_VARIABLE, value, text, flags=re.ASCII)
    return Expanded(whole, tuple(dict.fromkeys(problems)))


def expand_path(text: str, environ: Mapping[str, str]) -> Expanded:
    """Expand a path; only the user's own home can be written with ``~``."""
    if not text.startswith("~"):
        return expand_variables(text, environ)
    if text != "~" and not text.startswith("~/"):
        return Expanded(text, ("begins with ~ and a name; only ~ and ~/ are expanded",))
    home = find_user_home(environ)
    if home is None:
        return Expanded(text, ("begins with ~, and the user has no home directory",))
    rest = expand_variables(text[1:], environ)
    return Expanded(home.rstrip("/") + rest.text or "/", rest.problems)


def find_user_home(environ: Mapping[str, str]) -> str | None:
    """Return the home directory of the user, as ``~`` means it."""
    named = environ.get("HOME")
    if named:
        return named
    import os
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir or None
    except KeyError:
        return None


def escape_path(text: str) -> str:
    """Write a path so that expanding gives it back; it must be absolute."""
    return text.replace("$", "$$")
