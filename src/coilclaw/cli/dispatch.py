"""Run one command, report its errors and return its exit code."""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DENIED, DONE, FAILED, FAULT, PROVIDER, USAGE, Console, Namespace
from coilclaw.cli.parser import COMMANDS, build_parser
from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    ProviderError,
    UsageError,
    VerificationFailed,
    interrupt,
    signal_scope,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CODES: Final[tuple[tuple[type[CoilClawError], int], ...]] = (
    (UsageError, USAGE),
    (DeniedError, DENIED),
    (VerificationFailed, FAILED),
    (ProviderError, PROVIDER),
    (EnvironmentFault, FAULT),
    (CoilClawError, FAULT),
)


_DETAILS: Final = ("where", "line", "path", "paths", "hint")
"""What an error may hold besides its rule and its message."""


def dispatch(arguments: Sequence[str]) -> int:
    """Parse the arguments, run the command, and return the exit code."""
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    parser = build_parser(only=wanted if wanted in COMMANDS else None)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    return perform(args)


def perform(args: Namespace) -> int:
    """Run a command whose arguments are parsed, and return the exit code."""
    console = Console.of(
        sys.stdout,
        sys.stderr,
        os.environ,
        as_json=getattr(args, "json", False),
        as_lines=getattr(args, "follow", False) or getattr(args, "as_lines", False),
    )
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="coilclaw: warning: %(message)s"
    )
    try:
        with signal_scope(interrupt, signal.SIGTERM):
            code = run_action(args, console)
            console.out.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `… | head`: no output can reach it.
        forget_output()
        return DONE
    except KeyboardInterrupt:
        if console.err.isatty():
            console.note("")  # The terminal shows ^C where the cursor is.
        console.error("stopped", rule="stopped")
        return DENIED
    except CoilClawError as problem:
        return _explain(console, problem)
    except OSError as problem:
        return _fault(console, problem)
    except Exception as problem:  # noqa: BLE001 - an unexpected error is still one sentence
        return _surprise(console, problem)
    return code


def run_action(args: Namespace, console: Console) -> int:
    """Run the action of the command, or the command itself if it has no actions."""
    act = getattr(args, "act", None) or import_module(args.module, __package__).run
    return int(act(args, console) or DONE)


def forget_output() -> None:
    """Discard the rest of the output, so that the interpreter's last flush succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _explain(console: Console, problem: CoilClawError) -> int:
    from coilclaw.changes import failure_report

    parts = failure_report.list_failures(problem)
    where = f"{problem.where}: " if problem.where else ""
    for number, part in enumerate(parts[: failure_report.MAX_LISTED]):
        sentence = failure_report.locate_failure(part)
        console.error(where + sentence, rule=part.rule, hint=part.hint)
        if number < failure_report.MAX_EXCERPTS:
            console.lines(failure_report.quote_lines(part))
    if len(parts) > failure_report.MAX_LISTED:
        console.note(f"  and {len(parts) - failure_report.MAX_LISTED} more")
    if console.as_json:
        details: dict[str, object] = {"outcome": "error", "rule": problem.rule}
        details["message"] = problem.message
        given = ((name, getattr(problem, name, None)) for name in _DETAILS)
        details |= {name: value for name, value in given if value}
        if problem.failures or getattr(problem, "nearest", ()):
            details["failures"] = failure_report.describe_failures(problem)
        console.data(details)
    return exit_code(problem)


def exit_code(problem: CoilClawError) -> int:
    """Return the exit code of an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(problem, kind))


def _fault(console: Console, problem: OSError) -> int:
    where = f" ({problem.filename})" if problem.filename else ""
    message = f"{problem.strerror or problem}{where}"
    try:
        console.error(message, rule="environment")
        console.emit({"outcome": "error", "rule": "environment", "message": message})
        console.out.flush()
    except OSError:
        forget_output()  # standard output itself cannot be written
    return FAULT


def _surprise(console: Console, problem: Exception) -> int:
    if os.environ.get("COILCLAW_DEBUG"):
        raise problem
    console.error(
        f"internal error: {type(problem).__name__}: {problem}",
        rule="internal",
        hint="set COILCLAW_DEBUG=1 for a traceback, and report it",
    )
    console.emit({"outcome": "error", "rule": "internal", "message": type(problem).__name__})
    return FAULT
