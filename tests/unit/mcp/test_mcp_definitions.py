"""Definitions of tools, and the file that pins them."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from coilclaw.agent.mcp.definitions import (
    MAX_BYTES,
    check_definition,
    collect_definitions,
    parse_definition,
)
from coilclaw.agent.mcp.pins import Pins, ServerPins
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.messages import Json

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "mcp" / "mcp-pins.json"
OBJECT: dict[str, Json] = {"type": "object", "properties": {}}
WHEN = "2026-05-12T14:00:07.000000Z"


def tool(name: str = "add", **fields: Json) -> dict[str, Json]:
    return {"name": name, "description": "Adds.", "inputSchema": OBJECT, **fields}


@pytest.mark.parametrize(
    "wrong",
    [
        tool(""),
        tool("x" * 257),
        tool("a\nb"),
        tool("a\u200bb"),
        tool(inputSchema={"type": "array"}),
        tool(inputSchema={}),
        tool(inputSchema=[]),
        tool(inputSchema={"type": "object", "properties": {"a": {"type": "nothing"}}}),
        tool(inputSchema={"type": "object", "$ref": "https://example.org/schema"}),
        tool(description="x" * MAX_BYTES),
        tool(description="\ud800"),
        tool(annotations={"n": float("nan")}),
        {"description": "no name", "inputSchema": OBJECT},
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(wrong: dict[str, Json]) -> None:
    with pytest.raises(UsageError):
        check_definition(wrong)
    listing = collect_definitions([tool("good"), wrong])
    assert list(listing.tools) == ["good"]
    assert len(listing.refused) == 1


def test_a_tool_listed_twice_is_refused_however_often() -> None:
    listing = collect_definitions([tool("a"), tool("b"), tool("a"), tool("a")])
    assert list(listing.tools) == ["b"]
    assert listing.refused == (("'a'", "it is listed twice"),)


def test_the_hash_is_that_of_everything_that_is_told() -> None:
    one = check_definition(tool())
    assert one == parse_definition(one.text)
    assert one.sha256 == check_definition(dict(reversed(tool().items()))).sha256
    others = [
        tool("sub"),
        tool(description="Adds!"),
        tool(title="Add"),
        tool(inputSchema={"type": "object"}),
        tool(outputSchema={"type": "object"}),
        tool(annotations={"readOnlyHint": True}),
    ]
    assert one.sha256 not in {check_definition(other).sha256 for other in others}
    # What a model is never shown, and what may differ from session to session, does not count.
    assert check_definition(tool(_meta={"seen": 1}, icons=[])).sha256 == one.sha256


def test_what_is_approved_is_read_back_and_can_be_taken_back(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "home")
    assert pins.read() == {}
    definitions = [
        check_definition(tool("add")),
        check_definition(tool("sub", description="\u202e")),
    ]
    pins.approve("a", "1" * 64, definitions, WHEN)
    pins.approve("b", "2" * 64, definitions[:1], WHEN)
    assert pins.read() == {
        "a": ServerPins("1" * 64, WHEN, {each.name: each for each in definitions}),
        "b": ServerPins("2" * 64, WHEN, {"add": definitions[0]}),
    }
    assert stat.S_IMODE(pins.path.stat().st_mode) == 0o600
    pins.approve("a", "1" * 64, definitions[1:], WHEN)
    assert list(pins.read()["a"].tools) == ["sub"]
    assert pins.forget("a")
    assert not pins.forget("a")
    assert list(pins.read()) == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("Adds.", "Adds!"),
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace('"add": {', '"sub": {'),
        lambda text: text[:-20],
        lambda _: "[]",
        lambda _: '{"version": 1, "servers": []}',
        lambda _: '{"version": 1, "servers": {"a": {"identity": "", "approved": "", "tools": 3}}}',
        lambda _: '{"version": 1, "servers": {"a": 3}}',
        lambda _: "[" * 100_000,
        lambda _: "\x00",
    ],
)
def test_a_file_that_somebody_changed_approves_nothing(tmp_path: Path, change: object) -> None:
    pins = Pins(tmp_path)
    pins.approve("a", "1" * 64, [check_definition(tool())], WHEN)
    assert callable(change)
    pins.path.write_text(change(pins.path.read_text()))
    with pytest.raises(EnvironmentFault) as raised:
        pins.read()
    assert raised.value.rule == "mcp.pins"


def test_approvals_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    definition = check_definition(tool())

    def approve(number: int) -> None:
        Pins(tmp_path).approve(f"s{number}", "1" * 64, [definition], WHEN)

    threads = [threading.Thread(target=approve, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Pins(tmp_path).read()) == {f"s{number}" for number in range(12)}


def test_a_file_of_the_first_version_can_be_read_and_is_written_alike(tmp_path: Path) -> None:
    pins = Pins(BASELINE.parent)
    found = pins.read()
    assert {name: list(each.tools) for name, each in found.items()} == {
        "calc": ["add", "multiply"],
        "notes": ["search"],
    }
    again = Pins(tmp_path)
    for name, each in found.items():
        again.approve(name, each.identity, each.tools.values(), each.approved)
    assert again.path.read_bytes() == BASELINE.read_bytes()
    assert json.loads(BASELINE.read_bytes())["version"] == 1
