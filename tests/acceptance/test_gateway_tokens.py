"""Tokens with a role, over real sockets: who may do what, who sees what, and who may approve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coilclaw.cli.dispatch import dispatch
from coilclaw.gateway.clients import Role
from tests.acceptance.test_gateway import _mcp_call, _operations, _pending, _until
from tests.support.agents import calls, says
from tests.support.children import PATIENCE_S
from tests.support.gateways import Served, events, home_at, serving

_WRITE = calls(("file_write", {"path": "note.txt", "content": "hello\n"}))
_BOTH = {"chat", "read"}
_ALL = {"chat", "approve", "read"}
_LOOKING = {"approve", "read"}
ALLOWED = {
    ("GET", "/openapi.json"): _ALL,
    ("GET", "/whoami"): _ALL,
    ("GET", "/status"): _ALL,
    ("GET", "/tools"): _ALL,
    ("GET", "/memory/search"): _BOTH,
    ("GET", "/receipts"): {"read"},
    ("GET", "/conversations"): _BOTH,
    ("GET", "/conversations/{conversation_id}"): _BOTH,
    ("GET", "/metrics"): {"read"},
    ("GET", "/events"): _BOTH,
    ("POST", "/chat"): {"chat"},
    ("POST", "/estop"): set(),
    ("DELETE", "/estop"): set(),
    ("GET", "/approvals"): _ALL,
    ("POST", "/approvals"): {"chat", "approve"},
    ("GET", "/v1/models"): _ALL,
    ("POST", "/v1/chat/completions"): {"chat"},
    ("GET", "/runs"): _LOOKING,
    ("GET", "/runs/{run_id}"): _LOOKING,
    ("GET", "/runs/{run_id}/events"): _LOOKING,
    ("GET", "/runs/{run_id}/diff"): _LOOKING,
    ("GET", "/runs/{run_id}/bundle"): _LOOKING,
    ("POST", "/runs"): set(),
    ("POST", "/runs/{run_id}/resume"): set(),
    ("POST", "/runs/{run_id}/cancel"): set(),
    ("POST", "/runs/{run_id}/verify"): set(),
}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(home_at(tmp_path_factory.mktemp("tokens"))) as served:
        yield served


def _refused(answer: httpx2.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    return answer.status_code, error.get("rule") or error["code"]


@pytest.mark.parametrize("role", ["chat", "approve", "read"])
def test_each_role_may_do_what_it_is_for_and_nothing_else(echo: Served, role: Role) -> None:
    known = {**ALLOWED, ("POST", "/mcp"): {"chat"}, ("GET", "/mcp"): {"chat"}}
    # Whatever endpoint comes later is for the operator, until this table says otherwise.
    offered = {*_operations(echo), ("POST", "/mcp"), ("GET", "/mcp")} - {("GET", "/health")}
    with echo.client(role) as client:
        for method, path in sorted(offered):
            with client.stream(method, path.replace("{", "").replace("}", "")) as answer:
                denied = answer.status_code == 403
                if denied:
                    answer.read()
            told = (method, path, denied)
            assert told == (method, path, role not in known.get((method, path), set()))
            if denied:
                assert _refused(answer) == (403, "role.needed")
                assert "admin" in answer.text


def test_a_token_is_made_listed_and_revoked_while_the_gateway_runs(
    echo: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COILCLAW_HOME", str(echo.home.home))
    assert dispatch(["token", "new", "phone", "--role", "read", "--expires", "30d"]) == 0
    made = capsys.readouterr()
    token = made.out.strip()
    assert token not in made.err
    headers = {"authorization": f"Bearer {token}"}
    with echo.client(headers=headers) as client:
        who = client.get("/whoami").json()
        assert (who["name"], who["role"]) == ("phone", "read")
        assert client.get("/metrics").status_code == 200
        assert dispatch(["token", "list", "--json"]) == 0
        listed = capsys.readouterr().out
        (found,) = (one for one in json.loads(listed) if one["name"] == "phone")
        assert (found["role"], found["expires"], found["revoked"]) == ("read", who["expires"], None)
        assert token not in listed
        assert dispatch(["token", "revoke", "phone"]) == 0
        assert _refused(client.get("/metrics")) == (401, "auth.revoked")
        assert dispatch(["token", "list"]) == 0
        assert "phone  read" in capsys.readouterr().out
        assert dispatch(["token", "new", "phone", "--role", "admin"]) == 2
        assert "[token.exists]" in capsys.readouterr().err
    with echo.client() as operator:
        assert operator.get("/whoami").json() == {
            "name": "operator",
            "role": "admin",
            "expires": None,
        }
        refusals = operator.get("/metrics").text
    assert 'coilclaw_requests_refused_total{rule="auth.revoked",status="401"} 1' in refusals


def test_a_chat_token_sees_its_own_conversations_only(echo: Served) -> None:
    with (
        echo.client("chat") as ann,
        echo.client("chat") as bob,
        echo.client("read") as auditor,
        echo.client() as operator,
    ):
        own = ann.post("/chat", json={"message": "my zebra"}).json()["conversation_id"]
        assert ann.post("/chat", json={"message": "on", "conversation_id": own}).is_success
        body: dict[str, Any] = {"message": "secret zebra", "conversation_id": "of-the-operator"}
        assert operator.post("/chat", json=body).is_success
        for other in (bob, ann):
            theirs = "of-the-operator" if other is ann else own
            for stream in (False, True):
                body = {"message": "x", "conversation_id": theirs, "stream": stream}
                assert _refused(other.post("/chat", json=body)) == (403, "conversation.owner")
            asked = {
                "model": "coilclaw",
                "messages": [{"role": "user", "content": "x"}],
                "metadata": {"conversation_id": theirs},
            }
            refused = other.post("/v1/chat/completions", json=asked)
            assert _refused(refused) == (403, "conversation.owner")
            assert _refused(other.get(f"/conversations/{theirs}")) == (404, "conversation.unknown")
        assert len(operator.get("/conversations/of-the-operator").json()["records"]) == 2
        assert ann.get(f"/conversations/{own}").is_success
        assert _listed(ann) == [own]
        assert _listed(bob) == []
        assert {own, "of-the-operator"} <= set(_listed(auditor)) & set(_listed(operator))
        assert _found(ann) == {own}
        assert _found(bob) == set()
        assert _found(auditor) == _found(operator) == {own, "of-the-operator"}
        assert operator.post("/chat", json={"message": "x", "conversation_id": own}).is_success
        assert ann.get(f"/conversations/{own}").is_success


def _listed(client: httpx2.Client) -> list[str]:
    found = client.get("/conversations?limit=1000").json()["conversations"]
    return [one["conversation_id"] for one in found]


def _found(client: httpx2.Client) -> set[str]:
    found = client.get("/memory/search?q=zebra&limit=1000").json()["results"]
    return {one["conversation_id"] for one in found}


def test_a_chat_token_follows_the_events_of_its_own_turns(echo: Served) -> None:
    with (
        echo.client("chat") as ann,
        echo.client() as operator,
        ann.stream("GET", "/events") as stream,
    ):
        operator.post("/chat", json={"message": "x", "conversation_id": "unseen"})
        ann.post("/chat", json={"message": "x", "conversation_id": "seen"})
        told = events(stream.iter_lines())
        seen = [next(told)[1] for _ in range(3)]
    assert {one["conversation_id"] for one in seen} == {"seen"}


def test_whose_a_conversation_is_survives_a_kill_and_binds_what_the_model_recalls(
    tmp_path: Path,
) -> None:
    recall = calls(("memory_search", {"query": "zebra"}))
    home = home_at(tmp_path, says("a"), says("b"))
    with serving(home) as served, served.client("chat") as ann, served.client() as operator:
        token = ann.headers["authorization"]
        own = ann.post("/chat", json={"message": "my zebra"}).json()["conversation_id"]
        operator.post("/chat", json={"message": "zebra of the operator"})
        served.kill()
    home.answer(recall, says("{{tool_output}}"), recall, says("{{tool_output}}"))
    with serving(home) as served, served.client() as operator:
        with served.client(headers={"authorization": token}) as ann:
            assert _listed(ann) == [own]
            said = ann.post("/chat", json={"message": "go", "conversation_id": own}).json()["text"]
            assert "my zebra" in said
            assert "operator" not in said
        assert (
            "zebra of the operator" in operator.post("/chat", json={"message": "?"}).json()["text"]
        )


def test_an_mcp_client_recalls_its_own_conversations_only(echo: Served) -> None:
    async def recalled(token: str) -> str:
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
            transport = streamable_http_client(f"{echo.url}/mcp", http_client=http)
            async with Client(transport) as client:
                found = await client.call_tool("memory_search", {"query": "giraffe"})
                return str(found.content)

    with echo.client() as operator:
        operator.post("/chat", json={"message": "a giraffe of the operator"})
    token = echo.token_of("chat")
    assert "giraffe of" not in asyncio.run(recalled(token))
    assert "giraffe of" in asyncio.run(recalled(echo.token))


# Approvals.


def _answer(client: httpx2.Client, question: Any, decision: str, **more: str) -> httpx2.Response:
    return client.post("/approvals", json={"id": question["id"], "decision": decision, **more})


@pytest.mark.parametrize("asker", [None, "admin", "chat"])
def test_nobody_approves_what_it_asked_for_itself(tmp_path: Path, asker: Role | None) -> None:
    home = home_at(tmp_path, _WRITE, says("finished"))
    with (
        serving(home) as served,
        served.client(asker) as asking,
        served.client("chat") as stranger,
        served.client("approve") as approver,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(asking.post, "/chat", json={"message": "write"})
        question = _pending(approver)
        assert question["asker"] == f"client {asking.get('/whoami').json()['name']}"
        assert asking.get("/approvals").json()["approvals"] == [question]
        own = _answer(asking, question, "approve")
        assert _refused(own) == (403, "role.needed" if asker == "chat" else "approval.self")
        assert stranger.get("/approvals").json() == {"approvals": []}
        for decision in ("approve", "reject"):
            hidden = _answer(stranger, question, decision)
            assert _refused(hidden) == (404, "approval.unknown")
        assert not (home.workspace / "note.txt").exists()
        answered = _answer(approver, question, "approve")
        name = approver.get("/whoami").json()["name"]
        assert answered.json()["answered_by"] == f"client {name}"
        assert turn.result(PATIENCE_S).json()["text"] == "finished"
    assert (home.workspace / "note.txt").exists()
    (receipt,) = home.records()
    assert str(receipt["approval"]).startswith(f"client {name} yes ")


def test_the_operator_may_allow_it(tmp_path: Path) -> None:
    home = home_at(tmp_path, _WRITE, says("finished"), config="[gateway]\nself_approval = true\n")
    with (
        serving(home, {"self_approval": True}) as served,
        served.client() as client,
        served.client() as same,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(client.post, "/chat", json={"message": "write"})
        assert _answer(same, _pending(same), "approve").is_success
        assert turn.result(PATIENCE_S).json()["denials"] == 0


def test_an_asker_takes_its_request_back_and_answers_what_the_model_asks(tmp_path: Path) -> None:
    ask = calls(("ask_user", {"question": "Which colour?"}))
    home = home_at(tmp_path, _WRITE, ask, says("so {{tool_output}}"))
    with (
        serving(home) as served,
        served.client("chat") as asking,
        served.client("chat") as same,
        ThreadPoolExecutor(1) as pool,
    ):
        same.headers["authorization"] = asking.headers["authorization"]
        turn = pool.submit(asking.post, "/chat", json={"message": "write"})
        assert _answer(same, _pending(same), "reject").is_success
        question = _until(
            lambda: [
                one
                for one in same.get("/approvals").json()["approvals"]
                if one["kind"] == "question"
            ]
        )[0]
        assert _answer(same, question, "approve", answer="green").is_success
        assert turn.result(PATIENCE_S).json()["text"] == "so green"
    assert not (home.workspace / "note.txt").exists()


def test_an_mcp_client_does_not_approve_its_own_call(tmp_path: Path) -> None:
    with (
        serving(home_at(tmp_path)) as served,
        served.client() as asker,
        served.client("approve") as approver,
        ThreadPoolExecutor(1) as pool,
    ):
        call = pool.submit(
            lambda: asyncio.run(
                _mcp_call(served, "file_write", {"path": "from-mcp.txt", "content": "x"})
            )
        )
        question = _pending(approver)
        assert question["asker"] == "client operator"
        assert _refused(_answer(asker, question, "approve")) == (403, "approval.self")
        assert _answer(approver, question, "approve").is_success
        assert call.result(PATIENCE_S) is False
