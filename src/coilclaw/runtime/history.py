"""A remembered conversation as messages for a model: bounded, whole turns, every call answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.domain.messages import ToolCall
    from coilclaw.domain.turns import ToolAnswer, TurnRecord

MAX_RECORDS: Final = 200
MAX_BYTES: Final = 512 * 2**10
"""How much of a conversation a model is given again."""

LOST: Final = "the program ended while this call was running; whether it had an effect is unknown"
PROCESS: Final = "process"
"""In the metadata of an answer with calls: the process that makes them."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn whose last answer of the model asks for calls, some of which have no answer."""

    said: TurnRecord
    calls: tuple[ToolCall, ...]
    """Those without an answer."""
    rounds: int
    """Rounds of calls before this one."""

    @property
    def conversation_id(self) -> str:
        return self.said.conversation_id

    @property
    def id(self) -> str:
        return self.said.turn_id

    @property
    def process(self) -> str:
        """The process that was to make the calls; empty where it is not known."""
        return str(self.said.metadata.get(PROCESS, ""))


def find_open(records: Sequence[TurnRecord]) -> OpenTurn | None:
    """Return the turn at the end of a conversation that was left open, if there is one."""
    answered: set[str] = set()
    for index in range(len(records) - 1, -1, -1):
        record = records[index]
        if record.role == "tool":
            answered.update(answer.call_id for answer in record.tool_results)
            continue
        calls = tuple(call for call in record.tool_calls if call.id not in answered)
        if record.role != "assistant" or not calls:
            return None
        before = records[:index]
        rounds = sum(bool(one.tool_calls) for one in before if one.turn_id == record.turn_id)
        return OpenTurn(record, calls, rounds)
    return None


def messages(records: Sequence[TurnRecord]) -> tuple[Message, ...]:
    """Return the newest whole turns that fit; a call whose answer was lost is answered so."""
    result: list[Message] = []
    for record in _fitting(records):
        if record.role == "tool":
            result += [_answer(answer) for answer in record.tool_results]
        else:
            result.append(Message(record.role, record.content, record.tool_calls))
    return tuple(_completed(result))


def told(answer: ToolAnswer) -> str:
    """What the model is told of a result."""
    if answer.success:
        return answer.output
    return f"error: {answer.error or 'failed'}" + (f"\n{answer.output}" if answer.output else "")


def _answer(answer: ToolAnswer) -> Message:
    return Message("tool", told(answer), tool_call_id=answer.call_id)


def _fitting(records: Sequence[TurnRecord]) -> Sequence[TurnRecord]:
    """Cut at the beginning of a turn, so that no answer stands without its question."""
    recent = records[-MAX_RECORDS:]
    size, begin = 0, len(recent)
    for index in range(len(recent) - 1, -1, -1):
        record = recent[index]
        size += len(record.content) + sum(len(told(each)) for each in record.tool_results)
        if size > MAX_BYTES and begin < len(recent):
            break
        if record.role == "user":
            begin = index
    return recent[begin:]


def _completed(found: Iterable[Message]) -> Iterable[Message]:
    """A crash leaves calls without an answer, which no provider takes."""
    open_calls: dict[str, None] = {}
    for message in found:
        if message.role == "tool":
            if message.tool_call_id in open_calls:
                del open_calls[message.tool_call_id]
                yield message
            continue
        for call_id in open_calls:
            yield Message("tool", f"error: {LOST}", tool_call_id=call_id)
        open_calls = {call.id: None for call in message.tool_calls}
        yield message
    for call_id in open_calls:
        yield Message("tool", f"error: {LOST}", tool_call_id=call_id)
