"""The runtime behind the gateway: many turns at once, and approvals that wait at the desk."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final, TextIO, cast

from coilclaw.agent import (
    REQUEST,
    ApprovalQuestion,
    ApprovalStore,
    Estop,
    Guard,
    McpApp,
    OnDemand,
    history,
    intents_path,
    is_abandoned,
)
from coilclaw.app import providers
from coilclaw.app.agent_runtime import People, open_runtime
from coilclaw.app.home import now, open_config
from coilclaw.app.mcp_clients import (
    MARGIN_S,
    DeskPeople,
    list_offered_tools,
    make_guarded_call,
    make_question,
)
from coilclaw.app.run_service import ServedSops, open_runs
from coilclaw.app.telemetry.logs import LineHandler
from coilclaw.app.tools import list_more_secrets
from coilclaw.gateway import (
    ApprovalPending,
    ChainState,
    DraftedText,
    Feed,
    FinishedTurn,
    Gateway,
    GatewaySettings,
    GatheredMemory,
    KnownClients,
    Metrics,
    TokenStore,
    ToolAnswered,
    ToolCounter,
    ToolRequested,
    TurnTerms,
    WatchedProvider,
    client_of,
    recalling,
)
from coilclaw.gateway import operator_token as tokens
from coilclaw.kernel import ApprovalAnswer, ApprovalReply, ProviderError, Stopped, digest_bytes
from coilclaw.policy import SecretRedactor
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.agent import Memory, ToolContext
    from coilclaw.app.agent_runtime import Runtime
    from coilclaw.app.config.values import Config
    from coilclaw.gateway import Part
    from coilclaw.kernel import (
        ApprovalRequest,
        ChatRequest,
        ChatResponse,
        Json,
        ToolCall,
        ToolResult,
        ToolSpec,
    )

QUESTION_CHARS: Final = 200
"""How much of a question is its title."""
MCP_PATH: Final = "/mcp"


@dataclass(slots=True)
class RunningTurn:
    """One turn while it goes on; its own thread writes, others only cancel."""

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
class ToldGuard(Guard):
    """The guard, whose calls are told to the clients that watch the turn."""

    tell: Callable[[str, Part], None] = field(default=lambda _, __: None)
    count: Callable[[ToolCall, ToolResult], None] = field(default=lambda _, __: None)

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.tell(context.conversation_id, ToolRequested(call.id, call.name, dict(call.arguments)))
        return self._told(call, context, Guard.call(self, call, context))

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        return self._told(call, context, Guard.refuse(self, call, context, rule, reason))

    def _told(self, call: ToolCall, context: ToolContext, result: ToolResult) -> ToolResult:
        self.count(call, result)
        status = str(result.metadata.get("status", "denied"))
        said = (result.output, result.error, result.receipt_id)
        answered = ToolAnswered(call.id, call.name, result.success, status, *said)
        self.tell(context.conversation_id, answered)
        return result


class Served:
    """The runtime as the gateway uses it: everything in it may be used by many threads."""

    def __init__(
        self,
        runtime: Runtime,
        memory: GatheredMemory,
        redactor: SecretRedactor,
        metrics: Metrics,
        settings: GatewaySettings,
        on_halt: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_halt = on_halt
        self._runtime = runtime
        self._gathered = memory
        self._metrics = metrics
        self._expiry_s = settings.approval_expiry_s
        self._mutex = threading.Lock()
        self._turns: dict[str, RunningTurn] = {}
        self._halted: str | None = None
        self.desk = ApprovalStore(runtime.home, now)
        guard = runtime.guard
        known = {one.name: getattr(guard, one.name) for one in fields(guard)}
        told = ToldGuard(
            **{**known, "approve": self._approve, "redact": redactor.redact},
            tell=self._tell,
            count=ToolCounter(metrics, guard.tools),
        )
        # All of this is made here, once, before any thread: what is made when it is first needed
        # would be made twice, and a fixture be played by two.
        _ = runtime.tree, runtime.policy_source.places, runtime.policy_source.hash
        self._loop = replace(
            runtime.loop,
            guard=lambda: told,
            context=self._context,
            redactor=redactor,
            memory=memory,
            open_turns=replace(runtime.open_turns, waits=True),
            provider=WatchedProvider(runtime.loop.provider, self._asking, self._count_tokens),
        )

    @property
    def memory(self) -> Memory:
        return self._runtime.memory

    @property
    def estop(self) -> Estop:
        return self._runtime.estop

    def turn(
        self,
        message: str,
        conversation_id: str,
        *,
        terms: TurnTerms,
        new: bool = False,
        listen: Callable[[Part], None] | None = None,
    ) -> FinishedTurn:
        """Run one turn in this thread; a conversation has one at a time."""
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
        """Finish the turn that the end of a program left open, in this thread."""
        with self._running(conversation_id, RunningTurn(None, terms)) as running:
            outcome = self._loop.resume(conversation_id)
        if outcome is None:
            return None
        return FinishedTurn(outcome, running.input_tokens, running.output_tokens)

    def open_conversations(self) -> tuple[str, ...]:
        """Return the conversations whose turn waited for an approval when a program ended."""
        found = dict.fromkeys(
            one.question.conversation_id
            for one in self.desk.list(pending_only=False)
            if is_abandoned(one)
        )

        def is_open(name: str) -> bool:
            records = self.memory.conversation(name, last=history.MAX_RECORDS)
            left = history.find_open(records)
            return left is not None and self._runtime.open_turns.kept(left) is not None

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
        """Cancel every turn; none begins any more. Return those that wait for a model."""
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
        return self._runtime.receipts(limit)

    def describe(self) -> Mapping[str, Json]:
        return {
            "provider": self._runtime.model,
            "model": self._loop.model,
            "policy": dict(self._runtime.policy()),
        }

    def verify_receipts(self) -> ChainState:
        """Replay the chain; calls that a crash ended are counted, and break nothing."""
        from coilclaw.app.receipt_checks import verify_receipts

        book = self._runtime.guard.book
        if book is None:
            return ChainState(valid=True, receipts=0, open_intents=0)
        found = verify_receipts(book, self._runtime.home, self._runtime.memory.path)
        waiting = len(found.open_intents) + found.more_open
        return ChainState(not found.problems, found.receipts, waiting, found.unsettled)

    def receipts_size(self) -> int:
        book = self._runtime.guard.book
        if book is None:
            return 0
        paths = (book.path, intents_path(book.path))
        return sum(path.stat().st_size for path in paths if path.exists())

    def _context(self, conversation_id: str, turn_id: str) -> ToolContext:
        context = self._runtime.context(conversation_id, turn_id)
        with self._mutex:
            running = self._turns.get(conversation_id)
            if running is not None:
                running.cancel = context.cancel
            if self._halted is not None:
                context.cancel.cancel(self._halted)
        context = replace(context, ask=lambda question: self._ask(conversation_id, question))
        return context if running is None else recalling(context, self.memory, running.terms.client)

    def _approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Put a request on the desk and wait, in the turn's own thread."""
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
        """Put a question of the model on the desk; the answer is in words."""
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
        """Put a question on the desk; return the answer and its words, which may be none."""
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
        with self.estop.watched(running.cancel, wait_s + MARGIN_S):
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
                hint="the conversation goes on with the next message",
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


def make_gateway_settings(config: Config) -> GatewaySettings:
    """The settings of the gateway: those that are configured, and its own."""
    given = {one.name: getattr(config.gateway, one.name) for one in fields(config.gateway)}
    return GatewaySettings(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def open_gateway(
    home: Path,
    environ: Mapping[str, str],
    settings: GatewaySettings,
    *,
    config: Config | None = None,
) -> Iterator[Gateway]:
    """Open everything that the gateway serves, and close it whatever happens."""
    chosen = open_config(home, environ) if config is None else config
    token = tokens.load_token(home)
    clients = KnownClients(token, TokenStore(home, now), now)
    known = providers.list_provider_secrets(chosen.providers, environ)
    redactor = SecretRedactor([*known, *list_more_secrets(chosen, environ), token])
    metrics, feed = Metrics(), Feed()
    # Turns ask in their own way; these are for the calls of MCP clients.
    people = DeskPeople(ApprovalStore(home, now), Estop.of(home))
    asked = People(people.approve, people.ask)
    with (
        _told(feed, redactor, audit=chosen.security.audit_log),
        open_runtime(home, environ, asked, config=chosen, redactor=redactor) as runtime,
        GatheredMemory(runtime.memory) as memory,
    ):
        runtime.announce("gateway")
        served = Served(runtime, memory, redactor, metrics, settings, people.halt)
        counter = ToolCounter(metrics, runtime.guard.tools)
        calls = counter.around(make_guarded_call(runtime, people, lambda: client_of(REQUEST.get())))
        ours = McpApp(calls, list_offered_tools(runtime))
        runs = open_runs(settings, metrics, home, environ, config=chosen, redactor=redactor)
        sops = ServedSops(runtime, environ, redactor, settings, metrics)
        mounts = {MCP_PATH: OnDemand(ours)}
        yield Gateway(served, settings, clients, metrics, feed, mounts, runs, sops)


@contextmanager
def _told(feed: Feed, redactor: SecretRedactor, *, audit: bool) -> Iterator[None]:
    """Give what is logged to the feed too, whatever of it is written elsewhere."""
    logger = logging.getLogger("coilclaw")
    before = logger.level
    handler = LineHandler(
        cast("TextIO", feed), redact=redactor.redact, form="json", colour=False, audit=audit
    )
    handler.addFilter(lambda _: feed.watched)
    others = {other: other.level for other in logger.handlers}
    for other, level in others.items():
        other.setLevel(max(level, logger.getEffectiveLevel()))
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        for other, level in others.items():
            other.setLevel(level)


def _sum(before: int | None, more: int | None) -> int | None:
    return before if more is None else (before or 0) + more
