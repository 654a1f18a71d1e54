"""What the model says, before it is put into a dialect."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.modelserver.script import Stop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.modelserver.script import Counts

BYTES_PER_TOKEN: Final = 4
SMALLEST_PIECE: Final = 8
MOST_PIECES: Final = 64


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """What the model says."""

    text: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call with arguments; ``namespace`` is for dialects that group their tools."""

    name: str
    arguments: Mapping[str, Json]
    namespace: str | None = None
    id: str | None = None
    """As the script gives it; without one, the dialect makes its own."""


@dataclass(frozen=True, slots=True)
class FreeformCall:
    """A call whose input is plain text."""

    name: str
    input: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class LocalShellCall:
    """A call of the shell tool that is part of a dialect itself."""

    command: tuple[str, ...]
    id: str | None = None


Call: TypeAlias = FunctionCall | FreeformCall | LocalShellCall
Item: TypeAlias = Reasoning | Text | Call


@dataclass(frozen=True, slots=True)
class Tokens:
    """What is reported as used."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as every dialect renders it; ``items`` are in the order they are said."""

    items: tuple[Item, ...]
    stop: Stop
    tokens: Tokens
    created: int
    stop_as: str | None = None

    @property
    def text(self) -> str | None:
        return _joined([item.text for item in self.items if isinstance(item, Text)])

    @property
    def reasoning(self) -> str | None:
        return _joined([item.text for item in self.items if isinstance(item, Reasoning)])

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(item for item in self.items if not isinstance(item, Reasoning | Text))


def stop_of(wanted: Stop | None, items: tuple[Item, ...]) -> Stop:
    """Return why an answer ends when the script does not say."""
    if wanted is not None:
        return wanted
    calls = any(not isinstance(item, Reasoning | Text) for item in items)
    return Stop.TOOL_CALLS if calls else Stop.STOP


def tokens_of(counts: Counts, request_bytes: int, items: tuple[Item, ...]) -> Tokens:
    """Return the counts of the script, and estimates for what it leaves out."""
    output = estimate(sum(_size(item) for item in items))
    return Tokens(
        input=estimate(request_bytes) if counts.input is None else counts.input,
        output=output if counts.output is None else counts.output,
        cached=counts.cached,
        reasoning=counts.reasoning,
    )


def estimate(size: int) -> int:
    """Return about how many tokens some bytes are; the same for the same bytes."""
    return max(1, math.ceil(size / BYTES_PER_TOKEN))


def pieces(text: str) -> list[str]:
    """Cut text as a stream does: anywhere, and in a bounded number of pieces."""
    size = max(SMALLEST_PIECE, math.ceil(len(text) / MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def new_id(prefix: str) -> str:
    """Return an identifier that is not used twice."""
    return prefix + os.urandom(12).hex()


def _joined(texts: list[str]) -> str | None:
    return "".join(texts) if texts else None


def _size(item: Item) -> int:
    if isinstance(item, Reasoning | Text):
        return len(item.text)
    if isinstance(item, FunctionCall):
        return len(item.name) + len(repr(item.arguments))
    if isinstance(item, FreeformCall):
        return len(item.name) + len(item.input)
    return sum(map(len, item.command))
