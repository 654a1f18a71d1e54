"""Approvals that outlive the gateway: killed or stopped while one is pending, and started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coilclaw.agent.approvals import ApprovalStore
from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.agent.receipts.verification import verify
from coilclaw.workspace.process.owner import is_alive
from tests.support.agents import AgentHome, calls, says
from tests.support.children import PATIENCE_S
from tests.support.gateways import Served, home_at, serving

WRITE = calls(("file_write", {"path": "note.txt", "content": "hello\n"}))


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something another process does, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def ask(served: Served) -> threading.Thread:
    """Send a message whose turn will wait; the client does not mind how it ends."""

    def send() -> None:
        with suppress(httpx2.HTTPError), served.client() as client:
            client.post("/chat", json={"message": "write", "conversation_id": "w"})

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def pending(client: httpx2.Client) -> dict[str, Any]:
    found = until(lambda: client.get("/approvals").json()["approvals"])
    assert len(found) == 1
    return dict(found[0])


def left_pending(tmp_path: Path, settings: dict[str, Any], *, kill: bool) -> tuple[AgentHome, str]:
    """Return a home whose gateway ended while an approval was pending, and the approval's id."""
    home = home_at(tmp_path, WRITE, says("never"))
    with serving(home, settings) as served:
        thread = ask(served)
        with served.client() as client:
            name = str(pending(client)["id"])
        if kill:
            served.process.kill()
        else:
            served.process.terminate()
        served.process.wait(PATIENCE_S)
        thread.join()
    assert home.records() == [], "nothing was decided"
    home.answer(says("finished"))
    return home, name


def ended(client: httpx2.Client) -> list[dict[str, Any]]:
    """Return the records of the conversation once its turn has ended."""

    def look() -> Any:
        found = client.get("/conversations/w").json()
        return not found["running"] and found["records"][-1]["role"] == "assistant" and found

    return list(until(look)["records"])


def check(home: AgentHome, records: list[dict[str, Any]], status: str, approval: str) -> None:
    assert [one["role"] for one in records] == ["user", "assistant", "tool", "assistant"]
    assert records[-1]["content"] == "finished"
    assert {one["turn_id"] for one in records} == {records[0]["turn_id"]}
    (receipt,) = home.records()
    assert (receipt["status"], receipt["approval"]) == (status, approval)
    assert (home.workspace / "note.txt").exists() is (status == "allowed")
    book = ReceiptBook(home.receipts, key_path=home.home / "keys" / "journal.key")
    assert verify(book, is_alive).settled


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_approval_is_answered_after_a_restart(tmp_path: Path, decision: str, kill: bool) -> None:
    home, name = left_pending(tmp_path, {"grace_s": 0.1}, kill=kill)
    with (
        serving(home) as served,
        served.client() as client,
        served.client("approve") as approver,
    ):
        assert pending(client)["id"] == name
        own = client.post("/approvals", json={"id": name, "decision": "approve"})
        assert own.json()["error"]["rule"] == "approval.self", "it is still the one who asked"
        answer = approver.post("/approvals", json={"id": name, "decision": decision})
        assert answer.status_code == 200, answer.text
        records = ended(client)
        assert client.get("/approvals").json() == {"approvals": []}
    status, word = ("allowed", "yes") if decision == "approve" else ("denied", "no")
    check(home, records, status, f"client approve-0 {word} path.workspace.write")


def test_an_approval_that_ran_out_meanwhile_denies_the_call(tmp_path: Path) -> None:
    home, name = left_pending(tmp_path, {"approval_expiry_s": 3}, kill=True)
    desk = ApprovalStore(home.home, lambda: datetime.now(UTC))
    until(lambda: desk.find(name).state == "expired")
    with serving(home) as served, served.client() as client:
        records = ended(client)
        with served.client("approve") as approver:
            late = approver.post("/approvals", json={"id": name, "decision": "approve"})
        assert (late.status_code, late.json()["error"]["rule"]) == (409, "approval.closed")
    check(home, records, "denied", "timeout no path.workspace.write")


def test_whoever_said_the_message_is_still_the_one_who_asks(tmp_path: Path) -> None:
    home = home_at(tmp_path, says("hello"), WRITE)
    with serving(home) as served:
        with served.client("chat") as client:
            client.post("/chat", json={"message": "hi", "conversation_id": "w"})
        thread = ask(served)
        with served.client() as client:
            name = str(pending(client)["id"])
        served.kill()
        thread.join()
    home.answer(calls(("file_write", {"path": "other.txt", "content": "x"})), says("finished"))
    with (
        serving(home) as served,
        served.client() as client,
        served.client("approve") as approver,
    ):
        approver.post("/approvals", json={"id": name, "decision": "approve"})
        until((home.workspace / "note.txt").exists)
        # The conversation is of another client, and the turn is not.
        following = pending(client)
        assert (following["asker"], following["id"] != name) == ("client operator", True)
        own = client.post("/approvals", json={"id": following["id"], "decision": "approve"})
        assert own.json()["error"]["rule"] == "approval.self"
        approver.post("/approvals", json={"id": following["id"], "decision": "approve"})
        assert ended(client)[-1]["content"] == "finished"


def test_a_message_waits_until_the_turn_before_it_is_finished(tmp_path: Path) -> None:
    home, name = left_pending(tmp_path, {}, kill=True)
    home.answer(says("finished"), says("hello"))
    told: list[str] = []

    with serving(home) as served, served.client() as client:

        def send() -> None:
            with served.client() as other:
                body = {"message": "and now?", "conversation_id": "w"}
                told.append(other.post("/chat", json=body).json()["text"])

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: client.get("/status").json()["turns_waiting"] == 1)
        with served.client("approve") as approver:
            approver.post("/approvals", json={"id": name, "decision": "approve"})
        thread.join()
        records = client.get("/conversations/w").json()["records"]
    assert told == ["hello"]
    assert [one["content"] for one in records if one["role"] != "tool"] == [
        "write",
        "",
        "finished",
        "and now?",
        "hello",
    ]
