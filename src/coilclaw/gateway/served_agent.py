"""``ServedAgent``: the agent behind the gateway, for many turns at once.

Everything in it is safe for many threads. Approvals and questions wait in the approval store.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent import (
    MARGIN_S,
    REQUEST,
    ApprovalQuestion,
    Guard,
    history,
    intents_path,
    is_abandoned,
    make_question,
)
from coilclaw.gateway.agent import (
    ApprovalPending,
    ChainState,
    DraftedText,
    FinishedTurn,
    ToolAnswered,
    ToolRequested,
    TurnTerms,
)
from coilclaw.gateway.clients import ToolCounter, WatchedProvider, client_of, recalling
from coilclaw.kernel import ApprovalAnswer, ApprovalReply, ProviderError, Stopped, digest_bytes
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coilclaw.agent import (
        AgentLoop,
        ApprovalStore,
        Call,
        GuardedCalls,
        HomeReceipts,
        Memory,
        RemotePeople,
        ToolContext,
    )
    from coilclaw.gateway.agent import Part
    from coilclaw.gateway.gathered_memory import GatheredMemory
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import (
        ApprovalRequest,
        ChatRequest,
        ChatResponse,
        Json,
        ToolCall,
        ToolResult,
        ToolSpec,
    )
    from coilclaw.policy import SecretRedactor

QUESTION_CHARS: Final = 200
"""How much of a question is its title."""


@dataclass(slots=True)
class RunningTurn:
    """One turn while it runs; its own thread writes, others only cancel."""

    listen: Callable[[Part], None] | None
    terms: TurnTerms
    asking: bool = False
    """Whether it waits for a model, where nothing has to be put in order."""
    cancel: Cancellation = field(default_factory=Cancellation)
    """Of the call that runs or waits."""
    input_tokens: int | None = None
    output_tokens: int | None = None

    def tell(self, part: Part) -> None:
        if self.listen is not None:
            self.listen(part)


@dataclass(slots=True)
class WatchedGuard(Guard):
    """The guard, whose calls the clients that watch the turn are told of."""

    tell: Callable[[str, Part], None] = field(default=lambda _, __: None)
    count: Callable[[ToolCall, ToolResult], None] = field(default=lambda _, __: None)

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.tell(context.conversation_id, ToolRequested(call.id, call.name, dict(call.arguments)))
        return self._report(call, context, Guard.call(self, call, context))

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        return self._report(call, context, Guard.refuse(self, call, context, rule, reason))

    def _report(self, call: ToolCall, context: ToolContext, result: ToolResult) -> ToolResult:
        self.count(call, result)
        status = str(result.metadata.get("status", "denied"))
        said = (result.output, result.error, result.receipt_id)
        answered = ToolAnswered(call.id, call.name, result.success, status, *said)
        self.tell(context.conversation_id, answered)
        return result


class ServedAgent:
    """The agent as the gateway uses it."""

    def __init__(
        self,
        loop: AgentLoop,
        desk: ApprovalStore,
        receipts: HomeReceipts,
        memory: GatheredMemory,
        redactor: SecretRedactor,
        metrics: Metrics,
        settings: GatewaySettings,
        describe: Callable[[], Mapping[str, Json]],
        on_halt: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``describe`` returns provider, model and policy in force."""
        self.describe = describe
        self.desk = desk
        self.memory = loop.memory
        self.estop = loop.estop
        self._on_halt = on_halt
        self._receipts = receipts
        self._gathered = memory
        self._metrics = metrics
        self._expiry_s = settings.approval_expiry_s
        self._mutex = threading.Lock()
        self._turns: dict[str, RunningTurn] = {}
        self._halted: str | None = None
        self._make_context = loop.context
        guard, open_turns = loop.guard(), loop.open_turns
        assert open_turns is not None, "a gateway resumes turns"
        self._book = guard.book
        known = {one.name: getattr(guard, one.name) for one in fields(guard)}
        watched = WatchedGuard(
            **{**known, "approve": self._approve, "redact": redactor.redact},
            tell=self._tell,
            count=ToolCounter(metrics, guard.tools),
        )
        self._loop = replace(
            loop,
            guard=lambda: watched,
            context=self._context,
            redactor=redactor,
            memory=memory,
            open_turns=replace(open_turns, waits=True),
            provider=WatchedProvider(loop.provider, self._asking, self._count_tokens),
        )

    def turn(
        self,
        message: str,
        conversation_id: str,
        *,
        terms: TurnTerms,
        new: bool = False,
        listen: Callable[[Part], None] | None = None,
    ) -> FinishedTurn:
        """Run one turn in this thread; ``listen`` is told its parts.

        A conversation has one turn at a time; ``new`` says that no other client can know it.
        """
        if new:
            self._gathered.begin(conversation_id)
        with self._running(conversation_id, RunningTurn(listen, terms)) as running:

            def draft(text: str) -> None:
                self._check_halted()
                running.tell(DraftedText(text))

            outcome = self._loop.turn(
                message,
                conversation_id=conversation_id,
                draft=draft if listen else None,
                asker=terms.client.label,
            )
        return FinishedTurn(outcome, running.input_tokens, running.output_tokens)

    def resume(self, conversation_id: str, terms: TurnTerms) -> FinishedTurn | None:
        """Finish a turn that the end of the process interrupted; return ``None`` without one."""
        with self._running(conversation_id, RunningTurn(None, terms)) as running:
            outcome = self._loop.resume(conversation_id)
        if outcome is None:
            return None
        return FinishedTurn(outcome, running.input_tokens, running.output_tokens)

    def open_conversations(self) -> tuple[str, ...]:
        """Return the conversations whose turn waited for an approval when a program ended."""
        open_turns = self._loop.open_turns
        found = dict.fromkeys(
            one.question.conversation_id
            for one in self.desk.list(pending_only=False)
            if is_abandoned(one)
        )

        def is_open(name: str) -> bool:
            records = self.memory.conversation(name, last=history.MAX_RECORDS)
            left = history.find_open(records)
            return bool(left and open_turns and open_turns.find_approval(left))

        return tuple(filter(is_open, found))

    @contextmanager
    def _running(self, conversation_id: str, running: RunningTurn) -> Iterator[RunningTurn]:
        with self._mutex:
            self._check_halted()
            self._turns[conversation_id] = running
        try:
            yield running
        finally:
            with self._mutex:
                del self._turns[conversation_id]

    def halt(self, reason: str) -> frozenset[str]:
        """Cancel all turns that run, and let none begin: their calls end, their receipts follow.

        Return the conversations that wait for a model, which leave nothing to put in order.
        """
        with self._mutex:
            self._halted = reason
            running = tuple(self._turns.values())
            asking = frozenset(name for name, turn in self._turns.items() if turn.asking)
        self._on_halt(reason)
        for turn in running:
            turn.cancel.cancel(reason)
        return asking

    def tools(self) -> tuple[ToolSpec, ...]:
        return self._loop.tools

    def receipts(self, limit: int) -> Sequence[Mapping[str, object]]:
        return () if self._book is None else self._book.last(limit)

    def verify_receipts(self) -> ChainState:
        """Replay the chain, which may take long; calls that a crash ended do not break it."""
        if self._book is None:
            return ChainState(valid=True, receipts=0, open_intents=0)
        found = self._receipts.verify(self._book)
        waiting = len(found.open_intents) + found.more_open
        return ChainState(not found.problems, found.receipts, waiting, found.unsettled)

    def receipts_size(self) -> int:
        """Return how long the logs of receipts are, which tells whether to verify again."""
        if self._book is None:
            return 0
        paths = (self._book.path, intents_path(self._book.path))
        return sum(path.stat().st_size for path in paths if path.exists())

    def _context(self, conversation_id: str, turn_id: str) -> ToolContext:
        context = self._make_context(conversation_id, turn_id)
        with self._mutex:
            running = self._turns.get(conversation_id)
            if running is not None:
                running.cancel = context.cancel
            if self._halted is not None:
                context.cancel.cancel(self._halted)
        context = replace(context, ask=lambda question: self._ask(conversation_id, question))
        return context if running is None else recalling(context, self.memory, running.terms.client)

    def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Put a request into the approval store and wait, in the turn's own thread."""
        question = make_question(
            request,
            origin=request.conversation_id,
            title=f"{request.tool}: {request.verdict.reason}",
            conversation_id=request.conversation_id,
            turn_id=request.turn_id,
            call_id=request.call_id,
            asker=self._asker(request.conversation_id),
        )
        return self._wait(question)[0]

    def _ask(self, conversation_id: str, text: str) -> str | None:
        """Put a question of the model into the approval store; return the words of the answer."""
        question = ApprovalQuestion(
            kind="question",
            origin=conversation_id,
            title=text[:QUESTION_CHARS],
            digest=digest_bytes(text.encode("utf-8", "backslashreplace")),
            tool="ask_user",
            detail=tuple(text.splitlines()),
            asker=self._asker(conversation_id),
        )
        answer, words = self._wait(question)
        return words if answer.granted else None

    def _wait(self, question: ApprovalQuestion) -> tuple[ApprovalAnswer, str]:
        """Put a question into the approval store; return the answer and its words."""
        running = self._turns.get(question.origin)
        if running is None:
            return ApprovalAnswer(ApprovalReply.NO, "nobody", "the turn is over"), ""
        if running.terms.wait_s == 0:
            return ApprovalAnswer(
                ApprovalReply.NO, "nobody", "approvals are not asked for in a turn of this client"
            ), ""
        wait_s = min(self._expiry_s, running.terms.wait_s or self._expiry_s)
        name = self.desk.ask_or_adopt(question, expires_s=wait_s)
        pending = ApprovalPending(name, question.kind, question.title)
        running.tell(pending)
        if running.terms.pending is not None:
            running.terms.pending(pending)
        with self.estop.watch_call(running.cancel, wait_s + MARGIN_S):
            answer = self.desk.wait_for_answer(
                name, question.digest, cancel=running.cancel, stopping=lambda: self._halted
            )
        return answer, self.desk.find(name).text

    def _asker(self, conversation_id: str) -> str:
        running = self._turns.get(conversation_id)
        return "" if running is None else running.terms.client.label

    @contextmanager
    def _asking(self, request: ChatRequest) -> Iterator[None]:
        """Count a request to the model, and end its turn where turns were halted meanwhile."""
        running = self._turns.get(request.metadata.get("conversation_id", ""))
        with self._mutex:
            self._check_halted()
            if running is not None:
                running.asking = True
        began, outcome = time.monotonic(), "error"
        try:
            yield
            outcome = "ok"
        except ProviderError:
            self._metrics.count("provider_errors_total")
            raise
        finally:
            self._metrics.observe_model(outcome, time.monotonic() - began)
            with self._mutex:
                self._check_halted()
                if running is not None:
                    running.asking = False

    def _tell(self, conversation_id: str, part: Part) -> None:
        running = self._turns.get(conversation_id)
        if running is not None:
            running.tell(part)

    def _check_halted(self) -> None:
        if self._halted is not None:
            raise Stopped(
                f"the turn was stopped: {self._halted}",
                rule="gateway.stopping",
                hint="the next message continues the conversation",
            )

    def _count_tokens(self, request: ChatRequest, response: ChatResponse) -> None:
        usage = response.usage
        if usage is None:
            return
        for direction, number in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if number is not None:
                self._metrics.count_as("model_tokens_total", direction, number=max(0, number))
        running = self._turns.get(request.metadata.get("conversation_id", ""))
        if running is not None:
            running.input_tokens = _sum(running.input_tokens, usage.input_tokens)
            running.output_tokens = _sum(running.output_tokens, usage.output_tokens)


def make_client_call(
    calls: GuardedCalls, people: RemotePeople, memory: Memory, metrics: Metrics
) -> Call:
    """Return the way of an MCP client's call: counted, and with what its client may see."""
    counter = ToolCounter(metrics, calls.guard.tools)

    def call(wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
        client = client_of(REQUEST.get())

        def adapt(context: ToolContext) -> ToolContext:
            return recalling(replace(context, cancel=cancel), memory, client)

        with people.during(conversation, cancel, client.label):
            result = calls.call(wanted, conversation, adapt)
        counter(wanted, result)
        return result

    return call


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more
