"""``coilclaw demo trace``: a scripted agent recorded part by part, then judged, drawn, bisected."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli import demotracestory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.app.replaywiring import Archive
    from coilclaw.cli.console import Console
    from coilclaw.trajectory.bisecting import Bisection
    from coilclaw.trajectory.graphdata import Graph

PLACE: Final = "/var/tmp"  # noqa: S108 - a directory of its own is made there; sandboxes cover /tmp
ENVIRONMENT: Final = "kv_store"
NAME: Final = "demo"


def run(console: Console, *, keep: bool) -> int:
    """Record a trajectory, prove it, judge every state of the files, and find the mistake."""
    from coilclaw.cli.dispatch import DONE, FAILED

    with _folder(keep=keep) as folder:
        good = _play(folder, console)
        if keep:
            console.print()
            console.print(f"everything is kept in {folder}; the report is")
            console.print(f"  {folder}/output/graph_trace_{NAME}.html")
            console.print(f"look around:  COILCLAW_HOME={folder}/home coilclaw trace show {NAME}")
    if not good:
        console.error("the demo did not do what it shows", rule="demo.failed")
        return FAILED
    console.print()
    console.print("With a real agent:  ./scripts/run.sh trace run --agent codex --max-parts 100")
    return DONE


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    place = PLACE if os.access(PLACE, os.W_OK | os.X_OK) else None
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="coilclaw-demo-", dir=place)))
    try:
        yield folder
    finally:
        if not keep:
            from coilclaw.workspace.removal import remove_tree

            remove_tree(folder)


def _play(folder: Path, console: Console) -> bool:
    from coilclaw.app.replaywiring import Archive

    home = folder / "home"
    home.mkdir(mode=0o700)
    if not _recorded(folder, home, console):
        return False
    archive = Archive(home, {})
    return all((_verified(archive, console), _studied(archive, folder, console)))


def _recorded(folder: Path, home: Path, console: Console) -> bool:
    from coilclaw.app.tracewiring import Tracing, Wishes
    from coilclaw.cli.tracerun import Progress

    _title(console, "1. An agent builds a key-value store, and every part of its work is recorded")
    (folder / "agent.json").write_text(json.dumps({"turns": demotracestory.TURNS}))
    # Where this Python is, so that the store finds one whatever the caller's PATH holds.
    python = os.path.dirname(os.path.realpath(sys.executable))
    search = os.pathsep.join((python, os.environ.get("PATH", os.defpath)))
    progress = Progress(console)
    tracing = Tracing(
        home,
        {"PATH": search, "HOME": str(folder / "user")},
        folder,
        on_part=progress.part,
        on_turn=progress.turn,
    )
    plan = tracing.plan(
        Wishes(agent="scripted:agent.json", environment=ENVIRONMENT, trajectory_id=NAME)
    )
    with closing(progress):
        outcome = tracing.run(plan)
    end = outcome.end
    good = end.reason == "solved" and outcome.uploads.complete
    console.print(
        f"ended: {end.reason}, after {end.total_parts} parts in {end.total_turns} turns",
        "green" if good else "red",
    )
    return good


def _verified(archive: Archive, console: Console) -> bool:
    from coilclaw.trajectory.places import Places
    from coilclaw.trajectory.verifying import verify

    _title(console, "2. The record is whole: journal, document, bundle and results agree")
    with archive.scratch() as scratch:
        found = verify(Places(archive.home, NAME), scratch=scratch / "verifying.git")
    for problem in found.problems:
        console.print(problem, "red")
    console.print(
        f"{found.parts} parts, {found.commits} commits, {found.results} results",
        "green" if found.ok else "red",
    )
    return found.ok


def _studied(archive: Archive, folder: Path, console: Console) -> bool:
    """Judge, draw and bisect; whether it all says what is known to be true."""
    from coilclaw.cli.graphtrace import show_table, write_all
    from coilclaw.trajectory.bisecting import bisect
    from coilclaw.trajectory.evaluation import evaluate
    from coilclaw.trajectory.graphdata import graph_of

    _title(console, "3. graph_trace: every distinct state of the files, judged once")
    with archive.open(NAME) as recording, archive.scratch() as scratch:
        court = archive.court(recording, scratch=scratch)
        evaluation = evaluate(recording, court)
        graph = graph_of(evaluation)
        show_table(graph, console)
        again = evaluate(recording, court)
        console.print(
            f"{len(recording.trace.parts)} parts, {evaluation.judged} judged; "
            f"a second time: {again.judged}"
        )
        written = write_all(graph, folder / "output", archive.home)
        console.print(f"written: {', '.join(path.name for path in written)}")
        _title(console, f"4. trace bisect --case {demotracestory.CASE}")
        found = bisect(recording, court, demotracestory.CASE)
        from coilclaw.cli.tracestudy import show_bisection

        show_bisection(recording, found, console)
    return not again.judged and _as_told(graph, found)


def _as_told(graph: Graph, found: Bisection) -> bool:
    """Whether the one mistake of the story was found, at its part, and everything passes."""
    last = graph.points[-1].score
    return (
        last is not None
        and last.passed == last.total
        and demotracestory.CASE in graph.points[demotracestory.MISTAKE - 1].change.newly_broken
        and [point.part for point in graph.regressions] == [demotracestory.MISTAKE]
        and (found.outcome, found.part) == ("broke", demotracestory.MISTAKE)
    )


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(text, "bold")
    console.out.flush()
