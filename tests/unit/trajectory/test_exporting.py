"""Exports: never over a file, whole or not at all, and every part in them."""

from __future__ import annotations

import csv
import json
import sqlite3
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.cli.traces.trace import FORMATS as OFFERED
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.evaluation.evaluation import evaluate
from coilclaw.traces.evaluation.export import COLUMNS, FORMATS, Format, export
from coilclaw.traces.evaluation.graph import graph_of
from coilclaw.traces.trajectory.plan import TracePlaces
from tests.support.recordings import FakeJudge, court, passing, recording

PARTS = [passing("basics/get"), None, passing("basics/set")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, form: Format) -> None:
    trace = recording(tmp_path, PARTS).trace
    target = tmp_path / "out"
    target.write_text("precious")
    with pytest.raises(UsageError) as caught:
        export(trace, target, form, places=TracePlaces(tmp_path, "t"))
    assert caught.value.rule == "export.exists"
    assert target.read_text() == "precious"


@pytest.mark.parametrize("form", FORMATS)
def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, form: Format) -> None:
    trace = recording(tmp_path, PARTS).trace
    before = sorted(tmp_path.iterdir())
    with pytest.raises(EnvironmentFault):
        export(trace, tmp_path / "no" / "out", form, places=TracePlaces(tmp_path, "t"))
    assert sorted(tmp_path.iterdir()) == before


def test_all_files_need_a_trajectory_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        export(recording(tmp_path, PARTS).trace, tmp_path / "out", "tar", places=None)
    assert caught.value.rule == "export.files"


def test_lines_hold_the_parts_as_they_are(tmp_path: Path) -> None:
    trace = recording(tmp_path, PARTS).trace
    export(trace, tmp_path / "out", "jsonl", places=None)
    lines = (tmp_path / "out").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [part.json() for part in trace.parts]


def test_a_spreadsheet_sees_no_formula(tmp_path: Path) -> None:
    trace = recording(tmp_path, PARTS).trace
    evil = '=HYPERLINK("https://evil.invalid")'
    parts = (replace(trace.parts[0], summary=evil), *trace.parts[1:])
    export(replace(trace, parts=parts), tmp_path / "out", "csv", places=None)
    with (tmp_path / "out").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["summary"] for row in rows] == [f"'{evil}", "what part 2 did", "what part 3 did"]
    assert list(rows[0]) == list(COLUMNS)
    assert [row["input_tokens"] for row in rows] == ["100"] * 3


def test_a_database_can_be_asked(tmp_path: Path) -> None:
    recorded = recording(tmp_path, PARTS)
    graph = graph_of(evaluate(recorded, court(tmp_path, FakeJudge())))
    export(recorded.trace, tmp_path / "out", "sqlite", graph=graph, places=None)
    connection = sqlite3.connect(tmp_path / "out")
    try:
        passed = connection.execute(
            "SELECT p.part, p.summary, count(*) FROM parts p JOIN statuses s USING "
            "(trajectory_id, part) WHERE s.status = 'passed' GROUP BY p.part ORDER BY p.part"
        ).fetchall()
        ended = connection.execute("SELECT reason, total_parts FROM trajectories").fetchall()
    finally:
        connection.close()
    assert passed == [
        (1, "what part 1 did", 1),
        (2, "what part 2 did", 1),
        (3, "what part 3 did", 1),
    ]
    assert ended == [("part_limit", 3)]


def test_an_archive_holds_the_record_and_neither_workspace_nor_home(tmp_path: Path) -> None:
    trace = recording(tmp_path, PARTS).trace
    places = TracePlaces(tmp_path, "t")
    for name in ("agent_trace.json", "repo.bundle", "bundles/1.bundle", "results/a.json"):
        (places.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (places.directory / name).write_text(name)
    for name in ("workspace/secret", "homes/agent/auth.json", "session.json"):
        (places.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (places.directory / name).write_text(name)
    (places.directory / "results" / "link.json").symlink_to("/etc/passwd")
    for name in ("one", "two"):
        export(trace, tmp_path / name, "tar", places=places)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as archive:
        assert archive.getnames() == [
            "t/agent_trace.json",
            "t/repo.bundle",
            "t/bundles/1.bundle",
            "t/results/a.json",
        ]


def test_the_command_offers_every_format() -> None:
    assert set(OFFERED) == set(FORMATS)
