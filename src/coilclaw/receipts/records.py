"""The two records of a tool call: the intent before it, and the receipt after it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal["allowed", "denied", "failed"]

RECEIPT_HASH: Final = "receipt_hash"
INTENT_HASH: Final = "intent_hash"
ID_FIELD: Final = "id"
MAX_NAME_CHARS: Final = 128


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

    def record(self) -> dict[str, object]:
        return asdict(self)


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


def bounded(name: str) -> str:
    """A name a model made up, short enough and valid for a record."""
    return name.encode("utf-8", "replace").decode("utf-8")[:MAX_NAME_CHARS]
