"""``coilclaw contract``: make, check and explain contracts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json, add_performers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.app.contractchecks import Checked, Checks, Wanted
    from coilclaw.cli.console import Console
    from coilclaw.contracts.taskcontract import SetupCommand, TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.contract_proposal import ContractProposal

DEFAULT_FILE: Final = "contract.json"
MAX_ANSWER: Final = 4096


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    checking = actions.add_parser(
        "validate", help="say everything that is wrong with contracts", allow_abbrev=False
    )
    checking.add_argument("files", nargs="+", metavar="FILE", help="'-' reads the input")
    add_performers(checking)
    making = actions.add_parser("init", help="write a complete contract", allow_abbrev=False)
    _declare_init(making)
    explaining = actions.add_parser(
        "explain", help="who would do what, with which permissions", allow_abbrev=False
    )
    explaining.add_argument("file", metavar="FILE", help="'-' reads the input")
    for action in (checking, making, explaining):
        action.add_argument(
            "--repo",
            metavar="DIR",
            help="for this repository (default: the one around the current directory, if any)",
        )
        add_json(action)


def _declare_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        default=DEFAULT_FILE,
        metavar="FILE",
        help=f"where it is written; '-' prints it (default: {DEFAULT_FILE})",
    )
    parser.add_argument("--spec", metavar="TEXT", help="what is to be done")
    for name, what in (
        ("--path", "a file or directory that may change"),
        ("--test", "a command that has to succeed; without one, what is proposed"),
    ):
        parser.add_argument(
            name, action="append", default=[], metavar=name[2:].upper(), help=f"{what} (repeatable)"
        )
    parser.add_argument(
        "--setup",
        action="append",
        metavar="COMMAND",
        help="what prepares a worktree first, instead of what is proposed (repeatable)",
    )
    parser.add_argument(
        "--setup-network", action="store_true", help="let the commands of --setup use the network"
    )
    parser.add_argument("--no-setup", action="store_true", help="prepare nothing")
    parser.add_argument(
        "--expect",
        choices=("red", "green"),
        help="what the tests say before the work: red where they show a fault",
    )
    parser.add_argument(
        "--role",
        default="WORKER",
        metavar="ROLE",
        help="WORKER, FRONTEND, BACKEND, TECH_LEAD… (default: WORKER)",
    )
    parser.add_argument("--read-only", action="store_true", help="nothing may change at all")
    parser.add_argument("--runner", metavar="KIND", help="who performs, such as builtin or codex")
    parser.add_argument("--reviewer", metavar="NAME", help="who reviews")
    parser.add_argument("--model", metavar="NAME", help="the model of the one who performs")
    parser.add_argument("--pack", choices=("low", "medium", "high"), help="how strict")
    parser.add_argument("--task-id", metavar="ID", help="the name of the task")
    parser.add_argument("--timeout", type=int, metavar="SECONDS", help="for the work")
    parser.add_argument("--max-retries", type=int, metavar="N", help="repairs before it fails")
    parser.add_argument("--baseline", default="HEAD", metavar="REF", help="where the work starts")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace, console: Console) -> int:
    """Validate, make or explain."""
    from coilclaw.app.contractchecks import Checks
    from coilclaw.app.home import home

    start = Path(args.repo or ".")
    checks = Checks.at(start, home(), dict(os.environ), needed=args.repo is not None)
    match args.action:
        case "validate":
            return _validate(args, checks, console)
        case "init":
            return _init(args, checks, console)
        case _:
            return _explain(args.file, checks, console)


def _validate(args: argparse.Namespace, checks: Checks, console: Console) -> int:
    from coilclaw.app.contractchecks import Checked
    from coilclaw.cli.dispatch import DONE, USAGE
    from coilclaw.cli.run import options_from, read_contract
    from coilclaw.contracts.schemas import Problem
    from coilclaw.errors import UsageError
    from coilclaw.orchestrator.planning import Request

    found: dict[str, Checked] = {}
    for name in args.files:
        try:
            request = Request(read_contract(name))
            assert request.contract is not None
            found[name] = checks.check(request.contract, options_from(args, request))
        except UsageError as problem:
            if problem.rule == "runner.argument":
                found[name] = Checked(None, (Problem("/runtime_options/runner", str(problem)),))
            elif problem.rule.startswith("contract."):
                found[name] = Checked(None, (Problem("/", problem.message),))
            else:
                raise
    wrong = any(one.problems for one in found.values())
    if console.as_json:
        console.data([_record(name, one) for name, one in found.items()])
        return USAGE if wrong else DONE
    for name, one in found.items():
        for each in one.problems:
            console.print(visible(f"{name}: {each}"), "red")
        if not one.problems:
            console.print(visible(f"{name} is valid"), "green")
        for note in one.notes:
            console.note(f"{name}: {note}", "yellow")
    return USAGE if wrong else DONE


def _record(name: str, one: Checked) -> dict[str, Json]:
    return {
        "file": name,
        "ok": not one.problems,
        "task_id": one.contract.task_id if one.contract else None,
        "sha256": one.contract.sha256 if one.contract else None,
        "problems": [{"path": each.path, "message": each.message} for each in one.problems],
        "notes": list(one.notes),
    }


def _explain(name: str, checks: Checks, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.run import read_contract

    summary = checks.explained(read_contract(name))
    if console.as_json:
        console.data(summary)
        return DONE
    for key, value in summary.items():
        _tell(console, key, value, 0)
    return DONE


def _tell(console: Console, key: str, value: Json, depth: int) -> None:
    label = f"{'  ' * depth}{key:<{24 - 2 * depth}}"
    if isinstance(value, dict):
        console.print(label.rstrip())
        for name, item in value.items():
            _tell(console, name, item, depth + 1)
    elif isinstance(value, list):
        console.print(visible(f"{label} {', '.join(map(str, value)) or '(none)'}"))
    else:
        text = "(none)" if value is None else str(value)
        console.print(visible(f"{label} {' '.join(text.split())}"))


def _init(args: argparse.Namespace, checks: Checks, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, USAGE
    from coilclaw.errors import UsageError

    place = None if args.file == "-" else Path(args.file)
    if place is not None and os.path.lexists(place) and not args.force:
        raise UsageError(
            f"there is a file {place} already", rule="contract.exists", hint="--force replaces it"
        )
    proposal = checks.proposed(args.pack)
    made = checks.drafted(_wanted(args, console, proposal), proposal)
    assert made.contract is not None
    if made.problems:
        if console.as_json:
            console.data(_record(args.file, made))
        for problem in made.problems:
            console.error(str(problem), rule="contract.invalid")
        return USAGE
    text = json.dumps(made.contract.json(), indent=2, ensure_ascii=False) + "\n"
    if place is not None:
        from coilclaw.storage.atomic import write_atomic

        write_atomic(place, text.encode())
    elif not console.as_json:
        console.out.write(text)
    if console.as_json:
        told = {"recognised": list(proposal.notes), "contract": made.contract.json()}
        console.data({**_record(args.file, made), **told})
        return DONE
    _explain_proposal(made.contract, proposal, console, proposed=args.test is None)
    for note in made.notes:
        console.note(note, "yellow")
    if place is not None:
        console.print(f"wrote {place}: {made.contract.task_id}", "green")
        for line in _next(args, checks, made.contract):
            console.note(f"next: {line}", "dim")
    return DONE


def _next(args: argparse.Namespace, checks: Checks, contract: TaskContract) -> Iterator[str]:
    """Return what to type next; without a repository there is nothing to run it in."""
    from coilclaw.app import next_command
    from coilclaw.app.runoptions import WITH_ARGUMENT
    from coilclaw.errors import CoilClawError

    if checks.orchestrator is None:
        return
    options = contract.runtime_options
    runner = (options.runner if options else None) or "builtin"
    if runner in WITH_ARGUMENT:
        return  # what stands behind the name is for the user to say
    if runner in {"builtin", "code-commit"} or (options and options.reviewer == "model"):
        try:
            ready = checks.orchestrator.has_model
        except CoilClawError:  # onboard says what is wrong with the configuration
            ready = False
        if not ready:
            yield next_command.command("onboard")
    yield next_command.command("run", next_command.as_path(args.file), repo=args.repo)


def _explain_proposal(
    contract: TaskContract, proposal: ContractProposal, console: Console, *, proposed: bool
) -> None:
    """Say what was recognised where it was ``proposed``, and what the contract has from it."""
    for said in proposal.notes:
        if proposed or contract.setup or not said.startswith("recognised "):
            console.note(said, "dim")
    for test in contract.acceptance_tests:
        console.note(f"test: {test.cmd}", "dim")
    for command in contract.setup or ():
        network = "with the network" if command.may_use_network else "without the network"
        console.note(f"set-up: {command.cmd} ({network})", "dim")


def _setup(args: argparse.Namespace) -> tuple[SetupCommand, ...] | None:
    """The set-up that the user named; ``None`` leaves it to what is proposed."""
    from coilclaw.contracts.taskcontract import SetupCommand
    from coilclaw.errors import UsageError

    if args.setup and args.no_setup:
        raise UsageError("--setup and --no-setup exclude each other", rule="contract.setup")
    if args.setup_network and not args.setup:
        raise UsageError("--setup-network needs --setup", rule="contract.setup")
    if args.no_setup or args.setup is None:
        return () if args.no_setup else None
    return tuple(
        SetupCommand(
            name=f"setup-{number}", cmd=cmd, network="allow" if args.setup_network else None
        )
        for number, cmd in enumerate(args.setup, 1)
    )


def _wanted(args: argparse.Namespace, console: Console, proposal: ContractProposal) -> Wanted:
    from coilclaw.app.contractchecks import Wanted
    from coilclaw.contracts.drafting import MAX_RETRIES, TIMEOUT_SEC
    from coilclaw.contracts.roles import ROLES
    from coilclaw.errors import UsageError

    role = str(args.role).upper()
    if role not in ROLES:
        raise UsageError(
            f"there is no role {args.role!r}",
            rule="contract.role",
            hint=f"the roles are {', '.join(ROLES)}",
        )
    asking = sys.stdin.isatty() and not console.as_json
    spec = args.spec or (_ask("What is to be done? ") if asking else "")
    paths = args.path or (_ask("Which files or directories may change? ").split() if asking else [])
    tests = args.test
    if not tests and asking:
        usual = f"[{', '.join(proposal.tests)}] " if proposal.tests else ""
        tests = [line for line in [_ask(f"Which command has to succeed? {usual}")] if line]
    missing = [
        name
        for name, value in (
            ("--spec", spec),
            ("--path", paths),
            ("--test", tests or proposal.tests),
        )
        if not value
    ]
    if missing:
        raise UsageError(
            f"a contract needs {', '.join(missing)}",
            rule="contract.incomplete",
            hint="for example: --spec 'Fix the sum' --path src/sum.py --test 'python -m pytest -q'",
        )
    return Wanted(
        spec=spec,
        allowed_paths=tuple(paths),
        tests=tuple(tests),
        setup=_setup(args),
        expected_baseline=args.expect,
        role=role,
        read_only=args.read_only,
        runner=args.runner,
        reviewer=args.reviewer,
        model=args.model,
        pack=args.pack,
        task_id=args.task_id,
        timeout_sec=TIMEOUT_SEC if args.timeout is None else args.timeout,
        max_retries=MAX_RETRIES if args.max_retries is None else args.max_retries,
        baseline_ref=args.baseline,
    )


def _ask(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline(MAX_ANSWER).strip()
