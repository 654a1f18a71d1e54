"""Compare, bisect and export trajectories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAULT, Console, Namespace, escape_hidden
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.traces import Bisection, Comparison, Recording, TrajectoryFigures

MAX_SUMMARY: Final = 100
_SAID: Final = {
    "broke": "part {part} broke it: it {before} until part {last}, and then it {after}",
    "fixed": "part {part} fixed it: it {before} until part {last}, and then it {after}",
    "always_passed": "it always passed",
    "never_passed": "it never passed",
}


def compare(args: Namespace, console: Console) -> int:
    """Evaluate several trajectories, and print their figures side by side."""
    from coilclaw.cli.traces import replay
    from coilclaw.traces import compare, graph_of

    archive = replay.open_archive(args)
    wanted = [archive.find(name) for name in args.ids]
    names = list(dict.fromkeys(wanted))
    for name in names:
        archive.trace(name)  # a missing one is reported before any is evaluated
    for name in names:
        if wanted.count(name) > 1:
            console.warn(f"{name} is given more than once, and shown once")
    graphs, versions, failed = [], [], 0
    for name in names:
        with archive.open(name) as recording:
            evaluation = replay.judge_recording(args, archive, recording, console)
            graphs.append(graph_of(evaluation))
            versions.append(evaluation.environment_version)
            failed += evaluation.failed
    comparison = compare(graphs, versions)
    if not console.emit(comparison.json()):
        _show_comparison(comparison, console)
    return FAULT if failed else DONE


def _show_comparison(comparison: Comparison, console: Console) -> None:
    from coilclaw.traces import MILESTONES

    if len(comparison.environments) > 1:
        names = ", ".join(comparison.environments)
        console.warn(f"the tasks differ, so the trajectories are not ranked: {names}")
    elif len(comparison.standings) == 1:
        console.warn("a comparison needs at least two trajectories")
    head = ["", *(one.trajectory_id for one in comparison.standings)]
    rows = [head, *_facts(comparison.standings)]
    for percent in MILESTONES:
        row = [f"{percent} % passed"]
        for index, one in enumerate(comparison.standings):
            there = next((each for each in one.milestones if each.percent == percent), None)
            first = " *" if index in comparison.fastest.get(percent, ()) else ""
            row.append(f"part {there.part}{first}" if there else "–")
        rows.append(row)
    widths = [max(len(row[index]) for row in rows) for index in range(len(head))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        console.print(escape_hidden("  ".join(cells)).rstrip(), "bold" if number == 0 else None)
    if comparison.fastest:
        console.print("* reached in the fewest parts", "dim")


def _facts(standings: tuple[TrajectoryFigures, ...]) -> list[list[str]]:
    from coilclaw.traces import format_duration, format_number

    return [
        ["agent", *(f"{one.agent} {one.agent_model}".strip() for one in standings)],
        ["ended", *(one.end for one in standings)],
        ["parts", *(str(one.parts) for one in standings)],
        ["turns", *(str(one.turns) for one in standings)],
        ["time", *(format_duration(one.elapsed_ms) for one in standings)],
        ["tokens", *(format_number(one.tokens) for one in standings)],
        ["passed at the end", *(str(one.final or "–") for one in standings)],
        ["best", *(f"{one.best or '–'} at part {one.best_part or '–'}" for one in standings)],
        ["regressions", *(str(one.regressions) for one in standings)],
    ]


def bisect(args: Namespace, console: Console) -> None:
    """Find the part that broke a case, or that fixed it."""
    from coilclaw.cli.traces import replay
    from coilclaw.traces import bisect

    archive = replay.open_archive(args)
    with archive.open(args.trajectory_id) as recording, archive.scratch() as scratch:
        court = archive.court(
            recording, args.environment, jobs=args.jobs, fresh=args.fresh, scratch=scratch
        )
        replay.warn_of_version(recording, court.version, console)
        found = bisect(recording, court, args.case, first=args.from_part, last=args.to_part)
        if console.as_json:
            console.data({**found.json(), "diff": _change(recording, found)})
        else:
            show_bisection(recording, found, console)


def show_bisection(recording: Recording, found: Bisection, console: Console) -> None:
    """Print the part that was found, its summary and what it changed."""
    said = _SAID[found.outcome].format(
        part=found.part, last=found.before, before=found.status_before, after=found.status_after
    )
    bad = found.outcome in {"broke", "never_passed"}
    console.show(f"{found.case}: {said}", "red" if bad else "green")
    console.print(f"{found.judged} of {found.trees} states of the files had to be evaluated", "dim")
    if found.part is not None:
        part = recording.trace.part(found.part)
        console.show(f"commit {part.git_commit}, turn {part.turn}: {part.summary[:MAX_SUMMARY]}")
        console.diff(_change(recording, found).splitlines())


def _change(recording: Recording, found: Bisection) -> str:
    if found.part is None or found.before is None:
        return ""
    return recording.diff(found.before, found.part)


def export(args: Namespace, console: Console) -> None:
    """Write a trajectory for other programs."""
    from coilclaw.cli.traces import replay
    from coilclaw.traces import TracePlaces, export, graph_of

    if args.evaluate and args.format != "sqlite":
        raise UsageError("--evaluate needs --format sqlite", rule="usage.evaluate")
    archive = replay.open_archive(args)
    name = archive.find(args.trajectory_id)
    path = Path(args.out or f"{name}.{args.format}")
    places = TracePlaces(archive.home, name) if archive.is_here(name) else None
    graph = None
    if args.evaluate:
        with archive.open(name) as recording:
            graph = graph_of(replay.judge_recording(args, archive, recording, console))
    export(archive.trace(name), path, args.format, graph=graph, places=places)
    size = os.stat(path).st_size
    if not console.emit({"trajectory_id": name, "file": str(path), "bytes": size}):
        console.print(f"written: {path} ({size} bytes)", "green")
