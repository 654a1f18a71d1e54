"""``run_tests`` for an agent in a sandbox: the protocol, the pipe, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.runners.test_tool import (
    DESCRIPTION,
    MAX_CONNECTIONS,
    MAX_LINE_BYTES,
    MAX_TEST_PATH,
    SOCKET,
    VERSIONS,
    TestServer,
    TestTool,
    offer_tool,
)
from coilclaw.workspace.process import command
from coilclaw.workspace.process.confinement import Sandbox
from tests.support.children import PATIENCE_S, open_fds
from tests.support.sandboxes import supported


def refuse(path: str) -> str:
    raise AssertionError(path)


def answer(message: Any, run_tests: Any = refuse) -> Any:
    given = message if isinstance(message, bytes) else json.dumps(message).encode()
    said = TestServer(run_tests).answer(given)
    return None if said is None else json.loads(said)


def call(**params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def text(said: str, *, failed: bool) -> dict[str, Any]:
    content = [{"type": "text", "text": said}]
    return {"jsonrpc": "2.0", "id": 7, "result": {"content": content, "isError": failed}}


# --- the protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", -32600),
        (b"\xff", -32600),
        (b"[" * 100_000, -32600),
        ([1], -32600),
        ({"id": 1, "method": "resources/list"}, -32601),
        (call(name="rm", arguments={}), -32602),
        (call(), -32602),
    ],
)
def test_what_nobody_does_is_an_error(message: Any, code: int) -> None:
    assert answer(message)["error"]["code"] == code


@pytest.mark.parametrize("path", [1, None, ["a"], "x" * (MAX_TEST_PATH + 1)])
def test_a_path_that_is_none_is_told_to_the_model(path: Any) -> None:
    said = answer(call(name="run_tests", arguments={"test_path": path}))
    assert said == text(f"test_path is a text of at most {MAX_TEST_PATH} characters", failed=True)


@pytest.mark.parametrize(
    "message", [{"method": "notifications/initialized"}, {"id": 3, "result": {}}, {"method": "x"}]
)
def test_what_is_no_request_has_no_answer(message: Any) -> None:
    assert answer(message) is None


@pytest.mark.parametrize(
    ("asked", "version"),
    [*((one, one) for one in VERSIONS), ("1999-01-01", VERSIONS[-1]), (7, VERSIONS[-1])],
)
def test_it_introduces_itself(asked: Any, version: str) -> None:
    said = answer({"id": 1, "method": "initialize", "params": {"protocolVersion": asked}})
    assert said["result"]["protocolVersion"] == version
    assert said["result"]["capabilities"] == {"tools": {}}
    assert said["result"]["serverInfo"]["name"] == "coilclaw"


def test_there_is_one_tool() -> None:
    assert answer({"id": "a", "method": "ping"}) == {"jsonrpc": "2.0", "id": "a", "result": {}}
    (tool,) = answer({"id": 1, "method": "tools/list"})["result"]["tools"]
    assert (tool["name"], tool["description"]) == ("run_tests", DESCRIPTION)
    assert list(tool["inputSchema"]["properties"]) == ["test_path"]


@pytest.mark.parametrize(
    ("arguments", "path"), [({"test_path": "a/b"}, "a/b"), ({}, ""), (None, "")]
)
def test_the_tests_are_run_and_what_they_say_is_passed_on(arguments: Any, path: str) -> None:
    said = answer(call(name="run_tests", arguments=arguments), lambda got: f"{got!r} \udcff ok")
    assert said == text(f"{path!r} \udcff ok", failed=False)


def test_tests_that_cannot_be_run_are_told_to_the_model() -> None:
    def broken(_: str) -> str:
        raise EnvironmentFault("there is no compiler", rule="x")

    said = answer(call(name="run_tests"), broken)
    assert said == text("the tests could not be run: there is no compiler", failed=True)


def test_tests_are_run_one_after_the_other() -> None:
    busy, most = threading.Semaphore(0), []
    inside: list[int] = []

    def slow(_: str) -> str:
        inside.append(1)
        most.append(len(inside))
        busy.acquire(timeout=0.05)
        inside.pop()
        return ""

    server = TestServer(slow)
    line = json.dumps(call(name="run_tests")).encode()
    threads = [threading.Thread(target=server.answer, args=(line,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


# --- the pipe ------------------------------------------------------------------------------------

LINE = json.dumps(call(name="run_tests", arguments={"test_path": "all"})).encode() + b"\n"


def test_without_tests_there_is_no_tool(tmp_path: Path) -> None:
    with offer_tool(None, tmp_path) as tool:
        assert tool is None
    assert list(tmp_path.iterdir()) == []


def test_an_agent_in_the_sandbox_reaches_it_over_a_pipe(tmp_path: Path) -> None:
    support = supported("bubblewrap")
    place = tmp_path / ("long" * 30)
    place.mkdir()
    with offer_tool(lambda path: f"{path}: fine", place) as tool:
        assert tool is not None
        result = command.run(
            tool.argv,
            cwd=tmp_path,
            timeout_s=PATIENCE_S,
            stdin=LINE + LINE,
            sandbox=Sandbox("bubblewrap", writable=(place,)),
            support=support,
        )
    assert (result.exit_code, result.stderr.text()) == (0, "")
    lines = [json.loads(line) for line in result.stdout.text().splitlines()]
    assert lines == [text("all: fine", failed=False)] * 2


def test_the_end_of_the_performance_ends_every_connection(tmp_path: Path) -> None:
    before = open_fds()
    with offer_tool(lambda _: "", tmp_path) as tool:
        assert tool is not None
        child = subprocess.Popen(tool.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(LINE)
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 7
    assert child.wait(PATIENCE_S) == 0
    child.stdin.close()
    child.stdout.close()
    assert {line for line in open_fds() - before if "socket" in line} == set()
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as late:
        late.connect(str(tmp_path / SOCKET))


@pytest.mark.parametrize("sent", [b"x" * (MAX_LINE_BYTES + 1), b"no end"])
def test_a_line_that_is_too_long_or_cut_ends_the_connection(tmp_path: Path, sent: bytes) -> None:
    with offer_tool(refuse, tmp_path), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(tmp_path / SOCKET))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):  # there was still something to read at the other end
            assert client.recv(10) == b""


def test_there_are_not_more_connections_than_anybody_needs(tmp_path: Path) -> None:
    with offer_tool(lambda _: "", tmp_path):
        clients = [socket.socket(socket.AF_UNIX) for _ in range(MAX_CONNECTIONS + 1)]
        for client in clients:
            client.settimeout(PATIENCE_S)
            client.connect(str(tmp_path / SOCKET))
        *first, last = clients
        assert last.recv(10) == b""
        first[-1].sendall(LINE)
        assert first[-1].recv(10)
        for client in clients:
            client.close()


def test_what_lies_there_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / SOCKET).write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"), offer_tool(refuse, tmp_path / "link"):
        pass
    assert (tmp_path / "real" / SOCKET).read_text() == "mine"
    with offer_tool(refuse, tmp_path / "real"):
        assert (tmp_path / "real" / SOCKET).is_socket()


def test_a_call_is_known_by_both_names() -> None:
    tool = TestTool(Path("/x"))
    assert tool.is_call("mcp__coilclaw__run_tests")
    assert tool.is_call("coilclaw_run_tests")
    assert not tool.is_call("run_tests")
    assert os.path.isabs(tool.argv[0])
