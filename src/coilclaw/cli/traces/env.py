"""``coilclaw env``: list and describe test environments, and test a directory with one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, Parser, escape_hidden, find_home
from coilclaw.cli.traces import env_fixtures, env_self_check, env_server

if TYPE_CHECKING:
    from coilclaw.traces import Case, Result

_COLOURS: Final = {"passed": "green", "skipped": "yellow"}
_FILE: Final = "a bundled environment by name, or a directory or file"


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list the bundled environments", _list).json()
    summary = "show what an environment tests, and its parameters"
    describing = action("schema", summary, _show_schema)
    describing.value("file", "FILE", _FILE).json()
    testing = action("test", "test a directory; exit code 1 if a case failed", _test)
    testing.value("file", "FILE", _FILE)
    testing.value("path", "PATH", "a case or a suite (default: all)", nargs="?", default="")
    testing.value("--submission", "DIR", "the directory to test; a copy is used", required=True)
    testing.value("--jobs", "N", "cases to run at once (default: one per processor)", type=int)
    testing.value("--timeout", "SECONDS", "time limit for all cases (default: 3600)", type=float)
    summary = "a parameter of the tests; the value is JSON or plain text (repeatable)"
    testing.many("--param", "NAME=VALUE", summary)
    summary = "where third-party test files are (the parameter fixtures)"
    testing.value("--fixtures", "DIR", summary).json()
    summary = "show and install third-party files that tests need"
    env_fixtures.declare(action("fixtures", summary))
    summary = "validate fixtures and tests with a reference compiler"
    env_self_check.declare(action("selfcheck", summary, env_self_check.run))
    summary = "serve an environment over HTTP, on this machine"
    env_server.declare(action("serve", summary, env_server.run))


def _list(_: Namespace, console: Console) -> None:
    from coilclaw.traces import catalogue

    places = catalogue.list_environments()
    rows = [
        {
            "name": place.name,
            "file": str(place.file),
            "version": place.version,
            "task": bool(place.task),
            "workspace": None if place.workspace is None else str(place.workspace),
        }
        for place in places
    ]
    if not console.emit(rows):
        for place in places:
            title = next((line for line in place.task.splitlines() if line.strip()), "")
            console.show(f"{place.name:<20} {place.version[:12]}  {title.lstrip('# ')}")


def _show_schema(args: Namespace, console: Console) -> None:
    from coilclaw.traces import open_judge

    schema = open_judge(args.file, find_home(), os.environ).schema()
    if console.emit(schema):
        return
    tests, cases = schema["tests"], schema["cases"]
    assert isinstance(tests, list)
    assert isinstance(cases, list)
    for test in tests:
        assert isinstance(test, dict)
        console.print(escape_hidden(f"{test['path']:<44} {test['description']}").rstrip())
        values = test["values"]
        assert isinstance(values, dict)
        for field, given in values.items():
            assert isinstance(given, list)
            console.show(f"  {field}: {', '.join(map(str, given[:20]))}", "dim")
    console.note(f"{len(cases)} cases")


def _test(args: Namespace, console: Console) -> int:
    from coilclaw.cli.status_line import CaseCounter
    from coilclaw.traces import DEFAULT_TIMEOUT_S, open_judge

    timeout_s = DEFAULT_TIMEOUT_S if args.timeout is None else args.timeout
    env_server.require_time_limit(timeout_s)
    judge = open_judge(args.file, find_home(), os.environ, jobs=args.jobs, timeout_s=timeout_s)
    given = list(args.param)
    if args.fixtures is not None:  # The tests run in another directory.
        given.append(f"fixtures={json.dumps(str(Path(args.fixtures).absolute()))}")
    params = env_server.parse_params(given)
    skipped: set[str | None] = set()
    with CaseCounter(console, "judging") as counter:

        def observe(case: Case) -> None:
            if not console.as_json and not case.passed and case.log not in skipped:
                counter.clear()
                _show_case(case, console)
                if case.status == "skipped":
                    skipped.add(case.log)  # many cases with one reason are shown once
            counter.count(case)

        result = judge.test(Path(args.submission), args.path, params=params, observe=observe)
    if not console.emit(result.json()):
        _summarise(result, console)
    return DONE if result.solved else FAILED


def _show_case(case: Case, console: Console) -> None:
    kind = f" ({case.failure_kind})" if case.failure_kind else ""
    style = _COLOURS.get(case.status, "red")
    console.show(f"{case.status:<8} {case.id}{kind}", style)
    for line in (case.difference or case.log or "").splitlines()[:8]:
        console.show(f"           {line}", "dim")


def _summarise(result: Result, console: Console) -> None:
    for line in (result.error or "").splitlines():
        console.note(line, "red")
    for name, child in result.children.items():
        style = "green" if child.solved else "red"
        console.show(f"{child.passed:>6}/{child.total:<6} {name}", style)
    skipped = sum(case.status == "skipped" for case in result.every_case())
    text = f"passed {result.passed} of {result.total}, failed {result.failed}"
    text += f", skipped {skipped}" if skipped else ""
    console.print(text, "green" if result.solved else "red")
