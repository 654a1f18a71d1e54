"""What somebody changes in a record, here or in a store, is noticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.archive import TrajectoryArchive
from coilclaw.traces.stored_trajectory import verify_stored
from coilclaw.traces.trajectory import plan
from coilclaw.traces.trajectory.verification import verify_trajectory
from tests.support.trajectories import ID, FileTests, World, opened, turns

TRACE = "agent_trace.json"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def recorded() -> Iterator[World]:
    with opened(FileTests()) as world:
        world.run(
            turns([{"write": {"one.txt": "ok"}}, {"run_tests": ""}], [{"text": "second"}]),
            max_turns=2,
        )
        yield world


@pytest.fixture
def store(recorded: World, tmp_path: Path) -> Path:
    """What a store holds at the end; the key of the anchor is not among it."""
    target = tmp_path / "trajectories" / ID
    for name in ("bundles", "results"):
        shutil.copytree(recorded.places.directory / name, target / name)
    for name in (TRACE, "repo.bundle", "parts.jsonl", "session.json"):
        shutil.copyfile(recorded.places.directory / name, target / name)
    return target


def problems(world: World, store: Path) -> tuple[str, ...]:
    return verify_stored(TrajectoryArchive(world.home, {}, str(store.parent.parent)), ID).problems


def edited(path: Path, edit: Edit) -> None:
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


def test_what_nobody_changed_is_whole(recorded: World, store: Path) -> None:
    edited(store / TRACE, lambda _: None)  # written in another way, it says the same
    assert problems(recorded, store) == ()
    assert verify_trajectory(recorded.places).problems == ()


UNLIKE = f"trajectory {ID} cannot be resumed from the store: its trace differs from its journal"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda d: d["parts"][2].update(content="another"), UNLIKE),
        (
            lambda d: d["session_end"].update(reason="solved"),
            "document: session_end differ from the journal",
        ),
        (lambda d: d["parts"].pop(), "document: part 3 is not the one in the journal"),
        (lambda d: d.update(agent="another"), "document: agent differ from the journal"),
        (
            lambda d: d["limits"].update(max_turns=2.0),
            "document: limits differ from the journal",
        ),
    ],
)
def test_a_trace_in_a_store_that_is_not_its_journals(
    recorded: World, store: Path, edit: Edit, told: str
) -> None:
    edited(store / TRACE, edit)
    assert problems(recorded, store) == (told,)


def test_a_name_that_stands_twice_is_noticed(recorded: World, store: Path) -> None:
    data = (store / TRACE).read_bytes()
    (store / TRACE).write_bytes(data.replace(b"{", b'{"agent":"another",', 1))
    assert problems(recorded, store) == (
        f"document: {TRACE} cannot be read: has the key 'agent' twice in one object",
    )


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{}"])
def test_a_trace_in_a_store_that_is_none(recorded: World, store: Path, data: bytes) -> None:
    (store / TRACE).write_bytes(data)
    assert len(problems(recorded, store)) == 1


def test_a_journal_in_a_store_that_was_cut_short_says_less_than_the_trace(
    recorded: World, store: Path
) -> None:
    journal = store / "parts.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    assert problems(recorded, store) == ("document: session_end, turns differ from the journal",)


def test_documents_of_different_moments_are_no_problem_while_it_goes_on(
    recorded: World, store: Path
) -> None:
    journal = store / "parts.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-2]))
    edited(store / TRACE, lambda d: (d.update(session_end=None), d["parts"].pop()))
    assert problems(recorded, store) == ()
    edited(store / TRACE, lambda d: d.update(agent="another"))
    assert problems(recorded, store) == ("document: agent differ from the journal",)


@pytest.mark.parametrize("name", ["agent", "prompt"])
def test_a_session_that_is_not_what_was_recorded(recorded: World, store: Path, name: str) -> None:
    edited(store / "session.json", lambda d: d.update({name: "another"}))
    told = f"session: session.json has another {name} than the journal"
    assert problems(recorded, store) == (told,)
    kept = recorded.places.session.read_bytes()
    try:
        shutil.copyfile(store / "session.json", recorded.places.session)
        assert verify_trajectory(recorded.places).problems == (told,)
    finally:
        recorded.places.session.write_bytes(kept)


@pytest.mark.parametrize("data", [b"[]", b"[" * 100_000, b"{}", b'{"form": 1}', b"\xff"])
def test_a_session_that_says_nothing_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "session.json").write_bytes(data)
    with pytest.raises(EnvironmentFault) as caught:
        plan.load_plan(tmp_path / "session.json")
    assert caught.value.rule == "trajectory.session"


def test_a_trace_from_elsewhere_does_not_choose_whose_code_is_run(
    recorded: World, store: Path, tmp_path: Path
) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('it was run')\n")
    edited(store / TRACE, lambda d: d.update(environment=str(evil)))
    archive = TrajectoryArchive(recorded.home, {})
    with archive.open_files(str(store / TRACE), "") as recording:
        with pytest.raises(UsageError) as caught:
            archive.court(recording, scratch=tmp_path)
        assert caught.value.rule == "replay.environment"
        assert archive.court(recording, str(evil), scratch=tmp_path).environment == "evil"
        assert archive.court(recording, "kv_store", scratch=tmp_path).environment == "kv_store"


def test_the_file_that_was_recorded_with_here_needs_no_naming(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("")
    with opened() as world:
        world.run(turns([{"text": "x"}]), max_turns=1, environment=str(file))
        archive = TrajectoryArchive(world.home, {})
        with archive.open(ID) as recording:
            assert archive.court(recording, scratch=tmp_path).environment == "own"
