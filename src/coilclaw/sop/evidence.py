"""What an interrupted attempt left behind: intents and receipts under the name of the attempt.

Each attempt has a conversation of its own, ``RUN.STAGE.NUMBER``, so that nothing of another stage
or another attempt can be taken for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Consults, Reads
from coilclaw.errors import UsageError
from coilclaw.receipts.records import INTENT_HASH
from coilclaw.runtime.loop import ROUNDS_RULE
from coilclaw.sop.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.domain.messages import Json
    from coilclaw.domain.turns import TurnRecord
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.sop.runfile import Attempt
    from coilclaw.tools.contract import Tool

UNKNOWN_RULE: Final = "sop.interrupted"


@dataclass(frozen=True, slots=True)
class Trace:
    """The evidence of one attempt."""

    intents: tuple[str, ...] = ()
    """Hashes of what was intended; without any there was no effect."""
    receipts: tuple[Mapping[str, object], ...] = ()
    """Receipts of those intents."""


def conversation(run_id: str, stage: str, number: int) -> str:
    """The conversation in which an attempt takes place; its receipts name it."""
    return f"{run_id}.{stage}.{number}"


def trace(book: ReceiptBook | None, conversation_id: str) -> Trace:
    """Look for everything that was done in a conversation."""
    if book is None:
        return Trace()
    intents = tuple(
        str(intent[INTENT_HASH])
        for intent in book.intents()
        if intent["conversation_id"] == conversation_id
    )
    if not intents:
        return Trace()
    receipts = tuple(receipt for receipt in book.receipts() if receipt[INTENT_HASH] in intents)
    return Trace(intents, receipts)


def read_only(tool: Tool, args: Mapping[str, Json]) -> bool:
    """Whether a call only looks at things, so that repeating it does no harm."""
    try:
        effects = tool.effects(args)
    except UsageError:
        return False
    return bool(effects) and all(isinstance(effect, Reads | Consults) for effect in effects)


def receipted(attempt: Attempt, receipt: Mapping[str, object]) -> Outcome:
    """What became of an interrupted call, as its receipt tells."""
    name, status = str(receipt["id"]), receipt["status"]
    if status == "allowed":
        return Outcome(attempt.stage, "done", attempt.number, output_known=False, receipt=name)
    return Outcome(
        attempt.stage,
        "denied" if status == "denied" else "failed",
        attempt.number,
        error=f"the run was interrupted after this; {name} says that it {status}"
        if status == "failed"
        else f"the run was interrupted after this; {name} says that it was denied",
        rule=UNKNOWN_RULE,
        receipt=name,
        output_known=False,
    )


def final_text(records: Sequence[TurnRecord]) -> str | None:
    """The answer that ended a turn, if it came to its end."""
    if not records:
        return None
    last = records[-1]
    ended = last.role == "assistant" and not last.tool_calls
    return last.content if ended and f"({ROUNDS_RULE})" not in last.content else None


def only_looked(records: Sequence[TurnRecord], tools: Mapping[str, Tool]) -> bool:
    """Whether all that a model called in a turn only looks at things."""
    called = [call for record in records for call in record.tool_calls]
    return bool(called) and all(
        call.name in tools and read_only(tools[call.name], call.arguments) for call in called
    )
