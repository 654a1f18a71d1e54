"""``coilclaw receipt``: what tools were called, and the proof of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.checkpoint_input import add_checkpoint
from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from coilclaw.app.receipt_checks import CheckedReceipts
    from coilclaw.cli.console import Console
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.receipts.records import Happened
    from coilclaw.receipts.verification import OpenIntent, Verification


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="receipts, oldest first", allow_abbrev=False)
    listing.add_argument("--limit", type=int, metavar="N", help="only the newest N")
    add_json(listing)
    showing = actions.add_parser("show", help="one receipt", allow_abbrev=False)
    showing.add_argument("id", metavar="ID", help="its id, or the beginning of it")
    add_json(showing)
    checking = actions.add_parser(
        "verify", help="replay the chain and name the first broken link", allow_abbrev=False
    )
    add_checkpoint(checking)
    checking.add_argument(
        "--key", metavar="PEM", help="each of them must be signed by this public key"
    )
    checking.add_argument(
        "--strict", action="store_true", help="fail also where a crash left something unsettled"
    )
    add_json(checking)
    stating = actions.add_parser(
        "checkpoint", help="print how far the receipts are, to keep elsewhere", allow_abbrev=False
    )
    stating.add_argument("--sign", action="store_true", help="sign it with the key of this home")
    add_json(stating)
    settling = actions.add_parser(
        "settle", help="say what became of a call that a crash ended", allow_abbrev=False
    )
    settling.add_argument("id", metavar="INTENT", help="its id, or the beginning of it")
    settling.add_argument(
        "--happened",
        choices=("yes", "no", "unknown"),
        required=True,
        help="whether it had an effect",
    )
    settling.add_argument("--note", metavar="TEXT", default="", help="how you know, for the record")
    add_json(settling)
    exporting = actions.add_parser(
        "export", help="all receipts as JSON lines, exactly as written", allow_abbrev=False
    )
    exporting.add_argument("--output", metavar="FILE", help="write there (default: print)")
    exporting.add_argument(
        "--intents", action="store_true", help="export the log of intents instead"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """List, show, verify, settle or export receipts."""
    from coilclaw.app.agentwiring import open_book
    from coilclaw.app.home import home

    if args.action == "verify":
        return _verify(args, console)
    if args.action == "checkpoint":
        return _checkpoint(console, sign=args.sign)
    with open_book(home()) as book:
        match args.action:
            case "list":
                return _list(book, args.limit, console)
            case "show":
                return _show(book, args.id, console)
            case "settle":
                return _settle(book, args.id, args.happened, args.note, console)
            case _:
                return _export(book, args.output, console, intents=args.intents)


def _list(book: ReceiptBook, limit: int | None, console: Console) -> int:
    from collections import deque

    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError
    from coilclaw.receipts.records import SETTLES

    if limit is not None and limit < 1:
        raise UsageError("--limit is at least 1", rule="usage.limit")
    found = book.entries() if limit is None else iter(deque(book.entries(), maxlen=limit))
    if console.as_json:
        console.data(list(found))
        return DONE
    empty = True
    for receipt in found:
        empty = False
        if SETTLES in receipt:
            console.print(visible(_settlement_line(receipt)))
            continue
        status = str(receipt["status"])
        style = {"denied": "yellow", "failed": "red"}.get(status)
        # A model may have made the name up, so that nothing in it may act on whoever reads this.
        line = (
            f"{receipt['id']}  {str(receipt['timestamp'])[:19]}Z  {status:<8} "
            f"{receipt['risk']!s:<7} {receipt['tool']!s:<14} {receipt['approval']}"
        )
        console.print(visible(line), style)
    if empty:
        console.note(f"no receipts in {book.path}")
    return DONE


def _show(book: ReceiptBook, name: str, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE

    receipt = book.find(name)
    if console.as_json:
        console.data(receipt)
        return DONE
    for field, value in receipt.items():
        console.print(f"{field:<16} {value}")
    return DONE


def _settlement_line(record: Mapping[str, object]) -> str:
    return (
        f"{record['id']}  {str(record['timestamp'])[:19]}Z  settled  happened: "
        f"{record['happened']} {record['tool']} {record['intent']} by {record['by']} "
        f"{record['note']}"
    )


def _settle(book: ReceiptBook, name: str, happened: Happened, note: str, console: Console) -> int:
    from datetime import datetime

    from coilclaw.cli.dispatch import DONE
    from coilclaw.receipts.settlement import Finding, Settling
    from coilclaw.runtime.identity import alive, new_id, stamp, this_person

    settling = Settling(book, alive, new_id, lambda: stamp(datetime.now().astimezone()))
    record = settling.settle(name, Finding(happened, note), this_person()).record()
    if console.as_json:
        console.data(record)
    else:
        console.print(visible(_settlement_line(record)), "green")
    return DONE


def _checkpoint(console: Console, *, sign: bool) -> int:
    from coilclaw.app.home import home
    from coilclaw.app.receipt_checks import take_home_checkpoint
    from coilclaw.cli.checkpoint_output import print_checkpoint

    place = home()
    checkpoint, _ = take_home_checkpoint(place)
    return print_checkpoint(checkpoint, console, place, sign=sign)


def _verify(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.app.home import home
    from coilclaw.app.receipt_checks import verify_home
    from coilclaw.cli.checkpoint_input import read_checkpoints, read_public_key
    from coilclaw.cli.dispatch import DONE, FAILED

    checkpoints = read_checkpoints(args.checkpoint)
    checked = verify_home(home(), checkpoints=checkpoints, key=read_public_key(args.key))
    found = checked.found
    code = DONE if (found.settled if args.strict else found.ok) else FAILED
    if console.as_json:
        console.data({**_record(found), **_compared(checked)})
        return code
    for sentence in found.problems:
        console.error(sentence, rule="receipts.missing" if found.missing else "receipts.chain")
    for intent in found.open_intents:
        _say_open(intent, console)
    if found.more_open:
        console.note(f"and {found.more_open} more without a receipt")
    if found.unanchored:
        console.error(
            f"{found.unanchored} of the receipts and intents stand after the anchor: a crash left "
            "them there, or they were added without the key",
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
        console.print(
            f"valid: {_count(found.receipts, 'receipt')}, {_count(found.intents, 'intent')}, "
            "the chain and the anchor",
            "green",
        )
    if found.unsettled:
        console.print(f"unsettled: {_count(found.unsettled, 'call')} that a crash ended", "yellow")
    _say_compared(checked, console, key=args.key)
    return code


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say_compared(checked: CheckedReceipts, console: Console, *, key: str | None) -> None:
    for trust, count in sorted(checked.checkpoints.items()):
        said = {
            "valid": "signed by the key",
            "invalid": "with a signature that does not hold",
            "unsigned": "not signed: anyone could have written them",
            "unknown key": "signed by a key that is not known here: name it with --key"
            if key is None
            else f"signed by another key than {key}",
        }[trust]
        style = None if trust == "valid" else "yellow"
        console.note(f"checkpoints compared: {count}, {said}", style)
    lag = checked.lag
    if lag is not None and (lag.late or lag.problem):
        place = "" if lag.place in lag.problem else f" ({lag.place})"
        console.warn(f"{lag.sentence}{place}")


def _compared(checked: CheckedReceipts) -> dict[str, object]:
    lag = checked.lag
    return {
        "checkpoints": dict(checked.checkpoints),
        "last_checkpoint": None
        if lag is None
        else {
            "place": lag.place,
            "size": lag.size,
            "time": lag.time,
            "behind": lag.behind,
            "late": lag.late,
            "problem": lag.problem,
        },
    }


def _say_open(intent: OpenIntent, console: Console) -> None:
    when = f"{intent.id} {intent.tool} at {intent.timestamp} in {intent.conversation_id}"
    if intent.running:
        console.note(f"still running: {when}")
    else:
        console.note(
            f"unsettled: {when}; the program died during the call; look whether it had an effect, "
            f"then: coilclaw receipt settle {intent.id} --happened yes|no|unknown"
        )


def _state(found: Verification) -> str:
    if found.missing:
        return "missing"
    if not found.ok:
        return "invalid"
    return "nothing" if found.nothing else "valid"


def _record(found: Verification) -> dict[str, object]:
    return {
        "ok": found.ok,
        "state": _state(found),
        "broken": not found.ok,
        "unsettled": found.unsettled,
        "receipts": found.receipts,
        "settlements": found.settlements,
        "intents": found.intents,
        "broken_at": found.broken_at,
        "problems": list(found.problems),
        "open_intents": [
            {
                "id": intent.id,
                "timestamp": intent.timestamp,
                "tool": intent.tool,
                "conversation_id": intent.conversation_id,
                "running": intent.running,
                "overtaken": intent.overtaken,
            }
            for intent in found.open_intents
        ],
        "more_open": found.more_open,
        "anchor": found.anchor,
        "unanchored": found.unanchored,
        "torn_bytes": found.torn_bytes,
    }


def _export(book: ReceiptBook, output: str | None, console: Console, *, intents: bool) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.receipts.export import export

    if output is None:
        console.out.flush()
        count = export(book, sys.stdout.buffer, intents=intents)
        sys.stdout.buffer.flush()
    else:
        with Path(output).open("wb") as file:
            count = export(book, file, intents=intents)
    console.note(f"{count} {'intents' if intents else 'receipts'} exported")
    return DONE
