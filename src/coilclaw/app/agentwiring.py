"""The agent runtime, wired: configuration, policy, provider, memory, receipts, guard and loop."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from coilclaw.app import providers
from coilclaw.app.policy import Policy
from coilclaw.app.toolbox import allowed_of, redactor_of, tools_of
from coilclaw.config.load import load
from coilclaw.domain.messages import ToolSpec
from coilclaw.errors import CoilClawError, UsageError
from coilclaw.memory.store import Memory
from coilclaw.runtime.estop import Estop
from coilclaw.runtime.identity import new_id
from coilclaw.runtime.loop import Loop
from coilclaw.runtime.undoing import Undoing
from coilclaw.tools.contract import ToolContext
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.config.values import Config
    from coilclaw.domain.messages import ToolCall
    from coilclaw.domain.redacting import Redacting
    from coilclaw.domain.toolcalls import Answer, ApprovalRequest, Approve, ToolResult
    from coilclaw.domain.turns import Recollection
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.receipts.settlement import Finding
    from coilclaw.runtime.approvals import Desk
    from coilclaw.runtime.guard import Guard
    from coilclaw.runtime.handle import TurnOutcome, Undone
    from coilclaw.runtime.open_turns import OpenTurns
    from coilclaw.tools.contract import Tool
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState

_log = logging.getLogger(__name__)


def open_config(home: Path, environ: Mapping[str, str]) -> Config:
    """The configuration; a wrong one raises with all of its problems."""
    return load(home / "config.toml", home=home, environ=environ)


def key_path(home: Path) -> Path:
    """The key of the journals' anchors."""
    return home / "keys" / "journal.key"


@contextmanager
def open_memory(home: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Memory]:
    """The memory by itself, for the commands that only look at it."""
    memory = Memory(open_config(home, environ).memory.path)
    try:
        yield memory
    finally:
        memory.close()


@contextmanager
def open_book(home: Path, environ: Mapping[str, str] = os.environ) -> Iterator[ReceiptBook]:
    """The receipts by themselves."""
    from coilclaw.receipts.book import ReceiptBook

    path = open_config(home, environ).receipts.path
    with ReceiptBook(path, key_path=key_path(home), marked=True) as book:
        yield book


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
        redactor: Redacting | None = None,
    ) -> None:
        self.config = config
        self.home = home
        self._environ = environ
        self._people = people
        self.policy_source = Policy(config, home)
        self.redactor = redactor_of(config, environ) if redactor is None else redactor
        _check_workspace(config)
        self._stack = stack
        self.memory = Memory(config.memory.path)
        stack.callback(self.memory.close)
        self.undoing = Undoing(lambda: self.tree)
        self.estop = Estop.of(home)
        self._loop: Loop | None = None
        self._provider_name = config.default_provider

    @cached_property
    def guard(self) -> Guard:
        """The one way to a tool."""
        from coilclaw.runtime.guard import Guard
        from coilclaw.tools.schema import Validators

        return Guard(
            tools=self.known_tools,
            allowed=self.allowed_tools,
            book=self._open_book(),
            estop=self.estop,
            approve=self._approve,
            policy_hash=lambda: self.policy_source.hash,
            validators=Validators(),
            redact=self.redactor.redact,
            before_change=lambda context: self.undoing.before(
                context.conversation_id, context.turn_id
            ),
        )

    @property
    def open_turns(self) -> OpenTurns:
        """Decides about turns that the end of a program left open."""
        from coilclaw.runtime.open_turns import OpenTurns

        return OpenTurns(self.desk, lambda: self.guard.book)

    def desk(self) -> Desk:
        """The approvals of this home."""
        from coilclaw.runtime.approvals import Desk

        return Desk(self.home, _now)

    def _approve(self, request: ApprovalRequest) -> Answer:
        """Ask the people here, unless the same call was answered before the program ended."""
        return self.desk().answer_of(request) or self._people.approve(request)

    def _open_book(self) -> ReceiptBook | None:
        if not self.config.receipts.enabled:
            return None
        from coilclaw.app.checkpoints import checkpoint_writer
        from coilclaw.receipts.book import ReceiptBook

        writer = checkpoint_writer(self.config, self.home, self._environ)
        book = ReceiptBook(
            self.config.receipts.path,
            key_path=key_path(self.home),
            marked=True,
            after=None if writer is None else writer.after_receipt,
        )
        book.create()
        self._stack.callback(book.close)
        self._settle_interrupted(book)
        return book

    def _settle_interrupted(self, book: ReceiptBook) -> None:
        """Settle the calls that a crash ended, as far as their effect can be looked up."""
        from coilclaw.receipts.settlement import Settling
        from coilclaw.runtime.identity import alive, stamp
        from coilclaw.runtime.interrupted_calls import look_up

        def found(intent: Mapping[str, object]) -> Finding | None:
            _ = self.tree  # repairs a change that was interrupted
            return look_up(intent, book, self.home)

        try:
            Settling(book, alive, new_id, lambda: stamp(_now())).settle_interrupted(found)
        except CoilClawError as problem:
            # Logs that cannot be written to are said again, and with a denial, at the next call.
            _log.warning(
                "interrupted calls are not settled: %s",
                problem.message,
                extra={"event": "settle_failed"},
            )

    @cached_property
    def known_tools(self) -> Mapping[str, Tool]:
        """Every tool there is, by name."""
        return tools_of(self.config, self.home, self._stack)

    @cached_property
    def allowed_tools(self) -> frozenset[str]:
        """The names of those that the channel allows."""
        return allowed_of(self.known_tools.values(), self.config.cli.tools_allow)

    @cached_property
    def tree(self) -> tuple[Root, TreeState]:
        """The workspace, opened when the first tool needs it."""
        from coilclaw.workspace.resolve import Root
        from coilclaw.workspace.state import TreeState

        root = self._stack.enter_context(Root(self.config.workspace_dir))
        state = TreeState.of(self.home, root.path)
        _repair(root, state)
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
            now=_now,
            environ=self._environ,
            recall=lambda query, limit: self.memory.search(query, limit=limit),
            ask=self._people.ask,
            sandbox=self.config.security.sandbox,
            support=lambda: policy.support,
            limits=self.config.limits.tools,
            view=self.config.sandbox,
        )

    @property
    def loop(self) -> Loop:
        if self._loop is None:
            self._loop = self._make_loop(self._provider_name)
        return self._loop

    def _make_loop(self, name: str) -> Loop:
        config = self.config
        provider = providers.build(
            name,
            config.providers,
            environ=self._environ,
            max_response_bytes=config.limits.max_response_bytes,
            redact=self.redactor.redact,
        )
        settings = config.providers[name]
        model = settings.model or config.default_model
        _log.info(
            "provider selected: %s (%s)",
            name,
            model,
            extra={"event": "provider_selected", "fields": {"provider": name, "model": model}},
        )
        return Loop(
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
            now=_now,
            open_turns=self.open_turns,
            temperature=settings.temperature,
        )

    def announce(self, channel: str) -> None:
        """Say which channel begins to speak with us."""
        _log.info(
            "channel started: %s",
            channel,
            extra={"event": "channel_started", "fields": {"channel": channel}},
        )

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
        turn = new_id("turn")
        try:
            return self.guard.call(call, self.context(conversation_id, turn))
        finally:
            self.undoing.after(conversation_id, turn)

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

    def undo(self, conversation_id: str) -> Undone:
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
                f"there is no provider {provider!r}",
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
    redactor: Redacting | None = None,
) -> Iterator[Runtime]:
    """Open everything, and close it whatever happens."""
    chosen = open_config(home, environ) if config is None else config
    _announce(chosen)
    with ExitStack() as stack:
        yield Runtime(chosen, home, environ, people, stack, redactor)


def _announce(config: Config) -> None:
    from coilclaw import __version__

    _log.info("startup: coilclaw %s", __version__, extra={"event": "startup"})
    for event, path in (("config_path", config.path), ("workspace_path", config.workspace_dir)):
        _log.info(
            "%s: %s",
            event.replace("_", " "),
            path,
            extra={"event": event, "fields": {"path": str(path)}},
        )


def _repair(root: Root, state: TreeState) -> None:
    """Finish or take back a change that a crash interrupted."""
    if state.pending.exists():
        from coilclaw.workspace import recovery

        recovery.repair(root, state)


def _check_workspace(config: Config) -> None:
    if not config.workspace_dir.is_dir():
        raise UsageError(
            f"the workspace {config.workspace_dir} does not exist",
            rule="workspace.missing",
            hint="'coilclaw init' makes it; workspace_dir in the configuration names it",
        )


def _now() -> datetime:
    return datetime.now().astimezone()
