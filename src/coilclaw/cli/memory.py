"""``coilclaw memory``: what was said in earlier conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from coilclaw.cli.console import Console
    from coilclaw.domain.turns import TurnRecord
    from coilclaw.memory.store import Memory

_DEFAULT_LIMIT: Final = 20
_NAMED: Final = 5


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the conversations, newest first", allow_abbrev=False)
    listing.add_argument("--limit", type=_count, metavar="N", help="at most N (default: all)")
    add_json(listing)
    searching = actions.add_parser(
        "search", help="messages that contain every word of a query", allow_abbrev=False
    )
    searching.add_argument(
        "query", metavar="QUERY", help="words, or parts of them; case is ignored"
    )
    searching.add_argument(
        "--limit",
        type=_count,
        default=_DEFAULT_LIMIT,
        metavar="N",
        help=f"at most N (default: {_DEFAULT_LIMIT})",
    )
    add_json(searching)
    showing = actions.add_parser("show", help="one conversation", allow_abbrev=False)
    showing.add_argument(
        "id", metavar="CONVERSATION_ID", help="its id, or a beginning that no other id has"
    )
    add_json(showing)
    clearing = actions.add_parser("clear", help="forget all of them for good", allow_abbrev=False)
    clearing.add_argument("--yes", action="store_true", help="really do it")
    add_json(clearing)
    exporting = actions.add_parser("export", help="everything as JSON lines", allow_abbrev=False)
    exporting.add_argument("--output", metavar="FILE", help="default: standard output")


def run(args: argparse.Namespace, console: Console) -> int:
    """List, search, show, clear or export."""
    from coilclaw.errors import UsageError

    if args.action == "clear" and not args.yes:
        raise UsageError(
            "memory clear removes every conversation for good, and needs --yes",
            rule="memory.unconfirmed",
            hint="memory export keeps a copy",
        )
    from coilclaw.app.agentwiring import open_memory
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE

    with open_memory(home()) as memory:
        if args.action == "list":
            show_list(memory, console, args.limit)
        elif args.action == "search":
            show_found(memory, console, args.query, args.limit)
        elif args.action == "show":
            show_conversation(memory, console, args.id)
        elif args.action == "clear":
            clear(memory, console)
        else:
            export(memory, console, args.output)
    return DONE


def show_list(memory: Memory, console: Console, limit: int | None) -> None:
    """Print the conversations, newest first."""
    summaries = memory.conversations(limit)
    if console.as_json:
        console.data(
            [
                {
                    "conversation_id": summary.conversation_id,
                    "started": summary.started,
                    "last": summary.last,
                    "turns": summary.turns,
                    "title": summary.title,
                }
                for summary in summaries
            ]
        )
        return
    if not summaries:
        console.note("there are no conversations yet")
    for summary in summaries:
        turns = f"{summary.turns} turn{'s' if summary.turns != 1 else ''}"
        console.print(
            f"{summary.conversation_id}  {summary.last[:19]}  {turns:<9}  {summary.title}".rstrip()
        )


def show_found(memory: Memory, console: Console, query: str, limit: int) -> None:
    """Print the messages that a query finds, best first."""
    found = memory.search(query, limit=limit)
    if console.as_json:
        console.data(
            [
                {
                    "conversation_id": hit.conversation_id,
                    "turn_id": hit.turn_id,
                    "timestamp": hit.timestamp,
                    "role": hit.role,
                    "excerpt": hit.excerpt,
                    "score": hit.score,
                }
                for hit in found
            ]
        )
    else:
        for hit in found:
            console.print(
                f"{hit.conversation_id}  {hit.timestamp[:19]}  {hit.role:<9}  {hit.excerpt}"
            )
    if not found:
        console.note(f"no message contains {query!r}")


def show_conversation(memory: Memory, console: Console, name: str) -> None:
    """Print a conversation, named by its id or a beginning of it."""
    from coilclaw.memory.rows import fields

    records = memory.conversation(_resolved(memory, name))
    if console.as_json:
        console.data([fields(record) for record in records])
        return
    for number, record in enumerate(records):
        if number:
            console.print()
        _show_record(console, record)


def clear(memory: Memory, console: Console) -> None:
    """Remove everything."""
    removed = memory.clear()
    if console.as_json:
        console.data({"removed": removed})
    else:
        console.note(f"{removed} messages removed for good")


def export(memory: Memory, console: Console, output: str | None) -> None:
    """Write every record as a line of JSON, to a file that only its owner may read or to stdout."""
    if output is None:
        for line in _lines(memory.export()):
            console.out.write(line)
        return
    import os
    from pathlib import Path

    path = Path(output)
    temporary = path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
    written = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            for line in _lines(memory.export()):
                file.write(line)
                written += 1
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    console.note(f"{written} messages written to {output}")


def _resolved(memory: Memory, name: str) -> str:
    from coilclaw.errors import UsageError

    found = memory.beginning_with(name, _NAMED + 1) if name else ()
    if name in found or len(found) == 1:
        return found[0]  # of all that begin with it, the name itself comes first
    if found:
        more = ", …" if len(found) > _NAMED else ""
        raise UsageError(
            f"several conversations begin with {name!r}: {', '.join(found[:_NAMED])}{more}",
            rule="memory.ambiguous",
            hint="give more of the id",
        )
    raise UsageError(
        f"there is no conversation {name!r}",
        rule="memory.unknown",
        hint="memory list shows all of them",
    )


def _show_record(console: Console, record: TurnRecord) -> None:
    by = f"  {record.provider} {record.model}".rstrip() if record.provider else ""
    console.print(f"{record.role}  {record.timestamp[:19]}{by}", "bold")
    for line in record.content.splitlines():
        console.print(line)
    for call in record.tool_calls:
        import json

        console.print(f"→ {call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}")
    for answer in record.tool_results:
        console.print(f"← {answer.tool}: {'done' if answer.success else 'failed'}", "dim")
        for line in (answer.output or answer.error or "").splitlines():
            console.print(f"  {line}", "dim")


def _lines(records: Iterable[TurnRecord]) -> Iterable[str]:
    import json

    from coilclaw.memory.rows import fields

    return (json.dumps(fields(record), separators=(",", ":")) + "\n" for record in records)


def _count(text: str) -> int:
    """Read a number of results."""
    if not text.isdecimal() or int(text) < 1:
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)
