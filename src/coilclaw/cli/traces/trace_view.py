"""Inspect trajectories: list them, show one, its parts and differences, verify it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, escape_hidden, find_home, pick
from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from coilclaw.traces import PartRecord, Trace, TrajectoryArchive

MAX_SUMMARY: Final = 70
_STYLES: Final = {"solved": "green", "agent_error": "red", "envoi_error": "red"}


def show(args: Namespace, console: Console) -> None:
    """Show a trajectory, or one of its parts in full."""
    from coilclaw.cli.traces.replay import open_archive

    archive = open_archive(args)
    trace = archive.trace(args.trajectory_id)
    if args.part is None:
        _show(trace, _presence(archive, trace), console)
    else:
        _part(trace.part(args.part), console)


def list_recorded(_: Namespace, console: Console) -> None:
    """List what was recorded on this machine."""
    from coilclaw.traces import TrajectoryArchive, read_trace

    archive = TrajectoryArchive(find_home(), os.environ)
    found = []
    for places in archive.here():
        try:
            found.append(read_trace(places))
        except CoilClawError as problem:
            console.warn(f"{places.trajectory_id}: {problem.message}")
    found.sort(key=lambda one: one.started_at)

    def describe(one: Trace) -> tuple[str, str | None]:
        end: str = one.session_end.reason if one.session_end else "open"
        if _presence(archive, one) is not None:
            end = "recording"
        text = (
            f"{one.trajectory_id}  {one.started_at[:19]}Z  {end:<11} {len(one.parts):>5} parts  "
            f"{_tests(one):>9}  {one.agent} {one.agent_model}  {one.environment}"
        )
        return escape_hidden(text).rstrip(), _STYLES.get(end)

    console.table(map(summary, found), map(describe, found), "nothing has been recorded here yet")


def summary(trace: Trace) -> dict[str, object]:
    """Return the main facts of a trajectory as JSON values."""
    end = trace.session_end
    names = ("trajectory_id", "agent", "agent_model", "environment", "started_at")
    return {
        **pick(trace, *names),
        "parts": len(trace.parts),
        "turns": len(trace.turns),
        "session_end": None if end is None else end.json(),
        "artifacts": trace.artifacts.json(),
    }


def _tests(trace: Trace) -> str:
    """Return the last test result, of any selection of tests."""
    parts = list(trace.parts)
    for turn in reversed(trace.turns):
        for call in reversed(turn.envoi_calls):
            if call.result is not None:
                return f"{call.result.passed}/{call.result.total}"
        while parts and parts[-1].turn == turn.turn:
            state = parts.pop().testing_state
            if state and state.latest_passed is not None:
                return f"{state.latest_passed}/{state.latest_total}"
    return "–"


def _presence(archive: TrajectoryArchive, trace: Trace) -> int | None:
    """Return the id of the process that is recording a trajectory on this machine."""
    from coilclaw.traces import TracePlaces, plan

    if not archive.is_here(trace.trajectory_id):
        return None
    return plan.find_recorder(TracePlaces(archive.home, trace.trajectory_id))


def _describe_end(trace: Trace, pid: int | None) -> str:
    """Return how a trajectory ended, or what to do about one that has not."""
    end = trace.session_end
    if pid is not None:
        return f"not yet: process {pid or '(unknown)'} is recording"
    if end is not None:
        return f"{end.reason} {end.detail}".rstrip()
    return (
        "not yet, and it is not being recorded on this machine; resume with: "
        f"trace --resume --trajectory-id {trace.trajectory_id}"
    )


def _show(trace: Trace, pid: int | None, console: Console) -> None:
    if console.as_json:
        shown = {
            **summary(trace),
            "recorder": None if pid is None else {"pid": pid},
            "environment_version": trace.environment_version,
            "versions": dict(trace.versions),
            "limits": trace.limits.json(),
            "resumptions": [one.json() for one in trace.resumptions],
            "part_list": [_brief(part) for part in trace.parts],
        }
        console.data(shown)
        return
    facts = (
        ("trajectory", trace.trajectory_id),
        ("agent", f"{trace.agent} {trace.agent_model}"),
        ("environment", f"{trace.environment} {trace.environment_version[:12]}"),
        ("started", trace.started_at),
        ("parts, turns", f"{len(trace.parts)}, {len(trace.turns)}"),
        ("resumed", str(len(trace.resumptions)) if trace.resumptions else ""),
        ("ended", _describe_end(trace, pid)),
        ("trace", trace.artifacts.agent_trace),
        ("bundle", trace.artifacts.repo_bundle),
    )
    for label, text in facts:
        if text.strip():
            console.print(escape_hidden(f"{label:<13} {text}").rstrip())
    console.print()
    for part in trace.parts:
        console.print(escape_hidden(_line(part)).rstrip())


def _line(part: PartRecord) -> str:
    from coilclaw.traces import format_duration

    checkpoint = part.repo_checkpoint
    files = f"{len(checkpoint.changed_files)} files" if checkpoint else ""
    tests = "".join(
        f"tests {call.result.passed}/{call.result.total} " if call.result else "tests failed "
        for call in part.envoi_calls
    )
    what = part.tool_name or part.part_type
    text = " ".join(part.summary.split())[:MAX_SUMMARY]
    return (
        f"{part.part:>5}  turn {part.turn:<3} {format_duration(part.elapsed_ms):>8}  {what:<12.12} "
        f"{part.git_commit[:10]} {files:<9} {tests}{text}"
    )


def _brief(part: PartRecord) -> dict[str, object]:
    checkpoint = part.repo_checkpoint
    names = ("part", "turn", "timestamp", "part_type", "tool_name", "summary", "git_commit")
    return {
        **pick(part, *names),
        "changed_files": list(checkpoint.changed_files) if checkpoint else [],
        "test_calls": len(part.envoi_calls),
    }


def _part(part: PartRecord, console: Console) -> None:
    if console.emit(part.json()):
        return
    for name, value in part.json().items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines = text.splitlines() or [""]
        console.print(f"{name}:" + (f" {escape_hidden(lines[0])}" if len(lines) == 1 else ""))
        if len(lines) > 1:
            for line in lines:
                console.print(f"  {escape_hidden(line)}")


def diff(args: Namespace, console: Console) -> None:
    """Show what changed in the files between two parts."""
    from coilclaw.cli.traces.replay import open_archive

    with open_archive(args).open(args.trajectory_id) as recording:
        last = len(recording.trace.parts) if args.to_part is None else args.to_part
        said = recording.diff(args.from_part, last, stat=args.stat)
    if console.emit({"from_part": args.from_part, "to_part": last, "diff": said}):
        return
    if not said:
        console.note(f"the files are the same after part {args.from_part} and after part {last}")
    elif args.stat:
        for line in said.splitlines():
            console.print(line)
    else:
        console.diff(said.splitlines())


def verify(args: Namespace, console: Console) -> int:
    """Verify a recording; exit with code 1 if anything is missing or changed."""
    from coilclaw.cli.traces.replay import open_archive
    from coilclaw.traces import verify_stored, verify_trajectory

    archive, wanted = open_archive(args), args.trajectory_id
    if archive.store_at:
        found = verify_stored(archive, wanted)
    else:
        places = archive.places(wanted)
        with archive.scratch() as folder:
            found = verify_trajectory(places, scratch=folder / "verifying.git")
    head = {"trajectory_id": found.trajectory_id, "status": "pass" if found.ok else "fail"}
    figures = pick(found, "parts", "commits", "results", "ended", "problems")
    if not console.emit({**head, **figures}):
        for problem in found.problems:
            console.show(problem, "red")
        said = f"{found.parts} parts, {found.commits} commits, {found.results} results"
        if found.ok:
            console.print(f"{said}: complete and unchanged", "green")
        else:
            console.print(f"{said}: {len(found.problems)} problems", "red")
    return DONE if found.ok else FAILED
