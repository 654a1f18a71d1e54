"""``coilclaw contract``: create, check and explain contracts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.cli.command import DONE, USAGE, find_home, pick
from coilclaw.cli.parser import add_performers
from coilclaw.kernel import CoilClawError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.kernel import Json
    from coilclaw.runs import (
        CheckedContract,
        ContractChecks,
        ContractOptions,
        ContractProposal,
        SetupCommand,
        TaskContract,
    )

DEFAULT_FILE: Final = "contract.json"
MAX_ANSWER: Final = 4096


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    checking = action("validate", "list every problem of contracts", _validate)
    checking.value("files", "FILE", "'-' reads standard input", nargs="+")
    add_performers(checking)
    making = action("init", "write a complete contract", _init)
    _declare_init(making)
    explaining = action("explain", "show who would do what, with which permissions", _explain)
    explaining.value("file", "FILE", "'-' reads standard input")
    summary = "for this repository (default: the one around the current directory, if any)"
    for each in (checking, making, explaining):
        each.value("--repo", "DIR", summary).json()


def _declare_init(parser: Parser) -> None:
    from coilclaw.runs import MAX_RETRIES, TIMEOUT_SEC

    summary = f"the file to write; '-' prints it (default: {DEFAULT_FILE})"
    parser.value("file", "FILE", summary, nargs="?", default=DEFAULT_FILE)
    parser.value("--spec", "TEXT", "what to do")
    parser.many("--path", "PATH", "a file or directory that may change (repeatable)")
    summary = "a command that has to succeed (default: a proposal; repeatable)"
    parser.many("--test", "TEST", summary)
    summary = "a command that prepares a worktree (default: a proposal; repeatable)"
    parser.value("--setup", "COMMAND", summary, action="append")
    parser.flag("--setup-network", "let the commands of --setup use the network")
    parser.flag("--no-setup", "do not prepare worktrees")
    summary = "result of the tests before the work: red if they demonstrate a fault"
    parser.value("--expect", None, summary, choices=("red", "green"))
    summary = "WORKER, FRONTEND, BACKEND, TECH_LEAD… (default: WORKER)"
    parser.value("--role", "ROLE", summary, default="WORKER")
    parser.flag("--read-only", "allow no change at all")
    parser.value("--runner", "KIND", "who performs, such as builtin or codex")
    parser.value("--reviewer", "NAME", "who reviews")
    parser.value("--model", "NAME", "the model of the runner")
    parser.value("--pack", None, "the strictness of the policy", choices=("low", "medium", "high"))
    parser.value("--task-id", "ID", "the name of the task")
    parser.value("--timeout", "SECONDS", "time limit for the work", type=int, default=TIMEOUT_SEC)
    parser.value("--max-retries", "N", "repairs before failure", type=int, default=MAX_RETRIES)
    parser.value("--baseline", "REF", "where the work starts", default="HEAD")
    parser.flag("--force", "replace an existing file")


def _open_checks(args: Namespace) -> ContractChecks:
    from coilclaw.app import open_orchestrator
    from coilclaw.runs import ContractChecks

    start = Path(args.repo or ".")
    return ContractChecks.of(
        lambda: open_orchestrator(start, find_home(), os.environ), needed=args.repo is not None
    )


def _validate(args: Namespace, console: Console) -> int:
    from coilclaw.cli.runs.run import read_contract, read_options
    from coilclaw.kernel import SchemaProblem
    from coilclaw.runs import CheckedContract, RunRequest

    checks = _open_checks(args)
    found: dict[str, CheckedContract] = {}
    for name in args.files:
        try:
            request = RunRequest(read_contract(name))
            assert request.contract is not None
            found[name] = checks.check(request.contract, read_options(args, request))
        except UsageError as problem:
            if problem.rule == "runner.argument":
                where, said = "/runtime_options/runner", str(problem)
            elif problem.rule.startswith("contract."):
                where, said = "/", problem.message
            else:
                raise
            found[name] = CheckedContract(None, (SchemaProblem(where, said),))
    code = USAGE if any(one.problems for one in found.values()) else DONE
    if console.emit([_record(name, one) for name, one in found.items()]):
        return code
    for name, one in found.items():
        for each in one.problems:
            console.show(f"{name}: {each}", "red")
        if not one.problems:
            console.show(f"{name} is valid", "green")
        for note in one.notes:
            console.note(f"{name}: {note}", "yellow")
    return code


def _record(name: str, one: CheckedContract) -> dict[str, object]:
    return {
        "file": name,
        "ok": not one.problems,
        "task_id": one.contract.task_id if one.contract else None,
        "sha256": one.contract.sha256 if one.contract else None,
        "problems": [pick(each, "path", "message") for each in one.problems],
        "notes": list(one.notes),
    }


def _explain(args: Namespace, console: Console) -> None:
    from coilclaw.cli.runs.run import read_contract

    summary = _open_checks(args).explain_contract(read_contract(args.file))
    if not console.emit(summary):
        for key, value in summary.items():
            _show_value(console, key, value, 0)


def _show_value(console: Console, key: str, value: Json, depth: int) -> None:
    label = f"{'  ' * depth}{key:<{24 - 2 * depth}}"
    if isinstance(value, dict):
        console.print(label.rstrip())
        for name, item in value.items():
            _show_value(console, name, item, depth + 1)
    elif isinstance(value, list):
        console.show(f"{label} {', '.join(map(str, value)) or '(none)'}")
    else:
        text = "(none)" if value is None else str(value)
        console.show(f"{label} {' '.join(text.split())}")


def _init(args: Namespace, console: Console) -> int:
    checks = _open_checks(args)
    place = None if args.file == "-" else Path(args.file)
    if place is not None and os.path.lexists(place) and not args.force:
        raise UsageError(
            f"the file {place} already exists", rule="contract.exists", hint="--force replaces it"
        )
    proposal = checks.proposed(args.pack)
    made = checks.drafted(_read_options(args, console, proposal), proposal)
    assert made.contract is not None
    if made.problems:
        console.emit(_record(args.file, made))
        for problem in made.problems:
            console.error(str(problem), rule="contract.invalid")
        return USAGE
    text = json.dumps(made.contract.json(), indent=2, ensure_ascii=False) + "\n"
    if place is not None:
        from coilclaw.kernel import write_atomic

        write_atomic(place, text.encode())
    elif not console.as_json:
        console.out.write(text)
    more = {"recognised": list(proposal.notes), "contract": made.contract.json()}
    if console.emit({**_record(args.file, made), **more}):
        return DONE
    _show_proposal(made.contract, proposal, console)
    for note in made.notes:
        console.note(note, "yellow")
    if place is not None:
        console.print(f"wrote {place}: {made.contract.task_id}", "green")
        for line in _next(args, checks, made.contract):
            console.note(f"next: {line}", "dim")
    return DONE


def _show_proposal(contract: TaskContract, proposal: ContractProposal, console: Console) -> None:
    """Print what was recognised, and what of it the contract uses."""
    for said in proposal.notes:
        # What was recognised matters only if the contract uses it.
        if contract.setup or not said.startswith("recognised "):
            console.note(said, "dim")
    for test in contract.acceptance_tests:
        console.note(f"test: {test.cmd}", "dim")
    for command in contract.setup or ():
        network = "with the network" if command.may_use_network else "without the network"
        console.note(f"set-up: {command.cmd} ({network})", "dim")


def _next(args: Namespace, checks: ContractChecks, contract: TaskContract) -> Iterator[str]:
    """Yield the next commands; without a repository a contract cannot run."""
    from coilclaw.runs import WITH_ARGUMENT, next_command

    if checks.orchestrator is None:
        return
    options = contract.runtime_options
    runner = (options.runner if options else None) or "builtin"
    if runner in WITH_ARGUMENT:
        return  # only the user knows the argument of the runner
    if runner in {"builtin", "code-commit"} or (options and options.reviewer == "model"):
        try:
            ready = checks.orchestrator.has_model
        except CoilClawError:  # onboard reports problems of the configuration
            ready = False
        if not ready:
            yield next_command.command("onboard")
    yield next_command.command("run", next_command.as_path(args.file), repo=args.repo)


def _read_setup(args: Namespace) -> tuple[SetupCommand, ...] | None:
    """Return the set-up that the user chose; ``None`` means the proposal."""
    from coilclaw.runs import SetupCommand

    if args.setup and args.no_setup:
        raise UsageError("--setup and --no-setup exclude each other", rule="contract.setup")
    if args.setup_network and not args.setup:
        raise UsageError("--setup-network needs --setup", rule="contract.setup")
    if args.no_setup or args.setup is None:
        return () if args.no_setup else None
    network: Literal["allow"] | None = "allow" if args.setup_network else None
    return tuple(
        SetupCommand(name=f"setup-{number}", cmd=cmd, network=network)
        for number, cmd in enumerate(args.setup, 1)
    )


def _read_options(args: Namespace, console: Console, proposal: ContractProposal) -> ContractOptions:
    from coilclaw.runs import ROLES, ContractOptions

    role = str(args.role).upper()
    if role not in ROLES:
        raise UsageError(
            f"the role {args.role!r} does not exist",
            rule="contract.role",
            hint=f"the roles are {', '.join(ROLES)}",
        )
    asking = sys.stdin.isatty() and not console.as_json
    spec = args.spec or (_ask("What should be done? ") if asking else "")
    paths = args.path or (_ask("Which files or directories may change? ").split() if asking else [])
    tests = args.test
    if not tests and asking:
        usual = f"[{', '.join(proposal.tests)}] " if proposal.tests else ""
        tests = [line for line in [_ask(f"Which command has to succeed? {usual}")] if line]
    needed = {"--spec": spec, "--path": paths, "--test": tests or proposal.tests}
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise UsageError(
            f"a contract needs {', '.join(missing)}",
            rule="contract.incomplete",
            hint="for example: --spec 'Fix the sum' --path src/sum.py --test 'python -m pytest -q'",
        )
    return ContractOptions(
        spec=spec,
        allowed_paths=tuple(paths),
        tests=tuple(tests),
        setup=_read_setup(args),
        expected_baseline=args.expect,
        role=role,
        read_only=args.read_only,
        runner=args.runner,
        reviewer=args.reviewer,
        model=args.model,
        pack=args.pack,
        task_id=args.task_id,
        timeout_sec=args.timeout,
        max_retries=args.max_retries,
        baseline_ref=args.baseline,
    )


def _ask(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline(MAX_ANSWER).strip()
