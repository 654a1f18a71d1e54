"""What a tool of a plugin says that it touches, and what that means for one call.

An entry such as ``$path`` is the argument of that name; any other is meant as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Fetches, Reads, Runs, Writes
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Arguments

FIELD: Final = "$"
MAX_VALUES: Final = 100


@dataclass(frozen=True, slots=True)
class Declared:
    """The ``effects`` of a tool."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The arguments that are named."""
        entries = (*self.reads, *self.writes, *self.fetches, *self.runs)
        return tuple(entry[1:] for entry in entries if entry.startswith(FIELD))

    @property
    def workspace(self) -> bool:
        """Whether the tool has anything to do with the workspace."""
        return bool(self.reads or self.writes or self.runs)

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Return what a call with these arguments touches."""
        found: list[Effect] = []
        for entry in self.reads:
            found += [Reads(path) for path in _texts(entry, args)]
        for entry in self.writes:
            found += [Writes(path) for path in _texts(entry, args)]
        for entry in self.fetches:
            found += [Fetches(_url(text)) for text in _texts(entry, args)]
        for entry in self.runs:
            found += _commands(entry, args)
        return tuple(found)

    def __str__(self) -> str:
        named = (
            ("reads", self.reads),
            ("writes", self.writes),
            ("fetches", self.fetches),
            ("runs", self.runs),
        )
        said = [f"{verb} {', '.join(entries)}" for verb, entries in named if entries]
        return "; ".join(said) or "touches nothing but its own files"


def _value(entry: str, args: Arguments) -> Json:
    return args.get(entry[1:]) if entry.startswith(FIELD) else entry


def _texts(entry: str, args: Arguments) -> list[str]:
    value = _value(entry, args)
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items) or len(texts) > MAX_VALUES:
        raise UsageError(
            f"the argument '{entry[1:]}' names what is touched: a text, or up to {MAX_VALUES}",
            rule="plugin.arguments",
        )
    return texts


def _commands(entry: str, args: Arguments) -> list[Effect]:
    """A text is a command line, a list is an argv."""
    value = _value(entry, args)
    if not isinstance(value, list):
        return [Runs(command=text) for text in _texts(entry, args)]
    return [Runs(argv=tuple(_texts(entry, args)))] if value else []


def _url(text: str) -> str:
    """A host alone means its usual address."""
    return text if "://" in text else f"https://{text}/"
