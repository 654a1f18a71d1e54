"""``shell``: runs a command in the workspace, held by the operating system's sandbox."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Runs
from coilclaw.domain.toolcalls import ToolResult
from coilclaw.errors import DeniedError, UsageError
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, text

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.security.judgement import Terms
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.workspace.process import ProcessResult
    from coilclaw.workspace.sandbox import SandboxSupport

MAX_COMMAND: Final = 30_000
"""Characters; the kernel takes 128 KiB for one argument, and one may have four bytes."""
MAX_ARGUMENTS: Final = 1000
MAX_TIMEOUT_S: Final = 86_400
GRACE_S: Final = 15.0
"""How much longer the guard waits than a command may take, so that its output is still told."""
MAX_SETTINGS: Final = 256 * 1024
_BASH: Final = ("bash", "--noprofile", "--norc", "-c")


class Shell(Basis):
    """Runs a command line, or a program with its arguments and no shell."""

    name: Final = "shell"
    description: Final = (
        "Run a program in the workspace. Prefer 'argv', a list with the program and its arguments, "
        "which no shell reads; 'command' is a bash command line. Give exactly one of them. There "
        "is no input and no terminal, and no network unless the user grants it: ask for it with "
        "'network'. Whatever is left running ends with the command, so that a server and what asks "
        "it belong into one command line. The exit code is reported."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "argv": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_ARGUMENTS,
                "items": {"type": "string", "maxLength": MAX_COMMAND},
                "description": "the program and its arguments",
            },
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND,
                "description": "a bash command line",
            },
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT_S,
                "description": "give up after so many seconds; more than the usual few for builds "
                "and tests, up to the configured limit",
            },
            "network": {
                "type": "boolean",
                "description": "ask for the network; the user sees it and may say no",
            },
        }
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (_runs(args),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.tools import shellbox
        from coilclaw.workspace import sandbox

        runs = _runs(args)
        terms = context.judge((runs,)).terms
        call = _Call(
            runs.argv or (*_BASH, str(runs.command)),
            terms,
            _seconds(args, context),
            sandbox.probe() if context.support is None else context.support(),
        )
        held = sandbox.choose(shellbox.sandbox(terms, context), call.support).enforced
        shellbox.refuse_open_network(terms, held)
        detail = (
            f"argv: {json.dumps(call.argv, ensure_ascii=False)}",
            f"in: {context.root.path}",
            f"sandbox: {shellbox.described(held, writable=terms.writable)}",
            f"network: {_network(runs, terms)}",
            f"at most: {call.timeout_s:g} s",
        )
        return Ready(
            detail,
            lambda: _run(call, held.kind, context),
            timeout_s=call.timeout_s + GRACE_S,
            lookup="start",
        )


@dataclass(frozen=True, slots=True)
class _Call:
    """What is to be started, and on what terms."""

    argv: tuple[str, ...]
    terms: Terms
    timeout_s: float
    support: SandboxSupport


def _network(runs: Runs, terms: Terms) -> str:
    """Say for the approver whether the command is given the network, and why."""
    if terms.network:
        return f"yes, because {terms.asked_for or 'a rule of the policy grants it'}"
    return "no, although it was asked for" if runs.network else "no"


def _runs(args: Arguments) -> Runs:
    if ("command" in args) == ("argv" in args):
        raise UsageError("give either 'command' or 'argv', and not both", rule="shell.arguments")
    if "command" in args:
        command = text(args, "command")
        _refuse_unpassable(command)
        return Runs(command=command, network=args.get("network") is True)
    given = args["argv"]
    if not isinstance(given, list) or not given or not given[0]:
        raise UsageError("'argv' names no program", rule="shell.arguments")
    argv = []
    for word in given:
        if not isinstance(word, str):
            raise UsageError("'argv' holds something that is no text", rule="shell.arguments")
        _refuse_unpassable(word)
        argv.append(word)
    return Runs(argv=tuple(argv), network=args.get("network") is True)


def _refuse_unpassable(word: str) -> None:
    """Refuse what the kernel cannot hand to a program."""
    try:
        raw = word.encode("utf-8")
    except UnicodeEncodeError:
        raw = b"\0"
    if b"\0" in raw:
        raise UsageError(
            "the command holds a NUL or what is no valid Unicode", rule="shell.arguments"
        )


def _seconds(args: Arguments, context: ToolContext) -> float:
    value = args.get("timeout_s", context.limits.shell_timeout_s)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError("'timeout_s' is no number of seconds", rule="shell.arguments")
    most = max(context.limits.shell_timeout_s, context.limits.shell_timeout_max_s)
    if value > most:
        raise DeniedError(
            f"'timeout_s' is {value:g}, and limits.shell_timeout_max_s permits {most:g} s at most",
            rule="shell.timeout",
            hint="ask for less, or have the user raise limits.shell_timeout_max_s",
        )
    return float(value)


def _run(call: _Call, kind: str, context: ToolContext) -> ToolResult:
    from coilclaw.tools import shellbox, shellenv
    from coilclaw.workspace import private_home, process

    kept_out = (str(context.root.path), str(context.home), *context.security.own_paths)
    env = shellenv.environment(
        context.environ, kept_out=kept_out, only_reading=not call.terms.writable
    )
    if not call.terms.writable and any("git" in word for word in call.argv):
        names = _git_settings(call, env, context)
        refused = shellenv.external_diff(names, call.argv)
        if refused is not None:
            return ToolResult(False, "", refused)
        env |= shellenv.quiet_drivers(names, env)
    with ExitStack() as stack:
        box = shellbox.sandbox(call.terms, context)
        if call.terms.writable and kind != "none":
            home = stack.enter_context(private_home.open_home(context.environ))
            env = shellbox.at_home(env, home, kind, context)
            box = shellbox.with_home(box, home, context, call.support, kind)
        stack.enter_context(shellbox.keep_git_settings(call.terms, context))
        context.starting()
        result = process.run(
            call.argv,
            cwd=context.root.path,
            timeout_s=call.timeout_s,
            env=env,
            limit_bytes=context.limits.output_bytes,
            sandbox=box,
            support=call.support,
            cancel=context.cancel,
        )
    return _told(result, call, context)


def _git_settings(call: _Call, env: dict[str, str], context: ToolContext) -> list[str]:
    """The names of what the repository's own configuration sets; reading them runs nothing."""
    from coilclaw.tools import shellbox
    from coilclaw.workspace import process

    result = process.run(
        ("git", "config", "--list", "--includes", "--name-only"),
        cwd=context.root.path,
        timeout_s=call.timeout_s,
        env=env,
        limit_bytes=MAX_SETTINGS,
        sandbox=shellbox.sandbox(call.terms, context),
        support=call.support,
        cancel=context.cancel,
    )
    return output.captured(result.stdout, MAX_SETTINGS).splitlines()


def _told(result: ProcessResult, call: _Call, context: ToolContext) -> ToolResult:
    from coilclaw.tools import shellbox

    error = _error(result, call, context)
    metadata: dict[str, Json] = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "outcome": result.outcome,
        "duration_ms": round(result.duration_s * 1000),
        "sandbox": shellbox.described(result.enforced, writable=call.terms.writable),
        "leftovers": len(result.leftovers) + len(result.unkillable),
        "cut": bool(result.stdout.dropped or result.stderr.dropped),
    }
    return ToolResult(error is None, _written(result, context), error, metadata)


def _written(result: ProcessResult, context: ToolContext) -> str:
    """What the command wrote; of two streams that are too long, neither crowds the other out."""
    bound = context.limits.output_bytes - output.NOTICE_BYTES
    errors = output.captured(result.stderr, bound)
    share = max(bound // 4, bound - min(result.stdout.total, bound))
    errors = errors if output.size(errors) <= share else output.captured(result.stderr, share)
    text_out = output.captured(result.stdout, bound - output.size(errors))
    if not errors:
        return text_out
    gap = "" if not text_out or text_out.endswith("\n") else "\n"
    return f"{text_out}{gap}[stderr]\n{errors}"


def _error(result: ProcessResult, call: _Call, context: ToolContext) -> str | None:
    if result.outcome == "cancelled":
        return f"stopped: {context.cancel.reason or 'somebody asked for it'}"
    if result.outcome == "timed_out":
        return f"ended after the limit of {call.timeout_s:g} s"
    if result.unkillable:
        return "a process of it cannot be ended"
    if result.signal is not None:
        return f"ended by signal {result.signal}"
    return None if result.exit_code == 0 else f"exit code {result.exit_code}"
