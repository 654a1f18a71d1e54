"""``coilclaw policy``: show what is allowed, and why, without running anything."""

from __future__ import annotations

import json
import os
import sys
from argparse import REMAINDER
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.cli.command import DONE, FAILED, find_home, load_config, pick
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.app import Config, Policy
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.kernel import Effect

LEVELS: Final = ("readonly", "supervised", "full")
MAX_LINE_CHARS: Final = 2**20
_CONSULTED: Final[dict[object, Literal["clock", "memory", "user"]]] = {
    "time": "clock",
    "memory_search": "memory",
    "ask_user": "user",
}
"""What a tool consults if the question names only the tool."""


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("show", "show the policy in effect", _show).json()
    action("check", "run every example of the policy file", _check).json()
    explaining = action("explain", "show what would be decided, and by which rule", _explain)
    explaining.value("question", "COMMAND", "a shell command line", nargs="?")
    explaining.value("--path", "P", "a path that a tool would use")
    explaining.value("--url", "U", "a URL that would be fetched")
    explaining.value("--tool", "NAME", "the tool that would use it")
    explaining.value("--autonomy", "LEVEL", "judge at this level of autonomy", choices=LEVELS)
    explaining.flag("--batch", "read JSON lines from standard input, and answer each").json()
    explaining.value("--argv", "WORD", "a command without a shell (last)", nargs=REMAINDER)


def _show(_: Namespace, console: Console) -> None:
    from coilclaw.app import describe

    config = load_config()
    said = describe(config, _load_policy(config, None))
    if not console.emit({label.replace(" ", "_"): text for label, text in said.items()}):
        for label, text in said.items():
            console.print(f"{label:<20} {text}")


def _check(_: Namespace, console: Console) -> int:
    """Run the policy's own examples; report failing ones and missing shipped rules."""
    from coilclaw.app import describe_missing
    from coilclaw.policy import policy_rules

    rules = _load_policy(load_config(), None).rules
    results = policy_rules.check_examples(rules)
    failed = [
        {
            **pick(one, "rule", "example"),
            "reason": f"{'must' if one.expected else 'must not'} match, and {one.came} decided",
        }
        for one in results
        if not one.holds
    ]
    missing = policy_rules.find_missing(rules)
    record = {"ok": not failed, "examples": len(results), "failed": failed}
    if not console.emit({**record, "missing": list(missing)}):
        for each in failed:
            said = f"{each['rule']}: {each['example']!r} {each['reason']}"
            console.error(said, rule="policy.example")
        if not failed:
            console.print(f"{len(results)} examples hold", "green")
        if missing:
            console.print(describe_missing(missing), "yellow")
    return FAILED if failed else DONE


def _explain(args: Namespace, console: Console) -> None:
    config = load_config()
    if args.batch:
        _explain_lines(args, config, console)
        return
    question = {name: getattr(args, name) for name in ("path", "url", "argv", "tool")}
    question["command"] = args.question
    answer = _answer(question, config, _load_policy(config, args.autonomy))
    if console.emit(answer):
        return
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


def _explain_lines(args: Namespace, config: Config, console: Console) -> None:
    policies: dict[str | None, Policy] = {}
    while line := sys.stdin.readline(MAX_LINE_CHARS + 1):
        try:
            question = _read_question(line)
            level = question.get("autonomy", args.autonomy)
            if level is not None and level not in LEVELS:
                raise UsageError(f"the autonomy {level!r} does not exist", rule="batch.malformed")
            key = None if level is None else str(level)
            if key not in policies:
                policies[key] = _load_policy(config, key)
            answer = _answer({"tool": args.tool, **question}, config, policies[key])
        except UsageError as problem:
            answer = _deny(problem.rule, problem.message)
        console.out.write(json.dumps(answer) + "\n")


def _read_question(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        said = f"the line is not valid JSON: {problem}"
        raise UsageError(said, rule="batch.malformed") from problem
    if not isinstance(value, dict):
        raise UsageError("the line is not a JSON object", rule="batch.malformed")
    return value


def _answer(question: Mapping[str, object], config: Config, policy: Policy) -> dict[str, object]:
    tool = question.get("tool")
    if tool is not None:
        from coilclaw.app import collect_tools, list_allowed_tools

        with ExitStack() as stack:
            known = collect_tools(config, find_home(), stack)
        if tool not in known:
            return _deny("tool.unknown", f"the tool {tool!r} does not exist")
        if tool not in list_allowed_tools(known.values(), config.cli.tools_allow):
            return _deny("tool.not_allowed", f"{tool} is not in channels.cli.tools_allow")
    judged = policy.judge(_read_effects(question, tool))
    verdict = judged.verdict
    segments = (
        pick(one, "text", "argv", "kind", "risk", "rule", "reason") for one in judged.segments
    )
    return {
        "decision": str(verdict.decision),
        "risk": str(verdict.risk),
        "rule": verdict.rule,
        "reason": verdict.reason,
        "network": judged.terms.network,
        "network_reason": judged.terms.asked_for,
        "segments": [{**one, "risk": str(one["risk"])} for one in segments],
    }


def _read_effects(question: Mapping[str, object], tool: object) -> tuple[Effect, ...]:
    from coilclaw.kernel import Consults, Fetches, Reads, Runs, Writes

    given = [name for name in ("command", "path", "url", "argv") if question.get(name) is not None]
    if not given and tool in _CONSULTED:
        return (Consults(_CONSULTED[tool]),)
    if len(given) != 1:
        raise UsageError(
            "ask about one thing: a COMMAND, --path, --url or --argv", rule="policy.question"
        )
    name, value = given[0], question[given[0]]
    if name == "argv":
        if not isinstance(value, list) or not value or not all(isinstance(w, str) for w in value):
            raise UsageError("argv must be a list of strings", rule="policy.question")
        return (Runs(argv=tuple(value)),)
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string", rule="policy.question")
    if name == "command":
        return (Runs(command=value),)
    if name == "url":
        return (Fetches(value),)
    return (Writes(value) if tool in {"file_write", "apply_changes"} else Reads(value),)


def _deny(rule: str, reason: str) -> dict[str, object]:
    head = {"decision": "deny", "risk": "high", "rule": rule, "reason": reason}
    return {**head, "network": False, "network_reason": "", "segments": []}


def _load_policy(config: Config, level: str | None) -> Policy:
    from coilclaw.app import Policy
    from coilclaw.policy import Autonomy

    autonomy = None if level is None else Autonomy(level)
    return Policy(config, find_home(), os.environ, autonomy=autonomy)
