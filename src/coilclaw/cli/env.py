"""``coilclaw env``: the test environments, and judging a directory by one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Case, Result

_COLOURS: Final = {"passed": "green", "skipped": "yellow"}
_FILE: Final = "the name of one that ships, its directory, or its file"


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from coilclaw.cli import envfixtures, envselfcheck, envserve

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the environments that ship", allow_abbrev=False)
    describing = actions.add_parser(
        "schema",
        help="what an environment tests, and which parameters it takes",
        allow_abbrev=False,
    )
    describing.add_argument("file", metavar="FILE", help=_FILE)
    testing = actions.add_parser(
        "test", help="judge a directory; exit code 1 if a case failed", allow_abbrev=False
    )
    _declare_test(testing)
    for action in (listing, describing, testing):
        add_json(action)
    envfixtures.declare(
        actions.add_parser(
            "fixtures",
            help="files of others that tests need: what is there, getting them",
            allow_abbrev=False,
        )
    )
    envselfcheck.declare(
        actions.add_parser(
            "selfcheck",
            help="prove fixtures and judge with a reference compiler",
            allow_abbrev=False,
        )
    )
    envserve.declare(
        actions.add_parser(
            "serve", help="offer an environment over HTTP, on this machine", allow_abbrev=False
        )
    )


def _declare_test(testing: argparse.ArgumentParser) -> None:
    testing.add_argument("file", metavar="FILE", help=_FILE)
    testing.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="a case or a suite (default: all)"
    )
    testing.add_argument(
        "--submission", required=True, metavar="DIR", help="what is judged, from a copy"
    )
    testing.add_argument(
        "--jobs", type=int, metavar="N", help="cases at once (default: as many as processors)"
    )
    testing.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="for everything (default: 3600)"
    )
    testing.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the tests; the value is JSON, or else a text (repeatable)",
    )
    testing.add_argument(
        "--fixtures",
        metavar="DIR",
        help="where the files of others are that tests need (the parameter fixtures)",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """List, describe, test, get fixtures, check ourselves or serve."""
    from coilclaw.cli import envfixtures, envselfcheck, envserve

    match args.action:
        case "list":
            return _list(console)
        case "schema":
            return _schema(args.file, console)
        case "fixtures":
            return envfixtures.run(args, console)
        case "selfcheck":
            return envselfcheck.run(args, console)
        case "serve":
            return envserve.run(args, console)
        case _:
            return _test(args, console)


def _list(console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.environments import catalogue

    places = catalogue.all()
    if console.as_json:
        console.data(
            [
                {
                    "name": place.name,
                    "file": str(place.file),
                    "version": place.version,
                    "task": bool(place.task),
                    "workspace": None if place.workspace is None else str(place.workspace),
                }
                for place in places
            ]
        )
        return DONE
    for place in places:
        title = next((line for line in place.task.splitlines() if line.strip()), "")
        console.print(visible(f"{place.name:<20} {place.version[:12]}  {title.lstrip('# ')}"))
    return DONE


def _schema(file: str, console: Console) -> int:
    from coilclaw.app.environments import judge_of
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE

    schema = judge_of(file, home()).schema()
    if console.as_json:
        console.data(schema)
        return DONE
    tests = schema["tests"]
    assert isinstance(tests, list)
    for test in tests:
        assert isinstance(test, dict)
        console.print(visible(f"{test['path']:<44} {test['description']}").rstrip())
        values = test["values"]
        assert isinstance(values, dict)
        for field, given in values.items():
            assert isinstance(given, list)
            console.print(visible(f"  {field}: {', '.join(map(str, given[:20]))}"), "dim")
    cases = schema["cases"]
    assert isinstance(cases, list)
    console.note(f"{len(cases)} cases")
    return DONE


def _test(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.app.environments import judge_of
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.cli.envprogress import Counting
    from coilclaw.environments.judging import DEFAULT_TIMEOUT_S
    from coilclaw.errors import UsageError

    timeout_s = DEFAULT_TIMEOUT_S if args.timeout is None else args.timeout
    if not 0 < timeout_s < float("inf"):
        raise UsageError(f"{timeout_s} seconds are no time limit", rule="usage.timeout")
    judge = judge_of(args.file, home(), jobs=args.jobs, timeout_s=timeout_s)

    params = params_of([*args.param, *_fixtures(args.fixtures)])
    skipped: set[str | None] = set()
    with Counting(console, "judging") as counting:

        def tell(case: Case) -> None:
            if not console.as_json and not case.passed and case.log not in skipped:
                counting.clear()
                _tell(case, console)
                if case.status == "skipped":
                    skipped.add(case.log)  # of many for one reason it is said once
            counting.count(case)

        result = judge.test(Path(args.submission), args.path, params=params, observe=tell)
    if console.as_json:
        console.data(result.json())
    else:
        _summary(result, console)
    return DONE if result.solved else FAILED


def _fixtures(given: str | None) -> list[str]:
    """The parameter of a directory of fixtures: the tests run elsewhere, so in full."""
    return [] if given is None else [f"fixtures={json.dumps(str(Path(given).absolute()))}"]


def params_of(given: list[str]) -> dict[str, Json]:
    """Return the parameters that were given as NAME=VALUE."""
    from coilclaw.errors import UsageError

    params: dict[str, Json] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.isidentifier() or not equals or name in params:
            raise UsageError(
                f"{text!r} is no parameter, or its name is given twice",
                rule="usage.param",
                hint="give NAME=VALUE",
            )
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def _tell(case: Case, console: Console) -> None:
    style = _COLOURS.get(case.status, "red")
    kind = f" ({case.failure_kind})" if case.failure_kind else ""
    console.print(visible(f"{case.status:<8} {case.id}{kind}"), style)
    told = case.difference or case.log or ""
    for line in told.splitlines()[:8]:
        console.print(visible(f"           {line}"), "dim")


def _summary(result: Result, console: Console) -> None:
    if result.error:
        for line in result.error.splitlines():
            console.note(line, "red")
    for name, child in result.children.items():
        style = "green" if child.solved else "red"
        console.print(visible(f"{child.passed:>6}/{child.total:<6} {name}"), style)
    skipped = sum(case.status == "skipped" for case in result.every_case())
    text = f"passed {result.passed} of {result.total}, failed {result.failed}"
    text += f", skipped {skipped}" if skipped else ""
    console.print(text, "green" if result.solved else "red")
