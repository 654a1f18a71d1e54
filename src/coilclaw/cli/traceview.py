"""Trajectories to be looked at: a list, one in detail, its parts, differences, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.replaywiring import Archive
    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json
    from coilclaw.trajectory.presence import Presence
    from coilclaw.trajectory.trace import PartRecord, Trace

MAX_SUMMARY: Final = 70
_STYLES: Final = {"solved": "green", "agent_error": "red", "envoi_error": "red"}


def run(args: argparse.Namespace, console: Console) -> int:
    """List, show, diff or verify."""
    from coilclaw.app.home import home
    from coilclaw.app.replaywiring import Archive
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.replay import archive_of

    match args.action:
        case "list":
            _list(Archive(home()), console)
        case "show" if args.part is not None:
            _part(archive_of(args).trace(args.trajectory_id).part(args.part), console)
        case "show":
            archive = archive_of(args)
            trace = archive.trace(args.trajectory_id)
            _show(trace, _presence(archive, trace), console)
        case "diff":
            _diff(args, archive_of(args), console)
        case _:
            return _verify(archive_of(args), args.trajectory_id, console)
    return DONE


def _list(archive: Archive, console: Console) -> None:
    from coilclaw.app.replaywiring import read
    from coilclaw.errors import CoilClawError

    found = []
    for places in archive.here():
        try:
            found.append(read(places))
        except CoilClawError as problem:
            console.warn(visible(f"{places.trajectory_id}: {problem.message}"))
    found.sort(key=lambda one: one.started_at)
    if console.as_json:
        console.data([summary(one) for one in found])
        return
    for one in found:
        end: str = one.session_end.reason if one.session_end else "open"
        if _presence(archive, one) is not None:
            end = "recording"
        text = (
            f"{one.trajectory_id}  {one.started_at[:19]}Z  {end:<11} {len(one.parts):>5} parts  "
            f"{_tests(one):>9}  {one.agent} {one.agent_model}  {one.environment}"
        )
        console.print(visible(text).rstrip(), _STYLES.get(end))
    if not found:
        console.note("nothing was recorded here yet")


def summary(trace: Trace) -> dict[str, Json]:
    """One trajectory in a few figures."""
    end = trace.session_end
    return {
        "trajectory_id": trace.trajectory_id,
        "agent": trace.agent,
        "agent_model": trace.agent_model,
        "environment": trace.environment,
        "started_at": trace.started_at,
        "parts": len(trace.parts),
        "turns": len(trace.turns),
        "session_end": None if end is None else end.json(),
        "artifacts": trace.artifacts.json(),
    }


def _tests(trace: Trace) -> str:
    """The last figures that the tests gave, of whatever was asked."""
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


def _presence(archive: Archive, trace: Trace) -> Presence | None:
    """Who records it on this machine at this moment."""
    from coilclaw.trajectory import presence
    from coilclaw.trajectory.places import Places

    if not archive.is_here(trace.trajectory_id):
        return None
    return presence.of(Places(archive.home, trace.trajectory_id))


def _going(trace: Trace, there: Presence | None) -> str:
    """How a trajectory ended, or how it goes on."""
    end = trace.session_end
    if there is not None:
        return f"not yet: process {there.pid or '(unknown)'} records it"
    if end is not None:
        return f"{end.reason} {end.detail}".rstrip()
    return (
        "not yet, and nobody records it on this machine; to go on: "
        f"trace --resume --trajectory-id {trace.trajectory_id}"
    )


def _show(trace: Trace, there: Presence | None, console: Console) -> None:
    if console.as_json:
        shown: dict[str, Json] = {
            **summary(trace),
            "recorder": None if there is None else {"pid": there.pid},
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
        ("ended", _going(trace, there)),
        ("trace", trace.artifacts.agent_trace),
        ("bundle", trace.artifacts.repo_bundle),
    )
    for label, text in facts:
        if text.strip():
            console.print(visible(f"{label:<13} {text}").rstrip())
    console.print()
    for part in trace.parts:
        console.print(visible(_line(part)).rstrip())


def _line(part: PartRecord) -> str:
    from coilclaw.trajectory.reporttext import clock

    checkpoint = part.repo_checkpoint
    files = f"{len(checkpoint.changed_files)} files" if checkpoint else ""
    tests = "".join(
        f"tests {call.result.passed}/{call.result.total} " if call.result else "tests failed "
        for call in part.envoi_calls
    )
    what = part.tool_name or part.part_type
    text = " ".join(part.summary.split())[:MAX_SUMMARY]
    return (
        f"{part.part:>5}  turn {part.turn:<3} {clock(part.elapsed_ms):>8}  {what:<12.12} "
        f"{part.git_commit[:10]} {files:<9} {tests}{text}"
    )


def _brief(part: PartRecord) -> dict[str, Json]:
    checkpoint = part.repo_checkpoint
    return {
        "part": part.part,
        "turn": part.turn,
        "timestamp": part.timestamp,
        "part_type": part.part_type,
        "tool_name": part.tool_name,
        "summary": part.summary,
        "git_commit": part.git_commit,
        "changed_files": list(checkpoint.changed_files) if checkpoint else [],
        "test_calls": len(part.envoi_calls),
    }


def _part(part: PartRecord, console: Console) -> None:
    if console.as_json:
        console.data(part.json())
        return
    for name, value in part.json().items():
        text = value if isinstance(value, str) else _compact(value)
        lines = text.splitlines() or [""]
        console.print(f"{name}:" + (f" {visible(lines[0])}" if len(lines) == 1 else ""))
        if len(lines) > 1:
            for line in lines:
                console.print(f"  {visible(line)}")


def _compact(value: Json) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _diff(args: argparse.Namespace, archive: Archive, console: Console) -> None:
    with archive.open(args.trajectory_id) as recording:
        last = len(recording.trace.parts) if args.to_part is None else args.to_part
        said = recording.diff(args.from_part, last, stat=args.stat)
    if console.as_json:
        console.data({"from_part": args.from_part, "to_part": last, "diff": said})
    elif not said:
        console.note(f"the files are the same after part {args.from_part} and after part {last}")
    elif args.stat:
        for line in said.splitlines():
            console.print(line)
    else:
        console.diff(said.splitlines())


def _verify(archive: Archive, wanted: str, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.trajectory.verifying import verify

    if archive.store_at:
        from coilclaw.app.tracestore import verified

        found = verified(archive, wanted)
    else:
        places = archive.places(wanted)
        with archive.scratch() as folder:
            found = verify(places, scratch=folder / "verifying.git")
    if console.as_json:
        console.data(
            {
                "trajectory_id": found.trajectory_id,
                "status": "pass" if found.ok else "fail",
                "parts": found.parts,
                "commits": found.commits,
                "results": found.results,
                "ended": found.ended,
                "problems": list(found.problems),
            }
        )
        return DONE if found.ok else FAILED
    for problem in found.problems:
        console.print(visible(problem), "red")
    said = f"{found.parts} parts, {found.commits} commits, {found.results} results: "
    if found.ok:
        console.print(f"{said}everything is there, and as it was recorded", "green")
        return DONE
    console.print(f"{said}{len(found.problems)} problems", "red")
    return FAILED
