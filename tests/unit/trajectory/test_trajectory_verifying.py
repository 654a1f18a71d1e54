"""Whatever is changed in what a trajectory left behind is noticed, and by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.traces.trajectory.history import History
from coilclaw.traces.trajectory.opened_trajectory import open_journal
from coilclaw.traces.trajectory.verification import TraceVerification, verify_trajectory
from tests.support.trajectories import FileTests, World, opened, turns


@pytest.fixture(scope="module")
def recorded() -> Iterator[World]:
    with opened(FileTests()) as world:
        script = turns([{"write": {"one.txt": "ok"}}, {"run_tests": ""}, {"write": {"a": "2"}}])
        world.run(script, max_turns=1)
        yield world


@pytest.fixture
def world(recorded: World) -> Iterator[World]:
    """The same one each time: what a test changes is put back."""
    places = recorded.places
    files = [places.document, places.journal, places.bundle, *places.results.iterdir()]
    before = {path: path.read_bytes() for path in files}
    yield recorded
    for path, data in before.items():
        path.write_bytes(data)


def test_what_was_recorded_holds(world: World) -> None:
    # The tests were run by the agent, and on another tree at the end of the turn.
    assert verify_trajectory(world.places) == TraceVerification(
        "traj-1", 3, 3, 2, ended=True, problems=()
    )
    assert not (world.places.directory / "verifying.git").exists()


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[World], None]:
    def edit(world: World) -> None:
        document = json.loads(world.places.document.read_bytes())
        change(document)
        world.places.document.write_text(json.dumps(document))

    return edit


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (edited(lambda d: d["parts"].pop()), "document: part 3 is not the one in the journal"),
        (
            edited(lambda d: d["parts"][1].update(content="other")),
            "document: part 2 is not the one in the journal",
        ),
        (
            edited(lambda d: d["parts"].append(d["parts"][0])),
            "document: part 4 is not in the journal",
        ),
        (
            edited(lambda d: d["session_end"].update(reason="solved")),
            "document: session_end differ from the journal",
        ),
        (edited(lambda d: d.update(parts=3)), "document: it is not a trace"),
        (
            lambda w: w.places.document.write_text("{"),
            "document: agent_trace.json cannot be read: Expecting property name",
        ),
        (
            lambda w: w.places.journal.write_bytes(
                w.places.journal.read_bytes().replace(b"one.txt", b"two.txt", 1)
            ),
            "journal: ",
        ),
        (
            lambda w: w.places.journal.write_bytes(
                b"".join(w.places.journal.read_bytes().splitlines(keepends=True)[:-1])
            ),
            "journal: the journal ends before record",
        ),
        (lambda w: w.places.bundle.write_bytes(b"junk"), "bundle: git bundle"),
        (
            lambda w: next(w.places.results.iterdir()).write_text("{}"),
            "results: call-",
        ),
    ],
)
def test_what_was_changed_is_named(
    world: World, change: Callable[[World], None], problem: str
) -> None:
    change(world)
    found = verify_trajectory(world.places)
    assert not found.ok
    assert any(each.startswith(problem) for each in found.problems), found.problems


def test_a_commit_that_is_not_in_the_bundle_is_named(world: World) -> None:
    first = world.trace().parts[0].git_commit
    world.git("update-ref", "refs/heads/short", first)
    world.git("bundle", "create", "-q", str(world.places.bundle), "refs/heads/short")
    world.git("update-ref", "-d", "refs/heads/short")
    (problem,) = verify_trajectory(world.places).problems
    assert problem.startswith("bundle: commit ")
    assert problem.endswith(" of part 3 is not in it")


@pytest.mark.parametrize("record", [{"type": "part"}, {"type": "other"}, {}])
def test_a_record_that_may_not_be_there_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentFault, match="misplaced record"):
        History().apply(record)


def test_a_second_session_and_a_part_out_of_order_are_refused(world: World) -> None:
    records = list(open_journal(world.places).read())
    history = History()
    history.apply(records[0])
    with pytest.raises(EnvironmentFault, match="misplaced record of type 'session'"):
        history.apply(records[0])
    history.apply(records[1])
    with pytest.raises(EnvironmentFault, match="part 2 follows part 0"):
        history.apply(records[3])
