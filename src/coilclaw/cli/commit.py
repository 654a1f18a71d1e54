"""``code-commit`` (= ``coilclaw commit``): edit, build, repair."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coilclaw.app.committing import Committed
    from coilclaw.cli.console import Console
    from coilclaw.cli.progress import Progress
    from coilclaw.codecommit.workflow import Outcome

DEFAULT_BUILD_TIMEOUT_S: Final = 30 * 60


def main() -> int:
    """Run as the executable ``code-commit``."""
    from coilclaw.cli.dispatch import perform
    from coilclaw.cli.main import leave, make_ready
    from coilclaw.cli.parser import single_parser

    make_ready()
    return leave(perform(single_parser("code-commit", "commit").parse_args(sys.argv[1:])))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "action", nargs="?", choices=("init",), metavar="init", help="set this project up, and stop"
    )
    parser.add_argument(
        "--model", default="gemini-2.5-pro", metavar="NAME", help="default: gemini-2.5-pro"
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="an OpenAI-compatible endpoint, which has no key by default",
    )
    parser.add_argument(
        "--key-file", metavar="NAME", help="the key of the endpoint; .gitignore must name it"
    )
    parser.add_argument(
        "--fallback",
        action="append",
        default=[],
        metavar="MODEL",
        help="ask this model when the one before cannot be reached (may be repeated)",
    )
    parser.add_argument(
        "--build-timeout",
        type=seconds,
        default=DEFAULT_BUILD_TIMEOUT_S,
        metavar="SECONDS",
        help="end a build that takes longer (default: 1800)",
    )
    parser.add_argument(
        "--model-timeout",
        type=seconds,
        default=DEFAULT_BUILD_TIMEOUT_S,
        metavar="SECONDS",
        help="end a request that takes longer (default: 1800)",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="fail at once while another run works in this project, instead of waiting for it",
    )
    parser.add_argument("--rollup", action="store_true", help="make codeRollup.txt first")
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the workflow in the current directory."""
    from coilclaw.app.committing import Wishes, commit
    from coilclaw.app.home import home

    directory = Path.cwd()
    if args.action == "init":
        return _init(directory, console)
    wishes = Wishes(
        directory=directory,
        home=home(),
        model=args.model,
        base_url=args.base_url,
        key_file=args.key_file,
        fallbacks=tuple(args.fallback),
        build_timeout_s=args.build_timeout,
        model_timeout_s=args.model_timeout,
        rollup=args.rollup,
        wait=not args.no_wait,
    )
    return _report(commit(wishes, os.environ, console_progress(console)), console)


def console_progress(console: Console) -> Callable[[Callable[[str], str], int], Progress]:
    """Return what makes the progress display once the secrets are known."""
    from coilclaw.cli.progress import Progress

    live = console.err.isatty() and console.colour_err

    def make(redact: Callable[[str], str], repairs: int) -> Progress:
        return Progress(console, live=live, redact=redact, repairs=repairs)

    return make


def _init(directory: Path, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.codecommit.setup import set_up

    made = set_up(directory)
    if console.as_json:
        console.data({"outcome": "set_up", "made": made})
        return DONE
    for what in made:
        console.note(f"made {what}")
    if not made:
        console.note("everything is set up already")
    console.note(
        "next: put a key into gemini-key.txt, write query.txt, and run code-commit --rollup"
    )
    return DONE


def _report(done: Committed, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED, PROVIDER

    outcome = done.outcome
    answered = outcome.attempts[-1] if outcome.attempts else None
    if console.as_json:
        console.data(
            {
                "outcome": outcome.status,
                "model": answered.model if answered and answered.model else done.model,
                "log": str(done.log),
                "attempts": [
                    {
                        "name": attempt.name,
                        "change": attempt.change,
                        "files": [done.redact(name) for name in attempt.files],
                        "exit_code": attempt.exit_code,
                        "passed": attempt.passed,
                        "problem": done.redact(attempt.problem) if attempt.problem else None,
                    }
                    for attempt in outcome.attempts
                ],
                "problem": done.redact(str(outcome.problem)) if outcome.problem else None,
            }
        )
    if outcome.status == "passed":
        console.note(
            f"passed after {len(outcome.attempts)} of 4 attempts; logs in {done.log}", "green"
        )
        return DONE
    if outcome.status == "failed":
        console.note(f"the build still fails; logs in {done.log}", "red")
        _hint(console, outcome)
        return FAILED
    assert outcome.problem is not None
    console.error(
        f"{done.redact(outcome.problem.message)}; logs in {done.log}",
        rule=outcome.problem.rule,
        hint=outcome.problem.hint,
    )
    _hint(console, outcome)
    return PROVIDER


def _hint(console: Console, outcome: Outcome) -> None:
    """Say how to take the run back, if it changed anything."""
    changes = [attempt.change for attempt in outcome.attempts if attempt.change]
    if changes:
        console.note(f"take everything back with: coilclaw undo --run {changes[-1]}", "dim")


def seconds(text: str) -> float:
    """A time limit."""
    value = float(text)
    if not 0 < value < 10**7:
        raise ValueError(text)
    return value
