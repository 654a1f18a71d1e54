"""Turns that a program left open when it ended: whether they resume, and the fate of their calls.

A turn is open when the model asked for calls and some of them have no answer. It resumes if one of
them has an approval: only that call is then made, under that approval. Otherwise the model is told
what the receipts record about each call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent.history import LOST
from coilclaw.agent.receipts.book import ID_FIELD, INTENT_HASH, SETTLES, name_call
from coilclaw.kernel import UsageError
from coilclaw.workspace import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.agent.approvals import Approval, ApprovalStore
    from coilclaw.agent.history import OpenTurn
    from coilclaw.agent.receipts.book import ReceiptBook
    from coilclaw.agent.receipts.settlement import SettlementFinding

NOT_BEGUN: Final = (
    "this call did not begin: the program ended while it waited for approval, or for another call"
)
_MADE: Final = "the call was made; its output was lost when the program ended"
_HAPPENED: Final = {
    "yes": "the program ended during this call; it was found later that it had its effect",
    "no": "the program ended during this call; it was found later that it had no effect",
}


@dataclass(frozen=True, slots=True)
class OpenTurns:
    """Decides about the open turns of one home."""

    approvals: Callable[[], ApprovalStore]
    book: Callable[[], ReceiptBook | None]
    waits: bool = False
    """Whether a turn may wait for a pending approval; otherwise the answer has to come first."""

    def find_approval(self, turn: OpenTurn) -> Approval | None:
        """Return the approval with which an open turn resumes, or ``None``."""
        for call in turn.calls:
            found = self.approvals().find_for_call(turn.conversation_id, turn.id, call.id)
            if found is not None and found.state not in {"used", "withdrawn"}:
                return found
        return None

    def resumes(self, turn: OpenTurn) -> bool:
        """Return whether a turn resumes; raise ``UsageError`` while its answer is pending."""
        found = self.find_approval(turn)
        if found is None:
            return False
        if found.state == "pending" and not self.waits:
            raise UsageError(
                f"the conversation {turn.conversation_id} waits for {found.id}",
                rule="approval.open",
                hint=f"run 'coilclaw approve {found.id}' or 'coilclaw reject {found.id}' first",
            )
        return True

    def take_over(self, turn: OpenTurn) -> None:
        """Claim a turn; raise ``UsageError`` if another program resumes it."""
        found = self.find_approval(turn)
        if found is None or not self.approvals().take_over(found.id):
            raise UsageError(
                f"another program resumes the turn of {turn.conversation_id}", rule="approval.open"
            )

    def release(self, turn: OpenTurn, call_id: str) -> None:
        """Withdraw an approval that its call no longer needs."""
        found = self.approvals().find_for_call(turn.conversation_id, turn.id, call_id)
        if found is not None:
            self.approvals().withdraw(found.id)

    def tell(self, turn: OpenTurn) -> Mapping[str, str]:
        """Return a sentence about the fate of each call that began, by its id."""
        book = self.book()
        wanted = {name_call(call.id): call.id for call in turn.calls}
        intents = {
            str(intent[INTENT_HASH]): wanted[str(intent["call_id"])]
            for intent in (book.intents() if book else ())
            if intent.get("conversation_id") == turn.conversation_id
            and intent.get("turn_id") == turn.id
            and intent.get("call_id") in wanted
        }
        told = dict.fromkeys(intents.values(), LOST)
        for entry in book.entries() if book and intents else ():
            settled = entry.get(SETTLES)
            name = intents.get(str(settled or entry.get(INTENT_HASH)))
            if name is None:
                continue
            if settled:
                told[name] = _HAPPENED.get(str(entry.get("happened")), LOST)
            elif entry.get("status") == "allowed":
                told[name] = _MADE
            else:
                told[name] = f"the call was {entry.get('status')}; the reason was lost"
        return told


def is_abandoned(approval: Approval) -> bool:
    """Return whether an approval can resume a turn whose program ended."""
    return (
        approval.question.resumable
        and approval.state not in {"used", "withdrawn"}
        and not is_alive(approval.process)
    )


_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_TREE: Final = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def read_boot_id() -> str:
    """Return the id of the current boot; empty if the system has none."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def look_up_call(
    intent: Mapping[str, object], book: ReceiptBook, home: Path
) -> SettlementFinding | None:
    """Find out whether an interrupted call had its effect; return ``None`` if that is unknown.

    An interrupted change of the workspace must be repaired first.
    """
    from coilclaw.agent.receipts.settlement import SettlementFinding

    kind, _, what = str(intent.get("lookup", "")).partition(" ")
    if kind == "nothing":
        return SettlementFinding("no", "the call only reads")
    if kind == "request":
        return SettlementFinding(
            "unknown", "the call only sends a request; whether it was sent is unknown"
        )
    if kind == "change":
        return _look_up_change(what, home)
    if kind == "start":
        began = book.has_start_mark(str(intent[ID_FIELD]))
        # Marks are not synced, so a mark may be missing after a power cut.
        if began or not what or what != read_boot_id():
            return None
        return SettlementFinding("no", "the program ended before the call started a process")
    return None


def _look_up_change(what: str, home: Path) -> SettlementFinding | None:
    from coilclaw.agent.receipts.settlement import SettlementFinding
    from coilclaw.workspace import CHANGE_ID, Changelog, TreeState

    tree, _, change_id = what.partition("/")
    if not (_TREE.fullmatch(tree) and CHANGE_ID.fullmatch(change_id)):
        return None
    directory = home / "trees" / tree
    state = TreeState.at(home, directory, directory)
    if state.pending.exists():
        return None  # a change is in progress, or waits for repair: the next start decides
    if Changelog(state).holds(change_id):
        return SettlementFinding("yes", f"the change {change_id} is in the journal of changes")
    return SettlementFinding("no", f"the change {change_id} was not made, or was undone")
