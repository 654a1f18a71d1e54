"""``coilclaw policy``: what is allowed, and why; nothing is run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.app.policy import Policy
    from coilclaw.cli.console import Console
    from coilclaw.config.values import Config
    from coilclaw.domain.effects import Effect
    from coilclaw.security.commandrules import ExampleResult
    from coilclaw.security.judgement import Judgement, Segment

LEVELS: Final = ("readonly", "supervised", "full")
MAX_LINE_CHARS: Final = 2**20


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    showing = actions.add_parser("show", help="the policy in force", allow_abbrev=False)
    add_json(showing)
    checking = actions.add_parser(
        "check", help="run every example of the policy file", allow_abbrev=False
    )
    add_json(checking)
    explaining = actions.add_parser(
        "explain", help="what would be decided, by which rule", allow_abbrev=False
    )
    explaining.add_argument("question", nargs="?", metavar="COMMAND", help="a shell command line")
    explaining.add_argument("--path", metavar="P", help="a path that a tool would use")
    explaining.add_argument("--url", metavar="U", help="an address that would be fetched")
    explaining.add_argument("--tool", metavar="NAME", help="the tool that would use it")
    explaining.add_argument(
        "--autonomy", choices=LEVELS, metavar="LEVEL", help="judge at this level instead"
    )
    explaining.add_argument(
        "--batch", action="store_true", help="read JSON lines from the input, answer line by line"
    )
    add_json(explaining)
    explaining.add_argument(
        "--argv", nargs=argparse.REMAINDER, metavar="WORD", help="a command without a shell; last"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Show, check or explain the policy."""
    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home

    config = open_config(home(), os.environ)
    match args.action:
        case "show":
            return _show(config, console)
        case "check":
            return _check(config, console)
        case _:
            return _explain(args, config, console)


def _show(config: Config, console: Console) -> int:
    from coilclaw.app.agentwiring import describe
    from coilclaw.cli.dispatch import DONE

    policy = _policy(config, None)
    said = describe(config, policy)
    if console.as_json:
        console.data({label.replace(" ", "_"): text for label, text in said.items()})
        return DONE
    for label, text in said.items():
        console.print(f"{label:<20} {text}")
    return DONE


def _check(config: Config, console: Console) -> int:
    from coilclaw.app.policy import describe_missing
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.security import commandrules

    rules = _policy(config, None).rules
    results = commandrules.check(rules)
    failed = [result for result in results if not result.holds]
    missing = commandrules.find_missing(rules)
    if console.as_json:
        console.data(
            {
                "ok": not failed,
                "examples": len(results),
                "failed": [
                    {"rule": one.rule, "example": one.example, "reason": _why(one)}
                    for one in failed
                ],
                "missing": list(missing),
            }
        )
        return FAILED if failed else DONE
    for one in failed:
        console.error(f"{one.rule}: {one.example!r} {_why(one)}", rule="policy.example")
    if not failed:
        console.print(f"{len(results)} examples hold", "green")
    if missing:
        console.print(describe_missing(missing), "yellow")
    return FAILED if failed else DONE


def _why(one: ExampleResult) -> str:
    return f"{'must' if one.expected else 'must not'} match, and {one.came} decided"


def _explain(args: argparse.Namespace, config: Config, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE

    if args.batch:
        return _batch(args, config, console)
    question: dict[str, object] = {
        "command": args.question,
        "path": args.path,
        "url": args.url,
        "argv": args.argv,
        "tool": args.tool,
    }
    answer = _answer(question, config, _policy(config, args.autonomy))
    if console.as_json:
        console.data(answer)
        return DONE
    style = {"allow": "green", "ask": "yellow", "deny": "red"}[str(answer["decision"])]
    console.print(f"{answer['decision']}  {answer['risk']} risk  [{answer['rule']}]", style)
    console.print(f"  {answer['reason']}")
    if answer["network"]:
        console.print(f"  network: yes, because {answer['network_reason'] or 'its rule says so'}")
    segments = answer["segments"]
    for segment in segments if isinstance(segments, list) else ():
        console.print(
            f"  {segment['kind']:<9} {segment['text']}  [{segment['rule']}] {segment['reason']}"
        )
    return DONE


def _batch(args: argparse.Namespace, config: Config, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError

    policies: dict[str | None, Policy] = {}
    while line := sys.stdin.readline(MAX_LINE_CHARS + 1):
        try:
            question = _question(line)
            level = question.get("autonomy", args.autonomy)
            if level is not None and level not in LEVELS:
                raise UsageError(f"there is no autonomy {level!r}", rule="batch.malformed")
            key = None if level is None else str(level)
            if key not in policies:
                policies[key] = _policy(config, key)
            answer = _answer({"tool": args.tool, **question}, config, policies[key])
        except UsageError as problem:
            answer = _denied(problem.rule, problem.message)
        console.out.write(json.dumps(answer) + "\n")
    return DONE


def _question(line: str) -> dict[str, object]:
    from coilclaw.errors import UsageError

    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"the line is not JSON: {problem}", rule="batch.malformed") from problem
    if not isinstance(value, dict):
        raise UsageError("the line is no JSON object", rule="batch.malformed")
    return value


def _answer(question: Mapping[str, object], config: Config, policy: Policy) -> dict[str, object]:
    tool = question.get("tool")
    if tool is not None:
        from contextlib import ExitStack

        from coilclaw.app.home import home
        from coilclaw.app.toolbox import allowed_of, tools_of

        with ExitStack() as stack:
            known = tools_of(config, home(), stack)
        if tool not in known:
            return _denied("tool.unknown", f"there is no tool {tool!r}")
        if tool not in allowed_of(known.values(), config.cli.tools_allow):
            return _denied("tool.not_allowed", f"{tool} is not in channels.cli.tools_allow")
    return _told(policy.judge(_effects(question, tool)))


def _effects(question: Mapping[str, object], tool: object) -> tuple[Effect, ...]:
    from coilclaw.domain.effects import Consults, Fetches, Reads, Runs, Writes
    from coilclaw.errors import UsageError

    given = [name for name in ("command", "path", "url", "argv") if question.get(name) is not None]
    if not given and tool == "time":
        return (Consults("clock"),)
    if not given and tool == "memory_search":
        return (Consults("memory"),)
    if not given and tool == "ask_user":
        return (Consults("user"),)
    if len(given) != 1:
        raise UsageError(
            "ask about one thing: a COMMAND, --path, --url or --argv", rule="policy.question"
        )
    value = question[given[0]]
    if given[0] == "argv":
        if not isinstance(value, list) or not value or not all(isinstance(w, str) for w in value):
            raise UsageError("argv is a list of words", rule="policy.question")
        return (Runs(argv=tuple(value)),)
    if not isinstance(value, str):
        raise UsageError(f"{given[0]} is a text", rule="policy.question")
    match given[0]:
        case "command":
            return (Runs(command=value),)
        case "url":
            return (Fetches(value),)
        case _:
            writes = tool in {"file_write", "apply_changes"}
            return (Writes(value) if writes else Reads(value),)


def _told(judged: Judgement) -> dict[str, object]:
    verdict = judged.verdict
    return {
        "decision": str(verdict.decision),
        "risk": str(verdict.risk),
        "rule": verdict.rule,
        "reason": verdict.reason,
        "network": judged.terms.network,
        "network_reason": judged.terms.asked_for,
        "segments": [_segment(segment) for segment in judged.segments],
    }


def _segment(segment: Segment) -> dict[str, object]:
    return {
        "text": segment.text,
        "argv": list(segment.argv),
        "kind": segment.kind,
        "risk": str(segment.risk),
        "rule": segment.rule,
        "reason": segment.reason,
    }


def _denied(rule: str, reason: str) -> dict[str, object]:
    return {
        "decision": "deny",
        "risk": "high",
        "rule": rule,
        "reason": reason,
        "network": False,
        "network_reason": "",
        "segments": [],
    }


def _policy(config: Config, level: str | None) -> Policy:
    from coilclaw.app.home import home
    from coilclaw.app.policy import Policy
    from coilclaw.security.autonomy import Autonomy

    return Policy(config, home(), autonomy=None if level is None else Autonomy(level))
