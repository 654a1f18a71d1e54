"""Going on with a trajectory: numbers, clock, code and the agent's own session."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Part
from coilclaw.runners.runner import Assignment, Ending, Means
from coilclaw.traces.trajectory.opened_trajectory import repair_document
from coilclaw.traces.trajectory.verification import verify_trajectory
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.trajectories import FileTests, Saying, World, opened, turns


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


class Vanished(BaseException):
    """As if the process were killed here."""


def vanish_at(world: World, number: int) -> None:
    """Let go of everything right after a part was recorded, without any end being written."""

    def at(part: object) -> None:
        if getattr(part, "part", 0) == number:
            raise Vanished

    world.changes["on_part"] = at


def test_there_has_to_be_a_trajectory(world: World) -> None:
    with pytest.raises(UsageError, match="no trajectory was found"):
        world.resume(turns([]))


def test_what_is_solved_is_over() -> None:
    with opened(FileTests(("one",))) as world:
        assert world.run(turns([{"write": {"one.txt": "ok"}}])).reason == "solved"
        before = world.places.journal.read_bytes()
        with pytest.raises(UsageError, match="is solved"):
            world.resume(turns([]))
        assert world.places.journal.read_bytes() == before


def test_a_budget_that_was_used_up_can_be_raised(world: World) -> None:
    script = turns([{"text": "1"}, {"text": "2"}], [{"text": "3"}], [{"text": "4"}])
    assert world.run(script, max_parts=2).reason == "part_limit"
    again = world.resume(script)
    assert (again.reason, again.total_parts, again.total_turns) == ("part_limit", 2, 1)
    end = world.resume(script, lambda plan: replace(plan, max_parts=4))
    assert (end.reason, end.total_parts, end.total_turns) == ("part_limit", 4, 3)
    trace = world.trace()
    assert [part.part for part in trace.parts] == [1, 2, 3, 4]
    assert [turn.session_end for turn in trace.turns] == [None, None, end]
    assert trace.limits.max_parts == 4
    assert [one.after_part for one in trace.resumptions] == [2, 2]
    assert verify_trajectory(world.places).problems == ()


def test_after_a_kill_everything_goes_on_where_the_record_ends(world: World) -> None:
    vanish_at(world, 3)
    script = turns(
        [{"write": {"a": "1"}}, {"text": "x"}, {"write": {"a": "2"}}, {"write": {"a": "3"}}],
        [{"shell": "cat a"}],
    )
    with pytest.raises(Vanished):
        world.run(script, max_turns=2)
    killed = world.trace()
    assert (len(killed.parts), killed.session_end) == (2, None) or len(killed.parts) == 3
    # What the agent did after the last part that was recorded.
    (world.places.workspace / "a").write_text("unrecorded")
    (world.places.workspace / "b").write_text("unrecorded too")
    del world.changes["on_part"]
    end = world.resume(script)
    assert (end.reason, end.total_parts, end.total_turns) == ("turn_limit", 4, 2)
    trace = world.trace()
    assert trace.parts[:3] == killed.parts[:3]
    assert trace.parts[3].tool_output == "2"
    assert [(t.part_start, t.part_end, t.status) for t in trace.turns] == [
        (1, 3, "killed"),
        (4, 4, "done"),
    ]
    (resumption,) = trace.resumptions
    assert resumption.leftover is not None
    assert world.at(resumption.leftover) == {"a": "unrecorded", "b": "unrecorded too"}
    assert resumption.leftover_ref == "refs/heads/leftover/after-part-3-0"
    assert world.at(end.final_git_commit) == {"a": "2"}
    assert trace.parts[3].elapsed_ms >= trace.parts[2].elapsed_ms
    assert verify_trajectory(world.places).problems == ()


def test_a_document_that_was_torn_is_mended_from_the_journal(world: World) -> None:
    world.run(turns([{"text": "1"}, {"text": "2"}]), max_turns=1)
    whole = world.places.document.read_bytes()
    assert not repair_document(world.places)
    for left in (b"", whole[:100], whole[:-20], whole[: len(whole) // 2]):
        world.places.document.write_bytes(left)
        assert verify_trajectory(world.places).problems != ()
        assert repair_document(world.places)
        assert world.places.document.read_bytes() == whole
    world.places.document.unlink()
    assert repair_document(world.places)
    assert verify_trajectory(world.places).problems == ()


def test_a_trajectory_that_was_killed_while_it_was_made_begins_anew(world: World) -> None:
    world.plan(max_turns=1)
    world.places.directory.mkdir(parents=True)
    world.places.key.parent.mkdir()
    world.plan(max_turns=1).save(world.places.session)
    world.places.workspace.mkdir()
    (world.places.workspace / "half").write_text("half")
    with pytest.raises(UsageError, match="killed before it began"):
        repair_document(world.places)
    end = world.resume(turns([{"write": {"a": "1"}}]))
    assert end.total_parts == 1
    assert world.at(end.final_git_commit) == {"a": "1"}
    assert verify_trajectory(world.places).problems == ()


def test_code_that_a_power_cut_took_comes_back_from_the_bundles(world: World) -> None:
    script = turns([{"write": {"a": "1"}}, {"write": {"b": "2"}}], [{"shell": "cat a b"}])
    world.run(script, max_turns=1)
    remove_tree(world.places.repository)
    remove_tree(world.places.workspace)
    end = world.resume(script, lambda plan: replace(plan, max_turns=2))
    assert world.trace().parts[2].tool_output == "12"
    assert world.at(end.final_git_commit) == {"a": "1", "b": "2"}
    assert verify_trajectory(world.places).problems == ()


def test_the_agents_own_session_is_gone_on_with(world: World) -> None:
    given: list[tuple[str, str]] = []

    def talks(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        given.append((assignment.thread_id, assignment.instruction.splitlines()[0]))
        yield Part("text", text="x")
        return Ending("done", thread_id="thread-7")

    world.run(lambda _: Saying(talks), max_turns=2)
    world.resume(lambda _: Saying(talks), lambda plan: replace(plan, max_turns=3))
    told = "Continue with the task: fix what fails, and do not break what passes."
    assert given == [("", "do it"), ("thread-7", told), ("thread-7", told)]
    assert [part.session_id for part in world.trace().parts] == [
        "pending-traj-1",
        "thread-7",
        "thread-7",
    ]


def test_without_its_home_the_agent_is_told_everything_again(world: World) -> None:
    given: list[tuple[str, str]] = []

    def talks(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        given.append((assignment.thread_id, assignment.instruction.splitlines()[0]))
        yield Part("text", text="x")
        return Ending("done", thread_id=f"thread-{len(given)}")

    world.run(lambda _: Saying(talks), max_turns=1)
    # As on a machine that the trajectory was brought to: nothing of the agent's own is there.
    remove_tree(world.places.agent_home)
    world.resume(lambda _: Saying(talks), lambda plan: replace(plan, max_turns=2))
    world.resume(lambda _: Saying(talks), lambda plan: replace(plan, max_turns=3))
    assert [thread for thread, _ in given] == ["", "", "thread-2"]
    assert given[1][1] == "do it"
    assert [part.session_id for part in world.trace().parts] == [
        "pending-traj-1",
        "pending-traj-1",
        "thread-2",
    ]
    assert verify_trajectory(world.places).problems == ()


def test_how_far_the_tests_were_is_known_again() -> None:
    with opened(FileTests()) as world:
        script = turns([{"write": {"one.txt": "ok"}}], [{"text": "x"}], [{"text": "y"}])
        world.run(script, max_turns=1)
        world.resume(script, lambda plan: replace(plan, max_turns=2))
        assert world.judge is not None
        # The tree is the one that was tested before, so it is not tested again.
        assert world.judge.asked == [""]
        state = world.trace().parts[1].testing_state
        assert state is not None
        assert (state.latest_passed, state.latest_total) == (1, 3)
        assert "- basics: 1/2" in world.trace().turns[1].prompt
