"""The records of a tool call: intent, receipt, and the settlement of a call that a crash ended."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.domain.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Mapping

Status: TypeAlias = Literal["allowed", "denied", "failed"]
Happened: TypeAlias = Literal["yes", "no", "unknown"]

RECEIPT_HASH: Final = "receipt_hash"
INTENT_HASH: Final = "intent_hash"
ID_FIELD: Final = "id"
SETTLES: Final = "settles"
"""The field of a settlement that holds the hash of its intent; a receipt has no such field."""
MAX_NAME_CHARS: Final = 128
_LATER: Final = frozenset({"turn_id", "call_id", "lookup"})


@dataclass(frozen=True, slots=True)
class Intent:
    """What is about to be done; on the disk before it is."""

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    risk: str
    policy_hash: str
    approval: str
    process: str
    """Who is about to do it, as pid and start time: alive means running, gone means crashed."""
    turn_id: str = ""
    call_id: str = ""
    """The call in the conversation, as the model named it."""
    lookup: str = ""
    """Where to see after a crash whether the call had its effect; empty when nothing can tell.

    ``nothing``: it has none. ``request``: it asks a server, and nothing can tell.
    ``change TREE/ID``: the journal of changes. ``start BOOT``: a mark that is made before a
    process is started.
    """

    def record(self) -> dict[str, object]:
        """Return the fields; those that came later only where they say something."""
        return {name: value for name, value in asdict(self).items() if value or name not in _LATER}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one attempted call."""

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    result_hash: str
    status: Status
    risk: str
    intent_hash: str
    """Of the intent; empty for a call that never got as far."""
    policy_hash: str
    sandbox: str
    """What was really enforced while it ran."""
    approval: str
    """Who or what said yes or no: ``policy RULE``, or ``person ann yes RULE`` and the like."""

    def record(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a call that a crash ended between its intent and its receipt."""

    id: str
    timestamp: str
    settles: str
    """The hash of the intent."""
    intent: str
    conversation_id: str
    tool: str
    happened: Happened
    note: str
    by: str
    """``lookup`` when the program looked it up, or ``person NAME``."""

    def record(self) -> dict[str, object]:
        return asdict(self)


def calls_line(intent: Mapping[str, object]) -> tuple[str, str] | None:
    """Name the line in which an intent's call stands: a process makes the next one after it.

    ``None`` for clients of MCP, which may make several calls at once.
    """
    conversation = str(intent.get("conversation_id"))
    if conversation.startswith("mcp-"):
        return None
    return str(intent.get("process")), conversation


def bounded(name: str) -> str:
    """A name a model made up, short enough and valid for a record."""
    return name.encode("utf-8", "replace").decode("utf-8")[:MAX_NAME_CHARS]


def name_call(call_id: str) -> str:
    """Return the name of a call as an intent holds it; an id that does not fit is hashed."""
    name = bounded(call_id)
    return name if name == call_id else digest(call_id.encode("utf-8", "backslashreplace"))
