"""``coilclaw apply``: a model's answer → the tree, all or nothing."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json, add_root

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.changes.operations import Limits
    from coilclaw.cli.console import Console
    from coilclaw.errors import CoilClawError
    from coilclaw.workspace.delivery import Delivered, Denied, Terms

FORMATS: Final = ("auto", "fence", "bundle", "patch", "git", "envelope", "blocks")


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE|-",
        help="the answer (default: standard input)",
    )
    add_root(parser)
    parser.add_argument(
        "--format", choices=FORMATS, default="auto", help="the format to look for (default: auto)"
    )
    parser.add_argument(
        "--policy",
        default="default",
        metavar="NAME",
        help="which files are protected: default or code-commit",
    )
    parser.add_argument(
        "--protect",
        action="append",
        default=[],
        metavar="GLOB",
        help="protect these paths as well (may be repeated)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, change nothing"
    )
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="skip a find that is missing, take the first of several, recount hunks",
    )
    parser.add_argument("--binary", action="store_true", help="accept git binary patches")
    parser.add_argument(
        "--links", action="store_true", help="accept links that stay inside the tree"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Apply the answer and show the difference."""
    from coilclaw.app.committing import known_secrets
    from coilclaw.app.home import home
    from coilclaw.app.tree import open_tree
    from coilclaw.changes import answer
    from coilclaw.changes.operations import Format, Limits, NoChanges, Options, Refusal
    from coilclaw.security.protected import KEY_FILES, policy_named
    from coilclaw.workspace.delivery import Denied, Terms, deliver

    terms = Terms(
        policy=policy_named(args.policy, args.protect),
        options=Options(lenient=args.lenient, binary=args.binary, links=args.links),
        limits=Limits(),
        dry_run=args.dry_run,
    )
    with open_tree(Path(args.root), home()) as tree, _reading(args.file):
        text = answer.decode(_read(args.file, terms.limits, console))
        failures: list[CoilClawError] = []
        parsed = answer.parse(
            text,
            format=None if args.format == "auto" else Format(args.format),
            options=terms.options,
            limits=terms.limits,
            failures=failures,
        )
        terms = replace(terms, redact=known_secrets(tree.root.path, KEY_FILES, os.environ).redact)
        outcome = deliver(tree.root, tree.state, parsed, terms, failures)
    if isinstance(outcome, Refusal):
        return _refused(console, outcome)
    if isinstance(outcome, NoChanges):
        return _nothing(console)
    if isinstance(outcome, Denied):
        return _denied(console, outcome, args.file)
    return _delivered(console, outcome, terms, args.root)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Let what is wrong with the answer name the file it stands in."""
    from coilclaw.errors import AnswerError, PathRefused, PlanRefused

    try:
        yield
    except (AnswerError, PathRefused, PlanRefused) as problem:
        problem.where = _shown(name)
        raise


def _read(name: str, limits: Limits, console: Console) -> bytes:
    from coilclaw.errors import AnswerError, UsageError

    bound = limits.answer_bytes
    if name == "-":
        if sys.stdin.isatty():
            console.note("reading the answer from the terminal; end it with Ctrl-D")
        raw = sys.stdin.buffer.read(bound + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                raw = file.read(bound + 1)
        except FileNotFoundError as problem:
            raise UsageError(f"there is no file {name}", rule="answer.file") from problem
        except IsADirectoryError as problem:
            raise UsageError(f"{name} is a directory", rule="answer.file") from problem
    if len(raw) > bound:
        raise AnswerError(
            f"the answer is larger than the bound of {bound:,} bytes", rule="answer.bounds"
        )
    return raw


def _refused(console: Console, outcome: object) -> int:
    from coilclaw.changes.operations import Refusal
    from coilclaw.cli.dispatch import DENIED

    assert isinstance(outcome, Refusal)
    console.error(
        f"the model refused (answer line {outcome.line}): {outcome.sentence}", rule="answer.refusal"
    )
    if console.as_json:
        console.data({"outcome": "refused", "sentence": outcome.sentence, "line": outcome.line})
    return DENIED


def _nothing(console: Console) -> int:
    from coilclaw.cli.dispatch import USAGE

    console.error(
        "the answer asks for no change",
        rule="answer.no_changes",
        hint="'coilclaw prompt aptix' prints the text that tells a model how to answer",
    )
    if console.as_json:
        console.data({"outcome": "no_changes"})
    return USAGE


def _denied(console: Console, outcome: Denied, name: str) -> int:
    from coilclaw.changes.failure_report import (
        MAX_LISTED,
        describe_failures,
        locate_failure,
        quote_lines,
    )
    from coilclaw.cli.dispatch import DENIED

    for denial in outcome.denials:
        line = "" if denial.line is None else f"line {denial.line}: "
        console.error(
            f"{_shown(name)}: {line}denied: {denial.verdict.reason}; nothing was changed",
            rule=denial.verdict.rule,
        )
    for failure in outcome.failures[:MAX_LISTED]:
        console.error(f"{_shown(name)}: {locate_failure(failure)}", rule=failure.rule)
        console.lines(quote_lines(failure))
    if console.as_json:
        console.data(
            {
                "outcome": "denied",
                "failures": [
                    record for each in outcome.failures for record in describe_failures(each)
                ][:MAX_LISTED],
                "verdicts": [
                    {
                        "path": denial.path,
                        "line": denial.line,
                        "rule": denial.verdict.rule,
                        "reason": denial.verdict.reason,
                    }
                    for denial in outcome.denials
                ],
            }
        )
    return DENIED


def _shown(name: str) -> str:
    return "standard input" if name == "-" else name


def _delivered(console: Console, outcome: Delivered, terms: Terms, root: str) -> int:
    from coilclaw.changes import unified
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.report import counted, plan_record, undo_command

    plan, change = outcome.plan, outcome.change
    for warning in plan.warnings:
        console.warn(warning)
    if console.as_json:
        name = "applied" if change else "planned" if terms.dry_run else "unchanged"
        console.data(
            {"outcome": name, "change": change.id if change else None, **plan_record(plan)}
        )
        return DONE
    console.diff(unified.diff(plan))
    if plan.empty:
        console.note("everything is as the answer asks already; nothing was changed")
    elif change is None:
        console.note(f"would change {counted(plan)}; nothing was changed (dry run)", "yellow")
    else:
        console.note(f"applied {change.id}: {counted(plan)}", "green")
        console.note(f"take it back with: {undo_command(change.id, root)}", "dim")
    return DONE
