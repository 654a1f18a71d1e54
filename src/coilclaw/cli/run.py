"""``coilclaw run``: carry out a contract, or one sentence, in isolated worktrees."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json, add_performers, add_repo

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.runwiring import Terms
    from coilclaw.cli.console import Console
    from coilclaw.orchestrator.planning import Request
    from coilclaw.orchestrator.starting import Options

FOREVER: Final = "forever"
"""What ``--wait`` means without a number."""
MAX_WAIT_S: Final = 7 * 24 * 3600.0


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "contract", nargs="?", metavar="CONTRACT.json", help="the contract; '-' reads the input"
    )
    parser.add_argument(
        "--request", metavar="SENTENCE", help="have the PM make the contract from one sentence"
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a run instead")
    add_answer(parser)
    add_performers(parser)
    parser.add_argument(
        "--merge", action="store_true", help="merge accepted work into the branch checked out"
    )
    parser.add_argument(
        "--no-baseline",
        action="store_true",
        help="start without trying set-up and tests on the baseline first",
    )
    add_watching(parser)
    add_waiting(parser)
    add_repo(parser)
    add_json(parser)


def add_answer(parser: argparse.ArgumentParser) -> None:
    """Declare how a question of the planner is answered."""
    parser.add_argument(
        "--answer",
        metavar="TEXT",
        help="answer the question that the PM asked, or would ask",
    )


def add_watching(parser: argparse.ArgumentParser) -> None:
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
        help="print every event with the names of states, too",
    )
    # What machines read is one JSON object on each line.
    parser.set_defaults(as_lines=True)


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """Declare for what a run waits, and how long."""
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


def waiting_terms(args: argparse.Namespace) -> Terms:
    """Return how long to wait for approvals and for other runs."""
    from coilclaw.app.runwiring import Terms
    from coilclaw.errors import UsageError

    if args.wait is None:
        return Terms(lock_wait_s=0.0 if args.no_wait else None)
    if args.wait == FOREVER:
        return Terms(lock_wait_s=math.inf)
    try:
        seconds = float(args.wait)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise UsageError(
            f"--wait is a number of seconds between 0 and a week, not {args.wait[:100]!r}",
            rule="usage.wait",
            hint="without a number it stands last: it would take what follows for one",
        )
    return Terms(wait_s=seconds, lock_wait_s=seconds)


def run(args: argparse.Namespace, console: Console) -> int:
    """Start or resume a run, and stay with it until it ends or waits."""
    from coilclaw.cli.runprogress import attend
    from coilclaw.errors import UsageError

    _return_contract(args)
    terms = waiting_terms(args)
    given = [name for name in ("contract", "request", "resume") if getattr(args, name) is not None]
    if len(given) != 1:
        raise UsageError(
            "give a contract, or --request with a sentence, or --resume with a run",
            rule="usage.run",
            hint="'coilclaw contract init' writes a contract",
        )
    if args.answer is not None and (args.contract is not None or not args.answer.strip()):
        raise UsageError(
            "--answer holds a text, and goes with --request or --resume", rule="usage.answer"
        )
    if args.resume is not None:
        settled = ("runner", "reviewer", "merge", "diagnostic", "no_baseline")
        refused = [name.replace("_", "-") for name in settled if getattr(args, name)]
        if refused:
            raise UsageError(f"--{refused[0]} was settled when the run began", rule="usage.resume")
        from coilclaw.app.runlisting import RunStore

        return attend(
            args,
            console,
            lambda runs, watch: runs.resume(
                RunStore(runs.places).find(args.resume).name, watch, answer=args.answer or ""
            ),
            terms,
        )
    request = _request(args)
    options = options_from(args, request)
    return attend(args, console, lambda runs, watch: runs.start(request, options, watch), terms)


def _return_contract(args: argparse.Namespace) -> None:
    """Let ``--wait CONTRACT.json`` mean what it says: the contract is no number of seconds."""
    others = (args.contract, args.request, args.resume)
    if args.wait in {None, FOREVER} or any(other is not None for other in others):
        return
    try:
        float(args.wait)
    except ValueError:
        args.contract, args.wait = args.wait, FOREVER


def _request(args: argparse.Namespace) -> Request:
    from coilclaw.errors import UsageError
    from coilclaw.orchestrator.planning import Request

    if args.contract is not None:
        return Request(read_contract(args.contract))
    sentence = " ".join(args.request.split())
    if not sentence:
        raise UsageError("the request is empty", rule="request.empty")
    return Request(None, sentence, () if args.answer is None else (args.answer,))


def read_contract(name: str) -> bytes:
    """Return the bytes of a contract, from a file or from the input."""
    from coilclaw.errors import UsageError
    from coilclaw.orchestrator.starting import MAX_CONTRACT_BYTES

    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_CONTRACT_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_CONTRACT_BYTES + 1)
    except (OSError, ValueError) as problem:
        said = getattr(problem, "strerror", None) or problem
        raise UsageError(f"cannot read {name}: {said}", rule="contract.read") from problem
    if len(data) > MAX_CONTRACT_BYTES:
        raise UsageError(
            f"{name} is larger than the {MAX_CONTRACT_BYTES} bytes of the largest contract",
            rule="contract.large",
        )
    return data


def options_from(args: argparse.Namespace, request: Request) -> Options:
    """Return how a run is carried out: as the arguments say, else as the contract does."""
    from coilclaw.agents import naming
    from coilclaw.app.runoptions import options_of

    return options_of(
        request,
        runner=args.runner,
        reviewer=args.reviewer,
        merge=getattr(args, "merge", False),
        diagnostic=args.diagnostic,
        baseline=not getattr(args, "no_baseline", False),
        hint=f"say which: --runner, one of {naming.listed()}",
    )
