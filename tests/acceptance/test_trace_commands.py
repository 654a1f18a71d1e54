"""``trace``, ``replay`` and ``graph_trace`` as a user runs them, with a scripted agent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import schemas
from tests.support.s3server import serving, why_not
from tests.support.sandboxes import UNCOVERED

ID = "recorded"
ENVIRONMENT = '''\
"""Three files that have to say ok."""
from coilclaw.environments.authoring import check, session_path, setup, suite

first = suite("first")
second = suite("second")


@setup
def build() -> None:
    check(not (session_path() / "broken").exists(), "it does not build")


def says_ok(name: str) -> None:
    file = session_path() / name
    check(file.is_file() and file.read_text() == "ok", f"{name} does not say ok")


@first.test
def one() -> None:
    says_ok("one")


@first.test
def two() -> None:
    says_ok("two")


@second.test
def three() -> None:
    says_ok("three")
'''
TURNS: list[list[dict[str, Any]]] = [
    [
        {"reasoning": "one file after the other"},
        {"write": {"one": "ok"}},
        {"write": {"broken": ""}},
        {"delete": ["broken"]},
        {"write": {"two": "ok"}},
        {"write": {"one": "oops"}},
        {"text": "done for now"},
    ],
    [{"write": {"three": "ok"}}, {"write": {"one": "ok"}}, {"run_tests": ""}],
]
LAUNCH = """\
import sys
program, *sys.argv[1:] = sys.argv[1:]
if program == "coilclaw":
    from coilclaw.cli.main import main
    sys.exit(main(sys.argv[1:]))
from importlib import import_module
import_module(f"coilclaw.cli.traces.{program}").main()
"""


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class World:
    """A home, a working directory, an environment and an agent's script."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def recorded(self) -> Path:
        return self.home / "trajectories" / ID

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-c", LAUNCH, *words]

    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "COILCLAW_HOME": str(self.home),
        }

    def __call__(self, *words: str, **more: str) -> Said:
        done = subprocess.run(
            self.argv(*words),
            cwd=self.folder,
            env={**self.environ(), **more},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def record(self, name: str, *more: str, **variables: str) -> Said:
        return self(
            "trace", "--agent", "scripted:agent.json", "--environment", "./task/main.py",
            "--trajectory-id", name, *more, **variables,
        )  # fmt: skip


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="coilclaw-trace-", dir=UNCOVERED))
    try:
        made = World(folder)
        made.home.mkdir(mode=0o700)
        (folder / "task").mkdir()
        (folder / "task" / "main.py").write_text(ENVIRONMENT)
        (folder / "task" / "task.md").write_text("Make three files that say ok.\n")
        (folder / "agent.json").write_text(json.dumps({"turns": TURNS}))
        said = made.record(ID)
        assert said.code == 0, said
        assert "TRAJECTORY_ID=recorded" in said.out
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_trace_prints_the_three_lines_first_and_how_it_ended_last(world: World) -> None:
    said = world.record("again", "--json")
    assert said.code == 0, said
    end = said.json()
    assert end["session_end"]["reason"] == "solved"
    assert end["artifacts_complete"] is True
    names = [line.partition("=")[0] for line in said.err.splitlines()[:3]]
    assert names == ["TRAJECTORY_ID", "TRACE_S3_URI", "BUNDLE_S3_URI"]
    assert Path(end["trace"]).is_file()
    assert Path(end["bundle"]).is_file()
    assert any(line.startswith("part 1 ") for line in said.err.splitlines())


def test_an_id_that_is_taken_or_unknown_is_refused(world: World) -> None:
    taken = world.record(ID)
    assert taken.code == 2
    assert "trajectory.exists" in taken.err
    for words in (
        ("graph_trace", "nobody"),
        ("coilclaw", "trace", "show", "nobody"),
        ("coilclaw", "trace", "verify", "nobody"),
        ("replay", "--trajectory-id", "nobody"),
        ("replay", "--trajectory-id", ID, "--store", str(world.folder / "elsewhere")),
    ):
        said = world(*words)
        assert (said.code, "trajectory.unknown" in said.err) == (2, True), said
    assert "trajectory.ambiguous" not in world("coilclaw", "trace", "show", ID[:5]).err
    strange = world("coilclaw", "trace", "show", "../keys")
    assert (strange.code, "trajectory.id" in strange.err) == (2, True)


def test_list_show_and_one_part(world: World) -> None:
    rows = world("coilclaw", "trace", "list", "--json").json()
    (row,) = [row for row in rows if row["trajectory_id"] == ID]
    assert (row["parts"], row["session_end"]["reason"]) == (10, "solved")
    shown = world("coilclaw", "trace", "show", ID)
    assert shown.code == 0
    assert "one file after the other" in shown.out
    part = world("coilclaw", "trace", "show", ID, "--part", "2", "--json").json()
    assert part["repo_checkpoint"]["changed_files"] == ["one"]
    beyond = world("coilclaw", "trace", "show", ID, "--part", "11")
    assert (beyond.code, "trajectory.part" in beyond.err) == (2, True)


def test_diff_between_two_parts(world: World) -> None:
    said = world("coilclaw", "trace", "diff", ID, "--from-part", "5", "--to-part", "6")
    assert said.code == 0
    assert "-ok" in said.out
    assert "+oops" in said.out
    stat = world("coilclaw", "trace", "diff", ID, "--stat").out
    assert "3 files changed" in stat


def test_replay_evaluates_each_tree_once_and_then_nothing(world: World) -> None:
    first = world("replay", "--mode", "evaluate", "--trajectory-id", ID, "--json", "--fresh").json()
    assert schemas.find_schema_problems("replay.v1", first) == ()
    for kept in (world.home / "evaluations").rglob("*.json"):
        assert schemas.find_schema_problems("evaluation.v1", json.loads(kept.read_bytes())) == ()
    passed = [row["evaluation"]["passed"] for row in first["part_evaluations"]]
    # Part 4 has the files of part 2 again.
    assert passed == [0, 1, 0, 1, 2, 1, 1, 2, 3, 3]
    assert first["judged"] == first["trees"] == 7
    assert len(first["part_to_commit"]) == 10
    broken = first["commit_evaluations"][first["part_to_commit"]["3"]]
    assert "it does not build" in broken["error"]
    assert [row["newly_broken"] for row in first["part_evaluations"]][5] == ["first/one"]
    second = world("replay", "--trajectory-id", ID, "--output", "out/again.json", "--json").json()
    assert second["judged"] == 0
    assert json.loads((world.folder / "out" / "again.json").read_text()) == second
    assert second["part_evaluations"] == first["part_evaluations"]


def test_a_replay_that_is_killed_goes_on_where_it_was(world: World) -> None:
    words = ("replay", "--trajectory-id", ID, "--test-path", "second", "--jobs", "1", "--json")
    kept = world.home / "evaluations"
    before = sum(1 for _ in kept.rglob("*.json"))
    process = subprocess.Popen(
        world.argv(*words), cwd=world.folder, env=world.environ(), stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and sum(1 for _ in kept.rglob("*.json")) < before + 2:
        time.sleep(0.01)
    process.kill()
    process.wait()
    done = sum(1 for _ in kept.rglob("*.json")) - before
    assert done >= 2
    report = world(*words).json()
    assert report["judged"] == 7 - done
    assert report["failed"] == 0
    assert list((world.home / "replays").iterdir()) == []


def test_replay_reads_the_store_and_files_and_pieces(world: World) -> None:
    store = world.home / "artifacts"
    kept = store / "trajectories" / ID
    by_store = world("replay", "--trajectory-id", ID, "--store", str(store), "--json")
    by_files = world("replay", "--trace", str(kept / "agent_trace.json"), "--json")
    by_pieces = world(
        "replay", "--trace", str(kept / "agent_trace.json"), "--bundle", str(kept / "bundles"),
        "--json",
    )  # fmt: skip
    reports = [said.json()["part_evaluations"] for said in (by_store, by_files, by_pieces)]
    assert reports[0] == reports[1] == reports[2]
    assert list((world.home / "replays").iterdir()) == []


def test_an_s3_server_serves_as_the_store(world: World, tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with serving(tmp_path) as server:
        bucket = {**server.environ(), "AWS_S3_BUCKET": server.bucket}
        said = world.record("afar", **bucket)
        assert said.code == 0, said
        trace = f"s3://{server.bucket}/trajectories/afar/agent_trace.json"
        assert f"TRACE_S3_URI={trace}" in said.out
        here = world("replay", "--trajectory-id", "afar", "--json").json()
        shutil.rmtree(world.home / "trajectories" / "afar")
        # Nobody here knows any more that it was recorded with this file, whose code is run.
        unnamed = world("replay", "--trajectory-id", "afar", "--json", **bucket)
        assert (unnamed.code, unnamed.json()["rule"]) == (2, "replay.environment")
        named = ("--environment", "./task/main.py")
        by_id = world("replay", "--trajectory-id", "afar", *named, "--json", **bucket)
        by_address = world("replay", "--trace", trace, *named, "--json", **bucket)
        for report in (by_id.json(), by_address.json()):
            assert report["part_evaluations"] == here["part_evaluations"]
        drawn = world("graph_trace", "afar", *named, "--output", "afar", **bucket)
        assert drawn.code == 0, drawn


def test_replay_wants_one_source_and_a_part(world: World) -> None:
    assert "usage.source" in world("replay").err
    assert "usage.source" in world("replay", "--trajectory-id", ID, "--trace", "x").err
    assert "usage.part" in world("replay", "--mode", "checkout-part", "--trajectory-id", ID).err
    assert "usage.part" in world("replay", "--trajectory-id", ID, "--part", "3").err
    taken = world("replay", "--trajectory-id", ID, "--output", str(world.folder))
    assert (taken.code, "replay.output" in taken.err) == (2, True)
    missing = world("replay", "--trajectory-id", ID, "--test-path", "first/nothing")
    assert missing.code == 2, missing


def test_a_part_is_checked_out_as_a_repository(world: World) -> None:
    said = world(
        "replay", "--mode", "checkout-part", "--trajectory-id", ID, "--part", "6",
        "--checkout-dest", "at6", "--output", "at6.json", "--json",
    )  # fmt: skip
    record = said.json()
    assert record == json.loads((world.folder / "at6.json").read_text())
    assert schemas.find_schema_problems("replay.v1", record) == ()
    assert (world.folder / "at6" / "one").read_text() == "oops"
    head = subprocess.run(
        ["git", "log", "-1", "--format=%H"],
        cwd=world.folder / "at6",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert head == record["commit"]
    again = world("graph_trace", ID, "--part", "6", "--checkout-dest", "at6")
    assert (again.code, "replay.destination" in again.err) == (2, True)


def test_graph_trace_writes_figures_pictures_and_the_report(world: World) -> None:
    said = world("graph_trace", ID, "--output", "graphs")
    assert said.code == 0, said
    assert "part 6 broke first/one" in said.out
    base = world.folder / "graphs" / f"graph_trace_{ID}"
    begins = {".svg": b"<?xml", ".png": b"\x89PNG", ".html": b"<!doctype html>", ".json": b"{"}
    for form, start in begins.items():
        assert base.with_suffix(form).read_bytes().startswith(start), form
    figures = json.loads(base.with_suffix(".json").read_text())
    assert figures["regressions"] == [3, 6]
    assert schemas.find_schema_problems("graph_trace.v1", figures) == ()
    analyzed = world("replay", "--mode", "analyze", "--trajectory-id", ID, "--output", "a.json")
    assert analyzed.code == 0, analyzed
    assert json.loads((world.folder / "a.json").read_text()) == figures


def test_bisect_names_the_part_and_shows_what_it_changed(world: World) -> None:
    said = world("coilclaw", "trace", "bisect", ID, "--case", "first/one")
    assert said.code == 0, said
    assert "part 6 broke it" in said.out
    assert "+oops" in said.out
    found = world(
        "coilclaw", "trace", "bisect", ID, "--case", "first/one", "--from-part", "2",
        "--to-part", "3", "--json",
    ).json()  # fmt: skip
    assert (found["outcome"], found["part"]) == ("broke", 3)
    wrong = world("coilclaw", "trace", "bisect", ID, "--case", "first/nine")
    assert wrong.code == 2, wrong


def test_compare_and_export(world: World) -> None:
    twice = world("coilclaw", "trace", "compare", ID, ID, "--json")
    said = twice.json()
    assert "is given more than once" in twice.err
    assert [one["trajectory_id"] for one in said["trajectories"]] == [ID]
    assert said["trajectories"][0]["final"] == {"passed": 3, "total": 3}
    assert (said["comparable"], said["fastest"]) == (False, {})
    shown = world("coilclaw", "trace", "compare", ID)
    assert "100 % passed" in shown.out
    assert "needs at least two trajectories" in shown.err
    missing = world("coilclaw", "trace", "compare", ID, "nobody")
    assert (missing.code, missing.out) == (2, "")
    for form in ("tar", "jsonl", "csv", "sqlite"):
        more = ("--evaluate",) if form == "sqlite" else ()
        done = world("coilclaw", "trace", "export", ID, "--format", form, *more)
        assert done.code == 0, done
        assert (world.folder / f"{ID}.{form}").stat().st_size > 0
    connection = sqlite3.connect(world.folder / f"{ID}.sqlite")
    try:
        rows = connection.execute(
            "SELECT status FROM statuses WHERE case_id = 'first/one' ORDER BY part"
        ).fetchall()
    finally:
        connection.close()
    assert [status for (status,) in rows] == [
        *("failed", "passed", "failed", "passed", "passed"),
        *("failed", "failed", "failed", "passed", "passed"),
    ]


def test_verify_finds_what_is_missing(world: World) -> None:
    whole = world("coilclaw", "trace", "verify", ID)
    assert whole.code == 0, whole
    copy = World(world.folder / "copy")
    shutil.copytree(world.recorded, copy.recorded, symlinks=True)
    shutil.copytree(world.home / "keys", copy.home / "keys")
    assert copy("coilclaw", "trace", "verify", ID).code == 0
    trace = copy.recorded / "agent_trace.json"
    trace.write_bytes(trace.read_bytes().replace(b"one file after", b"two file after"))
    forged = copy("coilclaw", "trace", "verify", ID, "--json")
    assert (forged.code, forged.json()["status"]) == (1, "fail")


def test_a_budget_ends_it_and_resume_goes_on(world: World) -> None:
    short = world.record("short", "--max-parts", "4")
    assert short.code == 1, short
    assert "part_limit" in short.out
    changed = world(
        "trace", "--resume", "--trajectory-id", "short", "--model", "another", "--max-parts", "99"
    )
    assert (changed.code, "usage.resume" in changed.err) == (2, True)
    rest = world("trace", "--resume", "--trajectory-id", "short", "--max-parts", "99", "--json")
    end = rest.json()["session_end"]
    assert end["total_parts"] > 4
    assert world("coilclaw", "trace", "verify", "short").code == 0


def test_what_lies_in_a_store_is_checked_out_and_gone_on_with_there(world: World) -> None:
    store = world.folder / "elsewhere"
    assert world.record("kept", "--max-parts", "4", "--store", str(store)).code == 1
    shutil.rmtree(world.home / "replays", ignore_errors=True)
    recorded = world.home / "trajectories" / "kept"
    recorded.rename(recorded.with_name("aside"))
    out = world(
        "replay", "--mode", "checkout-part", "--trajectory-id", "kept", "--store", str(store),
        "--part", "2", "--checkout-dest", "there",
    )  # fmt: skip
    assert out.code == 0, out
    assert (world.folder / "there" / "one").read_text() == "ok"
    recorded.with_name("aside").rename(recorded)
    done = subprocess.run(
        world.argv("trace", "--resume", "--trajectory-id", "kept", "--max-parts", "99", "--json"),
        cwd="/",
        env=world.environ(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    end = json.loads(done.stdout)["session_end"]
    trace = json.loads((store / "trajectories/kept/agent_trace.json").read_text())
    assert len(trace["parts"]) == end["total_parts"] > 4
    assert not (world.home / "artifacts/trajectories/kept").exists()


def test_a_signal_ends_it_with_everything_recorded(world: World) -> None:
    turns = [[{"write": {"one": "ok"}}, {"sleep_s": 120}, {"text": "never"}]]
    (world.folder / "slow.json").write_text(json.dumps({"turns": turns}))
    process = subprocess.Popen(
        world.argv(
            "trace", "--agent", "scripted:slow.json", "--environment", "./task/main.py",
            "--trajectory-id", "slow", "--json",
        ),
        cwd=world.folder,
        env=world.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("part 1 "):
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 3, out
    assert json.loads(out)["session_end"]["reason"] == "interrupted"
    assert world("coilclaw", "trace", "verify", "slow").code == 0


def test_detached_it_goes_on_without_the_terminal(world: World) -> None:
    turns = [[{"write": {"one": "ok"}}, {"sleep_s": 120}]]
    (world.folder / "long.json").write_text(json.dumps({"turns": turns}))
    words = ("--agent", "scripted:long.json", "--detach", "--preemptible")
    said = world("trace", *words, "--environment", "./task/main.py", "--trajectory-id", "behind")
    assert said.code == 0, said
    assert said.out.splitlines()[0] == "TRAJECTORY_ID=behind"
    places = world.home / "trajectories" / "behind"
    pid = int((places / "recorder.pid").read_text())
    assert f"continues in the background as process {pid};" in said.err
    assert str(places / "run.log") in said.err
    # It is recording already when the command returns, in a session of its own.
    assert (places / "parts.jsonl").stat().st_size > 0
    assert os.getsid(pid) == pid
    shown = world("coilclaw", "trace", "show", "behind", "--json").json()
    assert shown["recorder"] == {"pid": pid}
    assert f"process {pid} is recording" in world("coilclaw", "trace", "show", "behind").out
    for more in ((), ("--detach",)):
        busy = world("trace", "--resume", "--trajectory-id", "behind", *more)
        assert (busy.code, busy.out, "trajectory.busy" in busy.err) == (5, "", True), busy
    os.kill(pid, signal.SIGTERM)
    log = places / "run.log"
    until = time.monotonic() + 60
    while time.monotonic() < until and "ended: " not in log.read_text():
        time.sleep(0.05)
    assert "ended: interrupted" in log.read_text()
    assert "\x1b" not in log.read_text()
    assert world("coilclaw", "trace", "verify", "behind").code == 0
    assert world("coilclaw", "trace", "show", "behind", "--json").json()["recorder"] is None


def test_detached_it_says_why_it_does_not_begin(world: World) -> None:
    taken = world.record(ID, "--detach")
    assert (taken.code, taken.out, "trajectory.exists" in taken.err) == (2, "", True), taken
    missing = world(
        "trace", "--agent", "opencode", "--environment", "./task/main.py", "--detach",
        "--trajectory-id", "none",
    )  # fmt: skip
    assert (missing.code, missing.out) == (2, ""), missing
    assert "coilclaw agents install opencode" in missing.err
    assert not (world.home / "trajectories" / "none").exists()


def test_a_document_or_a_repository_that_is_lost_is_made_up_for(world: World) -> None:
    copy = World(world.folder / "lost")
    shutil.copytree(world.recorded, copy.recorded, symlinks=True)
    whole = copy.recorded / "agent_trace.json"
    data = whole.read_bytes()
    shutil.rmtree(copy.recorded / "repo.git")
    for left in (data[:-100], b"{", None):
        whole.unlink()
        if left is not None:
            whole.write_bytes(left)
        (row,) = copy("coilclaw", "trace", "list", "--json").json()
        assert (row["parts"], row["session_end"]["reason"]) == (10, "solved")
    stat = copy("coilclaw", "trace", "diff", ID, "--stat")
    assert "3 files changed" in stat.out, stat
    shutil.rmtree(copy.recorded / "bundles")
    assert "3 files changed" in copy("coilclaw", "trace", "diff", ID, "--stat").out
    (copy.recorded / "repo.bundle").unlink()
    gone = copy("coilclaw", "trace", "diff", ID, "--stat")
    assert (gone.code, "replay.commit" in gone.err) == (5, True)
