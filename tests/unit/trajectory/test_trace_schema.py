"""``schemas/agent_trace.v1.json`` and the records say the same, and the format does not drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import schemas
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.record import Record, shape
from coilclaw.traces.trajectory import trace
from coilclaw.traces.trajectory.history import HASH_FIELD, History, part_of
from coilclaw.traces.trajectory.opened_trajectory import open_journal
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan, load_plan

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "trajectory"
RECORDS = {
    value.SCHEMA: value
    for value in vars(trace).values()
    if isinstance(value, type) and issubclass(value, Record) and value.SCHEMA
}


def _definition(name: str) -> Any:
    document = schemas.load_schema(trace.VERSION)
    _, _, part = name.partition("#")
    definitions: Any = document["$defs"]
    return definitions[part] if part else document


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_record_has_the_fields_of_its_schema(name: str) -> None:
    definition = _definition(name)
    fields = shape(RECORDS[name])
    assert [field.name for field in fields] == list(definition["properties"])
    assert [field.name for field in fields if field.required] == definition["required"]
    assert definition["additionalProperties"] is False


def test_every_definition_has_a_record() -> None:
    definitions: Any = schemas.load_schema(trace.VERSION)["$defs"]
    assert {f"{trace.VERSION}#{name}" for name in definitions} | {trace.VERSION} == set(RECORDS)


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {f"{trace.VERSION}#Head"}))
def test_the_documentation_has_every_field(name: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "trace.md").read_text()
    heading = name.partition("#")[2] or RECORDS[name].__name__
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    rows = [row.split("`")[1] for row in section.splitlines() if row.startswith("| `")]
    assert rows == [field.name for field in shape(RECORDS[name])]


def _document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BASELINE / "agent_trace.json").read_bytes())
    return found


def test_the_baseline_is_read_and_comes_back_as_it_was() -> None:
    found = trace.load_trace(BASELINE / "agent_trace.json")
    assert found.json() == _document()
    assert found.part(2).repo_checkpoint is not None
    assert found.session_end is not None
    assert found.session_end.reason == "turn_limit"


def test_the_journal_of_the_baseline_makes_its_document() -> None:
    report = verify_journal(
        BASELINE / "parts.jsonl", hash_field=HASH_FIELD, key_path=BASELINE / "journal.key"
    )
    assert (report.ok, report.unanchored) == (True, 0)
    history, parts = History(), []
    for line in (BASELINE / "parts.jsonl").read_text().splitlines():
        record = json.loads(line)
        history.apply(record)
        if record["type"] == "part":
            parts.append(part_of(record))
    assert {**history.head().json(), "parts": parts} == _document()


def test_what_the_baseline_was_asked_for_is_read() -> None:
    found = load_plan(BASELINE / "session.json")
    assert isinstance(found, TrajectoryPlan)
    assert (found.trajectory_id, found.max_turns, found.required) == ("baseline", 2, ("basics",))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["parts"][0].pop("git_commit"),
        lambda d: d["parts"][0].update(git_commit="HEAD"),
        lambda d: d["parts"][0].update(part=0),
        lambda d: d["parts"][0].update(more=1),
        lambda d: d["parts"][0].update(part_type="other"),
        lambda d: d["session_end"].update(reason="tired"),
        lambda d: d.pop("turns"),
        lambda d: d["turns"][0].update(timestamp="yesterday"),
        lambda d: d["parts"].pop(0),
    ],
)
def test_a_document_that_is_none_is_refused(change: Any) -> None:
    document = _document()
    change(document)
    with pytest.raises(UsageError):
        trace.load_trace(json.dumps(document).encode())


def test_a_part_that_is_not_there_is_refused() -> None:
    found = trace.load_trace(BASELINE / "agent_trace.json")
    with pytest.raises(UsageError, match="has no part 0"):
        found.part(0)
    with pytest.raises(UsageError, match="has no part 99"):
        found.part(99)


def test_a_journal_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert list(open_journal(TracePlaces(tmp_path, "none")).read()) == []
