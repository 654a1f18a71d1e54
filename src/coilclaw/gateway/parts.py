"""What a turn tells while it goes on, as a tagged union of small values, and their JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True)
class Drafted:
    """A piece of text; the answer is the one that ``final`` carries."""

    name: ClassVar[str] = "draft"
    text: str


@dataclass(frozen=True, slots=True)
class ToolRequested:
    """The model asks for a call; nothing is decided yet."""

    name: ClassVar[str] = "tool_request"
    call_id: str
    tool: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """What became of a call."""

    name: ClassVar[str] = "tool_result"
    call_id: str
    tool: str
    success: bool
    status: str
    output: str
    error: str | None
    receipt_id: str | None


@dataclass(frozen=True, slots=True)
class ApprovalPending:
    """The turn waits for an answer at ``/approvals``."""

    name: ClassVar[str] = "approval"
    id: str
    kind: str
    title: str


Part: TypeAlias = Drafted | ToolRequested | ToolAnswered | ApprovalPending


def fields(part: Part) -> dict[str, Json]:
    """Return a part as JSON; its name is told beside it."""
    return asdict(part)
