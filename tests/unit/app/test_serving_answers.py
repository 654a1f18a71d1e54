"""Who answers where nobody sits at a terminal: behind the gateway, and over MCP."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from coilclaw.agent.approvals import ApprovalStore, ApprovalSuspended
from coilclaw.agent.estop import Estop
from coilclaw.agent.guarded_calls import RemotePeople
from coilclaw.app.agent_runtime import People, open_runtime
from coilclaw.app.gateway_server import open_gateway
from coilclaw.gateway.agent import TurnTerms
from coilclaw.gateway.clients import Client
from coilclaw.gateway.settings import GatewaySettings
from coilclaw.kernel.messages import ToolCall, ToolResult
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.agents import AgentHome, calls, says
from tests.support.children import PATIENCE_S

TERMS = TurnTerms(Client("operator", "admin"))
WRITE = {"path": "note.txt", "content": "hello\n"}
CASES = [
    ("yes", "person ann yes", ""),
    ("no", "client gateway no", "denied by approval.denied: the request was not approved"),
    ("estop", "estop no", "denied by estop: the emergency stop is set"),
    ("halt", "shutdown no", "denied by approval.shutdown: the gateway is being stopped"),
    ("late", "timeout no", "denied by approval.timeout: no answer within 0.3 s"),
]


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread, and wait for it."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def desk_of(home: AgentHome) -> ApprovalStore:
    return ApprovalStore(home.home, lambda: datetime.now().astimezone())


def answer(home: AgentHome, happens: str, halt: Callable[[], None]) -> None:
    """Let something happen once a question waits."""
    desk = desk_of(home)
    if happens == "late":
        return  # it may be over before anybody looks
    deadline = time.monotonic() + PATIENCE_S
    while not desk.list() and time.monotonic() < deadline:
        time.sleep(0.02)
    match happens:
        case "yes":
            desk.answer(desk.list()[0].id, approved=True, by="person ann")
        case "no":
            desk.answer(desk.list()[0].id, approved=False, by="client gateway")
        case "estop":
            Estop.of(home.home).trigger("test")
        case _:
            halt()


@pytest.mark.parametrize(("happens", "by", "error"), [one for one in CASES if one[0] != "halt"])
def test_a_turn_behind_the_gateway_records_who_answered(
    tmp_path: Path, happens: str, by: str, error: str
) -> None:
    home = AgentHome.make(tmp_path, answers=[calls(("file_write", WRITE)), says("finished")])
    expiry_s = 0.3 if happens == "late" else PATIENCE_S
    settings = GatewaySettings(approval_expiry_s=expiry_s)
    with open_gateway(home.home, os.environ, settings) as gateway:
        agent = gateway.agent
        with beside(lambda: answer(home, happens, lambda: None)):
            agent.turn("write", "c", terms=TERMS, new=True)
        said = [one for record in agent.memory.conversation("c") for one in record.tool_results]
    (receipt,) = home.records()
    assert receipt["approval"] == f"{by} path.workspace.write"
    assert (home.workspace / "note.txt").exists() is (happens == "yes")
    assert [one.error or "" for one in said] == [error]


def test_a_gateway_that_stops_decides_nothing_and_the_approval_stays(tmp_path: Path) -> None:
    home = AgentHome.make(tmp_path, answers=[calls(("file_write", WRITE)), says("finished")])
    with open_gateway(home.home, os.environ, GatewaySettings()) as gateway:
        agent = gateway.agent

        def halt() -> None:
            agent.halt("the gateway is being stopped")

        with (
            beside(lambda: answer(home, "halt", halt)),
            pytest.raises(ApprovalSuspended),
        ):
            agent.turn("write", "c", terms=TERMS, new=True)
    assert home.records() == []
    assert [one.state for one in desk_of(home).list()] == ["pending"]


@pytest.mark.parametrize(
    ("happens", "by", "error"),
    [
        *CASES,
        ("gone", "nobody no", "denied by approval.unattended: no answer: the client left"),
    ],
)
def test_a_call_over_mcp_records_who_answered(
    tmp_path: Path, happens: str, by: str, error: str
) -> None:
    home = AgentHome.make(tmp_path)
    timeout_s = 0.3 if happens == "late" else PATIENCE_S
    people = RemotePeople(desk_of(home), Estop.of(home.home), timeout_s)
    cancel = Cancellation()

    def halt() -> None:
        if happens == "halt":
            people.halt("the gateway is being stopped")
        cancel.cancel("the client left")

    results: list[ToolResult] = []
    with open_runtime(home.home, os.environ, People(people.approve, people.ask)) as runtime:
        call = runtime.calls.with_people(people)
        with beside(lambda: answer(home, happens, halt)):
            results.append(call(ToolCall("1", "file_write", WRITE), "mcp-1", cancel))
    (receipt,) = home.records()
    assert receipt["approval"] == f"{by} path.workspace.write"
    assert (results[0].error or "") == error
