"""Trajectories studied: compared with each other, bisected, exported."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.trajectory.bisecting import Bisection
    from coilclaw.trajectory.comparing import Comparison, Standing
    from coilclaw.trajectory.replaying import Recording

MAX_SUMMARY: Final = 100
_SAID: Final = {
    "broke": "part {part} broke it: it {before} until part {last}, and then it {after}",
    "fixed": "part {part} fixed it: it {before} until part {last}, and then it {after}",
    "always_passed": "it passed all the time",
    "never_passed": "it never passed",
}


def run(args: argparse.Namespace, console: Console) -> int:
    """Compare, bisect or export."""
    match args.action:
        case "compare":
            return _compare(args, console)
        case "bisect":
            return _bisect(args, console)
        case _:
            return _export(args, console)


def _compare(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.cli import replay
    from coilclaw.cli.dispatch import DONE, FAULT
    from coilclaw.trajectory.comparing import compare
    from coilclaw.trajectory.graphdata import graph_of

    archive = replay.archive_of(args)
    wanted = [archive.find(name) for name in args.ids]
    names = list(dict.fromkeys(wanted))
    for name in names:
        archive.trace(name)  # whichever is not there is said before any is judged
    for name in names:
        if wanted.count(name) > 1:
            console.warn(visible(f"{name} is named more than once, and shown once"))
    graphs, versions, failed = [], [], 0
    for name in names:
        with archive.open(name) as recording:
            evaluation = replay.judged(args, archive, recording, console)
            graphs.append(graph_of(evaluation))
            versions.append(evaluation.environment_version)
            failed += evaluation.failed
    comparison = compare(graphs, versions)
    if console.as_json:
        console.data(comparison.json())
    else:
        _show_comparison(comparison, console)
    return FAULT if failed else DONE


def _show_comparison(comparison: Comparison, console: Console) -> None:
    from coilclaw.trajectory.comparing import MILESTONES

    if len(comparison.environments) > 1:
        told = ", ".join(comparison.environments)
        console.warn(visible(f"these are different tasks, so nobody was first: {told}"))
    elif len(comparison.standings) == 1:
        console.warn("there is nothing to compare it with: name another one")
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
        console.print(visible("  ".join(cells)).rstrip(), "bold" if number == 0 else None)
    if comparison.fastest:
        console.print("* who was there in the fewest parts", "dim")


def _facts(standings: tuple[Standing, ...]) -> list[list[str]]:
    from coilclaw.trajectory.reporttext import clock, grouped

    return [
        ["agent", *(f"{one.agent} {one.agent_model}".strip() for one in standings)],
        ["ended", *(one.end for one in standings)],
        ["parts", *(str(one.parts) for one in standings)],
        ["turns", *(str(one.turns) for one in standings)],
        ["time", *(clock(one.elapsed_ms) for one in standings)],
        ["tokens", *(grouped(one.tokens) for one in standings)],
        ["passed at the end", *(str(one.final or "–") for one in standings)],
        ["best", *(f"{one.best or '–'} at part {one.best_part or '–'}" for one in standings)],
        ["regressions", *(str(one.regressions) for one in standings)],
    ]


def _bisect(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.cli import replay
    from coilclaw.cli.dispatch import DONE
    from coilclaw.trajectory.bisecting import bisect

    archive = replay.archive_of(args)
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
    return DONE


def show_bisection(recording: Recording, found: Bisection, console: Console) -> None:
    """Say which part it was, what that part was about, and what it changed."""
    said = _SAID[found.outcome].format(
        part=found.part, last=found.before, before=found.status_before, after=found.status_after
    )
    bad = found.outcome in {"broke", "never_passed"}
    console.print(visible(f"{found.case}: {said}"), "red" if bad else "green")
    console.print(f"{found.judged} of {found.trees} states of the files had to be judged", "dim")
    if found.part is not None:
        part = recording.trace.part(found.part)
        console.print(
            visible(f"commit {part.git_commit}, turn {part.turn}: {part.summary[:MAX_SUMMARY]}")
        )
        console.diff(_change(recording, found).splitlines())


def _change(recording: Recording, found: Bisection) -> str:
    if found.part is None or found.before is None:
        return ""
    return recording.diff(found.before, found.part)


def _export(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.cli import replay
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError
    from coilclaw.trajectory.exporting import export
    from coilclaw.trajectory.graphdata import graph_of
    from coilclaw.trajectory.places import Places

    if args.evaluate and args.format != "sqlite":
        raise UsageError("--evaluate is for --format sqlite", rule="usage.evaluate")
    archive = replay.archive_of(args)
    name = archive.find(args.trajectory_id)
    path = Path(args.out or f"{name}.{args.format}")
    places = Places(archive.home, name) if archive.is_here(name) else None
    graph = None
    if args.evaluate:
        with archive.open(name) as recording:
            graph = graph_of(replay.judged(args, archive, recording, console))
    export(archive.trace(name), path, args.format, graph=graph, places=places)
    size = os.stat(path).st_size
    if console.as_json:
        console.data({"trajectory_id": name, "file": str(path), "bytes": size})
    else:
        console.print(f"written: {path} ({size} bytes)", "green")
    return DONE
