"""The stream of a run's events: nothing twice, nothing left out, and an end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from coilclaw.gateway.runs import run_endpoints
from coilclaw.gateway.runs.run_endpoints import RunStream
from coilclaw.gateway.runs.served_runs import ServedRuns
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json
from tests.support.children import PATIENCE_S


@dataclass
class Kept:
    """A run whose events come as told."""

    events: list[Json] = field(default_factory=list)
    going: bool = True
    asked: int = 0
    problem: UsageError | None = None

    def add(self, *kinds: str) -> None:
        for kind in kinds:
            self.events.append({"event_type": kind, "n": len(self.events)})

    def size(self, run_id: str) -> int:
        assert run_id == "run-1"
        return len(self.events)

    def page(self, run_id: str, since: int, limit: int) -> list[Json]:
        assert run_id == "run-1"
        if self.problem is not None:
            raise self.problem
        return self.events[since : since + limit]

    def goes_on(self, run_id: str) -> bool:
        assert run_id == "run-1"
        self.asked += 1
        return self.going


@dataclass
class Client:
    """Takes what is sent, and may go away."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    when: Callable[[int], None] | None = None

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self.when is not None:
            self.when(len(self.told))

    @property
    def text(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    @property
    def told(self) -> list[tuple[int, str]]:
        """The number and the name of every event."""
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.partition(": ")[::2] for line in block.splitlines())
            if "id" in lines:
                assert json.loads(lines["data"])["n"] == int(lines["id"]) - 1
                found.append((int(lines["id"]), lines["event"]))
        return found


def _stream(kept: Kept, since: int, closing: asyncio.Event) -> RunStream:
    return RunStream(cast("ServedRuns", kept), "run-1", since, closing=closing)


def _run(kept: Kept, client: Client, since: int = 0, closing: asyncio.Event | None = None) -> None:
    async def follow() -> None:
        stream = _stream(kept, since, closing or asyncio.Event())
        await asyncio.wait_for(stream({}, client.receive, client.send), PATIENCE_S)

    asyncio.run(follow())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_endpoints, "LOOK_EVERY_S", 0.001)


@pytest.mark.parametrize("since", [0, 1, 199, 200, 201, 449, 450])
def test_all_events_behind_a_number_are_told_once(since: int) -> None:
    kept = Kept(going=False)
    kept.add(*(f"E{n}" for n in range(450)))
    client = Client()
    _run(kept, client, since)
    assert client.told == [(n + 1, f"E{n}") for n in range(since, 450)]
    assert client.sent[0]["status"] == 200
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_events_that_come_are_told_until_the_run_ends() -> None:
    kept, client = Kept(), Client()
    kept.add("RUN_CREATED")

    def when(told: int) -> None:
        if told == 1:
            kept.add("STATE_TRANSITION")
        elif told == 2:
            kept.add("RUN_SEALED")
        elif told == 3:
            kept.going = False

    client.when = when
    _run(kept, client)
    assert client.told == [(1, "RUN_CREATED"), (2, "STATE_TRANSITION"), (3, "RUN_SEALED")]


def test_what_is_written_between_the_last_look_and_the_end_is_told() -> None:
    @dataclass
    class Late(Kept):
        def goes_on(self, run_id: str) -> bool:
            # The run writes its last event and ends, after the stream looked for events.
            if len(self.events) == self.size(run_id) == 1:
                self.add("RUN_SEALED")
            return False

    kept, client = Late(), Client()
    kept.add("RUN_CREATED")
    _run(kept, client)
    assert client.told == [(1, "RUN_CREATED"), (2, "RUN_SEALED")]


def test_a_number_behind_the_end_tells_nothing_and_ends() -> None:
    kept, client = Kept(going=False), Client()
    kept.add("RUN_CREATED")
    _run(kept, client, 99)
    assert client.text == ""


def test_a_client_that_goes_away_ends_the_stream_of_a_run_that_goes_on() -> None:
    kept, client = Kept(), Client()
    kept.add("RUN_CREATED")
    client.when = lambda told: client.gone.set() if told else None
    _run(kept, client)
    assert client.told == [(1, "RUN_CREATED")]


def test_the_end_of_the_gateway_ends_the_stream() -> None:
    kept, client, closing = Kept(), Client(), asyncio.Event()
    kept.add("RUN_CREATED")
    client.when = lambda told: closing.set() if told else None
    _run(kept, client, 0, closing)
    assert client.sent[-1]["more_body"] is False


def test_a_log_that_cannot_be_read_is_told_in_the_stream() -> None:
    kept, client = Kept(problem=UsageError("it is gone", rule="run.unknown")), Client()
    _run(kept, client)
    assert client.text.startswith("event: error\ndata: ")
    assert '"rule":"run.unknown"' in client.text
    assert client.sent[-1]["more_body"] is False


def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_endpoints, "HEARTBEAT_S", 0.01)
    kept, client = Kept(), Client()
    kept.add("RUN_CREATED")

    client.when = lambda _: client.gone.set() if client.text.endswith("\n\n:\n\n") else None
    _run(kept, client)
    assert (client.told, client.text[-5:]) == ([(1, "RUN_CREATED")], "\n\n:\n\n")


@pytest.mark.parametrize("last", ["RUN_CREATED", "RUN_SEALED"])
def test_whether_a_run_goes_on_is_not_asked_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    monkeypatch.setattr(run_endpoints, "LOOK_EVERY_S", 0.02)
    kept, client = Kept(), Client()
    kept.add(last)

    async def follow() -> None:
        stream = asyncio.ensure_future(
            _stream(kept, 0, asyncio.Event())({}, client.receive, client.send)
        )
        while kept.asked < 3:
            await asyncio.sleep(0.001)
        client.gone.set()
        await asyncio.wait_for(stream, PATIENCE_S)

    began = time.monotonic()
    asyncio.run(follow())
    looks = (time.monotonic() - began) / 0.02 + 1
    assert kept.asked <= (looks if last == "RUN_SEALED" else looks / 5)
