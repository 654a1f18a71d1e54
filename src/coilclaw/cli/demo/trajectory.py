"""``coilclaw demo trace``: record a scripted agent, then evaluate, plot and bisect it."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.demo.stage import conclude, load_story, minimal_environ, open_folder, print_title

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.cli.command import Console
    from coilclaw.traces import TrajectoryArchive

ENVIRONMENT: Final = "kv_store"
NAME: Final = "demo"


def run(console: Console, *, keep: bool) -> int:
    """Record a trajectory, verify it, evaluate every state of the files, and find the mistake."""
    from coilclaw.traces import TrajectoryArchive

    story = load_story("trace")
    with open_folder(keep=keep) as folder:
        home = folder / "home"
        home.mkdir(mode=0o700)
        good = _record(folder, story, console)
        if good:
            archive = TrajectoryArchive(home, {})
            verified = _verify(archive, console)
            good = _study(archive, folder, story, console) and verified
        if keep:
            console.print()
            console.print(f"all files are kept in {folder}; the report is")
            console.print(f"  {folder}/output/graph_trace_{NAME}.html")
            console.print(f"look around:  COILCLAW_HOME={folder}/home coilclaw trace show {NAME}")
    hint = "With a real agent:  ./scripts/run.sh trace run --agent codex --max-parts 100"
    return conclude(console, hint, good=good)


def _record(folder: Path, story: dict[str, Any], console: Console) -> bool:
    from coilclaw.app import open_tracing
    from coilclaw.cli.traces.trace_run import TraceProgress
    from coilclaw.traces import TraceOptions

    print_title(
        console, "1. An agent builds a key-value store, and every part of its work is recorded"
    )
    script = {"turns": [turn["part"] for turn in story["turn"]]}
    (folder / "agent.json").write_text(json.dumps(script))
    progress = TraceProgress(console)
    tracing = open_tracing(
        folder / "home",
        minimal_environ(folder),
        folder,
        on_part=progress.part,
        on_turn=progress.turn,
    )
    plan = tracing.plan(
        TraceOptions(agent="scripted:agent.json", environment=ENVIRONMENT, trajectory_id=NAME)
    )
    with closing(progress):
        outcome = tracing.run(plan)
    end = outcome.end
    good = end.reason == "solved" and outcome.uploads.complete
    said = f"ended: {end.reason}, after {end.total_parts} parts in {end.total_turns} turns"
    console.print(said, "green" if good else "red")
    return good


def _verify(archive: TrajectoryArchive, console: Console) -> bool:
    from coilclaw.traces import TracePlaces, verify_trajectory

    print_title(console, "2. The record is complete: journal, document, bundle and results agree")
    with archive.scratch() as scratch:
        found = verify_trajectory(
            TracePlaces(archive.home, NAME), scratch=scratch / "verifying.git"
        )
    for problem in found.problems:
        console.print(problem, "red")
    said = f"{found.parts} parts, {found.commits} commits, {found.results} results"
    console.print(said, "green" if found.ok else "red")
    return found.ok


def _study(
    archive: TrajectoryArchive, folder: Path, story: dict[str, Any], console: Console
) -> bool:
    """Evaluate, plot and bisect; return whether the mistake is found and all tests pass at last."""
    from coilclaw.cli.traces.graph_trace import write_all
    from coilclaw.cli.traces.replay import show_table
    from coilclaw.cli.traces.study import show_bisection
    from coilclaw.traces import bisect, evaluate, graph_of

    case, mistake = story["case"], story["mistake"]
    print_title(console, "3. graph_trace: every distinct state of the files, evaluated once")
    with archive.open(NAME) as recording, archive.scratch() as scratch:
        court = archive.court(recording, scratch=scratch)
        evaluation = evaluate(recording, court)
        graph = graph_of(evaluation)
        show_table(graph, console)
        again = evaluate(recording, court)
        console.print(
            f"{len(recording.trace.parts)} parts, {evaluation.judged} evaluated; "
            f"a second time: {again.judged}"
        )
        written = write_all(graph, folder / "output", archive.home)
        console.print(f"written: {', '.join(path.name for path in written)}")
        print_title(console, f"4. trace bisect --case {case}")
        found = bisect(recording, court, case)
        show_bisection(recording, found, console)
    last = graph.points[-1].score
    return (
        not again.judged
        and last is not None
        and last.passed == last.total
        and case in graph.points[mistake - 1].change.newly_broken
        and [point.part for point in graph.regressions] == [mistake]
        and (found.outcome, found.part) == ("broke", mistake)
    )
