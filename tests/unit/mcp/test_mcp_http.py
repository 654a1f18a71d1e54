"""Streamable HTTP on loopback, both ways, with the SDK at the other end."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.types import InputRequiredResult, ListToolsResult, Tool
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from coilclaw.agent.mcp.connection import ConnectionTerms, McpConnection
from coilclaw.agent.mcp.http_server import McpApp, SessionTable
from coilclaw.agent.mcp.settings import McpServer
from coilclaw.agent.mcp.tool_server import RECEIPT_KEY, OfferedTool
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.messages import ToolCall, ToolResult, ToolSpec
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.children import PATIENCE_S

TOKEN = "canary-token-of-the-test"


@contextmanager
def served(application: Any) -> Iterator[str]:
    """Serve an application on loopback, and yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_level="error", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class Seen:
    """The server of somebody else, and what it was sent."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        calculator = MCPServer("calculator")

        @calculator.tool()
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @calculator.tool()
        async def hang() -> str:
            """Never answer."""
            await asyncio.sleep(1000)
            return ""

        self.app = calculator.streamable_http_app()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        await self.app(scope, receive, send)


def terms(timeout_s: float = PATIENCE_S, **environ: str) -> ConnectionTerms:
    return ConnectionTerms(None, environ, timeout_s, Cancellation())


@contextmanager
def connected(server: McpServer) -> Iterator[McpConnection]:
    connection = McpConnection(server)
    try:
        yield connection
    finally:
        connection.close()


def test_a_server_at_an_address_is_asked_with_the_secrets_of_its_settings_only() -> None:
    seen = Seen()
    with served(seen) as address:
        server = McpServer(
            "calc", url=f"{address}/mcp", token_env="CALC_TOKEN", headers={"X-Team": "CALC_TEAM"}
        )
        asked = terms(CALC_TOKEN=TOKEN, CALC_TEAM="blue", OTHER_KEY="canary-of-ours")
        with connected(server) as connection:
            pinned = connection.listing(asked).tools["add"].sha256
            for b in (2, 3):
                answer = connection.call("add", {"a": 1, "b": b}, pinned=pinned, terms=asked)
                assert (answer.text, connection.contained) == (str(1 + b), "none")
    assert {head["authorization"] for head in seen.headers} == {f"Bearer {TOKEN}"}
    assert {head["x-team"] for head in seen.headers} == {"blue"}
    assert {head["accept-encoding"] for head in seen.headers} == {"identity"}
    assert "canary-of-ours" not in str(seen.headers)


def test_a_secret_that_is_not_there_or_cannot_be_sent_is_told_before_anything_is() -> None:
    server = McpServer("calc", url="http://127.0.0.1:9/mcp", token_env="CALC_TOKEN")
    with connected(server) as connection:
        for asked in (terms(), terms(CALC_TOKEN="a\nb")):
            with pytest.raises(UsageError) as raised:
                connection.listing(asked)
            assert raised.value.rule == "mcp.variable"


def test_nobody_at_the_address_is_a_failure_that_does_not_tell_secrets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = McpServer("calc", url=f"http://127.0.0.1:{port}/mcp", token_env="CALC_TOKEN")
    with connected(server) as connection, pytest.raises(EnvironmentFault) as raised:
        connection.listing(terms(CALC_TOKEN=TOKEN))
    assert raised.value.rule == "mcp.connection"
    assert TOKEN not in raised.value.message


def test_a_call_that_takes_too_long_is_given_up_and_the_next_one_works() -> None:
    with (
        served(Seen()) as address,
        connected(McpServer("calc", url=f"{address}/mcp")) as connection,
    ):
        tools = connection.listing(terms()).tools
        began = time.monotonic()
        with pytest.raises(EnvironmentFault) as raised:
            connection.call("hang", {}, pinned=tools["hang"].sha256, terms=terms(0.5))
        assert raised.value.rule == "mcp.timeout"
        assert time.monotonic() - began < PATIENCE_S
        pinned = tools["add"].sha256
        answer = connection.call("add", {"a": 1, "b": 1}, pinned=pinned, terms=terms())
        assert answer.text == "2"


def test_a_server_that_wants_input_in_the_middle_of_a_call_gets_none() -> None:
    async def listed(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="greedy", input_schema={"type": "object"})])

    async def called(_context: Any, _params: Any) -> InputRequiredResult:
        return InputRequiredResult(request_state="tell me your key")

    greedy = Server("greedy", on_list_tools=listed, on_call_tool=called)
    with (
        served(greedy.streamable_http_app()) as address,
        connected(McpServer("calc", url=f"{address}/mcp")) as connection,
    ):
        pinned = connection.listing(terms()).tools["greedy"].sha256
        with pytest.raises(EnvironmentFault) as raised:
            connection.call("greedy", {}, pinned=pinned, terms=terms())
    assert raised.value.rule == "mcp.input"


def _answering(response: Response) -> Starlette:
    async def endpoint(_request: Request) -> Response:
        return response

    return Starlette(routes=[Route("/mcp", endpoint, methods=["GET", "POST", "DELETE"])])


@pytest.mark.parametrize(
    "response",
    [
        PlainTextResponse("x" * (9 * 2**20), media_type="application/json"),
        PlainTextResponse("{}", headers={"content-encoding": "gzip"}),
        PlainTextResponse("no", status_code=403),
        PlainTextResponse("hello, this is a web site", media_type="text/html"),
        RedirectResponse("http://127.0.0.1:9/elsewhere", status_code=307),
    ],
)
def test_what_is_no_server_of_the_protocol_is_a_failure(response: Response) -> None:
    with served(_answering(response)) as address:
        server = McpServer("calc", url=f"{address}/mcp", start_timeout_s=PATIENCE_S)
        with connected(server) as connection, pytest.raises(EnvironmentFault) as raised:
            connection.listing(terms())
    assert raised.value.rule == "mcp.connection"


def _speaking(size: int, *, packed: bool = False) -> Starlette:
    """A server without any SDK, whose tool answers with so many characters, packed or not."""
    schema = {"type": "object"}
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "stub", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "big", "inputSchema": schema}]},
        "tools/call": {"content": [{"type": "text", "text": "x" * size}]},
    }

    async def endpoint(request: Request) -> Response:
        asked = await request.json() if request.method == "POST" else {}
        if "id" not in asked:
            return Response(status_code=202 if request.method == "POST" else 405)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["method"] in results:
            answer["result"] = results[asked["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        body = json.dumps(answer).encode()
        if not packed or asked["method"] != "tools/call":
            return Response(body, media_type="application/json")
        head = {"content-encoding": "gzip"}
        return Response(gzip.compress(body), media_type="application/json", headers=head)

    return Starlette(routes=[Route("/mcp", endpoint, methods=["GET", "POST", "DELETE"])])


@pytest.mark.parametrize(
    ("size", "packed", "works"),
    [(7 * 2**20, False, True), (9 * 2**20, False, False), (100, True, False), (100, False, True)],
)
def test_an_answer_that_is_too_large_or_packed_is_not_taken(
    size: int, packed: bool, works: bool
) -> None:
    with (
        served(_speaking(size, packed=packed)) as address,
        connected(McpServer("calc", url=f"{address}/mcp")) as connection,
    ):
        pinned = connection.listing(terms()).tools["big"].sha256
        if works:
            answer = connection.call("big", {}, pinned=pinned, terms=terms())
            assert len(answer.text) == size
            return
        with pytest.raises(EnvironmentFault) as raised:
            connection.call("big", {}, pinned=pinned, terms=terms())
    assert raised.value.rule in {"mcp.connection", "mcp.error"}


class Calls:
    """Our end: remembers what was asked of it."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, dict[str, Any]]] = []
        self.waiting = threading.Event()
        self.cancelled = threading.Event()

    def tools(self) -> list[OfferedTool]:
        schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return [
            OfferedTool(
                ToolSpec("echo", "Echoes.", schema),
                read_only=True,
                destructive=False,
                open_world=False,
            ),
            OfferedTool(ToolSpec("wait", "Waits.", schema)),
        ]

    def call(self, wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
        self.made.append((wanted.name, conversation, dict(wanted.arguments)))
        match wanted.name:
            case "echo":
                return ToolResult(True, str(wanted.arguments.get("n")), None, {}, "receipt-1")
            case "wait":
                self.waiting.set()
                while not cancel.cancelled:
                    time.sleep(0.01)
                self.cancelled.set()
                return ToolResult(False, "", f"stopped: {cancel.reason}")
            case "raise":
                raise EnvironmentFault("the disk is full", rule="disk.full")
        return ToolResult(False, "some output", "denied by a.rule: because", {"rule": "a.rule"})


def gateway(calls: Calls, table: SessionTable | None = None) -> Starlette:
    """Mount the application as the gateway does."""
    mounted = McpApp(calls.call, calls.tools, table)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with mounted.lifespan():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=mounted)], lifespan=lifespan)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_our_tools_are_offered_as_they_are_and_a_denial_is_an_error_of_the_tool(mode: str) -> None:
    calls = Calls()

    async def client(address: str) -> None:
        async with Client(f"{address}/mcp", mode=mode) as session:
            listed = (await session.list_tools()).tools
            assert [(t.name, t.description, t.input_schema) for t in listed] == [
                (t.spec.name, t.spec.description, t.spec.parameters_schema) for t in calls.tools()
            ]
            hints = [t.annotations for t in listed]
            assert [
                h and (h.read_only_hint, h.destructive_hint, h.open_world_hint) for h in hints
            ] == [(True, False, False), (False, True, True)]
            done = await session.call_tool("echo", {"n": 7})
            assert (done.is_error, done.content[0].text) == (False, "7")  # type: ignore[union-attr]  # it is text
            assert done.meta is not None
            assert done.meta[RECEIPT_KEY] == "receipt-1"
            denied = await session.call_tool("other", {})
            texts = [part.text for part in denied.content]  # type: ignore[union-attr]  # likewise
            assert (denied.is_error, texts) == (True, ["some output", "denied by a.rule: because"])
            broken = await session.call_tool("raise", {})
            assert broken.is_error
            assert broken.content[0].text == "the disk is full [disk.full]"  # type: ignore[union-attr]  # likewise

    with served(gateway(calls)) as address:
        asyncio.run(client(address))
    conversations = [conversation for _, conversation, _ in calls.made]
    assert all(name.startswith("mcp-") for name in conversations)
    assert len(set(conversations)) == (1 if mode == "legacy" else 3)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_two_clients_at_once_are_two_conversations(mode: str) -> None:
    calls = Calls()

    async def client(address: str, number: int) -> str:
        async with Client(f"{address}/mcp", mode=mode) as session:
            done = await session.call_tool("echo", {"n": number})
            return str(done.content[0].text)  # type: ignore[union-attr]  # it is text

    async def clients(address: str) -> list[str]:
        return await asyncio.gather(*(client(address, number) for number in range(6)))

    with served(gateway(calls)) as address:
        assert asyncio.run(clients(address)) == [str(number) for number in range(6)]
    assert len({conversation for _, conversation, _ in calls.made}) == 6


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_gives_up_ends_the_call(mode: str) -> None:
    calls = Calls()

    async def client(address: str) -> None:
        async with Client(f"{address}/mcp", mode=mode) as session:
            task = asyncio.create_task(session.call_tool("wait", {}))
            await asyncio.to_thread(calls.waiting.wait)
            task.cancel()
            assert await asyncio.to_thread(calls.cancelled.wait, PATIENCE_S)

    with served(gateway(calls)) as address:
        asyncio.run(client(address))


def test_the_end_of_the_server_ends_what_still_runs() -> None:
    calls = Calls()
    failed: list[BaseException] = []

    async def client(address: str) -> None:
        async with Client(f"{address}/mcp") as session:
            await session.call_tool("wait", {})

    def run(address: str) -> None:
        try:
            asyncio.run(client(address))
        except BaseException as problem:  # noqa: BLE001 - looked at below
            failed.append(problem)

    with served(gateway(calls)) as address:
        thread = threading.Thread(target=run, args=(address,))
        thread.start()
        assert calls.waiting.wait(PATIENCE_S)
    assert calls.cancelled.wait(PATIENCE_S)
    thread.join()
    assert failed


def test_a_body_that_is_too_large_is_not_taken() -> None:
    with served(gateway(Calls())) as address, httpx2.Client(timeout=PATIENCE_S) as client:
        response = client.post(
            f"{address}/mcp",
            content=b"x" * (5 * 2**20),
            headers={"content-type": "application/json", "accept": "application/json"},
        )
    assert response.status_code == 413


def test_it_answers_within_its_lifespan_only() -> None:
    application = McpApp(Calls().call, Calls().tools)

    async def ask() -> None:
        await application({"type": "http"}, None, None)  # type: ignore[arg-type]  # never used

    with pytest.raises(RuntimeError):
        asyncio.run(ask())


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


def _abandoned(client: httpx2.Client) -> str:
    """Open a session, and never come back to it."""
    answer = client.post("/mcp", json=INITIALIZE, headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["mcp-session-id"])


def _asked(client: httpx2.Client, session: str) -> int:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    headers = {**ACCEPT, "mcp-session-id": session}
    return client.post("/mcp", json=ping, headers=headers).status_code


def test_abandoned_sessions_lock_nobody_out() -> None:
    with (
        served(gateway(Calls(), SessionTable(most=3))) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as client,
    ):
        first, *others = [_abandoned(client) for _ in range(3)]
        assert _asked(client, first) == 200
        newest = _abandoned(client)
        # The one that was idle longest is gone; what was used since is not.
        assert [_asked(client, one) for one in (others[0], first, others[1], newest)] == [
            404,
            200,
            200,
            200,
        ]


def test_a_session_belongs_to_the_client_that_opened_it() -> None:
    inner = gateway(Calls())

    async def naming(scope: Scope, receive: Receive, send: Send) -> None:
        """Name the client like the admission of the gateway."""
        name = dict(scope.get("headers", ())).get(b"x-client", b"").decode()
        await inner({**scope, "coilclaw.client": name}, receive, send)

    with served(naming) as address:
        ann, bob = (
            httpx2.Client(
                base_url=address, trust_env=False, timeout=PATIENCE_S, headers={"x-client": name}
            )
            for name in ("ann", "bob")
        )
        with ann, bob:
            session = _abandoned(ann)
            headers = {**ACCEPT, "mcp-session-id": session}
            assert _asked(bob, session) == 404
            assert bob.delete("/mcp", headers=headers).status_code == 404
            assert _asked(ann, session) == 200
            assert ann.delete("/mcp", headers=headers).status_code == 200


def test_where_all_sessions_are_busy_a_client_hears_when_to_come_again() -> None:
    calls = Calls()
    with (
        served(gateway(calls, SessionTable(most=1))) as address,
        httpx2.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as client,
    ):
        session = _abandoned(client)
        headers = {**ACCEPT, "mcp-session-id": session}
        wanted = {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "wait", "arguments": {}},
        }
        with client.stream("POST", "/mcp", json=wanted, headers=headers):
            assert calls.waiting.wait(PATIENCE_S)
            refused = client.post("/mcp", json=INITIALIZE, headers=ACCEPT)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            cancelled = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 3},
            }
            assert client.post("/mcp", json=cancelled, headers=headers).status_code == 202
            assert calls.cancelled.wait(PATIENCE_S)
        assert client.delete("/mcp", headers=headers).status_code == 200
        _abandoned(client)


def test_a_client_that_asks_for_it_hears_of_progress() -> None:
    calls = Calls()
    heard: list[float] = []

    async def client(address: str) -> None:
        async def told(progress: float, total: float | None, message: str | None) -> None:
            assert (total, bool(message)) == (None, True)
            heard.append(progress)

        async with Client(f"{address}/mcp", mode="legacy") as session:
            asked = asyncio.create_task(session.call_tool("wait", {}, progress_callback=told))
            while len(heard) < 2:
                await asyncio.sleep(0.02)
            asked.cancel()

    with served(gateway(calls)) as address:
        asyncio.run(client(address))
        assert calls.cancelled.wait(PATIENCE_S)
    assert heard[:2] == [0.0, 1.0]
