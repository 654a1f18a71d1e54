"""``coilclaw approve``: approve what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.runtime import approvals

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    approvals.declare_answer(parser)
    parser.value("--text", "ANSWER", "the answer to a question that needs one")


def run(args: Namespace, console: Console) -> int:
    """Approve it."""
    return approvals.answer_approval(args.id, console, approved=True, words=args.text)
