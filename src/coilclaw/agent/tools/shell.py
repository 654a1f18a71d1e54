"""``shell``: runs a command in the workspace, in the operating system's sandbox."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import output
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    object_schema,
    text_argument,
    text_schema,
)
from coilclaw.kernel import DeniedError, Runs, ToolResult, UsageError

if TYPE_CHECKING:
    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.kernel import Effect, Json
    from coilclaw.policy import Terms
    from coilclaw.workspace import ProcessResult, Sandbox, SandboxSupport

MAX_COMMAND: Final = 30_000
"""Characters; the kernel accepts 128 KiB per argument, and a character may have four bytes."""
MAX_ARGUMENTS: Final = 1000
MAX_TIMEOUT_S: Final = 86_400
GRACE_S: Final = 15.0
"""Extra time of the guard beyond the command's limit, so that the output is still reported."""
MAX_SETTINGS: Final = 256 * 1024
_BASH: Final = ("bash", "--noprofile", "--norc", "-c")


class Shell(Tool):
    """Runs a command line, or a program with its arguments and no shell."""

    name = "shell"
    description = (
        "Run a program in the workspace. Prefer 'argv', a list with the program and its arguments, "
        "without a shell; 'command' is a bash command line. Give exactly one of them. Commands "
        "have no input, no terminal, and no network unless the user grants it: ask for it with "
        "'network'. Background processes end with the command, so start a server and its client "
        "in one command line. The exit code is reported."
    )
    parameters_schema = object_schema(
        {
            "argv": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_ARGUMENTS,
                "items": {"type": "string", "maxLength": MAX_COMMAND},
                "description": "the program and its arguments",
            },
            "command": text_schema(MAX_COMMAND, "a bash command line"),
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT_S,
                "description": "time limit in seconds; raise it for builds and tests, up to the "
                "configured limit",
            },
            "network": {
                "type": "boolean",
                "description": "request the network; the user may deny it",
            },
        }
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (_runs(args),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        from coilclaw.agent.tools import command_environment
        from coilclaw.workspace import sandbox

        runs = _runs(args)
        terms = context.judge((runs,)).terms
        argv = runs.argv or (*_BASH, str(runs.command))
        call = _Call(argv, terms, _seconds(args, context), context.probe_sandboxes())
        held = sandbox.choose_sandbox(
            command_environment.command_sandbox(terms, context), call.support
        ).enforced
        command_environment.refuse_open_network(terms, held)
        network = "no, although it was requested" if runs.network else "no"
        if terms.network:
            network = f"yes, because {terms.asked_for or 'a rule of the policy grants it'}"
        detail = (
            f"argv: {json.dumps(call.argv, ensure_ascii=False)}",
            f"in: {context.root.path}",
            f"sandbox: {command_environment.describe_sandbox(held, writable=terms.writable)}",
            f"network: {network}",
            f"at most: {call.timeout_s:g} s",
        )
        return ReadyCall(
            detail,
            lambda: _run(call, held.kind, context),
            timeout_s=call.timeout_s + GRACE_S,
            lookup="start",
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """A command and the terms on which it runs."""

    argv: tuple[str, ...]
    terms: Terms
    timeout_s: float
    support: SandboxSupport


def _runs(args: Arguments) -> Runs:
    if ("command" in args) == ("argv" in args):
        raise UsageError("give either 'command' or 'argv', not both", rule="shell.arguments")
    if "command" in args:
        command = text_argument(args, "command")
        _refuse_unpassable(command)
        return Runs(command=command, network=args.get("network") is True)
    given = args["argv"]
    if not isinstance(given, list) or not given or not given[0]:
        raise UsageError("'argv' names no program", rule="shell.arguments")
    argv = tuple(word for word in given if isinstance(word, str))
    if len(argv) < len(given):
        raise UsageError("'argv' holds an item that is not a text", rule="shell.arguments")
    for word in argv:
        _refuse_unpassable(word)
    return Runs(argv=argv, network=args.get("network") is True)


def _refuse_unpassable(word: str) -> None:
    """Raise ``UsageError`` for a word that the kernel cannot pass to a program."""
    try:
        raw = word.encode("utf-8")
    except UnicodeEncodeError:
        raw = b"\0"
    if b"\0" in raw:
        message = "the command holds a NUL or invalid Unicode"
        raise UsageError(message, rule="shell.arguments")


def _seconds(args: Arguments, context: ToolContext) -> float:
    value = args.get("timeout_s", context.limits.shell_timeout_s)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError("'timeout_s' is not a positive number", rule="shell.arguments")
    most = max(context.limits.shell_timeout_s, context.limits.shell_timeout_max_s)
    if value > most:
        raise DeniedError(
            f"'timeout_s' is {value:g}, but limits.shell_timeout_max_s permits at most {most:g} s",
            rule="shell.timeout",
            hint="request less, or let the user raise limits.shell_timeout_max_s",
        )
    return float(value)


def _run(call: _Call, kind: str, context: ToolContext) -> ToolResult:
    from coilclaw.agent.tools import command_environment

    env = command_environment.tool_environment(context, only_reading=not call.terms.writable)
    if not call.terms.writable and any("git" in word for word in call.argv):
        names = _git_settings(call, env, context)
        refused = command_environment.external_diff(names, call.argv)
        if refused is not None:
            return ToolResult(False, "", refused)
        env |= command_environment.quiet_drivers(names, env)
    with ExitStack() as stack:
        box = command_environment.command_sandbox(call.terms, context)
        if call.terms.writable and kind != "none":
            housed = command_environment.open_home(env, box, kind, context, call.support)
            env, box = stack.enter_context(housed)
        stack.enter_context(command_environment.keep_git_settings(call.terms, context))
        context.starting()
        result = _start(call.argv, env, box, context.limits.output_bytes, call, context)
    return _report(result, call, context)


def _start(
    argv: tuple[str, ...],
    env: dict[str, str],
    box: Sandbox,
    bound: int,
    call: _Call,
    context: ToolContext,
) -> ProcessResult:
    from coilclaw.workspace import command as process

    return process.run(
        argv,
        cwd=context.root.path,
        timeout_s=call.timeout_s,
        env=env,
        limit_bytes=bound,
        sandbox=box,
        support=call.support,
        cancel=context.cancel,
    )


def _git_settings(call: _Call, env: dict[str, str], context: ToolContext) -> list[str]:
    """Return the names of the repository's settings; reading them runs no program."""
    from coilclaw.agent.tools import command_environment

    argv = ("git", "config", "--list", "--includes", "--name-only")
    box = command_environment.command_sandbox(call.terms, context)
    result = _start(argv, env, box, MAX_SETTINGS, call, context)
    return output.cut_captured(result.stdout, MAX_SETTINGS).splitlines()


def _report(result: ProcessResult, call: _Call, context: ToolContext) -> ToolResult:
    from coilclaw.agent.tools import command_environment

    error = command_environment.explain_end(result, call.timeout_s, context)
    metadata: dict[str, Json] = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "outcome": result.outcome,
        "duration_ms": round(result.duration_s * 1000),
        "sandbox": command_environment.describe_sandbox(
            result.enforced, writable=call.terms.writable
        ),
        "leftovers": len(result.leftovers) + len(result.unkillable),
        "cut": bool(result.stdout.dropped or result.stderr.dropped),
    }
    return ToolResult(error is None, _join_streams(result, context), error, metadata)


def _join_streams(result: ProcessResult, context: ToolContext) -> str:
    """Return the output of the command; each of two long streams keeps a share of the bound."""
    bound = context.limits.output_bytes - output.NOTICE_BYTES
    errors = output.cut_captured(result.stderr, bound)
    share = max(bound // 4, bound - min(result.stdout.total, bound))
    errors = (
        errors if output.text_size(errors) <= share else output.cut_captured(result.stderr, share)
    )
    text_out = output.cut_captured(result.stdout, bound - output.text_size(errors))
    if not errors:
        return text_out
    gap = "" if not text_out or text_out.endswith("\n") else "\n"
    return f"{text_out}{gap}[stderr]\n{errors}"
