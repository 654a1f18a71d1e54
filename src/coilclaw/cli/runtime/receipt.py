"""``coilclaw receipt``: list, show, verify, settle and export receipts of tool calls."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.checkpoint import add_checkpoint
from coilclaw.cli.command import DONE, FAILED, Namespace, Parser, count_noun, find_home, pick
from coilclaw.cli.console import Console, escape_hidden
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.agent import CheckedReceipts, ReceiptBook, ReceiptVerification


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    listing = action("list", "list receipts, oldest first")
    listing.value("--limit", "N", "only the newest N", type=int).json()
    showing = action("show", "show one receipt")
    showing.value("id", "ID", "its id, or the beginning of it").json()
    checking = action("verify", "replay the chain and report the first broken link", _verify)
    add_checkpoint(checking)
    checking.value("--key", "PEM", "the public key that must have signed each checkpoint")
    checking.flag("--strict", "also fail if a crash left calls unsettled").json()
    stating = action("checkpoint", "print a checkpoint of the receipts, to keep elsewhere", _state)
    stating.flag("--sign", "sign it with the key of this home").json()
    settling = action("settle", "record the outcome of a call that a crash ended")
    settling.value("id", "INTENT", "its id, or the beginning of it")
    choices = ("yes", "no", "unknown")
    settling.value("--happened", None, "whether it had an effect", choices=choices, required=True)
    settling.value("--note", "TEXT", "how you know, kept with the record", default="").json()
    exporting = action("export", "write all receipts as JSON lines, exactly as recorded")
    exporting.value("--output", "FILE", "write there (default: print)")
    exporting.flag("--intents", "export the log of intents instead")


def _state(args: Namespace, console: Console) -> int:
    from coilclaw.app import open_receipts
    from coilclaw.cli.checkpoint import print_checkpoint

    checkpoint = open_receipts(find_home(), os.environ).take_checkpoint()
    return print_checkpoint(checkpoint, console, find_home(), sign=args.sign)


def run(args: Namespace, console: Console) -> None:
    """List, show, settle or export receipts."""
    from coilclaw.app import open_receipts

    with open_receipts(find_home(), os.environ).open_book() as book:
        match args.action:
            case "list":
                _list(book, args.limit, console)
            case "show":
                receipt = book.find(args.id)
                if not console.emit(receipt):
                    for field, value in receipt.items():
                        console.print(f"{field:<16} {value}")
            case "settle":
                _settle(book, args, console)
            case _:
                _export(book, args.output, console, intents=args.intents)


def _list(book: ReceiptBook, limit: int | None, console: Console) -> None:
    if limit is not None and limit < 1:
        raise UsageError("--limit must be at least 1", rule="usage.limit")
    found = book.entries() if limit is None else iter(deque(book.entries(), maxlen=limit))
    console.table(found, map(_describe, found), f"no receipts in {book.path}")


def _describe(receipt: Mapping[str, object]) -> tuple[str, str | None]:
    """Return the line of a receipt; hidden characters, which a model may add, are escaped."""
    from coilclaw.agent import SETTLES

    when = f"{receipt['id']}  {str(receipt['timestamp'])[:19]}Z"
    if SETTLES in receipt:
        line = (
            f"{when}  settled  happened: {receipt['happened']} {receipt['tool']} "
            f"{receipt['intent']} by {receipt['by']} {receipt['note']}"
        )
        return escape_hidden(line), None
    status = str(receipt["status"])
    call = f"{receipt['risk']!s:<7} {receipt['tool']!s:<14} {receipt['approval']}"
    style = {"denied": "yellow", "failed": "red"}.get(status)
    return escape_hidden(f"{when}  {status:<8} {call}"), style


def _settle(book: ReceiptBook, args: Namespace, console: Console) -> None:
    from datetime import datetime

    from coilclaw.agent import SettlementFinding, Settling
    from coilclaw.workspace import format_time, is_alive, new_id, this_person

    settling = Settling(book, is_alive, new_id, lambda: format_time(datetime.now().astimezone()))
    finding = SettlementFinding(args.happened, args.note)
    record = settling.settle(args.id, finding, this_person()).record()
    if not console.emit(record):
        console.print(_describe(record)[0], "green")


def _verify(args: Namespace, console: Console) -> int:
    from coilclaw.app import open_receipts
    from coilclaw.cli.checkpoint import read_checkpoints, read_public_key

    checkpoints = read_checkpoints(args.checkpoint)
    receipts = open_receipts(find_home(), os.environ)
    checked = receipts.check(checkpoints, read_public_key(args.key))
    found = checked.found
    code = DONE if (found.settled if args.strict else found.ok) else FAILED
    if console.emit(_record(checked)):
        return code
    for sentence in found.problems:
        console.error(sentence, rule="receipts.missing" if found.missing else "receipts.chain")
    for line in _describe_open(found):
        console.note(line)
    if found.unanchored:
        console.error(
            f"{found.unanchored} of the receipts and intents follow the anchor: a crash left them "
            "there, or they were added without the key",
            rule="receipts.unanchored",
        )
    if found.torn_bytes:
        console.note(
            f"{found.torn_bytes} bytes at the end are not a record: a crash left them there, or "
            "they were added; the next call moves them aside"
        )
    if found.nothing:
        console.print("nothing to verify: no tool has been called yet")
    elif found.ok:
        counted = f"{count_noun(found.receipts, 'receipt')}, {count_noun(found.intents, 'intent')}"
        console.print(f"valid: {counted}, the chain and the anchor", "green")
    if found.unsettled:
        calls = count_noun(found.unsettled, "call")
        console.print(f"unsettled: {calls} that a crash ended", "yellow")
    _show_compared(checked, console, key=args.key)
    return code


def _describe_open(found: ReceiptVerification) -> Iterator[str]:
    for intent in found.open_intents:
        when = f"{intent.id} {intent.tool} at {intent.timestamp} in {intent.conversation_id}"
        if intent.running:
            yield f"still running: {when}"
        else:
            yield (
                f"unsettled: {when}; the program died during the call; check whether it had an "
                f"effect, then: coilclaw receipt settle {intent.id} --happened yes|no|unknown"
            )
    if found.more_open:
        yield f"and {found.more_open} more without a receipt"


def _show_compared(checked: CheckedReceipts, console: Console, *, key: str | None) -> None:
    unknown = "signed by an unknown key: give it with --key"
    meanings = {
        "valid": "signed by the key",
        "invalid": "with an invalid signature",
        "unsigned": "not signed: anyone could have written them",
        "unknown key": unknown if key is None else f"signed by another key than {key}",
    }
    for trust, count in sorted(checked.checkpoints.items()):
        style = None if trust == "valid" else "yellow"
        console.note(f"checkpoints compared: {count}, {meanings[trust]}", style)
    lag = checked.lag
    if lag is not None and (lag.late or lag.problem):
        place = "" if lag.place in lag.problem else f" ({lag.place})"
        console.warn(f"{lag.sentence}{place}")


def _record(checked: CheckedReceipts) -> dict[str, object]:
    found, lag = checked.found, checked.lag
    state = "nothing" if found.nothing else "valid"
    if found.missing or not found.ok:
        state = "missing" if found.missing else "invalid"
    intent = ("id", "timestamp", "tool", "conversation_id", "running", "overtaken")
    last = ("place", "size", "time", "behind", "late", "problem")
    return {
        "ok": found.ok,
        "state": state,
        "broken": not found.ok,
        **pick(found, "unsettled", "receipts", "settlements", "intents", "broken_at", "problems"),
        "open_intents": [pick(one, *intent) for one in found.open_intents],
        **pick(found, "more_open", "anchor", "unanchored", "torn_bytes"),
        "checkpoints": dict(checked.checkpoints),
        "last_checkpoint": None if lag is None else pick(lag, *last),
    }


def _export(book: ReceiptBook, output: str | None, console: Console, *, intents: bool) -> None:
    from coilclaw.agent import export_receipts

    if output is None:
        console.out.flush()
        count = export_receipts(book, console.out.buffer, intents=intents)
        console.out.buffer.flush()
    else:
        with Path(output).open("wb") as file:
            count = export_receipts(book, file, intents=intents)
    console.note(f"{count} {'intents' if intents else 'receipts'} exported")
