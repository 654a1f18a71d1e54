"""Run one command and say what went wrong, if anything did."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import Console
from coilclaw.cli.parser import COMMANDS, build_parser
from coilclaw.errors import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    ProviderError,
    UsageError,
    VerificationFailed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
DENIED: Final = 3
PROVIDER: Final = 4
FAULT: Final = 5

EXIT_CODES: Final[tuple[tuple[type[CoilClawError], int], ...]] = (
    (UsageError, USAGE),
    (DeniedError, DENIED),
    (VerificationFailed, FAILED),
    (ProviderError, PROVIDER),
    (EnvironmentFault, FAULT),
    (CoilClawError, FAULT),
)


def dispatch(arguments: Sequence[str]) -> int:
    """Parse the arguments, run the command, and return the exit code."""
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    parser = build_parser(only=wanted if wanted in COMMANDS else None)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    console = Console.of(sys.stdout, sys.stderr, os.environ, as_json=getattr(args, "json", False))
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="coilclaw: warning: %(message)s"
    )
    module = import_module(f"coilclaw.cli.{args.module}")
    try:
        code = int(module.run(args, console))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as in `… | head`: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        console.error("stopped", rule="interrupted")
        return DENIED
    except CoilClawError as problem:
        return _explain(console, problem)
    except OSError as problem:
        return _fault(console, problem)
    return code


def _explain(console: Console, problem: CoilClawError) -> int:
    console.error(_sentence(problem), rule=problem.rule, hint=problem.hint)
    if console.as_json:
        details: dict[str, object] = {
            "outcome": "error",
            "rule": problem.rule,
            "message": problem.message,
        }
        for name in ("where", "line", "path", "paths", "hint"):
            if value := getattr(problem, name, None):
                details[name] = value
        console.data(details)
    return exit_code(problem)


def _sentence(problem: CoilClawError) -> str:
    """Say file and line as well, where they are known."""
    line = getattr(problem, "line", None)
    said = problem.message if line is None or f"line {line}" in problem.message else None
    sentence = said or f"line {line}: {problem.message}"
    return f"{problem.where}: {sentence}" if problem.where else sentence


def exit_code(problem: CoilClawError) -> int:
    """Return the exit code an error stands for."""
    return next(code for kind, code in EXIT_CODES if isinstance(problem, kind))


def _fault(console: Console, problem: OSError) -> int:
    where = f" ({problem.filename})" if problem.filename else ""
    message = f"{problem.strerror or problem}{where}"
    console.error(message, rule="environment")
    if console.as_json:
        console.data({"outcome": "error", "rule": "environment", "message": message})
    return FAULT
