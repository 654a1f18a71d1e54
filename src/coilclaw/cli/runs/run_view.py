"""Inspect runs: list them, show one, its events, its logs and its patch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import Console, Namespace, escape_hidden, find_home
from coilclaw.cli.runs.run_events import Event, command_lines, count_alike, refusal_line
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runs import Failures, ListedRun, Orchestrator

LOOK_EVERY_S: Final = 0.2
MAX_REQUEST_CHARS: Final = 60
GOING_ON: Final = ("running", "waiting")
_ENDED: Final = ("passed", "failed")
_STAGES: Final = {
    "S0_PM": "the contract",
    "S1_TECH_LEAD": "tasks and paths",
    "S2_WORKER": "the work",
    "S3_REVIEWER": "the review",
    "S4_TEST": "the tests",
    "S5_FIX": "the repair",
    "S6_DONE": "the end",
}
"""The stage of a run that has not ended, by state."""
_STYLES: Final = {
    "passed": "green",
    "failed": "red",
    "paused": "yellow",
    "running": "cyan",
    "waiting": "yellow",
    "interrupted": "yellow",
    "PASS": "green",
    "SUCCESS": "green",
    "FAIL": "red",
    "FAILED": "red",
    "ERROR": "red",
}


def open_runs(args: Namespace) -> Orchestrator:
    """Open the runs of the repository that ``--repo`` names."""
    from coilclaw.app import open_orchestrator

    return open_orchestrator(Path(args.repo), find_home(), os.environ)


def _find(args: Namespace) -> Path:
    from coilclaw.runs import RunStore

    return RunStore(open_runs(args).places).find(args.run)


def list_runs(args: Namespace, console: Console) -> None:
    """List all runs, or the newest of them."""
    from coilclaw.runs import RunStore

    store, limit = RunStore(open_runs(args).places), args.limit
    if limit is not None and limit < 1:
        raise UsageError("--limit must be at least 1", rule="usage.limit")
    found = list(store.all())[-limit if limit else 0 :]
    empty = f"no runs in {store.places.runs}"
    console.table((one.json() for one in found), map(_describe, found), empty)


def _describe(one: ListedRun) -> tuple[str, str | None]:
    request = " ".join(one.request.split())[:MAX_REQUEST_CHARS]
    merge = "" if one.merge in {"none", ""} else f"merge: {one.merge}"
    if one.applied is not None:
        merge = f"applied {one.applied.at[:19]}Z as {one.applied.commit[:12]}"
    text = f"{one.run_id}  {one.created_at[:19]}Z  {one.standing:<11} {merge:<14} {request}"
    return escape_hidden(text).rstrip(), _STYLES.get(one.standing)


def show_run(args: Namespace, console: Console) -> None:
    """Show one run in detail, and what to do next."""
    from coilclaw.runs import describe_run, next_command, read_events, read_failures, read_run

    directory = _find(args)
    one = read_run(directory)
    failures = read_failures(directory, read_events(directory))
    then = next_command.after_listing(one, failures, find_home(), repo=args.repo)
    value = describe_run(directory, one, failures)
    if console.emit({**value, "next": then}):
        return
    for label, text in _head(one):
        if text:
            console.print(f"{label:<8} {escape_hidden(text)}", _STYLES.get(text))
    for said, look in _body(value, failures, ended=one.standing in _ENDED):
        console.show(said, look)
    for command, times in count_alike(failures.commands, lambda each: (each.where, each.reason)):
        console.print(
            f"failed   {escape_hidden(command.where)}: {escape_hidden(command.reason)}{times}",
            "red",
        )
        for text in command_lines(command, directory):
            console.print(f"         {text}", "dim")
    if then:
        console.print(f"next     {then}")


def show_logs(args: Namespace, console: Console) -> None:
    """Print all output that is kept of failed commands."""
    from coilclaw.runs import read_events, read_failures, read_log

    directory = _find(args)
    commands = read_failures(directory, read_events(directory)).commands
    found = [
        (command, log, read_log(directory, log)) for command in commands for log in command.logs
    ]
    records = (
        {**command.json(), "path": str(directory / log.path), "text": text}
        for command, log, text in found
    )

    def describe() -> Iterator[tuple[str, str | None]]:
        for command, log, text in found:
            yield f"== {escape_hidden(command.reason)}: {directory / log.path}", "bold"
            yield from ((escape_hidden(line), None) for line in text.splitlines())

    console.table(records, describe(), "no failed command wrote any output")


def _head(one: ListedRun) -> Iterator[tuple[str, str]]:
    yield "run", one.run_id
    yield "status", one.standing
    if one.standing not in _ENDED:
        yield "stage", _STAGES.get(one.state, "")
    yield "began", one.created_at
    yield "request", " ".join(one.request.split())
    yield "reason", one.reason
    yield "merge", one.merge
    if one.applied is not None:
        done = one.applied
        yield "applied", f"at {done.at} to {done.branch} as {done.commit}"
    yield "waits", ", ".join(one.waiting)
    yield "bundle", str(one.directory)
    yield "anchor", one.root_hash


def _body(
    value: Mapping[str, Json], failures: Failures, *, ended: bool
) -> Iterator[tuple[str, str | None]]:
    tasks = value["tasks"]
    assert isinstance(tasks, dict)
    for name, facts in tasks.items():
        assert isinstance(facts, dict)
        status = str(facts.get("status") or ("not performed" if ended else "not done yet"))
        review = f", review {facts['verdict']}" if facts.get("verdict") else ""
        parent = f", of {facts['parent']}" if facts.get("parent") else ""
        yield f"task     {name}: {status}{review}{parent}", _STYLES.get(status)
    for refusal, times in count_alike(
        failures.refusals, lambda each: (each.gate, each.rule, each.path, each.reason)
    ):
        yield f"gate     {refusal_line(refusal)}{times}", "red"
    passed = {str(gate["gate"]) for gate in _rows(value["gates"]) if gate.get("passed") is True}
    yield f"gates    passed: {', '.join(sorted(passed)) or 'none'}", None
    yield from _tests(value)
    for fix in _rows(value["fixes"]):
        yield f"repair   {fix.get('child_task_id')}, of {fix.get('task_id') or 'the run'}", "yellow"
    audits, foreign = value["audits"], value["foreign_audits"]
    for audit in audits if isinstance(audits, list) else ():
        yield f"audit    {audit}", None
    for audit in foreign if isinstance(foreign, list) else ():
        yield f"foreign  {audit} is an audit of another run", "yellow"


def _tests(value: Mapping[str, Json]) -> Iterator[tuple[str, str | None]]:
    for test, times in count_alike(_rows(value["tests"]), _outcome_of_tests):
        status = str(test.get("status"))
        yield f"tests    {test.get('where')}: {status}{times}", _STYLES.get(status)
        for command in _rows(test["commands"]):
            argv = command.get("cmd_argv")
            words = " ".join(map(str, argv)) if isinstance(argv, list) else ""
            yield f"         exit {command.get('exit_code')}  {words}", None


def _outcome_of_tests(test: dict[str, Json]) -> tuple[str, ...]:
    commands = [(each.get("exit_code"), each.get("cmd_argv")) for each in _rows(test["commands"])]
    return (str(test.get("where")), str(test.get("status")), repr(commands))


def _rows(value: Json) -> list[dict[str, Json]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def show_events(args: Namespace, console: Console) -> None:
    """Print the events of a run, and with ``--follow`` those to come."""
    from coilclaw.runs import read_events

    directory = _find(args)
    if not args.follow:
        events = list(read_events(directory))
        console.table(events, ((seen.line, seen.style) for seen in map(Event, events)))
        return
    for event in _follow(directory):
        if not console.emit(event):
            seen = Event(event)
            console.print(seen.line, seen.style)
        console.out.flush()


def _follow(directory: Path) -> Iterator[dict[str, object]]:
    """Yield all events and those to come, until the run ends or no process works on it."""
    from coilclaw.runs import is_run_worked_on, judge_standing, read_events

    seen: list[dict[str, object]] = []
    while True:
        # Checked first: a run that ends in between has written its last events by then.
        worked = is_run_worked_on(directory)
        fresh = list(read_events(directory, len(seen)))
        yield from fresh
        seen += fresh
        if not fresh and (not seen or judge_standing(seen, worked=worked) not in GOING_ON):
            return
        if seen and seen[-1]["event_type"] == "RUN_SEALED":
            return
        time.sleep(LOOK_EVERY_S)


def show_diff(args: Namespace, console: Console) -> None:
    """Print what a run changed, or what of it was rolled back."""
    from coilclaw.runs import read_patch

    directory, task, rejected = _find(args), args.task, args.rejected
    data = read_patch(directory, task=task, rejected=rejected)
    text = data.decode("utf-8", "replace")
    record = {"run_id": directory.name, "task_id": task, "rejected": rejected, "patch": text}
    if not console.emit(record):
        if console.out.isatty():
            console.diff(text.splitlines())
        else:
            console.write_bytes(data)
    if not data:
        console.note("nothing was rejected" if rejected else "nothing was changed")
