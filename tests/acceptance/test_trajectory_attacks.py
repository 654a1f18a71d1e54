"""Agents that cheat, and agents that break things: the record is true, whole and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.kernel.messages import Part, Usage
from coilclaw.runners.codex.runner import CodexRunner
from coilclaw.runners.runner import Assignment, Ending, Means
from coilclaw.traces.evaluation.recorded_trace import Recording, gather_bundles
from coilclaw.traces.trajectory.verification import verify_trajectory
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.children import PATIENCE_S, wait_for
from tests.support.trajectories import FileTests, Saying, World, opened, turns

FIX_ALL = {"one.txt": "ok", "two.txt": "ok", "three.txt": "ok"}
PARTS = Generator[Part, None, None]


@pytest.fixture
def world() -> Iterator[World]:
    with opened(FileTests()) as made:
        yield made


@pytest.fixture
def plain() -> Iterator[World]:
    with opened() as made:
        yield made


def files_after(world: World, part: int, name: str) -> Path:
    """What a replay judges."""
    recording = Recording.of(
        world.trace(), gather_bundles([world.places.bundle], world.home / f"{name}.git")
    )
    recording.checkout(recording.commit(part), world.home / name)
    return world.home / name


def test_nothing_of_ours_shows_that_came_while_the_agent_worked(plain: World) -> None:
    """A file that is put in the place of a hidden one shows, and so does a new directory."""
    home, here = plain.home, plain.places.directory
    others = [home / "evaluations" / "x", home / "trajectories" / "other" / "x"]

    def come() -> None:
        wait_for(plain.places.workspace / "ready")
        for path in others:
            path.parent.mkdir()
            path.write_text("EXPECTED")
        (here / "new").write_text("EXPECTED")
        os.replace(here / "new", here / "session.json")
        (plain.places.workspace / "go").touch()

    coming = threading.Thread(target=come)
    plain.changes["on_turn"] = lambda turn: coming.start() if turn.part_end is None else None
    names = [str(path) for path in (*others, here / "session.json")]
    look = f"cat {' '.join(names)}; ls -A {home} {here}"
    wait = "echo yes > ready; while [ ! -e go ]; do sleep 0.01; done"
    plain.run(turns([{"shell": f"{wait}; {look}"}]), max_turns=1)
    coming.join()
    refused = "".join(f"cat: {name}: No such file or directory\n" for name in names)
    shown = f"{home}:\ntrajectories\n\n{here}:\nhomes\nworkspace\n"
    assert plain.trace().parts[0].tool_output == f"{shown}[stderr]\n{refused}"


def test_what_is_tested_is_what_is_recorded_and_not_what_comes_meanwhile(world: World) -> None:
    """The right files are there only while the tests look at the workspace."""
    bench_tree = threading.Event()
    assert world.judge is not None
    real = world.judge.test

    def look(submission: Path, path: str = "", **more: object) -> object:
        for name, content in FIX_ALL.items():
            (world.places.workspace / name).write_text(content)
        bench_tree.set()
        try:
            return real(submission, path, **more)  # type: ignore[arg-type]
        finally:
            for name in FIX_ALL:
                (world.places.workspace / name).unlink()

    world.judge.test = look  # type: ignore[method-assign, assignment]

    def perform(_: Assignment, means: Means) -> PARTS:
        assert means.run_tests is not None
        assert means.run_tests("").startswith("passed 0 of 3")
        yield Part("tool", tool="run_tests", text="tested")

    end = world.run(lambda _: Saying(perform), max_turns=1)
    assert bench_tree.is_set()
    assert end.reason == "turn_limit"


def test_what_is_ignored_is_not_tested_either(world: World) -> None:
    """Otherwise it would be solved, and no commit would hold the solution."""
    end = world.run(
        turns([{"write": FIX_ALL}, {"run_tests": ""}]), max_turns=1, ignore=("three.txt",)
    )
    assert end.reason == "turn_limit"
    (call,) = world.trace().parts[1].envoi_calls
    assert call.result is not None
    assert {test.id: test.status for test in call.result.tests} == {
        "basics/one": "passed",
        "basics/two": "passed",
        "extra/three": "failed",
    }


@pytest.mark.parametrize("name", [".GIT/config", "git~1", ".gitmodules"])
def test_names_that_git_refuses_are_gone_on_with_tested_and_replayed(
    world: World, name: str
) -> None:
    def perform(assignment: Assignment, means: Means) -> PARTS:
        path = assignment.directory / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("/etc/passwd")
        (assignment.directory / "one.txt").write_text("ok")
        assert means.run_tests is not None
        assert means.run_tests("").startswith("passed 1 of 3")
        yield Part("text", text="made")

    assert world.run(lambda _: Saying(perform), max_turns=1).reason == "turn_limit"
    (world.places.workspace / "left").write_text("over")
    end = world.resume(turns([], [{"text": "on"}]), lambda plan: replace(plan, max_turns=2))
    assert (end.reason, end.total_parts) == ("turn_limit", 2)
    top = name.partition("/")[0]
    assert sorted(os.listdir(world.places.workspace)) == sorted([".git", top, "one.txt"])
    judged = files_after(world, 2, "checked-out")
    assert os.readlink(judged / name) == "/etc/passwd"
    assert (judged / "one.txt").read_text() == "ok"
    assert verify_trajectory(world.places).problems == ()


def test_a_tree_that_leads_out_of_the_directory_is_not_written(plain: World) -> None:
    """A bundle may be anybody's."""
    plain.run(turns([{"write": {"a": "x"}}]), max_turns=1)
    git = gather_bundles([plain.places.bundle], plain.home / "evil.git")
    blob = plain.git("hash-object", "-w", "--stdin", git_dir=git.git_dir)
    raw = b"40000 ..\0" + bytes.fromhex(
        _object(git.git_dir, "tree", b"100644 out\0" + bytes.fromhex(blob))
    )
    evil = _object(git.git_dir, "tree", raw)
    recording = Recording.of(plain.trace(), git)
    with pytest.raises(EnvironmentFault) as caught:
        recording.checkout(evil, plain.home / "room" / "in")
    assert caught.value.rule == "checkout.entry"
    assert not (plain.home / "room" / "out").exists()


def test_names_texts_and_numbers_beyond_a_line_of_the_journal_are_cut(plain: World) -> None:
    def perform(assignment: Assignment, _: Means) -> Generator[Part, None, Ending]:
        folder = os.open(assignment.directory, os.O_RDONLY)
        for _level in range(12):
            os.mkdir("\x01" * 250, dir_fd=folder)
            above, folder = folder, os.open("\x01" * 250, os.O_RDONLY, dir_fd=folder)
            os.close(above)
        for number in range(400):
            os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.close(folder)
        huge = "\x01" * 3_000_000
        yield Part(
            "tool",
            tool="t",
            text=huge,
            input=huge,
            output=huge,
            raw=huge,
            files=tuple("\x01" * 8000 + str(number) for number in range(2000)),
            exit_code=2**70,
            usage=Usage(2**70, -1),
        )
        return Ending("done", usage=Usage(3, 2**60))

    end = plain.run(lambda _: Saying(perform), max_turns=1, keep_raw=True)
    assert (end.reason, end.total_parts) == ("turn_limit", 1)
    (part,) = plain.trace().parts
    checkpoint = part.repo_checkpoint
    assert checkpoint is not None
    assert len(checkpoint.changed_files) + (checkpoint.more_files or 0) == 400
    assert part.tool_exit_code is None
    assert part.token_usage is not None
    assert (part.token_usage.input_tokens, part.token_usage.output_tokens) == (None, None)
    assert verify_trajectory(plain.places).problems == ()


def test_paths_that_are_too_long_to_be_copied_end_the_run_in_order(world: World) -> None:
    def perform(assignment: Assignment, _: Means) -> PARTS:
        (assignment.directory / "a").write_text("x")
        yield Part("text", text="x")

    def test(*_: object, **__: object) -> object:
        raise OSError(36, "File name too long")

    assert world.judge is not None
    world.judge.test = test  # type: ignore[method-assign, assignment]
    end = world.run(lambda _: Saying(perform), max_turns=1)
    assert end.reason == "envoi_error"
    assert end.detail.endswith("the files cannot be tested: File name too long")


def test_a_workspace_that_no_commit_can_hold_is_moved_away_and_gone_on_with(plain: World) -> None:
    def perform(assignment: Assignment, _: Means) -> PARTS:
        (assignment.directory / "a").write_text("1")
        yield Part("text", text="good")
        folder = os.open(assignment.directory, os.O_RDONLY)
        for _level in range(210):
            os.mkdir("d", dir_fd=folder)
            above, folder = folder, os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(above)
        os.close(folder)
        yield Part("text", text="too deep")

    assert plain.run(lambda _: Saying(perform)).reason == "agent_error"
    end = plain.resume(turns([], [{"shell": "cat a"}]), lambda plan: replace(plan, max_turns=2))
    assert (end.reason, end.total_parts) == ("turn_limit", 2)
    assert plain.trace().parts[1].tool_output == "1"
    aside = plain.places.directory / "unkept-after-part-1-0"
    assert sorted(os.listdir(aside)) == [".git", "a", "d"]
    remove_tree(aside)
    assert verify_trajectory(plain.places).problems == ()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("agent", "process:evil", "agent"), ("model", "other", "agent_model")],
)
def test_another_agent_does_not_go_on_under_the_recorded_name(
    plain: World, name: str, value: str, told: str
) -> None:
    plain.run(turns([{"text": "x"}]), max_turns=1)
    document = json.loads(plain.places.session.read_text())
    plain.places.session.write_text(json.dumps(document | {name: value}))
    before = plain.places.journal.read_bytes()
    with pytest.raises(EnvironmentFault) as caught:
        plain.resume(turns([], [{"text": "y"}]), lambda plan: replace(plan, max_turns=2))
    assert caught.value.rule == "trajectory.session"
    assert caught.value.message.endswith(f": {told}")
    assert plain.places.journal.read_bytes() == before


def test_a_key_in_the_command_line_of_an_agent_is_not_recorded(plain: World) -> None:
    key = "sk-on-the-command-line"
    plain.changes["redact"] = lambda text: text.replace(key, "[redacted]")
    plain.run(turns([{"text": key}]), max_turns=1, agent=f"acp:agent --key {key}")
    assert plain.trace().agent == "acp:agent --key [redacted]"
    assert key not in plain.places.document.read_text() + plain.places.journal.read_text()
    end = plain.resume(turns([], [{"text": "on"}]), lambda plan: replace(plan, max_turns=2))
    assert end.total_parts == 2


def test_a_key_in_the_name_of_a_file_is_not_recorded(plain: World) -> None:
    key = "sk-in-a-name"
    plain.changes["redact"] = lambda text: text.replace(key, "[redacted]")
    plain.run(turns([{"write": {f"{key}.txt": "x"}}]), max_turns=1)
    checkpoint = plain.trace().parts[0].repo_checkpoint
    assert checkpoint is not None
    assert checkpoint.changed_files == ("[redacted].txt",)
    assert [change.path for change in checkpoint.numstat] == ["[redacted].txt"]
    assert key not in plain.places.document.read_text() + plain.places.journal.read_text()
    assert verify_trajectory(plain.places).problems == ()


def test_codex_starts_from_below_our_home_which_is_hidden(plain: World) -> None:
    """That is where ``coilclaw agents install codex`` puts it."""
    program = plain.home / "agents" / "codex" / "bin" / "codex"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\ntouch started\n")
    program.chmod(0o755)
    runner = CodexRunner(executable=program, environ=dict(os.environ))
    end = plain.run(lambda _: runner, max_turns=1, network="allow", timeout_s=PATIENCE_S)
    assert end.reason == "agent_error"
    assert (plain.places.workspace / "started").exists()


def _object(git_dir: Path, kind: str, data: bytes) -> str:
    done = subprocess.run(
        [
            "git",
            "--git-dir",
            str(git_dir),
            "hash-object",
            "-w",
            "-t",
            kind,
            "--literally",
            "--stdin",
        ],
        input=data,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()
