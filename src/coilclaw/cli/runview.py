"""Runs to be looked at: lists, one in detail, its events and its patch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from coilclaw.app import next_command
from coilclaw.cli.console import visible
from coilclaw.cli.failure_lines import command_lines, count_alike, refusal_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.app.run_failures import Failures
    from coilclaw.app.runlisting import Listed, RunStore
    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json

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
"""What a run that has not ended is at, by the names of its states."""
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


def run(args: argparse.Namespace, console: Console, store: RunStore) -> int:
    """List, show, follow, print logs or diff."""
    from coilclaw.cli.dispatch import DONE

    if args.action == "list":
        return _list(store, args.limit, console)
    directory = store.find(args.run)
    match args.action:
        case "show":
            _show(directory, console, args.repo)
        case "events":
            _events(directory, console, follow=args.follow)
        case "log":
            _print_logs(directory, console)
        case _:
            return _diff(directory, args.task, console, rejected=args.rejected)
    return DONE


def _list(store: RunStore, limit: int | None, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError

    if limit is not None and limit < 1:
        raise UsageError("--limit is at least 1", rule="usage.limit")
    found = list(store.all())[-limit if limit else 0 :]
    if console.as_json:
        console.data([one.json() for one in found])
        return DONE
    for one in found:
        request = " ".join(one.request.split())[:MAX_REQUEST_CHARS]
        merge = "" if one.merge in {"none", ""} else f"merge: {one.merge}"
        if one.applied is not None:
            merge = f"applied {one.applied.at[:19]}Z as {one.applied.commit[:12]}"
        text = f"{one.run_id}  {one.created_at[:19]}Z  {one.standing:<11} {merge:<14} {request}"
        console.print(visible(text).rstrip(), _STYLES.get(one.standing))
    if not found:
        console.note(f"there are no runs in {store.places.runs}")
    return DONE


def _show(directory: Path, console: Console, repository: str) -> None:
    from coilclaw.app.home import home
    from coilclaw.app.run_failures import read_failures
    from coilclaw.app.runlisting import described, events, listed

    one = listed(directory)
    failures = read_failures(directory, events(directory))
    then = next_command.after_listing(one, failures, home(), repo=repository)
    if console.as_json:
        console.data({**described(directory, one, failures), "next": then})
        return
    for label, text in _head(one):
        if text:
            console.print(f"{label:<8} {visible(text)}", _STYLES.get(text))
    value = described(directory, one, failures)
    for said, look in _body(value, failures, ended=one.standing in _ENDED):
        console.print(visible(said), look)
    for command, times in count_alike(failures.commands, lambda each: (each.where, each.reason)):
        console.print(f"failed   {visible(command.where)}: {visible(command.reason)}{times}", "red")
        for text in command_lines(command, directory):
            console.print(f"         {text}", "dim")
    if then:
        console.print(f"next     {then}")


def _print_logs(directory: Path, console: Console) -> None:
    """Print everything that is kept of what failed commands wrote."""
    from coilclaw.app.run_failures import read_failures, read_log
    from coilclaw.app.runlisting import events

    commands = read_failures(directory, events(directory)).commands
    found = [
        (command, log, read_log(directory, log)) for command in commands for log in command.logs
    ]
    if console.as_json:
        console.data(
            [
                {**command.json(), "path": str(directory / log.path), "text": text}
                for command, log, text in found
            ]
        )
        return
    for command, log, text in found:
        console.print(f"== {visible(command.reason)}: {directory / log.path}", "bold")
        for line in text.splitlines():
            console.print(visible(line))
    if not found:
        console.note("no command failed, or none wrote anything")


def _head(one: Listed) -> Iterator[tuple[str, str]]:
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
    audits = value["audits"]
    for audit in audits if isinstance(audits, list) else ():
        yield f"audit    {audit}", None
    foreign = value["foreign_audits"]
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


def _events(directory: Path, console: Console, *, follow: bool) -> None:
    from coilclaw.app.runlisting import events
    from coilclaw.cli.eventlines import line, style

    if console.as_json and not follow:
        console.data(list(events(directory)))
        return
    for event in _followed(directory) if follow else events(directory):
        if console.as_json:
            console.data(event)
        else:
            console.print(line(event), style(event))
        if follow:
            console.out.flush()


def _followed(directory: Path) -> Iterator[dict[str, object]]:
    """All events, and those that come; it ends with the run, or when nobody works on it."""
    from coilclaw.app.runlisting import events, is_worked_on, standing_of

    seen: list[dict[str, object]] = []
    while True:
        # Asked first: a run that ends in between has written its last events by then.
        worked = is_worked_on(directory)
        fresh = list(events(directory, len(seen)))
        yield from fresh
        seen += fresh
        if not fresh and (not seen or standing_of(seen, worked=worked) not in GOING_ON):
            return
        if seen and seen[-1]["event_type"] == "RUN_SEALED":
            return
        time.sleep(LOOK_EVERY_S)


def _diff(directory: Path, task: str | None, console: Console, *, rejected: bool) -> int:
    from coilclaw.app.runlisting import patch
    from coilclaw.cli.dispatch import DONE

    data = patch(directory, task=task, rejected=rejected)
    text = data.decode("utf-8", "replace")
    if console.as_json:
        console.data(
            {"run_id": directory.name, "task_id": task, "rejected": rejected, "patch": text}
        )
    elif console.out.isatty():
        console.diff(text.splitlines())
    else:
        console.out.flush()
        console.out.buffer.write(data)
        console.out.buffer.flush()
    if not data:
        console.note("nothing was rejected" if rejected else "nothing was changed")
    return DONE
