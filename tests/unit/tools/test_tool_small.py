from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from coilclaw.agent.settings import SearchSettings
from coilclaw.agent.tools.builtin import builtin_tools
from coilclaw.agent.tools.consultation import AskUser, MemorySearch, Time
from coilclaw.agent.tools.contract import ReadyCall, ToolLimits
from coilclaw.kernel.effects import Consults, Fetches, Reads, Risk, Runs, Writes
from coilclaw.kernel.errors import DeniedError, EnvironmentFault, UsageError
from coilclaw.kernel.messages import Recollection, ToolResult
from tests.support.toolworld import HARMLESS, World, judging, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def test_time_tells_local_utc_and_zone(here: World) -> None:
    zone = timezone(timedelta(hours=5, minutes=30), "IST")
    told = here.using(now=lambda: datetime(2026, 5, 12, 19, 30, tzinfo=zone)).call(Time())
    times = {
        "local": "2026-05-12T19:30:00+05:30",
        "utc": "2026-05-12T14:00:00Z",
        "zone": "IST (UTC+05:30)",
    }
    output = "\n".join(f"{name}: {value}" for name, value in times.items())
    assert told == ToolResult(True, output, None, times)


def test_memory_search_tells_what_was_found(here: World) -> None:
    asked = []

    def recall(query: str, limit: int) -> tuple[Recollection, ...]:
        asked.append((query, limit))
        return (
            Recollection("c-9", "t-1", "2026-01-01T00:00:00.000000Z", "user", "an aardvark", 1),
        )

    told = here.using(recall=recall).call(MemorySearch(), query="aardvark", limit=3)
    line = "[2026-01-01T00:00:00.000000Z] user, conversation c-9: an aardvark"
    assert told == ToolResult(True, line, None, {"hits": 1})
    assert asked == [("aardvark", 3)]


def test_memory_search_finds_nothing_and_is_bounded(here: World) -> None:
    assert here.call(MemorySearch(), query="x").output == "nothing was found"
    many = tuple(Recollection(f"c{n}", "t", "now", "user", "é" * 100, 1.0) for n in range(60))
    small = here.using(recall=lambda *_: many, limits=ToolLimits(output_bytes=500))
    told = small.call(MemorySearch(), query="x", limit=50)
    assert len(told.output.encode()) <= 500
    assert "bytes are cut here" in told.output
    assert told.metadata == {"hits": 50}


def test_ask_user_where_nobody_can_be_asked_fails(here: World) -> None:
    told = here.call(AskUser(), question="which?")
    assert told == ToolResult(False, "", "no user can be asked", {"rule": "ask.nobody"})


def test_ask_user_returns_the_answer_also_an_empty_one(here: World) -> None:
    asked = here.using(ask=lambda question: f"{question} that one")
    assert asked.call(AskUser(), question="which?") == ToolResult(True, "which? that one")
    assert here.using(ask=lambda _: "").call(AskUser(), question="which?") == ToolResult(True, "")


def test_every_tool_declares_what_it_touches() -> None:
    calls = {
        "time": ({}, (Consults("clock"),)),
        "file_list": ({}, (Reads("."),)),
        "file_read": ({"path": "a/../b"}, (Reads("a/../b"),)),
        "file_write": ({"path": "~/x", "content": ""}, (Writes("~/x"),)),
        "apply_changes": (
            {"changes": '{"files": [{"path": "a", "content": ""}, {"path": "b", "content": ""}]}'},
            (Writes("a"), Writes("b")),
        ),
        "shell": ({"argv": ["ls", "-l"]}, (Runs(argv=("ls", "-l")),)),
        "http": ({"url": "https://a.b/"}, (Fetches("https://a.b/"),)),
        "memory_search": ({"query": "x"}, (Consults("memory"),)),
        "ask_user": ({"question": "x"}, (Consults("user"),)),
        "pdf_extract": ({"path": "a.pdf"}, (Reads("a.pdf"),)),
        "web_search": ({"query": "x"}, (Fetches("https://s.example/q"),)),
    }
    search = SearchSettings("searxng", base_url="https://s.example/q")
    declared = {tool.name: tool.effects(calls[tool.name][0]) for tool in builtin_tools(search)}  # type: ignore[arg-type] # the literals above are JSON
    assert declared == {name: effects for name, (_, effects) in calls.items()}


def test_a_move_declares_both_ends() -> None:
    patch = "*** Begin Patch\n*** Update File: old\n*** Move to: new\n*** End Patch\n"
    (tool,) = [tool for tool in builtin_tools() if tool.name == "apply_changes"]
    assert tool.effects({"changes": patch}) == (Writes("old"), Writes("new"))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("file_read", {}),
        ("file_read", {"path": 1}),
        ("file_write", {"content": "x"}),
        ("apply_changes", {"changes": "I looked at it."}),
        ("apply_changes", {"changes": "I'm sorry, but I can't help with that."}),
        ("shell", {}),
        ("shell", {"command": "ls", "argv": ["ls"]}),
        ("shell", {"argv": []}),
        ("shell", {"argv": [""]}),
        ("shell", {"argv": ["ls", 1]}),
        ("shell", {"argv": ["ls", "a\0b"]}),
        ("shell", {"command": "ls \ud800"}),
        ("http", {}),
        ("memory_search", {}),
        ("ask_user", {}),
    ],
)
def test_arguments_that_make_no_sense_have_no_effects(name: str, args: dict[str, object]) -> None:
    (tool,) = [tool for tool in builtin_tools() if tool.name == name]
    with pytest.raises(UsageError):
        tool.effects(args)  # type: ignore[arg-type] # wrong on purpose


def test_the_risk_is_what_policy_says(here: World) -> None:
    (tool,) = [tool for tool in builtin_tools() if tool.name == "time"]
    assert tool.risk({}, here.context) is Risk.LOW
    graded = here.using(judge=judging(HARMLESS, Risk.HIGH))
    assert tool.risk({}, graded.context) is Risk.HIGH


def test_what_the_system_says_is_a_failure_and_a_denial_is_none() -> None:
    def gone() -> ToolResult:
        raise FileNotFoundError(2, "No such file or directory", "x\n")

    assert ReadyCall((), gone).perform() == ToolResult(
        False,
        "",
        "the operating system reports an error for 'x\\u000a': No such file or directory",
        {"rule": "tool.system"},
    )

    def no() -> ToolResult:
        raise DeniedError("no", rule="some.rule")

    with pytest.raises(DeniedError):
        ReadyCall((), no).perform()

    def trouble() -> ToolResult:
        raise EnvironmentFault("it broke", rule="some.fault", hint="mend it")

    assert ReadyCall((), trouble).perform() == ToolResult(
        False, "", "it broke (mend it)", {"rule": "some.fault"}
    )
