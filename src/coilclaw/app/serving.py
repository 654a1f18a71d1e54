"""The runtime behind the gateway: many turns at once, and approvals that wait at the desk."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, TextIO, cast

from coilclaw.app import providers
from coilclaw.app.agentwiring import People, open_config, open_runtime
from coilclaw.app.mcpwiring import MARGIN_S, DeskPeople, guarded, offered
from coilclaw.app.runserving import open_runs
from coilclaw.app.toolbox import more_secrets
from coilclaw.domain.canonical import digest
from coilclaw.domain.toolcalls import Answer, Reply
from coilclaw.errors import ProviderError, Stopped
from coilclaw.gateway import token as tokens
from coilclaw.gateway.agent import ChainState, Finished
from coilclaw.gateway.feed import Feed
from coilclaw.gateway.gathering import GatheredMemory
from coilclaw.gateway.metrics import Metrics
from coilclaw.gateway.parts import ApprovalPending, Drafted, ToolAnswered, ToolRequested
from coilclaw.gateway.server import Gateway
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.mcp.asgi import OnDemand, app
from coilclaw.receipts.book import intents_path
from coilclaw.runtime import history
from coilclaw.runtime.approvals import Desk, Question
from coilclaw.runtime.estop import Estop
from coilclaw.runtime.guard import Guard
from coilclaw.runtime.open_turns import is_abandoned
from coilclaw.security.redaction import Redactor
from coilclaw.telemetry.logs import LineHandler
from coilclaw.workspace.process import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.app.agentwiring import Runtime
    from coilclaw.config.values import Config
    from coilclaw.domain.messages import (
        ChatRequest,
        ChatResponse,
        Json,
        Provider,
        ProviderCapabilities,
        StreamingProvider,
        ToolCall,
        ToolSpec,
    )
    from coilclaw.domain.toolcalls import ApprovalRequest, ToolResult
    from coilclaw.gateway.parts import Part
    from coilclaw.mcp.offering import Call as MadeCall
    from coilclaw.memory.store import Memory
    from coilclaw.tools.contract import ToolContext

QUESTION_CHARS: Final = 200
"""How much of a question is its title."""
MCP_PATH: Final = "/mcp"


@dataclass(slots=True)
class RunningTurn:
    """One turn while it goes on; its own thread writes, others only cancel."""

    listen: Callable[[Part], None] | None
    cancel: Cancellation = field(default_factory=Cancellation)
    """Of the call that runs or waits."""
    input_tokens: int | None = None
    output_tokens: int | None = None

    def tell(self, part: Part) -> None:
        if self.listen is not None:
            self.listen(part)


@dataclass(slots=True)
class ToldGuard(Guard):
    """The guard, whose calls are told to whoever watches the turn."""

    tell: Callable[[str, Part], None] = field(default=lambda _, __: None)

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.tell(context.conversation_id, ToolRequested(call.id, call.name, dict(call.arguments)))
        return self._told(call, context, Guard.call(self, call, context))

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        return self._told(call, context, Guard.refuse(self, call, context, rule, reason))

    def _told(self, call: ToolCall, context: ToolContext, result: ToolResult) -> ToolResult:
        status = str(result.metadata.get("status", "denied"))
        self.tell(
            context.conversation_id,
            ToolAnswered(
                call.id,
                call.name,
                result.success,
                status,
                result.output,
                result.error,
                result.receipt_id,
            ),
        )
        return result


@dataclass(frozen=True, slots=True)
class WatchedProvider:
    """A provider that is not asked once turns are halted, and whose errors and tokens count."""

    inner: Provider
    before: Callable[[], None]
    failed: Callable[[], None]
    used: Callable[[ChatRequest, ChatResponse], None]

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.inner.capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        return self._asked(request, lambda: self.inner.chat(request))

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        inner = cast("StreamingProvider", self.inner)
        return self._asked(request, lambda: inner.stream(request, draft))

    def _asked(self, request: ChatRequest, ask: Callable[[], ChatResponse]) -> ChatResponse:
        self.before()
        try:
            response = ask()
        except ProviderError:
            self.failed()
            raise
        self.used(request, response)
        return response


class Served:
    """The runtime as the gateway uses it: everything in it may be used by many threads."""

    def __init__(
        self,
        runtime: Runtime,
        memory: GatheredMemory,
        redactor: Redactor,
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
        self.desk = Desk(runtime.home, _now)
        guard = runtime.guard
        known = {one.name: getattr(guard, one.name) for one in fields(guard)}
        told = ToldGuard(
            **{**known, "approve": self._approve, "redact": redactor.redact}, tell=self._tell
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
            provider=WatchedProvider(
                runtime.loop.provider,
                self._check_halted,
                lambda: metrics.count("provider_errors_total"),
                self._count_tokens,
            ),
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
        new: bool = False,
        listen: Callable[[Part], None] | None = None,
    ) -> Finished:
        """Run one turn in this thread; a conversation has one at a time."""
        if new:
            self._gathered.begin(conversation_id)
        with self._running(conversation_id, listen) as running:
            draft = self._draft(running) if listen else None
            outcome = self._loop.turn(message, conversation_id=conversation_id, draft=draft)
        return Finished(outcome, running.input_tokens, running.output_tokens)

    def resume(self, conversation_id: str) -> Finished | None:
        """Finish the turn that the end of a program left open, in this thread."""
        with self._running(conversation_id, None) as running:
            outcome = self._loop.resume(conversation_id)
        if outcome is None:
            return None
        return Finished(outcome, running.input_tokens, running.output_tokens)

    def open_conversations(self) -> tuple[str, ...]:
        """Return the conversations whose turn waited for an approval when a program ended."""
        found = dict.fromkeys(
            one.question.conversation_id
            for one in self.desk.list(pending_only=False)
            if is_abandoned(one)
        )
        return tuple(name for name in found if self._is_open(name))

    def _is_open(self, conversation_id: str) -> bool:
        records = self.memory.conversation(conversation_id, last=history.MAX_RECORDS)
        left = history.find_open(records)
        return left is not None and self._runtime.open_turns.kept(left) is not None

    @contextmanager
    def _running(
        self, conversation_id: str, listen: Callable[[Part], None] | None
    ) -> Iterator[RunningTurn]:
        running = RunningTurn(listen)
        with self._mutex:
            self._check_halted()
            self._turns[conversation_id] = running
        try:
            yield running
        finally:
            with self._mutex:
                del self._turns[conversation_id]

    def _draft(self, running: RunningTurn) -> Callable[[str], None]:
        def draft(text: str) -> None:
            self._check_halted()
            running.tell(Drafted(text))

        return draft

    def halt(self, reason: str) -> None:
        """Cancel every turn; none begins any more."""
        with self._mutex:
            self._halted = reason
            running = tuple(self._turns.values())
        self._on_halt(reason)
        for turn in running:
            turn.cancel.cancel(reason)

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
        return replace(context, ask=lambda question: self._ask(conversation_id, question))

    def _approve(self, request: ApprovalRequest) -> Answer:
        """Put a request on the desk and wait, in the turn's own thread."""
        verdict = request.verdict
        question = Question(
            kind="tool",
            origin=request.conversation_id,
            title=f"{request.tool}: {verdict.reason}",
            digest=request.digest,
            tool=request.tool,
            arguments=request.arguments,
            risk=str(verdict.risk),
            rule=verdict.rule,
            reason=verdict.reason,
            detail=request.detail,
            conversation_id=request.conversation_id,
            turn_id=request.turn_id,
            call_id=request.call_id,
        )
        return self._wait(question)[0]

    def _ask(self, conversation_id: str, text: str) -> str | None:
        """Put a question of the model on the desk; the answer is in words."""
        question = Question(
            kind="question",
            origin=conversation_id,
            title=text[:QUESTION_CHARS],
            digest=digest(text.encode("utf-8", "backslashreplace")),
            tool="ask_user",
            detail=tuple(text.splitlines()),
        )
        answer, words = self._wait(question)
        return words if answer.granted else None

    def _wait(self, question: Question) -> tuple[Answer, str]:
        """Put a question on the desk; return the answer and its words, which may be none."""
        with self._mutex:
            running = self._turns.get(question.origin)
        if running is None:
            return Answer(Reply.NO, "nobody", "the turn is over"), ""
        name = self.desk.ask_or_adopt(question, expires_s=self._expiry_s)
        running.tell(ApprovalPending(name, question.kind, question.title))
        with self.estop.watched(running.cancel, self._expiry_s + MARGIN_S):
            answer = self.desk.wait_for_answer(
                name,
                question.digest,
                cancel=running.cancel,
                stopping=lambda: self._halted,
            )
        return answer, self.desk.find(name).text

    def _tell(self, conversation_id: str, part: Part) -> None:
        if isinstance(part, ToolAnswered):
            self._metrics.count("tool_calls_total")
            if part.status == "denied":
                self._metrics.count("tool_denials_total")
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
        running = self._turns.get(request.metadata.get("conversation_id", ""))
        if running is not None and response.usage is not None:
            running.input_tokens = _sum(running.input_tokens, response.usage.input_tokens)
            running.output_tokens = _sum(running.output_tokens, response.usage.output_tokens)


def settings_of(config: Config) -> GatewaySettings:
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
    token = tokens.load(home)
    known = providers.secrets(chosen.providers, environ)
    redactor = Redactor([*known, *more_secrets(chosen, environ), token])
    metrics, feed = Metrics(), Feed()
    # Turns ask in their own way; these are for the calls of MCP clients.
    people = DeskPeople(Desk(home, _now), Estop.of(home))
    asked = People(people.approve, people.ask)
    with (
        _told(feed, redactor, audit=chosen.security.audit_log),
        open_runtime(home, environ, asked, config=chosen, redactor=redactor) as runtime,
        GatheredMemory(runtime.memory) as memory,
    ):
        runtime.announce("gateway")
        served = Served(runtime, memory, redactor, metrics, settings, people.halt)
        ours = app(_counted(guarded(runtime, people), metrics), offered(runtime))
        runs = open_runs(settings, metrics, home, environ, config=chosen, redactor=redactor)
        yield Gateway(served, settings, token, metrics, feed, {MCP_PATH: OnDemand(ours)}, runs)


def _counted(call: MadeCall, metrics: Metrics) -> MadeCall:
    """Count the calls of MCP clients like those of turns."""

    def counted(wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
        result = call(wanted, conversation, cancel)
        metrics.count("tool_calls_total")
        if result.metadata.get("status") == "denied":
            metrics.count("tool_denials_total")
        return result

    return counted


@contextmanager
def _told(feed: Feed, redactor: Redactor, *, audit: bool) -> Iterator[None]:
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


def _now() -> datetime:
    return datetime.now().astimezone()
