"""The agent loop: one message in, tool calls through the guard, one answer out.

Everything is on the disk before the next thing happens: the message before the model is asked, the
model's calls before the first of them runs, their results before the model hears of them. So a
crash at any instant leaves a conversation that goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatRequest
from coilclaw.domain.turns import ToolAnswer, TurnRecord
from coilclaw.errors import ProviderMalformed
from coilclaw.providers import streaming
from coilclaw.runtime import history
from coilclaw.runtime.drafts import Drafts
from coilclaw.runtime.handle import TurnOutcome
from coilclaw.runtime.identity import conversation, new_id, stamp
from coilclaw.runtime.prompt import system_prompt

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from coilclaw.domain.messages import ChatResponse, Json, Provider, ToolCall, ToolSpec
    from coilclaw.domain.redacting import Redacting
    from coilclaw.memory.store import Memory
    from coilclaw.runtime.estop import Estop
    from coilclaw.runtime.guard import Guard
    from coilclaw.runtime.settings import Limits
    from coilclaw.runtime.undoing import Undoing
    from coilclaw.security.settings import SecuritySettings
    from coilclaw.tools.contract import ToolContext

_log = logging.getLogger(__name__)

ROUNDS_RULE: Final = "limits.max_tool_rounds"
MAX_MESSAGE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn while it goes on."""

    conversation_id: str
    id: str
    draft: Callable[[str], None] | None


@dataclass(slots=True)
class Tally:
    """What a turn used and came to so far."""

    rounds: int = 0
    calls: int = 0
    denials: int = 0
    seen_ids: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs turns with one provider, one guard and one memory."""

    provider: Provider
    model: str
    tools: tuple[ToolSpec, ...]
    """What the model may call."""
    guard: Callable[[], Guard]
    """Made when the first call comes: many conversations never need it."""
    estop: Estop
    memory: Memory
    security: SecuritySettings
    limits: Limits
    redactor: Redacting
    undoing: Undoing
    context: Callable[[str, str], ToolContext]
    """Makes the context of a call, for a conversation and a turn."""
    now: Callable[[], datetime]
    temperature: float | None = None

    def turn(
        self,
        message: str,
        *,
        conversation_id: str | None = None,
        draft: Callable[[str], None] | None = None,
    ) -> TurnOutcome:
        """Answer one message."""
        name = new_id("conv") if conversation_id is None else conversation(conversation_id)
        turn = Turn(name, new_id("turn"), draft)
        _log.info(
            "conversation started: %s",
            name,
            extra={"event": "conversation_started", "fields": {"conversation_id": name}},
        )
        past = self.memory.conversation(name, last=history.MAX_RECORDS)
        said = TurnRecord(name, turn.id, self._time(), "user", self._said(message))
        self._persist(said)
        try:
            return self._answer(turn, [*past, said])
        finally:
            self.undoing.after(name, turn.id)

    def _said(self, message: str) -> str:
        """What the user said, without the key that may have slipped into it."""
        return self.redactor.redact(_bounded(message))

    def _answer(self, turn: Turn, records: list[TurnRecord]) -> TurnOutcome:
        tally = Tally(seen_ids={call.id for record in records for call in record.tool_calls})
        bound = self.limits.budget.tool_rounds or 0
        while True:
            response = self._ask(turn, records)
            calls = _unique(response.tool_calls, tally.seen_ids)
            metadata: dict[str, Json] = {}
            if response.usage is not None:
                metadata["input_tokens"] = response.usage.input_tokens
                metadata["output_tokens"] = response.usage.output_tokens
            said = TurnRecord(
                turn.conversation_id,
                turn.id,
                self._time(),
                "assistant",
                response.final_text,
                calls,
                provider=self.provider.name,
                model=response.model or self.model,
                metadata=metadata,
            )
            self._add(records, said)
            if not calls:
                return self._outcome(turn, tally, response.final_text, said)
            if turn.draft is not None and response.final_text:
                # What was said before the calls is a paragraph of its own.
                turn.draft("\n\n")
            exhausted = tally.rounds >= bound
            results = self._run(turn, tally, calls, refused=exhausted)
            self._add(records, self._results(turn, results))
            if exhausted:
                text = _exhausted(bound, response.final_text)
                last = replace(said, timestamp=self._time(), content=text, tool_calls=())
                self._add(records, last)
                return replace(self._outcome(turn, tally, text, said), exhausted=True)
            tally.rounds += 1

    def _ask(self, turn: Turn, records: list[TurnRecord]) -> ChatResponse:
        stopped = self.estop.set
        tools = () if stopped else self.tools
        request = ChatRequest(
            system_prompt=system_prompt(
                self.security, tools, stopped=stopped, rounds=self.limits.max_tool_rounds
            ),
            messages=history.messages(records),
            model=self.model,
            tools=tools,
            temperature=self.temperature,
            metadata={"conversation_id": turn.conversation_id, "turn_id": turn.id},
        )
        with Drafts(turn.draft, self.redactor) as drafts:
            response = streaming.ask(self.provider, request, drafts.listener)
        if len(response.final_text.encode("utf-8", "replace")) > self.limits.max_response_bytes:
            raise ProviderMalformed(
                f"the answer of {self.provider.name} is longer than "
                f"{self.limits.max_response_bytes} bytes",
                provider=self.provider.name,
                hint="raise limits.max_response_bytes",
            )
        return self._clean(response)

    def _clean(self, response: ChatResponse) -> ChatResponse:
        """A model may echo a key; what is kept, judged and run is the answer without it."""
        redact = self.redactor.redact
        calls = tuple(
            replace(
                call,
                id=redact(call.id),
                name=redact(call.name),
                arguments=_object(self.redactor.redact_json(dict(call.arguments))),
                problem=None if call.problem is None else redact(call.problem),
            )
            for call in response.tool_calls
        )
        text = _valid(redact(response.final_text))
        return replace(response, final_text=text, tool_calls=calls)

    def _run(
        self, turn: Turn, tally: Tally, calls: tuple[ToolCall, ...], *, refused: bool
    ) -> tuple[ToolAnswer, ...]:
        answers = []
        guard = self.guard()
        for call in calls:
            context = self.context(turn.conversation_id, turn.id)
            if refused:
                reason = f"{self.limits.max_tool_rounds} rounds of tool calls are used up"
                result = guard.refuse(call, context, ROUNDS_RULE, reason)
            else:
                result = guard.call(call, context)
            tally.calls += 1
            tally.denials += result.metadata.get("status") == "denied"
            answers.append(
                ToolAnswer(
                    call.id,
                    call.name,
                    result.success,
                    _valid(result.output),
                    None if result.error is None else _valid(result.error),
                    result.receipt_id,
                )
            )
        return tuple(answers)

    def _results(self, turn: Turn, answers: tuple[ToolAnswer, ...]) -> TurnRecord:
        return TurnRecord(
            turn.conversation_id, turn.id, self._time(), "tool", "", tool_results=answers
        )

    def _add(self, records: list[TurnRecord], record: TurnRecord) -> None:
        self._persist(record)
        records.append(record)

    def _persist(self, record: TurnRecord) -> None:
        self.memory.append((record,))

    def _outcome(self, turn: Turn, tally: Tally, text: str, said: TurnRecord) -> TurnOutcome:
        return TurnOutcome(
            turn.conversation_id,
            turn.id,
            text,
            tally.rounds,
            tally.calls,
            tally.denials,
            said.provider,
            said.model,
        )

    def _time(self) -> str:
        return stamp(self.now())


def _unique(calls: tuple[ToolCall, ...], seen: set[str]) -> tuple[ToolCall, ...]:
    """Ids may repeat from answer to answer; within a conversation each names one call."""
    result = []
    for call in calls:
        name, number = call.id, 1
        while name in seen:
            number += 1
            name = f"{call.id}-{number}"
        seen.add(name)
        result.append(call if name == call.id else replace(call, id=name))
    return tuple(result)


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict), "an object stays one when it is redacted"
    return value


def _exhausted(bound: int, text: str) -> str:
    said = f"{text}\n\n" if text else ""
    return (
        f"{said}I stopped after {bound} rounds of tool calls without coming to an end "
        f"({ROUNDS_RULE}). Ask me to go on, or raise the limit."
    )


def _bounded(message: str) -> str:
    from coilclaw.errors import UsageError

    text = _valid(message)
    if len(text.encode("utf-8")) > MAX_MESSAGE_BYTES:
        raise UsageError(
            f"the message is longer than {MAX_MESSAGE_BYTES} bytes",
            rule="message.long",
            hint="put it into a file in the workspace and name the file",
        )
    return text


def _valid(text: str) -> str:
    """Surrogates and NUL can neither be stored nor sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
