"""``coilclaw reject``: reject what waits for an approval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.runtime import approvals
from coilclaw.cli.runtime.approvals import declare_answer as declare

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace

__all__ = ("declare", "run")


def run(args: Namespace, console: Console) -> int:
    """Reject it."""
    return approvals.answer_approval(args.id, console, approved=False)
