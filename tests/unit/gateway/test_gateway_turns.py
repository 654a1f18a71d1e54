"""Turns on threads: their order, their bounds, and what becomes of a turn that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from coilclaw.agent.handle import TurnOutcome
from coilclaw.gateway.agent import FinishedTurn, TurnTerms
from coilclaw.gateway.clients import Client
from coilclaw.gateway.metrics import Metrics
from coilclaw.gateway.served_agent import ServedAgent
from coilclaw.gateway.turns import TurnJob, Turns
from coilclaw.kernel.errors import CoilClawError, ProviderTimeout, UsageError
from tests.support.children import PATIENCE_S

TERMS = TurnTerms(Client("operator", "admin"))


class _Memory:
    def conversation(self, name: str, **_: object) -> tuple[object, ...]:
        return ("known",) if name.startswith("old") else ()

    def owner(self, name: str) -> str | None:
        return "client ann" if name.startswith("old") else None


class _Fake:
    """Answers when it is let, and remembers who was at work together."""

    def __init__(self) -> None:
        self.memory = _Memory()
        self.go = threading.Event()
        self.began: list[tuple[str, str]] = []
        self.together: set[str] = set()
        self.most = 0
        self.crossed = False
        self._mutex = threading.Lock()

    def turn(self, message: str, conversation_id: str, **_: object) -> FinishedTurn:
        with self._mutex:
            self.began.append((conversation_id, message))
            self.crossed |= conversation_id in self.together
            self.together.add(conversation_id)
            self.most = max(self.most, len(self.together))
        assert self.go.wait(PATIENCE_S)
        with self._mutex:
            self.together.discard(conversation_id)
        if message == "fails":
            raise ProviderTimeout("too late", provider="p")
        if message == "surprises":
            raise ZeroDivisionError
        if message == "interrupted":
            raise KeyboardInterrupt
        return FinishedTurn(TurnOutcome(conversation_id, "t", message, 0, 0, 0, "p", "m"))


class _Results:
    """Collects what jobs come to."""

    def __init__(self) -> None:
        self.all: list[FinishedTurn | CoilClawError] = []
        self._arrived = threading.Semaphore(0)

    def add(self, result: FinishedTurn | CoilClawError) -> None:
        self.all.append(result)
        self._arrived.release()

    def wait(self, number: int) -> list[Any]:
        for _ in range(number):
            assert self._arrived.acquire(timeout=PATIENCE_S)
        return [one.outcome.text if isinstance(one, FinishedTurn) else one.rule for one in self.all]


def _turns(fake: _Fake, *, most: int = 8, waiting: int = 100) -> tuple[Turns, Metrics]:
    metrics = Metrics()
    return Turns(cast("ServedAgent", fake), metrics, max_turns=most, max_waiting=waiting), metrics


def _job(name: str, message: str, done: Callable[[FinishedTurn | CoilClawError], None]) -> TurnJob:
    return TurnJob(name, message, False, None, done, TERMS)


def test_a_conversation_has_one_turn_at_a_time_in_order_and_others_go_on_beside() -> None:
    fake, results = _Fake(), _Results()
    turns, metrics = _turns(fake)
    fake.go.set()
    for number in range(20):
        for name in ("a", "b", "c"):
            turns.submit(_job(name, f"{number}", results.add))
    results.wait(60)
    assert not fake.crossed
    for name in ("a", "b", "c"):
        assert [text for who, text in fake.began if who == name] == [str(n) for n in range(20)]
    assert turns.wait_drained(PATIENCE_S)
    assert (turns.running, turns.waiting, turns.busy("a")) == (0, 0, False)
    assert "coilclaw_turns_total 60" in metrics.text({})


def test_so_many_turns_run_at_once_and_so_many_messages_wait() -> None:
    fake, results = _Fake(), _Results()
    turns, _ = _turns(fake, most=2, waiting=3)
    for name in ("a", "b"):
        turns.submit(_job(name, name, results.add))
    while len(fake.began) < 2:
        threading.Event().wait(0.001)
    for name in ("c", "d", "a"):
        turns.submit(_job(name, name, results.add))
    with pytest.raises(UsageError) as refused:
        turns.submit(_job("e", "e", results.add))
    assert refused.value.rule == "turns.waiting"
    assert (turns.running, turns.waiting) == (2, 3)
    fake.go.set()
    assert sorted(results.wait(5)) == ["a", "a", "b", "c", "d"]
    assert fake.most == 2


def test_a_turn_that_fails_is_told_and_the_next_one_runs() -> None:
    fake, results = _Fake(), _Results()
    turns, _ = _turns(fake)
    fake.go.set()
    for message in ("fails", "surprises", "interrupted", "works"):
        turns.submit(_job("a", message, results.add))
    assert results.wait(4) == ["provider.timeout", "internal", "stopped", "works"]


def test_a_closed_desk_takes_nothing_and_what_waits_is_told() -> None:
    fake, results = _Fake(), _Results()
    turns, _ = _turns(fake)
    turns.submit(_job("a", "runs", results.add))
    turns.submit(_job("a", "waits", results.add))
    while not fake.began:
        threading.Event().wait(0.001)
    turns.close()
    with pytest.raises(UsageError) as refused:
        turns.submit(_job("b", "late", results.add))
    assert refused.value.rule == "gateway.stopping"
    assert not turns.wait_drained(0.05)
    fake.go.set()
    assert results.wait(2) == ["runs", "gateway.stopping"]
    assert turns.wait_drained(PATIENCE_S)
    assert [text for _, text in fake.began] == ["runs"]


def test_a_conversation_counts_when_it_begins() -> None:
    fake, results = _Fake(), _Results()
    turns, metrics = _turns(fake)
    fake.go.set()
    for name, new in (("fresh", True), ("named", False), ("old", False)):
        turns.submit(TurnJob(name, "x", new, None, results.add, TERMS))
    results.wait(3)
    assert "coilclaw_conversations_total 2\n" in metrics.text({})


def test_the_clients_of_turns_that_hang_are_told_and_what_waits_behind_them() -> None:
    fake, results = _Fake(), _Results()
    turns, _ = _turns(fake, most=2)
    for name in ("a", "b", "c", "a"):
        turns.submit(_job(name, name, results.add))
    while len(fake.began) < 2:
        threading.Event().wait(0.001)
    turns.close()
    turns.abandon({"a", "unheard-of"})
    assert results.wait(3) == ["gateway.stopping"] * 3
    assert (turns.running, turns.waiting, turns.wait_drained(0)) == (1, 0, False)
    turns.abandon()
    assert results.wait(1) == ["gateway.stopping"] * 4
    assert turns.wait_drained(0)
    fake.go.set()
    # The threads end later, and count nothing twice.
    results.wait(2)
    assert (turns.running, turns.waiting) == (0, 0)
    assert [text for _, text in fake.began] == ["a", "b"]


def test_a_conversation_of_another_client_is_refused_where_it_would_run() -> None:
    fake, results = _Fake(), _Results()
    turns, _ = _turns(fake)
    fake.go.set()
    for client in (Client("bob", "chat"), Client("ann", "chat"), Client("root", "admin")):
        turns.submit(TurnJob("old", client.name, False, None, results.add, TurnTerms(client)))
    turns.submit(
        TurnJob("fresh", "new", False, None, results.add, TurnTerms(Client("bob", "chat")))
    )
    assert sorted(results.wait(4)) == ["ann", "conversation.owner", "new", "root"]
