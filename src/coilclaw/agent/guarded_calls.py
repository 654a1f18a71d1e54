"""Calls that no turn of a model makes, and people who approve them from elsewhere."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent.approvals import ApprovalQuestion
from coilclaw.kernel import ApprovalAnswer, ApprovalReply
from coilclaw.workspace import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.agent.approvals import ApprovalStore
    from coilclaw.agent.estop import Estop
    from coilclaw.agent.guard import Guard
    from coilclaw.agent.mcp.tool_server import Call, Offered
    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.agent.turn_undo import TurnUndo
    from coilclaw.kernel import ApprovalRequest, ToolCall, ToolResult
    from coilclaw.workspace import Cancellation

APPROVAL_S: Final = 300.0
"""How long a call of an MCP client waits for a person."""
MARGIN_S: Final = 60.0
"""How much later than a wait its watch for the emergency stop ends."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GuardedCalls:
    """Take calls through the guard, each as a turn of its own."""

    guard: Guard
    context: Callable[[str, str], ToolContext]
    undoing: TurnUndo

    def call(
        self,
        call: ToolCall,
        conversation_id: str,
        adapt: Callable[[ToolContext], ToolContext] = lambda same: same,
    ) -> ToolResult:
        """Make one call; ``adapt`` changes what it gets to work with."""
        turn = new_id("turn")
        try:
            return self.guard.call(call, adapt(self.context(conversation_id, turn)))
        finally:
            self.undoing.after(conversation_id, turn)

    def with_people(self, people: RemotePeople) -> Call:
        """Return the way of a call that people approve from elsewhere."""

        def call(wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
            with people.during(conversation, cancel):
                return self.call(wanted, conversation, lambda made: replace(made, cancel=cancel))

        return call

    def offered_tools(self) -> Offered:
        """Return what lists the allowed tools to other programs."""
        from coilclaw.agent.mcp.tool_server import offered_tool

        guard = self.guard
        return lambda: [
            offered_tool(tool) for tool in guard.tools.values() if tool.name in guard.allowed
        ]


def make_question(request: ApprovalRequest, **more: str) -> ApprovalQuestion:
    """Make the question whether a call of a tool may be made."""
    verdict = request.verdict
    return ApprovalQuestion(
        kind="tool",
        digest=request.digest,
        tool=request.tool,
        arguments=request.arguments,
        risk=str(verdict.risk),
        rule=verdict.rule,
        reason=verdict.reason,
        detail=request.detail,
        **more,
    )


class RemotePeople:
    """People who are not at this terminal: a question waits in the approval store for a while."""

    def __init__(
        self,
        desk: ApprovalStore,
        estop: Estop,
        timeout_s: float = APPROVAL_S,
        *,
        who: str = "an MCP client",
    ) -> None:
        self._desk = desk
        self._estop = estop
        self._stopping: str | None = None
        self._timeout_s = timeout_s
        self._who = who
        self._calls = threading.local()

    @contextmanager
    def during(self, conversation: str, cancel: Cancellation, asker: str = "") -> Iterator[None]:
        """Name the call that this thread is about to take through the guard."""
        self._calls.current = (conversation, cancel, asker)
        try:
            yield
        finally:
            del self._calls.current

    def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, and wait for the answer; anything but a yes in time is a no."""
        current: tuple[str, Cancellation, str] | None = getattr(self._calls, "current", None)
        if current is None:
            return ApprovalAnswer(ApprovalReply.NO, "nobody", "the call has no client")
        conversation, cancel, asker = current
        title = f"{self._who} calls {request.tool}"
        question = make_question(request, origin=conversation, title=title, asker=asker)
        name = self._desk.ask(question, expires_s=self._timeout_s)
        _log.warning(
            "%s waits for approval: 'coilclaw approve %s', within %g s",
            request.tool,
            name,
            self._timeout_s,
            extra={"event": "approval_waiting", "fields": {"approval": name}},
        )
        with self._estop.watch_call(cancel, self._timeout_s + MARGIN_S):
            return self._desk.wait_for_answer(
                name,
                request.digest,
                cancel=cancel,
                timeout_s=self._timeout_s,
                stopping=lambda: self._stopping,
            )

    def halt(self, reason: str) -> None:
        """End everything that still waits, because the program is being stopped."""
        self._stopping = reason

    def ask(self, _question: str) -> None:
        """Answer nothing: a question in words cannot be asked from here."""
