"""``coilclaw apply``: a model's answer → the tree, all or nothing."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DENIED, DONE, USAGE, find_home, read_input
from coilclaw.kernel import AnswerError, CoilClawError, PathRefused, PlanRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.workspace import Delivered, Denied

FORMATS: Final = ("auto", "fence", "bundle", "patch", "git", "envelope", "blocks")


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("file", "FILE|-", "the answer (default: standard input)", nargs="?", default="-")
    parser.root()
    parser.value(
        "--format", None, "the format to look for (default: auto)", choices=FORMATS, default="auto"
    )
    parser.value(
        "--policy", "NAME", "which files are protected: default or code-commit", default="default"
    )
    parser.many("--protect", "GLOB", "also protect these paths (repeatable)")
    parser.flag("--dry-run", "show what would change, without changing it")
    parser.flag("--lenient", "skip a missing find, use the first of several, recount hunks")
    parser.flag("--binary", "accept git binary patches")
    parser.flag("--links", "accept links that stay inside the tree").json()


def run(args: Namespace, console: Console) -> int:
    """Apply the answer and show the difference."""
    from coilclaw.changes import AnswerLimits, AnswerOptions, Format, NoChanges, Refusal, answer
    from coilclaw.commit import find_known_secrets
    from coilclaw.policy import KEY_FILES, find_protected_policy
    from coilclaw.workspace import DeliveryTerms, Denied, deliver_answer, open_tree

    terms = DeliveryTerms(
        policy=find_protected_policy(args.policy, args.protect),
        options=AnswerOptions(lenient=args.lenient, binary=args.binary, links=args.links),
        limits=AnswerLimits(),
        dry_run=args.dry_run,
    )
    where = "standard input" if args.file == "-" else args.file
    with open_tree(Path(args.root), find_home()) as tree, _name_source(where):
        text = answer.decode_answer(_read(args.file, terms.limits.answer_bytes, console))
        failures: list[CoilClawError] = []
        parsed = answer.parse_answer(
            text,
            format=None if args.format == "auto" else Format(args.format),
            options=terms.options,
            limits=terms.limits,
            failures=failures,
        )
        terms = replace(
            terms, redact=find_known_secrets(tree.root.path, KEY_FILES, os.environ).redact
        )
        outcome = deliver_answer(tree.root, tree.state, parsed, terms, failures)
    if isinstance(outcome, Refusal):
        said = f"the model refused (answer line {outcome.line}): {outcome.sentence}"
        console.error(said, rule="answer.refusal")
        console.emit({"outcome": "refused", "sentence": outcome.sentence, "line": outcome.line})
        return DENIED
    if isinstance(outcome, NoChanges):
        hint = "'coilclaw prompt aptix' prints instructions that tell a model how to answer"
        console.error("the answer contains no change", rule="answer.no_changes", hint=hint)
        console.emit({"outcome": "no_changes"})
        return USAGE
    if isinstance(outcome, Denied):
        _show_denials(console, outcome, where)
        return DENIED
    _show_delivery(console, outcome, args)
    return DONE


@contextmanager
def _name_source(where: str) -> Iterator[None]:
    """Add the name of the file to errors about the answer."""
    try:
        yield
    except (AnswerError, PathRefused, PlanRefused) as problem:
        problem.where = where
        raise


def _read(name: str, bound: int, console: Console) -> bytes:
    if name == "-" and sys.stdin.isatty():
        console.note("reading the answer from the terminal; end it with Ctrl-D")
    try:
        raw = read_input(name, bound)
    except FileNotFoundError as problem:
        raise UsageError(f"the file {name} does not exist", rule="answer.file") from problem
    except IsADirectoryError as problem:
        raise UsageError(f"{name} is a directory", rule="answer.file") from problem
    if len(raw) > bound:
        raise AnswerError(
            f"the answer is larger than the limit of {bound:,} bytes", rule="answer.bounds"
        )
    return raw


def _show_denials(console: Console, outcome: Denied, where: str) -> None:
    from coilclaw.changes import MAX_LISTED, describe_failures, locate_failure, quote_lines

    for denial in outcome.denials:
        line = "" if denial.line is None else f"line {denial.line}: "
        said = f"{where}: {line}denied: {denial.verdict.reason}; nothing was changed"
        console.error(said, rule=denial.verdict.rule)
    for failure in outcome.failures[:MAX_LISTED]:
        console.error(f"{where}: {locate_failure(failure)}", rule=failure.rule)
        console.lines(quote_lines(failure))
    failures = [record for each in outcome.failures for record in describe_failures(each)]
    verdicts = [
        {"path": one.path, "line": one.line, "rule": one.verdict.rule, "reason": one.verdict.reason}
        for one in outcome.denials
    ]
    console.emit({"outcome": "denied", "failures": failures[:MAX_LISTED], "verdicts": verdicts})


def _show_delivery(console: Console, outcome: Delivered, args: Namespace) -> None:
    from coilclaw.cli.plan_report import count_changes, format_undo_command, show_plan

    plan, change = outcome.plan, outcome.change
    for warning in plan.warnings:
        console.warn(warning)
    name = "applied" if change else "planned" if args.dry_run else "unchanged"
    if show_plan(console, plan, {"outcome": name, "change": change.id if change else None}):
        return
    if not plan.changes:
        console.note("the tree already matches the answer; nothing was changed")
    elif change is None:
        console.note(f"would change {count_changes(plan)}; nothing was changed (dry run)", "yellow")
    else:
        console.note(f"applied {change.id}: {count_changes(plan)}", "green")
        console.note(f"revert it with: {format_undo_command(change.id, args.root)}", "dim")
