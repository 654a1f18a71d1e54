"""``TestServer``: the tool ``run_tests`` in the model context protocol, one message a line.

Every agent knows this protocol. It is spoken here, outside of the sandbox; inside of it there is
only a pipe, so that an agent never holds what judges it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import Json

TOOL: Final = "run_tests"
SERVER: Final = "coilclaw"
MAX_TEST_PATH: Final = 1000
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions whose few messages these are; who names another one is answered with the last."""

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
            return _error(None, _INVALID_REQUEST, "this line is not JSON")
        if not isinstance(message, dict):
            return _error(None, _INVALID_REQUEST, "this line is no message")
        method, asked = message.get("method"), message.get("id")
        if not isinstance(method, str) or "id" not in message:
            return None
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        match method:
            case "initialize":
                return _result(asked, _introduction(given))
            case "ping":
                return _result(asked, {})
            case "tools/list":
                return _result(asked, {"tools": [_described()]})
            case "tools/call":
                return self._called(asked, given)
        return _error(asked, _METHOD_NOT_FOUND, "nobody here does this")

    def _called(self, asked: Json, params: Mapping[str, Json]) -> bytes:
        arguments = params.get("arguments")
        path = arguments.get("test_path", "") if isinstance(arguments, dict) else ""
        if params.get("name") != TOOL:
            return _error(asked, _INVALID_PARAMS, f"the only tool here is {TOOL}")
        if not isinstance(path, str) or len(path) > MAX_TEST_PATH:
            why = f"test_path is a text of at most {MAX_TEST_PATH} characters"
            return _said(asked, why, failed=True)
        try:
            with self._turn:
                return _said(asked, self.run_tests(path), failed=False)
        except CoilClawError as problem:
            return _said(asked, f"the tests could not be run: {problem.message}", failed=True)


def _introduction(params: Mapping[str, Json]) -> dict[str, Json]:
    from coilclaw import __version__

    version = params.get("protocolVersion")
    return {
        "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SERVER, "version": __version__},
    }


def _described() -> dict[str, Json]:
    path: dict[str, Json] = {"type": "string", "description": _PATH_DESCRIPTION}
    return {
        "name": TOOL,
        "description": DESCRIPTION,
        "inputSchema": {"type": "object", "properties": {"test_path": path}},
    }


def _said(asked: Json, text: str, *, failed: bool) -> bytes:
    return _result(asked, {"content": [{"type": "text", "text": text}], "isError": failed})


def _result(asked: Json, result: dict[str, Json]) -> bytes:
    return _line({"jsonrpc": "2.0", "id": asked, "result": result})


def _error(asked: Json, code: int, message: str) -> bytes:
    return _line({"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": message}})


def _line(message: dict[str, Json]) -> bytes:
    # Escaped, because a text may hold half of a surrogate pair, which no UTF-8 has.
    return json.dumps(message).encode("ascii") + b"\n"
