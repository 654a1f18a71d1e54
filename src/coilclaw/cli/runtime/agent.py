"""``coilclaw agent``: talk to the agent, for one turn or interactively."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from coilclaw.cli.command import DENIED, DONE, Console, Namespace, Parser, load_config
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.app import Runtime


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-m", "--message", metavar="MESSAGE", help="run one turn and exit; '-' reads standard input"
    )
    parser.value("--conversation", "ID", "resume or start this conversation")
    parser.value("--provider", "NAME", "use this configured provider")
    parser.json()


def run(args: Namespace, console: Console) -> int:
    """Run one turn, or the REPL."""
    from coilclaw.cli.session import open_session

    if console.as_json and args.message is None:
        raise UsageError("--json needs -m MESSAGE", rule="usage.json")
    config = load_config()
    if not config.cli.enabled:
        raise UsageError(
            "this channel is disabled",
            rule="channel.disabled",
            hint="set channels.cli.enabled = true in the configuration",
        )
    with open_session(config) as runtime:
        if args.provider is not None:
            runtime.use(args.provider)
        if args.message is None:
            return _converse(runtime, args.conversation)
        return _run_turn(runtime, args, console)


def _run_turn(runtime: Runtime, args: Namespace, console: Console) -> int:
    from coilclaw.agent import check_message, not_unicode_error, run_one_turn

    try:
        message = sys.stdin.read() if args.message == "-" else str(args.message)
    except UnicodeDecodeError:
        raise not_unicode_error() from None
    check_message(message)
    if not message.strip():
        raise UsageError("the message is empty", rule="message.empty")
    runtime.announce("cli")
    name = args.conversation
    if console.as_json:
        outcome = runtime.turn(message, conversation_id=name)
        console.data(asdict(outcome))
    else:
        outcome = run_one_turn(
            runtime, message, out=console.out, environ=os.environ, conversation_id=name
        )
    return DENIED if outcome.exhausted else DONE


def _converse(runtime: Runtime, conversation_id: str | None) -> int:
    from coilclaw.agent import TerminalChannel
    from coilclaw.cli.dispatch import exit_code

    repl = TerminalChannel(
        os.environ, history=runtime.home / "history", conversation_id=conversation_id
    )
    runtime.announce(repl.name)
    repl.start(runtime)
    if repl.problem is not None and not sys.stdin.isatty():
        return exit_code(repl.problem)
    return DONE
