"""``TestServer``: the tool ``run_tests`` in the model context protocol, one message a line.

Every agent knows this protocol. The server runs here, outside the sandbox; inside it there is
only a pipe, so that the agent cannot touch the tests that judge it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError
from coilclaw.runners.sandbox_socket import SandboxSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json


TOOL: Final = "run_tests"
SERVER: Final = "coilclaw"
"""The name of the server, under which agents list the tool."""
MAX_TEST_PATH: Final = 1000
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The supported versions; a client that names another one is answered with the last."""

DESCRIPTION: Final = (
    "Runs the tests of this environment against the current state of the workspace and answers "
    "with a summary: how many passed, the first failures, what is newly broken or fixed."
)
_PATH_DESCRIPTION: Final = (
    "Which tests: a suite, a part of one, or a single case, as named in a summary; empty for all."
)
_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_INVALID_PARAMS: Final = -32602


@dataclass(frozen=True, slots=True)
class TestServer:
    """Answers messages; may be asked by several threads, and runs tests for one at a time."""

    __test__ = False

    run_tests: Callable[[str], str]
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, line: bytes) -> bytes | None:
        """Return the line that answers a line; ``None`` for what has no answer."""
        try:
            message: Json = json.loads(line)
        except (ValueError, RecursionError):
            return _make_error(None, _INVALID_REQUEST, "this line is not JSON")
        if not isinstance(message, dict):
            return _make_error(None, _INVALID_REQUEST, "this line is not a message")
        method, asked = message.get("method"), message.get("id")
        if not isinstance(method, str) or "id" not in message:
            return None
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        match method:
            case "initialize":
                from coilclaw import __version__

                version = given.get("protocolVersion")
                introduction: dict[str, Json] = {
                    "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER, "version": __version__},
                }
                return _reply(asked, result=introduction)
            case "ping":
                return _reply(asked, result={})
            case "tools/list":
                path: Json = {"type": "string", "description": _PATH_DESCRIPTION}
                schema: Json = {"type": "object", "properties": {"test_path": path}}
                tool: Json = {"name": TOOL, "description": DESCRIPTION, "inputSchema": schema}
                return _reply(asked, result={"tools": [tool]})
            case "tools/call":
                return self._call_tool(asked, given)
        return _make_error(asked, _METHOD_NOT_FOUND, "this method is not offered")

    def _call_tool(self, asked: Json, params: Mapping[str, Json]) -> bytes:
        arguments = params.get("arguments")
        path = arguments.get("test_path", "") if isinstance(arguments, dict) else ""
        if params.get("name") != TOOL:
            return _make_error(asked, _INVALID_PARAMS, f"the only tool here is {TOOL}")
        if not isinstance(path, str) or len(path) > MAX_TEST_PATH:
            why = f"test_path is a text of at most {MAX_TEST_PATH} characters"
            return _make_content(asked, why, failed=True)
        try:
            with self._turn:
                return _make_content(asked, self.run_tests(path), failed=False)
        except CoilClawError as problem:
            return _make_content(
                asked, f"the tests could not be run: {problem.message}", failed=True
            )


def _make_content(asked: Json, text: str, *, failed: bool) -> bytes:
    return _reply(asked, result={"content": [{"type": "text", "text": text}], "isError": failed})


def _make_error(asked: Json, code: int, message: str) -> bytes:
    return _reply(asked, error={"code": code, "message": message})


def _reply(asked: Json, **body: Json) -> bytes:
    # Escaped, because a text may hold half of a surrogate pair, which UTF-8 cannot encode.
    return json.dumps({"jsonrpc": "2.0", "id": asked, **body}).encode("ascii") + b"\n"


SOCKET: Final = "tests.sock"
MAX_CONNECTIONS: Final = 16
MAX_LINE_BYTES: Final = 2**20
LEAVE_S: Final = 10.0
"""How long to wait for tests that still run when the agent has ended."""
CALL_S: Final = 4 * 3600
"""How long an agent waits for its tests; running them has limits of its own."""

_PIPE: Final = """
import os, socket, sys, threading
os.chdir(sys.argv[1])
end = socket.socket(socket.AF_UNIX)
end.connect("./tests.sock")
def up():
    while data := os.read(0, 65536):
        end.sendall(data)
    end.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := end.recv(65536):
    while data:
        data = data[os.write(1, data):]
os._exit(0)
"""
"""What is started in the sandbox."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TestTool:
    """How the agent starts its tool server."""

    __test__ = False

    place: Path

    @property
    def argv(self) -> list[str]:
        python = os.path.realpath(sys.executable)
        return [python, "-I", "-S", "-c", _PIPE, str(self.place)]

    def codex_options(self) -> list[str]:
        """Return the options that name the server to Codex; its calls need no approval."""
        program, *rest = self.argv
        settings = {
            "command": program,
            "args": rest,
            "tool_timeout_sec": CALL_S,
            "default_tools_approval_mode": "approve",
        }
        options: list[str] = []
        for key, value in settings.items():
            # A JSON text of these kinds is a TOML text too.
            options += ["-c", f"mcp_servers.{SERVER}.{key}={json.dumps(value)}"]
        return options

    def is_call(self, title: str) -> bool:
        """Whether an agent's own name for a call means this tool."""
        return TOOL in title and SERVER in title


@contextmanager
def offer_tool(run_tests: Callable[[str], str] | None, place: Path) -> Iterator[TestTool | None]:
    """Serve the tool in a directory of the sandbox, if the assignment has tests."""
    if run_tests is None:
        yield None
        return
    server = TestServer(run_tests)

    def serve(client: socket.socket) -> None:
        with client.makefile("rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n"):
                    _log.warning("a message to the tests is too long, or was cut")
                    return
                answer = server.answer(line)
                if answer is not None:
                    client.sendall(answer)

    with SandboxSocket(place, SOCKET, serve, MAX_CONNECTIONS, LEAVE_S):
        yield TestTool(place)
