"""The people at this terminal, who approve and answer; where there is none, nobody does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.app.agentwiring import People
    from coilclaw.domain.toolcalls import Answer, ApprovalRequest
    from coilclaw.security.autonomy import Autonomy


def at_terminal(autonomy: Autonomy) -> People:
    """Ask at the terminal, with what that needs loaded when it is first asked."""
    from coilclaw.app.agentwiring import People

    def approve(request: ApprovalRequest) -> Answer:
        from coilclaw.channels.approval import TerminalApprover

        return TerminalApprover(os.environ, autonomy=autonomy)(request)

    return People(approve, _ask)


def _ask(question: str) -> str | None:
    from coilclaw.channels.asking import TerminalAsker

    return TerminalAsker(os.environ)(question)
