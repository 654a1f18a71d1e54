"""``coilclaw approvals``: what waits for a yes or a no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.cli.console import Console
    from coilclaw.runtime.approvals import Approval, Question


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="what waits, oldest first", allow_abbrev=False)
    listing.add_argument("--all", action="store_true", help="also what is answered or over")
    add_json(listing)


def run(args: argparse.Namespace, console: Console) -> int:
    """List what lies on the desk."""
    from coilclaw.app.home import home
    from coilclaw.app.sopwiring import open_desk
    from coilclaw.cli.dispatch import DONE

    found = open_desk(home()).list(pending_only=not args.all)
    if console.as_json:
        console.data([record(one) for one in found])
        return DONE
    for one in found:
        show(one, console)
    if not found:
        console.note("nothing waits for an approval")
    return DONE


def show(approval: Approval, console: Console) -> None:
    """Print what is asked, every byte of it visible, behind labels of ours."""
    style = {"pending": "yellow", "approved": "green", "rejected": "red"}.get(approval.state)
    console.print(f"{approval.id}  {approval.state}  {approval.created[:19]}Z", style)
    for line in described(approval.question):
        console.print(f"  {line}")
    if approval.answered_by:
        console.print(f"  answered by {approval.answered_by} at {approval.answered[:19]}Z")
    elif approval.state == "pending":
        console.print(f"  expires {approval.expires[:19]}Z")


def described(question: Question) -> Iterator[str]:
    """A question in lines; nothing in it can pass for a line of ours."""
    from coilclaw.channels.visible import visible

    facts = (
        ("for", f"{question.kind} {question.origin}"),
        ("asked by", question.asker),
        ("title", question.title),
        ("tool", question.tool),
        ("risk", question.risk),
        ("rule", question.rule),
        ("reason", question.reason),
        ("args", question.arguments),
    )
    for label, text in facts:
        if text:
            yield f"{label}: {visible(text)}"
    for line in question.detail:
        yield f"| {visible(line)}"


def record(approval: Approval) -> dict[str, object]:
    """An approval for machines."""
    from dataclasses import asdict

    question = asdict(approval.question)
    return {
        "id": approval.id,
        "state": approval.state,
        "created": approval.created,
        "expires": approval.expires,
        "waiting": approval.state == "pending" and approval.waiting,
        "answered_by": approval.answered_by,
        "answered": approval.answered,
        "text": approval.text,
        **question,
        "detail": list(approval.question.detail),
    }


def declare_answer(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``approve`` and ``reject``."""
    parser.add_argument("id", metavar="ID", help="the approval, or the beginning of its id")
    add_json(parser)


def answer(name: str, console: Console, *, approved: bool, words: str | None = None) -> int:
    """Answer one, and say what became of it."""
    import os

    from coilclaw.app.home import home
    from coilclaw.app.sopwiring import open_desk, rejected
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.telling import logging_for
    from coilclaw.runtime.identity import alive, this_person

    place = home()
    with logging_for(os.environ):
        approval = open_desk(place).answer(name, approved=approved, by=this_person(), words=words)
        ended = not approved and rejected(place, approval)
    if console.as_json:
        console.data({**record(approval), "run_ended": ended})
        return DONE
    show(approval, console)
    if ended:
        console.note(f"the run {approval.question.origin} has ended")
    elif approval.question.resumable and not alive(approval.process):
        console.note(
            "the turn resumes with the next message: coilclaw agent --conversation "
            f"{approval.question.conversation_id}; a running 'coilclaw serve' resumes it by itself"
        )
    elif approval.question.kind == "sop":
        console.note(f"next: coilclaw sop resume {approval.question.origin}")
    elif approval.question.kind in {"run", "override"}:
        # A run that still waits goes on by itself.
        console.note(f"next: coilclaw runs resume {approval.question.origin}")
    return DONE
