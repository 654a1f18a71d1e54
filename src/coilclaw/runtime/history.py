"""A remembered conversation as messages for a model: bounded, whole turns, every call answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.domain.turns import ToolAnswer, TurnRecord

MAX_RECORDS: Final = 200
MAX_BYTES: Final = 512 * 2**10
"""How much of a conversation a model is given again."""

LOST: Final = (
    "error: the program ended while this call was running; whether it had an effect is unknown"
)


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
            yield Message("tool", LOST, tool_call_id=call_id)
        open_calls = {call.id: None for call in message.tool_calls}
        yield message
    for call_id in open_calls:
        yield Message("tool", LOST, tool_call_id=call_id)
