"""A conversation as it is remembered: one record per message, grouped into turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json, ToolCall

ASKER: Final = "asker"
"""Names in the metadata of a message who sent it; the first one of a conversation owns it."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool call came to, as the model was told."""

    call_id: str
    tool: str
    success: bool
    output: str
    error: str | None = None
    receipt_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One message; those of one request and its response share ``turn_id``."""

    conversation_id: str
    turn_id: str
    timestamp: str
    """UTC, RFC 3339 with microseconds and ``Z``."""
    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolAnswer, ...] = ()
    provider: str = ""
    model: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recollection:
    """A remembered message that a search found; ``excerpt`` shows where."""

    conversation_id: str
    turn_id: str
    timestamp: str
    role: str
    excerpt: str
    score: float
