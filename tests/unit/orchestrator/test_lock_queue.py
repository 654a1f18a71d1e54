"""Who waits for a path gets it in the order of coming, and nobody waits for what stands still."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.runs.engine.locks import Held, Locks, Taken, Ticket
from coilclaw.workspace.process.owner import Owner

GONE = Owner(pid=2**22 - 1, started=1, boot=Owner.here().boot)
EPOCH = "1970-01-01T00:00:00Z"


def opened(
    directory: Path,
    *,
    alive: Callable[[str], bool] = lambda _: True,
    works: Callable[[str, Owner], bool] = lambda _, owner: owner.runs(),
    owner: Owner | None = None,
) -> Locks:
    return Locks(directory / "locks", alive=alive, works=works, owner=owner, clock=lambda: 0.0)


def ask(locks: Locks, run_id: str, *paths: str, queue: bool = True) -> Held | Taken:
    return locks.acquire(run_id, "task", paths, owned=True, queue=queue)


def held(locks: Locks, run_id: str, *paths: str) -> Held:
    answer = ask(locks, run_id, *paths)
    assert isinstance(answer, Held)
    return answer


def ahead(locks: Locks, run_id: str, *paths: str, queue: bool = True) -> list[tuple[str, bool]]:
    """For whom a run has to wait, and whether they only wait themselves."""
    answer = ask(locks, run_id, *paths, queue=queue)
    assert isinstance(answer, Taken)
    return [(one.lock.run_id, one.queued) for one in answer.conflicts]


def test_the_first_who_waits_is_the_first_who_gets_it(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    first = held(locks, "first", "src")
    assert ahead(locks, "second", "src/a", "docs") == [("first", False)]
    assert ahead(locks, "third", "docs") == [("second", True)]
    assert ahead(locks, "fourth", "src") == [("first", False), ("second", True)]
    assert locks.list_queue() == (
        Ticket(1, "second", "task", ("src/a", "docs"), Owner.here(), EPOCH),
        Ticket(2, "third", "task", ("docs",), Owner.here(), EPOCH),
        Ticket(3, "fourth", "task", ("src",), Owner.here(), EPOCH),
    )
    locks.release(first)
    for late in ("third", "fourth"):
        assert ("second", True) in ahead(locks, late, "docs" if late == "third" else "src")
    second = held(locks, "second", "src/a", "docs")
    locks.release(second)
    held(locks, "fourth", "src")
    held(locks, "third", "docs")
    assert locks.list_queue() == ()


def test_who_does_not_wait_leaves_no_place_and_takes_nobody_s(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    first = held(locks, "first", "src")
    assert ahead(locks, "second", "src") == [("first", False)]
    locks.release(first)
    assert ahead(locks, "hasty", "src/a", queue=False) == [("second", True)]
    answer = ask(locks, "hasty", "src/a", queue=False)
    assert isinstance(answer, Taken)
    (conflict,) = answer.conflicts
    assert (conflict.path, conflict.lock.path, conflict.lock.task_id) == ("src/a", "src", "task")
    assert (conflict.lock.run_id, conflict.queued) == ("second", True)
    assert [ticket.run_id for ticket in locks.list_queue()] == ["second"]
    assert isinstance(ask(locks, "hasty", "docs", queue=False), Held)


def test_what_does_not_overlap_passes_those_who_wait(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    held(locks, "first", "src")
    ahead(locks, "second", "src/a")
    held(locks, "third", "docs")


def test_a_place_is_kept_while_nobody_works_on_its_run_and_holds_nobody_up(tmp_path: Path) -> None:
    working = {"first", "third", "fourth"}
    locks = opened(tmp_path, works=lambda run_id, _: run_id in working)
    first = held(locks, "first", "src")
    opened(tmp_path, works=lambda *_: True, owner=GONE).acquire(
        "second", "task", ["src"], queue=True
    )
    assert ahead(locks, "third", "src") == [("first", False)]
    assert ahead(locks, "fourth", "src") == [("first", False), ("third", True)]
    working.add("second")
    assert ahead(locks, "second", "src") == [("first", False)]
    first_ticket = locks.list_queue()[0]
    assert (first_ticket.run_id, first_ticket.owner) == ("second", Owner.here())
    locks.release(first)
    assert ahead(locks, "third", "src") == [("second", True)]


def test_the_place_of_a_run_that_is_over_is_removed(tmp_path: Path) -> None:
    held(opened(tmp_path), "first", "src")
    ahead(opened(tmp_path, owner=GONE), "over", "src")
    locks = opened(tmp_path, alive=lambda run_id: run_id != "over")
    assert ahead(locks, "second", "src") == [("first", False)]
    assert [ticket.run_id for ticket in locks.list_queue()] == ["second"]


def test_a_place_is_given_up_once(tmp_path: Path) -> None:
    assert opened(tmp_path).leave("second") is False
    assert opened(tmp_path).list_queue() == ()
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    held(opened(tmp_path), "first", "src")
    ahead(opened(tmp_path), "second", "src")
    assert [opened(tmp_path).leave("second") for _ in range(2)] == [True, False]


def test_only_one_who_waits_takes_over_from_a_run_that_stands_still(tmp_path: Path) -> None:
    held(opened(tmp_path, owner=GONE), "killed", "src")
    locks = opened(tmp_path)
    answer = ask(locks, "second", "src", queue=False)
    assert isinstance(answer, Taken)
    assert [lock.run_id for lock in held(locks, "second", "src").reclaimed] == ["killed"]


def test_a_run_that_is_being_resumed_is_waited_for(tmp_path: Path) -> None:
    held(opened(tmp_path, owner=GONE), "resumed", "src")
    locks = opened(tmp_path, works=lambda run_id, _: run_id == "resumed")
    assert ahead(locks, "second", "src") == [("resumed", False)]


def test_a_resumed_run_that_has_its_paths_does_not_stand_in_the_queue(tmp_path: Path) -> None:
    held(opened(tmp_path, owner=GONE), "resumed", "src", "docs")
    ahead(opened(tmp_path, works=lambda *_: True), "second", "src")
    again = held(opened(tmp_path), "resumed", "src", "docs")
    assert {lock.path for lock in again.reclaimed} == {"src", "docs"}


def test_nobody_waits_while_holding_a_path(tmp_path: Path) -> None:
    """Else two resumed runs could wait for each other."""
    held(opened(tmp_path, owner=GONE), "resumed", "src", "docs")
    locks = opened(tmp_path)
    held(locks, "second", "docs")
    answer = ask(locks, "resumed", "src", "docs")
    assert isinstance(answer, Taken)
    assert [lock.path for lock in answer.reclaimed] == ["src"]
    assert [lock.run_id for lock in locks.list_locks()] == ["second"]


@pytest.mark.parametrize(
    "change",
    [
        {"form": 2},
        {"number": "1"},
        {"number": True},
        {"paths": []},
        {"paths": ["../x"]},
        {"paths": ["./src"]},
        {"paths": [1]},
        {"run_id": None},
        {"pid": "x"},
    ],
)
def test_a_place_that_cannot_be_read_stops_everybody(
    tmp_path: Path, change: dict[str, object]
) -> None:
    locks = opened(tmp_path)
    held(locks, "first", "src")
    ahead(locks, "second", "src")
    (place,) = (tmp_path / "locks").glob("*.wait")
    assert os.stat(place).st_mode & 0o077 == 0
    place.write_text(json.dumps({**json.loads(place.read_bytes()), **change}))
    with pytest.raises(EnvironmentFault) as caught:
        ask(locks, "third", "docs")
    assert caught.value.rule == "lock.damaged"
    assert str(place) in caught.value.message
