"""What ``coilclaw memory`` prints."""

from __future__ import annotations

import argparse
import io
import json
import stat
from pathlib import Path

import pytest

from coilclaw.agent.memory.store import Memory
from coilclaw.cli.console import Console
from coilclaw.cli.parser import Parser
from coilclaw.cli.runtime import memory as command
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from tests.unit.memory.turns import exchange, said, time


def console(*, as_json: bool = False) -> Console:
    return Console.of(io.StringIO(), io.StringIO(), {}, as_json=as_json)


def out(printed: Console) -> str:
    assert isinstance(printed.out, io.StringIO)
    return printed.out.getvalue()


def err(printed: Console) -> str:
    assert isinstance(printed.err, io.StringIO)
    return printed.err.getvalue()


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    command.declare(parser)
    return parser.parse_args(arguments)


@pytest.fixture
def kept(memory: Memory) -> Memory:
    memory.append(exchange("c-1"))
    memory.append([said("An Aardvark adapter", "c-20", "t-1", time(50))])
    memory.append([said("Something\x1b[2J else", "c-21", "t-1", time(60))])
    memory.close()
    return memory


def test_clearing_without_yes_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        command.run(parsed("clear"), console())
    assert caught.value.rule == "memory.unconfirmed"


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
def test_a_limit_that_is_no_number_above_0_is_refused(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("list", f"--limit={number}")
    assert "is not a whole number above 0" in capsys.readouterr().err
    assert parsed("list", "--limit=1").limit == 1


@pytest.mark.parametrize(
    ("name", "rule"),
    [("c-3", "memory.unknown"), ("", "memory.unknown"), ("c-2", "memory.ambiguous")],
)
def test_a_conversation_that_is_not_named_is_refused(kept: Memory, name: str, rule: str) -> None:
    printed = console()
    with kept, pytest.raises(UsageError) as caught:
        command.show_conversation(kept, printed, name)
    assert (caught.value.rule, caught.value.hint is not None, out(printed)) == (rule, True, "")


def test_a_unique_beginning_names_a_conversation(kept: Memory) -> None:
    with kept:
        kept.append([said("longer", "c-20-more", "t-1", time(70))])
        for name, text in (("c-1", "Read the file"), ("c-20", "Aardvark"), ("c-20-", "longer")):
            printed = console()
            command.show_conversation(kept, printed, name)
            assert text in out(printed)


def test_the_list(kept: Memory) -> None:
    printed = console()
    with kept:
        command.show_list(kept, printed, 2)
    assert out(printed) == (
        "c-21  2026-01-01T00:01:00  1 turn     Something\x1b[2J else\n"
        "c-20  2026-01-01T00:00:50  1 turn     An Aardvark adapter\n"
    )


def test_the_list_as_json(kept: Memory) -> None:
    printed = console(as_json=True)
    with kept:
        command.show_list(kept, printed, None)
    listed = json.loads(out(printed))
    assert [entry["conversation_id"] for entry in listed] == ["c-21", "c-20", "c-1"]
    assert listed[2] == {
        "conversation_id": "c-1",
        "started": time(0),
        "last": time(3),
        "turns": 1,
        "title": "Read the file,",
    }


def test_an_empty_memory_is_listed_as_such(memory: Memory) -> None:
    printed, as_json = console(), console(as_json=True)
    with memory:
        command.show_list(memory, printed, None)
        command.show_list(memory, as_json, None)
    assert (out(printed), err(printed)) == ("", "no conversations yet\n")
    assert json.loads(out(as_json)) == []


def test_what_is_found_begins_with_the_conversation(kept: Memory) -> None:
    printed = console()
    with kept:
        command.show_found(kept, printed, "aardvark", 20)
    assert out(printed) == "c-20  2026-01-01T00:00:50  user       An Aardvark adapter\n"
    assert err(printed) == ""


def test_what_is_found_as_json(kept: Memory) -> None:
    printed = console(as_json=True)
    with kept:
        command.show_found(kept, printed, "ARDVAR", 20)
    (found,) = json.loads(out(printed))
    assert found.pop("score") > 0
    assert found == {
        "conversation_id": "c-20",
        "turn_id": "t-1",
        "timestamp": time(50),
        "role": "user",
        "excerpt": "An Aardvark adapter",
    }


def test_nothing_found_is_said_beside_the_output(kept: Memory) -> None:
    printed, as_json = console(), console(as_json=True)
    with kept:
        command.show_found(kept, printed, "no\x1bsuch", 20)
        command.show_found(kept, as_json, "nosuch", 20)
    assert (out(printed), err(printed)) == ("", "no message contains 'no\\x1bsuch'\n")
    assert json.loads(out(as_json)) == []


def test_a_conversation_is_shown_with_its_calls(kept: Memory) -> None:
    printed = console()
    with kept:
        command.show_conversation(kept, printed, "c-1")
    assert out(printed) == (
        "user  2026-01-01T00:00:00\n\n  Read the file,\nplease\n\n"
        "assistant  2026-01-01T00:00:01  local mock\n"
        '→ file_read {"path": "src/lock_detection.py", "lines": [1, 2.5, null, true], '
        '"more": {"ключ": "значение"}}\n'
        "→ shell {}\n\n"
        "tool  2026-01-01T00:00:02\n"
        "← file_read: done\n  def hold():\n      ...\n"
        "← shell: failed\n  broken arguments\n\n"
        "assistant  2026-01-01T00:00:03\nIt holds a lock.\0 Done.\n"
    )


def test_a_conversation_as_json_and_the_export_say_the_same(kept: Memory, tmp_path: Path) -> None:
    shown, exported, noted = console(as_json=True), console(), console()
    with kept:
        command.show_conversation(kept, shown, "c-1")
        command.export(kept, exported, None)
        command.export(kept, noted, str(tmp_path / "all.jsonl"))
    lines = [json.loads(line) for line in out(exported).splitlines()]
    assert json.loads(out(shown)) == lines[:4]
    assert lines[2]["tool_results"][0]["output"] == "def hold():\n    ...\n"
    assert [line["conversation_id"] for line in lines] == ["c-1"] * 4 + ["c-20", "c-21"]
    written = tmp_path / "all.jsonl"
    assert written.read_text() == out(exported)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert err(noted) == f"6 messages written to {written}\n"


def test_an_export_that_fails_leaves_the_old_file(kept: Memory, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with kept, pytest.raises(EnvironmentFault, match="directory"):
        command.export(kept, console(), str(tmp_path / "there"))
    assert {path.name for path in tmp_path.iterdir()} >= {"there"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".coilclaw")]


def test_clearing_says_how_many(kept: Memory) -> None:
    printed, as_json = console(), console(as_json=True)
    with kept:
        command.clear(kept, printed)
        command.clear(kept, as_json)
    assert (out(printed), err(printed)) == ("", "6 messages deleted permanently\n")
    assert json.loads(out(as_json)) == {"removed": 0}
