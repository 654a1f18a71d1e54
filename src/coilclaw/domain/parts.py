"""``Part``: the smallest observable unit of an agent's work, whoever the agent is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from coilclaw.domain.messages import Usage

PartKind: TypeAlias = Literal["reasoning", "text", "tool", "tool_use", "tool_result", "patch"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part, complete: it is made when the agent has finished it, never when it begins."""

    kind: PartKind
    text: str = ""
    """What was said or thought, whole."""
    tool: str = ""
    call_id: str = ""
    input: str = ""
    """The RFC 8785 text of a tool's arguments."""
    output: str = ""
    exit_code: int | None = None
    files: tuple[str, ...] = ()
    """Paths that the agent says it changed, relative to its directory where they lie in it."""
    usage: Usage | None = None
    item_type: str = ""
    """The agent's own word for it."""
    raw: str = ""
    """The agent's own event, as JSON text."""
