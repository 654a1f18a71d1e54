"""The line of a key is found whatever stands around it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.kernel.toml_lines import lines_of
from tests.support.scale import scaled

Place = tuple[str | int, ...]

BARE = st.text("abzAZ09_-", min_size=1, max_size=3)
NAME = st.one_of(BARE, st.text("ab.\"\\'#=[]é\t ", max_size=4))
# Texts that look like something else.
FAKES = st.lists(
    st.sampled_from(["[x]", "[[x]]", "a = 1", "# c", "'''", '"', "\\", "é", "\n", " ", "}", "]"]),
    max_size=5,
).map("".join)


def quoted(text: str) -> str:
    out = ""
    for char in text:
        out += {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}.get(char, char)
    return f'"{out}"'


@dataclass
class Writer:
    """Writes TOML and notes, independently, where everything stands."""

    draw: st.DrawFn
    text: str = ""
    lines: dict[Place, int] = field(default_factory=dict)

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def blank(self) -> None:
        self.text += self.draw(st.sampled_from(["", " ", "\t "]))

    def gap(self) -> None:
        """Write what may stand inside of an array."""
        self.text += self.draw(st.sampled_from(["", " ", "\n", " # ] , x = 1\n", "\r\n\t"]))

    def name(self, name: str) -> None:
        bare = name != "" and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
        if bare and self.draw(st.booleans()):
            self.text += name
        elif "'" not in name and self.draw(st.booleans()):
            self.text += f"'{name}'"
        else:
            self.text += quoted(name)

    def names(self, names: list[str]) -> None:
        for index, name in enumerate(names):
            if index:
                self.blank()
                self.text += "."
                self.blank()
            self.name(name)

    def string(self) -> None:
        fake = self.draw(FAKES)
        form = self.draw(st.sampled_from(["basic", "literal", "multi", "multi-literal"]))
        if form == "literal" and "'" not in fake and "\n" not in fake:
            self.text += f"'{fake}'"
        elif form == "multi":
            ending = self.draw(st.sampled_from(["", '"', '""']))
            inner = fake.replace("\\", "\\\\").replace('"""', "").replace('"', '\\"')
            self.text += f'"""{inner}{ending}"""'
        elif form == "multi-literal" and "'" not in fake:
            ending = self.draw(st.sampled_from(["", "'", "''"]))
            self.text += f"'''{fake}{ending}'''"
        else:
            self.text += quoted(fake)

    def value(self, place: Place, depth: int) -> None:
        form = self.draw(st.sampled_from(["string", "scalar", "array", "inline"]))
        if form == "array" and depth:
            self.text += "["
            count = self.draw(st.integers(0, 3))
            for index in range(count):
                self.gap()
                self.lines[*place, index] = self.line
                self.value((*place, index), depth - 1)
                self.gap()
                if index < count - 1 or self.draw(st.booleans()):
                    self.text += ","
            self.gap()
            self.text += "]"
        elif form == "inline" and depth:
            self.text += "{"
            names = self.draw(st.lists(NAME, unique=True, max_size=3))
            for index, name in enumerate(names):
                self.text += ", " if index else " "
                self.pair(place, [name], depth - 1)
            self.text += "}"
        elif form == "scalar":
            scalars = ["1", "-0x1f".lstrip("-"), "true", "1.5e3", "inf", "1979-05-27 07:32:00Z"]
            self.text += self.draw(st.sampled_from(scalars))
        else:
            self.string()

    def pair(self, table: Place, names: list[str], depth: int) -> None:
        place = table
        for name in names:
            place = (*place, name)
            self.lines.setdefault(place, self.line)
        self.names(names)
        self.blank()
        self.text += "="
        self.blank()
        self.value(place, depth)

    def end(self) -> None:
        self.blank()
        self.text += self.draw(st.sampled_from(["\n", "\r\n", " # [c] x = 1\n", "\n\n \n"]))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Place, int]]:
    writer = Writer(draw)
    tables = draw(st.lists(BARE, unique=True, max_size=4))
    keys = draw(st.lists(NAME, unique=True, max_size=3))
    for key in keys:
        if key not in tables:
            writer.pair((), [key], 2)
            writer.end()
    for table in tables:
        repeats = draw(st.integers(0, 2))
        for index in range(max(repeats, 1)):
            place: Place = (table, index) if repeats else (table,)
            writer.lines.setdefault((table,), writer.line)
            writer.lines.setdefault(place, writer.line)
            writer.text += "[[" if repeats else "["
            writer.blank()
            writer.name(table)
            writer.blank()
            writer.text += "]]" if repeats else "]"
            writer.end()
            for key in draw(st.lists(NAME, unique=True, max_size=3)):
                names = [key, *draw(st.lists(NAME, max_size=1))]
                writer.pair(place, names, 2)
                writer.end()
            if draw(st.booleans()):
                writer.lines[*place, "sub table"] = writer.line
                writer.text += "["
                writer.names([table, "sub table"])
                writer.text += "]"
                writer.end()
    return writer.text, writer.lines


def places(value: object, place: Place = ()) -> set[Place]:
    """Return every place of what the library read."""
    found = {place} if place else set()
    if isinstance(value, dict):
        for name, inner in value.items():
            found |= places(inner, (*place, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found |= places(inner, (*place, index))
    return found


@settings(max_examples=scaled(full=3000, default=250))
@given(documents())
def test_lines_are_those_on_which_keys_were_written(document: tuple[str, dict[Place, int]]) -> None:
    text, lines = document
    data = tomllib.loads(text)
    found = lines_of(text)
    assert found == lines
    assert set(found) == places(data)


@settings(max_examples=scaled(full=2000, default=200))
@given(st.text("ab=.[]{}\"'#\n ,\\1", max_size=40))
def test_any_text_is_searched_without_a_crash(text: str) -> None:
    lines = lines_of(text)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
    try:
        data = tomllib.loads(text)
    except ValueError:
        return
    assert set(lines) == places(data)
