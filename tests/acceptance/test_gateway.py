"""The gateway over real sockets, in a process of its own: what it refuses, what it never loses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.agent.receipts.verification import verify
from tests.support.agents import AgentHome, calls, says
from tests.support.certificates import make_certificate
from tests.support.children import PATIENCE_S, given_time
from tests.support.gateways import Served, environment, events, home_at, serving
from tests.support.scale import scaled

_FULL = '[security]\nautonomy = "full"\n[limits]\nshell_timeout_s = 600\ntool_timeout_s = 600\n'
_WRITE = calls(("file_write", {"path": "note.txt", "content": "hello\n"}))


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One gateway for everything that needs no other settings; its model echoes."""
    home = home_at(tmp_path_factory.mktemp("echo"))
    with serving(home) as served:
        yield served


def _until(condition: Callable[[], Any]) -> Any:
    """Wait for something another process does, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def _raw(served: Served, data: bytes) -> bytes:
    """Send bytes as they are, and return all that comes until the other end closes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        return _rest(connection)


def _rest(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def _request(served: Served, line: str, *headers: str, body: bytes = b"") -> bytes:
    given = {header.partition(":")[0].lower() for header in headers}
    lines = [f"{line} HTTP/1.1", *headers, "Connection: close"]
    if "host" not in given:
        lines.append(f"Host: 127.0.0.1:{served.port}")
    if "authorization" not in given:
        lines.append(f"Authorization: Bearer {served.token}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def _rule(answer: bytes) -> str:
    found = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["rule"]
    assert isinstance(found, str)
    return found


# Who may ask at all.


def _operations(served: Served) -> list[tuple[str, str]]:
    with served.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, item in paths.items() for method in item]


def test_without_a_token_or_with_a_wrong_one_nothing_is_answered_but_health(echo: Served) -> None:
    operations = _operations(echo)
    assert ("POST", "/chat") in operations
    assert ("GET", "/metrics") in operations
    with httpx2.Client(base_url=echo.url, trust_env=False, timeout=PATIENCE_S) as client:
        for method, path in operations:
            for headers in (
                {},
                {"authorization": "Bearer " + "0" * 64},
                {"authorization": "Basic eA=="},
            ):
                answer = client.request(method, path, headers=headers)
                expected = 200 if path == "/health" else 401
                assert (method, path, answer.status_code) == (method, path, expected)
        assert client.get("/nowhere").status_code == 401
        answer = client.get("/health")
        assert answer.json() == {"status": "ok"}
        assert {"server", "date"} & set(answer.headers) == set()


def test_a_token_in_the_query_string_is_refused_even_with_the_right_header(echo: Served) -> None:
    with echo.client() as client:
        for query in (f"token={echo.token}", "access_token=x", "api_key=x", f"q={echo.token}"):
            answer = client.get(f"/status?{query}")
            assert (answer.status_code, answer.json()["error"]["rule"]) == (400, "auth.query")
        assert client.get("/status").status_code == 200
        assert client.get("/memory/search?q=token").status_code == 200


@pytest.mark.parametrize("path", ["/health", "/status"])
def test_a_foreign_host_is_refused(echo: Served, path: str) -> None:
    port = echo.port
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        f"localhost.evil.example:{port}",
        f"127.0.0.1:{port}@evil.example",
        "",
    ):
        answer = _raw(echo, _request(echo, f"GET {path}", f"Host: {host}"))
        assert (host, _status(answer), _rule(answer)) == (host, 403, "host.foreign")
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", f"LOCALHOST:{port}"):
        assert _status(_raw(echo, _request(echo, f"GET {path}", f"Host: {host}"))) == 200


def test_a_page_of_another_site_is_refused_also_for_reading(echo: Served) -> None:
    with echo.client() as client:
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": f"https://127.0.0.1:{echo.port}"},
            {"origin": f"http://127.0.0.1:{echo.port}.evil.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            for method, path in (("GET", "/status"), ("POST", "/estop"), ("OPTIONS", "/chat")):
                answer = client.request(method, path, headers=headers)
                assert (answer.status_code, answer.json()["error"]["rule"]) == (
                    403,
                    "origin.foreign",
                )
                assert not [name for name in answer.headers if name.startswith("access-control")]
        assert client.get("/status", headers={"origin": echo.url}).status_code == 200


def test_a_form_cannot_be_posted(echo: Served) -> None:
    with echo.client() as client:
        for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
            answer = client.post(
                "/chat", content=b'{"message": "x"}', headers={"content-type": kind}
            )
            assert (answer.status_code, answer.json()["error"]["rule"]) == (415, "body.type")
        good = {"content-type": "Application/JSON; charset=utf-8"}
        assert client.post("/chat", content=b'{"message": "x"}', headers=good).status_code == 200


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"{", "body.json"),
        (b"[]", "body.json"),
        (b'{"message": NaN}', "body.json"),
        (b"[" * 100_000, "body.json"),
        (b"\xff\xfe", "body.json"),
        (b'{"message": 1}', "body.schema"),
        (b'{"message": " \\n"}', "body.schema"),
        (b'{"message": "x", "colour": "red"}', "body.schema"),
        (b'{"message": "\\ud800"}', "body.schema"),
        (b'{"message": "a\\u0000b"}', "text.nul"),
        (b'{"message": "x", "conversation_id": "a\\u0000"}', "text.nul"),
        (b'{"\\u0000": "x"}', "text.nul"),
        (b'{"message": "caf\xe9"}', "body.json"),
        ('{"message": "x"}'.encode("utf-16"), "body.json"),
        (b'{"message": "x", "conversation_id": "../x"}', "body.schema"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(echo: Served, body: bytes, rule: str) -> None:
    with echo.client() as client:
        answer = client.post("/chat", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["rule"]) == (400, rule)


def test_text_that_cannot_be_kept_is_refused_at_every_door(echo: Served) -> None:
    kind = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    asked = b'{"model": "coilclaw", "messages": [{"role": "user", "content": "%s"}]}'
    called = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s"}}'
    with echo.client() as client:
        for path, form in (("/v1/chat/completions", asked), ("/mcp", called)):
            for text, rule in ((b"a\\u0000", "text.nul"), (b"caf\xe9", "body.json")):
                answer = client.post(path, content=form % text, headers=kind)
                error = answer.json()["error"]
                found = (path, answer.status_code, error.get("rule") or error["code"])
                assert found == (path, 400, rule)
        # A backslash before it makes the same letters harmless.
        fine = client.post("/chat", content=b'{"message": "a\\\\u0000"}', headers=kind)
        assert "You said: a\\u0000\n" in fine.json()["text"]
        for path in ("/conversations/a%00b", "/conversations/%ff", "/memory/search?q=%00"):
            assert client.get(path).status_code == 400
        metrics = client.get("/metrics").text
    label = 'coilclaw_request_duration_seconds_count{method="POST",route="/mcp",status="400"} 2'
    assert label in metrics.splitlines()


def test_a_client_that_is_still_sending_gets_to_read_why_it_was_refused(echo: Served) -> None:
    size = 3 * 2**20
    kind = "Content-Type: application/json"
    head = _request(echo, "POST /chat", kind, f"Content-Length: {size}")
    address = ("127.0.0.1", echo.port)
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        for _ in range(size // 2**16):
            connection.sendall(b" " * 2**16)
            time.sleep(0.01)
        answer = connection.recv(65536)
    assert (_status(answer), _rule(answer)) == (413, "body.large")


def test_huge_bodies_and_headers_are_refused_before_they_are_read(echo: Served) -> None:
    kind = "Content-Type: application/json"
    declared = _request(echo, "POST /chat", kind, "Content-Length: 99999999999")
    answer = _raw(echo, declared)
    assert (_status(answer), _rule(answer)) == (413, "body.large")
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    chunked = _request(echo, "POST /chat", kind, "Transfer-Encoding: chunked", body=piece * 40)
    answer = _raw(echo, chunked)
    assert (_status(answer), _rule(answer)) == (413, "body.large")
    answer = _raw(echo, _request(echo, "GET /status", "X-Long: " + "x" * 20_000))
    assert (_status(answer), _rule(answer)) == (431, "http.head_large")
    assert _status(_raw(echo, _request(echo, "GET /status", "X-Long: " + "x" * 10_000))) == 200
    answer = _raw(echo, b"NOT HTTP AT ALL\r\n\r\n")
    assert (_status(answer), _rule(answer)) == (400, "http.malformed")
    with echo.client() as client:
        assert client.post("/chat", json={"message": "é" * 600_000}).status_code == 413
        assert client.post("/chat", json={"message": "x" * 600_000}).status_code == 200


def test_slow_clients_are_let_go_while_others_are_served(tmp_path: Path) -> None:
    settings = {"head_timeout_s": 0.3, "body_timeout_s": 0.3, "write_timeout_s": 0.5}
    with serving(home_at(tmp_path), settings) as served, served.client() as client:
        with (
            socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as silent,
            socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as begun,
            socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as bodiless,
        ):
            began = time.monotonic()
            begun.sendall(b"GET /status HTTP/1.1\r\nHost: ")
            bodiless.sendall(
                _request(
                    served, "POST /chat", "Content-Type: application/json", "Content-Length: 20"
                )
                + b'{"mess'
            )
            assert client.get("/status").status_code == 200
            assert _rest(silent) == b""
            assert _rest(begun) == b""
            assert _rule(_rest(bodiless)) == "body.slow"
            assert time.monotonic() - began < PATIENCE_S
        _unread(served, client)


def _unread(served: Served, client: httpx2.Client) -> None:
    """A client that asks for much and takes nothing is let go too."""
    for _ in range(3):
        client.post("/chat", json={"message": "x" * 1_000_000, "conversation_id": "long"})

    def attempt(idle_s: float) -> int:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(PATIENCE_S)
            connection.connect(("127.0.0.1", served.port))
            connection.sendall(_request(served, "GET /conversations/long"))
            time.sleep(idle_s)
            return len(_rest(connection))

    assert 0 < given_time(1.2, attempt, lambda received: 0 < received < 3_000_000) < 3_000_000


def test_connections_are_bounded(tmp_path: Path) -> None:
    with serving(home_at(tmp_path), {"max_connections": 4}) as served:
        kept = [
            socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
            for _ in range(4)
        ]
        time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as fifth:
            assert _rest(fifth) == b""
        for connection in kept:
            connection.close()
        _until(lambda: _raw(served, _request(served, "GET /health")).startswith(b"HTTP/1.1 200"))


def test_too_many_requests_are_told_to_wait_but_the_emergency_stop_is_never_too_much(
    tmp_path: Path,
) -> None:
    with (
        serving(home_at(tmp_path), {"requests_per_minute": 30}) as served,
        served.client() as client,
    ):
        statuses = [client.get("/status").status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        answer = client.get("/status")
        assert answer.json()["error"]["rule"] == "rate.limit"
        assert int(answer.headers["retry-after"]) >= 1
        assert [client.post("/estop").json() for _ in range(5)] == [{"estop": True}] * 5


# Turns.


def test_a_stream_tells_the_parts_of_a_turn_in_order(tmp_path: Path) -> None:
    home = home_at(
        tmp_path, calls(("time", {})), calls(("file_read", {"path": "/etc/passwd"})), says("done")
    )
    with serving(home) as served, served.client() as client:
        with client.stream("POST", "/chat", json={"message": "go", "stream": True}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = list(events(answer.iter_lines()))
        names = [name for name, _ in told if name != "draft"]
        assert names == ["tool_request", "tool_result"] * 2 + ["final"]
        assert "".join(part["text"] for name, part in told[4:-1] if name == "draft") == "done"
        assert [part["status"] for name, part in told if name == "tool_result"] == [
            "allowed",
            "denied",
        ]
        final = told[-1][1]
        assert (final["text"], final["tool_calls"], final["denials"]) == ("done", 2, 1)
        assert final["conversation_id"] == answer.headers["x-conversation-id"]
        receipts = client.get("/receipts?limit=10").json()["receipts"]
        assert [one["status"] for one in receipts] == ["allowed", "denied"]
        assert [part["receipt_id"] for name, part in told if name == "tool_result"] == [
            one["id"] for one in receipts
        ]
        metrics = client.get("/metrics").text
    for line in (
        "coilclaw_conversations_total 1",
        'coilclaw_tool_calls_total{tool="time",status="allowed",rule=""} 1',
        'coilclaw_tool_calls_total{tool="file_read",status="denied",rule="path.forbidden"} 1',
        "coilclaw_tool_denials_total 1",
        "coilclaw_provider_errors_total 0",
        "coilclaw_receipt_chain_valid 1",
    ):
        assert line in metrics.splitlines()


def test_a_failing_provider_is_told_and_counted(tmp_path: Path) -> None:
    home = home_at(tmp_path, {"error": "network"}, {"error": "timeout"}, {"error": "network"})
    with serving(home) as served, served.client() as client:
        answer = client.post("/chat", json={"message": "x"})
        assert (answer.status_code, answer.json()["error"]["rule"]) == (502, "provider.network")
        assert client.post("/chat", json={"message": "x"}).status_code == 504
        with client.stream("POST", "/chat", json={"message": "x", "stream": True}) as stream:
            ((name, told),) = events(stream.iter_lines())
        assert (name, told["status"]) == ("error", 502)
        assert "coilclaw_provider_errors_total 3" in client.get("/metrics").text


def test_many_conversations_at_once_lose_and_cross_no_turn(echo: Served) -> None:
    number, turns = scaled(full=200, default=40), 3

    def converse(index: int) -> str:
        name = f"crowd-{index}"
        with echo.client() as client:
            for turn in range(turns):
                answer = client.post(
                    "/chat", json={"message": f"<{index}.{turn}>", "conversation_id": name}
                )
                assert answer.status_code == 200, answer.text
                assert answer.json()["conversation_id"] == name
                assert f"You said: <{index}.{turn}>\n" in answer.json()["text"]
        return name

    with ThreadPoolExecutor(number) as pool:
        names = list(pool.map(converse, range(number)))
    with echo.client() as client:
        for index, name in enumerate(names):
            records = client.get(f"/conversations/{name}").json()["records"]
            assert [one["role"] for one in records] == ["user", "assistant"] * turns
            assert [one["content"] for one in records[::2]] == [
                f"<{index}.{turn}>" for turn in range(turns)
            ]
            assert all(
                f"You said: <{index}.{turn}>\n" in one["content"]
                for turn, one in enumerate(records[1::2])
            )


def test_messages_to_one_conversation_are_answered_one_after_the_other(echo: Served) -> None:
    def ask(index: int) -> int:
        with echo.client() as client:
            body = {"message": f"number {index}", "conversation_id": "busy"}
            return client.post("/chat", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == [200] * 16
    with echo.client() as client:
        records = client.get("/conversations/busy").json()["records"]
    assert [one["role"] for one in records] == ["user", "assistant"] * 16
    assert [one["turn_id"] for one in records[::2]] == [one["turn_id"] for one in records[1::2]]
    assert len({one["turn_id"] for one in records}) == 16


def test_a_killed_gateway_serves_every_finished_turn_when_it_is_started_again(
    tmp_path: Path,
) -> None:
    home = home_at(tmp_path)
    finished: dict[str, str] = {}
    for kill in range(scaled(full=10, default=3)):
        with serving(home) as served:

            def work(worker: int, served: Served = served, kill: int = kill) -> None:
                with served.client() as client:
                    for number in range(10_000):
                        text = f"{kill}.{worker}.{number}"
                        try:
                            answer = client.post("/chat", json={"message": text})
                        except httpx2.TransportError:
                            return
                        finished[answer.json()["conversation_id"]] = text

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
            for thread in threads:
                thread.start()
            _until(lambda kill=kill: len(finished) > 20 * (kill + 1))  # type: ignore[misc]  # its default
            served.kill()
            for thread in threads:
                thread.join()
    with serving(home) as served, served.client() as client:
        assert len(finished) > 60
        for name, text in finished.items():
            records = client.get(f"/conversations/{name}").json()["records"]
            assert [one["role"] for one in records] == ["user", "assistant"]
            assert (records[0]["content"], f"You said: {text}\n" in records[1]["content"]) == (
                text,
                True,
            )


# Approvals.


def _pending(client: httpx2.Client) -> dict[str, Any]:
    def look() -> Any:
        found = client.get("/approvals").json()["approvals"]
        return found[0] if found else None

    found = _until(look)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("decision", "written"), [("approve", True), ("reject", False)])
def test_an_approval_asked_in_one_client_is_answered_in_another(
    tmp_path: Path, decision: str, written: bool
) -> None:
    home = home_at(tmp_path, _WRITE, says("finished"))
    with serving(home) as served, served.client() as asking, served.client("admin") as other:
        with ThreadPoolExecutor(1) as pool:
            turn = pool.submit(
                asking.post, "/chat", json={"message": "write", "conversation_id": "w"}
            )
            question = _pending(other)
            assert (question["kind"], question["origin"], question["tool"], question["risk"]) == (
                "tool",
                "w",
                "file_write",
                "medium",
            )
            assert json.loads(question["arguments"]) == {"path": "note.txt", "content": "hello\n"}
            assert any("hello" in line for line in question["detail"])
            assert not (home.workspace / "note.txt").exists()
            body = {"id": question["id"], "decision": decision}
            answered = other.post("/approvals", json=body)
            assert answered.status_code == 200, answered.text
            assert answered.json()["answered_by"] == "client admin-0"
            again = other.post("/approvals", json=body)
            assert (again.status_code, again.json()["error"]["rule"]) == (409, "approval.closed")
            outcome = turn.result(PATIENCE_S).json()
        assert (outcome["text"], outcome["denials"]) == ("finished", 0 if written else 1)
        assert (home.workspace / "note.txt").exists() is written
        assert other.get("/approvals").json() == {"approvals": []}
        (receipt,) = other.get("/receipts").json()["receipts"]
        assert receipt["status"] == ("allowed" if written else "denied")
        said = "yes" if written else "no"
        assert receipt["approval"] == f"client admin-0 {said} path.workspace.write"


def test_an_approval_works_after_the_asking_client_went_away(tmp_path: Path) -> None:
    home = home_at(tmp_path, _WRITE, says("finished"))
    with serving(home) as served, served.client("admin") as other:
        body = json.dumps({"message": "write", "conversation_id": "left", "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", served.port)) as gone:
            gone.sendall(
                _request(
                    served,
                    "POST /chat",
                    "Content-Type: application/json",
                    f"Content-Length: {len(body)}",
                    body=body,
                )
            )
            question = _pending(other)
        assert other.get("/conversations/left").json()["running"] is True
        other.post("/approvals", json={"id": question["id"], "decision": "approve"})
        _until(lambda: not other.get("/conversations/left").json()["running"])
        records = other.get("/conversations/left").json()["records"]
    assert [one["role"] for one in records] == ["user", "assistant", "tool", "assistant"]
    assert records[-1]["content"] == "finished"
    assert (home.workspace / "note.txt").read_text() == "hello\n"


def test_a_question_of_the_model_is_answered_in_words(tmp_path: Path) -> None:
    home = home_at(
        tmp_path, calls(("ask_user", {"question": "Which colour?"})), says("so {{tool_output}}")
    )
    with (
        serving(home) as served,
        served.client() as asking,
        served.client() as other,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(asking.post, "/chat", json={"message": "paint"})
        question = _pending(other)
        assert (question["kind"], question["detail"]) == ("question", ["Which colour?"])
        wordless = other.post("/approvals", json={"id": question["id"], "decision": "approve"})
        assert (wordless.status_code, wordless.json()["error"]["rule"]) == (
            400,
            "approval.words",
        )
        other.post(
            "/approvals",
            json={"id": question["id"], "decision": "approve", "answer": "green"},
        )
        assert turn.result(PATIENCE_S).json()["text"] == "so green"


# Stopping.


def _alive(pattern: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
            except OSError:
                continue
            if pattern in line:
                return True
    return False


def test_the_emergency_stop_over_http_ends_a_running_shell(tmp_path: Path) -> None:
    command = "sleep 314.159"
    home = home_at(tmp_path, calls(("shell", {"command": command})), says("stopped"), config=_FULL)
    with serving(home) as served, served.client() as client, served.client() as other:
        with client.stream("POST", "/chat", json={"message": "x", "stream": True}) as stream:
            told = events(stream.iter_lines())
            assert next(told)[0] == "tool_request"
            _until(lambda: _alive(command))
            began = time.monotonic()
            assert other.post("/estop", json={"reason": "now"}).json() == {"estop": True}
            name, result = next(told)
            took = time.monotonic() - began
            assert (name, result["status"]) == ("tool_result", "failed")
            assert took < PATIENCE_S
            assert list(told)[-1][1]["text"] == "stopped"
        assert not _alive(command)
        assert other.get("/status").json()["estop"] is True
        assert other.delete("/estop").json() == {"estop": False}
        assert other.get("/status").json()["estop"] is False


def test_the_emergency_stop_ends_the_wait_for_an_approval(tmp_path: Path) -> None:
    home = home_at(tmp_path, _WRITE, says("finished"))
    with (
        serving(home) as served,
        served.client() as asking,
        served.client() as other,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(asking.post, "/chat", json={"message": "write"})
        _pending(other)
        other.post("/estop")
        assert turn.result(PATIENCE_S).json()["denials"] == 1
        assert other.get("/approvals").json() == {"approvals": []}
    assert not (home.workspace / "note.txt").exists()


def test_a_signal_lets_a_running_turn_finish(tmp_path: Path) -> None:
    home = home_at(tmp_path, {"text": "late", "delay_s": 3})
    with serving(home, {"grace_s": PATIENCE_S}) as served, served.client() as client:
        with ThreadPoolExecutor(1) as pool:
            turn = pool.submit(client.post, "/chat", json={"message": "x"})
            _until(
                lambda: (
                    '"turns_running":1' in _raw(served, _request(served, "GET /status")).decode()
                )
            )
            served.process.send_signal(signal.SIGTERM)
            assert turn.result(PATIENCE_S).json()["text"] == "late"
        assert served.process.wait(PATIENCE_S) == 0


def test_a_turn_that_takes_too_long_is_cancelled_with_its_receipt_and_goes_on_later(
    tmp_path: Path,
) -> None:
    command = "sleep 327.182"
    answers = (calls(("shell", {"command": command})), says("never"))
    home = home_at(tmp_path, *answers, config=_FULL)
    with (
        serving(home, {"grace_s": 0.2}) as served,
        served.client() as client,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(client.post, "/chat", json={"message": "x", "conversation_id": "c"})
        _until(lambda: _alive(command))
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < PATIENCE_S
        answer = turn.result(PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["rule"]) == (503, "gateway.stopping")
    assert not _alive(command)
    assert [one["status"] for one in home.records()] == ["failed"]
    home.answer(says("back"))
    with serving(home) as served, served.client() as client:
        body = {"message": "and now?", "conversation_id": "c"}
        assert client.post("/chat", json=body).json()["text"] == "back"
        records = client.get("/conversations/c").json()["records"]
        assert [one["role"] for one in records] == [
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
        ]
        assert "coilclaw_receipt_chain_valid 1" in _until(lambda: _chain(client))


def _chain(client: httpx2.Client) -> str | None:
    text: str = client.get("/metrics").text
    return text if "receipt_chain_valid" in text else None


# Watching.


def test_events_are_what_is_logged_as_it_happens(echo: Served) -> None:
    with (
        echo.client() as watching,
        echo.client() as client,
        watching.stream("GET", "/events") as stream,
    ):
        client.post("/chat", json={"message": "hello", "conversation_id": "watched"})
        told = events(stream.iter_lines())
        seen = [next(told)[1] for _ in range(3)]
    assert [one["event"] for one in seen] == [
        "conversation_started",
        "memory_persisted",
        "memory_persisted",
    ]
    assert {one["conversation_id"] for one in seen} == {"watched"}


def test_a_broken_chain_of_receipts_shows_in_the_metrics(tmp_path: Path) -> None:
    home = home_at(tmp_path, calls(("time", {})), says("done"))
    with serving(home) as served, served.client() as client:
        client.post("/chat", json={"message": "x"})
    text = home.receipts.read_text()
    home.receipts.write_text(text.replace('"tool":"time"', '"tool":"tine"'))
    with serving(home) as served, served.client() as client:
        assert "coilclaw_receipt_chain_valid 0" in _until(lambda: _chain(client))
    for log in home.home.glob("tool_receipts*"):
        log.unlink()  # an empty chain is no better than a broken one
    with serving(home) as served, served.client() as client:
        assert "coilclaw_receipt_chain_valid 0" in _until(lambda: _chain(client))


def test_the_token_never_gets_out(tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    home = home_at(tmp_path, says(f"it is {token}"), says(f"it is {token}"))
    path = home.home / "gateway.token"
    path.write_text(token + "\n")
    path.chmod(0o600)
    with serving(home, COILCLAW_LOG="json") as served, served.client() as client:
        assert served.token == token
        assert token not in client.post("/chat", json={"message": "x"}).text
        with client.stream("POST", "/chat", json={"message": "y", "stream": True}) as stream:
            assert token not in "".join(stream.iter_text())
        everything = [client.get(path).text for path in ("/status", "/conversations", "/metrics")]
    assert token not in "".join(everything)
    assert token not in served.logged()


# The command.


def _serve(home: AgentHome, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "coilclaw", "serve", *arguments],
        env=environment(home),
        cwd=home.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--host", "0.0.0.0"), "gateway.public"),
        (("--host", "0.0.0.0", "--insecure"), "gateway.public"),
        (("--host", "0.0.0.0", "--public"), "gateway.insecure"),
        (("--host", "0.0.0.0", "--public", "--tls-cert", "x"), "gateway.tls"),
        (("--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"), "gateway.tls"),
        (("--host", "192.0.2.1", "--public", "--insecure"), "gateway.listen"),
        (("--port", "99999"), "gateway.port"),
    ],
)
def test_an_unsafe_place_to_listen_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], rule: str
) -> None:
    with _serve(home_at(tmp_path), "--port", "0", *arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (5 if rule == "gateway.listen" else 2, "")
    assert f"[{rule}]" in err


def test_the_command_says_where_it_listens_and_never_the_token(tmp_path: Path) -> None:
    home = home_at(tmp_path)
    with _serve(home, "--port", "0", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = json.loads(process.stdout.readline())
        token_file = home.home / "gateway.token"
        assert line["token_file"] == str(token_file)
        assert line["pid"] == process.pid
        assert token_file.stat().st_mode & 0o777 == 0o600
        token = token_file.read_text().strip()
        assert len(bytes.fromhex(token)) == 32
        with httpx2.Client(trust_env=False, timeout=PATIENCE_S) as client:
            answer = client.get(
                f"{line['url']}/status", headers={"authorization": f"Bearer {token}"}
            )
        assert answer.status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")
    assert f"listening on {line['url']}" in err
    assert str(token_file) in err
    assert token not in err
    again = token_file.read_text().strip()
    assert again == token


def test_tls_files_make_it_speak_tls(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    home = home_at(tmp_path)
    arguments = ("--host", "0.0.0.0", "--public", "--tls-cert", str(cert), "--tls-key", str(key))
    with _serve(home, "--port", "0", "--json", *arguments) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["url"].rsplit(":", 1)[1]
        import ssl

        context = ssl.create_default_context(cafile=str(cert))
        headers = {"authorization": f"Bearer {(home.home / 'gateway.token').read_text().strip()}"}
        with httpx2.Client(
            trust_env=False, verify=context, headers=headers, timeout=PATIENCE_S
        ) as client:
            # Reached by its address, which no name server can turn to somebody else's.
            assert client.get(f"https://127.0.0.1:{port}/status").status_code == 200
            foreign = client.get(f"https://localhost:{port}/status")
            assert (foreign.status_code, foreign.json()["error"]["rule"]) == (403, "host.foreign")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


# Clients of others.


def test_the_official_openai_client_talks_to_the_agent(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    home = home_at(
        tmp_path,
        calls(("time", {})),
        says("It is late."),
        says("Streamed."),
        says("And on."),
        {"error": "auth"},
    )
    with serving(home) as served:
        client = openai.OpenAI(
            base_url=f"{served.url}/v1", api_key=served.token, max_retries=0, timeout=PATIENCE_S
        )
        with client:
            assert [model.id for model in client.models.list()] == ["coilclaw"]
            asked = [{"role": "user", "content": "What time is it?"}]
            answer = client.chat.completions.create(model="coilclaw", messages=asked)
            assert answer.choices[0].message.content == "It is late."
            assert answer.choices[0].finish_reason == "stop"
            name = answer.model_extra["conversation_id"]
            stream = client.chat.completions.create(
                model="coilclaw",
                messages=[{"role": "user", "content": [{"type": "text", "text": "Again?"}]}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = list(stream)
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert text == "Streamed."
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
            client.chat.completions.create(
                model="coilclaw", messages=asked, metadata={"conversation_id": name}
            )
            with pytest.raises(openai.APIStatusError) as failed:
                client.chat.completions.create(model="coilclaw", messages=asked)
            assert failed.value.status_code == 502
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model="other", messages=asked)
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(model="coilclaw", messages=asked, n=2)
        wrong = openai.OpenAI(base_url=f"{served.url}/v1", api_key="wrong", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError) as refused:
            wrong.models.list()
        assert refused.value.body == {
            "message": "this token is not valid",
            "type": "authentication_error",
            "param": None,
            "code": "auth.wrong",
        }
        with served.client() as ours:
            records = ours.get(f"/conversations/{name}").json()["records"]
    assert [one["role"] for one in records] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert len(home.records()) == 1


@pytest.mark.full
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    named = os.environ.get("COILCLAW_SCHEMATHESIS") or str(
        Path(sys.executable).with_name("schemathesis")
    )
    if shutil.which(named) is None:
        pytest.skip("schemathesis is not installed beside this Python")
    with serving(home_at(tmp_path), {"requests_per_minute": 10**6}) as served:
        done = subprocess.run(
            [
                named,
                "run",
                f"{served.url}/openapi.json",
                "--header",
                f"Authorization: Bearer {served.token}",
                "--exclude-path",
                "/events",
                "--phases",
                "examples,coverage,fuzzing,stateful" if scaled(full=1, default=0) else "fuzzing",
                "--max-examples",
                str(scaled(full=100, default=10)),
                "--request-timeout",
                "60",
                "--seed",
                "1",
            ],
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        with served.client() as client:
            assert client.get("/status").status_code == 200


def test_mcp_clients_are_served_behind_the_same_token(echo: Served) -> None:
    import asyncio

    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def ask() -> tuple[list[str], bool, bool]:
        headers = {"authorization": f"Bearer {echo.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
            transport = streamable_http_client(f"{echo.url}/mcp", http_client=http)
            async with Client(transport) as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                allowed = await client.call_tool("time", {})
                denied = await client.call_tool("file_read", {"path": "/etc/passwd"})
                return tools, bool(allowed.is_error), bool(denied.is_error)

    assert httpx2.post(f"{echo.url}/mcp", json={}, timeout=PATIENCE_S).status_code == 401
    tools, failed, refused = asyncio.run(ask())
    assert "file_read" in tools
    assert (failed, refused) == (False, True)


async def _mcp_call(served: Served, tool: str, arguments: dict[str, Any]) -> bool:
    """Call a tool as an MCP client, and say whether it failed."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"authorization": f"Bearer {served.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
        async with Client(transport) as client:
            return bool((await client.call_tool(tool, arguments)).is_error)


def test_a_call_of_an_mcp_client_waits_for_its_approval(tmp_path: Path) -> None:
    import asyncio

    with serving(home_at(tmp_path)) as served, served.client("admin") as person:
        home = tmp_path / "workspace"

        def approve() -> None:
            (pending,) = _until(lambda: person.get("/approvals").json()["approvals"])
            said = person.post("/approvals", json={"id": pending["id"], "decision": "approve"})
            assert said.status_code == 200

        thread = threading.Thread(target=approve)
        thread.start()
        asking = _mcp_call(served, "file_write", {"path": "from-mcp.txt", "content": "x"})
        failed = asyncio.run(asking)
        thread.join()
        assert not failed
        assert (home / "from-mcp.txt").read_text() == "x"
        counted = 'coilclaw_tool_calls_total{tool="file_write",status="allowed",rule=""} 1'
        assert counted in person.get("/metrics").text.splitlines()


def test_the_end_of_the_gateway_leaves_a_receipt_of_what_an_mcp_client_runs(
    tmp_path: Path,
) -> None:
    import asyncio

    home = home_at(tmp_path, config=_FULL)
    with serving(home) as served:

        def call() -> None:
            with suppress(Exception):
                command = {"command": "touch begun; sleep 500"}
                asyncio.run(_mcp_call(served, "shell", command))

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        _until((home.workspace / "begun").exists)
        assert served.stop() == 0
    book = ReceiptBook(home.receipts, key_path=home.home / "keys" / "journal.key")
    found = verify(book, lambda _: False)
    assert (found.problems, found.open_intents, found.receipts) == ((), (), 1)


def test_whoever_has_an_answer_and_goes_on_sending_is_let_go(echo: Served) -> None:
    head = f"POST /chat HTTP/1.1\r\nHost: 127.0.0.1:{echo.port}\r\nContent-Length: 1000000\r\n\r\n"
    began = time.monotonic()
    assert b"401" in _raw(echo, head.encode() + b"{").splitlines()[0]
    assert time.monotonic() - began < PATIENCE_S


def test_a_key_that_is_there_twice_is_refused(echo: Served) -> None:
    with echo.client() as client:
        said = client.post(
            "/chat",
            content=b'{"message": "a", "message": "b"}',
            headers={"content-type": "application/json"},
        )
    assert (said.status_code, said.json()["error"]["rule"]) == (400, "body.json")
