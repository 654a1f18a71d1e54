"""``coilclaw memory``: list, search, show, clear and export past conversations."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import Console, Namespace, Parser, count_noun, find_home, pick
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.agent import Memory
    from coilclaw.kernel import TurnRecord

_DEFAULT_LIMIT: Final = 20
_NAMED: Final = 5


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    listing = action("list", "list the conversations, newest first")
    listing.value("--limit", "N", "at most N (default: all)", type=_parse_count).json()
    searching = action("search", "find messages that contain every word of a query")
    searching.value("query", "QUERY", "words, or parts of them; case is ignored")
    summary = f"at most N (default: {_DEFAULT_LIMIT})"
    searching.value("--limit", "N", summary, type=_parse_count, default=_DEFAULT_LIMIT).json()
    showing = action("show", "show one conversation")
    summary = "its id, or a unique beginning of it"
    showing.value("id", "CONVERSATION_ID", summary).json()
    clearing = action("clear", "delete all conversations permanently")
    clearing.flag("--yes", "confirm the deletion").json()
    exporting = action("export", "write everything as JSON lines")
    exporting.value("--output", "FILE", "default: standard output")


def run(args: Namespace, console: Console) -> None:
    """List, search, show, clear or export."""
    if args.action == "clear" and not args.yes:
        raise UsageError(
            "memory clear deletes every conversation permanently, and needs --yes",
            rule="memory.unconfirmed",
            hint="'coilclaw memory export' keeps a copy",
        )
    from coilclaw.app import open_memory

    with open_memory(find_home()) as memory:
        match args.action:
            case "list":
                show_list(memory, console, args.limit)
            case "search":
                show_found(memory, console, args.query, args.limit)
            case "show":
                show_conversation(memory, console, args.id)
            case "clear":
                clear(memory, console)
            case _:
                export(memory, console, args.output)


def show_list(memory: Memory, console: Console, limit: int | None) -> None:
    """Print the conversations, newest first."""
    found = memory.conversations(limit)
    lines = (
        f"{one.conversation_id}  {one.last[:19]}  {count_noun(one.turns, 'turn'):<9}  {one.title}"
        for one in found
    )
    console.table(
        (pick(one, "conversation_id", "started", "last", "turns", "title") for one in found),
        ((line.rstrip(), None) for line in lines),
        "no conversations yet",
    )


def show_found(memory: Memory, console: Console, query: str, limit: int) -> None:
    """Print the messages that a query finds, best first."""
    found = memory.search(query, limit=limit)
    names = ("conversation_id", "turn_id", "timestamp", "role", "excerpt", "score")
    lines = (
        f"{hit.conversation_id}  {hit.timestamp[:19]}  {hit.role:<9}  {hit.excerpt}"
        for hit in found
    )
    console.table((pick(hit, *names) for hit in found), ((line, None) for line in lines))
    if not found:
        console.note(f"no message contains {query!r}")


def show_conversation(memory: Memory, console: Console, name: str) -> None:
    """Print a conversation, given by its id or a unique beginning of it."""
    from coilclaw.agent import fields

    records = memory.conversation(_find(memory, name))
    if console.emit([fields(record) for record in records]):
        return
    for number, record in enumerate(records):
        if number:
            console.print()
        _show_record(console, record)


def clear(memory: Memory, console: Console) -> None:
    """Remove everything."""
    removed = memory.clear()
    if not console.emit({"removed": removed}):
        console.note(f"{removed} messages deleted permanently")


def export(memory: Memory, console: Console, output: str | None) -> None:
    """Write every record as a line of JSON, to standard output or a file private to its owner."""
    from coilclaw.agent import fields
    from coilclaw.kernel import write_atomic

    lines = (json.dumps(fields(one), separators=(",", ":")) + "\n" for one in memory.export())
    if output is None:
        console.out.writelines(lines)
        return
    data = [line.encode("ascii") for line in lines]
    write_atomic(Path(output), b"".join(data), mode=0o600)
    console.note(f"{len(data)} messages written to {output}")


def _find(memory: Memory, name: str) -> str:
    found = memory.beginning_with(name, _NAMED + 1) if name else ()
    if name in found or len(found) == 1:
        return found[0]  # an exact match comes first
    if found:
        more = ", …" if len(found) > _NAMED else ""
        raise UsageError(
            f"several conversations begin with {name!r}: {', '.join(found[:_NAMED])}{more}",
            rule="memory.ambiguous",
            hint="give more of the id",
        )
    raise UsageError(
        f"the conversation {name!r} does not exist",
        rule="memory.unknown",
        hint="'coilclaw memory list' shows all of them",
    )


def _show_record(console: Console, record: TurnRecord) -> None:
    by = f"  {record.provider} {record.model}".rstrip() if record.provider else ""
    console.print(f"{record.role}  {record.timestamp[:19]}{by}", "bold")
    for line in record.content.splitlines():
        console.print(line)
    for call in record.tool_calls:
        console.print(f"→ {call.name} {json.dumps(dict(call.arguments), ensure_ascii=False)}")
    for answer in record.tool_results:
        console.print(f"← {answer.tool}: {'done' if answer.success else 'failed'}", "dim")
        for line in (answer.output or answer.error or "").splitlines():
            console.print(f"  {line}", "dim")


def _parse_count(text: str) -> int:
    """Read a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
