"""Turns that the end of a program left open: whether they resume, and what is told of their calls.

A turn is open when the model asked for calls and some of them have no answer. It resumes when an
approval of one of them is kept: then that call is made under that approval, and only that one.
Otherwise the model is told of each call what the receipts know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.receipts.records import INTENT_HASH, SETTLES, name_call
from coilclaw.runtime.history import LOST
from coilclaw.runtime.identity import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.runtime.approvals import Approval, Desk
    from coilclaw.runtime.history import OpenTurn

NOT_BEGUN: Final = (
    "this call did not begin: the program ended while it waited for approval, or for another call"
)
_MADE: Final = "the call was made; what it put out was lost when the program ended"
_HAPPENED: Final = {
    "yes": "the program ended during this call; it was found later that it had its effect",
    "no": "the program ended during this call; it was found later that it had no effect",
}


@dataclass(frozen=True, slots=True)
class OpenTurns:
    """Decides about the open turns of one home."""

    desk: Callable[[], Desk]
    book: Callable[[], ReceiptBook | None]
    waits: bool = False
    """Whether a turn may wait for a pending approval; otherwise it has to be answered before."""

    def kept(self, turn: OpenTurn) -> Approval | None:
        """Return the approval with which an open turn resumes."""
        for call in turn.calls:
            found = self.desk().find_for_call(turn.conversation_id, turn.id, call.id)
            if found is not None and found.state not in {"used", "withdrawn"}:
                return found
        return None

    def resumes(self, turn: OpenTurn) -> bool:
        """Say whether a turn is to be resumed; refuse while an answer is still awaited."""
        found = self.kept(turn)
        if found is None:
            return False
        if found.state == "pending" and not self.waits:
            raise UsageError(
                f"the conversation {turn.conversation_id} waits for {found.id}",
                rule="approval.open",
                hint=f"'coilclaw approve {found.id}' or 'coilclaw reject {found.id}' comes first",
            )
        return True

    def take_over(self, turn: OpenTurn) -> None:
        """Make sure that no other program resumes a turn, too."""
        found = self.kept(turn)
        if found is None or not self.desk().take_over(found.id):
            raise UsageError(
                f"another program resumes the turn of {turn.conversation_id}", rule="approval.open"
            )

    def release(self, turn: OpenTurn, call_id: str) -> None:
        """Withdraw an approval that its call did not need any more."""
        found = self.desk().find_for_call(turn.conversation_id, turn.id, call_id)
        if found is not None:
            self.desk().withdraw(found.id)

    def tell(self, turn: OpenTurn) -> Mapping[str, str]:
        """Say of each call that began what became of it; the others are left out."""
        book = self.book()
        wanted = {name_call(call.id): call.id for call in turn.calls}
        intents: dict[str, str] = {}
        if book is None:
            return {}
        for intent in book.intents():
            if intent.get("conversation_id") != turn.conversation_id:
                continue
            if intent.get("turn_id") == turn.id and intent.get("call_id") in wanted:
                intents[str(intent[INTENT_HASH])] = wanted[str(intent["call_id"])]
        return _told(book, intents) if intents else {}


def is_abandoned(approval: Approval) -> bool:
    """Say whether an approval can resume a turn whose program is gone."""
    return (
        approval.question.resumable
        and approval.state not in {"used", "withdrawn"}
        and not alive(approval.process)
    )


def _told(book: ReceiptBook, intents: Mapping[str, str]) -> dict[str, str]:
    told = dict.fromkeys(intents.values(), LOST)
    for entry in book.entries():
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
