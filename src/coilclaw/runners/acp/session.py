"""``AcpConversation``: the conversation with an ACP agent, over the official SDK.

The SDK is asynchronous. Its loop runs in a thread of its own and puts events into a queue, in the
order in which the agent reported them.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coilclaw.runners.codex.wire import Cancelled, CodexWire, TimeUp, WireProblem
from coilclaw.runners.test_tool import SERVER
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from acp import ClientSideConnection
    from acp.schema import RequestPermissionResponse

    from coilclaw.kernel import Json
    from coilclaw.runners.test_tool import TestTool
    from coilclaw.workspace import LiveProcess

LONGEST_S: Final = 7 * 24 * 3600.0
"""Longer than any conversation: the caller has limits of its own, and ends it."""
LEAVE_S: Final = 2.0
_UPDATE: Final = "session/update"
_ASKING: Final = ("default", "ask", "workspace-write", "read-only")
"""Modes in which agents are known to ask before they act, the best first."""


@dataclass(frozen=True, slots=True)
class Updated:
    """The agent reports something."""

    update: dict[str, Json]
    raw: str


@dataclass(frozen=True, slots=True)
class AcpQuestion:
    """The agent wants to do something; ``reply`` takes the option that was chosen."""

    tool_call: dict[str, Json]
    options: list[dict[str, Json]]
    reply: Callable[[str | None], None]


@dataclass(frozen=True, slots=True)
class AcpOpened:
    """A session is open, and waits for its task."""

    session_id: str
    version: str


@dataclass(frozen=True, slots=True)
class AcpAnswer:
    """The turn is over."""

    stop_reason: str
    usage: dict[str, Json] | None
    meta: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """The conversation failed; ``gone`` if the agent ended or broke the protocol."""

    reason: str
    gone: bool


@dataclass(frozen=True, slots=True)
class AcpHalted:
    """The work was cancelled; it only wakes the caller that waits."""


Event: TypeAlias = Updated | AcpQuestion | AcpOpened | AcpAnswer | Trouble | AcpHalted


@dataclass(frozen=True, slots=True, eq=False)
class CancelNotice:
    """Puts a cancellation into the queue of events."""

    events: queue.SimpleQueue[Event]

    def wake(self) -> None:
        self.events.put(AcpHalted())


@dataclass(slots=True)
class AcpConversation:
    """A context manager; the process belongs to the caller."""

    process: LiveProcess
    directory: str
    session_id: str
    """The session to resume; empty for a new one."""
    model: str
    tests: TestTool | None
    """The tool server that the agent shall start."""
    instruction: str
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _over: Cancellation = field(default_factory=Cancellation)
    _go: threading.Event = field(default_factory=threading.Event)
    _why: str = "it ended in the middle of its work"
    _loop: asyncio.AbstractEventLoop | None = None
    _connection: ClientSideConnection | None = None
    _session: str = ""
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="coilclaw-acp", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.cancel("over")
        self._go.set()
        assert self._thread is not None, "it was entered"
        # What still writes is released by the end of the process, which follows.
        self._thread.join(LEAVE_S)

    def go(self) -> None:
        """Send the agent its task."""
        self._go.set()

    def cancel(self) -> None:
        """Tell the agent to stop; it answers with the end of the turn."""
        if self._loop is not None and self._connection is not None and self._session:
            notice = self._connection.cancel(session_id=self._session)
            try:
                asyncio.run_coroutine_threadsafe(notice, self._loop)
            except RuntimeError:  # the loop has ended in this very moment
                notice.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._converse())
        except BaseException as raised:  # noqa: BLE001 - told to the thread that waits
            self.events.put(Trouble(f"{type(raised).__name__}: {raised}", gone=True))

    async def _converse(self) -> None:
        from acp import RequestError, connect_to_agent
        from pydantic import ValidationError

        self._loop = asyncio.get_running_loop()
        with CodexWire(self.process, self._over) as wire:
            pipe = _Pipe(self, wire)
            # The protocol of the SDK has methods that no agent needs from us: they are refused.
            client: Any = _Client(self.events)
            self._connection = connect_to_agent(client, pipe, use_unstable_protocol=True)
            try:
                await self._hold_session(self._connection)
            except RequestError as problem:
                self.events.put(Trouble(_describe_error(problem), gone=False))
            except (ConnectionError, OSError):
                self.events.put(Trouble(self._why, gone=True))
            except ValidationError:
                self.events.put(Trouble("its answer breaks the protocol", True))
            finally:
                self._over.cancel("over")
                await self._connection.close()

    async def _hold_session(self, connection: ClientSideConnection) -> None:
        from acp import PROTOCOL_VERSION, text_block
        from acp.schema import ClientCapabilities, Implementation

        from coilclaw import __version__

        hello = await connection.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(),
            client_info=Implementation(name="coilclaw", version=__version__),
        )
        self._session = await self._open(connection, hello)
        version = hello.agent_info.version if hello.agent_info is not None else ""
        self.events.put(AcpOpened(self._session, version))
        # What comes until now, such as the history of a session, is not work of this turn.
        await asyncio.to_thread(self._go.wait)
        if self._over.cancelled:
            return
        answer = await connection.prompt(
            session_id=self._session, prompt=[text_block(self.instruction)]
        )
        usage = None if answer.usage is None else answer.usage.model_dump(mode="json")
        self.events.put(AcpAnswer(answer.stop_reason, usage, answer.field_meta))

    async def _open(self, connection: ClientSideConnection, hello: Any) -> str:
        """Open a session with the wanted model, in a mode that asks; return its id."""
        from acp import RequestError
        from acp.schema import McpServerStdio

        known, where = self.session_id, self.directory
        servers: Any = []
        if self.tests is not None:
            command, *args = self.tests.argv
            servers = [McpServerStdio(name=SERVER, command=command, args=args, env=[])]
        session: Any
        if not known:
            session = await connection.new_session(cwd=where, mcp_servers=servers)
            name = session.session_id
        else:
            name, can = known, hello.agent_capabilities
            more = None if can is None else can.session_capabilities
            if more is not None and more.resume is not None:
                enter: Any = connection.resume_session
            elif can is not None and can.load_session:
                enter = connection.load_session
            else:
                raise RequestError(0, "it cannot resume a session")
            session = await enter(session_id=known, cwd=where, mcp_servers=servers)
        modes = session.modes
        offered = [] if modes is None else [mode.id for mode in modes.available_modes]
        if modes is not None and modes.current_mode_id not in _ASKING:
            for mode in _ASKING:
                if mode in offered:
                    await connection.set_session_mode(session_id=name, mode_id=mode)
                    break
        if self.model:
            await self._choose_model(connection, name, session)
        return str(name)

    async def _choose_model(
        self, connection: ClientSideConnection, name: str, session: Any
    ) -> None:
        from acp import RequestError

        for option in session.config_options or ():
            if option.category == "model":
                if option.current_value != self.model:
                    await connection.set_config_option(
                        config_id=option.id, session_id=name, value=self.model
                    )
                return
        raise RequestError(0, "it does not offer a choice of models")


@dataclass(slots=True)
class _Pipe:
    """The two pipes of the agent as the SDK wants them: messages, one by one."""

    talk: AcpConversation
    wire: CodexWire
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        async with self._sending:
            await asyncio.to_thread(self.talk.process.stdin.write, data)

    async def receive(self) -> dict[str, Any] | None:
        until = time.monotonic() + LONGEST_S
        while True:
            try:
                message, raw = await asyncio.to_thread(self.wire.receive, until, heed_cancel=True)
            except WireProblem as problem:
                self.talk._why = str(problem)  # noqa: SLF001 - one thing in two classes
                return None
            except (Cancelled, TimeUp):
                return None
            if message.get("method") != _UPDATE or "id" in message:
                return message
            # Not for the SDK: it would not keep the order, nor what it does not know.
            params = message.get("params")
            update = params.get("update") if isinstance(params, dict) else None
            if isinstance(update, dict):
                self.talk.events.put(Updated(update, raw))

    async def close(self) -> None:
        """The caller closes the process."""


@dataclass(frozen=True, slots=True)
class _Client:
    """What the agent may ask us for: permissions, and nothing else."""

    events: queue.SimpleQueue[Event]

    async def request_permission(
        self, options: list[Any], tool_call: Any, **_: Any
    ) -> RequestPermissionResponse:
        from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

        loop = asyncio.get_running_loop()
        chosen: asyncio.Future[str | None] = loop.create_future()

        def settle(option: str | None) -> None:
            if not chosen.done():
                chosen.set_result(option)

        def reply(option: str | None) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the request
                loop.call_soon_threadsafe(settle, option)

        self.events.put(
            AcpQuestion(_dump_model(tool_call), [_dump_model(one) for one in options], reply)
        )
        option = await chosen
        if option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=option)
        )


def _dump_model(model: Any) -> dict[str, Json]:
    dumped: dict[str, Json] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _describe_error(problem: Exception) -> str:
    """Return the message of an error with the details that agents put beside it."""
    data = getattr(problem, "data", None)
    more = ""
    if isinstance(data, dict):
        more = next((str(data[key]) for key in ("message", "details", "error") if key in data), "")
    elif isinstance(data, str):
        more = data
    return f"{problem}: {more}" if more else str(problem)
