"""A trajectory is gone on with on another machine, which has nothing of it but the store."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.app.drivers import open_tracing
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, UsageError
from coilclaw.traces import stored_trajectory
from coilclaw.traces.archive import TrajectoryArchive
from coilclaw.traces.stored_trajectory import verify_stored
from coilclaw.traces.trace_session import TraceOptions, Tracing
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan
from coilclaw.traces.trajectory.trace import Trace, load_trace
from coilclaw.traces.trajectory.verification import verify_trajectory
from tests.acceptance.test_trace_commands import ENVIRONMENT, TURNS
from tests.support.children import PATIENCE_S
from tests.support.s3server import serving, why_not
from tests.support.sandboxes import UNCOVERED

ID = "wanders"
LIMIT = 5
PATH = {"PATH": "/usr/bin:/bin"}


@dataclass(frozen=True)
class Earth:
    """Machines that share a store, an environment and a script, and nothing else."""

    folder: Path
    store: str
    environ: dict[str, str]

    def machine(self, name: str, **more: Any) -> Tracing:
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        return open_tracing(home, self.environ, self.folder, store_at=self.store, **more)

    def wishes(self, **more: Any) -> TraceOptions:
        made = TraceOptions(
            agent="scripted:agent.json",
            environment="./task/main.py",
            trajectory_id=ID,
            max_parts=LIMIT,
        )
        return replace(made, **more)

    @property
    def kept(self) -> Path:
        return Path(self.store) / "trajectories" / ID

    def begun(self) -> Trace:
        """The first machine records some parts, and is gone."""
        first = self.machine("first")
        assert first.run(first.plan(self.wishes())).end.reason == "part_limit"
        made = load_trace(TracePlaces(first.home, ID).document)
        shutil.rmtree(first.home)
        return made


def further(plan: TrajectoryPlan) -> TrajectoryPlan:
    return replace(plan, max_parts=99)


@pytest.fixture
def earth() -> Iterator[Earth]:
    folder = Path(tempfile.mkdtemp(prefix="coilclaw-elsewhere-", dir=UNCOVERED))
    try:
        (folder / "task").mkdir()
        (folder / "task" / "main.py").write_text(ENVIRONMENT)
        (folder / "task" / "task.md").write_text("Make three files that say ok.\n")
        (folder / "agent.json").write_text(json.dumps({"turns": TURNS}))
        yield Earth(folder, str(folder / "store"), dict(PATH))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def goes_on(earth: Earth) -> None:
    before = earth.begun()
    second = earth.machine("second")
    ready = second.resumable(ID, further)
    places = TracePlaces(second.home, ID)
    assert ready.brought is not None
    assert (ready.brought.history.parts, ready.brought.left_out) == (LIMIT, 0)
    workspace = {path.name for path in places.workspace.iterdir()}
    assert workspace == {".git", "one", "two"}
    outcome = second.resume(ID, ready=ready)
    assert (outcome.end.reason, outcome.uploads.complete) == ("solved", True)
    trace = load_trace(places.document)
    assert trace.parts[:LIMIT] == before.parts
    assert [part.part for part in trace.parts] == list(range(1, len(trace.parts) + 1))
    assert trace.parts[LIMIT].elapsed_ms >= before.parts[-1].elapsed_ms
    assert [one.after_part for one in trace.resumptions] == [LIMIT]
    assert [one.leftover for one in trace.resumptions] == [None]
    assert trace.started_at == before.started_at
    assert verify_trajectory(places).problems == ()
    archive = TrajectoryArchive(earth.machine("third").home, earth.environ, earth.store)
    assert archive.trace(ID) == trace
    assert verify_stored(archive, ID).problems == ()
    with pytest.raises(UsageError, match="is solved"):
        earth.machine("fourth").resumable(ID)
    assert not (earth.folder / "fourth" / "trajectories").exists()


def test_it_goes_on_from_a_directory(earth: Earth) -> None:
    goes_on(earth)


def test_it_goes_on_from_a_bucket(earth: Earth, tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with serving(tmp_path) as server:
        environ = {**PATH, **server.environ()}
        goes_on(Earth(earth.folder, f"s3://{server.bucket}/below", environ))
        nowhere = Earth(earth.folder, "s3://no-such-bucket-here", environ).machine("fifth")
        with pytest.raises(EnvironmentFault) as refused:
            nowhere.resumable(ID)
        assert refused.value.rule == "artifact.bucket"


def test_of_two_machines_that_go_on_at_once_the_second_is_stopped(earth: Earth) -> None:
    earth.begun()
    second, third = earth.machine("second"), earth.machine("third")
    both = second.resumable(ID, further), third.resumable(ID, further)
    assert second.resume(ID, ready=both[0]).end.reason == "solved"
    stored = (earth.kept / "parts.jsonl").read_bytes()
    with pytest.raises(EnvironmentFault, match="recorded on another machine") as refused:
        third.resume(ID, ready=both[1])
    assert refused.value.rule == "trajectory.elsewhere"
    assert not TracePlaces(third.home, ID).directory.exists()
    assert (earth.kept / "parts.jsonl").read_bytes() == stored


def settle(tracing: Tracing, earth: Earth) -> None:
    """Wait until the store has what there is, so that it is known who will be second."""
    here = TracePlaces(tracing.home, ID).directory
    until = time.monotonic() + PATIENCE_S
    for name in ("parts.jsonl", "parts.jsonl.anchor", "agent_trace.json"):
        stored = earth.kept / name
        while not stored.is_file() or stored.read_bytes() != (here / name).read_bytes():
            assert time.monotonic() < until, name
            time.sleep(0.02)


def test_a_machine_that_still_records_ends_when_another_goes_on(earth: Earth) -> None:
    parts = [{"text": "a"}, {"write": {"one": "ok"}}, {"text": "b"}, {"sleep_s": 120}]
    turns = [[*parts, {"text": "never"}]]
    (earth.folder / "agent.json").write_text(json.dumps({"turns": turns}))
    first = earth.machine("first")
    plan = first.plan(earth.wishes(max_parts=99))

    def on_part(part: Any) -> None:
        if part.part == 2:
            settle(first, earth)
            second = earth.machine("second")
            end = second.resume(ID, ready=second.resumable(ID, lambda p: replace(p, max_parts=1)))
            assert end.end.reason == "part_limit"

    first.on_part = on_part
    end = first.run(plan).end
    assert end.reason == "interrupted"
    assert "recorded on another machine" in end.detail
    assert verify_trajectory(TracePlaces(first.home, ID)).problems == ()
    with pytest.raises(EnvironmentFault, match="resumed elsewhere"):
        earth.machine("first").resumable(ID, further)


def forged(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def edited_line(kept: Path) -> None:
    path = kept / "parts.jsonl"
    path.write_bytes(path.read_bytes().replace(b"one file after", b"two file after"))


def removed_line(kept: Path) -> None:
    path = kept / "parts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))


def cut_piece(kept: Path) -> None:
    path = kept / "bundles" / "3.bundle"
    path.write_bytes(path.read_bytes()[:-30])


def edited_result(kept: Path) -> None:
    (path,) = (kept / "results").iterdir()
    path.write_bytes(path.read_bytes() + b" ")


HOSTILE: dict[str, Callable[[Path], object]] = {
    "edited line": edited_line,
    "removed line": removed_line,
    "empty journal": lambda kept: (kept / "parts.jsonl").write_bytes(b""),
    "no journal": lambda kept: (kept / "parts.jsonl").unlink(),
    "journal of other bytes": lambda kept: (kept / "parts.jsonl").write_bytes(b"\xff{]\n" * 9),
    "cut piece": cut_piece,
    "piece in the middle gone": lambda kept: (kept / "bundles" / "3.bundle").unlink(),
    "edited result": edited_result,
    "no session": lambda kept: (kept / "session.json").unlink(),
    "session of another": lambda kept: forged(
        kept / "session.json", lambda d: d.update(trajectory_id="other")
    ),
    "session that climbs": lambda kept: forged(
        kept / "session.json", lambda d: d.update(trajectory_id="../../x")
    ),
    "trace of another": lambda kept: forged(
        kept / "agent_trace.json", lambda d: d["parts"][1].update(part_hash="0" * 64)
    ),
    "trace that is none": lambda kept: (kept / "agent_trace.json").write_bytes(b"[]"),
}


def complaint(archive: TrajectoryArchive) -> str:
    """What ``verify`` has to say of the store."""
    try:
        return " ".join(verify_stored(archive, ID).problems)
    except CoilClawError as problem:
        return problem.message


def test_what_is_wrong_in_the_store_is_refused_and_nothing_is_made(earth: Earth) -> None:
    earth.begun()
    whole = earth.kept.with_name("whole")
    earth.kept.rename(whole)
    archive = TrajectoryArchive(earth.machine("looks").home, earth.environ, earth.store)
    for name, harm in HOSTILE.items():
        shutil.rmtree(earth.kept, ignore_errors=True)
        shutil.copytree(whole, earth.kept)
        (earth.kept / "repo.bundle").unlink()
        harm(earth.kept)
        second = earth.machine("second")
        with pytest.raises(CoilClawError) as refused:
            second.resumable(ID, further)
        assert not TracePlaces(second.home, ID).directory.exists(), name
        assert list((second.home / "replays").iterdir()) == [], name
        assert refused.value.rule.split(".")[0] in {"trajectory", "trace"}, name
        assert complaint(archive), name


def test_what_did_not_reach_the_store_is_said_and_kept(earth: Earth) -> None:
    before = earth.begun()
    (earth.kept / "repo.bundle").unlink()
    (earth.kept / "bundles" / "5.bundle").unlink()
    stored = (earth.kept / "parts.jsonl").read_bytes()
    second = earth.machine("second")
    ready = second.resumable(ID, further)
    assert ready.brought is not None
    assert (ready.brought.history.parts, ready.brought.left_out) == (4, 1)
    places = TracePlaces(second.home, ID)
    assert (places.directory / stored_trajectory.AHEAD).read_bytes() == stored
    assert stored.startswith(places.journal.read_bytes())
    assert second.resume(ID, ready=ready).uploads.complete
    trace = load_trace(places.document)
    assert trace.parts[:4] == before.parts[:4]
    assert verify_trajectory(places).problems == ()
    archive = TrajectoryArchive(earth.machine("third").home, earth.environ, earth.store)
    assert verify_stored(archive, ID).problems == ()


def test_the_environment_may_be_elsewhere_but_not_another(earth: Earth) -> None:
    earth.begun()
    (earth.folder / "task").rename(earth.folder / "moved")
    with pytest.raises(UsageError) as refused:
        earth.machine("second").resumable(ID, further)
    assert "--environment" in str(refused.value.hint)
    (earth.folder / "other").mkdir()
    (earth.folder / "other" / "main.py").write_text(ENVIRONMENT + "\n# changed\n")
    with pytest.raises(UsageError, match="is not the one that trajectory"):
        earth.machine("second").resumable(ID, further, "./other/main.py")
    assert not (earth.folder / "second" / "trajectories").exists()
    second = earth.machine("second")
    ready = second.resumable(ID, further, "./moved/main.py")
    assert second.resume(ID, ready=ready).end.reason == "solved"
    with pytest.raises(UsageError, match="--environment cannot change"):
        earth.machine("second").resumable(ID, further, "./moved/main.py")


def test_the_agent_has_to_be_here(earth: Earth) -> None:
    earth.begun()
    (earth.folder / "agent.json").rename(earth.folder / "gone.json")
    with pytest.raises(UsageError, match="cannot read the script"):
        earth.machine("second").resumable(ID, further)
    assert not (earth.folder / "second" / "trajectories").exists()
