"""What every dialect does, each in a module of its own that is the implementation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coilclaw.modelserver.bodies import Body
    from coilclaw.modelserver.history import Said
    from coilclaw.modelserver.offered import Tool
    from coilclaw.modelserver.reply import Reply


_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class Streaming(Enum):
    """How the answer is wanted."""

    NO = auto()
    EVENTS = auto()
    """Server-sent events."""
    ARRAY = auto()
    """One JSON list that grows, which is what Gemini streams without ``alt=sse``."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an answer; header names are lower case."""

    body: Body
    headers: Mapping[str, str]
    model: str
    streaming: Streaming


class Dialect(Protocol):
    """One wire format: what a request says, and how a reply or an error looks."""

    def check(self, asked: Asked) -> None:
        """Refuse, with a ``UsageError``, what the real service would not take."""

    def said(self, body: Body) -> Iterable[Said]:
        """Return the history in the request, oldest first."""

    def tools(self, body: Body) -> Sequence[Tool]:
        """Return the tools that the request offers."""

    def whole(self, reply: Reply, asked: Asked) -> dict[str, object]:
        """Return the answer as one body."""

    def stream(self, reply: Reply, asked: Asked) -> Iterator[bytes]:
        """Return the answer as the events of a stream."""

    def error(self, status: int, message: str, retry_after: str | None) -> dict[str, object]:
        """Return an error in the dialect's own shape."""


def encoded(value: object) -> bytes:
    """Return JSON as services send it: compact, and in plain UTF-8 wherever that is possible."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Some clients take these for the end of a line, and so of an event.
        return text.translate(_LINE_ENDS).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8; an escape can say it.
        return json.dumps(value, separators=(",", ":")).encode()


def event(value: object, name: str | None = None, *, newline: bytes = b"\n") -> bytes:
    """Return one server-sent event."""
    data = value if isinstance(value, bytes) else encoded(value)
    head = b"event: " + name.encode() + newline if name else b""
    return head + b"data: " + data + newline * 2
