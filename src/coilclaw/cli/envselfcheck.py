"""``coilclaw env selfcheck``: prove fixtures and judge with a reference compiler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.selfchecks import SelfCheck
    from coilclaw.cli.console import Console
    from coilclaw.environments.selfchecking import SuiteCheck

_COLOURS: Final = {"proved": "green", "scored": None, "missing": "yellow", "differs": "red"}
_TOLD: Final = 50
"""Cases that are told of one by one in a suite that is only scored."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="the environment: its name, directory or file")
    parser.add_argument(
        "--cc", required=True, metavar="COMPILER", help="the reference compiler: its name or path"
    )
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="NAME",
        help="only this suite, or this part of one (repeatable)",
    )
    parser.add_argument(
        "--fixtures",
        type=Path,
        metavar="DIR",
        help="where fixtures are (default: /opt/tests if it is there, else ours)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="cases at once (default: as many as processors)"
    )
    parser.add_argument(
        "--derive",
        metavar="SUITE",
        help="find out which programs of a suite the compiler cannot do, and write that list",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="of --derive (default: the environment's own)"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Check, or derive a list."""
    from coilclaw.app.home import home
    from coilclaw.app.selfchecks import SelfCheck, compiler_of
    from coilclaw.environments.fixtures import default_root
    from coilclaw.errors import UsageError

    if args.output is not None and args.derive is None:
        raise UsageError("--output goes with --derive", rule="usage.output")
    root = default_root(home()) if args.fixtures is None else args.fixtures.absolute()
    check = SelfCheck(args.file, home(), compiler_of(args.cc), root, jobs=args.jobs)
    console.note(visible(f"{check.compiler.path}: {check.compiler.version}"))
    if args.derive is not None:
        return _derive(check, args.derive, args.output, console)
    return _check(check, args.suite, console)


def _derive(check: SelfCheck, suite: str, output: Path | None, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.envprogress import Counting

    with Counting(console, suite) as counting:
        made = check.derive(suite, counting.count)
    file = check.keep(suite, made, output)
    left_out = made["left_out"]
    assert isinstance(left_out, dict)
    if console.as_json:
        console.data(made)
        return DONE
    for name, why in left_out.items():
        console.print(visible(f"{name:<24} {why}"))
    console.print(visible(f"{len(left_out)} of {made['programs']} are left out: {file}"))
    return DONE


def _check(check: SelfCheck, wanted: list[str], console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.cli.envprogress import Counting

    suites = []
    for name in check.suites(wanted):
        with Counting(console, name) as counting:
            suite = check.check(name, counting.count)
        suites.append(suite)
        if not console.as_json:
            _tell(suite, console)
    bad = [
        suite.suite
        for suite in suites
        if suite.state == "differs" or (suite.state == "missing" and suite.suite in wanted)
    ]
    known = check.known
    if console.as_json:
        console.data(
            {
                "compiler": check.compiler.path,
                "version": check.compiler.version,
                "proved_with": None if known is None else known.proved_with,
                "fixtures": str(check.root),
                "as_expected": not bad,
                "suites": [suite.json() for suite in suites],
            }
        )
    else:
        _conclude(check, suites, bad, console)
    return FAILED if bad else DONE


def _tell(suite: SuiteCheck, console: Console) -> None:
    if suite.state == "missing":
        console.print(visible(f"{suite.suite:<16} not checked: {suite.fixtures}"), "yellow")
        return
    text = f"{suite.suite:<16} {suite.passed}/{suite.total}  {suite.state}"
    if suite.fixtures:
        text += f"  ({suite.fixtures})"
    console.print(visible(text), _COLOURS[suite.state])
    if suite.error is not None:
        console.print(visible(f"    {suite.error}"), "red")
    if suite.expected_total not in (None, suite.total):
        console.print(
            f"    {suite.total} cases where there have to be {suite.expected_total}", "red"
        )
    for name in suite.expected_failures:
        console.print(visible(f"    fails, as expected: {name}"), "dim")
    for name in suite.unexpected_passes:
        console.print(visible(f"    passed, and should have failed: {name}"), "red")
    for case in suite.failed[:_TOLD] if suite.state == "scored" else suite.failed:
        kind = f" ({case.failure_kind})" if case.failure_kind else ""
        console.print(visible(f"    {case.status}: {case.id}{kind}"))
        for line in (case.difference or case.log or "").splitlines()[:3]:
            console.print(visible(f"        {line}"), "dim")
    if suite.state == "scored" and len(suite.failed) > _TOLD:
        console.print(f"    and {len(suite.failed) - _TOLD} more, all of them with --json")


def _conclude(check: SelfCheck, suites: list[SuiteCheck], bad: list[str], console: Console) -> None:
    missing = [suite.suite for suite in suites if suite.state == "missing"]
    if missing:
        console.note(
            visible(f"not checked, because fixtures are missing: {', '.join(missing)}"), "yellow"
        )
        console.note(visible(f"  hint: coilclaw env fixtures {check.name} status says what to do"))
    if bad:
        console.print(visible(f"not as expected: {', '.join(bad)}"), "red")
    elif check.known is None:
        passed, total = (
            sum(suite.passed for suite in suites),
            sum(suite.total for suite in suites),
        )
        console.print(
            visible(f"nothing is expected of {check.compiler.name}; it scored {passed} of {total}")
        )
    else:
        console.print(
            visible(f"exactly as expected (known from {check.known.proved_with})"), "green"
        )
