"""Many threads keep turns together: nothing is lost, and nobody suffers for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coilclaw.agent.memory.store import Memory
from coilclaw.gateway.gathered_memory import GatheredMemory
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json, ToolCall, TurnRecord


def _record(name: str, text: str, arguments: dict[str, Json] | None = None) -> TurnRecord:
    calls = () if arguments is None else (ToolCall("1", "time", arguments),)
    return TurnRecord(name, f"turn-{text}", "2026-01-01T00:00:00.000000Z", "user", text, calls)


def _too_deep() -> dict[str, Json]:
    value: Json = {}
    for _ in range(100_000):
        value = [value]
    return {"deep": value}


def test_what_many_threads_keep_at_once_is_all_there_in_order(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.sqlite") as reader, GatheredMemory(reader) as memory:

        def work(worker: int) -> None:
            for number in range(20):
                memory.append((_record(f"c{worker}", f"{number}"),))
                # What was kept is there for everybody as soon as it is said to be.
                assert len(reader.conversation(f"c{worker}")) == number + 1

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(work, range(12)))
        for worker in range(12):
            texts = [one.content for one in memory.conversation(f"c{worker}")]
            assert texts == [str(number) for number in range(20)]


def test_a_record_that_cannot_be_kept_harms_no_other(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.sqlite") as reader, GatheredMemory(reader) as memory:
        memory.create()
        barrier = threading.Barrier(8)

        def work(worker: int) -> str:
            barrier.wait()
            deep = _too_deep() if worker == 3 else None
            try:
                memory.append((_record(f"c{worker}", "x", deep),))
            except UsageError as problem:
                return problem.rule
            return "kept"

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(work, range(8)))
        assert results == ["kept"] * 3 + ["memory.depth"] + ["kept"] * 4
        kept = [bool(memory.conversation(f"c{worker}")) for worker in range(8)]
        assert kept == [True] * 3 + [False] + [True] * 4


def test_a_new_conversation_is_not_looked_up_once(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.sqlite") as reader, GatheredMemory(reader) as memory:
        memory.append((_record("c", "x"),))
        memory.begin("c")
        assert memory.conversation("c") == ()
        assert [one.content for one in memory.conversation("c")] == ["x"]


@pytest.mark.parametrize("number", [0, 1])
def test_one_thread_alone_waits_for_nobody(tmp_path: Path, number: int) -> None:
    with Memory(tmp_path / "m.sqlite") as reader, GatheredMemory(reader) as memory:
        memory.append([_record("c", str(index)) for index in range(number)])
        assert len(memory.conversation("c")) == number
