"""``coilclaw mock-server``: a scripted model on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--script", required=True, metavar="FILE", help="the script, a JSON file")
    parser.add_argument(
        "--port", required=True, type=int, metavar="N", help="the port; 0 picks a free one"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="loopback only (default: 127.0.0.1)"
    )
    parser.add_argument("--log", metavar="FILE", help="append every request, as lines of JSON")
    parser.add_argument(
        "--key", metavar="KEY", help="the key that requests must carry (default: any or none)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve until SIGINT or SIGTERM; exit 2 with every problem of a wrong script."""
    import signal

    from coilclaw.cli.dispatch import DONE, USAGE
    from coilclaw.modelserver.scriptfile import MAX_SHOWN_PROBLEMS, load
    from coilclaw.modelserver.server import ModelServer

    script = load(Path(args.script))
    if isinstance(script, tuple):
        for problem in script[:MAX_SHOWN_PROBLEMS]:
            console.error(f"{args.script}: {problem}", rule="script.invalid")
        if len(script) > MAX_SHOWN_PROBLEMS:
            console.note(f"and {len(script) - MAX_SHOWN_PROBLEMS} more problems")
        return USAGE
    server = ModelServer(
        script,
        host=args.host,
        port=args.port,
        key=args.key,
        log=Path(args.log) if args.log else None,
        kept_requests=0,
    )
    # Blocked before any thread starts, so that no thread but this one ever sees them.
    ends = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        with server:
            console.print(f"listening on {server.url}")
            console.out.flush()
            signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    console.note("stopped")
    return DONE
