"""``coilclaw approvals``: list what waits for an approval."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, Console, Namespace, Parser, find_home, pick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent import Approval, ApprovalQuestion


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    listing = action("list", "list what waits, oldest first").json()
    listing.flag("--all", "also list what was answered or has expired")


def run(args: Namespace, console: Console) -> None:
    """List the approvals."""
    from coilclaw.app import open_desk

    found = open_desk(find_home()).list(pending_only=not args.all)
    lines = (line for one in found for line in _describe(one))
    console.table(map(record_approval, found), lines, "nothing waits for an approval")


def _describe(approval: Approval) -> Iterator[tuple[str, str | None]]:
    """Yield the lines of an approval; hidden characters in it are made visible."""
    style = {"pending": "yellow", "approved": "green", "rejected": "red"}.get(approval.state)
    yield f"{approval.id}  {approval.state}  {approval.created[:19]}Z", style
    for line in describe_question(approval.question):
        yield f"  {line}", None
    if approval.answered_by:
        yield f"  answered by {approval.answered_by} at {approval.answered[:19]}Z", None
    elif approval.state == "pending":
        yield f"  expires {approval.expires[:19]}Z", None


def describe_question(question: ApprovalQuestion) -> Iterator[str]:
    """Yield the lines of a question; its texts cannot imitate one of the labels."""
    from coilclaw.agent import visible

    facts = {
        "for": f"{question.kind} {question.origin}",
        "asked by": question.asker,
        "title": question.title,
        "tool": question.tool,
        "risk": question.risk,
        "rule": question.rule,
        "reason": question.reason,
        "args": question.arguments,
    }
    yield from (f"{label}: {visible(text)}" for label, text in facts.items() if text)
    yield from (f"| {visible(line)}" for line in question.detail)


def record_approval(approval: Approval) -> dict[str, object]:
    """Return an approval as JSON values."""
    return {
        **pick(approval, "id", "state", "created", "expires"),
        "waiting": approval.state == "pending" and approval.waiting,
        **pick(approval, "answered_by", "answered", "text"),
        **asdict(approval.question),
        "detail": list(approval.question.detail),
    }


def declare_answer(parser: Parser) -> None:
    """Declare the arguments of ``approve`` and ``reject``."""
    parser.value("id", "ID", "the approval, or the beginning of its id").json()


def answer_approval(
    name: str, console: Console, *, approved: bool, words: str | None = None
) -> int:
    """Answer an approval, and print its new state and what to do next."""
    from coilclaw.agent import end_rejected_run
    from coilclaw.app import open_desk, open_sop_runs
    from coilclaw.cli.session import open_logs
    from coilclaw.workspace import is_alive, this_person

    place = find_home()
    with open_logs(os.environ):
        approval = open_desk(place).answer(name, approved=approved, by=this_person(), words=words)
        ended = not approved and end_rejected_run(open_sop_runs(place), approval)
    if console.emit({**record_approval(approval), "run_ended": ended}):
        return DONE
    console.table((), _describe(approval))
    question = approval.question
    if ended:
        console.note(f"the run {question.origin} has ended")
    elif question.resumable and not is_alive(approval.process):
        console.note(
            "the turn resumes with the next message: coilclaw agent --conversation "
            f"{question.conversation_id}; a running 'coilclaw serve' resumes it by itself"
        )
    elif question.kind in {"sop", "run", "override"}:
        # A run that is still waiting continues by itself.
        noun = "sop" if question.kind == "sop" else "runs"
        console.note(f"next: coilclaw {noun} resume {question.origin}")
    return DONE
