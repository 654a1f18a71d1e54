"""Whole trajectories with a scripted agent in a real sandbox: the record, and every way to stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault, UsageError
from coilclaw.kernel.messages import Part, Usage
from coilclaw.runners.runner import Assignment, Ending, Means
from coilclaw.traces.trajectory import trajectory_run
from coilclaw.traces.trajectory.opened_trajectory import TrajectoryOpening
from coilclaw.traces.trajectory.trace import PartRecord, TokenUsage
from coilclaw.traces.trajectory.verification import verify_trajectory
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.children import PATIENCE_S, given_time
from tests.support.trajectories import FileTests, Saying, World, opened, ticking, turns

FIX_ALL = {"one.txt": "ok", "two.txt": "ok", "three.txt": "ok"}
SAYING: list[Mapping[str, Any]] = [{"text": "x"}]
FIFTY = turns(*[SAYING] * 50)


@pytest.fixture
def world() -> Iterator[World]:
    with opened(FileTests()) as made:
        yield made


@pytest.fixture
def plain() -> Iterator[World]:
    """Without tests."""
    with opened() as made:
        yield made


def holds(world: World) -> None:
    found = verify_trajectory(world.places)
    assert found.problems == ()
    assert found.ended


def test_solved_in_the_middle_of_a_turn_ends_it(world: World) -> None:
    end = world.run(
        turns([{"write": FIX_ALL}, {"run_tests": ""}, {"text": "never said"}]), max_turns=5
    )
    assert (end.reason, end.total_parts, end.total_turns) == ("solved", 2, 1)
    trace = world.trace()
    assert [part.tool_name for part in trace.parts] == ["write", "run_tests"]
    assert trace.session_end == trace.turns[0].session_end == end
    holds(world)


def test_solved_is_found_at_the_end_of_a_turn_without_the_agent_asking(world: World) -> None:
    end = world.run(turns([{"write": FIX_ALL}, {"text": "done"}]), required=("basics", "extra"))
    assert (end.reason, end.total_parts) == ("solved", 2)
    assert [call.path for call in world.trace().turns[0].envoi_calls] == [""]
    holds(world)


def test_what_was_green_before_the_last_change_is_not_solved(world: World) -> None:
    end = world.run(
        turns([{"write": FIX_ALL}, {"text": "x"}, {"write": {"one.txt": "broken"}}]), max_turns=1
    )
    assert end.reason == "turn_limit"


def test_part_limit_counts_parts_across_turns(plain: World) -> None:
    end = plain.run(
        turns([{"text": "1"}, {"text": "2"}], [{"write": {"a": "3"}}, {"write": {"b": "4"}}]),
        max_parts=3,
    )
    assert (end.reason, end.total_parts, end.total_turns) == ("part_limit", 3, 2)
    assert [(t.part_start, t.part_end) for t in plain.trace().turns] == [(1, 2), (3, 3)]
    assert plain.at(end.final_git_commit) == {"a": "3"}
    holds(plain)


def test_turn_limit(plain: World) -> None:
    end = plain.run(turns([{"text": "1"}], [{"text": "2"}], [{"text": "3"}]), max_turns=2)
    assert (end.reason, end.total_parts, end.total_turns) == ("turn_limit", 2, 2)
    holds(plain)


def test_timeout_in_the_middle_of_a_turn() -> None:
    def attempt(timeout_s: float) -> int:
        with opened() as plain:
            began = time.monotonic()
            end = plain.run(turns([{"write": {"a": "1"}}, {"sleep_s": 600}]), timeout_s=timeout_s)
            assert time.monotonic() - began < timeout_s + PATIENCE_S
            assert end.reason == "timeout"
            if end.total_parts:
                assert plain.trace().turns[0].status in {"aborted", "exhausted"}
                holds(plain)
            return end.total_parts

    assert given_time(1.5, attempt, bool) == 1


def test_timeout_between_turns_is_measured_over_all_resumptions(plain: World) -> None:
    plain.changes["monotonic"] = ticking()
    end = plain.run(FIFTY, timeout_s=60.0)
    assert end.reason == "timeout"
    first = plain.trace()
    assert 0 < len(first.parts) < 50
    again = plain.resume(FIFTY)
    assert (again.reason, again.total_parts) == ("timeout", len(first.parts))
    assert again.elapsed_ms >= end.elapsed_ms
    more = plain.resume(FIFTY, lambda p: replace(p, timeout_s=120.0))
    assert more.total_parts > end.total_parts
    assert plain.trace().limits.timeout_ms == 120_000
    holds(plain)


def test_an_agent_that_crashes_is_an_agent_error(plain: World) -> None:
    end = plain.run(turns([{"write": {"a": "1"}}, {"crash": True}, {"text": "never"}]))
    assert (end.reason, end.total_parts) == ("agent_error", 1)
    assert "crashed" in end.detail
    assert plain.at(end.final_git_commit) == {"a": "1"}
    holds(plain)


def test_an_agent_that_gives_up_is_an_agent_error(plain: World) -> None:
    end = plain.run(turns([{"text": "1"}]))
    assert (end.reason, end.detail) == (
        "agent_error",
        "the script is over: it has 1 turns for this task",
    )
    holds(plain)


def test_an_agent_that_cannot_be_started_is_an_agent_error(plain: World) -> None:
    def fails(_: Assignment, __: Means) -> Generator[Part, None, Ending]:
        yield from _not_found()
        return Ending("done")

    end = plain.run(lambda _: Saying(fails))
    assert (end.reason, end.detail) == ("agent_error", "the program was not found")
    holds(plain)


def test_an_agent_that_says_nothing_is_an_agent_error_after_a_while(plain: World) -> None:
    def silent(_: Assignment, __: Means) -> Generator[Part, None, Ending]:
        yield from ()
        return Ending("done")

    end = plain.run(lambda _: Saying(silent))
    assert (end.reason, end.total_turns) == ("agent_error", trajectory_run.MAX_IDLE_TURNS)


def test_tests_that_cannot_be_run_are_an_envoi_error(world: World) -> None:
    assert world.judge is not None
    world.judge.broken = "the fixtures are gone"
    end = world.run(turns([{"run_tests": ""}, {"text": "go on"}], [{"text": "never"}]))
    assert (end.reason, end.total_parts) == ("envoi_error", 2)
    assert end.detail == "the tests at the top could not be run: the fixtures are gone"
    trace = world.trace()
    assert trace.parts[0].tool_output == "the tests could not be run: the fixtures are gone"
    assert trace.turns[0].envoi_calls[0].status_code == 500
    holds(world)


def test_a_workspace_that_cannot_be_kept_is_an_agent_error(plain: World) -> None:
    def digs(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        yield Part("text", text="kept")
        place = os.open(assignment.directory, os.O_RDONLY)
        for _level in range(600):
            os.mkdir("d", dir_fd=place)
            below = os.open("d", os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = below
        os.close(place)
        yield Part("text", text="too deep")
        return Ending("done")

    end = plain.run(lambda _: Saying(digs))
    assert (end.reason, end.total_parts) == ("agent_error", 1)
    assert "deep" in end.detail
    holds(plain)


def test_whoever_interrupts_ends_it_after_the_part(plain: World) -> None:
    def stop(part: PartRecord) -> None:
        if part.part == 2:
            plain.cancel.cancel("enough")

    plain.changes["on_part"] = stop
    end = plain.run(turns([{"text": "1"}, {"text": "2"}, {"sleep_s": 60}]))
    assert (end.reason, end.detail, end.total_parts) == ("interrupted", "enough", 2)
    holds(plain)


def test_a_signal_ends_a_trajectory_cleanly(plain: World) -> None:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            plain.cancel = Cancellation()
            signal.signal(signal.SIGTERM, lambda *_: plain.cancel.cancel("SIGTERM"))
            plain.changes["on_part"] = lambda _: os.write(told, b"!")
            end = plain.run(turns([{"write": {"a": "1"}}, {"sleep_s": 60}]))
            os._exit(0 if (end.reason, end.detail) == ("interrupted", "SIGTERM") else 9)
        except BaseException as problem:  # noqa: BLE001 - a fork may not go on as a test
            os.write(2, f"in the forked process: {problem!r}\n".encode())
            os._exit(8)
    os.read(ready, 1)
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    holds(plain)
    assert plain.trace().session_end is not None


def test_every_part_is_told_whole(world: World) -> None:
    seen: list[PartRecord] = []
    world.changes["on_part"] = seen.append
    long = "word " * 200
    world.run(
        turns(
            [{"reasoning": long}, {"shell": "echo out; echo err >&2; printf ok > one.txt; exit 3"}]
        ),
        max_turns=1,
        agent="scripted:x",
        model="m",
    )
    trace = world.trace()
    assert [replace(part, part_hash=None) for part in trace.parts] == seen
    thought, ran = trace.parts
    assert (thought.content, thought.part_type, thought.repo_checkpoint) == (
        long,
        "reasoning",
        None,
    )
    assert len(thought.summary) == 240
    assert (ran.tool_name, ran.tool_exit_code) == ("shell", 3)
    assert ran.tool_output == "out\n[stderr]\nerr\n"
    assert ran.tool_input is not None
    assert "printf ok" in ran.tool_input
    assert ran.repo_checkpoint is not None
    assert ran.repo_checkpoint.commit_before == trace.initial_commit == thought.git_commit
    assert ran.repo_checkpoint.commit_after == ran.git_commit
    assert (ran.agent, ran.agent_model, ran.trajectory_id) == ("scripted:x", "m", "traj-1")
    assert [part.part_hash for part in trace.parts] == [
        record["part_hash"] for record in world.records() if record["type"] == "part"
    ]


def test_the_agents_own_commits_are_noticed(plain: World) -> None:
    plain.run(turns([{"write": {"a": "1"}}, {"commit": "mine"}, {"text": "x"}]), max_turns=1)
    wrote, committed, said = plain.trace().parts
    head = plain.git("rev-parse", "HEAD", git_dir=plain.places.workspace / ".git")
    assert (wrote.agent_commit, committed.agent_commit, said.agent_commit) == (None, head, None)
    assert wrote.git_commit == committed.git_commit == said.git_commit
    tree = plain.git("rev-parse", "HEAD^{tree}", git_dir=plain.places.workspace / ".git")
    assert plain.git("rev-parse", f"{wrote.git_commit}^{{tree}}") == tree


def test_later_turns_are_told_how_far_the_tests_are(world: World) -> None:
    world.run(
        turns(
            [{"write": {"one.txt": "ok"}}, {"run_tests": ""}],
            [{"write": {"one.txt": "no", "two.txt": "ok"}}],
            [{"text": "x"}],
        ),
        max_turns=3,
    )
    first, second, third = [turn.prompt for turn in world.trace().turns]
    assert first == "do it"
    assert second.startswith("do it\n\nContinue")
    assert "- basics: 1/2\n- extra: 0/1" in second
    assert third.endswith("Newly broken: basics/one\n\nNewly fixed: basics/two")


def test_what_changes_after_the_last_part_belongs_to_the_turn(plain: World) -> None:
    def sneaky(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        (assignment.directory / "named").write_text("1")
        (assignment.directory / "unnamed").write_text("2")
        yield Part("patch", files=("named",), usage=Usage(3, None))
        (assignment.directory / "late").write_text("3")
        return Ending("done", thread_id="thread-1", usage=Usage(5, 6), version="1.2")

    end = plain.run(lambda _: Saying(sneaky), max_turns=1)
    trace = plain.trace()
    (part,), (turn,) = trace.parts, trace.turns
    assert part.repo_checkpoint is not None
    assert turn.repo_checkpoint is not None
    assert part.repo_checkpoint.changed_files == ("named",)
    assert turn.repo_checkpoint.changed_files == ("late", "unnamed")
    assert part.token_usage == TokenUsage(input_tokens=3, output_tokens=None)
    assert turn.token_usage == TokenUsage(input_tokens=5, output_tokens=6)
    assert (trace.versions["agent"], trace.session_id) == ("1.2", "thread-1")
    assert plain.at(end.final_git_commit) == {"late": "3", "named": "1", "unnamed": "2"}
    assert [path.name for path in sorted(plain.places.bundles.iterdir())] == [
        "0.bundle",
        "1-turn1.bundle",
        "1.bundle",
    ]
    holds(plain)


def test_secrets_reach_nothing_that_is_kept(world: World) -> None:
    world.changes["redact"] = lambda text: text.replace("s3cr3t", "[redacted]")
    world.run(
        turns([{"text": "s3cr3t"}, {"shell": "echo s3cr3t"}, {"run_tests": "s3cr3t"}]),
        max_turns=1,
        prompt="use s3cr3t",
        keep_raw=True,
    )
    for path in (world.places.document, world.places.journal, *world.places.results.iterdir()):
        assert b"s3cr3t" not in path.read_bytes()
    assert world.trace().parts[0].content == "[redacted]"


def test_the_agent_sees_neither_the_record_nor_what_else_is_ours(plain: World) -> None:
    (plain.home / "keys").mkdir(mode=0o700)
    (plain.home / "keys" / "other.key").write_text("key")
    other = plain.home / "trajectories" / "other"
    other.mkdir(parents=True)
    (other / "file").write_text("theirs")
    kept = "../parts.jsonl ../repo.git/HEAD ../../other/file ../../../keys/other.key"
    looks = f"cat {kept}; ls ../../../keys"
    writes = "echo theirs > ../x; echo theirs > ../agent_trace.json; echo theirs > ../parts.jsonl"
    plain.run(turns([{"shell": looks}, {"shell": writes}]), max_turns=1)
    looked, _ = plain.trace().parts
    assert "theirs" not in str(looked.tool_output)
    assert "ref:" not in str(looked.tool_output)
    assert "key\n" not in str(looked.tool_output)
    record = plain.home / "trajectories" / "traj-1"
    assert (record / "parts.jsonl").is_file()
    assert not (record / "x").exists()
    holds(plain)


def test_an_id_is_not_used_twice(plain: World) -> None:
    plain.run(turns([{"text": "1"}]), max_turns=1)
    with pytest.raises(UsageError, match="trajectory traj-1 already exists"):
        plain.run(turns([{"text": "1"}]), max_turns=1)


def test_what_is_going_on_is_not_recorded_by_another(plain: World) -> None:
    def second(_: Assignment, __: Means) -> Generator[Part, None, Ending]:
        opening = TrajectoryOpening(plain.places, stamp=str, seconds=int)
        with pytest.raises(EnvironmentFault, match=f"by process {os.getpid()}"), opening.resume():
            pass
        yield Part("text", text="x")
        return Ending("done")

    # Another thread or process; the lock is one a thread.
    assert plain.run(lambda _: Saying(_in_a_thread(second)), max_turns=1).total_parts == 1


def _not_found() -> Iterator[Part]:
    raise ProcessFault("the program was not found")


def _in_a_thread(perform: Any) -> Any:
    """Have the body of an agent run in a thread of its own."""
    from concurrent.futures import ThreadPoolExecutor

    def performed(assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        with ThreadPoolExecutor(1) as pool:
            yield from pool.submit(lambda: list(perform(assignment, means))).result()
        return Ending("done")

    return performed
