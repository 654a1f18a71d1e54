"""What recording a trajectory costs: a part early and late, and a checkpoint against git's own."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measurement import Measurement
from bench.snapshot_bench import _build, _git, _seconds
from coilclaw.kernel.messages import Part
from coilclaw.traces.trajectory.checkpoints import Checkpoints
from coilclaw.traces.trajectory.opened_trajectory import TrajectoryOpening
from coilclaw.traces.trajectory.plan import TracePlaces, TrajectoryPlan
from coilclaw.traces.trajectory.recorder import Clock, Publisher, Recorder
from coilclaw.traces.trajectory.test_harness import SuiteHarness, SuiteStanding
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.snapshot.stat_cache import MARGIN_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.traces.trajectory.opened_trajectory import Opened

EARLY, LATE, AROUND = 100, 10_000, 80
PART_TARGET = 1.3
ROUNDS = 9
LOOKED_TARGET = 1.2
NAMED_TARGET = 0.5
CONTENT = "what was said, thought and printed " * 20


def _recorder(places: TracePlaces, opened: Opened) -> Recorder:
    clock = Clock(lambda: datetime.now(UTC), time.monotonic)
    bench = SuiteHarness(
        None,
        opened.checkpoints.files_of,
        places.results,
        standing=SuiteStanding(()),
        tree=opened.checkpoints.tree,
        stamp=clock.stamp,
        cancel=Cancellation(),
        redact=str,
    )
    return Recorder(
        places,
        opened.history,
        opened.journal,
        opened.document,
        opened.checkpoints,
        bench,
        Publisher(places),
        clock,
        str,
    )


@contextmanager
def _recording(home: Path, name: str) -> Iterator[Recorder]:
    """A trajectory in the middle of a turn."""
    places = TracePlaces(home, name)
    opening = TrajectoryOpening(
        places, stamp=lambda: "2026-01-01T00:00:00.000000Z", seconds=lambda: 1
    )
    plan = TrajectoryPlan(trajectory_id=name, agent="bench", max_parts=LATE + AROUND)
    with opening.begin(plan) as opened:
        recorder = _recorder(places, opened)
        recorder.begin_turn("measure")
        yield recorder


def _parts(home: Path) -> Measurement:
    """Record a part that changes nothing, in turn behind few parts and behind many."""
    part = Part("text", text=CONTENT)
    early, late = [], []
    with _recording(home, "few") as few, _recording(home, "many") as many:
        for recorder, count in ((few, EARLY), (many, LATE)):
            for _ in range(count - AROUND // 2):
                recorder.part(part)
        # Interleaved, so that whatever else the machine does falls on both alike.
        for _ in range(AROUND):
            early.append(_seconds(lambda: few.part(part)))
            late.append(_seconds(lambda: many.part(part)))
    before, after = statistics.median(early), statistics.median(late)
    return Measurement(
        f"recording part {LATE:,} / part {EARLY}",
        after / before,
        f"<= {PART_TARGET:g}",
        after / before <= PART_TARGET,
        f"{after * 1e3:.2f} ms against {before * 1e3:.2f} ms",
    )


def _checkpoints(place: Path) -> list[Measurement]:
    root = place / "tree"
    _build(root)
    _git(root / ".git", root, "init", "-q")
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@example.invalid")

    def committed() -> None:
        _git(root / ".git", root, "add", "-A")
        _git(root / ".git", root, *who, "commit", "-q", "-m", "checkpoint")

    committed()
    ours = Checkpoints(place / "repo.git", root, seconds=lambda: 1)
    ours.begin()
    # Files that were touched a moment ago are read again, by us and by git.
    time.sleep(MARGIN_NS / 1e9 + 0.1)
    ours.tree()
    files = sorted(root.glob("area*/part*/*.txt"))
    chance = random.Random(3)

    def changed() -> list[str]:
        chosen = chance.sample(files, 3)
        for path in chosen:
            path.write_bytes(os.urandom(1000).hex().encode("ascii"))
        return [str(path.relative_to(root)) for path in chosen]

    looked, named, theirs = [], [], []
    for _ in range(ROUNDS):
        changed()
        looked.append(_seconds(lambda: ours.take("checkpoint")))
        theirs.append(_seconds(committed))
        paths = changed()
        named.append(_seconds(lambda: ours.take("checkpoint", paths)))  # noqa: B023 - called here
        theirs.append(_seconds(committed))
    return [
        _compared("checkpoint", looked, theirs, LOOKED_TARGET),
        _compared("checkpoint, paths named", named, theirs, NAMED_TARGET),
    ]


def _compared(name: str, ours: list[float], theirs: list[float], target: float) -> Measurement:
    mine, git = statistics.median(ours), statistics.median(theirs)
    detail = f"{mine * 1e3:.0f} ms against {git * 1e3:.0f} ms, 3 of 20,000 files"
    ratio = mine / git
    return Measurement(
        f"{name} / git add + commit", ratio, f"<= {target:g}", ratio <= target, detail
    )


def run() -> list[Measurement]:
    """Measure both."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "home").mkdir()
        return [_parts(place / "home"), *_checkpoints(place)]
