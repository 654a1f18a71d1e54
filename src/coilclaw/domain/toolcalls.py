"""What became of a tool call, and the question a person is asked before one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from coilclaw.domain.messages import Json
    from coilclaw.domain.verdict import Verdict


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers; ``output`` is for the model, ``error`` says why it did not succeed."""

    success: bool
    output: str
    error: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)
    receipt_id: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that needs a person's word, with everything that word is given for."""

    tool: str
    arguments: str
    """The RFC 8785 text of the arguments: these bytes are what is approved."""
    verdict: Verdict
    detail: tuple[str, ...]
    """What would happen, line by line: the argv, or the diff."""
    digest: str
    """SHA-256 over tool, arguments, detail and policy: the approval is bound to it."""
    conversation_id: str = ""
    """The conversation that waits for the answer."""
    turn_id: str = ""
    call_id: str = ""
    """The call in the conversation, as the model named it."""


class Reply(Enum):
    """What a person says to a request."""

    YES = "yes"
    NO = "no"
    ALWAYS = "always"
    """Yes, and to this exact call again without asking, until the program ends."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, and who or what gave it: a receipt never names a person who was not there."""

    reply: Reply
    by: str
    """``person NAME``, ``client NAME``, ``timeout``, ``estop``, ``shutdown`` or ``nobody``."""
    reason: str = ""
    """Why the answer is no, where no person and no client gave it."""

    @property
    def granted(self) -> bool:
        """Whether the call may be made."""
        return self.reply is not Reply.NO


Approve: TypeAlias = "Callable[[ApprovalRequest], Answer]"
"""Asks whoever may approve; where nobody can be asked, the answer is no."""
