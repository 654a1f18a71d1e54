"""``coilclaw agent``: talk with the agent, once or for as long as you like."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.agentwiring import Runtime
    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-m", "--message", metavar="MESSAGE", help="run one turn and exit; '-' reads the input"
    )
    parser.add_argument(
        "--conversation", metavar="ID", help="resume this conversation, or begin it"
    )
    parser.add_argument(
        "--provider", metavar="NAME", help="ask this one of the configured providers"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run one turn, or the REPL."""
    from coilclaw.app.agentwiring import open_config, open_runtime
    from coilclaw.app.home import home
    from coilclaw.cli.people import at_terminal
    from coilclaw.cli.telling import logging_for
    from coilclaw.errors import UsageError

    if console.as_json and args.message is None:
        raise UsageError("--json goes with -m MESSAGE", rule="usage.json")
    place = home()
    config = open_config(place, os.environ)
    if not config.cli.enabled:
        raise UsageError(
            "this channel is switched off",
            rule="channel.disabled",
            hint="set channels.cli.enabled = true in the configuration",
        )
    with (
        logging_for(os.environ, config),
        open_runtime(
            place, os.environ, at_terminal(config.security.autonomy), config=config
        ) as runtime,
    ):
        if args.provider is not None:
            runtime.use(args.provider)
        if args.message is None:
            return _converse(runtime, args.conversation)
        return _once(runtime, args, console)


def _once(runtime: Runtime, args: argparse.Namespace, console: Console) -> int:
    from coilclaw.cli.dispatch import DENIED, DONE
    from coilclaw.errors import UsageError
    from coilclaw.runtime.message_text import check_message

    message = _input() if args.message == "-" else str(args.message)
    check_message(message)
    if not message.strip():
        raise UsageError("the message is empty", rule="message.empty")
    runtime.announce("cli")
    if console.as_json:
        outcome = runtime.turn(message, conversation_id=args.conversation)
        console.data(
            {
                "conversation_id": outcome.conversation_id,
                "turn_id": outcome.turn_id,
                "text": outcome.text,
                "tool_rounds": outcome.tool_rounds,
                "tool_calls": outcome.tool_calls,
                "denials": outcome.denials,
                "provider": outcome.provider,
                "model": outcome.model,
                "exhausted": outcome.exhausted,
            }
        )
    else:
        from coilclaw.channels.terminal import one_shot

        outcome = one_shot(
            runtime,
            message,
            out=console.out,
            environ=os.environ,
            conversation_id=args.conversation,
        )
    return DENIED if outcome.exhausted else DONE


def _input() -> str:
    from coilclaw.runtime.message_text import not_unicode

    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise not_unicode() from None


def _converse(runtime: Runtime, conversation_id: str | None) -> int:
    from coilclaw.channels.terminal import Repl
    from coilclaw.cli.dispatch import DONE, exit_code

    repl = Repl(os.environ, history=runtime.home / "history", conversation_id=conversation_id)
    runtime.announce(repl.name)
    repl.start(runtime)
    if repl.problem is not None and not sys.stdin.isatty():
        return exit_code(repl.problem)
    return DONE
