"""``coilclaw env selfcheck``: validate fixtures and tests with a reference compiler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, Parser, find_home
from coilclaw.cli.status_line import CaseCounter
from coilclaw.cli.traces.env_fixtures import add_fixtures, find_root
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.traces import SelfCheck, SuiteCheck

_COLOURS: Final = {"proved": "green", "scored": None, "missing": "yellow", "differs": "red"}
_LISTED: Final = 50
"""Cases listed one by one in a suite that is only scored."""


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("file", "FILE", "the environment: its name, directory or file")
    parser.value("--cc", "COMPILER", "the reference compiler: its name or path", required=True)
    parser.many("--suite", "NAME", "only this suite, or this part of one (repeatable)")
    add_fixtures(parser)
    parser.value("--jobs", "N", "cases to run at once (default: one per processor)", type=int)
    summary = "write the list of programs of a suite that the compiler cannot compile"
    parser.value("--derive", "SUITE", summary)
    summary = "with --derive: the file to write (default: that of the environment)"
    parser.value("--output", "FILE", summary, type=Path).json()


def run(args: Namespace, console: Console) -> int:
    """Check, or derive a list."""
    from coilclaw.traces import SelfCheck, find_compiler

    if args.output is not None and args.derive is None:
        raise UsageError("--output needs --derive", rule="usage.output")
    root = find_root(args.fixtures)
    compiler = find_compiler(args.cc)
    check = SelfCheck(args.file, find_home(), os.environ, compiler, root, jobs=args.jobs)
    console.note(f"{check.compiler.path}: {check.compiler.version}")
    if args.derive is not None:
        return _derive(check, args.derive, args.output, console)
    return _check(check, args.suite, console)


def _derive(check: SelfCheck, suite: str, output: Path | None, console: Console) -> int:
    with CaseCounter(console, suite) as counter:
        made = check.derive(suite, counter.count)
    file = check.keep(suite, made, output)
    left_out = made["left_out"]
    assert isinstance(left_out, dict)
    if not console.emit(made):
        for name, why in left_out.items():
            console.show(f"{name:<24} {why}")
        console.show(f"{len(left_out)} of {made['programs']} are left out: {file}")
    return DONE


def _check(check: SelfCheck, wanted: list[str], console: Console) -> int:
    suites = []
    for name in check.suites(wanted):
        with CaseCounter(console, name) as counter:
            suite = check.check(name, counter.count)
        suites.append(suite)
        if not console.as_json:
            _show(suite, console)
    bad = [
        suite.suite
        for suite in suites
        if suite.state == "differs" or (suite.state == "missing" and suite.suite in wanted)
    ]
    record = {
        "compiler": check.compiler.path,
        "version": check.compiler.version,
        "proved_with": None if check.known is None else check.known.proved_with,
        "fixtures": str(check.root),
        "as_expected": not bad,
        "suites": [suite.json() for suite in suites],
    }
    if not console.emit(record):
        _conclude(check, suites, bad, console)
    return FAILED if bad else DONE


def _show(suite: SuiteCheck, console: Console) -> None:
    if suite.state == "missing":
        console.show(f"{suite.suite:<16} not checked: {suite.fixtures}", "yellow")
        return
    text = f"{suite.suite:<16} {suite.passed}/{suite.total}  {suite.state}"
    text += f"  ({suite.fixtures})" if suite.fixtures else ""
    console.show(text, _COLOURS[suite.state])
    if suite.error is not None:
        console.show(f"    {suite.error}", "red")
    if suite.expected_total not in (None, suite.total):
        console.print(f"    {suite.total} cases instead of {suite.expected_total}", "red")
    for name in suite.expected_failures:
        console.show(f"    fails, as expected: {name}", "dim")
    for name in suite.unexpected_passes:
        console.show(f"    passed, and should have failed: {name}", "red")
    shown = suite.failed[:_LISTED] if suite.state == "scored" else suite.failed
    for case in shown:
        kind = f" ({case.failure_kind})" if case.failure_kind else ""
        console.show(f"    {case.status}: {case.id}{kind}")
        for line in (case.difference or case.log or "").splitlines()[:3]:
            console.show(f"        {line}", "dim")
    if len(suite.failed) > len(shown):
        console.print(f"    and {len(suite.failed) - len(shown)} more, all of them with --json")


def _conclude(check: SelfCheck, suites: list[SuiteCheck], bad: list[str], console: Console) -> None:
    missing = ", ".join(suite.suite for suite in suites if suite.state == "missing")
    if missing:
        console.note(f"not checked, because fixtures are missing: {missing}", "yellow")
        console.note(f"  hint: see 'coilclaw env fixtures {check.name} status'")
    if bad:
        console.show(f"not as expected: {', '.join(bad)}", "red")
    elif check.known is None:
        passed, total = sum(suite.passed for suite in suites), sum(suite.total for suite in suites)
        scored = f"it scored {passed} of {total}"
        console.show(f"nothing is expected of {check.compiler.name}; {scored}")
    else:
        known = check.known.proved_with
        console.show(f"exactly as expected (known from {known})", "green")
