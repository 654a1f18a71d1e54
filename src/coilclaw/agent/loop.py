"""The agent loop: one message in, tool calls through the guard, one answer out.

Each record is on the disk before the next action: the message before the model is asked, the
model's calls before the first of them runs, their results before the model gets them. A crash at
any instant therefore leaves a conversation that can continue.
"""

from __future__ import annotations

import codecs
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from coilclaw.agent import history
from coilclaw.agent.handle import TurnOutcome
from coilclaw.agent.history import system_prompt
from coilclaw.agent.open_turns import NOT_BEGUN
from coilclaw.kernel import (
    ASKER,
    ChatRequest,
    ProviderMalformed,
    ToolAnswer,
    TurnRecord,
    UsageError,
    valid_text,
)
from coilclaw.models import event_stream
from coilclaw.workspace import check_conversation_id, format_time, is_alive, new_id, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from coilclaw.agent.estop import Estop
    from coilclaw.agent.guard import Guard
    from coilclaw.agent.history import OpenTurn
    from coilclaw.agent.memory.store import Memory
    from coilclaw.agent.open_turns import OpenTurns
    from coilclaw.agent.settings import AgentLimits
    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.agent.turn_undo import TurnUndo
    from coilclaw.kernel import ChatResponse, Json, Provider, Redactor, ToolCall, ToolSpec
    from coilclaw.policy import SecuritySettings

_log = logging.getLogger(__name__)

ROUNDS_RULE: Final = "limits.max_tool_rounds"
MAX_MESSAGE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn in progress."""

    conversation_id: str
    id: str
    draft: Callable[[str], None] | None


class Drafts:
    """Passes on pieces of an answer once they are known to hold no secret; the rest at the end."""

    def __init__(self, draft: Callable[[str], None] | None, redactor: Redactor) -> None:
        self._draft = draft
        self._stream = redactor.stream()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.listener = None if draft is None else self._feed
        """Takes the pieces; ``None`` if the caller wants none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pass_on(self._stream.finish(), final=True)

    def _feed(self, piece: str) -> None:
        self._pass_on(self._stream.feed(piece.encode("utf-8", "replace")), final=False)

    def _pass_on(self, data: bytes, *, final: bool) -> None:
        text = self._decoder.decode(data, final)
        if text and self._draft is not None:
            self._draft(text)


@dataclass(slots=True)
class Tally:
    """The counts of a turn so far."""

    rounds: int = 0
    calls: int = 0
    denials: int = 0
    seen_ids: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class AgentLoop:
    """Runs turns with one provider, one guard and one memory."""

    provider: Provider
    model: str
    tools: tuple[ToolSpec, ...]
    """The tools that the model may call."""
    guard: Callable[[], Guard]
    """Creates the guard at the first call: many conversations never need it."""
    estop: Estop
    memory: Memory
    security: SecuritySettings
    limits: AgentLimits
    redactor: Redactor
    undoing: TurnUndo
    context: Callable[[str, str], ToolContext]
    """Creates the context of a call from a conversation and a turn."""
    now: Callable[[], datetime]
    open_turns: OpenTurns | None = None
    """Decides about open turns; without it they stay as they are."""
    temperature: float | None = None

    def turn(
        self,
        message: str,
        *,
        conversation_id: str | None = None,
        draft: Callable[[str], None] | None = None,
        asker: str = "",
    ) -> TurnOutcome:
        """Answer one message; ``asker`` names its author, if it is not the operator."""
        name = new_id("conv") if conversation_id is None else check_conversation_id(conversation_id)
        turn = Turn(name, new_id("turn"), draft)
        _log.info(
            "conversation started: %s",
            name,
            extra={"event": "conversation_started", "fields": {"conversation_id": name}},
        )
        past = self._past(name, draft)
        whose: dict[str, Json] = {ASKER: asker} if asker else {}
        text = self._clean_message(message)
        records = list(past)
        self._add(records, TurnRecord(name, turn.id, self._time(), "user", text, metadata=whose))
        try:
            return self._answer(turn, records, Tally(seen_ids=_call_ids(records)))
        finally:
            self.undoing.after(name, turn.id)

    def resume(
        self, conversation_id: str, *, draft: Callable[[str], None] | None = None
    ) -> TurnOutcome | None:
        """Finish the turn that a program left open when it ended; return ``None`` without one."""
        records = list(self.memory.conversation(conversation_id, last=history.MAX_RECORDS))
        left = self._left_open(records)
        if left is None:
            return None
        return self._finish(*left, records, draft)

    def _past(
        self, conversation_id: str, draft: Callable[[str], None] | None
    ) -> tuple[TurnRecord, ...]:
        """Return the earlier records, after finishing a turn that was left open."""
        past = self.memory.conversation(conversation_id, last=history.MAX_RECORDS)
        left = self._left_open(past)
        if left is None:
            return past
        if self._finish(*left, list(past), draft) is not None and draft is not None:
            draft("\n\n")
        return self.memory.conversation(conversation_id, last=history.MAX_RECORDS)

    def _left_open(self, records: Sequence[TurnRecord]) -> tuple[OpenTurn, OpenTurns] | None:
        left = None if self.open_turns is None else history.find_open(records)
        if left is None or self.open_turns is None:
            return None
        if left.process != this_process() and is_alive(left.process):  # it runs elsewhere
            self.open_turns.resumes(left)  # refuses while that process waits for an answer
            return None
        return left, self.open_turns

    def _finish(
        self,
        left: OpenTurn,
        open_turns: OpenTurns,
        records: list[TurnRecord],
        draft: Callable[[str], None] | None,
    ) -> TurnOutcome | None:
        """Resume an open turn that has an approval; otherwise record the fate of its calls."""
        turn = Turn(left.conversation_id, left.id, draft)
        resumes = open_turns.resumes(left)
        known = open_turns.tell(left)
        if not resumes:
            answers = tuple(_fail_call(call, known.get(call.id, NOT_BEGUN)) for call in left.calls)
            self._add(records, self._results(turn, answers))
            return None
        open_turns.take_over(left)
        _log.warning(
            "resuming the turn %s, which was left open in %s",
            turn.id,
            turn.conversation_id,
            extra={
                "event": "turn_resumed",
                "fields": {"conversation_id": turn.conversation_id, "turn_id": turn.id},
            },
        )
        began = tuple(_fail_call(call, known[call.id]) for call in left.calls if call.id in known)
        if began:
            self._add(records, self._results(turn, began))
        calls = tuple(call for call in left.calls if call.id not in known)
        tally = Tally(rounds=left.rounds, seen_ids=_call_ids(records))
        try:
            ended = self._round(turn, tally, records, left.said, calls)
            for call in calls:
                open_turns.release(left, call.id)
            return ended or self._answer(turn, records, tally)
        finally:
            self.undoing.after(turn.conversation_id, turn.id)

    def _clean_message(self, message: str) -> str:
        """Return the user's message without secrets; raise ``UsageError`` if it is too long."""
        text = _storable(message)
        if len(text.encode("utf-8")) > MAX_MESSAGE_BYTES:
            raise UsageError(
                f"the message is longer than {MAX_MESSAGE_BYTES} bytes",
                rule="message.long",
                hint="put it into a file in the workspace and name the file",
            )
        return self.redactor.redact(text)

    def _answer(self, turn: Turn, records: list[TurnRecord], tally: Tally) -> TurnOutcome:
        while True:
            response = self._ask(turn, records)
            calls = _unique(response.tool_calls, tally.seen_ids)
            metadata: dict[str, Json] = {}
            if response.usage is not None:
                metadata["input_tokens"] = response.usage.input_tokens
                metadata["output_tokens"] = response.usage.output_tokens
            if calls:
                metadata[history.PROCESS] = this_process()
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
                # The text before the calls is a paragraph of its own.
                turn.draft("\n\n")
            ended = self._round(turn, tally, records, said, calls)
            if ended is not None:
                return ended

    def _round(
        self,
        turn: Turn,
        tally: Tally,
        records: list[TurnRecord],
        said: TurnRecord,
        calls: tuple[ToolCall, ...],
    ) -> TurnOutcome | None:
        """Make the calls of one answer; return the outcome if no further round is allowed."""
        bound = self.limits.budget.tool_rounds or 0
        exhausted = tally.rounds >= bound
        answers: list[ToolAnswer] = []

        def keep() -> None:
            if answers:
                self._add(records, self._results(turn, tuple(answers)))
                answers.clear()

        for call in calls:
            # Earlier results are stored before a call waits for the user.
            context = replace(self.context(turn.conversation_id, turn.id), asking=keep)
            answers.append(self._run(context, tally, call, over_limit=exhausted))
        keep()
        tally.rounds += not exhausted
        if not exhausted:
            return None
        text = (
            f"{said.content}\n\n"
            * bool(said.content)
            + f"I stopped after {bound} rounds of tool calls without coming to an end "
            f"({ROUNDS_RULE}). Ask me to continue, or raise the limit."
        )
        metadata = {name: one for name, one in said.metadata.items() if name != history.PROCESS}
        last = replace(said, timestamp=self._time(), content=text, tool_calls=(), metadata=metadata)
        self._add(records, last)
        return replace(self._outcome(turn, tally, text, said), exhausted=True)

    def _ask(self, turn: Turn, records: list[TurnRecord]) -> ChatResponse:
        stopped = self.estop.set
        tools = () if stopped else self.tools
        request = ChatRequest(
            system_prompt=system_prompt(
                self.security, tools, stopped=stopped, rounds=self.limits.max_tool_rounds
            ),
            messages=history.build_messages(records),
            model=self.model,
            tools=tools,
            temperature=self.temperature,
            metadata={"conversation_id": turn.conversation_id, "turn_id": turn.id},
        )
        with Drafts(turn.draft, self.redactor) as drafts:
            response = event_stream.ask(self.provider, request, drafts.listener)
        if len(response.final_text.encode("utf-8", "replace")) > self.limits.max_response_bytes:
            raise ProviderMalformed(
                f"the answer of {self.provider.name} is longer than "
                f"{self.limits.max_response_bytes} bytes",
                provider=self.provider.name,
                hint="raise limits.max_response_bytes",
            )
        return self._clean(response)

    def _clean(self, response: ChatResponse) -> ChatResponse:
        """Return the answer without secrets: a model may echo a key."""
        redact = self.redactor.redact
        calls = []
        for call in response.tool_calls:
            arguments = self.redactor.redact_json(dict(call.arguments))
            assert isinstance(arguments, dict), "redaction keeps the type of an object"
            problem = None if call.problem is None else redact(call.problem)
            clean = replace(call, id=redact(call.id), name=redact(call.name), problem=problem)
            calls.append(replace(clean, arguments=arguments))
        text = _storable(redact(response.final_text))
        return replace(response, final_text=text, tool_calls=tuple(calls))

    def _run(
        self, context: ToolContext, tally: Tally, call: ToolCall, *, over_limit: bool
    ) -> ToolAnswer:
        """Run a call through the guard and count it; refuse it when the tool rounds are used up."""
        guard = self.guard()
        if over_limit:
            reason = f"{self.limits.max_tool_rounds} rounds of tool calls are used up"
            result = guard.refuse(call, context, ROUNDS_RULE, reason)
        else:
            result = guard.call(call, context)
        tally.calls += 1
        tally.denials += result.metadata.get("status") == "denied"
        return ToolAnswer(
            call.id,
            call.name,
            result.success,
            _storable(result.output),
            None if result.error is None else _storable(result.error),
            result.receipt_id,
        )

    def _results(self, turn: Turn, answers: tuple[ToolAnswer, ...]) -> TurnRecord:
        return TurnRecord(
            turn.conversation_id, turn.id, self._time(), "tool", "", tool_results=answers
        )

    def _add(self, records: list[TurnRecord], record: TurnRecord) -> None:
        self.memory.append((record,))
        records.append(record)

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
        return format_time(self.now())


def _fail_call(call: ToolCall, error: str) -> ToolAnswer:
    return ToolAnswer(call.id, call.name, False, "", error)


def _call_ids(records: list[TurnRecord]) -> set[str]:
    return {call.id for record in records for call in record.tool_calls}


def _unique(calls: tuple[ToolCall, ...], seen: set[str]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are unique in the conversation; models may repeat ids."""
    result = []
    for call in calls:
        name, number = call.id, 1
        while name in seen:
            number += 1
            name = f"{call.id}-{number}"
        seen.add(name)
        result.append(call if name == call.id else replace(call, id=name))
    return tuple(result)


def _storable(text: str) -> str:
    """Return a text without surrogates and NUL, which can neither be stored nor sent."""
    return valid_text(text).replace("\0", "\\x00")
