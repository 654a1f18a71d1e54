"""``coilclaw run``: carry out a contract, or one sentence, in isolated worktrees."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import Console, Namespace, Parser, read_input
from coilclaw.cli.parser import add_performers
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.cli.runs.run_display import Watch
    from coilclaw.runs import Orchestrator, RunOptions, RunOutcome, RunRequest, WaitTerms

FOREVER: Final = "forever"
"""The value of ``--wait`` without a number."""
MAX_WAIT_S: Final = 7 * 24 * 3600.0


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("contract", "CONTRACT.json", "the contract; '-' reads standard input", nargs="?")
    parser.value("--request", "SENTENCE", "have the PM write the contract from one sentence")
    parser.value("--resume", "RUN", "resume this run instead")
    add_answer(parser)
    add_performers(parser)
    parser.flag("--merge", "merge accepted work into the checked-out branch")
    parser.flag("--no-baseline", "start without running set-up and tests on the baseline first")
    add_watching(parser)
    add_waiting(parser)
    parser.repo().json()


def add_answer(parser: Parser) -> None:
    """Declare how a question of the planner is answered."""
    parser.value("--answer", "TEXT", "the answer to the question that the PM asked, or would ask")


def add_watching(parser: Parser) -> None:
    """Declare how a run is watched."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "-q", "--quiet", action="store_true", help="print only the result, once the run has ended"
    )
    how.add_argument(
        "-v",
        "--verbose",
        "--follow",
        action="store_true",
        dest="verbose",
        help="also print every event, with the names of states",
    )
    # JSON output is one object per line.
    parser.set_defaults(as_lines=True)


def add_waiting(parser: Parser) -> None:
    """Declare what a run waits for, and how long."""
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--wait",
        nargs="?",
        const=FOREVER,
        metavar="SECONDS",
        help="wait in turn for paths that other runs hold; with SECONDS no longer than that, and "
        "as long for an approval before the run pauses",
    )
    chosen.add_argument(
        "--no-wait",
        action="store_true",
        help="fail at once if another run holds a path, and pause for an approval (default)",
    )


def read_terms(args: Namespace) -> WaitTerms:
    """Return how long to wait for approvals and for other runs."""
    from coilclaw.runs import WaitTerms

    if args.wait is None:
        return WaitTerms(lock_wait_s=0.0 if args.no_wait else None)
    if args.wait == FOREVER:
        return WaitTerms(lock_wait_s=math.inf)
    try:
        seconds = float(args.wait)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise UsageError(
            f"--wait takes a number of seconds from 0 to a week, not {args.wait[:100]!r}",
            rule="usage.wait",
            hint="without a number, put --wait last: it would read the next argument as one",
        )
    return WaitTerms(wait_s=seconds, lock_wait_s=seconds)


def run(args: Namespace, console: Console) -> int:
    """Start or resume a run, and follow it until it ends or waits."""
    from coilclaw.cli.runs.run_display import attend_run

    _swap_contract(args)
    terms = read_terms(args)
    given = [name for name in ("contract", "request", "resume") if getattr(args, name) is not None]
    if len(given) != 1:
        raise UsageError(
            "give a contract, or --request with a sentence, or --resume with a run",
            rule="usage.run",
            hint="'coilclaw contract init' writes a contract",
        )
    if args.answer is not None and (args.contract is not None or not args.answer.strip()):
        raise UsageError(
            "--answer takes a text, and needs --request or --resume", rule="usage.answer"
        )
    if args.resume is not None:
        settled = ("runner", "reviewer", "merge", "diagnostic", "no_baseline")
        refused = [name.replace("_", "-") for name in settled if getattr(args, name)]
        if refused:
            raise UsageError(f"a resumed run cannot change --{refused[0]}", rule="usage.resume")
        return attend_run(args, console, partial(resume_run, args.resume, args.answer), terms)
    request = _read_request(args)
    options = read_options(args, request)
    return attend_run(args, console, lambda runs, watch: runs.start(request, options, watch), terms)


def _swap_contract(args: Namespace) -> None:
    """Read ``--wait CONTRACT.json`` as intended: the file name is not a number of seconds."""
    others = (args.contract, args.request, args.resume)
    if args.wait in {None, FOREVER} or any(other is not None for other in others):
        return
    try:
        float(args.wait)
    except ValueError:
        args.contract, args.wait = args.wait, FOREVER


def resume_run(run: str, answer: str | None, runs: Orchestrator, watch: Watch) -> RunOutcome:
    """Resume the run with this id, or the only one whose id begins with it."""
    from coilclaw.runs import RunStore

    return runs.resume(RunStore(runs.places).find(run).name, watch, answer=answer or "")


def _read_request(args: Namespace) -> RunRequest:
    from coilclaw.runs import RunRequest

    if args.contract is not None:
        return RunRequest(read_contract(args.contract))
    sentence = " ".join(args.request.split())
    if not sentence:
        raise UsageError("the request is empty", rule="request.empty")
    return RunRequest(None, sentence, () if args.answer is None else (args.answer,))


def read_contract(name: str) -> bytes:
    """Return the bytes of a contract, from a file or from standard input."""
    from coilclaw.runs import MAX_CONTRACT_BYTES

    try:
        data = read_input(name, MAX_CONTRACT_BYTES)
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or problem
        raise UsageError(f"cannot read {name}: {said}", rule="contract.read") from problem
    if len(data) > MAX_CONTRACT_BYTES:
        raise UsageError(
            f"{name} is larger than the limit of {MAX_CONTRACT_BYTES} bytes for a contract",
            rule="contract.large",
        )
    return data


def read_options(args: Namespace, request: RunRequest) -> RunOptions:
    """Return the options of a run: from the arguments, else from the contract."""
    from coilclaw.runners import runner
    from coilclaw.runs import make_run_options

    return make_run_options(
        request,
        runner=args.runner,
        reviewer=args.reviewer,
        merge=getattr(args, "merge", False),
        diagnostic=args.diagnostic,
        baseline=not getattr(args, "no_baseline", False),
        hint=f"choose one with --runner: {runner.list_runners()}",
    )
