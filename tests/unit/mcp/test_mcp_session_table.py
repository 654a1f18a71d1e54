"""Which session has to go when another one comes."""

from __future__ import annotations

from coilclaw.agent.mcp.http_server import SessionTable


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def opened(table: SessionTable, name: str, client: str = "") -> tuple[bool, list[str]]:
    room, gone = table.admit(client)
    if room:
        table.note_session(client, name)
    return room, gone


def test_the_one_that_was_idle_longest_goes_first_and_busy_ones_stay() -> None:
    table = SessionTable(most=2, now=Clock())
    assert opened(table, "a") == (True, [])
    assert opened(table, "b") == (True, [])
    table.begin("a")
    assert opened(table, "c") == (True, ["b"])
    table.begin("c")
    assert opened(table, "d") == (False, [])
    table.end("a")
    assert opened(table, "d") == (True, ["a"])
    table.end("c", closed=True)
    assert opened(table, "e") == (True, [])


def test_one_client_cannot_take_the_places_of_others() -> None:
    table = SessionTable(most=4, most_per_client=2, now=Clock())
    for name in ("a1", "a2"):
        assert opened(table, name, "ann") == (True, [])
        table.begin(name)
    assert opened(table, "a3", "ann") == (False, [])
    assert opened(table, "b1", "bob") == (True, [])
    table.end("a1")
    assert opened(table, "a3", "ann") == (True, ["a1"])
    assert len(table) == 3


def test_a_session_that_is_being_opened_has_its_place_already() -> None:
    table = SessionTable(most=1, now=Clock())
    assert table.admit("") == (True, [])
    assert table.admit("") == (False, [])
    table.note_session("", None)
    assert table.admit("") == (True, [])


def test_idle_ones_are_forgotten_in_time_and_busy_ones_are_not() -> None:
    clock = Clock()
    table = SessionTable(idle_s=10, now=clock)
    opened(table, "a")
    opened(table, "b")
    table.begin("b")
    clock.now += 20
    assert table.expire() == ["a"]
    assert len(table) == 1
