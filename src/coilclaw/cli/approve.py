"""``coilclaw approve``: say yes to what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli import approvals

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    approvals.declare_answer(parser)
    parser.add_argument("--text", metavar="ANSWER", help="the answer, where words are asked for")


def run(args: argparse.Namespace, console: Console) -> int:
    """Answer."""
    return approvals.answer(args.id, console, approved=True, words=args.text)
