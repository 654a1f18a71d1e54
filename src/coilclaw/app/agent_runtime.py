"""The agent runtime, wired: configuration, policy, provider, memory, receipts, guard and loop."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from coilclaw.agent import AgentLoop, Estop, Memory, ToolContext, TurnUndo
from coilclaw.app import providers
from coilclaw.app.home import now, open_config, open_desk, receipts_of
from coilclaw.app.policy import Policy
from coilclaw.app.tools import collect_tools, list_allowed_tools, make_redactor
from coilclaw.kernel import CoilClawError, ToolSpec, UsageError
from coilclaw.workspace import Cancellation, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.agent import (
        ApprovalStore,
        Guard,
        GuardedCalls,
        OpenTurns,
        ReceiptBook,
        SettlementFinding,
        Tool,
        TurnOutcome,
        UndoneTurn,
    )
    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Approve, Recollection, Redactor, ToolCall, ToolResult
    from coilclaw.workspace import Root, TreeState

_log = logging.getLogger(__name__)


@contextmanager
def open_memory(home: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Memory]:
    """The memory by itself, for the commands that only look at it."""
    with Memory(open_config(home, environ).memory.path) as memory:
        yield memory


@dataclass(frozen=True, slots=True)
class People:
    """How the people are reached who approve and answer."""

    approve: Approve
    ask: Callable[[str], str | None]


class Runtime:
    """Everything of one workspace, open; what a channel is handed."""

    def __init__(
        self,
        config: Config,
        home: Path,
        environ: Mapping[str, str],
        people: People,
        stack: ExitStack,
        redactor: Redactor | None = None,
    ) -> None:
        self.config = config
        self.home = home
        self._environ = environ
        self._people = people
        self.policy_source = Policy(config, home, environ)
        self.redactor = make_redactor(config, environ) if redactor is None else redactor
        if not config.workspace_dir.is_dir():
            raise UsageError(
                f"the workspace {config.workspace_dir} does not exist",
                rule="workspace.missing",
                hint="'coilclaw init' makes it; workspace_dir in the configuration names it",
            )
        self._stack = stack
        self.memory = Memory(config.memory.path)
        stack.callback(self.memory.close)
        self.undoing = TurnUndo(lambda: self.tree)
        self.estop = Estop.of(home)
        self._loop: AgentLoop | None = None
        self._provider_name = config.default_provider

    @cached_property
    def guard(self) -> Guard:
        """The one way to a tool."""
        from coilclaw.agent import Guard, Validators

        return Guard(
            tools=self.known_tools,
            allowed=self.allowed_tools,
            book=self._open_book(),
            estop=self.estop,
            # The same call may have been answered before the program ended.
            approve=lambda request: self.desk().answer_of(request) or self._people.approve(request),
            policy_hash=lambda: self.policy_source.hash,
            validators=Validators(),
            redact=self.redactor.redact,
            before_change=lambda context: self.undoing.before(
                context.conversation_id, context.turn_id
            ),
        )

    @cached_property
    def calls(self) -> GuardedCalls:
        """The way of a call that no turn of a model makes; several threads may use it."""
        from coilclaw.agent import GuardedCalls

        # What all contexts share is made here, once, before any thread.
        self.context("shared", "turn")
        _ = self.policy_source.hash
        return GuardedCalls(self.guard, self.context, self.undoing)

    @property
    def open_turns(self) -> OpenTurns:
        """Decides about turns that the end of a program left open."""
        from coilclaw.agent import OpenTurns

        return OpenTurns(self.desk, lambda: self.guard.book)

    def desk(self) -> ApprovalStore:
        """The approvals of this home."""
        return open_desk(self.home)

    def _open_book(self) -> ReceiptBook | None:
        if not self.config.receipts.enabled:
            return None
        receipts = receipts_of(self.config, self.home)
        writer = receipts.checkpoint_writer(self._environ)
        book = receipts.open_book(None if writer is None else writer.after_receipt)
        book.create()
        self._stack.callback(book.close)
        self._settle_interrupted(book)
        return book

    def _settle_interrupted(self, book: ReceiptBook) -> None:
        """Settle the calls that a crash ended, as far as their effect can be looked up."""
        from coilclaw.agent import Settling, look_up_call
        from coilclaw.workspace import format_time, is_alive

        def look_up(intent: Mapping[str, object]) -> SettlementFinding | None:
            _ = self.tree  # repairs a change that was interrupted
            return look_up_call(intent, book, self.home)

        try:
            Settling(book, is_alive, new_id, lambda: format_time(now())).settle_interrupted(look_up)
        except CoilClawError as problem:
            # Logs that cannot be written to are said again, and with a denial, at the next call.
            extra = {"event": "settle_failed"}
            _log.warning("interrupted calls are not settled: %s", problem.message, extra=extra)

    @cached_property
    def known_tools(self) -> Mapping[str, Tool]:
        """Every tool there is, by name."""
        return collect_tools(self.config, self.home, self._stack)

    @cached_property
    def allowed_tools(self) -> frozenset[str]:
        """The names of those that the channel allows."""
        return list_allowed_tools(self.known_tools.values(), self.config.cli.tools_allow)

    @cached_property
    def tree(self) -> tuple[Root, TreeState]:
        """The workspace, opened when the first tool needs it."""
        from coilclaw.workspace import Root, TreeState

        root = self._stack.enter_context(Root(self.config.workspace_dir))
        state = TreeState.of(self.home, root.path)
        if state.pending.exists():
            # A change that a crash interrupted is finished or taken back.
            from coilclaw.workspace import recovery

            recovery.repair_tree(root, state)
        return root, state

    def context(self, conversation_id: str, turn_id: str) -> ToolContext:
        """What one call gets to work with."""
        policy = self.policy_source
        root, state = self.tree
        return ToolContext(
            root=root,
            state=state,
            home=self.home,
            security=policy.settings,
            locate=policy.places.locate,
            judge=policy.judge,
            conversation_id=conversation_id,
            turn_id=turn_id,
            cancel=Cancellation(),
            now=now,
            environ=self._environ,
            recall=lambda query, limit: self.memory.search(query, limit=limit),
            ask=self._people.ask,
            sandbox=self.config.security.sandbox,
            support=lambda: policy.support,
            limits=self.config.limits.tools,
            view=self.config.sandbox,
        )

    @property
    def loop(self) -> AgentLoop:
        if self._loop is None:
            self._loop = self._make_loop(self._provider_name)
        return self._loop

    def _make_loop(self, name: str) -> AgentLoop:
        config = self.config
        provider = providers.build_configured(config, name, self._environ, self.redactor.redact)
        settings = config.providers[name]
        model = settings.model or config.default_model
        extra = {"event": "provider_selected", "fields": {"provider": name, "model": model}}
        _log.info("provider selected: %s (%s)", name, model, extra=extra)
        return AgentLoop(
            provider=provider,
            model=model,
            tools=self.tools(),
            guard=lambda: self.guard,
            estop=self.estop,
            memory=self.memory,
            security=self.policy_source.settings,
            limits=config.limits,
            redactor=self.redactor,
            undoing=self.undoing,
            context=self.context,
            now=now,
            open_turns=self.open_turns,
            temperature=settings.temperature,
        )

    def announce(self, channel: str) -> None:
        """Say which channel begins to speak with us."""
        extra = {"event": "channel_started", "fields": {"channel": channel}}
        _log.info("channel started: %s", channel, extra=extra)

    def new_conversation(self) -> str:
        return new_id("conv")

    def turn(
        self,
        message: str,
        *,
        conversation_id: str | None = None,
        draft: Callable[[str], None] | None = None,
    ) -> TurnOutcome:
        return self.loop.turn(message, conversation_id=conversation_id, draft=draft)

    def call(self, call: ToolCall, *, conversation_id: str = "tool-run") -> ToolResult:
        """Run one tool outside of any conversation with a model, through the same guard."""
        return self.calls.call(call, conversation_id)

    def tools(self) -> tuple[ToolSpec, ...]:
        """The active tools, as a model is told of them; without receipts there are none."""
        if not self.config.receipts.enabled:
            return ()
        return tuple(
            ToolSpec(tool.name, tool.description, tool.parameters_schema)
            for tool in self.known_tools.values()
            if tool.name in self.allowed_tools
        )

    def search(self, query: str, limit: int = 20) -> tuple[Recollection, ...]:
        return self.memory.search(query, limit=limit)

    def receipts(self, limit: int = 10) -> Sequence[Mapping[str, object]]:
        return () if self.guard.book is None else self.guard.book.last(limit)

    def undo(self, conversation_id: str) -> UndoneTurn:
        return self.undoing.undo(conversation_id)

    def models(self) -> Mapping[str, str]:
        return {
            name: settings.model or self.config.default_model
            for name, settings in self.config.providers.items()
        }

    @property
    def model(self) -> str:
        return self._provider_name

    def use(self, provider: str) -> None:
        """Ask another provider from now on; the old one stays if the new one cannot be made."""
        if provider not in self.config.providers:
            raise UsageError(
                f"no provider {provider!r} is configured",
                rule="provider.unknown",
                hint=f"configured: {', '.join(self.config.providers)}",
            )
        self._loop = self._make_loop(provider)
        self._provider_name = provider

    def policy(self) -> Mapping[str, str]:
        """The policy in force, as label → text."""
        said = describe(self.config, self.policy_source)
        return {**said, "emergency stop": "set" if self.estop.set else "not set"}


def describe(config: Config, policy: Policy) -> Mapping[str, str]:
    """The policy in force, as label → text."""
    security = config.security
    only = "nothing outside of it" if security.workspace_only else "paths outside of it too"
    return {
        "autonomy": policy.settings.autonomy.value,
        "workspace": f"{policy.settings.workspace} ({only})",
        "forbidden paths": ", ".join(map(str, security.forbidden_paths)) or "none",
        "forbidden commands": ", ".join(security.forbidden_commands) or "none",
        "allowed commands": ", ".join(security.allowed_commands) or "those of the policy file",
        "allowed domains": ", ".join(security.allowed_domains) or "none",
        "harmless commands": "run unasked" if security.harmless_commands else "are asked for",
        "sandbox": security.sandbox,
        "tools": ", ".join(config.cli.tools_allow) or "none",
        "policy file": str(policy.path) if policy.path.exists() else "the one that ships",
        "policy hash": policy.hash,
    }


@contextmanager
def open_runtime(
    home: Path,
    environ: Mapping[str, str],
    people: People,
    *,
    config: Config | None = None,
    redactor: Redactor | None = None,
) -> Iterator[Runtime]:
    """Open everything, and close it whatever happens."""
    from coilclaw import __version__

    chosen = open_config(home, environ) if config is None else config
    _log.info("startup: coilclaw %s", __version__, extra={"event": "startup"})
    for event, path in (("config_path", chosen.path), ("workspace_path", chosen.workspace_dir)):
        extra = {"event": event, "fields": {"path": str(path)}}
        _log.info("%s: %s", event.replace("_", " "), path, extra=extra)
    with ExitStack() as stack:
        yield Runtime(chosen, home, environ, people, stack, redactor)
