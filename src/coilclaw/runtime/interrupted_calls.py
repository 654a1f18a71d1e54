"""Look up what became of calls that a crash ended between their intent and their receipt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Consults, Fetches, Reads
from coilclaw.receipts.records import ID_FIELD
from coilclaw.receipts.settlement import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.effects import Effect
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.tools.contract import Prepared

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_TREE: Final = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def lookup_of(effects: tuple[Effect, ...], prepared: Prepared) -> str:
    """Say for an intent where to see after a crash whether the call had its effect."""
    if prepared.lookup == "start":
        return f"start {boot()}"
    if prepared.lookup:
        return prepared.lookup
    if effects and all(isinstance(effect, Reads | Consults) for effect in effects):
        return "nothing"
    if effects and all(isinstance(effect, Reads | Consults | Fetches) for effect in effects):
        return "request"
    return ""


def boot() -> str:
    """Name the time since the machine started; empty where the system does not say."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def look_up(intent: Mapping[str, object], book: ReceiptBook, home: Path) -> Finding | None:
    """Find out whether an interrupted call had its effect; ``None`` when nothing can tell.

    An interrupted change of the workspace must have been repaired before.
    """
    kind, _, what = str(intent.get("lookup", "")).partition(" ")
    if kind == "nothing":
        return Finding("no", "the call only looks at things")
    if kind == "request":
        return Finding("unknown", "the call only asks; nothing tells whether the request was sent")
    if kind == "change":
        return _look_up_change(what, home)
    if kind == "start":
        began = book.has_start_mark(str(intent[ID_FIELD]))
        # Marks are not synced: one that was made is missing after a power cut, too.
        if began or not what or what != boot():
            return None
        return Finding("no", "the program ended before the call started a process")
    return None


def _look_up_change(what: str, home: Path) -> Finding | None:
    from coilclaw.workspace.changelog import ID, Changelog
    from coilclaw.workspace.state import TreeState

    tree, _, change_id = what.partition("/")
    if not (_TREE.fullmatch(tree) and ID.fullmatch(change_id)):
        return None
    directory = home / "trees" / tree
    state = TreeState(home, directory, directory)
    if state.pending.exists():
        return None  # a change is under way there, or waits to be repaired: the next start sees
    if Changelog(state).holds(change_id):
        return Finding("yes", f"the change {change_id} is in the journal of changes")
    return Finding("no", f"the change {change_id} was not made, or was taken back")
